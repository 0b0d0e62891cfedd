"""Pull recordings from a folder, an archive or a branch, and push them there.

Archives are ``.zip`` and ``.tar.gz`` files. A branch of the project's repository, ``branch:NAME``,
holds nothing but recordings, in one commit that the next push replaces. Of two recordings of the
same example, device and variant, the newer one stays. All are checked before anything changes.
"""

import os
import shutil
import tarfile
import tempfile
from collections.abc import Container
from pathlib import Path

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.git import GitError, call, git
from gallery_recorder.store import atomic, recording
from gallery_recorder.store.format import FILE_NAME, Recording, slug
from gallery_recorder.store.lock import is_held
from gallery_recorder.store.recording import Location, RecordingError

_ARCHIVES = {".zip": "zip", ".tar.gz": "gztar", ".tgz": "gztar"}
_BRANCH = "branch:"
_SUBJECT = "Recordings"
_ATTEMPTS = 5  # to push, when somebody else pushes at the same time
#: Keeps git from changing bytes of a recording, whatever the user's settings.
_EXACT = ("-c", "core.autocrlf=false", "-c", "core.attributesFile=")
#: A workflow's machine may have no name configured; its log says who pushed.
_AUTHOR = ("-c", "user.name=gallery-recorder", "-c", "user.email=gallery-recorder@localhost")

#: Recordings and their folders by their place below a root.
_Found = dict[Path, tuple[Path, Recording]]


class TransportError(RecorderError):
    """Recordings cannot be pulled or pushed."""


class AbsentError(TransportError):
    """The place does not exist."""


def pull(place: str, root: Path, repository: Path) -> str:
    """Put the recordings at *place* into the folder *root*; return how many changed, in words.

    Raises:
        AbsentError: *place* does not exist.
        TransportError: it cannot be read, or *root* cannot be replaced.
        RecordingError: one of its recordings is damaged.
    """
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(place)
        if place.startswith(_BRANCH):
            branch = _Branch(place, repository)
            commit = branch.fetched()
            if commit is None:
                raise AbsentError(f"{place}: {branch.owner} has no such branch")
            source = branch.archive(commit, Path(scratch))
        return _put(_recordings_in(_opened(source, Path(scratch))), root)


def push(
    place: str,
    root: Path,
    repository: Path,
    labels: Container[str] | None = None,
    prune: bool = False,
) -> str:
    """Put the recordings in the folder *root* to *place*; raises as :func:`pull`.

    With the *labels* of all examples, the result says how many recordings belong to no example;
    *prune* does not push these and deletes such recordings at *place*.
    """
    found = _recordings_in(root)
    if labels is None:
        return _push(place, found, repository)
    orphans = {path for path in found if recording.is_orphan(path.parts, labels)}
    if not prune:
        note = f"; {len(orphans)} of them have no example (leave these out with --prune)"
        return _push(place, found, repository) + (note if orphans else "")
    kept = {path: one for path, one in found.items() if path not in orphans}
    return _push(place, kept, repository, labels)


def _push(place: str, found: _Found, repository: Path, labels: Container[str] | None = None) -> str:
    if place.startswith(_BRANCH):
        return _push_to_branch(_Branch(place, repository), found, labels)
    target = Path(place)
    kind = _kind(target)
    if kind is None:
        return _put(found, target, labels)
    with tempfile.TemporaryDirectory() as scratch:
        merged = _opened(target, Path(scratch)) if target.exists() else Path(scratch, "merged")
        changes = _put(found, merged, labels)
        made = shutil.make_archive(f"{scratch}/archive", kind, merged)
        new = target.with_name(f".{target.name}.new")
        shutil.copyfile(made, new)
        os.replace(new, target)
    return changes


# --- recordings, wherever they are ----------------------------------------------------------------


def _recordings_in(folder: Path) -> _Found:
    """The newest recording of each place at or below *folder*; TransportError if there is none."""
    found: _Found = {}
    for at in recording.all_recordings(folder):
        made = recording.load(at)
        device = slug(made.provenance.device)
        place = Location(Path(), device, made.variant, made.gallery, made.name).folder
        if at.parts[-len(place.parts) :] != place.parts:
            raise RecordingError(f"{at / FILE_NAME}: belongs in another folder, {place}")
        if place not in found or found[place][1].run.recorded < made.run.recorded:
            found[place] = (at, made)
    if not found:
        raise TransportError(f"{folder}: contains no recordings")
    return found


