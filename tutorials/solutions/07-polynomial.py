r"""
How many terms?
===============

*Solution to the first exercise of* :doc:`../07-math-functions`.

The exponential of the tutorial approximates :math:`e^r`, for :math:`|r| \le \frac12 \log 2`, by a
polynomial of degree six. Here the coefficients are those of Taylor's series. The first omitted term
gives the error: after degree *d* it is about :math:`|r|^{d+1} / (d+1)!` of the result. bf16 keeps
eight bits, so it rounds by up to 2⁻⁹, which hides errors far below that.

Taylor's series is exact at zero and worst at the ends. A polynomial of the same degree that spreads
the error evenly is better. The polynomial through the *Chebyshev points*, which are denser at the
ends of the interval, is nearly the best.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import math
import os

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# The kernel loads the coefficients from memory, the highest power first. Their number is a
# ``tl.constexpr``, so the loop over them is unrolled.


@triton.jit
def exp_kernel(x_ptr, y_ptr, terms_ptr, n, TERMS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the exponential of numbers from -80 to 80 by a polynomial of TERMS terms."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    k = tl.floor(x * 1.4426950408889634 + 0.5)
    r = tl.fma(k, -0.693145751953125, x)
    r = tl.fma(k, -1.4286068203094172e-6, r)
    p = tl.zeros_like(r)
    for i in tl.static_range(TERMS):
        p = tl.fma(p, r, tl.load(terms_ptr + i))
    scale = ((k.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
    tl.store(y_ptr + offsets, p * scale, mask=offsets < n)


def exponential(x, terms):
    """Return the exponential of *x*, by the polynomial with the coefficients *terms*."""
    if x.dtype != torch.float32 or x.device != DEVICE or not x.is_contiguous():
        raise ValueError(f"x must be contiguous, float32 and on {DEVICE}, but is {x.dtype}")
    y = torch.empty_like(x)
    terms = torch.tensor(terms, dtype=torch.float32, device=x.device)
    n, block = x.numel(), 1024
    exp_kernel[(triton.cdiv(n, block),)](x, y, terms, n, TERMS=len(terms), BLOCK=block)
    return y


# %%
# Taylor's coefficients are :math:`1/i!`. Those of a polynomial through given points are the
# solution of a system of equations, here in float64.

# sphinx_gallery_fold = "computes the coefficients"


def taylor(degree):
    """Return the coefficients of Taylor's series, the highest power first."""
    return [1 / math.factorial(i) for i in range(degree, -1, -1)]


def chebyshev(degree):
    """Return the coefficients of the polynomial through the Chebyshev points."""
    i = torch.arange(degree + 1, dtype=torch.float64)
    points = math.log(2) / 2 * torch.cos(math.pi * (i + 0.5) / (degree + 1))
    powers = points[:, None] ** torch.arange(degree, -1, -1, dtype=torch.float64)
    return torch.linalg.solve(powers, points.exp()).tolist()


def largest_error(terms, x):
    """Return the largest error, relative to the result."""
    right = torch.exp(x.double())
    return ((exponential(x, terms).double() - right).abs() / right).max().item()


x = torch.linspace(-80, 80, 2**20 if ON_GPU else 2**14, device=DEVICE)
errors = {d: (largest_error(taylor(d), x), largest_error(chebyshev(d), x)) for d in range(1, 8)}
table = [(d, *(f"2^{math.log2(error):.1f}" for error in errors[d])) for d in errors]
print(tabulate(table, ["degree", "Taylor", "Chebyshev"], disable_numparse=True, stralign="right"))

# %%
# Each degree brings three to four bits, down to the rounding error of fp32. At degree *d*,
# Chebyshev's points save about *d* bits, so from degree 3 on they are worth most of a degree. An
# error below a quarter of bf16's rounding error, 2⁻¹¹, takes

needed = [min(d for d in errors if errors[d][which] < 2**-11) for which in (0, 1)]
print(f"degree {needed[0]} with Taylor's coefficients, degree {needed[1]} with Chebyshev's")

# %%
# The check: the error of a Taylor polynomial is its first omitted term, the error of the other is
# at most 0.6 of that, and the best of both reaches the rounding error of fp32.

for degree in range(1, 6):
    missing = (math.log(2) / 2) ** (degree + 1) / math.factorial(degree + 1)
    torch.testing.assert_close(errors[degree][0], missing, rtol=0.6, atol=2e-7)
    assert errors[degree][1] < 0.6 * errors[degree][0]
torch.testing.assert_close(errors[7][1], 0.0, rtol=0, atol=3e-7)
assert needed[1] <= needed[0] <= 4
print("The errors are what the missing terms say")
