"""The benchmarks of two recordings, side by side, and whether one lost speed.

A benchmark is a CSV file with the columns ``provider, unit, median, p20, p80`` after its size
columns. For each size, the *ratio* is how many times as fast the new recording is: new / old for
rates (GB/s, TFLOPS), old / new for times (ms, us). A provider's ratio is the geometric mean over
the sizes that both recordings have.

A ratio below 1 may be noise. So each size that got slower is also rated *within the spread*: with
the better end of the new spread against the worse end of the old one, as 1 where they overlap. A
provider **lost** when the geometric mean of these generous ratios is below 0.95, that is, when it
is more than 5 % slower even so. Between two GPU models nothing is lost; they are only compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from gallery_recorder.store import recording
from gallery_recorder.store.benchmarks import BenchmarkError, Measurement, is_rate, read
from gallery_recorder.store.recording import Recording

#: A provider lost when its ratio within the spread is below this.
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


def compare(old: Path, new: Path) -> tuple[str, bool]:
    """A table of how *new* compares with *old*, and whether something lost on the same GPU.

    Both are recordings, or folders with recordings anywhere below.

    Raises:
        RecordingError: a recording is damaged.
        BenchmarkError: there is nothing to compare, or a benchmark cannot be read.
    """
    parts = ["Ratios say how many times as fast the new recording is; above 1 is better."]
    lost, without = False, []
    for script, before, after in _pairs(old, new):
        made_before, made_after = recording.load(before), recording.load(after)
        lines = [
            line
            for name in _benchmarks_of(made_after)
            if name in _benchmarks_of(made_before)
            for line in compare_benchmark(name, read(before / name), read(after / name))
        ]
        if not lines:
            without.append(script)
            continue
        same = made_before.provenance.device == made_after.provenance.device
        lost = lost or (same and any(line.lost for line in lines))
        parts.append(_show(script, made_before, made_after, lines, same))
    if without:
        parts.append(f"Without a benchmark in common: {', '.join(without)}.")
    return "\n\n".join(parts), lost


def compare_benchmark(
    name: str,
    old: dict[str, dict[str, Measurement]],
    new: dict[str, dict[str, Measurement]],
) -> list[Line]:
    """A line for each provider that both have; the arguments are what :func:`read` returns."""
    lines = []
    for provider, sizes in new.items():
        ratios = {}
        for size, after in sizes.items():
            before = old.get(provider, {}).get(size)
            if before is not None and before.unit == after.unit:
                ratios[size] = _ratios(before, after)
        if ratios:
            worst = min(ratios, key=lambda size: ratios[size][0])
            lines.append(
                Line(
                    benchmark=name.removesuffix(".csv"),
                    provider=provider,
                    ratio=_geometric_mean([plain for plain, _ in ratios.values()]),
                    generous=_geometric_mean([generous for _, generous in ratios.values()]),
                    worst=ratios[worst][0],
                    worst_size=worst,
                    sizes=len(ratios),
                )
            )
    return lines


def _ratios(old: Measurement, new: Measurement) -> tuple[float, float]:
    """How many times as fast: by the medians, and within the spread."""
    if is_rate(old.unit):
        plain, generous = new.median / old.median, new.p80 / old.p20
    else:
        plain, generous = old.median / new.median, old.p80 / new.p20
    return plain, plain if plain >= 1 else min(1.0, generous)


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _benchmarks_of(made: Recording) -> list[str]:
    """The names of the CSV files among a recording's data files."""
    return [name for block in made.blocks for name in block.data if name.endswith(".csv")]


def _pairs(old: Path, new: Path) -> list[tuple[str, Path, Path]]:
    """The recordings to compare: of one script, of one device and variant if possible."""
    before, after = _recordings(old), _recordings(new)
    for alike in (3, 2, 1):  # script, device, variant; then two variants, then two devices
        one, other = _by(before, alike), _by(after, alike)
        if common := [key for key in other if key in one]:
            return [(key[0], one[key], other[key]) for key in common]
    raise BenchmarkError(f"{old} and {new} hold no recording of the same script.")


_Key = tuple[str, ...]


def _by(recordings: dict[_Key, Path], parts: int) -> dict[_Key, Path]:
    """*recordings* by the first *parts* of their keys, where that is unambiguous."""
    keys = [key[:parts] for key in recordings]
    return {key[:parts]: path for key, path in recordings.items() if keys.count(key[:parts]) == 1}


def _recordings(root: Path) -> dict[_Key, Path]:
    """The folders with a recording at or below *root*, by script, device and variant."""
    if not root.exists():
        raise BenchmarkError(f"{root}: there is no such recording or folder.")
    found: dict[_Key, Path] = {}
    for path in sorted(root.glob(f"**/{recording.FILE_NAME}")):
        if not any(part.startswith(".") for part in path.relative_to(root).parts):
            made = recording.load(path.parent)
            device = recording.slug(made.provenance.device)
            found[f"{made.gallery}/{made.name}", device, made.variant or ""] = path.parent
    return found


def _show(script: str, old: Recording, new: Recording, lines: list[Line], same: bool) -> str:
    head = [f"{script}: {_where(old)} → {_where(new)}"]
    if not same:
        head.append("  The GPUs differ: this compares them, and nothing counts as lost.")
    width = max(len(f"{line.benchmark}  {line.provider}") for line in lines)
    table = [
        f"  {f'{line.benchmark}  {line.provider}':<{width}}  {line.ratio:6.3f} over "
        f"{line.sizes} sizes, worst {line.worst:.3f} ({line.worst_size})"
        + (f"  LOST: {line.generous:.3f} within the spread" if same and line.lost else "")
        for line in lines
    ]
    return "\n".join([*head, *table])


def _where(made: Recording) -> str:
    at = made.provenance
    return ", ".join(filter(None, (at.device, made.variant, made.run.recorded[:10])))
