"""
Questions: blocks and numbers
=============================

These questions are asked most often in the trackers of Triton and of the libraries that use it.
Each answer runs the code as it is first written, shows what happens, and runs the code that is
right. The links lead to discussions where they were asked.

This page is about blocks and numbers. :doc:`questions-memory` is about addresses, descriptors and
the order of memory accesses, and :doc:`questions-compiling` about compilation, tuning and calling.
Longer answers have pages of their own: :doc:`serving`, :doc:`settings`, :doc:`invariance`,
:doc:`graphs`, :doc:`other-gpus` and :doc:`dot-scaled`.
You need :doc:`/getting-started/tutorials/01-vector-add`.
"""

# %%
# How do I slice a block, or take one element of it?
# --------------------------------------------------
#
# You cannot index into a block, because its elements lie in the registers of many threads
# (`#656 <https://github.com/triton-lang/triton/issues/656>`_,
# `#10586 <https://github.com/triton-lang/triton/issues/10586>`_).

# sphinx_gallery_shows = "CompilationError"
import os

import matplotlib.pyplot as plt
import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.accelerator.current_accelerator() if ON_GPU else torch.device("cpu")


def attempt(name, call):
    """Print the result of *call*, or the last line of its error."""
    try:
        print(f"{name}: {call()}")
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        print(f"{name}: {type(error).__name__}: {(lines or ['no message'])[-1][:150]}")


@triton.jit
def index_kernel(x_ptr, out_ptr):
    """Wrong: index a block as a tensor of PyTorch."""
    x = tl.load(x_ptr + tl.arange(0, 8))
    tl.store(out_ptr, x[3])


@triton.jit
def element_kernel(x_ptr, out_ptr):
    """Take element 3, elements 6 and 1, and the first half of a block."""
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr, tl.sum(tl.where(i == 3, x, 0.0)))
    pair = 6 - 5 * tl.arange(0, 2)  # [6, 1]
    tl.store(out_ptr + 1 + tl.arange(0, 2), tl.gather(x, pair, axis=0))
    low, _ = tl.split(tl.permute(tl.reshape(x, (2, 4)), (1, 0)))  # [4]: columns of [4, 2]
    tl.store(out_ptr + 3 + tl.arange(0, 4), low)


def run(kernel, size, *arguments):
    """Return *size* numbers that the kernel wrote for x = 0, 1, 2, …"""
    x = torch.arange(8.0, device=DEVICE)
    out = torch.full((size,), -1.0, device=DEVICE)
    kernel[(1,)](x, out, *arguments)
    return out.tolist()


attempt("x[3]", lambda: run(index_kernel, 1))
attempt("one, two, half", lambda: run(element_kernel, 7))
assert run(element_kernel, 7) == [3, 6, 1, 0, 1, 2, 3]

# %%
# The interpreter may accept ``x[3]``, since it computes with NumPy. A sum over a masked block gives
# one element, ``tl.gather`` gives several, and ``reshape`` with ``split`` gives halves. Often none
# of them is needed: load only what you want, with its own offsets. The cache holds it already.
#
# Why does an ``if`` on a block fail?
# -----------------------------------
#
# A program follows one path. A block has many values, so there is no one answer to the question
# whether it is positive (`#6769 <https://github.com/triton-lang/triton/pull/6769>`_).


# sphinx_gallery_shows = "UnsupportedLanguageConstruct"
@triton.jit
def if_kernel(x_ptr, out_ptr):
    """Wrong: decide for a whole block."""
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    if x > 3:
        x = x * 10
    tl.store(out_ptr + i, x)


@triton.jit
def where_kernel(x_ptr, out_ptr):
    """Choose for each element; then decide once, for a number."""
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    x = tl.where(x > 3, x * 10, x)
    if tl.max(x) > 50:
        x = x + 1
    tl.store(out_ptr + i, x)


attempt("if x > 3", lambda: run(if_kernel, 8))
attempt("tl.where", lambda: run(where_kernel, 8))
assert run(where_kernel, 8) == [1, 2, 3, 4, 41, 51, 61, 71]

# %%
# ``tl.where`` computes both sides and chooses for each element. Use ``if`` for numbers: a program
# id, an argument, or the result of a reduction. ``and`` and ``or`` have the same limit; combine
# blocks with ``&`` and ``|``.
#
# What if a size is not a power of two?
# -------------------------------------
#
# Blocks have powers of two as sizes, so a head of 96 elements needs padding (`#3722
# <https://github.com/triton-lang/triton/issues/3722>`_, `#1965
# <https://github.com/triton-lang/triton/issues/1965>`_). Round the block up, mask the rest, and
# fill it with the neutral element of the next operation: zero for a product.


# sphinx_gallery_shows = "CompilationError"
@triton.jit
def odd_kernel(q_ptr, k_ptr, out_ptr, D: tl.constexpr):
    """Wrong: a range of any length."""
    rows, d = tl.arange(0, 16)[:, None], tl.arange(0, D)[None, :]
    q, k = tl.load(q_ptr + rows * D + d), tl.load(k_ptr + rows * D + d)
    tl.store(out_ptr + rows * 16 + tl.arange(0, 16)[None, :], tl.dot(q, k.T))


