r"""
Math functions
==============

You measure the error of eight math functions on every float, and their speed, and build the
activation ``gelu(x)``. In bf16 it has :measured:`faster` times the speed of PyTorch's. A call such
as ``tl.exp(x)`` may compile to one instruction or to many, and its last digits may be wrong. You
need :doc:`01-vector-add`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "further"
# sphinx_gallery_thumbnail_number = 2
import os
import re
import sys  # for shared/
import warnings
from functools import partial
from itertools import product
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.language.extra import libdevice

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
NVIDIA = ON_GPU and DEVICE.type == "cuda" and not torch.version.hip
HARDWARE = tl.constexpr(NVIDIA)  # for kernels
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# The kernel
# ----------
#
# The *Gaussian error linear unit* multiplies *x* by the probability that a normally distributed
# number is smaller than *x*, which the *error function* erf gives:
#
# .. math:: \mathrm{gelu}(x) = \frac{x}{2} \left( 1 + \mathrm{erf} \frac{x}{\sqrt 2} \right)
#
# A kernel can get a function of one element as a constant, and call it:


@triton.jit
def gelu_exact(x):
    """Return GELU of x, as the formula says."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))  # 1 / sqrt(2)


@triton.jit
def elementwise_kernel(x_ptr, y_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    """Apply a function to each element, in fp32."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, FUNCTION(x), mask=mask)


def elementwise(function, x):
    """Return *function* of each element of the contiguous tensor *x*."""
    y, n = torch.empty_like(x), x.numel()
    block = 2048 if x.element_size() == 2 and n >= 2**22 else 1024
    warps = 8 if x.element_size() == 4 else 4
    elementwise_kernel[(triton.cdiv(n, block),)](x, y, n, function, block, num_warps=warps)
    return y


x = torch.linspace(-12, 12, 10_000, device=DEVICE)
exact = functional.gelu(x.double())
torch.testing.assert_close(elementwise(gelu_exact, x).double(), exact, rtol=0, atol=1e-6)

# %%
# Four ways to a function
# -----------------------
#
# 1. **Triton's language**, such as ``tl.exp(x)``. It lacks tanh and powers, and takes some
#    functions from the library that comes next.
# 2. **The library** of the GPU's vendor: ``libdevice.exp(x)``. *libdevice* is NVIDIA's, and on
#    AMD's GPUs the same names call *OCML*.
# 3. **By hand.** For the exponential, let *k* be the integer nearest to :math:`x \log_2 e`. Then
#    :math:`e^x = 2^k e^r`, and :math:`r = x - k \ln 2` is at most 0.35 in size. A polynomial of
#    degree six approximates :math:`e^r`. A float stores its exponent plus 127 in bits 23 to 30, so
#    a shift makes the bits of :math:`2^k`, and ``bitcast`` reads them as a float.
#    ``tl.fma(a, b, c)`` is *a b* + *c*, rounded once:


@triton.jit
def exp_by_hand(x):
    """Return e to the power of x."""
    inside = tl.minimum(tl.maximum(x, -110.0), 90.0)  # beyond, the result is zero or infinity
    k = tl.floor(inside * 1.4426950408889634 + 0.5)
    r = tl.fma(k, -0.693145751953125, inside)  # log 2 in two parts: the first has few digits,
    r = tl.fma(k, -1.4286068203094172e-6, r)  # so its product with k is exact
    p = tl.fma(tl.fma(tl.fma(r, 1 / 720, 1 / 120), r, 1 / 24), r, 1 / 6)
    p = tl.fma(tl.fma(tl.fma(p, r, 0.5), r, 1.0), r, 1.0)
    half = k.to(tl.int32) >> 1  # two factors, since 2 ** k alone may not fit
    p *= ((half + 127) << 23).to(tl.float32, bitcast=True)
    p *= ((k.to(tl.int32) - half + 127) << 23).to(tl.float32, bitcast=True)
    return tl.where(x == x, p, x)  # NaN stays


# %%
# 4. **One instruction** of the hardware. ``tl.inline_asm_elementwise`` calls an instruction that
#    Triton has no name for, here in PTX, NVIDIA's assembly language. ``$0`` is the result, ``$1``
#    the argument, and ``=f,f`` declares both as floats. ``is_pure`` says that it does nothing
#    else, and ``pack`` that it takes one element:


@triton.jit
def hardware(x, CODE: tl.constexpr):
    """Return the result of one instruction."""
    return tl.inline_asm_elementwise(CODE, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


# %%
# **Try it** *(easy, 10 minutes)*. Write ``tanh(x)`` with ``tl.exp``, right for all numbers, from
# :math:`\tanh x = (e^{2x} - 1) / (e^{2x} + 1)`. ``exercise.pyz`` (see *Exercises*) checks it:
#
# .. code-block:: console
#
#    $ python exercise.pyz 07-tanh mine.py
#    Not yet. tanh((21,)): 12 of 21 elements are wrong. The first is at (0,): nan in place of -1.
#
# The next sections compare these ways for eight functions. In the code below, ``NAME`` is a
# constant, so only one line of each function is compiled:

# sphinx_gallery_fold = "eight functions in Triton's language, from the library, and by hand"


@triton.jit
def rsqrt_by_hand(x):
    """Return 1 / sqrt(x): a guess from the bits, and three steps of Newton's method."""
    y = (0x5F3759DF - (x.to(tl.int32, bitcast=True) >> 1)).to(tl.float32, bitcast=True)
    for _ in tl.static_range(3):
        y = y * (1.5 - 0.5 * x * y * y)
    return y


@triton.jit
def erf_by_hand(x):
    """Return the error function of x, by formula 7.1.26 of Abramowitz and Stegun."""
    t = 1.0 / (1.0 + 0.3275911 * tl.abs(x))
    p = tl.fma(tl.fma(t, 1.061405429, -1.453152027), t, 1.421413741)
    p = tl.fma(tl.fma(p, t, -0.284496736), t, 0.254829592)
    y = 1.0 - p * t * tl.exp(-x * x)
    return tl.where(x < 0, -y, y)


@triton.jit
def by_triton(NAME: tl.constexpr, x, y):
    """Return a function of x, or of x and y, in Triton's language."""
    return (
        tl.exp(x) if NAME == "exp" else
        tl.log(x) if NAME == "log" else
        tl.sin(x) if NAME == "sin" else
        2 * tl.sigmoid(2 * x) - 1 if NAME == "tanh" else
        tl.erf(x) if NAME == "erf" else
        tl.rsqrt(x) if NAME == "rsqrt" else
        tl.exp2(y * tl.log2(x)) if NAME == "pow" else x / y
    )  # fmt: skip


@triton.jit
def by_library(NAME: tl.constexpr, x, y):
    """Return a function of x, or of x and y, from the library."""
    return (
        libdevice.exp(x) if NAME == "exp" else
        libdevice.log(x) if NAME == "log" else
        libdevice.sin(x) if NAME == "sin" else
        libdevice.tanh(x) if NAME == "tanh" else
        libdevice.erf(x) if NAME == "erf" else
        libdevice.rsqrt(x) if NAME == "rsqrt" else
        libdevice.pow(x, y) if NAME == "pow" else libdevice.div_rn(x, y)
    )  # fmt: skip


@triton.jit
def by_hand(NAME: tl.constexpr, x, y):
    """Return a function of x, or of x and y, by our own code."""
    return (
        exp_by_hand(x) if NAME == "exp" else
        erf_by_hand(x) if NAME == "erf" else
        rsqrt_by_hand(x) if NAME == "rsqrt" else
        0.6931471805599453 * hardware(x, "lg2.approx.f32 $0, $1;") if NAME == "log" else
        hardware(x, "sin.approx.f32 $0, $1;") if NAME == "sin" else
        hardware(x, "tanh.approx.f32 $0, $1;") if NAME == "tanh" else
        tl.exp2(y * hardware(x, "lg2.approx.f32 $0, $1;")) if NAME == "pow" else
        x * hardware(y, "rcp.approx.f32 $0, $1;")
    )  # fmt: skip


# %%
# Every float
# -----------
#
# The next float above 1 is 2⁻²³ away, and the next one above 1000 is 2⁻¹⁴ away. The distance
# between floats around the exact result is a **unit in the last place** (**ulp**). A result that is
# rounded once is off by at most half an ulp. The picture has floats with three bits after the point
# instead of 23:

# sphinx_gallery_fold = "draws floats and their distances"
from shared.bench import STEPS, figure


def draw_floats():
    """Draw all floats from 1 to 8 with three bits after the point, and the ulp of each range."""
    _, ax = figure(height=1.9)
    for exponent, color in enumerate(STEPS[:3]):
        start = 2**exponent
        ax.vlines([start * (1 + i / 8) for i in range(8)], 0, 1, color=color)
        ax.text(1.5 * start, 1.25, f"ulp = {start / 8:g}", ha="center")
    ax.set(ylim=(0, 1.9), yticks=[], xticks=[1, 2, 4, 8], xlim=(0.9, 8.1))
    ax.spines[["left", "top", "right"]].set_visible(False)
    plt.show()


draw_floats()

# %%
# There are 2³² floats, few enough to try **every one**. Functions of two arguments get a random
# second one. PyTorch in float64 is the reference. Floats below 2⁻¹²⁶ in size are **subnormal**, and
# the others **normal**. Subnormal floats are 2⁻¹⁴⁹ apart, and many instructions count them as zero,
# which is an error of millions of these tiny ulps. So the table below has two columns of errors,
# without them and with them.
#
# .. predict:: How many ulps is ``tl.exp`` off, at most, for a normal result?
#    :number: exp_ulp
#    :unit: ulps
#
#    It multiplies *x* by log₂ *e*, and one instruction computes a power of two. The product is
#    rounded. The larger it is, the larger its ulp, and the more its error changes the power. The
#    library's exponential is off by :measured:`exp_library` ulps.

# sphinx_gallery_fold = "computes and judges any way to any function"
warnings.filterwarnings("ignore", category=RuntimeWarning)  # the interpreter's, of infinities


def errors(y, right):
    """Return the errors of *y* in ulps of fp32; *right* holds the exact results in float64."""
    right = torch.where(right.abs() >= 3.4028235677973366e38, right * torch.inf, right)  # too large
    exponent = torch.frexp(right).exponent.clamp(min=-125).long() - 24  # of an ulp
    error = ((y.double() - right) / ((exponent + 1023) << 52).view(torch.float64)).abs()
    error[(y == right) | (y.isnan() & right.isnan())] = 0.0
    return error.nan_to_num(nan=torch.inf, posinf=torch.inf)


@triton.jit(do_not_specialize=["rounds"])
def repeat_kernel(
    a_ptr, b_ptr, y_ptr, n, rounds, step, WAY: tl.constexpr, NAME: tl.constexpr, BLOCK: tl.constexpr
):
    """Add up *rounds* results of a function of arguments that shrink by *step*."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + offsets, mask=offsets < n, other=1.0)
    b = tl.load(b_ptr + offsets, mask=offsets < n, other=1.0)
    total = tl.zeros_like(a)
    for i in range(rounds):
        total += WAY(NAME, a - i * step, b - i * step)
    tl.store(y_ptr + offsets, total, mask=offsets < n)


FUNCTIONS = "exp", "log", "sin", "tanh", "erf", "rsqrt", "pow", "div"
KERNELS = {}  # {(way, function): compiled kernel}


def compute(way, name, a, b, y=None, rounds=1, step=0.0):
    """Return the function *name* of *a* and *b*, computed by *way*."""
    if way == "torch":
        return getattr(torch, name)(*((a, b) if name in ("pow", "div") else (a,)))
    y = torch.empty_like(a) if y is None else y
    jitted = {"triton": by_triton, "libdevice": by_library, "by hand": by_hand}[way]
    arguments = a, b, y, a.numel(), rounds, step, jitted, name
    KERNELS[way, name] = repeat_kernel[(triton.cdiv(a.numel(), 1024),)](*arguments, BLOCK=1024)
    return y


def ways_of(name):
    """Return the ways that can run here: assembly is NVIDIA's, the library needs a compiler."""
    library = ["libdevice"] * (NVIDIA or (ON_GPU and name != "div"))
    return ["torch", "triton", *library, *["by hand"] * (NVIDIA or name in ("exp", "erf", "rsqrt"))]


def accuracy(name):
    """Return {way: (largest error, its arguments, largest error with subnormal numbers)}."""
    worst, tiny = dict.fromkeys(ways_of(name), (0.0, 0.0, 0.0, 0.0)), 2.0**-126
    piece, spacing = (2**26, 1) if ON_GPU else (2**12, 2**19 + 1)  # of the bits of the floats
    for start in range(-(2**31), 2**31, piece if ON_GPU else 2**31):
        bits = start + spacing * torch.arange(piece, dtype=torch.int32, device=DEVICE)
        a = bits.view(torch.float32)
        b = 30 * torch.rand_like(a) - 15 if name == "pow" else a
        if name == "div":
            b = torch.randint_like(bits, -(2**31), 2**31 - 1).view(torch.float32)
        right = compute("torch", name, a.double(), b.double())
        normal = (right.abs() >= tiny) & (a.abs() >= tiny) & (b.abs() >= tiny)
        for way, (largest, *where, everywhere) in worst.items():
            error = errors(compute(way, name, a, b), right)
            everywhere = max(everywhere, error.max().item())
            new, at = torch.where(normal, error, 0.0).max(dim=0)
            if new > largest:
                largest, where = new.item(), (a[at].item(), b[at].item())
            worst[way] = largest, *where, everywhere
    return worst


accuracies = {name: accuracy(name) for name in FUNCTIONS}
for name, way in ("exp", "by hand"), ("rsqrt", "by hand"), ("log", "triton"), ("sin", "triton"):
    torch.testing.assert_close(accuracies[name][way][0], 0.0, rtol=0, atol=4.0)

# %%
# We measure speed in two ways. **Through memory**, a kernel reads numbers, applies the function
# once and writes the results. **In registers**, it computes 256 results for each number. The column
# *special* lists instructions that use the multiprocessor's **special function units**, which
# compute powers of two, logarithms, sines and reciprocals. Rates are in 10⁹ results a second.

# sphinx_gallery_fold = "measures the rates of all ways, prints and keeps the table"
from shared.bench import draw_rates, gpu_times, rates, spread, write_calls, write_rows, write_table


def speeds(name):
    """Return {(place, way): 10⁹ results a second}, in registers and through memory."""
    a, b = torch.rand(2, 2**26, device=DEVICE) + 0.5
    b, y, few = b if name in ("pow", "div") else a, torch.empty_like(a), 2**22
    calls = {("memory", way): partial(compute, way, name, a, b, y) for way in ways_of(name)}
    for way in ways_of(name)[1:]:
        calls["registers", way] = partial(compute, way, name, a[:few], b[:few], y, 256, 1e-4)
    count = {"memory": 2**26, "registers": 256 * few}
    return {key: count[key[0]] / spread(ms)[0] / 1e6 for key, ms in gpu_times(calls, 7).items()}


VALUES, table = [], []  # VALUES: (name, unit, value) of what the page says
for name in FUNCTIONS if ON_GPU else ():
    speed = speeds(name)
    for way, (ulps, a, b, everywhere) in accuracies[name].items():
        where = f"{a:,.9g} and {b:,.9g}" if name in ("pow", "div") else f"{a:,.9g}"
        found = ulps, where, everywhere, speed.get(("registers", way)), speed["memory", way]
        ptx = KERNELS[way, name].asm.get("ptx", "") if way != "torch" else ""
        special = set(re.findall(r"\b(?:ex2|lg2|sin|tanh|rcp|rsqrt|div)\.[a-z.]+", ptx))
        table.append((name, way, *found, ", ".join(sorted(special))))
        named = {"ulp": ulps, "everywhere": everywhere, "registers": found[3], "memory": found[4]}
        VALUES += [(f"{name} {way} {what}", "", value) for what, value in named.items() if value]
headers = ("function", "way", "max ulp", "where", "max ulp with subnormal numbers",
           "rate", "rate through memory")  # fmt: skip
print(tabulate(table, (*headers, "special"), floatfmt=".3g", maxheadercolwidths=12))
if ON_GPU:
    write_table("math-accuracy.csv", headers, [row[:-1] for row in table])

# %%
# * **Errors of millions of ulps** occur at tiny results near a zero of the function: the
#   instruction ``lg2`` has them near 1, and ``sin`` near multiples of π. So Triton takes log and
#   sin from the library on NVIDIA GPUs. ``tl.sin`` is off by at most :measured:`sin_ulp` ulps at
#   normal numbers, and by :measured:`sin_everywhere` with subnormal ones.
# * **tanh through the sigmoid** (*triton*) and erf by hand lose their digits near zero, in a
#   subtraction.
# * **An error of inf** means that a result is infinite or NaN and should not be, or the other way
#   round. As 2 to the power of *y* log₂ *x*, a power of a negative *x* is NaN. The reciprocal root
#   of a subnormal number that counts as zero is infinite.
# * **Through memory** the library's exponential has :measured:`exp_alike` times the rate of
#   ``tl.exp``: its accuracy costs nothing there. **In registers** it has :measured:`exp_share`
#   times the rate.
#
# A faster GELU
# -------------
#
# bf16 halves the bytes but not the instructions, and the GELU above (step 1) reaches only
# :measured:`step_1` % of the rate of a copy. Steps 2 to 5 are cheaper:
#
# 2. :math:`\frac{x}{2} (1 + \tanh u)` with :math:`u = \sqrt{2 / \pi} \, (x + 0.044715 \, x^3)`, the
#    approximation that PyTorch has as ``approximate="tanh"``.
# 3. The same with the *sigmoid* :math:`\sigma(z) = 1 / (1 + e^{-z})`, as :math:`x \, \sigma(2u)`:
#    one exponential, one division, no subtraction.
# 4. The same with the hardware's tanh.
# 5. No approximation of GELU, but one of erf: :math:`\max(x, 0) - \frac{|x|}{2} \, \mathrm{erfc}
#    \frac{|x|}{\sqrt 2}`, where erfc is 1 − erf. Formula 7.1.26 of the handbook (see *References*)
#    gives erf as one minus a polynomial times an exponential. That product is erfc, so nothing is
#    subtracted. The result is off by at most :measured:`gelu_error` millionths.


@triton.jit
def gelu_sigmoid(x):
    """Return the approximate GELU of x, by a sigmoid."""
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x * tl.sigmoid(2 * u)


@triton.jit
def gelu_by_hand(x):
    """Return GELU of x, by a formula for erfc that is off by 1.5e-7 at most."""
    t = tl.fma(tl.abs(x), 0.23164190, 1.0)  # 0.3275911 / sqrt(2)
    t = hardware(t, "rcp.approx.ftz.f32 $0, $1;") if HARDWARE else 1.0 / t
    p = tl.fma(tl.fma(t, 1.061405429, -1.453152027), t, 1.421413741)
    p = tl.fma(tl.fma(p, t, -0.284496736), t, 0.254829592)
    erfc = p * t * tl.exp2(-0.7213475204444817 * x * x)  # exp(-x * x / 2)
    return tl.maximum(x, 0.0) - 0.5 * tl.minimum(tl.abs(x), 100.0) * erfc  # inf * 0 is NaN


# %%
# Steps 2 and 4:

# sphinx_gallery_fold = "GELU by the library's tanh and by the hardware's"


@triton.jit
def gelu_tanh(x):
    """Return the approximate GELU of x, by the library's tanh."""
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + libdevice.tanh(u))


