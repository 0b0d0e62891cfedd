"""The state of each example's recording on each device, such as current or stale."""

import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal

from gallery_recorder.console import visible
from gallery_recorder.project import commands, needs
from gallery_recorder.project.galleries import Project
from gallery_recorder.project.script import ScriptError
from gallery_recorder.store import bounds, moving, recording
from gallery_recorder.store.format import Recording
from gallery_recorder.store.inputs import Here
from gallery_recorder.store.recording import Found


@dataclass(frozen=True)
class Row:
    """An example on one device and variant.

    Attributes:
        state: *current*, *stale*, *failed*, *passed* (although conf.py expects it to fail),
            *damaged* or *missing*; *unreadable* for an invalid script, *orphan* for a recording
            without an example.
        text: what is wrong.
        why: why it is not current, in one line.
        different: what is different here but does not make it stale, in one line.
    """

    name: str
    place: str
    state: str
    made: Recording | None = None
    text: str = ""
    needs: str = ""
    folder: Path | None = None
    why: str = ""
    different: str = ""


def rows(project: Project, recordings: Path | None = None) -> list[Row]:
    """One row per example, device and variant; the preferred device always has one; then orphans.

    An orphan is the recording of a file that no gallery has, not of one that is not executed.
    """
    roots = [recordings] if recordings else project.settings.roots
    preferred, checks = project.settings.reference, bounds.checks_of(project.settings)
    here = Here.of(project)
    result = []
    for example in project.executed:
        name = project.label(example)
        try:
            script = example.load()
            needed = needs.in_words(script)
        except ScriptError as error:
            text = str(error)
            result.append(Row(name, "-", "unreadable", text=text, why=text.splitlines()[0]))
            continue
        if not script.code:
            continue
        found = recording.of_script(script, example.expected_to_fail, roots, checks, here)
        own = [_row(name, one, needed) for one in found]
        if not any(_is_at(row, preferred) for row in own):
            own.insert(0, _missing(name, preferred, needed))
        result += own
    labels = {example.label for example in project.examples}
    proposed = moving.proposals(project, roots, here)
    for root in roots:
        for folder in recording.all_recordings(root):
            device, *rest = folder.relative_to(root).parts
            if recording.is_orphan((device, *rest), labels):
                text = f"{folder}: no example has this name; `prune` deletes it"
                why = "no example has this name"
                if folder in proposed:
                    command = f"{commands.command()} move {shlex.join(proposed[folder])}"
                    why = f"{why}; {proposed[folder][1]} has the same code: {command}"
                    text = f"{folder}: {why}"
                result.append(
                    Row("/".join(rest), device, "orphan", text=text, folder=folder, why=why)
                )
    return result


def _row(name: str, found: Found, needed: str) -> Row:
    """The row of a recording."""
    text = _text(found)
    why = found.why
    if found.state == "failed":
        why = "; ".join(filter(None, [why, _failure(found, text)]))
    elif found.state == "passed":
        why = PASSED
    elif found.error:
        why = text.splitlines()[0]
    return Row(
        name=name,
        place=found.at.place,
        state=found.state,
        made=found.made,
        text=text,
        needs=needed,
        folder=found.at.folder,
        why=why,
        different="; ".join(found.changes.different),
    )


def _missing(name: str, preferred: str | None, needed: str) -> Row:
    """The row of an example without a recording on the preferred device."""
    why = f"never recorded on {preferred}" if preferred else "never recorded"
    if needed:
        why = f"{why}; it needs {needed}"
    return Row(name, preferred or "-", "missing", needs=needed, why=why)


#: Said of an example that passed although conf.py expects it to fail.
PASSED = "it passed, although expected_failing_examples names it: remove it there"


def _failure(found: Found, text: str) -> str:
    """The failure of the current code in one line."""
    lines = text.strip().splitlines() or ["it failed"]
    if found.later:
        return f"{lines[0]} (executed {found.later.recorded})"
    return f"it failed: {lines[-1]}"


def _text(found: Found) -> str:
    """What is wrong with a recording: its error, or the example's failure."""
    if found.state == "passed":
        return PASSED
    if found.later:
        return f"{found.later.text}\n(executed {found.later.recorded})"
    if found.state == "failed" and found.made:
        failed = next(block for block in found.made.blocks if not block.passed)
        return failed.failure or failed.exception or ""
    return str(found.error or "")


def size_of(folder: Path) -> int:
    """The bytes of all files in *folder*."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def lacking(rows: list[Row], preferred: str | None) -> str | None:
    """The message about damaged recordings, and examples without a current one at *preferred*.

    Without *preferred*, a recording from any device counts, and examples that need a particular GPU
    may have none.
    """
    good = {row.name for row in rows if row.state == "current" and _is_at(row, preferred)}
    found: dict[str, Row] = {}
    for row in rows:
        if row.state in ("damaged", "unreadable"):
            found[row.name] = row
        elif row.name in good or row.state == "orphan" or (row.needs and not preferred):
            continue
        elif _is_at(row, preferred):
            found.setdefault(row.name, row)
    where = f" on {preferred}" if preferred else ""
    if not found:
        return None
    listed = "".join(_line(row) for row in found.values())
    names = [name for name, row in found.items() if row.state != "passed"]
    command = commands.record(names) if names else "Correct conf.py."
    return f"To record{where}:\n{listed}{command}"


def _line(row: Row) -> str:
    why = f": {row.why}" if row.why else ""
    return f"  {row.name}: {row.state} ({row.place}){why}\n"


#: All states, in the order of the summary.
STATES = ("current", "stale", "failed", "passed", "damaged", "missing", "unreadable", "orphan")


def show(rows: list[Row], only: str | None = None, sizes: bool = False) -> None:
    """Print a table of *rows*, or of those in the state *only*; then faults and a summary."""
    counts = Counter(row.state for row in rows)
    rows = [row for row in rows if only in (None, row.state)]
    table = [("example", "device", "state", "recorded", "seconds", *["size"] * sizes)]
    total = 0
    for row in rows:
        run = row.made.run if row.made else None
        date = run.recorded.removesuffix("Z").replace("T", " ") if run else "-"
        size = size_of(row.folder) if sizes and row.folder else 0
        total += size
        seconds = f"{run.seconds:.1f}" if run else "-"
        table.append((row.name, row.place, row.state, date, seconds, *[decimal(size)] * sizes))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(visible("  ".join(cells).rstrip()))
    for row in rows:
        text = row.text
        if row.needs and row.state in ("missing", "stale"):
            text = f"needs {row.needs}"
        if text:
            print(visible(f"\n{row.name} ({row.state}): {text.rstrip()}"))
    print("\n" + (", ".join(f"{counts[s]} {s}" for s in STATES if counts[s]) or "no examples"))
    if sizes:
        print(f"{decimal(total)} in all")


def show_why(rows: list[Row], only: str | None = None) -> None:
    """Print a line for each of *rows* that is not current, or whose inputs are different here."""
    for row in rows:
        if only and row.state != only:
            continue
        parts = [row.why] if row.why else []
        if row.different:
            parts.append(f"different here: {row.different}")
        if parts:
            print(visible(f"{row.name} ({row.place}) {row.state}: {'; '.join(parts)}"))
    if all(row.state == "current" for row in rows):
        print(f"{len(rows)} current")


def _is_at(row: Row, preferred: str | None) -> bool:
    return not preferred or row.place == preferred or row.place.startswith(f"{preferred}/")
