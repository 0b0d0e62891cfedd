"""Compare two recordings, or two folders of recordings: speed and every output.

For each size of a benchmark, the *ratio* is how many times as fast the new recording is: new / old
for rates (GB/s, TFLOPS), old / new for times (ms, us). A provider's ratio is the geometric mean
over the sizes that both recordings have.

A ratio below 1 may be noise. So each slower size is also rated *within the spread*: with the better
end of the new spread against the worse end of the old one, and as 1 where they overlap. A provider
**lost** if the geometric mean of these generous ratios is below 0.95. Between two GPU models
nothing is lost.

Outputs are compared by line: text and CSV as they are, JSON and results of probes as one value a
line, with its path; images and other files by their SHA-256.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import msgspec

from gallery_recorder.console import visible
from gallery_recorder.store import reading, recording
from gallery_recorder.store.benchmarks import BenchmarkError, Measurement, is_rate, read
from gallery_recorder.store.format import Recording
from gallery_recorder.store.reading import ReadingError

#: A provider lost if its ratio within the spread is below this.
TOLERATED = 0.95

#: Lines of an output that are compared, which takes quadratic time, and that are shown.
_COMPARED, _SHOWN, _WIDEST = 4_000, 20, 240


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
    """What differs in *new*, for a terminal, and whether a provider lost speed on the same GPU.

    *old* and *new* are two recordings, or folders with recordings at the same paths below them.
    """
    before = {folder.relative_to(old) for folder in recording.all_recordings(old)}
    after = {folder.relative_to(new) for folder in recording.all_recordings(new)}
    if not before & after:
        raise BenchmarkError(f"{old} and {new} have no recordings at the same paths below them")
    parts: list[str] = []
    unchanged, lost = 0, False
    for place in sorted(before & after):
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
        if changes := [*_changes(source, was, folder, now)]:
            parts += [f"{now.gallery}/{now.name}: {_where(was)} → {_where(now)}"]
            parts += [*_ratios_shown(lines, same_gpu), *changes, ""]
        else:
            unchanged += 1
    parts += [f"Unchanged recordings: {unchanged}."]
    parts += [f"Only in {old}: {place}." for place in sorted(before - after)]
    parts += [f"Only in {new}: {place}." for place in sorted(after - before)]
    return visible("\n".join(parts)), lost


def _where(made: Recording) -> str:
    at = made.provenance
    return ", ".join(filter(None, (at.device, made.variant, made.run.recorded[:10])))


# --- speed ----------------------------------------------------------------------------------------


def _ratios_shown(lines: list[Line], same_gpu: bool) -> Iterator[str]:
    if not same_gpu:
        yield "  The GPUs differ, so nothing counts as lost."
    for line in lines:
        lost = f"  LOST: {line.generous:.3f} within the spread" if same_gpu and line.lost else ""
        yield (
            f"  {line.benchmark}  {line.provider}  {line.ratio:.3f} times as fast over "
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


# --- outputs --------------------------------------------------------------------------------------


def _changes(old: Path, was: Recording, new: Path, now: Recording) -> Iterator[str]:
    """The outputs that differ: the title of each, then its lines."""
    lines = {block.key: block.line for block in (*was.blocks, *now.blocks)}
    before, after = _outputs(old, was), _outputs(new, now)
    for name in dict.fromkeys([*after, *before]):
        one, other = before.get(name, []), after.get(name, [])
        if one == other:
            continue
        yield f"  block of line {lines[name]}" if name in lines else f"  {name}"
        diff = unified_diff(one[:_COMPARED], other[:_COMPARED], n=0, lineterm="")
        changes = [line for line in [*diff][2:] if not line.startswith("@@")]
        yield from (f"    {change[:_WIDEST]}" for change in changes[:_SHOWN])
        if len(changes) > _SHOWN or max(len(one), len(other)) > _COMPARED:
            yield f"    … {len(one):,} → {len(other):,} lines in all"


def _outputs(folder: Path, made: Recording) -> dict[str, list[str]]:
    """The lines of all outputs: of blocks by key, others by name."""
    where = msgspec.to_builtins(made.provenance)
    for name in ("commit", "before", "after"):  # other ones in each run
        where.pop(name)
    found = {"provenance": where, **made.probes}
    found |= {name: _content(folder / name, made.files[name]) for name in made.data}
    for block in made.blocks:
        found[block.key] = {
            "code": block.code or f"SHA-256 {block.key}",
            "stdout": block.stdout,
            "stderr": block.stderr,
            "exception": block.exception,
            "value": [*block.value.values()],
            "images": [f"SHA-256 {made.files[name]}" for name in block.images],
            **block.probes,
        }
    return {name: [*_lines(value)] for name, value in found.items()}


def _content(path: Path, sha256: str) -> Any:
    """The values in the JSON file *path*, its text, or its hash."""
    try:
        if path.name.endswith((".json", ".json.gz")):
            return reading.load(path, Any)
        return reading.read_file(path).decode()
    except (ReadingError, UnicodeDecodeError):
        return f"SHA-256 {sha256}"


def _lines(value: Any, path: str = "") -> Iterator[str]:
    """The lines of each text within *value*, after its path."""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value, 1))
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _lines(inner, f"{path}{key}: ")
    elif value is not None:
        yield from (f"{path}{line}" for line in str(value).splitlines())
