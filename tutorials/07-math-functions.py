r"""
Math functions
==============

``tl.exp(x)`` is one short call, and behind it may be one instruction or thirty, a result that is
right to the last digit or one that is off by dozens of them. Nothing in the name tells you which.
And the same function is to be had in three other ways. This page looks behind the calls, measures
how wrong each way is *over all numbers that there are*, and how fast.

You will build ``gelu(x)``, exact and approximate, and learn

* what a call becomes: an instruction, a library function, or a piece of polynomial;
* what a *unit in the last place* is, and how to find the worst error of a function for certain;
* what "fast" means, and when it does not matter because memory is slower anyway;
* how to compute a function by hand: with a polynomial, with the bits of a float, with an
  instruction that Triton has no name for;
* how to link a library of your own into a kernel;
* what of all this works on other GPUs, and without one.

You should know :doc:`01-vector-add`.

.. ladder::
"""

# %%
# Without a GPU the first cell chooses the interpreter. It brings the timing loop and the rounding.

# sphinx_gallery_fold = "chooses the device, brings the timing loop and the rounding"
# sphinx_gallery_thumbnail_number = 2
# sphinx_gallery_level = "beyond"
import csv
import re
import sys  # for shared/
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.measuring import in_new_thread, measure, rates, side_by_side, significant, write_rows
from shared.setup import DEVICE, ON_GPU

warnings.filterwarnings("ignore", category=RuntimeWarning)  # the interpreter's, of infinities
print("Kernels run on:", DEVICE if ON_GPU else "the CPU, in the interpreter")

# %%

# sphinx_gallery_fold = "brings the ladder of steps, the claims and the styles of curves"
from shared.claims import claim, print_claims, spread
from shared.ladder import ladder
from shared.plotting import CEILING, OTHER, OURS, STEP_1, TORCH, plot_rates

# %%
import triton
import triton.language as tl
from triton.language.extra import libdevice

# %%
# Step 1: an exact GELU
# ---------------------
#
# The *Gaussian error linear unit* is the activation of many networks. It multiplies *x* by the
# probability that a normally distributed number is smaller than *x*:
#
# .. math::
#
#     \mathrm{gelu}(x) = \frac{x}{2} \left( 1 + \mathrm{erf} \frac{x}{\sqrt 2} \right)
#
# where erf is the *error function*, an integral without a formula. Triton has it. So the kernel is
# as short as that of vector addition. The function is an argument of the kernel, a
# ``tl.constexpr``: for each function that is given, Triton compiles a kernel of its own, with the
# function's code in the middle of it. We are going to give many.


@triton.jit
def gelu_exact(x):
    """Return GELU of x, by the library's erf."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def elementwise_kernel(x_ptr, y_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    """Apply a function to n elements, in fp32; one program works on BLOCK of them."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    tl.store(y_ptr + offsets, FUNCTION(x), mask=inside)


def elementwise(function, x):
    """Return *function* of each element of the contiguous tensor *x*."""
    y = torch.empty_like(x)
    n = x.numel()
    block = 2048 if x.element_size() == 2 and n >= 2**22 else 1024
    warps = 8 if x.element_size() == 4 else 4
    if n:
        grid = (triton.cdiv(n, block),)
        elementwise_kernel[grid](x, y, n, FUNCTION=function, BLOCK=block, num_warps=warps)
    return y


x = torch.linspace(-12, 12, 10_000, device=DEVICE)
expected = functional.gelu(x.double())
torch.testing.assert_close(elementwise(gelu_exact, x).double(), expected, rtol=0, atol=1e-6)
print("gelu_exact agrees with float64")

# %%
# What a call becomes
# -------------------
#
# What did the compiler make of ``tl.erf``? A compiled kernel keeps its assembly: on NVIDIA's GPUs
# *PTX*, which one more compiler turns into the machine's own code, on AMD's the instructions
# themselves. The next cell compiles the kernel with one function after the other, and looks for
# instructions that compute something by themselves. They belong to a part of the multiprocessor of
# its own, the *special function unit*, which knows a few functions by tables: ``ex2`` (2 to the
# power of), ``lg2``, ``sin``, ``rcp`` (1 divided by), ``rsqrt``, ``tanh``. What is more, it counts
# all instructions that the function adds to a kernel that only copies. Here is one of nine that
# call one function each:


# sphinx_gallery_fold = "calls one function in each of eight more"
# sphinx_gallery_show = "call_erf"
@triton.jit
def identity(x):
    """Return x."""
    return x


@triton.jit
def call_exp(x):
    """Return e to the power of x."""
    return tl.exp(x)


@triton.jit
def call_exp2(x):
    """Return 2 to the power of x."""
    return tl.exp2(x)


@triton.jit
def call_log(x):
    """Return the natural logarithm of x."""
    return tl.log(x)


@triton.jit
def call_sin(x):
    """Return the sine of x."""
    return tl.sin(x)


@triton.jit
def call_rsqrt(x):
    """Return 1 / sqrt(x)."""
    return tl.rsqrt(x)


@triton.jit
def call_erf(x):
    """Return the error function of x."""
    return tl.erf(x)


@triton.jit
def call_sigmoid(x):
    """Return 1 / (1 + exp(-x))."""
    return tl.sigmoid(x)


@triton.jit
def call_divide(x):
    """Return 3 / x."""
    return 3.0 / x


# %%

# sphinx_gallery_fold = "compiles each and counts its instructions"
SPECIAL = re.compile(
    r"\b(?:ex2|lg2|sin|cos|tanh|rcp|rsqrt|sqrt|div)\.[\w.]+|\bv_(?:exp|log|sin|rcp|rsq|sqrt)_f32"
)


def assembly(function):
    """Return the assembly of ``elementwise_kernel`` with *function*, one instruction a line."""
    x = torch.ones(1024, device=DEVICE)
    kernel = elementwise_kernel[(1,)](x, x, 1024, FUNCTION=function, BLOCK=1024, num_warps=4)
    text = kernel.asm.get("ptx") or kernel.asm.get("amdgcn", "")
    return [line for line in text.splitlines() if re.match(r"\s+[@a-z{]", line)]


def print_instructions(functions):
    """Print what each of {name: function} becomes."""
    elements = 1024 // (4 * 32)  # of a thread
    codes = side_by_side([partial(assembly, f) for f in (identity, *functions.values())])
    plain = len(codes[0])
    table = []
    for name, lines in zip(functions, codes[1:], strict=True):
        special = sorted({found for line in lines for found in SPECIAL.findall(line)})
        count = round((len(lines) - plain) / elements)
        table.append((name, ", ".join(special) or "none", count))
    print(tabulate(table, ["call", "special instructions", "instructions"], disable_numparse=True))


