"""What the lessons on matrix products share: checks of a result and of arguments, and sizes."""

import torch

# M, N and K of layers with 300 tokens, one and 17; no tile was chosen for them.
LAYERS = [(300, 11008, 4096), (1, 14336, 4096), (17, 14336, 4096)]


def check(c, a, b, activation=""):
    """Raise AssertionError if *c* is not ``activation(a @ b)``, computed in float64."""
    exact = a.double() @ b.double()
    if activation == "leaky_relu":
        exact = torch.nn.functional.leaky_relu(exact)
    rounding, summing = torch.finfo(a.dtype).eps, 2**-20 * a.shape[1]  # K products in fp32
    torch.testing.assert_close(c.double(), exact, rtol=rounding, atol=summing)


def check_arguments(a, b, activation, device, dtypes):
    """Raise TypeError or ValueError, naming the argument, if ``matmul`` cannot go on.

    *device* is one of the kind that the matrices must be on, and *dtypes* lists what they may have.
    """
    for name, t in (("a", a), ("b", b)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dtype not in dtypes:
            raise TypeError(f"the dtype of {name} must be in {dtypes}, but is {t.dtype}")
        if t.dim() != 2 or t.layout != torch.strided:
            found = f"has shape {tuple(t.shape)} and layout {t.layout}"
            raise ValueError(f"{name} must be a matrix, but {found}")
        if t.device.type != device.type or t.device != a.device:
            wanted = f"on a {device.type} device" if name == "a" else f"on {a.device}, like a,"
            raise ValueError(f"{name} must be {wanted} but is on {t.device}")
        if t.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} requires a gradient, which matmul does not compute; "
                f"use torch.matmul, or pass {name}.detach()"
            )
    if a.dtype != b.dtype:
        raise TypeError(f"a and b must have one dtype, but have {a.dtype} and {b.dtype}")
    if a.shape[1] != b.shape[0]:
        shapes = f"{tuple(a.shape)} × {tuple(b.shape)}"
        raise ValueError(f"a must have as many columns as b has rows: {shapes}")
    if not isinstance(activation, str) or activation not in ("", "leaky_relu"):
        raise ValueError(f'activation must be one of "" and "leaky_relu", but is {activation!r}')
