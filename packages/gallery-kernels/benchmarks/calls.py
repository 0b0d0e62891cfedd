"""The CPU's share of each call in µs, beside PyTorch's: ``python benchmarks/calls.py``."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.nn import functional

import gallery_kernels as kernels
from timing import cpu_microseconds, print_table

Pair = tuple[str, Callable, Callable]


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Return random numbers that want a gradient."""
    return torch.randn(shape, device="cuda").to(dtype).requires_grad_()


def pair(name: str, ours: Callable, theirs: Callable, *leaves: torch.Tensor) -> Iterator[Pair]:
    """Yield the forward passes without gradients and with them, and the backward passes."""

    def without_gradients(call: Callable) -> None:
        with torch.no_grad():
            call(*leaves)

    yield name, partial(without_gradients, ours), partial(without_gradients, theirs)
    yield f"{name}, with gradients", partial(ours, *leaves), partial(theirs, *leaves)
    backwards = []
    for call in (ours, theirs):
        y = call(*leaves)
        g = torch.randn_like(y)
        backwards.append(partial(torch.autograd.grad, y, leaves, g, retain_graph=True))
    yield f"{name}, backward", *backwards


def loss_pair(name: str, ours: Callable, theirs: Callable, *leaves: torch.Tensor) -> Iterator[Pair]:
    """Yield forward and backward passes together: our losses compute gradients on the way."""

    def both(call: Callable) -> None:
        torch.autograd.grad(call(*leaves), leaves)

    yield f"{name}, forward and backward", partial(both, ours), partial(both, theirs)


def pairs() -> Iterator[Pair]:
    """Yield each function and direction, with ours and PyTorch's call."""
    x, weight, bias = randn(64, 1024), randn(1024), randn(1024)
    yield from pair(
        "layer_norm",
        kernels.layer_norm,
        lambda x, w, b: functional.layer_norm(x, (1024,), w, b),
        *(x, weight, bias),
    )
    yield from pair(
        "rms_norm",
        kernels.rms_norm,
        lambda x, w: functional.rms_norm(x, (1024,), w, 1e-6),
        *(x, weight),
    )
    q, k, v = (randn(1, 32, 256, 64) for _ in range(3))
    attend = functional.scaled_dot_product_attention
    yield from pair("attention", kernels.attention, attend, q, k, v)
    turned = [x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    turned = [x.requires_grad_() for x in turned]
    yield from pair("attention, heads and tokens exchanged", kernels.attention, attend, *turned)
    x = randn(4096)
    yield from pair("seeded_dropout", lambda x: kernels.seeded_dropout(x, 0.5, 3),
                    functional.dropout, x)  # fmt: skip
    if hasattr(kernels, "cross_entropy"):
        logits, targets = randn(1024, 4096), torch.randint(0, 4096, (1024,), device="cuda")
        yield from loss_pair("cross_entropy", lambda x: kernels.cross_entropy(x, targets),
                             lambda x: functional.cross_entropy(x, targets), logits)  # fmt: skip
    if hasattr(kernels, "linear_cross_entropy"):
        x, layer = randn(1024, 1024), randn(4096, 1024)
        yield from loss_pair(
            "linear_cross_entropy",
            lambda x, w: kernels.linear_cross_entropy(x, w, targets),
            lambda x, w: functional.cross_entropy(functional.linear(x, w), targets),
            *(x, layer),
        )


def main() -> None:
    """Time all pairs."""
    torch.manual_seed(0)
    ones = torch.ones(64, 64, device="cuda", requires_grad=True)
    product = partial(torch.autograd.grad, 2 * ones, ones, ones.detach(), retain_graph=True)
    print(f"autograd alone, backward of a product: {cpu_microseconds(product):.1f} µs")
    rows = []
    for name, ours, theirs in pairs():
        times = cpu_microseconds(ours), cpu_microseconds(theirs)
        rows.append([name, *times, times[0] / times[1]])
    columns = ["function", "ours, µs", "PyTorch's, µs", "ours / PyTorch's"]
    print_table("The CPU's share of a call", columns, rows)


if __name__ == "__main__":
    main()
