"""Draw measured rates: medians as lines, the spread as bands."""

import torch
from shared.setup import DEVICE


def plot_rates(ax, lines, title, xlabel, unit):
    """Draw rate over size into *ax*.

    Args:
        ax: matplotlib axes.
        lines: {label: (style, [(size, median, p20, p80), …])}; style as for ``ax.plot``.
        title: What is shown; the unit and the GPU are added.
        xlabel: What the sizes are.
        unit: The unit of the rates.
    """
    for label, (style, points) in lines.items():
        sizes, medians, low, high = zip(*points, strict=True)
        every = max(1, len(sizes) // 12)
        ax.plot(sizes, medians, label=label, markersize=4, markevery=every, **style)
        ax.fill_between(sizes, low, high, color=style["color"], alpha=0.2, linewidth=0)
    gpu = torch.get_device_module(DEVICE).get_device_name()
    ax.set(title=f"{title}, {unit}\non {gpu}", xlabel=xlabel)
    ax.set(ylabel=f"{unit}, higher is better", ylim=(0, None))
    ax.grid(alpha=0.3)


# One style for each kind of provider, the same on all pages.
OURS = {"color": "#1b6ca8", "linestyle": "-", "marker": "o"}
STEP_1 = {"color": "#1b6ca8", "linestyle": ":", "marker": "x"}
STEP_2 = {"color": "#1b6ca8", "linestyle": (0, (1, 1)), "marker": "v"}
TORCH = {"color": "#d1495b", "linestyle": "-.", "marker": "s"}
COMPILE = {"color": "#8d6a9f", "linestyle": "-", "marker": "^"}
OTHER = {"color": "#2e8b57", "linestyle": "-", "marker": "D"}
CEILING = {"color": "#444444", "linestyle": "--"}
