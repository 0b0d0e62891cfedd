"""Recordings on the disk: find, load, check and save them.

A recording is a folder ``<recordings>/<device>[/<variant>]/<gallery>/<name>/`` with
``recording.json`` and the files that it lists. It is replaced in one step.
"""

import contextlib
import glob
import hashlib
import os
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import msgspec

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.commands import record_again
from gallery_recorder.project.galleries import Example
from gallery_recorder.project.script import Script, ScriptError, key_of
from gallery_recorder.store import atomic, format, images, migrations, reading
from gallery_recorder.store.format import FILE_NAME, Recording, slug
from gallery_recorder.store.inputs import NO_CHANGES, Changes, Here
from gallery_recorder.store.reading import NewerError, ReadingError

_DEEPEST = 20  # folders within each other, far more than a recording's path has

#: A probe's check of its own results in a recording; it raises ReadingError.
Check = Callable[[Path, Recording], None]


#: Why a folder of a recording cannot be a link: its files could lie anywhere.
_LINK = "{} is a symbolic link; replace it by the folder itself"


class RecordingError(RecorderError):
    """A recording that cannot be used; the message names file, field and remedy."""


@dataclass(frozen=True)
class Location:
    """The place of a recording: its root, device, variant, gallery and example."""

    root: Path
    device: str
    variant: str | None
    gallery: str
    name: str

    @property
    def folder(self) -> Path:
        """The folder with ``recording.json``."""
        return Path(self.root, self.device, self.variant or "", self.gallery, self.name)

    @property
    def place(self) -> str:
        """Device and variant: ``nvidia-h200/triton-3.9.0``."""
        return "/".join(filter(None, (self.device, self.variant)))

    def link_above(self) -> Path | None:
        """The first symbolic link between the root and its folder; None without one."""
        return atomic.first_link(self.root, self.folder.parent.relative_to(self.root))

    def load(self, checks: Iterable[Check] = ()) -> Recording:
        """Load it with :func:`load`; RecordingError also if it belongs elsewhere."""
        made = load(self.folder, checks)
        location_of(self.folder, self.root, made)
        return made


def _error(folder: Path, what: object, remedy: str = "") -> RecordingError:
    remedy = f"{remedy}, or {record_again(folder.name)}" if remedy else record_again(folder.name)
    return RecordingError(f"{folder / FILE_NAME}: {what}; {remedy}")


def location_of(folder: Path, root: Path, made: Recording) -> Location:
    """The location of the recording *made* in *folder*; RecordingError if it belongs elsewhere."""
    device = slug(made.provenance.device)
    location = Location(root, device, made.variant, made.gallery, made.name)
    if location.folder != folder:
        raise _error(folder, "belongs in another folder", f"move it to {location.folder}")
    return location


def find(root: Path, gallery: str, name: str) -> list[Location]:
    """The locations below *root* of recordings of the example *name* of *gallery*.

    As in :func:`all_recordings`, what lies behind a linked folder does not exist.
    """
    end = f"{gallery}/{name}/{FILE_NAME}"
    found = [p for at in ("*/", "*/*/") for p in glob.glob(at + glob.escape(end), root_dir=root)]
    paths = (Path(path).as_posix() for path in sorted(found))
    places = [path.removesuffix(f"/{end}").split("/") for path in paths]
    locations = [Location(root, p[0], p[1] if p[1:] else None, gallery, name) for p in places]
    return [at for at in locations if at.link_above() is None]


def is_current(key: str, script: Script) -> bool:
    """Whether code with this *key* is the code of *script* today."""
    return key == script.key


def current_among(
    examples: Iterable[Example], here: Here | None = None
) -> Callable[[Recording], bool]:
    """A function: whether a recording is current for its example among *examples*.

    It is of the current code, of the inputs *here*, and passed if it is to pass.
    """
    by_label = {example.label: example for example in examples}
    scripts: dict[str, Script | None] = {}

    def is_current_recording(made: Recording) -> bool:
        label = f"{made.gallery}/{made.name}"
        if label not in scripts:
            scripts[label] = None
            with contextlib.suppress(KeyError, ScriptError):
                scripts[label] = by_label[label].load()
        script = scripts[label]
        if script is None or not is_current(made.key, script):
            return False
        if made.run.status == "failed" and not by_label[label].expected_to_fail:
            return False
        return not (here and here.changes(made.inputs, made.provenance.kind, script).stale)

    return is_current_recording