if ON_GPU:
    print_instructions({
        "tl.exp2": call_exp2, "tl.exp": call_exp, "tl.log": call_log, "tl.sin": call_sin,
        "tl.rsqrt": call_rsqrt, "tl.erf": call_erf, "tl.sigmoid": call_sigmoid,
        "3 / x": call_divide,
    })  # fmt: skip
else:
    print("In the interpreter nothing is compiled.")

# %%
# Three kinds can be told apart:
#
# * **One instruction, or two.** ``tl.exp2`` is the hardware's own. ``tl.exp`` multiplies by
#   :math:`\log_2 e` first, since the hardware has no other base. ``approx`` in a name is meant
#   seriously. ``ftz`` means *flush to zero*: numbers too small to have all their digits
#   (**subnormal** numbers, below 2⁻¹²⁶ in fp32) are taken for zero.
# * **A library function**, where the hardware has nothing: ``tl.erf``. On NVIDIA's GPUs the library
#   is **libdevice**, a file of bitcode that comes with Triton; on AMD's it is called OCML. Its code
#   is copied into the kernel, and what you see of it is arithmetic.
# * **A library function, where the hardware has something**: ``tl.log`` and ``tl.sin``. There are
#   instructions for both, and Triton does not use them. Why not? Further down we measure it.
#
# What Triton does not name, like tanh, is in ``triton.language.extra.libdevice``: some two hundred
# functions on NVIDIA's GPUs, fewer on AMD's. The same ``import`` finds the right ones when a kernel
# is compiled.
#
# **In the interpreter** there is no compiler, and so neither libdevice nor assembly. ``tl.exp`` and
# its like are NumPy's functions there, which says nothing about the accuracy on a GPU. What follows
# leaves out there what cannot run.
#
# Four ways to each function
# --------------------------
#
# Here are eight functions, each as PyTorch has it, as Triton's language has it, as libdevice has
# it, and by hand. Where the language has no such function, the middle one is what one would write
# with what it has: tanh through ``tl.sigmoid``, powers through ``tl.exp2`` and ``tl.log2``.
#
# **By hand** begins with the exponential. Split the number into an integer and a rest, :math:`x
# \log_2 e = k + f`, so that :math:`e^x = 2^k \cdot e^r`, with a rest :math:`r` of at most
# :math:`\frac12 \log 2`. For so small an interval a polynomial of degree six will do. And
# :math:`2^k` needs no arithmetic at all: a float *is* a sign, an exponent and digits, and the
# exponent stands in bits 23 to 30. Shift :math:`k + 127` there, and take the bits for a float. (In
# two halves, because the result may be subnormal, where :math:`2^k` itself would be too small.)


