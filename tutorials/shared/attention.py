"""What the scripts on attention share: the checks of arguments, and the benchmark's inputs."""

import math
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as torch_attention

from shared.bench import gpu_times, spread

PEERS = {"flash": "FlashAttention-2"} | ({} if torch.version.hip else {"cudnn": "cuDNN"})


def check_attention(q, k, v, causal, scale, device, dtypes, gradients=False):
    """Raise TypeError or ValueError, naming the argument, if ``attention`` cannot be right.

    Tensors must be on a device of the type of *device*, and may require gradients if *gradients*.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
        if x.dtype != q.dtype or q.dtype not in dtypes:
            allowed = f"one of {dtypes}" if x is q else f"{q.dtype} as q"
            raise TypeError(f"{name} must be {allowed}, but its dtype is {x.dtype}")
        if x.layout != torch.strided:
            raise ValueError(f"{name} must be strided, but its layout is {x.layout}")
        if x.ndim != 4:
            raise ValueError(f"{name} must be [batch, heads, N, head_dim], not {tuple(x.shape)}")
        if x.device != q.device or q.device.type != device.type:
            wanted = f"a {device.type} device" if x is q else f"{q.device} as q"
            raise ValueError(f"{name} must be on {wanted}, but is on {x.device}")
        if x.shape[3] != q.shape[3] or q.shape[3] not in (16, 32, 64, 128):
            allowed = "16, 32, 64 or 128" if x is q else f"{q.shape[3]} as q"
            raise ValueError(f"{name} must have a head_dim of {allowed}, but has {x.shape[3]}")
        if torch.is_grad_enabled() and x.requires_grad and not gradients:
            remedy = "use that of 06b-attention-backward, or torch.no_grad()"
            raise ValueError(f"{name} requires a gradient, which this attention lacks: {remedy}")
        if gradients and x.numel() and not x.data_ptr():  # such as a distributed tensor
            raise ValueError(f"{name} must have memory, but is a {type(x).__name__} without")
    shapes = f"have {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if k.shape != v.shape or k.shape[0] != q.shape[0] or 0 in k.shape[1:3]:
        raise ValueError(f"k and v must have one shape, q's batch, and keys; q, k and v {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"q must have a multiple of the heads of k; q, k and v {shapes}")
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be True or False, but is {causal!r}; scale is the next one")
    if scale is not None and not (isinstance(scale, int | float) and 2**-126 <= scale < 2**127):
        raise ValueError(f"scale must be positive and finite in fp32, but is {scale!r}")


def ready(x):
    """Return *x* if a descriptor can describe it, and a copy of it otherwise."""
    strides = [stride * x.element_size() for stride in x.stride()[:3]]
    aligned = x.data_ptr() % 16 == 0 and all(s > 0 and s % 16 == 0 for s in strides)
    return x if aligned and x.stride(3) == 1 else x.clone(memory_format=torch.contiguous_format)


def tensors(batch, heads, key_heads, queries, keys, d, dtype, device):
    """Return random q, k and v of these sizes."""
    q = torch.randn(batch, heads, queries, d, device=device).to(dtype)
    return q, *torch.randn(2, batch, key_heads, keys, d, device=device).to(dtype)


def compare_gradients(function, q, k, v, causal, scale=None):
    """Stop where the result of *function* or a gradient is not as in float64."""
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    o = function(*inputs, causal, scale)
    right = torch_attention(*exact, is_causal=causal, scale=scale, enable_gqa=True)
    do = torch.randn_like(o)
    ours = o, *torch.autograd.grad(o, inputs, do)
    right = right, *torch.autograd.grad(right, exact, do.double())
    for x, y in zip(ours, right, strict=True):
        error = (x.double() - y).norm() / (y.norm() + 0.01 * math.sqrt(y.numel()))
        limit = 2 * max(torch.finfo(q.dtype).eps, 1e-5)
        torch.testing.assert_close(error, torch.zeros_like(error), rtol=0, atol=limit)


def random_inputs(n, d, tokens=16384):
    """Return q, k and v in bf16 with *tokens* tokens of 2048 numbers in all, *n* in a sequence."""
    device = torch.accelerator.current_accelerator()
    return torch.randn(3, tokens // n, 2048 // d, n, d, device=device).bfloat16().unbind()


def peers(q, k, v, causal):
    """Return {provider: call of PyTorch's function with this library}."""
    call = partial(torch_attention, q, k, v, is_causal=bool(causal))
    backends = {name: getattr(SDPBackend, f"{name.upper()}_ATTENTION") for name in PEERS}
    return {name: sdpa_kernel(backend)(call) for name, backend in backends.items()}


def gradient_calls(calls, inputs):
    """Return {provider: call of the backward pass} of {provider: call of the forward pass}."""
    again = partial(torch.autograd.grad, inputs=inputs, retain_graph=True)
    do = torch.randn_like(inputs[0])
    return {name: partial(again, call(), grad_outputs=do) for name, call in calls.items()}


def first_longer(call_of, cpu):
    """Return from how many tokens on the GPU needs more than *cpu* µs for ``call_of(q, k, v)()``.

    The tensors are one sequence in bf16 with 16 heads of 128.
    """
    device = torch.accelerator.current_accelerator()
    for n in [64 << i for i in range(9)]:  # at the last size, the GPU needs milliseconds
        call = call_of(*torch.randn(3, 1, 16, n, 128, device=device).bfloat16().unbind())
        if spread(gpu_times({"call": call})["call"])[0] * 1e3 > cpu:
            break
    return n
