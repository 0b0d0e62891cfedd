"""Two quantities of a call: its time on the GPU, and the CPU's share of it. Never in one column."""

import random
import statistics
import time
from collections.abc import Callable, Mapping

import torch

MOST_READS = 512


def gpu_microseconds(calls: Mapping[str, Callable], rounds: int = 20) -> dict[str, float]:
    """Return the median time on the GPU of each call in µs, with a cold cache.

    The calls take turns in random order. Before each one the GPU reads other memory, so that the
    cache holds nothing of the call. Meanwhile Python queues the call, so its share does not count.
    If the GPU caught up with Python, the call is repeated with twice as much to read.

    Raises:
        RuntimeError: Python needs longer for a call than the GPU for 256 GiB of reads.
    """
    other = torch.zeros(2**27, dtype=torch.int32, device="cuda")
    times: dict[str, list] = {name: [] for name in calls}
    reads = dict.fromkeys(calls, 2)
    for call in calls.values():
        for _ in range(3):
            call()  # compiles the kernel, and keeps what is kept
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            times[name].append(_events(name, calls[name], other, reads))
    torch.cuda.synchronize()
    return {
        name: statistics.median([1e3 * start.elapsed_time(end) for start, end in pairs])
        for name, pairs in times.items()
    }


def _events(name: str, call: Callable, other: torch.Tensor, reads: dict[str, int]) -> tuple:
    while True:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(reads[name]):
            other.amax()
        start.record()
        call()
        end.record()
        if not start.query():  # the GPU is still reading
            return start, end
        if reads[name] >= MOST_READS:
            raise RuntimeError(f"{name}: the GPU waits for Python, so its own time is unknown")
        reads[name] *= 2


def cpu_microseconds(call: Callable, calls: int = 100, rounds: int = 21) -> float:
    """Return the median time in µs for which one call keeps the CPU busy."""
    for _ in range(10):
        call()  # compiles the kernel, and keeps what is kept
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()  # the queue is empty, so no call waits for room in it
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def print_table(title: str, columns: list[str], rows: list[list]) -> None:
    """Print rows of texts and numbers."""
    print(f"\n{title}")
    cells = [columns, *[[f"{x:.3g}" if isinstance(x, float) else str(x) for x in r] for r in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