@triton.jit
def power_of_two(k):
    """Return 2 to the power of the integer k, from -126 to 127, by writing its exponent."""
    return ((k + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def exp_by_hand(x):
    """Return e to the power of x, by a polynomial."""
    inside = tl.minimum(tl.maximum(x, -110.0), 90.0)  # beyond, the result is zero or infinity
    k = tl.floor(inside * 1.4426950408889634 + 0.5)
    r = tl.fma(k, -0.693145751953125, inside)  # log 2 in two parts: the first has few digits,
    r = tl.fma(k, -1.4286068203094172e-6, r)  # so that its product with k is exact
    p = tl.fma(r, 1 / 720, 1 / 120)
    p = tl.fma(p, r, 1 / 24)
    p = tl.fma(p, r, 1 / 6)
    p = tl.fma(p, r, 0.5)
    p = tl.fma(p, r, 1.0)
    p = tl.fma(p, r, 1.0)
    k = k.to(tl.int32)
    return tl.where(x == x, p * power_of_two(k >> 1) * power_of_two(k - (k >> 1)), x)  # NaN stays


# %%
# ``tl.fma(a, b, c)`` is :math:`a b + c` with one rounding instead of two. The bits of a float are
# good for more: halve them, subtract them from a magic number, and you have something close to
# :math:`1/\sqrt x`, as halving and negating the *exponent* is what that function does, and the
# digits follow roughly. Newton's method doubles the number of right digits in each step. (The trick
# is from a computer game of 1999.) For erf there are famous approximations that use an exponential.


@triton.jit
def rsqrt_by_hand(x):
    """Return 1 / sqrt(x), by a guess and three steps of Newton's method."""
    y = (0x5F3759DF - (x.to(tl.int32, bitcast=True) >> 1)).to(tl.float32, bitcast=True)
    for _ in tl.static_range(3):
        y = y * (1.5 - 0.5 * x * y * y)
    return y


@triton.jit
def erf_by_hand(x):
    """Return the error function of x, by formula 7.1.26 of Abramowitz and Stegun."""
    t = 1.0 / (1.0 + 0.3275911 * tl.abs(x))
    p = tl.fma(t, 1.061405429, -1.453152027)
    p = tl.fma(p, t, 1.421413741)
    p = tl.fma(p, t, -0.284496736)
    p = tl.fma(p, t, 0.254829592)
    y = 1.0 - p * t * tl.exp(-x * x)
    return tl.where(x < 0, -y, y)


# %%
# And the instructions that Triton has no name for. ``tl.inline_asm_elementwise`` takes a line of
# assembly, with ``$0`` for the result and ``$1`` for the argument. The second string says that both
# are floats (``f``), and that the first is written (``=``). This is PTX, so it is for **NVIDIA's
# GPUs only**; elsewhere the page goes without these ways.


@triton.jit
def log_by_hand(x):
    """Return the natural logarithm of x, by the hardware's of base 2."""
    y = tl.inline_asm_elementwise(
        "lg2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )
    return y * 0.6931471805599453


@triton.jit
def sin_by_hand(x):
    """Return the sine of x, by the hardware."""
    return tl.inline_asm_elementwise(
        "sin.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def tanh_by_hand(x):
    """Return tanh of x, by the hardware."""
    return tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def pow_by_hand(x, y):
    """Return x to the power of y, by the hardware's exponential and logarithm."""
    return tl.exp2(y * log_by_hand(x) * 1.4426950408889634)


@triton.jit
def div_by_hand(x, y):
    """Return x / y, by the hardware's 1 / y."""
    r = tl.inline_asm_elementwise(
        "rcp.approx.f32 $0, $1;", "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1
    )
    return x * r


# %%

# sphinx_gallery_fold = "writes down the other ways, and which of them can run here"


@triton.jit
def exp_libdevice(x):
    """Call the library."""
    return libdevice.exp(x)


@triton.jit
def log_libdevice(x):
    """Call the library."""
    return libdevice.log(x)


@triton.jit
def sin_libdevice(x):
    """Call the library."""
    return libdevice.sin(x)


@triton.jit
def tanh_triton(x):
    """Return tanh of x, by a sigmoid."""
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def tanh_libdevice(x):
    """Call the library."""
    return libdevice.tanh(x)


@triton.jit
def erf_libdevice(x):
    """Call the library."""
    return libdevice.erf(x)


@triton.jit
def rsqrt_libdevice(x):
    """Call the library."""
    return libdevice.rsqrt(x)


@triton.jit
def pow_triton(x, y):
    """Return x to the power of y."""
    return tl.exp2(y * tl.log2(x))


@triton.jit
def pow_libdevice(x, y):
    """Call the library."""
    return libdevice.pow(x, y)


@triton.jit
def div_triton(x, y):
    """Return x / y."""
    return x / y


@triton.jit
def div_libdevice(x, y):
    """Call the library."""
    return libdevice.div_rn(x, y)


NVIDIA = ON_GPU and DEVICE.type == "cuda" and torch.version.hip is None
BY_ASSEMBLY = ("log", "sin", "tanh", "pow", "div")  # by hand, these need NVIDIA's instructions


def all_ways():
    """Return {function: {way: how}} of what can run here, and print what cannot."""
    ways = {
        "exp": (torch.exp, call_exp, exp_libdevice, exp_by_hand),
        "log": (torch.log, call_log, log_libdevice, log_by_hand),
        "sin": (torch.sin, call_sin, sin_libdevice, sin_by_hand),
        "tanh": (torch.tanh, tanh_triton, tanh_libdevice, tanh_by_hand),
        "erf": (torch.erf, call_erf, erf_libdevice, erf_by_hand),
        "rsqrt": (torch.rsqrt, call_rsqrt, rsqrt_libdevice, rsqrt_by_hand),
        "pow": (torch.pow, pow_triton, pow_libdevice, pow_by_hand),
        "div": (torch.div, div_triton, div_libdevice, div_by_hand),
    }
    names = ("torch", "triton", "libdevice", "by hand")
    ways = {f: dict(zip(names, found, strict=True)) for f, found in ways.items()}
    if not NVIDIA:
        for function in BY_ASSEMBLY:
            del ways[function]["by hand"]
        print("By hand, without NVIDIA's instructions, there is no", ", no ".join(BY_ASSEMBLY))
    if not ON_GPU:
        for found in ways.values():
            del found["libdevice"]
        print("In the interpreter there is no libdevice")
    elif not NVIDIA:
        del ways["div"]["libdevice"]  # AMD's library has no such function
    return ways


WAYS = all_ways()
print(sum(map(len, WAYS.values())), "ways to", len(WAYS), "functions")

# %%
# How wrong is it?
# ----------------
#
# Neighbours among the floats are not equally far apart: above 1 the next one is 2⁻²³ away, above
# 1000 it is 2⁻¹⁴. This distance, at the size of the right result, is called a **unit in the last
# place**, **ulp** for short, and errors of functions are given in it. Half an ulp is perfection:
# the right result, rounded to the nearest float. One ulp is a neighbour of it. Each doubling costs
# one bit of the 24 that an fp32 number has.
#
# The right result comes from PyTorch in float64, whose own error is a billionth of an fp32 ulp. The
# kernel below compares. The size of an ulp is the exponent of the right result, minus 23, made a
# float again; and the worst error of a block goes to memory, with its place. It is kept apart
# whether subnormal numbers take part: whoever flushes them to zero is off by millions of ulps
# there.


# sphinx_gallery_fold = "finds the worst of all blocks"
# sphinx_gallery_show = "ulp, worst_kernel"
@triton.jit
def ulp(right):
    """Return the size of a unit in the last place of fp32, for float64 numbers."""
    exponent = (right.to(tl.int64, bitcast=True) >> 52) & 0x7FF  # float64 keeps it in bits 52 to 62
    return ((tl.maximum(exponent, 1023 - 126) - 23) << 52).to(tl.float64, bitcast=True)


@triton.jit
def worst_kernel(
    y_ptr, right_ptr, a_ptr, b_ptr, worst_ptr, place_ptr, all_ptr, n, BLOCK: tl.constexpr
):
    """Find the largest error of a block: among normal numbers, with its place, and among all."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    y = tl.load(y_ptr + offsets, mask=inside, other=0.0).to(tl.float64)
    right = tl.load(right_ptr + offsets, mask=inside, other=0.0)
    a = tl.load(a_ptr + offsets, mask=inside, other=1.0)
    b = tl.load(b_ptr + offsets, mask=inside, other=1.0)
    size = tl.abs(right)
    too_large = size >= 3.4028235677973366e38  # for fp32
    right = tl.where(too_large, right * float("inf"), right)
    error = tl.abs(y - right) / ulp(size)
    error = tl.where(error == error, error, float("inf"))  # NaN or infinity, but not both
    error = tl.where((y == right) | ((y != y) & (right != right)), 0.0, error)
    tl.store(all_ptr + tl.program_id(0), tl.max(error, axis=0))
    smallest = 1.1754943508222875e-38  # of the normal numbers
    normal = (size >= smallest) & (tl.abs(a) >= smallest) & (tl.abs(b) >= smallest)
    worst, place = tl.max(tl.where(normal, error, 0.0), axis=0, return_indices=True)
    tl.store(worst_ptr + tl.program_id(0), worst)
    tl.store(place_ptr + tl.program_id(0), place)


def worst_error(y, right, a, b):
    """Return [worst error, its arguments and result, worst with subnormals] as a tensor."""
    n, block = y.numel(), 1024
    programs = triton.cdiv(n, block)
    worst, everywhere = torch.empty(2, programs, dtype=torch.float64, device=y.device)
    place = torch.empty(programs, dtype=torch.int32, device=y.device)
    grid, options = (programs,), {"BLOCK": block, "num_warps": 4}
    worst_kernel[grid](y, right, a, b, worst, place, everywhere, n, **options)
    error, at = worst.max(dim=0)
    at = at * block + place[at]
    return torch.stack([error, a[at].double(), b[at].double(), y[at].double(), everywhere.max()])


# %%
# A yardstick is checked before it is used: neighbours are one ulp apart, wherever they are, and
# what is right is off by nothing.

# sphinx_gallery_fold = "checks the yardstick"
right = torch.tensor([1.0, 1000.0, -3e-30, 3e38, torch.inf, torch.nan, 0.0], device=DEVICE)
right = right.repeat(16)  # a length that 16 divides, as below, for which the kernel is compiled
one = torch.ones_like(right)
up = torch.nextafter(right, torch.full_like(right, torch.inf))
for i in range(4):
    found = worst_error(up[i].repeat(16), right[i].double().repeat(16), one[:16], one[:16])
    torch.testing.assert_close(found[0].item(), 1.0)
assert worst_error(right, right.double(), one, one)[0] == 0
assert worst_error(-right, right.double(), one, one)[0] == torch.inf
print("The yardstick is right")

# %%
# Now all of them. How many floats are there? 2³²: fp32 has 32 bits. That is four billion, too many
# to look at, and few for a GPU, which computes a function of all of them in a blink. So there is no
# need to sample and to hope: **every float there is** goes through every way, in pieces. Functions
# of two arguments have the square of that many, so for them we draw a billion pairs at random:
# divisions of any float by any other, and powers of numbers from 2⁻⁸ to 2⁸ with exponents up to 15.
#
# The same kernel can also repeat the function ``rounds`` times on numbers that are in registers,
# each time on slightly smaller ones. That is for the rate.


# sphinx_gallery_fold = "launches it"
# sphinx_gallery_show = "repeat_kernel"
@triton.jit(do_not_specialize=["rounds"])  # one kernel for 1 and for many, not two
def repeat_kernel(
    a_ptr,
    b_ptr,
    y_ptr,
    n,
    rounds,
    step,
    FUNCTION: tl.constexpr,
    TWO: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add up *rounds* results of a function of one or two arguments that shrink by *step*."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(a_ptr + offsets, mask=inside, other=1.0)
    b = tl.load(b_ptr + offsets, mask=inside & TWO, other=1.0)
    total = tl.zeros_like(a)
    for i in range(rounds):
        if TWO:
            total += FUNCTION(a - i * step, b - i * step)
        else:
            total += FUNCTION(a - i * step)
    tl.store(y_ptr + offsets, total, mask=inside)


def compute(function, a, b=None, y=None, rounds=1, step=0.0):
    """Return *function* of the tensor *a*, or of *a* and *b*."""
    y = torch.empty_like(a) if y is None else y
    n, block = a.numel(), 1024
    grid, options = (triton.cdiv(n, block),), {"BLOCK": block, "num_warps": 4}
    other, two = (a if b is None else b), b is not None
    repeat_kernel[grid](a, other, y, n, rounds, step, FUNCTION=function, TWO=two, **options)
    return y


# %%

# sphinx_gallery_fold = "sends every float through every way"
PIECE = 2**27 if ON_GPU else 2**12


def arguments(function):
    """Yield pieces (a, b or None) of the arguments that *function* is judged by."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    bits = {"size": (PIECE,), "dtype": torch.int32, "device": DEVICE, "generator": generator}
    if function in ("pow", "div"):
        for _ in range(8 if ON_GPU else 2):
            if function == "div":
                drawn = [torch.randint(-(2**31), 2**31 - 1, **bits) for _ in range(2)]
                a, b = (t.view(torch.float32) for t in drawn)
            else:
                random = torch.rand(2, PIECE, device=DEVICE, generator=generator)
                a, b = torch.exp2(16 * random[0] - 8), 30 * random[1] - 15
            yield a, b
    else:
        # In the interpreter, one float in a million must do.
        for start in range(-(2**31), 2**31, PIECE if ON_GPU else 2**31):
            step = 1 if ON_GPU else 2**19 + 1
            count = torch.arange(PIECE, dtype=torch.int32, device=DEVICE)
            yield (start + step * count).view(torch.float32), None


def accuracy(function, ways):
    """Return {way: [worst error, its arguments and result, worst with subnormals]}."""
    worst = {way: torch.zeros(5, dtype=torch.float64, device=DEVICE) for way in ways}
    for a, b in arguments(function):
        both = (a,) if b is None else (a, b)
        right = ways["torch"](*(t.double() for t in both))
        for way, how in ways.items():
            y = how(*both) if way == "torch" else compute(how, *both)
            new = worst_error(y, right, a, a if b is None else b)
            last = torch.maximum(worst[way][4:], new[4:])
            worst[way] = torch.cat([torch.where(new[0] > worst[way][0], new, worst[way])[:4], last])
    return {way: found.tolist() for way, found in worst.items()}


def judge_all():
    """Return {function: its accuracy}; while one is judged, threads compile the next."""
    a, found = torch.ones(1024, device=DEVICE), {}
    with ThreadPoolExecutor(16) as pool:
        compiled = {}
        for function, ways in WAYS.items() if ON_GPU else ():
            both = (a, a) if function in ("pow", "div") else (a,)
            calls = [partial(compute, how, *both) for way, how in ways.items() if way != "torch"]
            compiled[function] = [pool.submit(in_new_thread, call) for call in calls]
        for function, ways in WAYS.items():
            for call in compiled.get(function, ()):
                call.result()
            found[function] = accuracy(function, ways)
    return found


ACCURACY = judge_all()
print(f"Judged by {'all floats' if ON_GPU else 'a few floats, and on a CPU'}")

# %%
# Before the table is believed, or any time is measured, the ways that promise to be right are held
# to it. (Where the hardware approximates, and where the formula itself loses digits, no such
# promise is made. That is what the table is for.)

PROMISED = {"exp": "by hand", "rsqrt": "by hand", "erf": "torch", "log": "triton", "sin": "triton"}
for function, way in PROMISED.items():
    torch.testing.assert_close(ACCURACY[function][way][0], 0.0, rtol=0, atol=4.0)
print("What promises to be right is within four ulps")

# %%
# How fast is it?
# ---------------
#
# "Fast" can mean two things. A function that is applied to a tensor reads and writes memory, and as
# long as its instructions are done before the bytes have arrived, its speed is that of the memory.
# In a kernel that computes more, on numbers that are in registers, it is the instructions that
# count. So we measure both: **through memory**, 2²⁶ numbers read and written, and **in registers**,
# 256 results for each number, added up. (PyTorch's functions can only be called the first way.)


# sphinx_gallery_fold = "measures the rates of all ways"
def measure_ways(ways, two):
    """Return {way: (10⁹ results a second in registers or None, through memory)}."""
    a = torch.rand(2**26, device=DEVICE) + 0.5
    b = torch.rand(2**26, device=DEVICE) + 0.5 if two else None
    few, few_b, y = a[: 2**22], b[: 2**22] if two else None, torch.empty_like(a)
    calls = {}
    for way, how in ways.items():
        if way == "torch":
            calls["memory", way] = partial(how, *((a, b) if two else (a,)))
        else:
            calls["memory", way] = partial(compute, how, a, b, y)
            calls["registers", way] = partial(compute, how, few, few_b, y, 256, 1e-4)
    found = {}
    for (where, way), ms in measure(calls, rounds=7).items():
        results = a.numel() if where == "memory" else 256 * few.numel()
        found[where, way] = rates(ms, results)[0]
    return {way: (found.get(("registers", way)), found["memory", way]) for way in ways}


def short(value):
    """Return *value* with three significant figures, as a power of ten where it is large."""
    if value < 1e5:
        return significant(value)
    return f"{value:.2e}".replace("e+0", "e").replace("e+", "e")


def print_ways(accuracy, speed):
    """Print errors and rates of all ways, and write them to a file."""
    table, lines = [], []
    for function, ways in accuracy.items():
        for way, (worst, a, b, _, everywhere) in ways.items():
            where = f"{a:.9g}, {b:.9g}" if function in ("pow", "div") else f"{a:.9g}"
            inside, through = speed[function][way]
            lines.append((function, way, f"{worst:.6g}", where, f"{everywhere:.6g}",
                          "" if inside is None else f"{inside:.6g}", f"{through:.6g}"))  # fmt: skip
            speeds = "" if inside is None else significant(inside), significant(through)
            table.append((function, way, short(worst), f"{a:.4g}", short(everywhere), *speeds))
    headers = ["function", "way", "max ulp", "at", "subnormal", "registers", "memory"]
    print("10⁹ results a second in registers and through memory; higher is better")
    print(tabulate(table, headers, disable_numparse=True, stralign="right", colalign=["left"] * 2))
    with open("math-accuracy.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["function", "way", "max ulp", "where", "max ulp with subnormal numbers",
                         "rate", "rate through memory"])  # fmt: skip
        writer.writerows(lines)


if ON_GPU:
    SPEED = {f: measure_ways(ways, f in ("pow", "div")) for f, ways in WAYS.items()}
    print_ways(ACCURACY, SPEED)
else:
    print("No table without a GPU: a CPU's errors are not a GPU's.")

# %%
# And as a picture: accurate is below, fast is on the right. (A way that flushes subnormal numbers
# is drawn by its error among the normal ones.)


# sphinx_gallery_fold = "draws errors and rates"
def draw_ways(accuracy, speed):
    """Draw the worst error of each way, and its rate in registers, one function a line."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(7, 5), sharey=True, layout="constrained")
    styles = {
        "torch": ("#8d6a9f", "s"),
        "triton": ("#1b6ca8", "o"),
        "libdevice": ("#2e8b57", "D"),
        "by hand": ("#d1495b", "^"),
    }
    functions = list(accuracy)
    for i, (way, (color, marker)) in enumerate(styles.items()):
        look = {"color": color, "marker": marker, "linestyle": "", "markersize": 7}
        label = {"triton": "Triton's language", "torch": "PyTorch"}.get(way, way)
        there = [(n, f) for n, f in enumerate(functions) if way in accuracy[f]]
        heights = [n + 0.2 * (i - 1.5) for n, _ in there]
        left.plot([accuracy[f][way][0] for _, f in there], heights, label=label, **look)
        if way != "torch":
            right.plot([speed[f][way][0] for _, f in there], heights, **look)
    left.set(xscale="log", xlabel="largest error, ulp", ylim=(len(functions) - 0.5, -0.5))
    left.set_yticks(range(len(functions)), functions)
    right.set(xlabel="10⁹ results a second,\nin registers", xlim=(0, None))
    gpu = torch.get_device_module(DEVICE).get_device_name()
    fig.suptitle(f"Error and rate of math functions in fp32\non {gpu}")
    for ax in (left, right):
        ax.grid(alpha=0.3)
        for n in range(1, len(functions)):
            ax.axhline(n - 0.5, color="#cccccc", linewidth=0.8)
    fig.legend(loc="outside lower center", ncols=2)
    plt.show()


if ON_GPU:
    draw_ways(ACCURACY, SPEED)
else:
    print("No picture without a GPU.")

# %%
# How to read the table
# ---------------------
#
# **Where a way is off by millions**, look at *at*. A function that passes through zero has tiny
# results beside it, and an ulp of a tiny result is tiny. ``lg2`` near 1 and ``sin`` near multiples
# of π are good to so many digits *after the point*, not to so many digits. Far from zero, ``sin``
# has to know π to many more digits than a float has; the library does, the instruction does not.
# That is why Triton does not use them for ``tl.log`` and ``tl.sin``: nobody who writes ``tl.sin``
# expects to have to keep its argument small.
#
# **tanh through the sigmoid** shows the same disease, made at home: near zero the sigmoid is one
# half and a little, rounded to 24 bits; the subtraction of 1 takes the half away and leaves what
# was rounded. The formula is right, and the digits are gone. erf by hand ends in such a
# subtraction, too.
#
# **The exponential** is off by more the farther from zero its argument is: :math:`x \log_2 e` is
# rounded to 24 bits, and the integer part of it takes its share of them. What remains for the
# fraction is what decides about the digits of the result. The library and the hand give the part
# that was rounded off back. (Softmax does not care: there the largest argument is 0.)
#
# **Where subnormal numbers are flushed**, the column beside is large: a number that is taken for
# zero is off by all of its digits, and one divided by it is infinite. The library is made for both,
# and Triton asks it for the flushing kind. Whoever needs numbers below 2⁻¹²⁶ has to know.
#
# **Through memory all are alike**, or nearly. In a kernel that reads a tensor and writes a tensor,
# the accurate function costs nothing. It is in registers that "fast" means something.
#
# Where do the errors of the exponential lie? Its arguments from −87 to 88, in pieces; of each piece
# the worst:


# sphinx_gallery_fold = "draws the error of the exponential over its argument"
def draw_exp(pieces=350):
    """Draw the worst error of each way to the exponential in pieces of its arguments."""
    n = 2**24 // pieces // 16 * 16 if ON_GPU else 64
    edges = torch.linspace(-87, 88, pieces + 1, dtype=torch.float64)
    fig, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
    low = edges[:-1, None]
    x = low + (edges[1:, None] - low) * torch.linspace(0, 1, n, dtype=torch.float64)
    x = x.float().to(DEVICE)
    right = torch.exp(x.double())
    looks = {"triton": OURS, "libdevice": OTHER, "by hand": STEP_1, "torch": TORCH}
    for way, how in WAYS["exp"].items():
        y = how(x) if way == "torch" else compute(how, x)
        size = torch.ldexp(torch.ones_like(right), torch.frexp(right).exponent - 24)
        error = ((y.double() - right).abs() / size).amax(dim=1).cpu()
        label = "tl.exp" if way == "triton" else way
        ax.plot(edges[:-1], error, label=label, markevery=25, markersize=4, **looks[way])
    ax.set(title="Error of the exponential in fp32", xlabel="x", ylabel="largest error, ulp")
    ax.set_yscale("log", base=2)
    ax.grid(alpha=0.3)
    fig.legend(loc="outside lower center", ncols=4)
    plt.show()


if ON_GPU:
    draw_exp()
else:
    print("In the interpreter all of them would be NumPy's.")

# %%
# Step 2: approximate, with the library's tanh
# --------------------------------------------
#
# Back to GELU, now with bf16: half the bytes, so half the time to compute. The erf of the library
# may be more than fits in. There is an approximation that is used as often as the exact function,
# so often that PyTorch has it under ``approximate="tanh"``:
#
# .. math::
#
#     \mathrm{gelu}(x) \approx \frac{x}{2} \left( 1 + \tanh u \right)
#     \qquad \text{with} \quad u = \sqrt{2 / \pi} \, (x + 0.044715 \, x^3)


# sphinx_gallery_difference = "gelu_exact"
@triton.jit
def gelu_tanh(x):
    """Return the approximate GELU of x, by the library's tanh."""
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + libdevice.tanh(u))


# %%
# Step 3: the same as a sigmoid
# -----------------------------
#
# The table says that tanh is not the cheapest of functions. But there is no need for one. With the
# sigmoid :math:`\sigma(v) = 1 / (1 + e^{-v})` it is :math:`1 + \tanh u = 2 \, \sigma(2u)`, so
#
# .. math::
#
#     \frac{x}{2} \left( 1 + \tanh u \right) = x \cdot \sigma(2u)
#
# That is one exponential and one division, both of which the hardware has. And something else is
# better: where *x* is negative, tanh is close to −1, and adding 1 to it leaves few digits. In the
# sigmoid nothing is subtracted. **Look for a formula without the subtraction first, and for a
# faster function second.**


# sphinx_gallery_difference = "gelu_tanh"
@triton.jit
def gelu_sigmoid(x):
    """Return the approximate GELU of x, by a sigmoid."""
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x * tl.sigmoid(2 * u)


# %%
# Step 4: the hardware's tanh
# ---------------------------
#
# Or the one instruction, on NVIDIA's GPUs. The documentation promises eleven bits of it, and the
# table says what it is here. bf16 has eight, so nothing of that should be seen in the result.


# sphinx_gallery_difference = "gelu_sigmoid"
@triton.jit
def gelu_hardware(x):
    """Return the approximate GELU of x, by the hardware's tanh."""
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + tanh_by_hand(u))


# %%
# Step 5: exact again, without the subtraction
# --------------------------------------------
#
# What was learned from the approximation helps the exact function. Its formula, too, ends in a
# subtraction where *x* is negative: 1 plus an erf that is close to −1. There is a function that is
# just this difference, :math:`\mathrm{erfc}\, z = 1 - \mathrm{erf}\, z`, and the formula from the
# old handbook, erf by hand, is in truth one for erfc, from which 1 is subtracted in the end. So
# leave the end away:
#
# .. math::
#
#     \mathrm{gelu}(x) = \max(x, 0) - \frac{|x|}{2} \, \mathrm{erfc} \frac{|x|}{\sqrt 2}
#
# For large *x* the right part is zero, for very negative ones the left part is, and where both take
# part, neither is close to the other. It needs one division, one exponential, and five products.
# (The division is the hardware's ``rcp`` where there is one. The ``minimum`` keeps infinity times
# zero away.)

HARDWARE = tl.constexpr(NVIDIA)


@triton.jit
def reciprocal(y):
    """Return 1 / y, by the hardware where it has an instruction that we know."""
    r = 1.0 / y
    if HARDWARE:
        r = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1
        )
    return r


