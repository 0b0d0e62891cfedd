"""Pull recordings from a folder, an archive or a branch, and push them there.

Archives are ``.zip`` and ``.tar.gz`` files. A branch of the project's repository, ``branch:NAME``,
holds nothing but recordings, in one commit that the next push replaces. Of two recordings of the
same example, device and variant, the one of the current code stays, or else the newer one. All are
checked before anything changes.
"""

import shutil
import subprocess
from collections.abc import Callable, Container, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.git import GitError, call, environment, git
from gallery_recorder.store import atomic, format, recording
from gallery_recorder.store.format import FILE_NAME, Recording, slug
from gallery_recorder.store.lock import folders_locked, is_held
from gallery_recorder.store.reading import line
from gallery_recorder.store.recording import Location, RecordingError
from gallery_recorder.temporary import TemporaryFolder

_ARCHIVES = {".zip": "zip", ".tar.gz": "gztar", ".tgz": "gztar"}
_BRANCH = "branch:"
_SUBJECT = "Recordings"
_ATTEMPTS = 5  # to push, when somebody else pushes at the same time; to copy what changes meanwhile
#: How far the clocks of two machines may differ.
_CLOCKS = timedelta(days=1)
#: A workflow's machine may have no name configured; its log says who pushed.
_AUTHOR = ("-c", "user.name=gallery-recorder", "-c", "user.email=gallery-recorder@localhost")

#: Recordings and their folders by their place below a root.
_Found = dict[Path, tuple[Path, Recording]]

#: Whether a recording is of the current code and inputs of its example.
IsCurrent = Callable[[Recording], bool]


def _unknown(_: Recording) -> bool:
    """Without the project's examples, no recording is known to be current."""
    return False


class TransportError(RecorderError):
    """Recordings cannot be pulled or pushed."""


class AbsentError(TransportError):
    """The place does not exist."""


def pull(place: str, root: Path, repository: Path, is_current: IsCurrent = _unknown) -> str:
    """Put the recordings at *place* into the folder *root*; return how many changed, in words.

    Raises:
        AbsentError: *place* does not exist.
        TransportError: it cannot be read, or *root* cannot be replaced.
        RecordingError: one of its recordings is damaged.
    """
    with TemporaryFolder() as scratch:
        if place.startswith(_BRANCH):
            branch = _Branch(place, repository)
            commit = branch.fetched()
            if commit is None:
                raise AbsentError(f"{place}: {branch.owner} has no such branch")
            source = branch.unpacked(commit, scratch)
        else:
            source = _opened(Path(place), scratch)
        with folders_locked(source, root):
            return _put(_recordings_in(source, is_current), root, is_current)


def push(
    place: str,
    root: Path,
    repository: Path,
    labels: Container[str] | None = None,
    prune: bool = False,
    is_current: IsCurrent = _unknown,
) -> str:
    """Put the recordings in the folder *root* to *place*; raises as :func:`pull`.

    With the *labels* of all examples, the result says how many recordings belong to no example;
    *prune* does not push these and deletes such recordings at *place*.
    """
    target = None if place.startswith(_BRANCH) else Path(place)
    with folders_locked(*[path for path in (root, target) if path]):
        found = _recordings_in(root, is_current)
        orphans = set()
        if labels is not None:
            orphans = {path for path in found if recording.is_orphan(path.parts, labels)}
        if prune:
            found = {path: one for path, one in found.items() if path not in orphans}
        pruned = labels if prune else None
        if target is None:
            changes = _push_to_branch(_Branch(place, repository), found, is_current, pruned)
        elif kind := _kind(target):
            changes = _push_to_archive(target, kind, found, is_current, pruned)
        else:
            changes = _put(found, target, is_current, pruned)
    if orphans and not prune:
        changes += f"; {len(orphans)} of them have no example (leave these out with --prune)"
    return changes


def _push_to_archive(
    target: Path,
    kind: str,
    found: _Found,
    is_current: IsCurrent,
    labels: Container[str] | None,
) -> str:
    with TemporaryFolder() as scratch:
        merged = _opened(target, scratch) if target.exists() else scratch / "merged"
        changes = _put(found, merged, is_current, labels)
        made = shutil.make_archive(f"{scratch}/archive", kind, merged)
        atomic.make_folder(target.parent)
        with open(made, "rb") as content, atomic.replaced(target) as file:
            shutil.copyfileobj(content, file)
    return changes


