"""Compare the outputs of two recordings, or of two folders of recordings.

Text and CSV are compared by line; JSON and results of probes by value, each on a line with its
path; images and other files by their SHA-256.
"""

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import msgspec

from gallery_recorder.console import visible
from gallery_recorder.errors import RecorderError
from gallery_recorder.store import reading, recording
from gallery_recorder.store.format import Recording
from gallery_recorder.store.reading import ReadingError

#: Lines of an output that are compared (in quadratic time), lines and columns that are shown.
_COMPARED, _SHOWN, _WIDEST = 4_000, 20, 240


def pairs(old: Path, new: Path) -> list[Path]:
    """The paths below both *old* and *new* with a recording; each is a recording or a folder."""
    for root in (old, new):
        if not root.exists():
            raise RecorderError(f"{root} does not exist; name a recording or a folder of them")
    before, after = _below(old), _below(new)
    if not before & after:
        raise RecorderError(f"{old} and {new} have no recordings at the same paths")
    return sorted(before & after)


def _below(root: Path) -> set[Path]:
    return {folder.relative_to(root) for folder in recording.all_recordings(root)}


def compare(old: Path, new: Path) -> str:
    """The differences between *old* and *new*, as in :func:`pairs`, for a terminal."""
    parts: list[str] = []
    unchanged = 0
    for place in pairs(old, new):
        was, now = recording.load(old / place), recording.load(new / place)
        if changes := changed_outputs(old / place, was, new / place, now):
            parts += [f"{now.gallery}/{now.name}: {where(was)} → {where(now)}", *changes, ""]
        else:
            unchanged += 1
    parts += [f"Unchanged recordings: {unchanged}."]
    parts += [f"Only in {old}: {place}." for place in sorted(_below(old) - _below(new))]
    parts += [f"Only in {new}: {place}." for place in sorted(_below(new) - _below(old))]
    return visible("\n".join(parts))


def where(made: Recording) -> str:
    """Device, variant and date of a recording."""
    at = made.provenance
    return ", ".join(filter(None, (at.device, made.variant, made.run.recorded[:10])))


def changed_outputs(old: Path, was: Recording, new: Path, now: Recording) -> list[str]:
    """The titles and lines of outputs that differ: *was* in folder *old*, *now* in *new*."""
    return [*_changes(old, was, new, now)]


def _changes(old: Path, was: Recording, new: Path, now: Recording) -> Iterator[str]:
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
    """The lines of all outputs: those of blocks by key, others by name."""
    where = msgspec.to_builtins(made.provenance)
    for name in ("commit", "before", "after"):  # they differ in each run
        where.pop(name)
    where["imported"] = made.inputs.versions if made.inputs else {}
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
