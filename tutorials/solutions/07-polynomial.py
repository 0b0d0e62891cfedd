r"""
How many terms?
===============

*Solution to the first exercise of* :doc:`../07-math-functions`.

The exponential of the tutorial approximates :math:`e^r`, for :math:`|r| \le \frac12 \log 2`, by the
first seven terms of Taylor's series. The first term that is left out tells the error: after degree
*d* it is about :math:`|r|^{d+1} / (d+1)!` of the result. bf16 keeps eight bits, so its own rounding
is up to 2⁻⁹. An error far below that cannot be seen.

Taylor's series is exact at zero and worst at the ends. A polynomial that spreads the error evenly
is better with as many terms. One that is nearly the best goes through the *Chebyshev points* of the
interval, which crowd at its ends.
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
# The coefficients are an argument of the kernel, in memory, from the highest power down. Their
# number is a ``tl.constexpr``, so that the loop over them is unrolled.


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
# Each degree brings about four bits, until the rounding of fp32 itself is reached. Chebyshev's
# points are worth most of a degree. To stay below a quarter of bf16's rounding, 2⁻¹¹, it takes

needed = [min(d for d in errors if errors[d][which] < 2**-11) for which in (0, 1)]
print(f"degree {needed[0]} with Taylor's coefficients, degree {needed[1]} with Chebyshev's")

# %%
# The estimates of the text, checked: a Taylor polynomial is off by what its first missing term
# says, the other is off by about half of that at most, and the best of both is as good as fp32
# allows.

for degree in range(1, 6):
    missing = (math.log(2) / 2) ** (degree + 1) / math.factorial(degree + 1)
    torch.testing.assert_close(errors[degree][0], missing, rtol=0.6, atol=2e-7)
    assert errors[degree][1] < 0.6 * errors[degree][0]
torch.testing.assert_close(errors[7][1], 0.0, rtol=0, atol=3e-7)
assert needed[1] <= needed[0] <= 4
print("The errors are what the missing terms say")
