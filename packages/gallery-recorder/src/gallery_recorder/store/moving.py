"""Recordings of a renamed example: find those that fit its new name, and move them there."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from gallery_recorder.project.galleries import Project
from gallery_recorder.project.script import Script, ScriptError
from gallery_recorder.store import atomic, recording
from gallery_recorder.store.format import FILE_NAME, Recording
from gallery_recorder.store.inputs import Here
from gallery_recorder.store.lock import folders_locked
from gallery_recorder.store.recording import Location, RecordingError


def orphans(project: Project, roots: Iterable[Path]) -> Iterator[tuple[Path, Location, Recording]]:
    """The root, location and content of each undamaged recording without an example."""
    labels = {example.label for example in project.examples}
    for root in roots:
        for folder in recording.all_recordings(root):
            if recording.is_orphan(folder.relative_to(root).parts, labels):
                with contextlib.suppress(RecordingError):
                    made = recording.load(folder)
                    yield root, recording.location_of(folder, root, made), made


def fits(script: Script, made: Recording, here: Here) -> bool:
    """Whether the recording *made* is of the code of *script* and of its inputs, and passed."""
    if made.run.status != "passed" or not recording.is_current(made.key, script):
        return False
    return not here.changes(made.inputs, made.provenance.kind, script).stale


def of(at: Location, script: Script) -> Location:
    """The location of the recording at *at* as a recording of *script*."""
    return replace(at, gallery=script.gallery, name=script.name)


def take_over(project: Project, roots: Iterable[Path], script: Script, here: Here) -> bool:
    """Move all recordings of an example that is gone and had the code and inputs of *script*.

    Those of all devices are moved; *script* keeps what it has. Return whether one was moved.
    """
    moved = False
    for root, at, made in list(orphans(project, roots)):
        if fits(script, made, here) and not (of(at, script).folder / FILE_NAME).exists():
            with folders_locked(root):
                move(at, at.folder, script)
            moved = True
    return moved


def move(at: Location, folder: Path, script: Script) -> Location:
    """Move the recording in *folder*, which says that it is *at*, to the place of *script*.

    Its names, and the names of its images, become those of *script*. The caller holds the lock of
    the root.
    """
    made = recording.load(folder)
    target = of(at, script)
    with atomic.folder_beside(at.root) as scratch:
        staging = scratch / "new"
        staging.mkdir()
        now = recording.moved(folder, made, script, staging)
        recording.save(now, staging, target.folder)
    if folder != target.folder:
        recording.remove(folder, at.root)
    return target


def proposals(project: Project, roots: Iterable[Path], here: Here) -> dict[Path, tuple[str, str]]:
    """For the folder of each orphan, its old name and the example that it fits, if there is one."""
    without = list(orphans(project, roots))
    if not without:
        return {}
    scripts: dict[str, list[Script]] = {}
    for example in project.executed:
        with contextlib.suppress(ScriptError):
            script = example.load()
            scripts.setdefault(script.key, []).append(script)
    found = {}
    for _, at, made in without:
        for script in scripts.get(made.key, []):
            is_free = not (of(at, script).folder / FILE_NAME).exists()
            if is_free and fits(script, made, here):
                old = f"{at.gallery}/{at.name}"
                found[at.folder] = (old, f"{script.gallery}/{script.name}")
                break
    return found


def move_all(project: Project, roots: Iterable[Path], old: str, script: Script) -> list[Location]:
    """Move the recordings of the example *old*, which is gone, to *script*; their new locations.

    *old* is ``<gallery>/<name>``, or the name of an example in the gallery of *script*. A recording
    that was moved by hand, and still has its old name, gets the new one.

    Raises:
        RecordingError: *old* is an example, or has no recordings, or *script* has one already.
    """
    old = old.removesuffix(".py")
    gallery, _, name = old.partition("/")
    names = {f"{script.gallery}/{old}": (script.gallery, old), old: (gallery, name)}
    if clash := names.keys() & {example.label for example in project.examples}:
        raise RecordingError(f"{min(clash)}: is an example; only recordings without one are moved")
    moved = []
    for root in roots:
        places: list[Location] = []
        for of_gallery, of_name in names.values():
            if of_name:
                places += recording.find(root, of_gallery, of_name)
        by_hand = _moved_by_hand(root, script, set(names))
        taken = [of(at, script).folder for at in places]
        for folder in taken:
            if (folder / FILE_NAME).exists():
                raise RecordingError(f"{folder}: is there already; remove it first")
        with folders_locked(root):
            moved += [move(at, at.folder, script) for at in places]
            moved += [move(at, of(at, script).folder, script) for at in by_hand]
    if not moved:
        raise RecordingError(f"{old}: has no recordings; `status` lists the recordings there are")
    return moved


def _moved_by_hand(root: Path, script: Script, old: set[str]) -> list[Location]:
    """The recordings in folders of *script* that say that they are of an *old* example."""
    found = []
    for at in recording.find(root, script.gallery, script.name):
        with contextlib.suppress(RecordingError):
            made = recording.load(at.folder)
            if f"{made.gallery}/{made.name}" in old:
                found.append(at)
    return found