@triton.jit
def gelu_hardware(x):
    """Return the approximate GELU of x, by the hardware's tanh."""
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + hardware(u, "tanh.approx.f32 $0, $1;"))


# %%
# Calling it
# ----------
#
# ``gelu`` uses step 5, and step 3 for ``approximate="tanh"``.


def gelu(x, approximate="none"):
    """Return GELU of each element of the contiguous *x*."""
    return elementwise(gelu_by_hand if approximate == "none" else gelu_sigmoid, x)


# %%
# All steps are compared with float64 in each dtype:

# sphinx_gallery_fold = "compares the steps with float64"
steps = {"1": partial(elementwise, gelu_exact), "3": partial(gelu, approximate="tanh"), "5": gelu}
steps |= {"2": partial(elementwise, gelu_tanh)} if ON_GPU else {}
steps |= {"4": partial(elementwise, gelu_hardware)} if NVIDIA else {}
dtypes = [torch.float32, torch.float16] + [torch.bfloat16] * ON_GPU  # wrong in the interpreter
for dtype, (n, step) in product(dtypes, steps.items()):
    x = torch.linspace(-12, 12, 2**22 + 1 if ON_GPU else 4097, device=DEVICE).to(dtype)
    exact = functional.gelu(x.double(), approximate="none" if n in "15" else "tanh")
    limit = 5e-3 if n == "4" else 2e-6
    torch.testing.assert_close(step(x).double(), exact, rtol=torch.finfo(dtype).eps, atol=limit)
    if n == "5" and dtype == torch.float32:
        off = 1e6 * (step(x).double() - exact).abs().max().item()
        VALUES.append(("gelu error", "1e-6", off))