class LaterFailure(msgspec.Struct, frozen=True):
    """A failure of newer code, kept beside a good recording of older code.

    ``key`` is that of the newer code; ``text`` is the message for readers.
    """

    key: format.Sha256
    recorded: format.Date
    text: str

    def save(self, folder: Path) -> None:
        """Save it beside the recording in *folder*."""
        atomic.write(_failure_path(folder), msgspec.json.encode(self))


def _failure_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.failed.json")


def later_failure(folder: Path, script: Script) -> LaterFailure | None:
    """The failure of the current code of *script* beside the recording in *folder*.

    RecordingError if its file is damaged.
    """
    if not (path := _failure_path(folder)).is_file():
        return None
    try:
        found = reading.load(path, LaterFailure)
        if not format.is_date(found.recorded):
            raise ReadingError(f"{path}: `recorded`: {found.recorded} is not a date")
    except ReadingError as error:
        raise RecordingError(f"{error}; remove the file") from error
    return found if is_current(found.key, script) else None


@dataclass(frozen=True)
class Found:
    """A recording of an example, or the *error* of a recording that cannot be used.

    Attributes:
        state: *current*, *stale*, *failed* (the current code failed), *passed* (although conf.py
            expects it to fail) or *damaged*.
        later: a failure of the current code beside a good recording.
        changes: what has changed since, besides the code.
        why: what has changed, in words; empty if the recording is of the current code and inputs.
    """

    at: Location
    state: str
    made: Recording | None = None
    error: RecordingError | None = None
    later: LaterFailure | None = None
    changes: Changes = NO_CHANGES
    why: str = ""


def of_script(
    script: Script,
    expected_to_fail: bool,
    roots: Iterable[Path],
    checks: Sequence[Check] = (),
    here: Here | None = None,
) -> list[Found]:
    """The recordings of *script* below *roots*.

    Inputs are compared with those *here*; without it, only the code is.
    """
    found = []
    for at in (at for root in roots for at in find(root, script.gallery, script.name)):
        try:
            made = at.load(checks)
            later = later_failure(at.folder, script)
        except RecordingError as error:
            found.append(Found(at, "damaged", error=error))
            continue
        changes = NO_CHANGES
        if here:
            changes = here.changes(made.inputs, made.provenance.kind, script)
        why = changed(script, made, changes.stale)
        state = _state(made, why, later, expected_to_fail)
        found.append(Found(at, state, made, later=later, changes=changes, why=why))
    return found


def _state(made: Recording, why: str, later: LaterFailure | None, expected_to_fail: bool) -> str:
    if why:
        return "failed" if later else "stale"
    if made.run.status == "failed":
        return "current" if expected_to_fail else "failed"
    if expected_to_fail:
        return "passed"
    return "failed" if later else "current"


def changed(script: Script, made: Recording, inputs: Iterable[str] = ()) -> str:
    """What has changed since *script* was recorded as *made*, in words; empty for nothing.

    The changed *inputs* are texts.
    """
    parts = []
    if not is_current(made.key, script):
        before = {block.key for block in made.blocks}
        new = sum(block.key not in before for block in script.code)
        has = "has" if new == 1 else "have"
        parts.append(f"{new} of {len(script.code)} code blocks {has} changed")
        if not new:
            parts = ["code blocks were removed or moved"]
    return "; ".join([*parts, *inputs])


def all_recordings(root: Path) -> Iterator[Path]:
    """The folder of every recording at or below *root*, without following links.

    A link to a recording's folder is among them, since :func:`load` says what is wrong with it.
    """
    for place, folders, files in os.walk(root):
        deep = len(Path(place).parts) - len(root.parts) >= _DEEPEST
        folders[:] = [] if deep else sorted(name for name in folders if name[0] != ".")
        if FILE_NAME in files:
            yield Path(place)
        for path in (Path(place, name) for name in folders):
            if path.is_symlink() and (path / FILE_NAME).exists():
                yield path


def digest(path: Path) -> str:
    """The SHA-256 of a recording's file; ReadingError if it is not a plain file."""
    return hashlib.sha256(reading.read_file(path)).hexdigest()


