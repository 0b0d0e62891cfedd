"""What two recordings of one script differ in, output by output, whatever they hold.

Text is a unified difference. Tables, JSON and what probes found are values that have a name each,
such as ``tiles beat rows / value``: those that differ stand side by side, the most changed first.
Of figures the share of pixels that differ is told; of SVG, which has none, the share of lines of
its source, and the words that came and went.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gallery_recorder.store import benchmarks, reading
from gallery_recorder.store.format import MAX_READ, Block, Recording
from gallery_recorder.store.reading import ReadingError

#: What is compared at all: lines of a text, and bytes of JSON that was packed.
_MAX_LINES = 4_000
_MAX_BYTES = 32_000_000
_MAX_DEPTH = 20
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORDS = re.compile(r"<!--(.*?)-->|<(?:text|tspan|title)\b[^>]*>([^<]*)<", re.DOTALL)


@dataclass(frozen=True)
class Difference:
    """One output that differs: what it is, in which lines, and both figures where it is one."""

    what: str
    lines: list[str]
    figures: tuple[tuple[str, bytes], ...] = ()


def differences(
    old: Path, was: Recording, new: Path, now: Recording
) -> Iterator[Difference | None]:
    """What the recording *now*, in the folder *new*, has otherwise than *was*, in *old*."""
    matcher = difflib.SequenceMatcher(
        None, [block.key for block in was.blocks], [block.key for block in now.blocks]
    )
    for kind, start, end, first, last in matcher.get_opcodes():
        before, after = was.blocks[start:end], now.blocks[first:last]
        if kind != "equal":
            lines = [f"-the block of line {block.line}" for block in before]
            lines += [f"+the block of line {block.line}" for block in after]
            yield Difference("code", lines)
        if len(before) == len(after):
            for number, (one, other) in enumerate(zip(before, after, strict=True), first + 1):
                where = f"block {number}, line {other.line}: "
                yield from _block(where, one, other)
                yield from _figures(where, old, one.images, new, other.images)
    for name in sorted({*was.data, *now.data}):
        yield _file(
            name, old / name if name in was.data else None, new / name if name in now.data else None
        )
    yield from _probes("", was, now)
    yield _values("provenance", _made(was), _made(now))


def _made(made: Recording) -> Any:
    """Where it was made, without what is another one each time."""
    said = msgspec.to_builtins(made.provenance)
    return {name: said[name] for name in said if name not in ("commit", "before", "after")}


def _probes(where: str, was: Recording | Block, now: Recording | Block) -> Iterator[Any]:
    for name in sorted({*was.probes, *now.probes}):
        yield _values(where + name, was.probes.get(name), now.probes.get(name))


def _block(where: str, one: Block, other: Block) -> Iterator[Difference | None]:
    for field in ("stdout", "stderr", "exception"):
        yield _text(where + field, getattr(one, field) or "", getattr(other, field) or "")
    yield _text(where + "value", *(b.value.text if b.value else "" for b in (one, other)))
    yield from _probes(where, one, other)


# --- text -----------------------------------------------------------------------------------------


def _text(what: str, old: str, new: str) -> Difference | None:
    """A unified difference, and how far the numbers differ where nothing else does."""
    if old == new:
        return None
    lines = _unified(old, new)
    if _NUMBER.sub("0", old).split() == _NUMBER.sub("0", new).split():
        numbers = list(zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True))
        other = [pair for pair in numbers if pair[0] != pair[1]]
        if other:
            most = max(other, key=lambda pair: _change(*pair))
            lines.insert(
                0, f"{len(other)} of {len(numbers)} numbers differ, the most {_step(*most)}"
            )
    return Difference(what, lines or ["in its spaces, or far down"])


def _unified(old: str, new: str) -> list[str]:
    before, after = (content.splitlines()[:_MAX_LINES] for content in (old, new))
    return list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]


# --- values that have names: tables, JSON, probes ------------------------------------------------


def _values(what: str, old: Any, new: Any) -> Difference | None:
    """The values of *old* and *new* that differ, the most changed first."""
    before, after = dict(_named(old)), dict(_named(new))
    other = [name for name in after if name in before and before[name] != after[name]]
    listings = [name for name in other if "\n" in f"{before[name]}{after[name]}"]
    other = sorted(
        (name for name in other if name not in listings),
        key=lambda name: -_change(before[name], after[name]),
    )
    lines = [f" {name}: {_step(before[name], after[name])}" for name in other]
    lines += [f"-{name}: {_short(before[name])}" for name in before if name not in after]
    lines += [f"+{name}: {_short(after[name])}" for name in after if name not in before]
    count = len(lines) + len(listings)
    for name in listings:
        lines += [f" {name}:", *_unified(str(before[name]), str(after[name]))]
    if not lines:
        return None
    return Difference(what, [f"{count} of {len(before | after)} values differ", *lines])


def _named(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Each leaf of *value* with its path; an entry of a list is called by its first text."""
    if isinstance(value, (list, tuple)) and depth < _MAX_DEPTH:
        value = dict(_called(value))
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        for key, inner in value.items():
            yield from _named(inner, f"{name} / {key}" if name else str(key), depth + 1)
    elif value is not None:
        yield name, value


