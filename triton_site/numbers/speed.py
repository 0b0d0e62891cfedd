"""Compare the speed in two recordings, or in two folders of recordings; ``make compare``.

For each size of a benchmark, the *ratio* is the speed-up of the new recording: new / old for rates
(GB/s, TFLOPS), old / new for times (ms, us). A provider's ratio is the geometric mean over the
sizes that both recordings have.

A ratio below 1 may be noise. So each slower size is also rated *within the spread*: with the better
end of the new spread against the worse end of the old one, and as 1 where they overlap. A provider
**lost** if the geometric mean of these generous ratios is below 0.95. Between two GPU models
nothing is lost. ::

    python -m triton_site.numbers.speed OLD NEW
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from gallery_recorder.api import RecorderError, compare, recording, visible
from triton_site.numbers.benchmarks import Measurement, is_rate, read

#: A provider lost if its ratio within the spread is below this.
TOLERATED = 0.95


@dataclass(frozen=True)
class Line:
    """One provider of one benchmark in both recordings."""

    benchmark: str
    provider: str
    ratio: float
    generous: float
    worst: float
    worst_size: str
    sizes: int

    @property
    def lost(self) -> bool:
        """Whether it is slower than noise explains."""
        return self.generous < TOLERATED


def compare_speed(old: Path, new: Path) -> tuple[str, bool]:
    """The benchmarks of *new* against those of *old*, and whether a provider lost speed."""
    parts: list[str] = []
    lost = False
    for place in compare.pairs(old, new):
        source, folder = old / place, new / place
        was, now = recording.load(source), recording.load(folder)
        lines = [
            line
            for name in now.data
            if name in was.data and name.endswith(".csv")
            for line in compare_benchmark(name, read(source / name), read(folder / name))
        ]
        same_gpu = was.provenance.device == now.provenance.device
        lost = lost or (same_gpu and any(line.lost for line in lines))
        if lines and was != now:
            parts += [f"{now.gallery}/{now.name}: {compare.where(was)} → {compare.where(now)}"]
            parts += [*_ratios_shown(lines, same_gpu), ""]
    return visible("\n".join(parts)), lost


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison of OLD and NEW; 1 if a provider lost speed."""
    old, new = map(Path, arguments or sys.argv[1:])
    try:
        text, lost = compare_speed(old, new)
    except RecorderError as error:
        print(f"triton_site.numbers.speed: {error}", file=sys.stderr)
        return error.status
    print(text or "No benchmark is in both.")
    return int(lost)


def _ratios_shown(lines: list[Line], same_gpu: bool) -> Iterator[str]:
    if not same_gpu:
        yield "  The GPUs differ, so nothing counts as lost."
    for line in lines:
        lost = f"  LOST: {line.generous:.3f} within the spread" if same_gpu and line.lost else ""
        yield (
            f"  {line.benchmark}  {line.provider}  {line.ratio:.3f} × the speed over "
            f"{line.sizes} sizes, worst {line.worst:.3f} ({line.worst_size}){lost}"
        )


def compare_benchmark(
    name: str,
    old: dict[str, dict[str, Measurement]],
    new: dict[str, dict[str, Measurement]],
) -> list[Line]:
    """A line for each provider that both have; the arguments are what :func:`read` returns."""
    lines = []
    for provider, sizes in new.items():
        before = old.get(provider, {})
        both = [size for size, m in sizes.items() if size in before and before[size].unit == m.unit]
        if ratios := {size: _ratios(before[size], sizes[size]) for size in both}:
            plain, generous = zip(*ratios.values(), strict=True)
            means = geometric_mean(plain), geometric_mean(generous)
            worst = min((ratio, size) for size, (ratio, _) in ratios.items())
            lines.append(Line(name.removesuffix(".csv"), provider, *means, *worst, len(ratios)))
    return lines


def _ratios(old: Measurement, new: Measurement) -> tuple[float, float]:
    """How many times as fast: by the medians, and within the spread."""
    if is_rate(old.unit):
        plain, generous = new.median / old.median, new.p80 / old.p20
    else:
        plain, generous = old.median / new.median, old.p80 / new.p20
    return plain, plain if plain >= 1 else min(1.0, generous)


if __name__ == "__main__":
    sys.exit(main())