# %%


# sphinx_gallery_difference = "gelu_exact"
@triton.jit
def gelu_by_hand(x):
    """Return GELU of x, by an erfc of our own."""
    t = reciprocal(tl.fma(tl.abs(x), 0.23164190, 1.0))
    p = tl.fma(t, 1.061405429, -1.453152027)
    p = tl.fma(p, t, 1.421413741)
    p = tl.fma(p, t, -0.284496736)
    p = tl.fma(p, t, 0.254829592)
    erfc = p * t * tl.exp2(-0.7213475204444817 * x * x)
    return tl.maximum(x, 0.0) - 0.5 * tl.minimum(tl.abs(x), 100.0) * erfc


# %%
# The errors of all steps against float64, in fp32, for *x* from −12 to 12: how far the result is
# off, and by how much of itself at most, where the result is at least a thousandth.

# sphinx_gallery_fold = "prints the errors of all steps"
STEPS = {"Step 1: an exact GELU": (gelu_exact, "none")}
if ON_GPU:
    STEPS["Step 2: approximate, with the library's tanh"] = (gelu_tanh, "tanh")
STEPS["Step 3: the same as a sigmoid"] = (gelu_sigmoid, "tanh")
if NVIDIA:
    STEPS["Step 4: the hardware's tanh"] = (gelu_hardware, "tanh")
