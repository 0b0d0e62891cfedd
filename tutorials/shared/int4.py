"""What the lesson on int4 weights needs beside its kernels: pictures, and checks of arguments."""

import matplotlib.pyplot as plt
import torch
from shared.bench import OURS, PALETTE, figure


def draw_words():
    """Draw which columns of a group lie in the bits of its words."""
    _, ax = figure(height=2.9)
    for place in range(4):  # from the highest bits to the lowest
        for x, word in enumerate((0, 1, 2, None, 31)):
            style = {"facecolor": "#cfe3f1" if place == 3 else "#eeeeee", "edgecolor": "#444444"}
            if word is None:
                ax.text(place + 0.5, x + 0.4, "⋮", ha="center", va="center")
                continue
            ax.add_patch(plt.Rectangle((place, x), 1, 0.8, **style))
            column = word + 32 * (3 - place)
            ax.text(place + 0.5, x + 0.4, f"column {column}", ha="center", va="center")
    ax.set(xlim=(0, 4), ylim=(5, -0.2))
    ax.set_xticks([0.5, 1.5, 2.5, 3.5], ["bits 12–15", "8–11", "4–7", "0–3"])
    ax.set_yticks([0.4, 1.4, 2.4, 4.4], ["word 0", "word 1", "word 2", "word 31"])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    plt.show()


def draw_shares(rows, gpu):
    """Draw the share of bf16's time over the rows of x, and the model's."""
    time = {(row[3], row[0]): row[5] for row in rows if row[1] == 8192}
    sizes = sorted({M for _, M in time})
    fig, ax = figure(height=4.4)
    for name, label in (("triton", "int4_mm"), ("int4pack", "PyTorch's int4")):
        points = [(M, 100 * time[name, M] / time["bf16", M]) for M in sizes if (name, M) in time]
        if points:
            ax.plot(
                *zip(*points, strict=True), label=label, color=PALETTE.get(name, OURS), marker="."
            )
    read, compute = time["bf16", 1], time["bf16", 1024] / 1024
    model = [100 * max(read * 4.25 / 16, M * compute) / max(read, M * compute) for M in sizes]
    ax.plot(sizes, model, "--", label="model: bytes and products", color="#444444")
    ax.axhline(100, color="#bbbbbb", linewidth=1)
    top = 100 * max(2, 1.2 * max(time["triton", M] / time["bf16", M] for M in sizes))
    ax.set(xscale="log", ylim=(0, top), xlabel="rows of x", ylabel="% of bf16, lower is better")
    ax.set_title(f"8192 × 8192 weights\non {gpu}")
    fig.legend(loc="outside lower center", ncols=2, frameon=False)
    plt.show()


FLOATS = torch.bfloat16, torch.float16, torch.float32


def check_arguments(x, packed, scales, zeros, group, device):
    """Raise TypeError or ValueError, naming the argument, if no product can be computed.

    *device* is one of the kind that all tensors must be on.
    """
    named = {"x": x, "packed": packed, "scales": scales, "zeros": zeros}
    for name, tensor in named.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(tensor).__name__}")
        kinds = FLOATS[: 2 if name == "x" and device.type != "cpu" else 3]
        kinds = (torch.int16,) if name == "packed" else kinds
        if tensor.dtype not in kinds:
            wanted = " or ".join(str(kind).removeprefix("torch.") for kind in kinds)
            raise TypeError(f"{name} must be {wanted}, but its dtype is {tensor.dtype}")
        if tensor.layout != torch.strided:
            raise ValueError(f"{name} must be strided, but its layout is {tensor.layout}")
        if tensor.device.type != device.type or tensor.device != x.device:
            wanted = f"a {device.type} device, the same for all"
            raise ValueError(f"{name} must be on {wanted}, but is on {tensor.device}")
        if torch.is_grad_enabled() and tensor.requires_grad:
            why = "which int4_mm does not compute: call torch.no_grad()"
            raise ValueError(f"{name} requires a gradient, {why}")
    if packed.ndim != 3 or group not in (64, 128, 256) or packed.shape[2] != group // 4:
        found = f"packed has shape {tuple(packed.shape)}, and group is {group}"
        raise ValueError(f"packed must be [K / group, N, group / 4] of pack_int4, but {found}")
    groups, N, _ = packed.shape
    shapes = {"x": (*x.shape[:1], groups * group), "scales": (N, groups), "zeros": (N, groups)}
    for name, shape in shapes.items():
        if named[name].shape != shape:
            found = tuple(named[name].shape)
            raise ValueError(f"{name} must have shape {shape}, but has {found}")
