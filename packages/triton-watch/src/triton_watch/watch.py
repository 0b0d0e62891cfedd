"""Watch every address that kernels use while Triton's interpreter executes them.

Each argument of a kernel gets addresses of its own, far from all others. A load or a store looks up
its addresses there, and only then goes to memory. So nothing outside is ever read or written.
"""

import contextlib
import time

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from triton_watch.inplace import Trials
from triton_watch.kernels import Kernels, bound_arguments
from triton_watch.limits import LIMIT, Limits
from triton_watch.memory import FIRST_SLOT, LAST_SLOT, SLOT, Memory, Range, place_of
from triton_watch.operations import Operations
from triton_watch.places import FaultError, chain, count_of, here, program_name
from triton_watch.races import Order, RaceError, Uses
from triton_watch.undefined import Following, undefined


class Launch:
    """One launch of a kernel: what its arguments reach, and what its programs have used."""

    def __init__(self, watch, executor, arguments, named):
        self.watch = watch
        self.function = executor.fn
        self.kernel = executor.fn.__name__
        self.line = here()
        self.order = Order()
        self.uses = {}  # of each buffer
        self.ranges = {}  # of each slot of addresses
        self.grid = (1, 1, 1)
        self.wrapped = ""  # where an integer was too large for 32 bits
        self.names = iter(list(self._named_tensors(executor, arguments, named)))

    def _named_tensors(self, executor, arguments, named):
        """The names of the arguments that are tensors, in the order of conversion."""
        for name, value in bound_arguments(executor, arguments, named).items():
            if name not in executor.constexprs:
                yield from names_in(name, value)

    def address_of(self, tensor):
        """The address that a kernel sees for an argument."""
        tensor = getattr(tensor, "base", tensor)  # of a wrapper with another dtype
        return self.add(next(self.names, "an argument"), place_of(tensor)).first

    def add(self, name, place):
        """Give a tensor a range of addresses."""
        buffer = self.watch.memory.buffer(place.storage)
        buffer.name, buffer.kernel = name, self.kernel
        slot = FIRST_SLOT + len(self.ranges)
        if slot > LAST_SLOT:
            raise OverflowError(f"more than {LAST_SLOT - FIRST_SLOT} tensors in one launch")
        self.ranges[slot] = Range(name, place, buffer, slot)
        return self.ranges[slot]

    def uses_of(self, buffer, width):
        """Who used a buffer; None if there is one program only."""
        if self.grid == (1, 1, 1):
            return None
        if buffer not in self.uses:
            self.uses[buffer] = Uses(self.order, buffer.size, width)
        return self.uses[buffer]

    def program(self, number):
        """The indices of a program, from its number."""
        x, rest = divmod(number - 1, self.grid[1] * self.grid[2])
        return (x, *divmod(rest, self.grid[2]))


def names_in(name, value):
    """The names of the tensors in an argument."""
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)
        for i, one in enumerate(value):
            yield from names_in(f"{name}.{fields[i]}" if fields else f"{name}[{i}]", one)
    elif hasattr(value, "data_ptr") or type(value).__name__ == "TensorDescriptor":
        yield name