STEPS["Step 5: exact again, without the subtraction"] = (gelu_by_hand, "none")


def gelu_errors():
    """Return {step: (largest error, largest error relative to the result)}."""
    x = torch.linspace(-12, 12, 2**22 if ON_GPU else 2**12, device=DEVICE)
    results = side_by_side([partial(elementwise, function, x) for function, _ in STEPS.values()])
    errors = {}
    for (step, (_, approximate)), y in zip(STEPS.items(), results, strict=True):
        right = functional.gelu(x.double(), approximate=approximate)
        error = (y.double() - right).abs()
        counted = right.abs() >= 1e-3
        errors[step] = error.max().item(), (error / right.abs())[counted].max().item()
    return errors


GELU_ERRORS = gelu_errors()
table = [(step.split(":")[0], f"{a:.2e}", f"{r:.2e}") for step, (a, r) in GELU_ERRORS.items()]
print(tabulate(table, ["", "error", "of the result"], disable_numparse=True, stralign="right"))
for step, (error, _) in GELU_ERRORS.items():
    torch.testing.assert_close(error, 0.0, rtol=0, atol=5e-3 if "hardware" in step else 2e-6)

# %%
# Approximate are steps 2 to 4, and their errors are those against the *approximate* function. How
# far that one is from the exact one is another matter, and it is by far the larger error. Steps 2
# and 3 are the same function, with and without the subtraction: the last column tells the
# difference. And in step 5 the handbook's formula for erfc is good to 1.5·10⁻⁷, wherever it is;
# where the result is small, that is more of it than in step 1, and far less than bf16 can show.
#
# As step 5 is exact and its arithmetic is short, there is no reason for the approximation but that
# a network has been trained with it. So ``gelu`` is the last step, and the sigmoid for those who
# ask for the other one.