# --- recordings, wherever they are ----------------------------------------------------------------


def _recordings_in(folder: Path, is_current: IsCurrent) -> _Found:
    """The best recording of each place at or below *folder*; TransportError if there is none."""
    found: _Found = {}
    for at in recording.all_recordings(folder):
        made = recording.load(at)
        device = slug(made.provenance.device)
        place = Location(Path(), device, made.variant, made.gallery, made.name).folder
        if at.parts[-len(place.parts) :] != place.parts:
            raise RecordingError(f"{at / FILE_NAME}: belongs in another folder, {place}")
        if _is_in_the_future(made):
            what = f"`run.recorded` is {made.run.recorded}, which is in the future"
            raise RecordingError(f"{at / FILE_NAME}: {what}; correct the clock and record it again")
        if place not in found or _is_better(made, found[place][1], is_current):
            found[place] = (at, made)
    if not found:
        raise TransportError(f"{folder}: contains no recordings")
    return found


def _is_in_the_future(made: Recording) -> bool:
    latest = datetime.now(timezone.utc) + _CLOCKS
    return format.date_of(made.run.recorded) > latest


def _is_better(made: Recording, other: Recording, is_current: IsCurrent) -> bool:
    """Whether *made* is to replace *other*: if it alone is current, or if it is newer."""
    if is_current(made) != is_current(other):
        return is_current(made)
    return made.run.recorded > other.run.recorded


def _put(
    found: _Found, root: Path, is_current: IsCurrent, labels: Container[str] | None = None
) -> str:
    """Put *found* into the folder *root* in one step; better recordings there stay.

    With the *labels* of all examples, recordings there that belong to none are deleted. Nobody else
    may replace *root* meanwhile.
    """
    root = root.resolve()
    if any(map(is_held, root.rglob(".lock-*"))):
        what = "another recorder is using this folder; wait until it finishes"
        raise TransportError(f"{root}: {what}")
    atomic.remove_leftovers(root)
    with atomic.folder_beside(root) as scratch:
        new, added, replaced = scratch / "new", 0, 0
        copied: list[Path] = []
        if root.exists():
            # Temporary files of a recorder that was killed.
            left = shutil.ignore_patterns(".workspace-*", ".lock-*", ".new-*")
            shutil.copytree(root, new, symlinks=True, ignore=left)
        for place, (folder, made) in found.items():
            if link := atomic.first_link(new, place.parent):
                what = "is a symbolic link, behind which nothing is written"
                raise TransportError(f"{root / link.relative_to(new)}: {what}")
            there = _undamaged(new / place)
            if there and not _is_better(made, there, is_current):
                continue
            if (new / place / FILE_NAME).exists():
                replaced += 1
            else:
                added += 1
            copied += _copy(folder, new / place)
        deleted = [] if labels is None else _orphans(new, labels)
        for folder in deleted:
            recording.remove(folder, new)
        atomic.sync(file for file in copied if file.exists())
        if added or replaced or deleted:
            recording.protect_from_git(new, root)
            atomic.replace_folder(new, root)
    same = len(found) - added - replaced
    pruned = f", {len(deleted)} deleted" if deleted else ""
    return f"{added} added, {replaced} replaced, {same} already up to date{pruned}"


def _undamaged(folder: Path) -> Recording | None:
    """The recording in *folder*; None if it is missing or damaged, or dated in the future."""
    try:
        made = recording.load(folder)
    except RecordingError:
        return None
    return None if _is_in_the_future(made) else made