print(f"gelu agrees with float64; in fp32 it is off by at most {off:.2g} millionths")

# %%
# The benchmark
# -------------
#
# We time ``gelu`` in fp32 and bf16, PyTorch's GELU, and a copy, which moves as many bytes.

# sphinx_gallery_fold = "times GELU, PyTorch's and a copy, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "elementwise_kernel: 2²⁸ elements, bf16, step 5"


def benchmark(dtype, functions):
    """Return rows (size, provider, unit, median, p20, p80)."""
    rows = []
    for n in (2**20, 2**22, 2**24, 2**26, 2**28):
        x = torch.randn(n, device=DEVICE, dtype=dtype)
        functions |= {"triton": gelu, "torch": functional.gelu, "copy": torch.clone}
        calls = {name: partial(function, x) for name, function in functions.items()}
        rows += rates((n,), calls, "GB/s", 2 * x.nbytes, 30)
    gelu(x)  # the last launch is the one whose X-ray is shown
    return rows


if ON_GPU:
    single = benchmark(torch.float32, {})
    write_rows("gelu-performance.csv", ["size"], single)
    rows = benchmark(torch.bfloat16, {f"triton, step {n}": steps[n] for n in steps if n != "5"})
    write_rows("gelu-performance-bf16.csv", ["size"], rows)
    names = {"copy": "copy (ceiling)", "torch": "PyTorch", "triton": "gelu, step 5"}
    names |= {"triton, step 1": "step 1: the library's erf"}
    draw_rates(rows, names, "GELU in bf16", "elements", share_of="copy", xscale="log")