# sphinx_gallery_fold = "checks the arguments"


def check_arguments(x, approximate):
    """Raise TypeError or ValueError where ``gelu`` cannot work on its arguments."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"x must be float16, bfloat16 or float32, but its dtype is {x.dtype}")
    if x.device != DEVICE:
        raise ValueError(f"x must be on {DEVICE}, but is on {x.device}")
    if not x.is_contiguous():
        raise ValueError(
            f"x must be contiguous, but has shape {tuple(x.shape)} and strides {x.stride()}; "
            f"pass x.contiguous()"
        )
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate must be 'none' or 'tanh', but is {approximate!r}")


# %%


def gelu(x, approximate="none"):
    """Return GELU of each element of *x*, as ``torch.nn.functional.gelu`` does.

    Args:
        x: Contiguous float16, bfloat16 or float32 tensor of any shape.
        approximate: "none", or "tanh" for the approximation.

    Raises:
        TypeError: *x* is no tensor of such a dtype.
        ValueError: *x* is not contiguous or on another device, or *approximate* is neither of both.
    """
    check_arguments(x, approximate)
    return elementwise(gelu_by_hand if approximate == "none" else gelu_sigmoid, x)


def check(dtype, approximate):
    """Raise AssertionError where ``gelu`` is not what float64 gives."""
    for shape in (0,), (1,), (781,), (3, 5, 7), (2**22 + 1,) if ON_GPU else (4097,):
        x = (4 * torch.randn(shape, device=DEVICE)).to(dtype)
        right = functional.gelu(x.double(), approximate=approximate)
        limits = {"rtol": torch.finfo(dtype).eps, "atol": 2e-6}
        torch.testing.assert_close(gelu(x, approximate).double(), right, **limits)


dtypes = [torch.float32, torch.float16] + [torch.bfloat16] * ON_GPU  # wrong in the interpreter
side_by_side([partial(check, dtype, way) for dtype in dtypes for way in ("none", "tanh")])
print("gelu agrees with float64")

# %%
# And what it refuses:

# sphinx_gallery_fold = "calls it wrongly, in three ways"
for wrong in (lambda: gelu(torch.ones(2).double()), lambda: gelu(torch.ones(2, 3, device=DEVICE).T),
              lambda: gelu(torch.ones(2, device=DEVICE), approximate="sigmoid")):  # fmt: skip
    try:
        wrong()
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("gelu should have refused this")

# %%
# A library of one's own
# ----------------------
#
# If your function is written in another language already, in CUDA or in C, it need not be written
# again. libdevice is nothing but a file of LLVM's bitcode, and a kernel can be given more such
# files:
#
# * ``tl.core.extern_elementwise`` declares a function: a name for the library, the arguments, and a
#   table that says for which types which symbol is to be called and what it returns;
# * ``extern_libs={name: path}``, given where the kernel is launched, says where the file is.
#
# Bitcode comes from a compiler, such as ``clang -x cuda -c -emit-llvm --cuda-device-only
# --cuda-gpu-arch=sm_90 mine.cu -o mine.bc``. LLVM reads its own language in text form as well, so a
# small function can be written without a compiler. This is :math:`x / (1 + |x|)`, called
# *softsign*:

MINE = """
declare float @llvm.fabs.f32(float)