def _called(entries: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    seen: Counter[str] = Counter()
    for number, entry in enumerate(entries, 1):
        texts = entry.values() if isinstance(entry, dict) else ()
        called = next((text[:200] for text in texts if isinstance(text, str)), str(number))
        seen[called] += 1
        yield f"{called} ({seen[called]})" if seen[called] > 1 else called, entry


def _file(name: str, old: Path | None, new: Path | None) -> Difference | None:
    """What two files differ in: tables and JSON by value, other text by line."""
    if old is None or new is None:
        return Difference(name, ["-the file" if new is None else "+the file"])
    contents = [reading.read_file(path, MAX_READ) for path in (old, new)]
    if contents[0] == contents[1]:
        return None
    try:
        if name.endswith((".csv", ".json", ".json.gz")):
            parsed = [_parsed(*file) for file in zip((old, new), contents, strict=True)]
            if found := _values(name, *parsed):
                return found
    except (ValueError, OSError, EOFError, zlib.error, ReadingError, benchmarks.BenchmarkError):
        pass  # its name promises too much
    try:
        return _text(name, *(content.decode() for content in contents))
    except ValueError:
        return Difference(name, [f"{len(contents[0]):,} → {len(contents[1]):,} bytes, no text"])


def _parsed(path: Path, content: bytes) -> Any:
    if path.suffix == ".csv":
        measured = benchmarks.read(path)
        if measured:
            return {
                f"{provider}, {size}, {found.unit}": found.median
                for provider, sizes in measured.items()
                for size, found in sizes.items()
            }
        rows = io.StringIO(content.decode("utf-8-sig"), newline="")
        try:
            return {f"row {n}": row for n, row in enumerate(csv.DictReader(rows), 1)}
        except csv.Error as error:
            raise ValueError(str(error)) from error
    if path.suffix == ".gz":
        with gzip.open(io.BytesIO(content)) as packed:
            content = packed.read(_MAX_BYTES)  # what is larger is no whole JSON then
    return reading.decode(content, msgspec.json.Decoder())


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _change(old: Any, new: Any) -> float:
    """How far *new* is from *old*, as the logarithm of their ratio; endless where that is none."""
    before, after = abs(_number(old)), abs(_number(new))
    if not (0 < before < math.inf and 0 < after < math.inf):
        return math.inf
    return abs(math.log(after) - math.log(before))


def _step(old: Any, new: Any) -> str:
    said = f"{_short(old)} → {_short(new)}"
    if math.isinf(_change(old, new)):
        return said
    return f"{said} (× {_number(new) / _number(old):.4g})"


def _short(value: Any) -> str:
    said = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    return said if len(said) <= 120 else f"{said[:100]} … {len(said):,} characters"


# --- figures --------------------------------------------------------------------------------------


def _figures(
    where: str, old: Path, before: Sequence[str], new: Path, after: Sequence[str]
) -> Iterator[Difference]:
    for number in range(max(len(before), len(after))):
        one, other = (
            (names[number], reading.read_file(folder / names[number], MAX_READ))
            if number < len(names)
            else ("", b"")
            for folder, names in ((old, before), (new, after))
        )
        if one[1] != other[1]:
            yield Difference(f"{where}figure {number + 1}", _drawn(one, other), (one, other))


def _drawn(old: tuple[str, bytes], new: tuple[str, bytes]) -> list[str]:
    if not old[0] or not new[0]:
        return ["-the figure" if old[0] else "+the figure"]
    if all(name.endswith(".svg") for name, _ in (old, new)):
        before, after = (content.decode("utf-8", "replace") for _, content in (old, new))
        lines = [Counter(source.splitlines()) for source in (before, after)]
        share = 1 - (lines[0] & lines[1]).total() / max(lines[0].total(), lines[1].total())
        words = [Counter(map(str.strip, map("".join, _WORDS.findall(s)))) for s in (before, after)]
        return [
            f"SVG: {share:.1%} of the lines of its source differ",
            *(f"-{word}" for word in words[0] - words[1]),
            *(f"+{word}" for word in words[1] - words[0]),
        ]
    try:
        return [_pixels(old[1], new[1])]
    except ImportError:
        return ["pixels are not compared: Pillow is not installed"]
    except Exception as error:  # whatever a library makes of a stranger's image
        return [f"pixels cannot be compared ({type(error).__name__})"]


def _pixels(old: bytes, new: bytes) -> str:
    from PIL import Image, ImageChops

    kinds = ("PNG", "JPEG", "GIF", "WEBP")
    one, other = (Image.open(io.BytesIO(c), formats=kinds).convert("RGBA") for c in (old, new))
    if one.size != other.size:
        return "{}×{} → {}×{} pixels".format(*one.size, *other.size)
    red, *bands = ImageChops.difference(one, other).split()
    for band in bands:
        red = ImageChops.lighter(red, band)
    same = red.histogram()[0] / (red.width * red.height)
    return f"{1 - same:.2%} of the pixels differ"
