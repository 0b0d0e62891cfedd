"""Which recording each page shows, and which of them have changed since the last build.

A page shows a recording whose key is its script's: of the device that ``gallery_devices`` names
first, and of several the one of the highest variant (``release-10`` after ``release-9``), and of
several of these the newest; one that was not timed only where there is no other. What a missing one
means, ``gallery_unrecorded`` says.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

from gallery_recorder.render import files
from gallery_recorder.source import commands, needs, reader, settings
from gallery_recorder.source.project import Example
from gallery_recorder.source.script import NO_CODE, Script, ScriptError
from gallery_recorder.source.settings import Settings
from gallery_recorder.store import recording
from gallery_recorder.store.recording import Location, Recording, RecordingError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Page:
    """A script and the recording that its page shows.

    Attributes:
        docname: the page.
        example: the script, as the project has it.
        digest: SHA-256 of the script's text.
        key, title, introduction, settings, needs: what the script says.
        location: where the recording lies; None where there is none.
        recorded: SHA-256 of its ``recording.json``.
    """

    docname: str
    example: Example
    digest: str
    key: str
    title: str
    introduction: str
    settings: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    location: Location | None = None
    recorded: str = ""

    @cached_property
    def script(self) -> Script:
        """The script, split into blocks; read when it is asked for."""
        return self.example.load()

    @property
    def path(self) -> Path:
        """The script's file."""
        return self.example.path

    @property
    def name(self) -> str:
        """What it is recorded under, below its gallery."""
        return self.example.name

    @property
    def pages(self) -> str:
        """The folder of the pages of its gallery."""
        return posixpath.normpath(posixpath.join(self.example.pages, *[".."] * self.depth))

    @property
    def depth(self) -> int:
        """How many folders below its gallery's the page is."""
        return self.example.name.count("/")

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def recording(self) -> Recording:
        """The recording, which was checked when it was chosen."""
        assert self.location is not None
        return _read(self.location.folder)

    @property
    def folder(self) -> Path | None:
        """The recording's folder."""
        return self.location.folder if self.location else None

    @property
    def device(self) -> str:
        """Where the recording was made: a device, and a variant where it has one."""
        return self.location.place if self.location else ""

    @property
    def stamp(self) -> str:
        """Two pages of one stamp are alike, as far as script and recording go."""
        return f"{self.digest} {self.device} {self.recorded}"


@dataclass(frozen=True)
class Seen:
    """What is known of a recording whose files have the sizes and times of ``signature``."""

    signature: str
    location: Location
    digest: str
    key: str
    title: str
    device: str
    recorded: str
    timed: bool


@dataclass
class Choice:
    """What was chosen for a build: its pages and all recordings that there are."""

    pages: dict[str, Page] = field(default_factory=dict)
    recordings: list[ListedRecording] = field(default_factory=list)
    seen: dict[Path, Seen] = field(default_factory=dict)

    @cached_property
    def digests(self) -> dict[str, str]:
        """Of what pages may be made from: all recordings, and all introductions of scripts."""
        listed = (f"{item.label} {item.digest} {item.state}" for item in self.recordings)
        texts = (f"{page.docname} {page.title} {page.introduction}" for page in self.pages.values())
        return {"recordings": files.digest(listed), "introductions": files.digest(texts)}


@dataclass(frozen=True)
class ListedRecording:
    """A recording that there is, and what pages say of it.

    Attributes:
        location: where it lies.
        digest: SHA-256 of its ``recording.json``.
        pages: the folder of its gallery's pages; empty where there is no such gallery.
        page: the page of its script; empty where that is gone.
        state: whether it is shown, or why not.
    """

    location: Location
    digest: str
    title: str
    device: str
    recorded: str
    timed: bool
    pages: str
    page: str
    state: str

    @property
    def content(self) -> Recording:
        """The recording itself, which was checked when all were listed."""
        return _read(self.location.folder)

    @property
    def name(self) -> str:
        """The script's path below its gallery, without suffix."""
        return self.location.name

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.location.folder

    @property
    def docname(self) -> str | None:
        """The page of its script; None where that is gone."""
        return self.page or None

    @property
    def shown(self) -> bool:
        """Whether its script's page shows it."""
        return self.state == "shown"

    @property
    def label(self) -> str:
        """The reference label of its full record."""
        return label(self.location)


def _read(folder: Path) -> Recording:
    return recording.DECODER.decode((folder / recording.FILE_NAME).read_bytes())


def label(location: Location) -> str:
    """The reference label of the full record of a recording."""
    parts = ("recording", location.place, location.gallery, location.name)
    return "-".join(parts).replace("/", "-").lower()