@triton.jit
def padded_kernel(q_ptr, k_ptr, out_ptr, D: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the 16 × 16 products of rows of D elements; BLOCK is the next power of two."""
    rows, d = tl.arange(0, 16)[:, None], tl.arange(0, BLOCK)[None, :]
    q = tl.load(q_ptr + rows * D + d, mask=d < D, other=0.0)  # [16, BLOCK]
    k = tl.load(k_ptr + rows * D + d, mask=d < D, other=0.0)
    tl.store(out_ptr + rows * 16 + tl.arange(0, 16)[None, :], tl.dot(q, k.T))


@triton.jit
def two_parts_kernel(q_ptr, k_ptr, out_ptr, D: tl.constexpr):
    """Compute the same for D = 96 as 64 + 32, without padding."""
    rows, a, b = (
        tl.arange(0, 16)[:, None],
        tl.arange(0, 64)[None, :],
        64 + tl.arange(0, 32)[None, :],
    )
    acc = tl.dot(tl.load(q_ptr + rows * D + a), tl.load(k_ptr + rows * D + a).T)
    acc = tl.dot(tl.load(q_ptr + rows * D + b), tl.load(k_ptr + rows * D + b).T, acc)
    tl.store(out_ptr + rows * 16 + tl.arange(0, 16)[None, :], acc)


q, k = torch.randn(2, 16, 96, device=DEVICE).half()
exact = q.double() @ k.double().T


def error_of(kernel, *constants):
    """Return the largest error of a kernel's products."""
    out = torch.full((16, 16), torch.nan, device=DEVICE)
    kernel[(1,)](q, k, out, *constants)
    return f"largest error {(out - exact).abs().max().item():.1e}"


attempt("a range of 96", lambda: error_of(odd_kernel, 96))
attempt("padded to 128", lambda: error_of(padded_kernel, 96, 128))
attempt("64 + 32", lambda: error_of(two_parts_kernel, 96))

# %%
# Padding is the simplest way, and costs time for the products with zeros. Two parts cost none. Both
# must have at least 16 elements, as ``tl.dot`` demands.
#
# Why does my fp32 product differ from PyTorch's?
# -----------------------------------------------
#
# On NVIDIA GPUs, ``tl.dot`` rounds fp32 inputs to TF32 by default: 10 bits of the fraction instead
# of 23. PyTorch does not (`#1800 <https://github.com/triton-lang/triton/issues/1800>`_,
# `#6265 <https://github.com/triton-lang/triton/issues/6265>`_,
# `#4603 <https://github.com/triton-lang/triton/issues/4603>`_).


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, PRECISION: tl.constexpr):
    """Compute the product of two 64 × 64 matrices."""
    i = tl.arange(0, 64)
    tile = i[:, None] * 64 + i[None, :]
    product = tl.dot(tl.load(a_ptr + tile), tl.load(b_ptr + tile), input_precision=PRECISION)
    tl.store(out_ptr + tile, product)


# sphinx_gallery_fold = "draws the errors of three precisions and of PyTorch"
torch.manual_seed(0)
a, b = torch.randn(2, 64, 64, device=DEVICE)
errors = {}
for precision in ("tf32", "tf32x3", "ieee"):
    out = torch.empty_like(a)
    dot_kernel[(1,)](a, b, out, precision)
    errors[precision] = (out - a.double() @ b.double()).abs().cpu()
errors["torch.matmul"] = (a @ b - a.double() @ b.double()).abs().cpu()
for name, error in errors.items():
    print(f"{name:12}: largest error {error.max().item():.1e}")
plt.rcParams["font.size"] = 12.5  # so that a phone can show it
_, axes = plt.subplots(2, 2, figsize=(5.6, 4.8), layout="constrained")
for ax, (name, error) in zip(axes.flat, errors.items(), strict=True):
    image = ax.imshow(error.clamp_min(1e-9).log10(), vmin=-7, vmax=-1.5, cmap="Blues")
    ax.set(title=name, xticks=[], yticks=[])
plt.colorbar(image, ax=axes, label="log₁₀ of the error", shrink=0.8)
plt.show()

# %%
# Each square shows the errors of the 64 × 64 elements of one product. ``input_precision="ieee"``
# computes in fp32, on NVIDIA GPUs without tensor cores. ``"tf32x3"`` splits each number into two
# and adds three products on tensor cores, which is about as exact. Decide what is needed before you
# compare: in TF32, each product of two numbers can be off by one or two thousandths of its size. So
# the tolerance of a test against PyTorch must grow with the sum of these sizes. The interpreter
# computes in fp32, whatever is asked for.
#
# How do I print inside a kernel?
# -------------------------------
#
# ``print`` and ``tl.device_print`` print when the kernel runs, one line for each element, with the
# program's id. The first argument is a text, and only numbers and blocks may follow (`#1799
# <https://github.com/triton-lang/triton/issues/1799>`_, `#2486
# <https://github.com/triton-lang/triton/issues/2486>`_, `#5501
# <https://github.com/triton-lang/triton/issues/5501>`_).


# sphinx_gallery_shows = "CompilationError"
@triton.jit
def print_text_kernel(x_ptr):
    """Wrong: a text that is not the first argument."""
    tl.device_print("the value", "is", tl.load(x_ptr))


@triton.jit
def print_kernel(x_ptr):
    """Print types while it is compiled, and values while it runs, in one program."""
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.static_print("compiled for", x.dtype, x.shape)
    if tl.program_id(0) == 1:  # one program is enough
        tl.device_print("x", x)


x = torch.arange(4.0, device=DEVICE) + 0.5
attempt("two texts", lambda: print_text_kernel[(1,)](x))
print_kernel[(3,)](x, num_warps=1)
if ON_GPU:
    torch.accelerator.synchronize()  # the lines arrive when the kernel has ended

# %%
# On a GPU each thread prints the elements that it holds. A warp has more threads than this block
# has elements, so each line comes several times.
#
# ``tl.static_print`` prints when the kernel is compiled: types and constants, once, and not again
# if the kernel comes from the cache. For more than a few numbers, store the block in a tensor that
# you pass for this, and look at it in Python. In the interpreter, ``TRITON_INTERPRET=1``, Python's
# own ``print`` and debugger work. :doc:`/programming-guide/chapter-3/debugging` goes on from here.