define float @my_softsign(float %x) alwaysinline {
  %size = call float @llvm.fabs.f32(float %x)
  %more = fadd float %size, 1.0
  %result = fdiv float %x, %more
  ret float %result
}
"""


@tl.core.extern
def softsign(x, _semantic=None):
    """Call ``my_softsign`` of the library *mine*."""
    table = {(tl.core.dtype("fp32"),): ("my_softsign", tl.core.dtype("fp32"))}
    return tl.core.extern_elementwise("mine", "", [x], table, is_pure=True, _semantic=_semantic)


@triton.jit
def softsign_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Compute the softsign of one block, by a function of our own library."""
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, softsign(x), mask=offsets < n)


if ON_GPU:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mine.ll")
        path.write_text(MINE)
        x = torch.linspace(-3, 3, 7, device=DEVICE)
        y = torch.empty_like(x)
        softsign_kernel[(1,)](x, y, len(x), BLOCK=16, extern_libs={"mine": str(path)})
    torch.testing.assert_close(y, functional.softsign(x))
    print("softsign:", *(f"{value:g}" for value in y.tolist()))
else:
    print("In the interpreter no library can be linked.")

# %%
# The code of the function ends up in the kernel, as libdevice's does. There is no call left.
#
# NVIDIA's GPUs and AMD's
# -----------------------
#
# ========================  =====================================  =================================
# what                      NVIDIA                                 AMD
# ========================  =====================================  =================================
# ``tl.exp``, ``tl.sin``…   instructions, libdevice                instructions, OCML
# ``libdevice.*``           libdevice, about two hundred           OCML, fewer; no ``div_rn``
# inline assembly           PTX, ``tanh.approx.f32``               other instructions, other letters
# a library of one's own    bitcode for NVIDIA's target            bitcode for AMD's target
# ========================  =====================================  =================================
#
# So what is written with ``tl`` alone runs everywhere, the interpreter included, with errors that
# may differ. What uses libdevice runs on both. What uses assembly needs a second version; this page
# leaves it out where it does not fit, and says so.
#
# The benchmark
# -------------
#
# The exact GELU in fp32, then in bf16 with all steps, beside PyTorch's own and a copy, which reads
# and writes as many bytes.


# sphinx_gallery_fold = "times GELU, PyTorch's and a copy"
def benchmark(sizes, dtype, functions):
    """Return rows (size, provider, unit, median, p20, p80), for {provider: function} and others."""
    rows = []
    for n in sizes:
        x = torch.randn(n, device=DEVICE, dtype=dtype)
        calls = {name: partial(function, x) for name, function in functions.items()}
        calls |= {"triton": partial(gelu, x), "torch": partial(functional.gelu, x), "copy": x.clone}
        side_by_side(calls.values())  # compiled together
        for provider, ms in measure(calls, rounds=30).items():
            rows.append((n, provider, "GB/s", *rates(ms, 2 * x.nbytes)))
    return rows


SIZES = [2**i for i in (20, 22, 24, 26, 28)]
if ON_GPU:
    fp32_rows = benchmark(SIZES, torch.float32, {})
    write_rows("gelu-performance.csv", ["size"], fp32_rows)
    functions = {
        f"triton, {step.split(':')[0].lower()}": partial(elementwise, function)
        for step, (function, _) in STEPS.items()
        if function is not gelu_by_hand
    }
    bf16_rows = benchmark(SIZES, torch.bfloat16, functions)
    write_rows("gelu-performance-bf16.csv", ["size"], bf16_rows)
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%


# sphinx_gallery_fold = "prints and draws the rates"
def print_table(rows):
    """Print the median rates of each size."""
    rate = {(n, who): median for n, who, _, median, _, _ in rows}
    names = sorted({who for _, who, *_ in rows}, key=lambda who: (who in ("torch", "copy"), who))
    names.append(names.pop(names.index("torch")))
    table = [
        (n, *(significant(rate[n, who]) for who in names if who != "copy"),
         significant(rate[n, "triton"] / rate[n, "copy"]))
        for n in SIZES
    ]  # fmt: skip
    headers = [who.removeprefix("triton, ") for who in names if who != "copy"]
    print("GB/s, higher is better; /copy: triton's ratio to a copy")
    print(tabulate(table, ["elements", *headers, "/copy"], disable_numparse=True, stralign="right"))