def choose(app: Sphinx, before: Choice) -> Choice:
    """The recording of each script; what *before* says of unchanged files is taken.

    Raises:
        ExtensionError: scripts or recordings are damaged, or scripts lack one and must not; all
            are listed.
        SettingsError: a setting means nothing.
    """
    said = settings.read(app.config, Path(app.confdir))
    chosen = Choice()
    chosen.seen, damaged = _recordings(said, before.seen)
    found: _Found = {}
    for item in chosen.seen.values():
        found.setdefault((item.location.gallery, item.location.name), []).append(item)
    problems: list[str] = []
    known = {page.path: page for page in before.pages.values()}
    without: list[Page] = []
    for example in reader.examples_of(app):
        if not example.recorded:
            continue  # sphinx-gallery shows it without outputs
        try:
            page = _page(example, known.get(example.path))
        except ScriptError as error:
            problems.append(str(error))
            continue
        if page.key == NO_CODE:
            continue  # the same: there is nothing to execute
        page = _with(page, *_best(page, found.get((example.gallery, example.name), []), said))
        chosen.pages[page.docname] = page
        if page.location is not None or page.needs:
            continue
        own = [place for place in damaged if place.endswith(f"/{example.gallery}/{example.name}")]
        problems += [damaged.pop(place) for place in own]
        if not own:
            without.append(page)
    for error_text in damaged.values():  # one recording less; the other ones are whole
        logger.warning("%s", error_text, type="gallery", subtype="recording")
    problems += _missing(without, said)
    if problems:
        raise ExtensionError("\n\n".join(problems))
    chosen.recordings = _listed(found, chosen.pages)
    return chosen


#: Recordings by gallery and name.
_Found = dict[tuple[str, str], list[Seen]]


def _recordings(
    said: Settings, before: dict[Path, Seen]
) -> tuple[dict[Path, Seen], dict[str, str]]:
    """All recordings below the configured folders; of the damaged ones, the place and the fault.

    Each is checked, with the hashes of its files, unless it has been and no file is newer.
    """
    found: dict[Path, Seen] = {}
    damaged: dict[str, str] = {}
    for root in said.roots:
        for folder in recording.all_recordings(root):
            signature = files.digest(files.times([folder]))
            known = before.get(folder)
            if known and known.signature == signature:
                found[folder] = known
                continue
            try:
                made = recording.load(folder)
                at = recording.location_of(folder, root, made)
            except RecordingError as error:
                damaged[folder.relative_to(root).as_posix()] = str(error)
                continue
            found[folder] = Seen(
                signature=signature,
                location=at,
                digest=hashlib.sha256((folder / recording.FILE_NAME).read_bytes()).hexdigest(),
                key=made.key,
                title=made.title,
                device=made.provenance.device,
                recorded=made.run.recorded,
                timed=made.timed,
            )
    return found, damaged


def _page(example: Example, known: Page | None) -> Page:
    """What a script says; read anew where it has changed."""
    digest = hashlib.sha256(example.path.read_bytes()).hexdigest()
    if known and known.digest == digest and known.example == example:
        return _with(known, None, "")
    made = example.load()
    page = Page(
        docname=f"{example.pages}/{example.path.stem}",
        example=example,
        digest=digest,
        key=made.key,
        title=made.title,
        introduction=made.blocks[0].content,
        settings=made.settings,
        needs=tuple(needs.needs_of(made)),
    )
    page.__dict__["script"] = made  # it is asked for soon
    return page


def _with(page: Page, location: Location | None, digest: str) -> Page:
    made = replace(page, location=location, recorded=digest)
    if "script" in page.__dict__:
        made.__dict__["script"] = page.script
    return made


def _numbers(variant: str | None) -> list[int]:
    """The numbers in a variant's name, by which releases are ordered."""
    return [int(number) for number in re.findall(r"\d+", variant or "")]


def _best(page: Page, found: list[Seen], said: Settings) -> tuple[Location | None, str]:
    """The recording to show, of those that belong to the script's code."""
    current = [item for item in found if item.key == page.key]
    order = {name: number for number, name in enumerate(said.devices)}

    def rank(item: Seen) -> tuple[bool, int]:
        at = item.location
        return not item.timed, order.get(at.place, order.get(at.device, len(order)))

    current.sort(key=lambda item: item.recorded, reverse=True)
    current.sort(key=lambda item: _numbers(item.location.variant), reverse=True)
    current.sort(key=rank)
    return (current[0].location, current[0].digest) if current else (None, "")


def _missing(without: list[Page], said: Settings) -> list[str]:
    """What is said of scripts without a recording, as ``gallery_unrecorded`` has it."""
    if not without or said.unrecorded == "no-output":
        return []
    names = [page.name for page in without]
    text = (
        f"No recording belongs to the code of: {', '.join(names)}.\n"
        f"Record what is missing with: {commands.record(names)}"
    )
    if said.unrecorded == "error":
        return [text]
    logger.warning("%s", text, type="gallery", subtype="unrecorded")
    return []


def _listed(found: _Found, pages: dict[str, Page]) -> list[ListedRecording]:
    """All recordings, sorted; those that were not timed only where they are shown."""
    by_name = {(page.example.gallery, page.name): page for page in pages.values()}
    folders = {page.example.gallery: page.pages for page in pages.values()}
    items = []
    for key, several in found.items():
        page = by_name.get(key)
        for item in several:
            if page is None:
                state = "its script is gone"
            elif page.location == item.location:
                state = "shown"
            else:
                state = "current" if item.key == page.key else "of older code"
            if item.timed or state == "shown":
                items.append(
                    ListedRecording(
                        location=item.location,
                        digest=item.digest,
                        title=item.title,
                        device=item.device,
                        recorded=item.recorded,
                        timed=item.timed,
                        pages=folders.get(item.location.gallery, ""),
                        page=page.docname if page else "",
                        state=state,
                    )
                )
    return sorted(items, key=lambda item: (item.name.count("/"), item.name, item.location.place))
