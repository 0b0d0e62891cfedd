"""Which recording each page shows, and which of them have changed since the last build.

A page shows a recording whose key is its script's: of the device that ``gallery_devices`` names
first, and of several the one of the highest variant (``release-10`` after ``release-9``), and of
several of these the newest; one that was not timed only where there is no other. What a missing one
means, ``gallery_unrecorded`` says.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

from gallery_recorder.project import commands, needs, script, settings
from gallery_recorder.project.galleries import Example
from gallery_recorder.project.script import NO_CODE, Script, ScriptError, key_of
from gallery_recorder.project.settings import Settings
from gallery_recorder.render import files
from gallery_recorder.store import names, recording
from gallery_recorder.store.format import DECODER, FILE_NAME, Recording
from gallery_recorder.store.recording import Location, RecordingError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ListedRecording:
    """A recording that there is, and what pages say of it.

    Attributes:
        signature: of the sizes and times of its files, when it was checked.
        location: where it lies.
        digest: SHA-256 of its ``recording.json``.
        key, title, device, recorded, timed: what it says.
        pages: the folder of its gallery's pages; empty where there is no such gallery.
        page: the page of its script; empty where that is gone.
        state: whether it is shown, or why not.
    """

    signature: str
    location: Location
    digest: str
    key: str
    title: str
    device: str
    recorded: str
    timed: bool
    pages: str = ""
    page: str = ""
    state: str = "its script is gone"

    @property
    def content(self) -> Recording:
        """The recording itself, which was checked when all were listed."""
        return _content(self.folder, self.digest)

    @property
    def name(self) -> str:
        """The script's path below its gallery, without suffix."""
        return self.location.name

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.location.folder

    @property
    def shown(self) -> bool:
        """Whether its script's page shows it."""
        return self.state == "shown"

    @property
    def label(self) -> str:
        """The reference label of its full record."""
        at = self.location
        return "-".join(("recording", at.place, at.gallery, at.name)).lower()


@dataclass(frozen=True)
class Page:
    """A script and the recording that its page shows.

    Attributes:
        docname: the page.
        example: the script, as the project has it.
        digest: SHA-256 of the script's text.
        key, title, introduction, settings, needs: what the script says.
        recorded: the recording; None where there is none.
        others: its other current recordings, with ``gallery_others``.
        view: of a page as another recording has it, which; a part of names of files.
    """

    docname: str
    example: Example
    digest: str
    key: str
    title: str
    introduction: str
    settings: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    recorded: ListedRecording | None = None
    others: tuple[ListedRecording, ...] = ()
    view: str = ""

    @property
    def script(self) -> Script:
        """The script, split into blocks; read when it is asked for."""
        return _script(self.example, self.digest)

    @property
    def path(self) -> Path:
        """The script's file."""
        return self.example.path

    @property
    def pages(self) -> str:
        """The folder of the pages of its gallery."""
        up = [".."] * self.example.name.count("/")
        return posixpath.normpath(posixpath.join(self.example.pages, *up))

    @property
    def recording(self) -> Recording:
        """The recording, which was checked when it was chosen."""
        assert self.recorded is not None
        return self.recorded.content

    @property
    def folder(self) -> Path | None:
        """The recording's folder."""
        return self.recorded.folder if self.recorded else None

    @property
    def stamp(self) -> str:
        """Two pages of one stamp are alike, as far as script and recording go."""
        shown = (self.recorded, *self.others) if self.recorded else ()
        return " ".join([self.digest, *(f"{at.location.place} {at.digest}" for at in shown)])

    @property
    def views(self) -> list[Page]:
        """The page as each of its other recordings has it."""
        return [
            replace(self, recorded=item, others=(), view=item.location.place.replace("/", "-"))
            for item in self.others
        ]


@lru_cache(maxsize=1000)
def _content(folder: Path, digest: str) -> Recording:
    """The recording of this *digest*, read once."""
    del digest
    return DECODER.decode((folder / FILE_NAME).read_bytes())


@cache
def _script(example: Example, digest: str) -> Script:
    """The script of this *digest*, read once."""
    del digest
    return example.load()


@dataclass
class Selection:
    """What was chosen for a build: its pages and all recordings that there are.

    ``checked`` are all recordings that were found whole, by their folders, and ``archives`` the zip
    files that sphinx-gallery made of the pages.
    """

    pages: dict[str, Page] = field(default_factory=dict)
    recordings: list[ListedRecording] = field(default_factory=list)
    checked: dict[Path, ListedRecording] = field(default_factory=dict)
    archives: dict[Path, Any] = field(default_factory=dict)


