"""A project on its way to a machine that does not have it: its files, and its paths there."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gallery_recorder.project.galleries import decode
from gallery_recorder.project.git import git
from gallery_recorder.run.gpus import DeviceError
from gallery_recorder.run.protocol import Run

_LIMIT = 200_000_000  # bytes; more is no project to send with each task
_SKIPPED = frozenset({"__pycache__", "node_modules", "build", "_build"})


def pack(run: Run) -> bytes:
    """The files of the project of *run*: those that git would keep, or all that are not hidden.

    The folders of scripts are taken as they are, also where git ignores them.

    Raises:
        DeviceError: they are too many.
    """
    buffer, size = io.BytesIO(), 0
    roots = [Path(root) for root in run.settings.recordings]
    # A link may lead to what the machine of the script does not have: the file itself is sent.
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for path in sorted({*_kept(run.top), *_all_in(run.example.path.parent)}):
            if any(root in path.parents for root in roots) or not path.is_file():
                continue
            size += path.stat().st_size
            if size > _LIMIT:
                raise DeviceError(
                    f"{run.top}: the project has more than {_LIMIT:,} bytes, too much to send to "
                    "the nodes of a cluster. Let .gitignore name what they do not need."
                )
            archive.add(path, path.relative_to(run.top).as_posix(), recursive=False)
    return buffer.getvalue()


def unpack(packed: bytes, order: bytes, folder: Path) -> Run:
    """Unpack the project into *folder*; return the run *order* with its paths there."""
    sent_from = decode(order, Run).top
    top = folder / sent_from.name
    top.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(top, filter="data")
    return msgspec.json.decode(
        order, type=Run, dec_hook=lambda _, path: top / Path(path).relative_to(sent_from)
    )


def _kept(top: Path) -> Iterable[Path]:
    listed = git(top, "ls-files", "-coz", "--exclude-standard")
    if listed is None:
        return _all_in(top)
    return [top / name for name in listed.split("\0") if name]


def _all_in(folder: Path) -> Iterable[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [n for n in folders if not n.startswith(".") and n not in _SKIPPED]
        yield from (Path(place, name) for name in names)