else:
    print("Without a GPU there is nothing to time.")

# %%
# The steps in bf16, at 2²⁸ elements:
#
# .. steps:: copy
#    :unit: GB/s
#
#    first: the library's erf
#    second: approximate, with the library's tanh
#    third: approximate, as a sigmoid
#    fourth: approximate, with the hardware's tanh
#    bf16: by our own erfc
#
# **In fp32** ``gelu`` reaches :measured:`fp32_copy` % of a copy: its instructions run while bytes
# are in flight. **In bf16** it reaches :measured:`bf16` GB/s. A curve that ends below the copy is
# limited by instructions; one above it moves its bytes better than PyTorch's copy does. A call
# takes :measured:`cpu` µs of the CPU, and one of PyTorch's GELU :measured:`cpu_torch` µs. In a loop
# that does not wait, a call costs the larger of the CPU's and the GPU's time. From
# :measured:`longer` elements of fp32 on, the GPU's is the larger.
#
# In a program
# ------------
#
# The function that others call checks its argument, and launches on the GPU that holds it. It
# refuses a tensor that requires a gradient, because the result would have none. The second exercise
# adds the derivative. For ``torch.compile`` it is an *operation* of PyTorch, as in
# :doc:`01-vector-add`. :doc:`/programming-guide/chapter-6/calls` takes such a call apart.