def _copy(folder: Path, target: Path) -> list[Path]:
    """Replace the folder *target* by the recording in *folder*; return its files.

    A recorder may replace *folder* meanwhile; then it is copied again.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            made = recording.load(folder)
            atomic.remove(target)
            for name in (*made.files, FILE_NAME):
                atomic.make_folder((target / name).parent)
                atomic.copy(folder / name, target / name)
            recording.load(target)
            break
        except (RecordingError, FileNotFoundError):
            if not left:
                raise
    if made.run.status == "passed":
        recording.remove_older_failure(target, made)
    return [target / name for name in (*made.files, FILE_NAME)]


def _orphans(root: Path, labels: Container[str]) -> list[Path]:
    """The folders of recordings below *root* that belong to no example of these *labels*."""
    folders = [*recording.all_recordings(root)]
    return [f for f in folders if recording.is_orphan(f.relative_to(root).parts, labels)]


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
    except Exception as error:  # a damaged archive raises whatever its bytes lead to
        raise TransportError(f"{path}: cannot be unpacked ({line(error)})") from error
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

    def unpacked(self, commit: str, scratch: Path) -> Path:
        """A folder in *scratch* with the files of *commit*, whatever git's attributes say.

        Other commands of git apply filters, which ``.git/info/attributes`` may name, and change
        files on the way.
        """
        folder = scratch / "unpacked"
        folder.mkdir()
        listed = call(self._repository, "ls-tree", "-r", "-z", "--full-tree", commit)
        plain = [entry.split("\t", 1) for entry in listed.split("\0") if entry.startswith("100")]
        blobs = {name: about.split()[2] for about, name in plain if format.is_path(name)}
        for (name, _), content in zip(
            blobs.items(), self._contents(blobs.values(), scratch), strict=True
        ):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder

    def _contents(self, blobs: Iterable[str], scratch: Path) -> Iterable[bytes]:
        """The content of each of *blobs*."""
        asked = scratch / "blobs"
        asked.write_text("".join(f"{blob}\n" for blob in blobs))
        command = ["git", "-C", str(self._repository), "cat-file", "--batch"]
        with (
            open(asked, "rb") as given,
            subprocess.Popen(
                command, stdin=given, stdout=subprocess.PIPE, env=environment()
            ) as process,
        ):
            assert process.stdout is not None
            while header := process.stdout.readline():
                size = int(header.split()[2])
                yield process.stdout.read(size)
                process.stdout.read(1)  # a line break

    def is_foreign(self, commit: str) -> bool:
        """Whether *commit* was not made by :meth:`committed`."""
        return git(self._repository, "log", "-1", "--format=%P%s", commit) != _SUBJECT

    def committed(self, folder: Path, scratch: Path) -> str:
        """A commit of the files in *folder*, without parents."""
        repository, own = self._repository, {"GIT_INDEX_FILE": str(scratch / "index")}
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        paths = "".join(f"{path}\n" for path in files)
        # Not `git add`, which changes files as attributes and settings say.
        store = ("hash-object", "-w", "--no-filters", "--stdin-paths")
        blobs = call(repository, *store, given=paths).split()
        entries = [
            f"100644 {blob}\t{path.relative_to(folder).as_posix()}\0"
            for blob, path in zip(blobs, files, strict=True)
        ]
        add = ("update-index", "--add", "-z", "--index-info")
        call(repository, *add, given="".join(entries), variables=own)
        tree = call(repository, "write-tree", variables=own)
        return call(repository, *_AUTHOR, "commit-tree", "-m", _SUBJECT, tree)

    def replace(self, old: str | None, new: str) -> None:
        """Replace the commit *old* by *new*; GitError if the branch has moved meanwhile."""
        lease = f"--force-with-lease={self._ref}:{old or ''}"
        words = ["push", "--quiet", "--no-verify", lease, self._remote, f"{new}:{self._ref}"]
        call(self._repository, *words)


def _push_to_branch(
    branch: _Branch, found: _Found, is_current: IsCurrent, labels: Container[str] | None
) -> str:
    for left in reversed(range(_ATTEMPTS)):
        old = branch.fetched()
        if old and branch.is_foreign(old):
            what = "holds commits that `push` did not make; name another"
            raise TransportError(f"{branch.place}: {what}")
        with TemporaryFolder() as scratch:
            merged = branch.unpacked(old, scratch) if old else scratch / "merged"
            changes = _put(found, merged, is_current, labels)
            commit = branch.committed(merged, scratch)
        try:
            branch.replace(old, commit)
            return changes
        except GitError:
            if not left or branch.fetched() == old:
                raise
    raise AssertionError
