"""How the scripts time kernels, keep what they measured, and draw it."""

import csv
import random
import statistics
import time

import matplotlib.pyplot as plt
import torch

UNITS = {  # what a unit says of a time in milliseconds, for bytes or operations
    "GB/s": lambda ms, amount: amount / ms / 1e6,
    "TFLOPS": lambda ms, amount: amount / ms / 1e9,
    "ms": lambda ms, amount: ms,
    "µs": lambda ms, amount: ms * 1e3,
}


def spread(values):
    """Return the median, the 20th and the 80th percentile of *values*."""
    values = list(values) * (2 if len(values) == 1 else 1)  # quantiles need two
    fifths = statistics.quantiles(values, n=5, method="inclusive")
    return statistics.median(values), fifths[0], fifths[3]


def gpu_times(calls, rounds=40):
    """Return {name: milliseconds of each round}: the GPU's time of each call, with a cold cache.

    The calls take turns in random order. Before each one the GPU reads other memory, so that the
    cache holds nothing of ours. Meanwhile Python queues the call, so its share does not count. If
    the GPU caught up with Python, the call is repeated with twice as much to read.

    Raises:
        RuntimeError: Python needs longer for a call than the GPU for 256 GiB of reads.
    """
    gpu = torch.get_device_module()
    other = torch.zeros(2**27, dtype=torch.int32, device=torch.accelerator.current_accelerator())
    times = {name: [] for name in calls}
    reads = dict.fromkeys(calls, 2)
    for call in calls.values():
        call()  # compiles the kernel
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            late = True
            while late:
                start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
                for _ in range(reads[name]):
                    other.amax()
                start.record()
                calls[name]()
                end.record()
                late = start.query()  # the GPU has finished reading
                if late and reads[name] == 512:
                    raise RuntimeError(
                        f"{name}: the GPU waits for Python, so its own time is unknown; "
                        "time graph_of(call) instead"
                    )
                reads[name] *= 2 if late else 1
            times[name].append((start, end))
    gpu.synchronize()
    return {name: [one.elapsed_time(two) for one, two in pairs] for name, pairs in times.items()}


def graph_of(call):
    """Return a function that repeats the launches of *call* as one CUDA graph."""
    with torch.cuda.stream(torch.cuda.Stream()):
        call()  # compiles the kernels and fills the caches of libraries
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def cpu_share(call, calls=100, rounds=21):
    """Return the milliseconds in which Python makes one call, once for each round."""
    for _ in range(10):
        call()  # compiles the kernel
    times = []
    for _ in range(rounds):
        torch.accelerator.synchronize()  # the queue is empty, so no call waits for room in it
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e3)
    return times


def rates(size, calls, unit, amount=1, rounds=40):
    """Return rows (size …, provider, unit, median, p20, p80) of the calls {provider: call}.

    *size* is a tuple with the values of the size columns, *unit* one of UNITS, and *amount* the
    bytes or operations of a call. The times are the GPU's.
    """
    rate = UNITS[unit]
    return [
        (*size, name, unit, *spread([rate(ms, amount) for ms in values]))
        for name, values in gpu_times(calls, rounds).items()
    ]


def write_rows(path, columns, rows):
    """Write *rows*, (size …, provider, unit, median, p20, p80), to the CSV file *path*."""
    header = [*columns, "provider", "unit", "median", "p20", "p80"]
    write_table(path, header, rows)


def write_calls(calls):
    """Write the CPU's share of each call of {function: {provider: call}} to ``calls.csv``."""
    rows = [
        (function, provider, "µs", *spread([1e3 * ms for ms in cpu_share(call)]))
        for function, providers in calls.items()
        for provider, call in providers.items()
    ]
    write_rows("calls.csv", ["function"], rows)
    return {(function, provider): median for function, provider, _, median, *_ in rows}


def write_table(path, header, rows):
    """Write a CSV file; numbers have six significant digits."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([f"{v:.6g}" if isinstance(v, float) else v for v in row] for row in rows)


# One color for each provider, the same on all pages: ours, PyTorch, the vendor's libraries, others.
OURS, PYTORCH, VENDOR, CEILING = "#1b6ca8", "#d1495b", "#2e8b57", "#444444"
PALETTE = {
    **dict.fromkeys(["torch", "eager", "grouped_mm", "int4pack", "sort"], PYTORCH),
    **dict.fromkeys(["cublas", "cudnn"], VENDOR),
    **dict.fromkeys(["copy", "read", "bound", "dense"], CEILING),
    **dict.fromkeys(["naive", "flash", "loop", "gather"], "#d9820f"),
    **dict.fromkeys(["mask", "bf16", "softmax"], "#00848f"),
    "compile": "#8d6a9f",
}
STEPS = [OURS, "#7fb2d9", "#0d3b66", "#5b8e7d", "#a3b1bf"]  # versions of our own kernel


def figure(height=3.6, width=5.6):
    """Return a new figure and its axes, with text that a phone can show."""
    plt.rcParams.update({"font.size": 12.5, "axes.titlesize": 13, "svg.fonttype": "path"})
    return plt.subplots(figsize=(width, height), layout="constrained")


def draw_rates(rows, labels, title, xlabel, column=0, share_of=None, **settings):
    """Draw the rates of rows (size …, provider, unit, median, p20, p80) over one size column.

    *labels* is {provider: label} of what is drawn, *column* the number of the size column, and
    *share_of* a provider whose rate counts as 1. *settings* are of the axes, such as ``xscale``.
    """
    fig, ax = figure(height=3.9 + 0.14 * len(labels))
    points = {(row[-5], row[column]): row[-3:] for row in rows}  # {(provider, size): rates}
    sizes = list(dict.fromkeys(row[column] for row in rows))
    steps = iter(STEPS)
    for provider, label in labels.items():
        xs = [size for size in sizes if (provider, size) in points]
        whole = [points[share_of, x][0] if share_of else 1 for x in xs]
        medians, low, high = (
            [points[provider, x][i] / one for x, one in zip(xs, whole, strict=True)]
            for i in range(3)
        )
        first = provider.partition(",")[0].partition(" +")[0]
        color = next(steps) if first == "triton" else PALETTE.get(first, "#a23b72")
        line = "--" if color == CEILING else "-"
        ax.plot(xs, medians, label=label, color=color, linestyle=line, marker=".", gid=provider)
        ax.fill_between(xs, low, high, color=color, alpha=0.2, linewidth=0)
    unit = f"speed ({labels.get(share_of, share_of)} = 1)" if share_of else rows[0][-4]
    gpu = torch.get_device_module().get_device_name()
    lower = rows[0][-4] in ("ms", "µs") and not share_of
    better = "lower is better" if lower else "higher is better"
    ax.set(title=f"{title}\non {gpu}", xlabel=xlabel, ylabel=f"{unit},\n{better}", **settings)
    ax.grid(alpha=0.3)
    fig.legend(loc="outside lower center", ncols=2, frameon=False)
    plt.show()
