"""How the page of a whole model begins, times its steps, profiles one, and draws its losses."""

import logging
import random
from functools import partial

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

from shared.bench import OURS, PALETTE, figure

# torch.compile logs each way of a product that it could not try.
logging.getLogger("torch._inductor.select_algorithm").setLevel(logging.ERROR)


def initial_weights(config, context, device):
    """Return {name: fp32 tensor} of a decoder; the same for each call.

    *config* is (layers, width, heads), *context* the longest time.
    """
    layers, width, _ = config
    generator = torch.Generator(device).manual_seed(0)
    normal = partial(torch.randn, device=device, generator=generator)
    made = {"bytes": 0.5 * normal(256, width), "places": 0.1 * normal(context, width)}
    for i in range(layers):
        deep = (2 * layers) ** -0.5  # each layer adds to x, so x stays of one size
        made[f"{i} norm 1"] = made[f"{i} norm 2"] = torch.ones(width, device=device)
        made[f"{i} qkv"] = normal(3 * width, width) * width**-0.5
        made[f"{i} out"] = normal(width, width) * width**-0.5 * deep
        made[f"{i} up"] = normal(4 * width, width) * width**-0.5
        made[f"{i} down"] = normal(width, 4 * width) * (4 * width) ** -0.5 * deep
    made["norm"] = torch.ones(width, device=device)
    made["logits"] = normal(256, width) * width**-0.5
    return made


def graph_times(graphs, rounds=15, replays=5):
    """Return {name: the GPU's milliseconds of one replay, once for each round}, in turns."""
    times = {name: [] for name in graphs}
    for _ in range(rounds):
        for name in random.sample(list(graphs), len(graphs)):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(replays):
                graphs[name].replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(end) / replays)
    return times


def profile_of(step):
    """Return [(kernel, launches, milliseconds)] of one call of *step*, the longest first."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True
    ) as profile:
        step()
        torch.cuda.synchronize()
    events = [e for e in profile.key_averages() if e.self_device_time_total]
    events.sort(key=lambda e: -e.self_device_time_total)
    names = [e.key.removeprefix("void ").replace("at::native::", "") for e in events]
    return [
        (n, e.count, e.self_device_time_total / 1e3) for n, e in zip(names, events, strict=True)
    ]


def print_profile(kernels, lines=9):
    """Print the longest *kernels* with their shares."""
    whole = sum(ms for *_, ms in kernels)
    rows = [(n[:34], count, ms, f"{100 * ms / whole:.0f} %") for n, count, ms in kernels[:lines]]
    print(tabulate(rows, ["kernel", "launches", "ms", "share"], floatfmt=".2f"))


def draw_losses(curves, title):
    """Draw {provider: [(seconds, loss)]} on one axis."""
    _, ax = figure()
    labels = {"triton": "ours", "torch": "PyTorch", "compile": "torch.compile"}
    for name, curve in curves.items():
        settings = {"label": labels[name], "color": PALETTE.get(name, OURS), "marker": "."}
        ax.plot(*zip(*curve, strict=True), **settings)
    gpu = torch.cuda.get_device_name()
    ax.set(title=f"{title}\non {gpu}", xlabel="seconds", ylabel="loss, nats a byte")
    ax.legend(frameon=False)
    plt.show()