def load(folder: Path, checks: Iterable[Check] = ()) -> Recording:
    """Read the recording in *folder*; check it, all its files, and what probes check.

    RecordingError, with a message of one line, if it is missing or damaged. The error's cause is a
    NewerError if a newer version of this package made the recording.
    """
    remedy = ""
    try:
        if folder.is_symlink():
            raise ReadingError(_LINK.format("its folder"))
        atomic.finish_interrupted_replacement(folder)
        content = reading.read_file(folder / FILE_NAME, reading.MAX_JSON)
        recording = migrations.read(content)
        remedy = "restore it with git"
        if recording.key != key_of(block.key for block in recording.blocks):
            raise ReadingError("`key` does not match the keys of `blocks`")
        for fault in (*format.contradictions(recording), *_faults_of_files(folder, recording)):
            raise ReadingError(fault)
        for check in checks:
            check(folder, recording)
        if not format.is_as_encoded(content):
            raise ReadingError("is not the text that was recorded: `sha256` does not match it")
    except NewerError as error:  # the recorder looks for this cause
        text = f"{folder / FILE_NAME}: {error}; install a newer gallery-recorder"
        raise RecordingError(text) from error
    except (ReadingError, OSError) as error:
        raise _error(folder, reading.line(error), remedy) from error
    return recording


def _faults_of_files(folder: Path, recording: Recording) -> Iterator[str]:
    """What is wrong with the files of *recording* in *folder*."""
    inside = {parent for name in recording.files for parent in PurePath(name).parents}
    for parent in sorted(inside):
        if (folder / parent).is_symlink():
            yield f"`files`: {_LINK.format(parent)}"
    shown = {name for block in recording.blocks for name in format.files_shown(block)}
    shown.add(recording.thumbnail or "")
    for name, sha256 in recording.files.items():
        try:
            content = reading.read_file(folder / name)
            if hashlib.sha256(content).hexdigest() != sha256:
                yield f"`files`: {name} is not the file that was recorded"
            elif name in shown:
                images.check(name, content)
        except ReadingError as error:
            yield f"`files`: {name} {error}"


def save(recording: Recording, staging: Path, folder: Path) -> None:
    """Replace the recording in *folder* by *recording* and its files in *staging*, in one step.

    *staging* must be on the same file system, and does not exist afterwards. After a power cut,
    *folder* has the old recording or the new one. RecordingError if a file is missing.
    """
    atomic.write(staging / FILE_NAME, format.encode(recording))
    atomic.make_readable(staging)
    load(staging)
    atomic.sync(staging / name for name in recording.files)
    atomic.make_folder(folder.parent)
    atomic.replace_folder(staging, folder)
    remove_failure(folder)


_ATTRIBUTES = """\
# Recordings are checked by their bytes, so git changes no line ends, whatever core.autocrlf says.
* -text
"""


def protect_from_git(folder: Path, root: Path) -> None:
    """Let git keep the bytes of the recordings in *folder*, which is or becomes the folder *root*.

    Without a repository around *root* there is nothing to do; an existing file stays.
    """
    path = folder / ".gitattributes"
    in_repository = any((above / ".git").exists() for above in root.absolute().parents)
    if in_repository and not os.path.lexists(path):
        atomic.write(path, _ATTRIBUTES.encode())


def remove_failure(folder: Path) -> None:
    """Remove the later failure beside the recording in *folder*."""
    path = _failure_path(folder)
    path.unlink(missing_ok=True)
    atomic.remove_unfinished(path)


def remove_older_failure(folder: Path, made: Recording) -> None:
    """Remove the failure beside the recording *made* in *folder*, unless it happened later."""
    path = _failure_path(folder)
    if path.is_file():
        try:
            later = reading.load(path, LaterFailure)
        except ReadingError:
            later = None
        if later is None or later.recorded <= made.run.recorded:
            remove_failure(folder)


def remove(folder: Path, root: Path) -> None:
    """Remove the recording in *folder*, and then the empty folders above it, up to *root*."""
    atomic.remove(folder)
    remove_failure(folder)
    atomic.remove_empty_folders(folder, root)


def moved(old: Path, made: Recording, script: Script, staging: Path) -> Recording:
    """The recording *made* in the folder *old* as the recording of *script*, of the same code.

    Copies its files to *staging*: sphinx-gallery names images after the script.
    """
    was, now = (f"sphx_glr_{Path(name).name}_" for name in (made.name, script.name))
    for name in made.files:
        path = staging / name.replace(was, now)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(old / name, path)
    content = format.encode(made).replace(was.encode(), now.encode())
    named = {"gallery": script.gallery, "name": script.name, "title": script.title}
    return msgspec.structs.replace(migrations.read(content), **named)


def is_orphan(place: Sequence[str], labels: Container[str]) -> bool:
    """Whether *place*, a recording's path below a root, belongs to no example of these *labels*."""
    _, *rest = place
    return "/".join(rest) not in labels and "/".join(rest[1:]) not in labels  # with a variant