def _put(found: _Found, root: Path, labels: Container[str] | None = None) -> str:
    """Put *found* into the folder *root* in one step; newer recordings there stay.

    With the *labels* of all examples, recordings there that belong to none are deleted.
    """
    root = root.resolve()
    if any(map(is_held, root.rglob(".lock-*"))):
        what = "another recorder is using this folder; wait until it finishes"
        raise TransportError(f"{root}: {what}")
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}-", dir=root.parent) as scratch:
        new, added, replaced = Path(scratch, "new"), 0, 0
        if root.exists():
            left = shutil.ignore_patterns(".workspace-*", ".lock-*")  # of a recorder that crashed
            shutil.copytree(root, new, symlinks=True, ignore=left)
        for place, (folder, made) in found.items():
            if _is_newer(new / place, made):
                continue
            if (new / place / FILE_NAME).exists():
                replaced += 1
            else:
                added += 1
            atomic.remove(new / place)
            for name in (*made.files, FILE_NAME):
                (new / place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / name, new / place / name)
        there = [*recording.all_recordings(new)] if labels is not None else []
        parts = {folder: folder.relative_to(new).parts for folder in there}
        deleted = [f for f in there if recording.is_orphan(parts[f], labels or ())]
        for folder in deleted:
            recording.remove(folder, new)
        if added or replaced or deleted:
            atomic.replace_folder(new, root)
    same = len(found) - added - replaced
    pruned = f", {len(deleted)} deleted" if deleted else ""
    return f"{added} added, {replaced} replaced, {same} already up to date{pruned}"


def _is_newer(folder: Path, made: Recording) -> bool:
    """Whether *folder* holds an undamaged recording at least as new as *made*."""
    try:
        return recording.load(folder).run.recorded >= made.run.recorded
    except RecordingError:  # it is missing or damaged
        return False


def _kind(path: Path) -> str | None:
    """The kind of archive by the name of *path*; None for a folder."""
    return next((kind for end, kind in _ARCHIVES.items() if path.name.endswith(end)), None)


def _opened(path: Path, scratch: Path) -> Path:
    """The folder *path*, or the content of the archive *path*, unpacked in *scratch*."""
    if not path.exists():
        raise AbsentError(f"{path}: does not exist")
    if path.is_dir():
        return path
    kind, at = _kind(path), scratch / "unpacked"
    try:
        # A zip file has no links, and shutil skips names that lead out of the folder.
        if kind == "zip":
            shutil.unpack_archive(path, at, kind)
        else:
            shutil.unpack_archive(path, at, kind, filter="data")
    except (shutil.ReadError, tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise TransportError(f"{path}: cannot be unpacked ({error})") from error
    return at


# --- a branch of the repository -------------------------------------------------------------------


class _Branch:
    """A branch ``branch:NAME`` of ``origin``, or of *repository* itself if it has no origin."""

    def __init__(self, place: str, repository: Path) -> None:
        self.place, self._repository = place, repository
        self._remote = "origin" if "origin" in call(repository, "remote").split() else "."
        self.owner = "origin" if self._remote == "origin" else str(repository)
        name = place.removeprefix(_BRANCH)
        if not name or git(repository, "check-ref-format", "--branch", name) is None:
            remedy = "write for example branch:recordings"
            raise TransportError(f"{place}: is not the name of a branch; {remedy}")
        self._ref = f"refs/heads/{name}"

    def fetched(self) -> str | None:
        """The branch's commit, fetched; None if there is no such branch."""
        listed = call(self._repository, "ls-remote", self._remote, self._ref).splitlines()
        commits = [line.split("\t")[0] for line in listed if line.endswith(f"\t{self._ref}")]
        if commits:
            call(self._repository, "fetch", "--quiet", "--no-tags", self._remote, self._ref)
        return commits[0] if commits else None

    def archive(self, commit: str, scratch: Path) -> Path:
        """An archive of *commit* in *scratch*."""
        path = scratch / f"{commit}.zip"
        call(self._repository, *_EXACT, "archive", "--format=zip", f"--output={path}", commit)
        return path

    def is_foreign(self, commit: str) -> bool:
        """Whether *commit* was not made by :meth:`committed`."""
        return git(self._repository, "log", "-1", "--format=%P%s", commit) != _SUBJECT

    def committed(self, folder: Path, scratch: Path) -> str:
        """A commit of the files in *folder*, without parents."""
        repository, own = self._repository, {"GIT_INDEX_FILE": str(scratch / "index")}
        own |= {"GIT_DIR": call(repository, "rev-parse", "--absolute-git-dir")}
        own |= {"GIT_WORK_TREE": str(folder)}
        call(folder, *_EXACT, "add", "--all", "--force", ".", variables=own)
        tree = call(folder, "write-tree", variables=own)
        return call(repository, *_AUTHOR, "commit-tree", "-m", _SUBJECT, tree)

    def replace(self, old: str | None, new: str) -> None:
        """Replace the commit *old* by *new*; GitError if the branch has moved meanwhile."""
        lease = f"--force-with-lease={self._ref}:{old or ''}"
        words = ["push", "--quiet", "--no-verify", lease, self._remote, f"{new}:{self._ref}"]
        call(self._repository, *words)


def _push_to_branch(branch: _Branch, found: _Found, labels: Container[str] | None) -> str:
    for left in reversed(range(_ATTEMPTS)):
        old = branch.fetched()
        if old and branch.is_foreign(old):
            what = "holds commits that `push` did not make; name another"
            raise TransportError(f"{branch.place}: {what}")
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            merged = _opened(branch.archive(old, scratch), scratch) if old else scratch / "merged"
            changes = _put(found, merged, labels)
            commit = branch.committed(merged, scratch)
        try:
            branch.replace(old, commit)
            return changes
        except GitError:
            if not left or branch.fetched() == old:
                raise
    raise AssertionError
