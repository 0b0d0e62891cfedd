"""What is known of memory: ranges of addresses, elements never written, and who used an element.

A *buffer* is the memory of one PyTorch storage. A *range* is what one argument of a kernel may
reach of it. A *shadow* holds a number for each element of a buffer.
"""

import ctypes
import mmap
import weakref
from typing import NamedTuple

import numpy as np
import torch

SLOT = 44  # each range has 2**44 addresses of its own, and lies in the middle of them
FIRST_SLOT = 16  # below are the addresses of the process
LAST_SLOT = 2**20 - 16
LARGE = 2**28  # bytes; larger buffers are not filled when they are made
LAZY = 0x4000  # MAP_NORESERVE: pages that nobody uses take no memory


class Shadow:
    """A number for each *grain* bytes of a buffer; the grain becomes 1 if elements ask for it."""

    def __init__(self, size, grain, dtype, value=0):
        self.size, self.grain = size, grain
        self.values = zeros(-(-size // grain), dtype)
        if value:
            self.values[:] = value

    def index(self, offsets, width):
        """The places of elements of *width* bytes: a slice, or an array with a row for each.

        *offsets* are the elements' distances from the beginning of the buffer, in bytes.
        """
        if width % self.grain or (offsets % self.grain).any():
            self.values, self.grain = np.repeat(self.values, self.grain)[: self.size], 1
        first, grains = offsets // self.grain, width // self.grain
        if len(first) > 1 and (first[1:] - first[:-1] == grains).all():
            return slice(int(first[0]), int(first[-1]) + grains)
        return first if grains == 1 else (first[:, None] + np.arange(grains)).ravel()


def zeros(count, dtype):
    """Return zeros that take memory only where they are used."""
    if count * np.dtype(dtype).itemsize < LARGE:
        return np.zeros(count, dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | LAZY
    return np.frombuffer(mmap.mmap(-1, count * np.dtype(dtype).itemsize, flags=flags), dtype)


class Buffer:
    """The memory of a storage."""

    def __init__(self, storage):
        self.base, self.size = storage.data_ptr(), storage.nbytes()
        self.storage = weakref.ref(storage)
        self.unwritten = None  # a shadow, where something has never been written
        self.filling = None  # what was written to memory that the program has not written
        self.kernel = ""  # the name of the kernel that used it last
        self.name = ""  # its argument's name there

    def elements(self, width):
        """The memory as unsigned integers of *width* bytes."""
        if not self.size:
            return np.empty(0, np.uint8)
        memory = (ctypes.c_char * self.size).from_address(self.base)
        return np.frombuffer(memory, f"u{width}", self.size // width)

    def is_new(self, dtype):
        """Nothing has been written to this memory: fill it, so that a later write shows."""
        grain = dtype.itemsize if dtype.itemsize in (1, 2, 4, 8) else 1
        self.unwritten = Shadow(self.size, grain, bool, True)
        if self.size <= LARGE:
            self.filling = dtype
            self.elements(1)[:] = filling(self.size, dtype)

    def still_unwritten(self, offsets, width):
        """Which elements have never been written, as an array; None if all have been."""
        if self.unwritten is None:
            return None
        found = self._at(offsets, width)
        if found.any():
            self.look()
            found = self._at(offsets, width) if self.unwritten else found & False
        return found if found.any() else None

    def _at(self, offsets, width):
        found = self.unwritten.values[self.unwritten.index(offsets, width)]
        return found.reshape(len(offsets), -1).any(axis=1)

    def written(self, offsets, width):
        """Elements have been written."""
        if self.unwritten is not None:
            self.unwritten.values[self.unwritten.index(offsets, width)] = False

    def look(self):
        """Find what has been written by others than kernels: there, the filling has gone."""
        if self.filling is not None and self.unwritten is not None:
            missing, grain = self.unwritten.values, self.unwritten.grain
            same = self.elements(1) == filling(self.size, self.filling)
            kept = np.minimum.reduceat(same, np.arange(0, self.size, grain))
            if (missing & ~kept).any():
                # Somebody has written; single elements may be as before by chance.
                missing &= kept if grain > 2 else in_runs(kept, 8 // grain)
        if self.unwritten is not None and not self.unwritten.values.any():
            self.unwritten = self.filling = None


def in_runs(kept, least):
    """Where at least *least* neighbors are true, or all."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], kept, [False]]).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    enough = ends - starts >= min(least, len(kept))
    steps = np.zeros(len(kept) + 1, np.int8)
    steps[starts[enough]], steps[ends[enough]] = 1, -1
    return np.cumsum(steps[:-1]) > 0


_TILES = {}


def filling(size, dtype):
    """Return bytes for memory that was never written: NaN with changing bits, or large integers."""
    if dtype not in _TILES:
        tile = np.random.default_rng(dtype.itemsize).integers(2, 256, 2**16, dtype=np.uint8)
        kinds = {
            torch.float64: (np.uint64, 0x7FF8 << 48),
            torch.float32: (np.uint32, 0x7FC0 << 16),
            torch.float16: (np.uint16, 0x7E00),
            torch.bfloat16: (np.uint16, 0x7FC0),
        }
        if dtype in kinds:
            kind, nan = kinds[dtype]
            values = tile.view(kind)
            values |= kind(nan)
        _TILES[dtype] = tile
    return np.resize(_TILES[dtype], size)


class Place(NamedTuple):
    """Where a tensor lies: from *address* on, in *storage*."""

    address: int
    shape: tuple
    strides: tuple
    width: int  # of an element, in bytes
    storage: object
    dtype: object = None

    @property
    def length(self):
        """How many elements lie from the first to the last one, in memory."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))


def place_of(tensor):
    """Where a tensor in main memory lies."""
    storage, width = tensor.untyped_storage(), tensor.element_size()
    address = storage.data_ptr() + tensor.storage_offset() * width
    shape = tuple(tensor.shape)
    return Place(address, shape, tensor.stride(), width, storage, tensor.dtype)


class Range:
    """What one argument reaches: from the first to the last element of a tensor."""

    def __init__(self, name, place, buffer, slot):
        self.name = name
        self.place = place
        self.buffer = buffer
        self.slot = slot
        self.dtype = place.dtype
        self.width = place.width
        self.length = place.length
        # Low bits stay as they are, since descriptors ask for alignment.
        self.first = (slot << SLOT) + (1 << (SLOT - 1)) + place.address % 4096
        self.end = self.first + self.length * self.width
        self.shift = self.first - place.address  # from an address in memory to one of the range
        self.members = members(place)  # None if all are


def members(place):
    """Which elements from the first to the last one belong to a view; None if it has no gaps."""
    count = int(np.prod(place.shape))
    if not count < place.length <= LARGE:
        return None
    found = np.zeros(place.length, bool)
    np.lib.stride_tricks.as_strided(found, place.shape, place.strides)[...] = True
    return found


class Memory:
    """All buffers that are known."""

    def __init__(self):
        self.buffers = {}  # of a storage, by its identity
        self.pointed = {}  # places of tensors whose address the program asked for, by address

    def buffer(self, storage):
        """The buffer of a storage in main memory."""
        known = self.buffers.get(storage._cdata)
        if known and known.base == storage.data_ptr() and known.size == storage.nbytes():
            return known
        known = self.buffers[storage._cdata] = Buffer(storage)
        weakref.finalize(storage, self._forget, storage._cdata, known).atexit = False
        return known

    def _forget(self, identity, buffer):
        if self.buffers.get(identity) is buffer:
            del self.buffers[identity]

    def known(self, tensor):
        """The buffer of a tensor, if it has one already."""
        return self.buffers.get(tensor.untyped_storage()._cdata) if in_memory(tensor) else None

    def points_to(self, tensor):
        """The program has asked for the address of *tensor*, so a kernel may find it in memory."""
        if in_memory(tensor) and tensor.numel():
            place = place_of(tensor)
            self.pointed[place.address] = place._replace(storage=weakref.ref(place.storage))

    def place_at(self, address):
        """The place that an address points into; None if there is none."""
        for first, place in list(self.pointed.items()):
            storage = place.storage()
            if storage is None:
                del self.pointed[first]
            elif 0 <= address - first < place.length * place.width:
                return place._replace(storage=storage)
        return None


def in_memory(tensor):
    """Whether a tensor is one of numbers in main memory."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
    )
