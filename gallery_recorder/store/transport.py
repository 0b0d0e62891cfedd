"""Pull recordings from outside the main history, and push them there.

A place is a folder, an archive (``.zip``, ``.tar.gz``) or a branch of the project's repository,
``branch:NAME``, which holds nothing but recordings in one commit: the next one replaces it. Of two
recordings of the same place, the newer one stays. Everything is checked before anything changes.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.git import GitError, call, git
from gallery_recorder.store import atomic, recording
from gallery_recorder.store.format import FILE_NAME, Recording, slug
from gallery_recorder.store.recording import Location, RecordingError

_ARCHIVES = {".zip": "zip", ".tar.gz": "gztar", ".tgz": "gztar"}
_BRANCH = "branch:"
_SUBJECT = "Recordings"
_ATTEMPTS = 5  # to push, when somebody else pushes at the same time
#: git changes no byte of a recording, whatever the user's settings.
_EXACT = ("-c", "core.autocrlf=false", "-c", "core.attributesFile=")


class TransportError(RecorderError):
    """Recordings that cannot be pulled or pushed."""


class AbsentError(TransportError):
    """A place that does not exist."""


@dataclass(frozen=True)
class Changes:
    """The numbers of recordings that are new at a place, replaced there, and in all."""

    added: int
    replaced: int
    removed: int
    of: int

    def __str__(self) -> str:
        counts = f"{self.added} added, {self.replaced} replaced, {self.removed} removed"
        return f"{counts}; {self.of} recordings now"


def pull(place: str, root: Path, repository: Path, replace: bool = False) -> Changes:
    """Put the recordings of *place* into the folder *root*.

    With *replace*, recordings that *place* lacks are removed.

    Raises:
        AbsentError: there is no such place.
        TransportError: it cannot be read, or *root* cannot be replaced.
        RecordingError: one of its recordings is damaged.
    """
    with tempfile.TemporaryDirectory() as scratch:
        if _is_branch(place):
            commit = _fetched(repository, place)
            if commit is None:
                raise AbsentError(f"{place}: {_owner(repository)} has no such branch")
            source = _unpacked(repository, commit, Path(scratch))
        else:
            source = _opened(Path(place), Path(scratch))
        found = _recordings_in(source)
        if not found:
            raise TransportError(f"{place}: contains no recordings")
        return _put(found, root, replace)


def push(place: str, root: Path, repository: Path, replace: bool = False) -> Changes:
    """Put the recordings in the folder *root* to *place*; raises as :func:`pull`."""
    found = _recordings_in(root) if root.is_dir() else {}
    if not found:
        raise TransportError(f"{root}: contains no recordings; make them with `record`")
    if _is_branch(place):
        return _push_to_branch(place, found, repository, replace)
    target = Path(place)
    kind = _kind(target)
    if kind is None:
        return _put(found, target, replace)
    with tempfile.TemporaryDirectory() as scratch:
        merged = Path(scratch, "merged")
        if target.exists():
            merged = _opened(target, Path(scratch))
        changes = _put(found, merged, replace)
        made = shutil.make_archive(f"{scratch}/archive", kind, merged)
        new = target.with_name(f".{target.name}.new")
        shutil.copyfile(made, new)
        os.replace(new, target)
    return changes


# --- recordings, wherever they are ----------------------------------------------------------------

#: Recordings and their folders by their place below a root.
_Found = dict[Path, tuple[Path, Recording]]


def _recordings_in(folder: Path) -> _Found:
    """The newest recording of each place at or below *folder*; RecordingError if one is damaged."""
    found: _Found = {}
    for at in recording.all_recordings(folder):
        made = recording.load(at)
        place = Location(
            Path(), slug(made.provenance.device), made.variant, made.gallery, made.name
        )
        if at.parts[-len(place.folder.parts) :] != place.folder.parts:
            raise RecordingError(f"{at / FILE_NAME}: is in the place of another one")
        known = found.get(place.folder)
        if known is None or known[1].run.recorded < made.run.recorded:
            found[place.folder] = (at, made)
    return found


def _put(found: _Found, root: Path, replace: bool = False) -> Changes:
    """Put *found* into the folder *root* in one step; a newer recording there stays."""
    root = root.resolve()
    if any(root.rglob(".workspace-*")):
        remedy = "wait for its end; after a crash, `record` removes what it left"
        raise TransportError(f"{root}: a recorder is at work there; {remedy}")
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}-", dir=root.parent) as scratch:
        new, counts = Path(scratch, "new"), {"added": 0, "replaced": 0}
        if root.exists():
            shutil.copytree(root, new, symlinks=True, copy_function=_linked)
        before = {at.relative_to(new) for at in recording.all_recordings(new)}
        gone = before - found.keys() if replace else set()
        for place in gone:
            atomic.remove(new / place)
        for place, (folder, made) in found.items():
            if not replace and _is_newer(new / place, made):
                continue
            counts["replaced" if place in before else "added"] += 1
            atomic.remove(new / place)
            for name in (*made.files, FILE_NAME):
                (new / place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / name, new / place / name)
        if gone or any(counts.values()):
            atomic.replace_folder(new, root)
    return Changes(**counts, removed=len(gone), of=len(before - gone | found.keys()))


def _is_newer(folder: Path, made: Recording) -> bool:
    """Whether *folder* holds a whole recording that is as new as *made*."""
    try:
        return recording.load(folder).run.recorded >= made.run.recorded
    except RecordingError:  # there is none, or it is damaged
        return False


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # not on this file system
        shutil.copy2(source, target)


# --- archives -------------------------------------------------------------------------------------


def _kind(path: Path) -> str | None:
    """The kind of archive that the name of *path* says; None for a folder."""
    return next((kind for end, kind in _ARCHIVES.items() if path.name.endswith(end)), None)


def _opened(path: Path, scratch: Path) -> Path:
    """The folder *path*, or what the archive *path* contains, unpacked in *scratch*."""
    if not path.exists():
        raise AbsentError(f"{path}: does not exist")
    if path.is_dir():
        return path
    at = scratch / "unpacked"
    try:
        if _kind(path) == "zip":
            with zipfile.ZipFile(path) as packed:
                packed.extractall(at)  # drops roots and .. of names; links become files
        else:
            with tarfile.open(path) as packed:
                packed.extractall(at, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        raise TransportError(f"{path}: cannot be unpacked ({error})") from error
    return at


# --- a branch of the repository -------------------------------------------------------------------


def _is_branch(place: str) -> bool:
    return place.startswith(_BRANCH)


def _owner(repository: Path) -> str:
    """Who has the branch: the remote ``origin``, or the repository itself if it has none."""
    remotes = call(repository, "remote").split()
    return "origin" if "origin" in remotes else str(repository)


def _ref(repository: Path, place: str) -> str:
    name = place.removeprefix(_BRANCH)
    call(repository, "rev-parse", "--git-dir")  # says what is wrong with the repository
    if not name or git(repository, "check-ref-format", "--branch", name) is None:
        raise TransportError(
            f"{place}: is not the name of a branch; write for example branch:recordings"
        )
    return f"refs/heads/{name}"


def _fetched(repository: Path, place: str) -> str | None:
    """The commit of the branch, fetched; None if there is no such branch."""
    ref, owner = _ref(repository, place), _owner(repository)
    if owner != "origin":
        return git(repository, "rev-parse", "--verify", "--quiet", ref)
    lines = [line.split("\t") for line in call(repository, "ls-remote", owner, ref).splitlines()]
    commit = next((found for found, name in lines if name == ref), None)
    if commit:
        call(repository, "fetch", "--quiet", "--no-tags", owner, ref)
    return commit


def _unpacked(repository: Path, commit: str, scratch: Path) -> Path:
    """The files of *commit*, in a folder in *scratch*."""
    archive = scratch / f"{commit}.zip"
    call(repository, *_EXACT, "archive", "--format=zip", f"--output={archive}", commit)
    return _opened(archive, scratch)


def _push_to_branch(place: str, found: _Found, repository: Path, replace: bool) -> Changes:
    ref, owner = _ref(repository, place), _owner(repository)
    for left in reversed(range(_ATTEMPTS)):
        old = _fetched(repository, place)
        if old and git(repository, "log", "-1", "--format=%P%s", old) != _SUBJECT:
            raise TransportError(f"{place}: holds commits that `push` did not make; name another")
        with tempfile.TemporaryDirectory() as scratch:
            merged = Path(scratch, "merged")
            if old:
                merged = _unpacked(repository, old, Path(scratch))
            changes = _put(found, merged, replace)
            tree = _tree_of(merged, repository, Path(scratch))
        if old and git(repository, "rev-parse", f"{old}^{{tree}}") == tree:
            return changes
        commit = _committed(tree, repository)
        try:
            if owner == "origin":
                lease = f"--force-with-lease={ref}:{old or ''}"
                call(repository, "push", "--quiet", "--no-verify", lease, owner, f"{commit}:{ref}")
            else:
                call(repository, "update-ref", ref, commit, old or "0" * len(commit))
            return changes
        except GitError:
            if not left or _fetched(repository, place) == old:
                raise
    raise AssertionError


def _tree_of(folder: Path, repository: Path, scratch: Path) -> str:
    """The git tree of the files in *folder*."""
    own = {"GIT_INDEX_FILE": str(scratch / "index"), "GIT_WORK_TREE": str(folder)}
    own["GIT_DIR"] = call(repository, "rev-parse", "--absolute-git-dir")
    call(folder, *_EXACT, "add", "--all", "--force", ".", variables=own)
    return call(folder, "write-tree", variables=own)


def _committed(tree: str, repository: Path) -> str:
    """A commit of *tree* without parents, by whom git knows, or else by the recorder."""
    who: list[str] = []
    if git(repository, "var", "GIT_COMMITTER_IDENT") is None:
        who = ["-c", "user.name=gallery-recorder", "-c", "user.email=gallery-recorder@localhost"]
    return call(repository, *who, "commit-tree", "-m", _SUBJECT, tree)
