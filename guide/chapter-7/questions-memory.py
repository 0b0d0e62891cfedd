"""
Questions: memory
=================

Three questions on addresses, descriptors and the order of memory accesses. :doc:`questions` says
how these pages are made.
"""

# %%
# Why is a large tensor wrong, or an illegal access?
# --------------------------------------------------
#
# ``tl.program_id``, ``tl.arange`` and arguments below 2³¹ have 32 bits, and so has their product.
# An offset beyond 2³¹ − 1 wraps around without an error (`#6748
# <https://github.com/triton-lang/triton/issues/6748>`_, `#1058
# <https://github.com/triton-lang/triton/issues/1058>`_, `fla #1080
# <https://github.com/fla-org/flash-linear-attention/issues/1080>`_). This kernel stores its offsets
# instead of using them, so that no other memory is touched:

import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")


@triton.jit
def offsets_kernel(out_ptr, first, stride, WIDE: tl.constexpr):
    """Store the offset of the first element of four rows."""
    row = first + tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    tl.store(out_ptr + tl.program_id(0), row * stride)


rows, stride = 40_000, 65_536  # a matrix of 2.6 × 10⁹ elements
for wide in (False, True):
    out = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    offsets_kernel[(4,)](out, rows - 4, stride, WIDE=wide)
    starts = "; ".join(f"{i:,}" for i in out.tolist())
    print(f"{'64' if wide else '32'} bits: the last rows begin at {starts}")
assert out.tolist() == [(rows - 4 + i) * stride for i in range(4)]

# %%
# A negative offset points in front of the tensor. If that memory belongs to the process, the kernel
# reads or overwrites other data, without an error. Convert one factor **before** the
# multiplication: ``row.to(tl.int64) * stride``. The result of a product is too late. Offsets within
# a block stay small and may keep 32 bits. ``TRITON_DEBUG=1`` in the environment adds checks for
# overflow: see :doc:`/programming-guide/chapter-3/crash`.
#
# A loop has the same limit. If *N* is less than a block below 2³¹, the last step of ``range(0, N,
# BLOCK)`` goes beyond 2³¹ − 1 and becomes negative: the mask allows it, and the loop goes on. From
# 2³¹ on, *N* is passed in 64 bits, and the loop has them, too. Where a lesson loops over a row or
# over *K*, lengths within 32,768 elements below 2³¹ do not return, or end in an illegal access.
#
# Why is my tensor refused as a descriptor?
# -----------------------------------------
#
# A tensor descriptor holds the address, shape and strides of a matrix, and the shape of a tile. It
# follows the rules of the hardware that copies such tiles, the tensor memory accelerator: an
# address that is a multiple of 16 bytes, a last stride of 1, and other strides that are multiples
# of 16 bytes (`#10927 <https://github.com/triton-lang/triton/issues/10927>`_).


# sphinx_gallery_shows = "AssertionError"
def describe(name, tensor):
    """Print whether a descriptor of *tensor* can be made."""
    try:
        TensorDescriptor.from_tensor(tensor, [16, 16])
        print(f"{name}: accepted")
    except AssertionError as error:
        print(f"{name}: AssertionError: {str(error)[:40]}")


matrix = torch.randn(64, 100, device=DEVICE).half()
describe("rows of 200 bytes", matrix)
describe("a transposed matrix", torch.zeros(64, 128, device=DEVICE).T)
describe("a view from element 1 on", torch.zeros(64 * 64 + 1, device=DEVICE)[1:].view(64, 64))

padded = torch.zeros(64, 104, device=DEVICE, dtype=torch.float16)  # rows of 208 bytes
padded[:, :100] = matrix
describe("a slice of rows of 208 bytes", padded[:, :100])

# %%
# Give rows a length that fits when you allocate them, and slice: the descriptor keeps the shape of
# the slice, and what lies behind it reads as zero. For a column-major matrix, describe its
# transpose, and transpose the tile in the kernel. Where neither is possible, use offsets: see
# :doc:`/programming-guide/chapter-8/moving`. A descriptor that the kernel makes itself with
# ``tl.make_tensor_descriptor`` has the same rules, but strides known only at run time are **not
# checked**: the result is wrong without an error.
#
# Is what I stored visible to the next load, or to another program?
# -----------------------------------------------------------------
#
# Within a program, the threads that store an element and those that load it may differ, and Triton
# puts no barrier between accesses to global memory (`#1097
# <https://github.com/triton-lang/triton/issues/1097>`_, `#11872
# <https://github.com/triton-lang/triton/pull/11872>`_). This kernel stores a block and reads it
# back in another order:


@triton.jit
def readback_kernel(x_ptr, scratch_ptr, out_ptr, BARRIER: tl.constexpr, N: tl.constexpr):
    """Reverse *N* numbers through global memory."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(scratch_ptr + i, tl.load(x_ptr + i))
    if BARRIER:
        tl.debug_barrier()
    reverse = tl.program_id(0) * N + N - 1 - tl.arange(0, N)
    tl.store(out_ptr + i, tl.load(scratch_ptr + reverse))


N, PROGRAMS = (4096, 1000) if ON_GPU else (64, 4)
x = torch.arange(N * PROGRAMS, device=DEVICE, dtype=torch.float32).view(PROGRAMS, N)
for barrier in (False, True):
    scratch, out = torch.full_like(x, -1), torch.empty_like(x)
    readback_kernel[(PROGRAMS,)](x, scratch, out, BARRIER=barrier, N=N)
    wrong = (out != x.flip(1)).sum().item()
    how = "with" if barrier else "without"
    print(f"{how} a barrier: {wrong:,} of {x.numel():,} numbers are wrong")
assert wrong == 0

# %%
# Without the barrier, a number is wrong where its load came before its store. If none is wrong,
# that is luck, on this GPU and today. ``tl.debug_barrier()`` lets all threads of a program wait
# until each has come here and its stores are visible to the others. It is no barrier between
# programs.
#
# Between programs there is only one order: that of atomic operations. Programs start in any order
# and not all at once, so a program must never wait for one that may not have started. Instead, let
# each program add to a counter when its part is stored. The program that comes last finds all
# parts:


@triton.jit
def sum_kernel(x_ptr, parts_ptr, count_ptr, out_ptr, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Add up all numbers: one part a program, and the sum of the parts in the last one."""
    part = tl.program_id(0)
    total = tl.sum(tl.load(x_ptr + part * BLOCK + tl.arange(0, BLOCK)))
    tl.store(parts_ptr + part, total)
    tl.debug_barrier()  # every thread's store comes before the count
    if tl.atomic_add(count_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        p = tl.arange(0, PARTS)
        parts = tl.load(parts_ptr + p, mask=p < tl.num_programs(0), other=0.0, volatile=True)
        tl.store(out_ptr, tl.sum(parts))


x = torch.randn(100 * 1024, device=DEVICE)
parts, out = torch.empty(100, device=DEVICE), torch.empty(1, device=DEVICE)
sums = set()
for _ in range(20):
    count = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    sum_kernel[(100,)](x, parts, count, out, BLOCK=1024, PARTS=128)
    sums.add(out.item())
print(
    f"20 runs give {len(sums)} result; the error is {abs(out.item() - x.double().sum().item()):.0e}"
)
assert len(sums) == 1

# %%
# ``sem="acq_rel"``, the default, makes stores before the atomic operation visible to a program that
# sees its result; ``"relaxed"`` does not. The parts are added in the same order each time, so the
# result is the same each time. ``tl.atomic_add`` would add them in the order in which they come:
# :doc:`/getting-started/tutorials/05-layer-norm` shows the consequences.
