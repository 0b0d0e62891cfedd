"""Find out whether two programs of one launch use an element, one of them changing it."""

import numpy as np

from triton_watch.memory import Shadow

SEVERAL = -1


class RaceError(Exception):
    """Another program uses the *place*-th of the elements that are looked at, too."""

    def __init__(self, place, other, wrote):
        super().__init__()
        self.place, self.other, self.wrote = place, other, wrote


class Order:
    """Which programs have finished what before the current one: atomic operations tell.

    Programs have numbers from 1 on, and run one after the other. A program *releases* what it has
    done by an atomic operation on one element; who uses that element in the same way afterwards
    comes after it.
    """

    def __init__(self):
        self.program = 0
        self.releases = 0  # by this program
        self.before = {}  # how many releases of each program come before this one
        self.places = {}  # the same, for each element that was used so

    def begin(self):
        """The next program begins."""
        self.program += 1
        self.releases, self.before = 0, {}

    @property
    def now(self):
        """A number for this program and its last release."""
        return self.program << 32 | self.releases

    def atomic(self, address, acquires, releases):
        """The current program uses one element with an atomic operation."""
        known = self.places.get(address)
        if known and acquires and known is not self.before:
            self.before = {**known, **self.before} if self.before else known
        if releases:
            self.releases += 1
            self.before[self.program] = self.releases
            self.places[address] = self.before

    def unordered(self, uses):
        """Which of the *uses*, numbers as ``now``, are of other programs, and not before us."""
        found = (uses != 0) & (uses >> 32 != self.program)
        if self.before and found.any():
            for use in np.unique(uses[found]).tolist():
                # Of several programs the names are not kept: suppose that all came before.
                if use == SEVERAL or self.before.get(use >> 32, -1) > use & 0xFFFFFFFF:
                    found &= uses != use
        return found


class Uses:
    """Who used the elements of one buffer in this launch."""

    def __init__(self, order, size, width):
        self.order = order
        # The program that used an element last; several, if they did so without an order.
        self.touched, self.changed = Shadow(size, width, np.int64), Shadow(size, width, np.int64)
        self.atomics = None
        self.last_store = None  # the number of the program that stored an element last
        self.stores = None  # by how many programs in turn an element was stored

    def count_store(self, offsets, width):
        """The program stores elements, whatever their values are."""
        if self.stores is None:
            self.last_store = Shadow(self.touched.size, width, np.int64)
            self.stores = Shadow(self.touched.size, width, np.int32)
        index = self.last_store.index(offsets, width)
        others = self.last_store.values[index] != self.order.program
        self.last_store.values[index] = self.order.program
        self.stores.values[self.stores.index(offsets, width)] += others

    def fewest_stores(self):
        """By how many programs each stored element was stored at least; 0 if none was stored."""
        if self.stores is None:
            return 0
        counts = self.stores.values[self.stores.values > 0]
        return int(counts.min()) if counts.size else 0

    def read(self, offsets, width):
        """The program loads elements."""
        if len(offsets) == 1 and self._read_one(int(offsets[0]), width):
            return
        self._apart(self.changed, offsets, width, wrote=True)
        self._apart(self.atomics, offsets, width, wrote=True)
        self._note(self.touched, offsets, width)

    def _read_one(self, offset, width):
        """Whether one element is used by this program alone: the usual case, which is fast."""
        touched, changed = self.touched, self.changed
        if self.atomics is not None or not touched.grain == changed.grain == width:
            return False
        place, now = offset // width, self.order.now
        for use in (int(changed.values[place]), int(touched.values[place])):
            if use and use >> 32 != now >> 32:
                return False
        touched.values[place] = now
        return True

    def write(self, offsets, width, differs):
        """The program stores elements; *differs* says which of them get another value."""
        if differs.any():
            changing = offsets[differs]
            self._apart(self.changed, changing, width, wrote=True, of=differs)
            self._apart(self.atomics, changing, width, wrote=True, of=differs)
            self._apart(self.touched, changing, width, wrote=False, of=differs)
            self.changed.values[self.changed.index(changing, width)] = self.order.now
        self._note(self.touched, offsets, width)

    def update(self, offsets, width):
        """The program uses elements with an atomic operation."""
        self._apart(self.changed, offsets, width, wrote=True)
        self._apart(self.touched, offsets, width, wrote=False)
        if self.atomics is None:
            self.atomics = Shadow(self.touched.size, width, np.int64)
        self._note(self.atomics, offsets, width)

    def _apart(self, shadow, offsets, width, wrote, of=None):
        """No other program has used the elements, unless it came before this one."""
        if shadow is None:
            return
        uses = shadow.values[shadow.index(offsets, width)]
        found = self.order.unordered(uses)
        if found.any():
            first = int(np.argmax(found))
            place = first * len(offsets) // len(uses)
            if of is not None:
                place = int(np.flatnonzero(of)[place])
            raise RaceError(place, int(uses[first]) >> 32, wrote)

    def _note(self, shadow, offsets, width):
        index = shadow.index(offsets, width)
        several = self.order.unordered(shadow.values[index])
        shadow.values[index] = np.where(several, SEVERAL, self.order.now)
