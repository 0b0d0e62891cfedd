"""Which recordings are current, stale, damaged or missing, on which device."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal

from gallery_recorder.console import visible
from gallery_recorder.project import commands, needs, settings
from gallery_recorder.project.galleries import Project
from gallery_recorder.project.script import ScriptError
from gallery_recorder.store import recording
from gallery_recorder.store.format import Recording
from gallery_recorder.store.recording import Found


@dataclass(frozen=True)
class Row:
    """A script on a device and variant.

    ``state`` is *current*, *stale*, *failed*, *damaged* or *missing*; *unreadable* for an invalid
    script, *orphan* for a recording without a script. ``text`` says what is wrong.
    """

    name: str
    place: str
    state: str
    made: Recording | None = None
    text: str = ""
    needs: str = ""
    folder: Path | None = None


def rows(project: Project, recordings: Path | None = None) -> list[Row]:
    """One row for each script, device and variant, the preferred device included; then orphans."""
    roots = [recordings] if recordings else project.settings.roots
    preferred, checks = project.settings.reference, settings.checks(project.settings)
    result = []
    for example in project.executed:
        name = project.label(example)
        try:
            script = example.load()
            needed = needs.told(script)
        except ScriptError as error:
            result.append(Row(name, "-", "unreadable", text=str(error)))
            continue
        if not script.code:
            continue
        own = [
            Row(
                name, found.at.place, found.state, found.made, _text(found), needed, found.at.folder
            )
            for found in recording.of_script(script, example.may_fail, roots, checks)
        ]
        if not any(_is_at(row, preferred) for row in own):
            own.insert(0, Row(name, preferred or "-", "missing", needs=needed))
        result += own
    labels = {example.label for example in project.executed}
    for root in roots:
        for folder in recording.all_recordings(root):
            device, *rest = folder.relative_to(root).parts
            if recording.is_orphan((device, *rest), labels):
                text = f"{folder}: no script has this name; `prune` removes it"
                result.append(Row("/".join(rest), device, "orphan", text=text, folder=folder))
    return result


def _text(found: Found) -> str:
    """What there is to say about a recording: its error, or a failure."""
    if found.later:
        return f"{found.later.recorded}: {found.later.text}"
    if found.state == "failed" and found.made:
        failed = next(block for block in found.made.blocks if not block.passed)
        return failed.failure or failed.exception or ""
    return str(found.error or "")


def size_of(folder: Path) -> int:
    """The bytes of all files in *folder*."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def lacking(rows: list[Row], preferred: str | None) -> str | None:
    """The message about scripts without a current recording at *preferred* or with damaged ones.

    Without *preferred*, any device will do, and scripts that need a particular GPU may have none.
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
    listed = "".join(f"  {row.name}: {row.state} ({row.place})\n" for row in found.values())
    return f"To record{where}:\n{listed}{commands.record([*found])}" if found else None


#: All states, in the order of the summary.
STATES = ("current", "stale", "failed", "damaged", "missing", "unreadable", "orphan")


def show(rows: list[Row], only: str | None = None, sizes: bool = False) -> None:
    """Print *rows*, or those of the state *only*, as a table; below it faults and a summary."""
    counts = Counter(row.state for row in rows)
    rows = [row for row in rows if only in (None, row.state)]
    table = [("script", "device", "state", "recorded", "seconds", *["size"] * sizes)]
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
            text = f"it needs {row.needs}"
        if text:
            state = "an orphan" if row.state == "orphan" else row.state
            print(visible(f"\n{row.name} is {state}: {text}"))
    print("\n" + (", ".join(f"{counts[s]} {s}" for s in STATES if counts[s]) or "no scripts"))
    if sizes:
        print(f"{decimal(total)} in all")


def _is_at(row: Row, preferred: str | None) -> bool:
    return not preferred or row.place == preferred or row.place.startswith(f"{preferred}/")
