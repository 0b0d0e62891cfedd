"""What the lessons on layer norm share: checks of arguments and of results."""

from functools import reduce

import torch
from torch.nn import functional

FLOATS = [torch.float16, torch.float32]
FLOATS = FLOATS + [torch.bfloat16] * torch.accelerator.is_available()  # not in the interpreter


def check_tensors(tensors, device):
    """Raise TypeError or ValueError, naming the tensor, if a kernel cannot read one of them.

    *tensors* are {name: tensor}; all must be strided, of a dtype in FLOATS, and on the device of
    the first one, which must be of the kind of *device*.
    """
    first = next(iter(tensors))
    for name, t in tensors.items():
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dtype not in FLOATS:
            raise TypeError(f"the dtype of {name} must be in {FLOATS}, but its dtype is {t.dtype}")
        if t.layout != torch.strided:
            raise ValueError(f"{name} must be strided, but its layout is {t.layout}")
        one = tensors[first].device
        if t.device.type != device.type or t.device != one:
            wanted = f"a {device.type} device" if name == first else f"{one}, like {first}"
            raise ValueError(f"{name} must be on {wanted}, but is on {t.device}")


def check_norm(eps, device, x, *parameters):
    """Raise TypeError or ValueError, naming the argument, if a norm cannot be computed."""
    named = dict(zip(("weight", "bias"), parameters, strict=False))
    check_tensors({"x": x, **named}, device)
    row = x.shape[-1:]
    if not row:
        raise ValueError("x must have a dimension to normalize, but is a single number")
    for name, t in named.items():
        if t.shape != row:
            raise ValueError(f"{name} must have shape {tuple(row)}, but has {tuple(t.shape)}")
    if isinstance(eps, bool) or not isinstance(eps, (int, float)):
        raise TypeError(f"eps must be a number, but is a {type(eps).__name__}")
    if not 0 <= eps < 2**1024:  # this refuses NaN, and integers beyond all floats, too
        raise ValueError(f"eps must be finite and not negative, but is {eps}")


def check_long_rows(device, x, **others):
    """Raise TypeError or ValueError, naming the argument, if the kernels for long rows cannot."""
    check_tensors({"x": x, **others}, device)
    if x.ndim != 2 or not x.numel():
        raise ValueError(f"x must be a matrix with elements, but has shape {tuple(x.shape)}")
    shapes = {"x": x.shape, "g": x.shape, "stats": (2, len(x))}
    for name, t in {"x": x, **others}.items():
        if t.shape != (shape := tuple(shapes.get(name, x.shape[1:]))):
            raise ValueError(f"{name} must have shape {shape}, but has {tuple(t.shape)}")
        if not t.is_contiguous():
            raise ValueError(f"{name} must be contiguous; pass {name}.contiguous()")
        if not t.data_ptr():  # such as a distributed tensor
            raise ValueError(f"{name} must have memory, but is a {type(t).__name__} without")
        if t.requires_grad and torch.is_grad_enabled():
            hint = f"use layer_norm of 05-layer-norm, or pass {name}.detach()"
            raise ValueError(f"{name} requires a gradient, but the result has none; {hint}")


def readable(t):
    """Return *t*, or a contiguous copy unless it is a matrix whose rows are contiguous."""
    t = t.resolve_neg()  # copies a tensor whose sign is still to be changed
    is_matrix = t.ndim == 2 and t.stride(1) == 1 and t.stride(0) >= t.shape[1]
    return t if is_matrix else t.contiguous()


def library_norm(eps, x, *parameters):
    """Return the norm as PyTorch computes it."""
    dtype = reduce(torch.promote_types, [t.dtype for t in (x, *parameters)])
    norm = functional.layer_norm if len(parameters) == 2 else functional.rms_norm
    return norm(x.to(dtype), x.shape[-1:], *[t.to(dtype) for t in parameters], eps=eps).to(x.dtype)


def assert_near(found, right, least=1):
    """Raise AssertionError if *found* differs from *right*, in float64, by more than rounding.

    Rounding errors are relative to the largest element, or to *least* if that is larger.
    """
    for one, other in zip(found, right, strict=True):
        most = max(least, other.abs().max().item())
        atol = max(2e-5, 2 * torch.finfo(one.dtype).eps) * most
        torch.testing.assert_close(one.double(), other, rtol=0, atol=atol)


def check(norm, library, x, *parameters):
    """Compare a norm and its gradients with those of *library*, PyTorch's, in float64."""
    inputs = [t.detach().requires_grad_() for t in (x, *parameters)]
    exact = [t.detach().double().requires_grad_() for t in inputs]
    y, right = norm(*inputs), library(exact[0], exact[1].shape, *exact[1:], eps=1e-5)
    g = torch.randn_like(y)
    found = y, *torch.autograd.grad(y, inputs, g)
    right = right, *torch.autograd.grad(right, exact, g.double())
    rstd = (exact[0].var(dim=1, correction=0) + 1e-5).rsqrt().max().item()  # multiplies errors
    assert_near(found, right, max(1, rstd))