def choose(app: Sphinx, before: Selection, examples: list[Example]) -> Selection:
    """The recording of each of the *examples*; what *before* says of unchanged files is taken.

    Raises:
        ExtensionError: scripts or recordings are damaged, or scripts lack one and must not; all
            are listed.
        SettingsError: a setting means nothing.
    """
    said = settings.read(app.config, Path(app.confdir))
    chosen = Selection(archives=before.archives)
    chosen.checked, damaged = _recordings(said, before.checked)
    found: _Found = {}
    for item in chosen.checked.values():
        found.setdefault((item.location.gallery, item.name), []).append(item)
    problems: list[str] = []
    known = {page.path: page for page in before.pages.values()}
    without: list[str] = []
    for example in examples:
        if not example.recorded:
            continue  # sphinx-gallery shows it without outputs
        try:
            page = _page(example, known.get(example.path))
        except ScriptError as error:
            problems.append(str(error))
            continue
        if page.key == NO_CODE:
            continue  # the same: there is nothing to execute
        items = found.get((example.gallery, example.name), [])
        shown = best(page.key, items, said.devices)
        others = others_than(shown, items) if shown and said.others else ()
        chosen.pages[page.docname] = page = replace(page, recorded=shown, others=others)
        if shown or page.needs:
            continue
        own = [place for place in damaged if place.endswith(f"/{example.gallery}/{example.name}")]
        problems += [damaged.pop(place) for place in own]
        if not own:
            without.append(example.name)
    for error_text in damaged.values():  # one recording less; the other ones are whole
        logger.warning("%s", error_text, type="gallery", subtype="recording")
    problems += _missing(without, said)
    if problems:
        raise ExtensionError("\n\n".join(problems))
    chosen.recordings = _listed(found, chosen.pages)
    return chosen


#: Recordings by gallery and name.
_Found = dict[tuple[str, str], list[ListedRecording]]


def _recordings(
    said: Settings, before: dict[Path, ListedRecording]
) -> tuple[dict[Path, ListedRecording], dict[str, str]]:
    """All recordings below the configured folders; of the damaged ones, the place and the fault.

    Each is checked, with the hashes of its files, unless it has been and no file is newer.
    """
    found: dict[Path, ListedRecording] = {}
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
            found[folder] = ListedRecording(
                signature=signature,
                location=at,
                digest=hashlib.sha256((folder / FILE_NAME).read_bytes()).hexdigest(),
                # Blocks of other code than it says are shown for no code.
                key=made.key if made.key == key_of(block.key for block in made.blocks) else "",
                title=made.title,
                device=made.provenance.device,
                recorded=made.run.recorded,
                timed=made.timed,
            )
    return found, damaged


def _page(example: Example, known: Page | None) -> Page:
    """What a script says; read anew where it has changed."""
    digest = hashlib.sha256(script.read(example.path, example.source)).hexdigest()
    if known and known.digest == digest and known.example == example:
        return known
    made = _script(example, digest)
    return Page(
        docname=f"{example.pages}/{example.path.stem}",
        example=example,
        digest=digest,
        key=made.key,
        title=made.title,
        introduction=made.blocks[0].content,
        settings=made.settings,
        needs=tuple(needs.needs_of(made)),
    )


def best(key: str, found: list[ListedRecording], devices: Sequence[str]) -> ListedRecording | None:
    """The recording to show, of those that belong to the code that *key* is of."""
    order = {name: number for number, name in enumerate(devices)}

    def rank(item: ListedRecording) -> tuple[bool, int]:
        at = item.location
        return not item.timed, order.get(at.place, order.get(at.device, len(order)))

    def age(item: ListedRecording) -> tuple[list[tuple[int, int | str]], str]:
        return names.order_of(item.location.variant or ""), item.recorded

    current = sorted((item for item in found if item.key == key), key=age, reverse=True)
    return min(current, key=rank, default=None)


def others_than(
    shown: ListedRecording, found: list[ListedRecording]
) -> tuple[ListedRecording, ...]:
    """The timed recordings of the same code at other places, at each the newest."""
    places = {
        item.location.place: item
        for item in sorted(found, key=lambda item: (item.location.place, item.recorded))
        if item.key == shown.key and item.timed and item.location.place != shown.location.place
    }
    return tuple(places.values())


def _missing(without: list[str], said: Settings) -> list[str]:
    """What is said of scripts without a recording, as ``gallery_unrecorded`` has it."""
    if not without or said.unrecorded == "no-output":
        return []
    text = (
        f"No recording belongs to the code of: {', '.join(without)}.\n"
        f"Record what is missing with: {commands.record(without)}"
    )
    if said.unrecorded == "error":
        return [text]
    logger.warning("%s", text, type="gallery", subtype="unrecorded")
    return []


def _listed(found: _Found, pages: dict[str, Page]) -> list[ListedRecording]:
    """All recordings, sorted; those that were not timed only where they are shown."""
    by_name = {(page.example.gallery, page.example.name): page for page in pages.values()}
    folders = {page.example.gallery: page.pages for page in pages.values()}
    items = []
    for (gallery, name), several in found.items():
        page = by_name.get((gallery, name))
        for item in several:
            item = replace(item, pages=folders.get(gallery, ""))
            if page is not None:
                shown = page.recorded and page.recorded.location == item.location
                state = "current" if item.key == page.key else "of older code"
                item = replace(item, page=page.docname, state="shown" if shown else state)
            if item.timed or item.shown:
                items.append(item)
    return sorted(items, key=lambda item: (item.name.count("/"), item.name, item.location.place))
