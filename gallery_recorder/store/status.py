"""Which recordings are current, stale, damaged or missing, on which device, and what they took."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gallery_recorder.console import visible
from gallery_recorder.project import commands, needs
from gallery_recorder.project.galleries import Project
from gallery_recorder.project.script import Script, ScriptError
from gallery_recorder.store import names, recording
from gallery_recorder.store.format import Recording
from gallery_recorder.store.recording import Location, RecordingError

State = Literal["current", "stale", "damaged", "missing", "unreadable", "orphan"]


@dataclass(frozen=True)
class Row:
    """A script on a device and variant. ``text`` says what is wrong, where something is.

    *unreadable*: the script itself is at fault; *orphan*: there is no such script. ``needs``
    is what the script needs of a GPU; its page is rendered without a recording as well.
    ``aged``: a newer variant was recorded on the device, or is preferred.
    """

    name: str
    place: str
    state: State
    made: Recording | None = None
    text: str = ""
    needs: tuple[str, ...] = ()
    aged: bool = False


def reference(project: Project) -> str | None:
    """The device, or device and variant, that conf.py prefers, if it prefers one."""
    return next(iter(project.settings.devices), None)


def rows(project: Project, recordings: Path | None = None) -> list[Row]:
    """One row for each script, device and variant, the preferred device included; then orphans."""
    roots = [recordings] if recordings else project.settings.roots
    preferred = reference(project)
    left = [(root, folder) for root in roots for folder in recording.all_recordings(root)]
    known: set[Path] = set()
    result = []
    for example in project.recorded:
        found = [at for root in roots for at in recording.find(root, example.gallery, example.name)]
        known.update(at.folder for at in found)
        name = project.label(example)
        try:
            script = example.load()
            needed = tuple(needs.needs_of(script))
        except ScriptError as error:
            result.append(Row(name, "-", "unreadable", text=str(error)))
            continue
        if not script.code:
            continue
        own = [replace(_row(name, at, script), needs=needed) for at in found]
        if not own or (preferred and not any(_is_at(row, preferred) for row in own)):
            own.insert(0, Row(name, preferred or "-", "missing", needs=needed))
        result += own
    for root, folder in left:
        if folder not in known:
            device, *rest = folder.relative_to(root).parts
            text = f"{folder}: no gallery has such a script"
            result.append(Row("/".join(rest), device, "orphan", text=text))
    places = {row.place for row in result if row.made} | {preferred or ""}
    return [replace(row, aged=row.made is not None and _is_aged(row, places)) for row in result]


def lacking(rows: list[Row], preferred: str | None) -> list[Row]:
    """The rows of scripts that have no current recording where conf.py prefers it.

    Without a preference, those that have none at all.
    """
    good = {row.name for row in rows if row.state == "current" and _is_at(row, preferred)}
    found: dict[str, Row] = {}
    for row in rows:
        if row.state != "orphan" and row.name not in good and _is_at(row, preferred):
            found.setdefault(row.name, row)
        if row.state == "unreadable":
            found[row.name] = row
    return list(found.values())


def what_is_lacking(lacking: list[Row], preferred: str | None, options: Sequence[str]) -> str:
    """The scripts in *lacking*, and the command that records them."""
    scripts = [row.name for row in lacking]
    where = f" on {preferred}" if preferred else ""
    return (
        f"{len(scripts)} of the scripts lack a current recording{where}:\n"
        + "".join(f"  {row.name}: {row.state}\n" for row in lacking)
        + f"Record them{' on that device' if preferred else ''}, then keep the recordings:\n  "
        + commands.record(scripts, *options)
    )


def recorded_nowhere(rows: list[Row]) -> list[str]:
    """The scripts that have no current recording on any device.

    Those that need a particular GPU have a page that says so, if no recording is damaged.
    """
    damaged = {row.name for row in rows if row.state == "damaged"}
    return [row.name for row in lacking(rows, None) if not row.needs or row.name in damaged]


def what_is_recorded_nowhere(names: list[str], options: Sequence[str]) -> str:
    """The scripts *names*, and the command that records them where it is run."""
    return (
        f"no recording belongs to the code of: {', '.join(names)}.\n"
        f"Record what is missing:\n  {commands.record([], '--missing', *options)}"
    )


def show(rows: list[Row]) -> None:
    """Print *rows* as a table, and below it what is wrong with the damaged ones."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    # A pipe has no width: nothing is cut off or folded there.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("script", "device", "state", "recorded"):
        table.add_column(column, no_wrap=True)
    table.add_column("seconds", justify="right")
    colours = {"current": "green", "stale": "yellow", "missing": "yellow"}
    for row in rows:
        state = f"[{colours.get(row.state, 'red')}]{row.state}[/]{' (aged)' if row.aged else ''}"
        date = row.made.run.recorded.removesuffix("Z").replace("T", " ") if row.made else "-"
        seconds = f"{row.made.run.seconds:.1f}" if row.made else "-"
        name, place = (escape(visible(text)) for text in (row.name, row.place))
        table.add_row(name, place, state, date, seconds)
    console.print(table)
    for row in rows:
        if row.text:
            console.print(visible(f"\n{row.name} is {row.state}: {row.text}"), markup=False)


def _is_at(row: Row, preferred: str | None) -> bool:
    return not preferred or row.place == preferred or row.place.startswith(f"{preferred}/")


def _is_aged(row: Row, places: set[str]) -> bool:
    """Whether one of *places* is the row's device with a newer variant."""
    device, _, variant = row.place.partition("/")
    others = (place.partition("/") for place in places)
    newest = names.order_of(variant)
    return any(d == device and names.order_of(other) > newest for d, _, other in others)


def _row(name: str, at: Location, script: Script) -> Row:
    try:
        made = at.load([block.key for block in script.code])
    except RecordingError as error:
        return Row(name, at.place, "damaged", text=str(error))
    return Row(name, at.place, "current" if made.key == script.key else "stale", made)
