"""Each load, store and atomic operation: its addresses are looked up, and faults are named."""

import numpy as np

from triton_watch.memory import SLOT
from triton_watch.places import count_of, program_name
from triton_watch.races import RaceError
from triton_watch.undefined import undefined


class Accesses:
    """The accesses of a launch.

    Attributes:
        plain: Whether the access being executed has no mask.
        kind: ``block pointer`` or ``descriptor`` if it is by one of these, else nothing.
        atomic: Whether it is a load or a store that is atomic.
    """

    def __init__(self, watch):
        self.watch = watch
        self.plain = False
        self.kind = ""
        self.atomic = False

    def load(self, pointers, mask, volatile):
        """A program loads elements; return their addresses in memory."""
        self._trace("load", pointers, mask)
        real, used = self.look_up(pointers, mask, "load")
        width = width_of(pointers)
        for one, _, offsets in used:
            self.watch.loaded += len(offsets) * width
            self._is_written(one, offsets, width)
            self.watch.trials.read(one.buffer, offsets, width)
            uses = self.watch.launch.uses_of(one.buffer, width)
            if uses and (volatile or self.atomic):
                if len(offsets) == 1:
                    self.watch.launch.order.atomic(one.buffer.base + int(offsets[0]), True, False)
            elif uses:
                self._without_race(one, offsets, "load", lambda u=uses, o=offsets: u.read(o, width))
        return real

    def look_up(self, pointers, mask, kind):
        """Check the addresses of an access.

        Returns:
            The real addresses, and what is used of each range: pairs of a range and the places of
            its elements among those that the mask lets through, with their offsets in the buffer.
        """
        if pointers.data.size == 1:
            found = self._look_up_one(pointers, mask)
            if found:
                return found
        missing = undefined(mask)
        if missing is not None and missing.any():
            raise self.undefined(f"the mask of a {kind}")
        chosen = chosen_by(mask, pointers.data.shape)
        whole = bool(chosen.all())
        addresses = pointers.data.reshape(-1) if whole else pointers.data[chosen]
        if not addresses.size:
            return pointers.data, []
        missing = undefined(pointers)
        if missing is not None and (missing & chosen).any():
            raise self.undefined(f"the address of a {kind}")
        width = width_of(pointers)
        low, high = int(addresses.min()), int(addresses.max())
        one = self.watch.launch.ranges.get(low >> SLOT)
        if one is None or low < one.first or high + width > one.end:
            return self._look_up_several(pointers, chosen, addresses, width, kind)
        self._in_view(one, addresses, kind, addresses.size)
        self._has_not_wrapped(one, pointers, chosen, low, kind)
        offsets = (addresses - np.uint64(one.shift + one.buffer.base)).astype(np.int64)
        return pointers.data - np.uint64(one.shift), [(one, slice(None), offsets)]

    def _has_not_wrapped(self, one, pointers, chosen, low, kind):
        """No address that is inside of a tensor is so by an integer that has wrapped around."""
        wrapped = getattr(pointers, "wrapped", None)
        if wrapped is not None and (wrapped & chosen).any():
            raise self.watch.fault(
                f"integer overflow: the address of a {kind} depends on it",
                ("index", f"{(low - one.first) // one.width} of `{one.name}`"),
                ("cause", f"{self.watch.launch.wrapped}: convert it with `.to(tl.int64)`"),
            )

    def _look_up_one(self, pointers, mask):
        """The same for one address that is right, which is fast; None otherwise."""
        known = pointers.__dict__
        if "undefined" in known or "wrapped" in known or undefined(mask) is not None:
            return None
        address = int(pointers.data.reshape(-1)[0])
        one = self.watch.launch.ranges.get(address >> SLOT)
        if one is None or not one.first <= address or not np.all(getattr(mask, "data", mask)):
            return None
        if address + width_of(pointers) > one.end:
            return None
        if one.members is not None and not one.members[(address - one.first) // one.width]:
            return None
        offset = address - one.shift - one.buffer.base
        return pointers.data - np.uint64(one.shift), [(one, slice(None), np.array([offset]))]

    def _look_up_several(self, pointers, chosen, addresses, width, kind):
        real, used = np.array(pointers.data), []
        moved = addresses.copy()
        for slot in np.unique(addresses >> np.uint64(SLOT)).tolist():
            places = np.flatnonzero(addresses >> np.uint64(SLOT) == slot)
            one = self.watch.launch.ranges.get(slot)
            mine = addresses[places]
            if one is None:
                raise self._nowhere(int(mine[0]), kind)
            outside = (mine < np.uint64(one.first)) | (mine + np.uint64(width) > np.uint64(one.end))
            if outside.any():
                raise self._outside(one, mine, outside, kind, len(addresses))
            self._in_view(one, mine, kind, len(addresses))
            offsets = (mine - np.uint64(one.shift + one.buffer.base)).astype(np.int64)
            used.append((one, places, offsets))
            moved[places] = mine - np.uint64(one.shift)
        real[chosen] = moved
        return real, used

    def undefined(self, what):
        """The fault of an undefined element that something depends on."""
        return self.watch.fault(
            "an undefined value",
            ("what", f"{what} depends on elements that a masked load left out"),
            ("cause", "no `other=` at that load: what its mask leaves out is undefined"),
        )

    def _in_view(self, one, addresses, kind, count):
        """No address lies between the elements of a view, where its memory has others."""
        if one.members is not None:
            outside = ~one.members[(addresses - np.uint64(one.first)) // np.uint64(one.width)]
            if outside.any():
                raise self._outside(one, addresses, outside, kind, count)

    def is_defined(self, value, chosen, kind):
        """The elements of a block that are written are defined."""
        lost = undefined(value)
        if lost is not None and (np.broadcast_to(lost, chosen.shape) & chosen.astype(bool)).any():
            raise self.undefined(f"the value of {kind}")

    def _outside(self, one, addresses, outside, kind, count):
        index = (int(addresses[outside][0]) - one.first) // one.width
        shape = one.place.shape
        has = f"which has {count_of(one.length, 'element')}"
        if one.length != int(np.prod(shape)):
            has = f"a view that reaches over {count_of(one.length, 'element')}"
        if len(shape) != 1:
            has += f", shape {shape}"
        whole = int(outside.sum()) == count
        if 0 <= index < one.length:
            has = f"which is none of its elements: it is a view of shape {shape}"
        rows = [("index", f"{index} of `{one.name}`, {has}")]
        if count > 1:
            rows.append(("block", f"{outside.sum()} of {count} addresses are out of bounds"))
        return self.watch.fault(
            f"out of bounds: a {kind}", *rows, ("cause", self._cause(one, index, whole))
        )

    def _cause(self, one, index, whole):
        """The usual cause of an address that is out of bounds."""
        shape, strides = one.place.shape, one.place.strides
        if self.watch.launch.wrapped:
            return f"{self.watch.launch.wrapped}: convert it with `.to(tl.int64)`"
        if not one.length:
            return "the tensor is empty: nothing may be loaded from it or stored to it"
        if self.kind == "descriptor":
            return "the shape or the strides of the descriptor are not those of the tensor"
        if self.kind == "block pointer":
            return "no `boundary_check`, or a shape or strides that are not those of the tensor"
        if one.length < int(np.prod(shape)):
            return f"the tensor is expanded, with the strides {strides}: pass them to the kernel"
        if one.length > int(np.prod(shape)) or (len(shape) > 1 and strides[-1] != 1):
            return f"the tensor is a view with the strides {strides}: pass them to the kernel"
        if index < 0:
            return "an offset below zero, such as `offsets - 1`, which no mask leaves out"
        if self.plain and whole and self.watch.launch.order.program > 1:
            return "no mask; or a grid with too many programs, or a wrong stride"
        if self.plain:
            return "no mask, such as `mask=offsets < n`"
        if whole:
            return "a stride or an offset that is not this tensor's"
        return "a mask for the length of another tensor or another axis"

    def _nowhere(self, address, kind):
        signed = address - 2**64 if address >= 2**63 else address
        cause = "an integer that is no address, or a tensor that no longer exists"
        if not signed:
            cause = "a table of pointers in which a place is empty"
        if self.watch.launch.wrapped:
            cause = f"{self.watch.launch.wrapped}: convert it with `.to(tl.int64)`"
        return self.watch.fault(
            f"out of bounds: a {kind}",
            ("address", f"{signed:#x}, which belongs to no known tensor"),
            ("cause", cause),
        )

    def _is_written(self, one, offsets, width):
        missing = one.buffer.still_unwritten(offsets, width)
        if missing is not None:
            index = self._index(one, offsets[int(np.argmax(missing))])
            raise self.watch.fault(
                "uninitialized memory: a load of an element to which nothing has been stored",
                ("index", f"{index} of `{one.name}`, which has {count_of(one.length, 'element')}"),
                (
                    "cause",
                    "`torch.empty` where `torch.zeros` is needed, or an earlier kernel that leaves "
                    "elements out",
                ),
            )

    def _index(self, one, offset):
        return (int(offset) + one.buffer.base - one.place.address) // one.width

    def _without_race(self, one, offsets, kind, use):
        try:
            use()
        except RaceError as race:
            other = "other programs"
            if race.other > 0:
                place = self.watch.launch.program(race.other)
                other = f"program {program_name(place, self.watch.launch.grid)}"
            did = "has written" if race.wrote else "has loaded or stored"
            does = {"load": "loads", "store": "stores another value to", "update": "updates"}[kind]
            raise self.watch.fault(
                "a race: two programs of one launch use one element, in any order",
                ("index", f"{self._index(one, offsets[race.place])} of `{one.name}`"),
                ("who", f"this program {does} the element, which {other} {did}"),
                (
                    "cause",
                    "blocks that overlap, a sum without `tl.atomic_add`, or work in place",
                ),
            ) from None

    def store(self, pointers, value, mask):
        """A program is about to store elements; return their addresses in memory."""
        self._trace("store", pointers, mask)
        real, used = self.look_up(pointers, mask, "store")
        width = width_of(pointers)
        chosen = chosen_by(mask, pointers.data.shape)
        self.is_defined(value, chosen, "a store")
        new = bits(np.broadcast_to(value.data, chosen.shape)[chosen], width) if used else None
        for one, places, offsets in used:
            self.watch.stored += len(offsets) * width
            uses = self.watch.launch.uses_of(one.buffer, width)
            values = new[places]
            if uses and self.atomic:
                uses.update(offsets, width)
            elif uses:
                old = in_buffer(one.buffer, offsets, width)
                self._without_race(
                    one,
                    offsets,
                    "store",
                    lambda u=uses, o=offsets, d=old != values: u.write(o, width, d),
                )
            if uses:
                uses.count_store(offsets, width)
            one.buffer.written(offsets, width)
            self.watch.trials.written(one.buffer, offsets, width)
            self._without_conflict(one, offsets, values)
        return real

    def _without_conflict(self, one, offsets, values):
        """Elements of one block that go to the same place have the same value."""
        if len(offsets) < 2 or (offsets[1:] > offsets[:-1]).all():
            return
        order = np.argsort(offsets, kind="stable")
        same = offsets[order][1:] == offsets[order][:-1]
        clash = same & (values[order][1:] != values[order][:-1])
        if clash.any():
            index = self._index(one, offsets[order][int(np.argmax(clash))])
            raise self.watch.fault(
                "several values for one element in one store: which one remains is undefined",
                ("index", f"{index} of `{one.name}`"),
                ("cause", "a stride of 0, or indices that occur twice"),
            )

    def update(self, pointers, mask, acquires, releases):
        """A program uses elements with an atomic operation; return their addresses in memory."""
        self._trace("atomic", pointers, mask)
        real, used = self.look_up(pointers, mask, "update")
        width = width_of(pointers)
        for one, _, offsets in used:
            self.watch.loaded += len(offsets) * width
            self.watch.stored += len(offsets) * width
            self._is_written(one, offsets, width)
            self.watch.trials.read(one.buffer, offsets, width)
            if uses := self.watch.launch.uses_of(one.buffer, width):
                self._without_race(
                    one, offsets, "update", lambda u=uses, o=offsets: u.update(o, width)
                )
            if len(offsets) == 1:
                # After the check: elements that are updated by all give no order to themselves.
                place = one.buffer.base + int(offsets[0])
                self.watch.launch.order.atomic(place, acquires, releases)
        return real

    def _trace(self, kind, pointers, mask):
        """Keep an access for the trace, if there is one."""
        trace = self.watch.trace
        if trace:
            trace.access(kind, self.watch.launch, pointers, chosen_by(mask, pointers.data.shape))

    def to_integers(self, addresses):
        """The addresses in memory of pointers."""
        found = np.array(addresses)
        for slot in np.unique(addresses >> np.uint64(SLOT)).tolist():
            if one := self.watch.launch.ranges.get(slot):
                found[addresses >> np.uint64(SLOT) == slot] -= np.uint64(one.shift)
        return found

    def to_pointers(self, addresses):
        """Pointers from addresses in memory: those into known tensors get ranges."""
        found = np.array(addresses)
        for address in np.unique(addresses).tolist():
            one = self._range_at(address)
            if one:
                found[addresses == address] += np.uint64(one.shift)
        return found

    def _range_at(self, address):
        """The range that an address in memory points into."""
        place = self.watch.memory.place_at(address)
        if place is None:  # not named by the program, but perhaps an argument or inside of one
            for one in self.watch.launch.ranges.values():
                if 0 <= address - one.place.address < one.length * one.width:
                    return one
            return None
        for one in self.watch.launch.ranges.values():
            if one.place[:4] == place[:4]:
                return one
        return self.watch.launch.add(
            f"the tensor of shape {place.shape} that a pointer names", place
        )


def chosen_by(mask, shape):
    """Which elements of a block a mask lets through, as an array of the block's shape."""
    if not isinstance(mask, np.ndarray):
        mask = getattr(mask, "data", mask)
    return np.broadcast_to(np.asarray(mask, bool), shape)


def width_of(pointers):
    """The bytes of an element that pointers point to."""
    return max(1, pointers.get_element_ty().primitive_bitwidth // 8)


def bits(values, width):
    """Values as unsigned integers, which can be compared although some are NaN."""
    return np.ascontiguousarray(values).view(f"u{width}") if values.itemsize == width else values


def in_buffer(buffer, offsets, width):
    """The elements at *offsets* of a buffer, as unsigned integers."""
    if not (offsets % width).any():
        return buffer.elements(width)[offsets // width]
    parts = buffer.elements(1)[offsets[:, None] + np.arange(width)]
    return parts.view(f"u{width}").reshape(-1)
