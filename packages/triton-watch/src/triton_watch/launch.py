"""One launch of a kernel: the addresses of its arguments, and who used them."""

from triton_watch.kernels import bound_arguments
from triton_watch.memory import FIRST_SLOT, LAST_SLOT, Range, place_of
from triton_watch.places import here
from triton_watch.races import Order, Uses


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