# sphinx_gallery_fold = "the function with its checks"
from shared.launch import on_device_of

FLOATS = [torch.float16, torch.float32] + [torch.bfloat16] * ON_GPU  # wrong in the interpreter


def launch(x, approximate):
    """Return GELU of *x*, which has been checked."""
    x = x.resolve_neg()  # copies a tensor whose sign is still to be changed
    with on_device_of(x):
        return elementwise(gelu_by_hand if approximate == "none" else gelu_sigmoid, x)


@torch.library.custom_op("gallery::gelu", mutates_args=())
def gelu_op(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """Return GELU of *x*: an operation that PyTorch's compiler calls without looking into it."""
    return launch(x, approximate)


@gelu_op.register_fake
def gelu_shape(x, approximate):
    """Return a tensor like the result, without computing it: what the compiler has to know."""
    return torch.empty_like(x)


def gelu(x, approximate="none"):
    """Return GELU of each element of *x*, as ``torch.nn.functional.gelu`` does.

    *x* is a contiguous tensor of any shape: float16, float32 or, on a GPU, bfloat16. *approximate*
    is "none" or "tanh". Raises TypeError or ValueError, naming the argument, for anything else, and
    for an *x* that requires a gradient outside of ``torch.no_grad()``.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, but is a {type(x).__name__}")
    if x.dtype not in FLOATS:
        raise TypeError(f"the dtype of x must be in {FLOATS}, but its dtype is {x.dtype}")
    if x.device.type != DEVICE.type:
        raise ValueError(f"x must be on a {DEVICE.type} device, but is on {x.device}")
    if x.layout != torch.strided or not x.is_contiguous():
        found = f"has strides {x.stride()}" if x.layout == torch.strided else f"is {x.layout}"
        raise ValueError(f"x must be contiguous, but {found}; pass x.contiguous() or x.to_dense()")
    if x.requires_grad and torch.is_grad_enabled():
        hint = "use the solution 07-gelu-backward, or pass x.detach()"
        raise ValueError(f"x requires a gradient, which gelu does not compute; {hint}")
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate must be 'none' or 'tanh', but is {approximate!r}")
    if torch.compiler.is_compiling() or type(x) not in (torch.Tensor, torch.nn.Parameter):
        return gelu_op(x, approximate)
    return launch(x, approximate)


# %%
# It gives the same bits as the plain function. The CPU's share of a call:

# sphinx_gallery_fold = "times the calls, and keeps the values"


@triton.jit
def empty_kernel():
    """Do nothing."""


assert torch.equal(gelu(x), elementwise(gelu_by_hand, x))
if ON_GPU:
    x = torch.randn(4096, device=DEVICE)
    calls = {"triton": partial(gelu, x), "torch": partial(functional.gelu, x)}
    cpu = write_calls({"gelu": calls | {"launch": empty_kernel[(1,)]}})
    times = {n: 8e-3 * n / rate for n, name, _, rate, *_ in single if name == "triton"}  # µs
    longer = [n for n, time in times.items() if time > cpu["gelu", "triton"]]
    VALUES.append(("GPU longer from", "elements", min(longer)))
    write_table("07-math-functions-values.csv", ["name", "unit", "value"], VALUES)

# %%
# Exercises
# ---------
#
# 1. **How many terms?** *(medium, 20 minutes)* Write ``exponential(x, terms)`` with a polynomial
#    whose coefficients are *terms*, the highest power first. bf16 has eight significant bits. How
#    many terms does its exponential need? :doc:`Solution <solutions/07-polynomial>`.
# 2. **Backward** *(medium, 30 minutes)*. Give ``gelu(x, approximation="none")`` a derivative in a
#    ``torch.autograd.Function``; the other approximation is ``"tanh"``. :doc:`Solution
#    <solutions/07-gelu-backward>`.
#
# References
# ----------
#
# * Dan Hendrycks, Kevin Gimpel: *Gaussian error linear units*, https://arxiv.org/abs/1606.08415
# * Milton Abramowitz and Irene Stegun: *Handbook of mathematical functions*, 1964, formula 7.1.26.