def draw_rates(rows, title):
    """Draw rate over size."""
    styles = {
        "copy": ("copy (ceiling)", CEILING),
        "torch": ("torch (best alternative)", TORCH),
        "triton": ("triton, exact by hand", OURS),
        "triton, step 1": ("step 1: the library's erf", STEP_1),
        "triton, step 2": ("step 2: the library's tanh", OTHER),
    }
    lines = {}
    for who, (label, style) in styles.items():
        points = [(n, *rest) for n, name, _, *rest in rows if name == who]
        if points:
            lines[label] = (style, points)
    fig, ax = plt.subplots(figsize=(7, 5.4), layout="constrained")
    plot_rates(ax, lines, title, "elements", "GB/s")
    ax.set_xscale("log", base=2)
    fig.legend(loc="outside lower center", ncols=2)
    plt.show()


if ON_GPU:
    for rows, title in ((fp32_rows, "Exact GELU in fp32"), (bf16_rows, "GELU in bf16")):
        print_table(rows)
        print()
        draw_rates(rows, title)
else:
    print("No table and no plots without a GPU.")

# %%
# How to read the curves
# ----------------------
#
# **The left ends** are lower for all: little to do, and launching takes its time.
#
# **In fp32** a curve that lies on the copy's has its function for free, thirty instructions or
# three: they are done while bytes are under way.
#
# **In bf16** there are half the bytes for as many instructions. Where a curve levels out *below*
# the copy, its instructions take longer than its bytes, and a cheaper function is worth the
# trouble. It is the same kernel and the same loads in all steps; the function alone makes the
# difference. (:doc:`/programming-guide/chapter-5/profiling` tells by counters, for any kernel,
# whether it is instructions or bytes that it stops at, or neither.)
#
# What the run showed
# -------------------

# sphinx_gallery_fold = "computes the ladder and the claims"
if ON_GPU:
    most = {who: median for n, who, _, median, _, _ in bf16_rows if n == SIZES[-1]}
    changes = {
        "Step 1": "the library's erf",
        "Step 2": "the library's tanh in place of erf",
        "Step 3": "one exponential, one division",
        "Step 4": "one instruction, NVIDIA only",
        "Step 5": "an erfc of our own: exact",
    }
    reached = {step: f"triton, {step.split(':')[0].lower()}" for step in STEPS}
    reached["Step 5: exact again, without the subtraction"] = "triton"
    rungs = [(step, changes[step.split(":")[0]], most[who]) for step, who in reached.items()]
    ladder(rungs, ("a copy", most["copy"]), "GB/s", "2^28 elements, bf16")
    print()

    fp32 = {who: median for n, who, _, median, _, _ in fp32_rows if n == SIZES[-1]}
    noise = spread([row for row in fp32_rows + bf16_rows if row[0] == SIZES[-1]])
    error = {f: {way: found[0] for way, found in ways.items()} for f, ways in ACCURACY.items()}
    claim("an exact GELU in fp32 has its arithmetic for free: of a copy, at 2^28 elements",
          fp32["triton"] / fp32["copy"], at_least=0.95, spread=noise,
          section="How to read the curves")  # fmt: skip
    claim("and in bf16, too: of a copy", most["triton"] / most["copy"], at_least=0.95,
          spread=noise, section="Step 5: exact again, without the subtraction")  # fmt: skip
    claim("in bf16 the library's erf takes longer than the bytes: of a copy",
          most["triton, step 1"] / most["copy"], at_most=0.9, spread=noise,
          section="How to read the curves")  # fmt: skip
    claim("GELU by hand is as accurate as with the library's erf: its error of that",
          GELU_ERRORS["Step 5: exact again, without the subtraction"][0]
          / GELU_ERRORS["Step 1: an exact GELU"][0], at_most=1.2,
          section="Step 5: exact again, without the subtraction")  # fmt: skip
    claim("tl.exp is off by more ulps than the library's: how many times",
          error["exp"]["triton"] / error["exp"]["libdevice"], at_least=2,
          section="How to read the table")  # fmt: skip
    claim("the exponential by hand is within four ulps, for every normal float",
          error["exp"]["by hand"], at_most=4, section="Four ways to each function")  # fmt: skip
    claim("tl.sin is within two ulps, for every normal float",
          error["sin"]["triton"], at_most=2, section="How to read the table")  # fmt: skip
    claim("tl.exp gives more results in registers than memory delivers: how many times",
          SPEED["exp"]["triton"][0] / SPEED["exp"]["triton"][1], at_least=2,
          section="How fast is it?")  # fmt: skip
    through = [rate for _, rate in SPEED["exp"].values()]
    claim("through memory all four exponentials are alike: slowest of fastest",
          min(through) / max(through), at_least=0.9, section="How to read the table")  # fmt: skip
    print_claims()
else:
    print("Without a GPU there is nothing to claim.")

# %%
# What to remember
# ----------------
#
# * A call in Triton's language is an instruction, or a library's function. The assembly says which.
# * Accuracy is counted in ulps, and for a function of one fp32 number the worst can be *known*:
#   there are few enough floats to try them all.
# * A kernel that waits for memory has time for the accurate function. Measure in registers what is
#   going to be used in registers.
# * Digits are lost in subtractions more than in functions. Change the formula first: it may become
#   faster as well.
# * What is written with ``tl`` alone runs everywhere. Assembly is for one maker's GPUs, and the
#   interpreter has neither it nor libdevice.
#
# Exercises
# ---------
#
# 1. **How many terms?** bf16 keeps eight bits. Shorten the polynomial of the exponential until its
#    error shows in bf16. How many terms are needed? Can they be chosen better than by Taylor's
#    series? :doc:`Solution <solutions/07-polynomial>`.
# 2. **Backward.** Give ``gelu`` a derivative, for both versions, and a ``torch.autograd.Function``.
#    What does the derivative of the approximate one need besides the sigmoid?
#    :doc:`Solution <solutions/07-gelu-backward>`.
#
# References
# ----------
#
# * Dan Hendrycks and Kevin Gimpel: *Gaussian error linear units (GELUs)*, 2016,
#   https://arxiv.org/abs/1606.08415
# * Milton Abramowitz and Irene Stegun: *Handbook of mathematical functions*, 1964, formula 7.1.26.
# * Jean-Michel Muller: *Elementary functions: algorithms and implementation*, third edition,
#   Birkhäuser 2016, https://doi.org/10.1007/978-1-4899-7983-4
# * NVIDIA: *libdevice user's guide*, https://docs.nvidia.com/cuda/libdevice-users-guide/