class Watch:
    """While active, kernels run in the interpreter are watched, and what they move is counted."""

    def __init__(self, trace=None, compiler=None, limit=LIMIT):
        """Args:
        trace: A Trace that collects what programs touch, or None.
        compiler: A Compiler that tries whether kernels compile, or None.
        limit: The seconds of processor time that one program of a kernel may take.
        """
        self.memory = Memory()
        self.launch = None
        self.trace = trace
        self.kernels = Kernels(self, compiler)
        self.limits = Limits(self, limit)
        self.trials = Trials(self)
        self.notes = []  # what is no fault, in sentences
        self.faults = []
        self.partly = []  # buffers that kernels got, and that may have gaps
        self.reset()
        self.alive = time.monotonic()  # when a program began last
        self.undo = []
        self.plain = False  # whether the access being executed has no mask
        self.other = False  # whether the load being executed has an ``other``
        self.atomic = ""

    def reset(self):
        """Count from 0."""
        self.loaded = 0  # bytes, by kernels
        self.stored = 0
        self.copied = 0  # bytes, loaded and stored by copies of PyTorch such as `.contiguous()`
        self.dots = 0
        self.multiplied = 0
        self.launches = 0

    def remarks(self):
        """What is no fault by itself, in sentences."""
        return [*self.notes, *self.gaps()]

    def gaps(self):
        """What kernels have left out of tensors that still exist, in sentences."""
        for buffer in self.partly:
            if buffer.storage() is not None:
                buffer.look()
                if buffer.unwritten is not None:
                    missing = buffer.unwritten.values
                    yield (
                        f"{buffer.kernel} leaves out a part of `{buffer.name}`: {missing.sum()} of "
                        f"{len(missing)} elements have never been written; the first is at "
                        f"{np.argmax(missing)}."
                    )

    # --- faults -----------------------------------------------------------------------------------

    def note(self, fault):
        """Keep a fault, and return it: the program may catch the error."""
        self.faults.append(fault)
        return fault

    def fault(self, title, *rows):
        """Return the error to raise for what the current program does in the current line."""
        launch = self.launch
        grid = launch.grid
        place = program_name(self.interpreter.interpreter_builder.grid_idx, grid)
        return self.note(
            FaultError(
                title,
                ("kernel", f"{launch.kernel}, {here()}"),
                ("program", f"{place}, in a grid of {program_name(grid, grid)}"),
                *rows,
                ("launched", launch.line),
            )
        )

    def finish(self):
        """Wait for what the compiler says of the kernels, and add it to the faults."""
        self.faults += self.kernels.refused()

    def _note_repeated_stores(self):
        """Note a kernel of which each program stores the same elements."""
        for buffer, uses in self.launch.uses.items():
            fewest = uses.fewest_stores()
            if fewest < 2:
                continue
            programs = int(np.prod(self.launch.grid))
            self.notes.append(
                f"{self.launch.kernel} stores each element of `{buffer.name}` several times: in "
                f"{fewest} of {programs} programs, with the same value. Does each program do all "
                "the work? Usual cause: `tl.program_id` is not a part of the offsets."
            )

    def _trace(self, kind, pointers, mask):
        if self.trace:
            self.trace.access(kind, self.launch, pointers, getattr(mask, "data", mask))

    # --- memory -----------------------------------------------------------------------------------

    def look_up(self, pointers, mask, kind):
        """Check the addresses of an access; return real addresses, and what is used of each range.

        The latter are pairs: a range, and the places of its elements among those that the mask
        lets through, with their offsets in the buffer.
        """
        if pointers.data.size == 1 and (found := self._look_up_one(pointers, mask)):
            return found
        if undefined(mask) is not None and undefined(mask).any():
            raise self.undefined(f"the mask of a {kind}")
        chosen = getattr(mask, "data", mask) if not isinstance(mask, np.ndarray) else mask
        chosen = np.broadcast_to(np.asarray(chosen, bool), pointers.data.shape)
        whole = bool(chosen.all())
        addresses = pointers.data.reshape(-1) if whole else pointers.data[chosen]
        if not addresses.size:
            return pointers.data, []
        lost = undefined(pointers)
        if lost is not None and (lost & chosen).any():
            raise self.undefined(f"the address of a {kind}")
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        low, high = int(addresses.min()), int(addresses.max())
        one = self.launch.ranges.get(low >> SLOT)
        if one and one.first <= low and high + width <= one.end:
            self._in_view(one, addresses, kind, addresses.size)
            wrapped = getattr(pointers, "wrapped", None)
            if wrapped is not None and (wrapped & chosen).any():
                raise self.fault(
                    f"integer overflow: the address of a {kind} depends on it",
                    ("index", f"{(low - one.first) // one.width} of `{one.name}`"),
                    ("cause", f"{self.launch.wrapped}: convert it with `.to(tl.int64)`"),
                )
            offsets = (addresses - np.uint64(one.shift + one.buffer.base)).astype(np.int64)
            return pointers.data - np.uint64(one.shift), [(one, slice(None), offsets)]
        return self._look_up_several(pointers, chosen, addresses, width, kind)

    def _look_up_one(self, pointers, mask):
        """The same for one address that is right, which is fast; None otherwise."""
        known = pointers.__dict__
        if "undefined" in known or "wrapped" in known or undefined(mask) is not None:
            return None
        address = int(pointers.data.reshape(-1)[0])
        one = self.launch.ranges.get(address >> SLOT)
        if one is None or not one.first <= address or not np.all(getattr(mask, "data", mask)):
            return None
        if address + max(1, pointers.get_element_ty().primitive_bitwidth // 8) > one.end:
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
            one = self.launch.ranges.get(slot)
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
        return self.fault(
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

    def _is_defined(self, value, chosen, kind):
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
        return self.fault(
            f"out of bounds: a {kind}", *rows, ("cause", self._cause(one, index, whole))
        )

    def _cause(self, one, index, whole):
        """The usual cause of an address that is out of bounds."""
        shape, strides = one.place.shape, one.place.strides
        if self.launch.wrapped:
            return f"{self.launch.wrapped}: convert it with `.to(tl.int64)`"
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
        if self.plain and whole and self.launch.order.program > 1:
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
        if self.launch.wrapped:
            cause = f"{self.launch.wrapped}: convert it with `.to(tl.int64)`"
        return self.fault(
            f"out of bounds: a {kind}",
            ("address", f"{signed:#x}, which belongs to no known tensor"),
            ("cause", cause),
        )

    def load(self, pointers, mask, volatile):
        """A program loads elements; return their addresses in memory."""
        self._trace("load", pointers, mask)
        real, used = self.look_up(pointers, mask, "load")
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        for one, _, offsets in used:
            self.loaded += len(offsets) * width
            self._is_written(one, offsets, width)
            self.trials.read(one.buffer, offsets, width)
            uses = self.launch.uses_of(one.buffer, width)
            if uses and (volatile or self.atomic):
                if len(offsets) == 1:
                    self.launch.order.atomic(one.buffer.base + int(offsets[0]), True, False)
            elif uses:
                self._without_race(one, offsets, "load", lambda u=uses, o=offsets: u.read(o, width))
        return real

    def _is_written(self, one, offsets, width):
        missing = one.buffer.still_unwritten(offsets, width)
        if missing is not None:
            index = self._index(one, offsets[int(np.argmax(missing))])
            raise self.fault(
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
                place = self.launch.program(race.other)
                other = f"program {program_name(place, self.launch.grid)}"
            did = "has written" if race.wrote else "has loaded or stored"
            does = {"load": "loads", "store": "stores another value to", "update": "updates"}[kind]
            raise self.fault(
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
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        chosen = mask if isinstance(mask, np.ndarray) else mask.data
        chosen = np.broadcast_to(np.asarray(chosen, bool), pointers.data.shape)
        self._is_defined(value, chosen, "a store")
        new = bits(np.broadcast_to(value.data, chosen.shape)[chosen], width) if used else None
        for one, places, offsets in used:
            self.stored += len(offsets) * width
            uses = self.launch.uses_of(one.buffer, width)
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
            self.trials.written(one.buffer, offsets, width)
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
            raise self.fault(
                "several values for one element in one store: which one remains is undefined",
                ("index", f"{index} of `{one.name}`"),
                ("cause", "a stride of 0, or indices that occur twice"),
            )

    def update(self, pointers, mask, acquires, releases):
        """A program uses elements with an atomic operation; return their addresses in memory."""
        self._trace("atomic", pointers, mask)
        real, used = self.look_up(pointers, mask, "update")
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        for one, _, offsets in used:
            self.loaded += len(offsets) * width
            self.stored += len(offsets) * width
            self._is_written(one, offsets, width)
            self.trials.read(one.buffer, offsets, width)
            if uses := self.launch.uses_of(one.buffer, width):
                self._without_race(
                    one, offsets, "update", lambda u=uses, o=offsets: u.update(o, width)
                )
            if len(offsets) == 1:
                # After the check: elements that are updated by all give no order to themselves.
                place = one.buffer.base + int(offsets[0])
                self.launch.order.atomic(place, acquires, releases)
        return real

    def to_integers(self, addresses):
        """The addresses in memory of pointers."""
        found = np.array(addresses)
        for slot in np.unique(addresses >> np.uint64(SLOT)).tolist():
            if one := self.launch.ranges.get(slot):
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
        place = self.memory.place_at(address)
        if place is None:  # not named by the program, but perhaps an argument or inside of one
            for one in self.launch.ranges.values():
                if 0 <= address - one.place.address < one.length * one.width:
                    return one
            return None
        for one in self.launch.ranges.values():
            if one.place[:4] == place[:4]:
                return one
        return self.launch.add(f"the tensor of shape {place.shape} that a pointer names", place)

    # --- the interpreter --------------------------------------------------------------------------

    current = None  # the active one

    def __enter__(self):
        from triton.runtime import autotuner, interpreter

        self.interpreter = interpreter
        self.following = Following(interpreter)
        self._replace_operations(interpreter.InterpreterBuilder)
        self._set(interpreter.GridExecutor, "__call__", self._execute)
        self._set(interpreter, "_implicit_cvt", self._convert)
        if hasattr(interpreter, "_convert_float"):
            self._set(interpreter, "_convert_float", self._round)
        self._set(interpreter, "_patch_lang_tensor", self._to_python)
        self._set(autotuner.Autotuner, "_bench", self._first_configuration)
        self._set(autotuner.Autotuner, "run", self.trials.tuned)
        self.limits.replace(self._set, interpreter)
        self._set(torch.Tensor, "data_ptr", self._data_ptr)
        self._set(torch.Tensor, "__repr__", self._shown)
        self._set(torch.Tensor, "tolist", self._shown)
        self._set(interpreter.interpreter_semantic.__class__, *self._overflow())
        self._set(interpreter.interpreter_semantic.__class__, "load", self._with_other)
        self.mode = Operations(self)
        self.mode.__enter__()
        Watch.current = self
        return self

    def __exit__(self, *error):
        Watch.current = None
        self.mode.__exit__(None, None, None)
        for owner, name, before in reversed(self.undo):
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self.undo = []

    def _set(self, owner, name, function):
        before = owner.__dict__.get(name)
        original = getattr(owner, name)
        self.undo.append((owner, name, before))

        def replaced(*arguments, **named):
            return function(original, *arguments, **named)

        setattr(owner, name, replaced)

    def _replace_operations(self, builder):
        simple = {
            "create_load": self._plain,
            "create_store": self._plain,
            "create_masked_load": self._load,
            "create_masked_store": self._store,
            "create_atomic_rmw": self._atomic_rmw,
            "create_atomic_cas": self._atomic_cas,
            "create_dot": self._dot,
            "create_gather": self._gather,
            "binary_op": self._compute,
            "unary_op": self._compute,
            "create_int_to_ptr": self._int_to_ptr,
            "create_ptr_to_int": self._ptr_to_int,
            "set_grid_idx": self._program,
            "create_tensor_pointer_load": self._of("block pointer"),
            "create_tensor_pointer_store": self._of("block pointer"),
            "create_descriptor_load": self._of("descriptor"),
            "create_descriptor_store": self._of("descriptor"),
            "create_atomic_load": self._atomically,
            "create_atomic_store": self._atomically,
            "create_atomic_poll": self._atomically,
        }
        self.kind = ""
        for name, function in simple.items():
            if hasattr(builder, name):  # block pointers, for example, are gone in Triton 3.9
                self._set(builder, name, function)

    def _of(self, kind):
        def access(original, *arguments, **named):
            self.kind = kind
            try:
                return original(*arguments, **named)
            finally:
                self.kind = ""

        return access

    def _plain(self, original, *arguments, **named):
        self.plain = True
        try:
            return original(*arguments, **named)
        finally:
            self.plain = False

    def _atomically(self, original, *arguments, **named):
        self.atomic = "atomic"
        try:
            return original(*arguments, **named)
        finally:
            self.atomic = ""

    def _handle(self, data, like):
        return self.interpreter.TensorHandle(data, like.dtype)

    def _with_other(self, original, semantic, pointers, mask, other, *rest, **named):
        """The interpreter takes the ``other`` of one element that is 0 for none."""
        self.other = other is not None
        try:
            return original(semantic, pointers, mask, other, *rest, **named)
        finally:
            self.other = False

    def _load(self, original, builder, pointers, mask, other, *rest, **named):
        volatile = named.get("is_volatile", rest[-1] if rest else False)
        real = self.load(pointers, mask, bool(volatile))
        value = original(builder, self._handle(real, pointers), mask, other, *rest, **named)
        if pointers.get_element_ty().is_ptr():
            value.data = self.to_pointers(value.data)
        chosen = np.asarray(getattr(mask, "data", mask), bool)
        given = self.other if other is None else undefined(other) is None
        if chosen.all() or given:
            return value
        lost = ~np.broadcast_to(chosen, value.data.shape)
        lost = lost if other is None else lost & undefined(other)
        if lost.any():
            self.following.begin()
            value.undefined = lost
        return value

    def _store(self, original, builder, pointers, value, mask, *rest, **named):
        real = self.store(pointers, value, mask)
        if pointers.get_element_ty().is_ptr():
            value = self._handle(self.to_integers(value.data), value)
        return original(builder, self._handle(real, pointers), value, mask, *rest, **named)

    def _atomic_rmw(self, original, builder, operation, pointers, value, mask, sem, scope):
        real = self.update(pointers, mask, *orders(sem))
        self._is_defined(value, np.broadcast_to(mask.data, pointers.data.shape), "an update")
        return original(builder, operation, self._handle(real, pointers), value, mask, sem, scope)

    def _atomic_cas(self, original, builder, pointers, expected, value, sem, scope):
        mask = np.ones(pointers.data.shape, bool)
        real = self.update(pointers, mask, *orders(sem))
        self._is_defined(expected, mask, "an update")
        self._is_defined(value, mask, "an update")
        return original(builder, self._handle(real, pointers), expected, value, sem, scope)

    def _dot(self, original, builder, a, b, *rest):
        self.limits.dot(a, b)
        self.dots += 1
        self.multiplied += a.data.size * b.data.shape[-1]
        return original(builder, self._in_fp32(a), self._in_fp32(b), *rest)

    def _in_fp32(self, block):
        """A block; of bf16 as fp32, since the interpreter computes with bf16 as with integers."""
        if block.data.dtype != np.uint16 or block.dtype.scalar != self.interpreter.tl.bfloat16:
            return block
        data = (block.data.astype(np.uint32) << 16).view(np.float32)
        return self.interpreter.TensorHandle(data, self.interpreter.tl.float32)

    def _compute(self, original, builder, first, *rest):
        self.limits.time()
        wide = self._in_fp32(first)
        if wide is first:
            return original(builder, first, *rest)
        result = original(builder, wide, *map(self._in_fp32, rest[:-1]), rest[-1])
        if result.data.dtype == np.float32:
            return builder.cast_impl(result, self.interpreter.tl.bfloat16)
        return self._handle(result.data, first)

    def _gather(self, original, builder, source, indices, axis):
        length = source.data.shape[axis]
        outside = (indices.data < 0) | (indices.data >= length)
        if outside.any():
            index = indices.data[outside].reshape(-1)[0]
            raise self.fault(
                "out of bounds: a gather",
                ("index", f"{index} of a block which has {count_of(length, 'element')} there"),
                ("cause", "an index into the tensor, and not into the block that was loaded"),
            )
        return original(builder, source, indices, axis)

    def _int_to_ptr(self, original, builder, value, kind):
        found = original(builder, value, kind)
        found.data = self.to_pointers(found.data)
        return found

    def _ptr_to_int(self, original, builder, pointer, kind):
        return original(builder, self._handle(self.to_integers(pointer.data), pointer), kind)

    def _to_python(self, original, tensor, *scope):
        """Branches and loops make numbers of Python of the elements that they depend on."""
        original(tensor, *scope)
        for name in ("__bool__", "__index__"):
            before = getattr(tensor, name)

            def number(block, name=name, before=before):
                lost = undefined(block.handle)
                if self.launch and lost is not None and lost.size == 1 and lost.all():
                    raise self.undefined("a branch or a loop")
                # Triton 3.6 expects an older NumPy, which makes a number of an array.
                return before(block) if name == "__bool__" else int(block.handle.data.item())

            setattr(tensor, name, number)

    def _program(self, original, builder, *place):
        self.launch.grid = builder.grid_dim
        self.launch.order.begin()
        self.limits.begin()
        self.launch.wrapped = ""
        self.alive = time.monotonic()
        return original(builder, *place)

    def _execute(self, original, executor, *arguments, **named):
        if self.launch:  # of another thread: the interpreter has one state for all
            return original(executor, *arguments, **named)
        self.kernels.check(executor, arguments, named)
        self.launch = Launch(self, executor, arguments, named)
        self.launches += 1
        self.alive = time.monotonic()
        if self.trace:
            self.trace.begin(self.launch)
        self.trials.begin(self.launch, arguments, named)
        try:
            with _disable_current_modes():
                result = original(executor, *arguments, **named)
            self.trials.end(self.launch)
            self._note_repeated_stores()
            return result
        except self.interpreter.InterpreterError as error:
            fault = next((e for e in chain(error) if isinstance(e, FaultError)), None)
            if fault is None:
                fault = self.kernels.fault_of_error(error, executor, arguments, named)
            if fault:
                raise fault from None
            raise error from error.__cause__
        finally:
            self.following.end()
            buffers = {one.buffer for one in self.launch.ranges.values()}
            self.partly += [b for b in buffers if b.unwritten is not None and b not in self.partly]
            self.launch = None
            if self.trace:
                self.trace.end()
            self.alive = time.monotonic()

    def _convert(self, original, argument):
        found = original(argument)
        if hasattr(argument, "data_ptr") and self.launch:
            found.handle.data[0] = self.launch.address_of(argument)
        return found

    def _data_ptr(self, original, tensor):
        if not self.launch:
            self.memory.points_to(tensor)
        return original(tensor)

    def _shown(self, original, tensor, **named):
        """The script prints a tensor: what was never written in it is named at the end."""
        if not self.launch:
            self.mode.shown(tensor)
        return original(tensor, **named)

    def _first_configuration(self, original, tuner, *arguments, config, **named):
        """Without a GPU there is nothing to time: the first configuration is as good as any."""
        return [0.0 if config is tuner.configs[0] else 1.0] * 3

    def _overflow(self):
        """Notice where an integer wraps around; the interpreter only prepares to."""
        name = "binary_op_sanitize_overflow_impl"

        def notice(original, semantic, left, right, operation):
            if not self.launch:
                return
            kind = left.type.scalar
            width = kind.int_bitwidth if kind.is_int_signed() else 64
            if width not in (8, 16, 32):
                return
            end = 2 ** (width - 1)
            a, b = left.handle.data, right.handle.data
            if not a.size or not b.size:
                return
            function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[operation.__name__]
            largest = [max(abs(int(x.min())), abs(int(x.max()))) for x in (a, b)]
            if (largest[0] * largest[1] if operation.__name__ == "mul" else sum(largest)) < end:
                return
            exact = function(a.astype(np.int64), b.astype(np.int64))
            wraps = (exact >= end) | (exact < -end)
            if wraps.any():
                place = here().partition(" `")[0]
                self.launch.wrapped = (
                    f"an integer of {kind.int_bitwidth} bits wraps around in {place}"
                )
                self.following.begin()
                self.following.wraps = wraps

        return name, notice

    def _round(self, original, values, source, target, mode):
        """Round fp32 to a narrower type as a GPU does; the interpreter cuts bits off."""
        kinds = {
            "fp8e4nv": (torch.float8_e4m3fn, torch.uint8),
            "fp8e5": (torch.float8_e5m2, torch.uint8),
            "bf16": (torch.bfloat16, torch.uint16),
        }
        if str(source) != "fp32" or str(target) not in kinds:
            return original(values, source, target, mode)
        kind, bits_of = kinds[str(target)]
        most = torch.finfo(kind).max if bits_of == torch.uint8 else torch.inf  # fp8 saturates
        return torch.tensor(values).clamp(-most, most).to(kind).view(bits_of).numpy()


@contextlib.contextmanager
def watching():
    """The active watch, or a new one."""
    if Watch.current:
        yield Watch.current
    else:
        with Watch() as watch:
            yield watch


def bits(values, width):
    """Values as unsigned integers, which can be compared although some are NaN."""
    return np.ascontiguousarray(values).view(f"u{width}") if values.itemsize == width else values


def in_buffer(buffer, offsets, width):
    """The elements at *offsets* of a buffer, as unsigned integers."""
    if not (offsets % width).any():
        return buffer.elements(width)[offsets // width]
    parts = buffer.elements(1)[offsets[:, None] + np.arange(width)]
    return parts.view(f"u{width}").reshape(-1)


def orders(sem):
    """Whether an atomic operation acquires, and whether it releases."""
    name = str(sem).rpartition(".")[2].lower()
    return name in ("acquire", "acquire_release"), name in ("release", "acquire_release")
