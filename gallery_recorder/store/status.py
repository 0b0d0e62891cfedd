"""Which recordings are current, stale, damaged or missing, on which device, and what they took."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gallery_recorder.run.recorder import GPU_RECORDINGS, INTERPRETER_RECORDINGS
from gallery_recorder.source import needs
from gallery_recorder.source.script import ScriptError, select_scripts
from gallery_recorder.store import recording
from gallery_recorder.store.recording import REFERENCE_DEVICE, Recording, RecordingError


@dataclass(frozen=True)
class Row:
    """A tutorial on a device. ``text`` says what is wrong, where something is.

    *unreadable*: the tutorial itself is at fault; *orphan*: there is no such tutorial. ``needs``
    is what the tutorial needs of a GPU; its page is rendered without a recording as well.
    """

    tutorial: str
    device: str
    state: Literal["current", "stale", "damaged", "missing", "unreadable", "orphan"]
    made: Recording | None = None
    text: str = ""
    needs: tuple[str, ...] = ()


def rows(tutorials: Sequence[Path], recordings: Path | None = None) -> list[Row]:
    """One row for each tutorial and device, the reference device included; then the orphans.

    *tutorials* are the galleries.

    Raises:
        ScriptError: there are no tutorials.
    """
    roots = [recordings] if recordings else [GPU_RECORDINGS, INTERPRETER_RECORDINGS]
    left: dict[Path, Path] = {}
    for root in roots:
        for folder in recording.all_recordings(root):
            left[folder] = root
    result = []
    for file in select_scripts(tutorials, []):
        name = file.name
        folders = {}
        for root in roots:
            for location in recording.find(root, file.gallery, name):
                folders[location.place] = location.folder
                left.pop(location.folder, None)
        if not any(place.split("/")[0] == REFERENCE_DEVICE for place in folders):
            folders[REFERENCE_DEVICE] = roots[0] / REFERENCE_DEVICE / file.gallery / name
        try:
            script = file.load()
            needed = tuple(needs.needs_of(script))
        except ScriptError as error:
            result.append(Row(name, "-", "unreadable", text=str(error)))
            continue
        result += [
            replace(_row(name, device, folder, script.key), needs=needed)
            for device, folder in folders.items()
        ]
    for folder, root in sorted(left.items()):
        device, *name = folder.relative_to(root).parts
        result.append(
            Row("/".join(name), device, "orphan", text=f"{folder}: there is no such tutorial")
        )
    return result


def lacking(rows: list[Row]) -> list[Row]:
    """The rows for which the reference device lacks a current recording."""
    return [
        row
        for row in rows
        if row.state == "unreadable"
        or (row.device.split("/")[0] == REFERENCE_DEVICE and row.state != "current")
        if row.state != "orphan"
    ]


def what_is_lacking(lacking: list[Row]) -> str:
    """The tutorials in *lacking*, and the command that records them."""
    names = [row.tutorial for row in lacking]
    return (
        f"{len(names)} of the tutorials lack a current recording on {REFERENCE_DEVICE}:\n"
        + "".join(f"  {row.tutorial}: {row.state}\n" for row in lacking)
        + "Record them on that GPU, then commit the recordings:\n"
        f"  python -m gallery_recorder record --device cuda {' '.join(names)}"
    )


def recorded_nowhere(rows: list[Row]) -> list[str]:
    """The tutorials that have no current recording on any device, and so no page.

    Those that need a particular GPU have a page that says so, if no recording is damaged.
    """
    names = {
        row.tutorial: None
        for row in rows
        if row.state != "orphan" and (row.state == "damaged" or not row.needs)
    }
    return [n for n in names if not any(r.tutorial == n and r.state == "current" for r in rows)]


def what_is_recorded_nowhere(names: list[str]) -> str:
    """The tutorials *names*, and the command that records them where it is run."""
    return (
        f"no recording belongs to the code of: {', '.join(names)}.\n"
        "Record what is missing, on a GPU or else in Triton's interpreter:\n"
        "  python -m gallery_recorder record --missing"
    )


def show(rows: list[Row]) -> None:
    """Print *rows* as a table, and below it what is wrong with the damaged ones."""
    from rich.console import Console
    from rich.table import Table

    # A pipe has no width: nothing is cut off or folded there.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("tutorial", "device", "state", "recorded", "GPU", "triton", "torch"):
        table.add_column(column, no_wrap=True)
    table.add_column("seconds", justify="right")
    table.add_column("peak GPU memory", justify="right")
    colours = {"current": "green", "stale": "yellow", "missing": "yellow"}
    for row in rows:
        tutorial, device, *cells = _cells(row)
        state = f"[{colours.get(row.state, 'red')}]{row.state}[/]"
        table.add_row(tutorial, device, state, *cells)
    console.print(table)
    for row in rows:
        if row.text:
            console.print(f"\n{row.tutorial} is {row.state}: {row.text}", markup=False)


def _row(name: str, device: str, folder: Path, key: str) -> Row:
    if not (folder / recording.FILE_NAME).exists():
        return Row(name, device, "missing")
    try:
        made = recording.load(folder)
    except RecordingError as error:
        return Row(name, device, "damaged", text=str(error))
    return Row(name, device, "current" if made.key == key else "stale", made)


def _cells(row: Row) -> list[str]:
    made = row.made
    if made is None:
        return [row.tutorial, row.device, *["-"] * 6]
    where, took = made.provenance, made.run
    software = made.probe(recording.SOFTWARE)
    memory = software.get("peak_gpu_memory")
    return [
        row.tutorial,
        row.device,
        took.recorded.removesuffix("Z").replace("T", " "),
        where.device if made.timed else "-",
        software.get("triton", "-"),
        software.get("torch", "-"),
        f"{took.seconds:.1f}",
        "-" if memory is None else f"{memory / 2**20:,.0f} MiB",
    ]
