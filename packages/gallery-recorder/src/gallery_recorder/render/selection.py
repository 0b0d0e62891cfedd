"""Choose the recording that each page shows.

A page shows a recording of its script's current code: from the first of ``gallery_devices`` that
has one, then of the highest variant (``release-10`` after ``release-9``), then the newest. A
recording without times is shown only if there is no other. ``gallery_unrecorded`` decides about an
example without a current recording.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from sphinx.application import Sphinx
from sphinx.util import logging

from gallery_recorder import seam
from gallery_recorder.errors import RecorderError
from gallery_recorder.project import commands, needs, reader, settings
from gallery_recorder.project.galleries import Example
from gallery_recorder.project.script import NO_CODE, CodeBlock, Script, ScriptError
from gallery_recorder.project.settings import Settings
from gallery_recorder.render import files
from gallery_recorder.store import bounds, migrations, recording
from gallery_recorder.store.format import FILE_NAME, Block, Inputs, Recording, order_of
from gallery_recorder.store.inputs import Here
from gallery_recorder.store.recording import LaterFailure, Location, RecordingError

logger = logging.getLogger(__name__)
_SHOWN = "capture_repr_block"  # a comment of a block: what of the value of its last line is shown


def _shown(code: CodeBlock, block: Block | None) -> Block | None:
    """The *block* without the value of its last line, if the script by now asks for none."""
    if block and block.value and seam.settings_in(code.block.content).get(_SHOWN) == ():
        return msgspec.structs.replace(block, value={})
    return block


@dataclass(frozen=True)
class ListedRecording:
    """A recording that was checked.

    Attributes:
        signature: digest of the sizes and times of its files when they were checked.
        digest: SHA-256 of its ``recording.json``.
        page: the main page of its example.
        state: ``shown`` on this page, ``current`` but not shown, or ``of older code``.
        failed: whether the example failed.
        assets: the files that scrapers wrote below the source folder, outside of the gallery.
        kind, inputs: the kind of its device, and the inputs that it keeps.
        why: what has changed since among its inputs, in words.
    """

    signature: str
    location: Location
    digest: str
    key: str
    device: str
    recorded: str
    timed: bool
    failed: bool = False
    page: str = ""
    state: str = ""
    kind: str = "cpu"
    inputs: Inputs | None = None
    assets: tuple[str, ...] = ()
    why: tuple[str, ...] = ()

    @property
    def content(self) -> Recording:
        """The recording itself."""
        return _content(self.folder, self.digest)

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return self.location.folder

    def is_current(self, script: Script) -> bool:
        """Whether it is of the current code of *script*, and of its inputs."""
        return recording.is_current(self.key, script) and not self.why

    @property
    def place(self) -> str:
        """Its device and variant, for readers."""
        return ", ".join(filter(None, (self.device, self.location.variant)))

    @property
    def label(self) -> str:
        """The reference label of its full record."""
        at = self.location
        return ":".join((f"recording-{at.place}", at.gallery, at.name)).lower()


@dataclass(frozen=True)
class Page:
    """An example, its script, and the recording that its page shows.

    Attributes:
        digest: SHA-256 of the script's text.
        shown: the recording; None if there is none.
        other_recordings: the other current recordings; each has a page of its own, a *view*.
        later: a failure of the current code, where the page shows older code.
        view: on a view, the end of its name, such as ``release-9``; empty on the main page.
    """

    docname: str
    example: Example
    script: Script
    digest: str
    shown: ListedRecording | None = None
    other_recordings: tuple[ListedRecording, ...] = ()
    later: LaterFailure | None = None
    view: str = ""

    @property
    def main(self) -> str:
        """The document of the example's main page."""
        return self.docname.removesuffix(f".{self.view}")

    @property
    def recording(self) -> Recording:
        """The recording that the page shows."""
        assert self.shown is not None
        return self.shown.content

    @property
    def folder(self) -> Path | None:
        """The folder of the recording's files; None without a recording."""
        return self.shown.folder if self.shown else None

    @property
    def is_stale(self) -> bool:
        """Whether the recording is of older code or inputs."""
        return self.shown is not None and not self.shown.is_current(self.script)

    @property
    def why_stale(self) -> str:
        """What has changed since the shown recording was made, in words."""
        if self.shown is None:
            return ""
        return recording.changed(self.script, self.recording, self.shown.why)

    @property
    def outputs(self) -> list[tuple[CodeBlock, Block | None]]:
        """Each code block with its recorded block, or with the older block that it replaced."""
        old, new = self.recording.blocks, self.script.code
        keys = [block.key for block in old], [code.key for code in new]
        found: dict[int, Block] = {}
        for _, at, end, there, until in SequenceMatcher(None, *keys, False).get_opcodes():
            before, now = [*old[at:end]], range(there, until)
            if len(before) == len(now):
                found |= zip(now, before, strict=True)
                continue
            # Blocks were added or removed: pair those whose code is most similar.
            if len(before) * len(now) <= _MOST_PAIRS:
                found |= _most_similar(before, {n: new[n] for n in now})
        return [(code, _shown(code, found.get(number))) for number, code in enumerate(new)]

    @property
    def stamp(self) -> str:
        """Digests of the script and its recordings: pages with equal stamps are equal."""
        shown = (self.shown, *self.other_recordings) if self.shown else ()
        parts = [self.digest, *(f"{at.location.place} {at.digest}" for at in shown)]
        if self.shown and self.shown.why:
            parts.append(hashlib.sha256("; ".join(self.shown.why).encode()).hexdigest())
        return " ".join([*parts, self.later.recorded] if self.later else parts)

    @property
    def views(self) -> "list[Page]":
        """The pages of the script's other recordings."""
        found = []
        for item in self.other_recordings:
            at, own = item.location, self.shown.location if self.shown else None
            device = "" if own and at.variant and at.device == own.device else at.device
            view = "-".join(filter(None, (device, at.variant)))
            name = f"{self.docname}.{view}"
            found.append(
                replace(self, docname=name, shown=item, other_recordings=(), later=None, view=view)
            )
        return found


def _most_similar(old: list[Block], new: dict[int, CodeBlock]) -> dict[int, Block]:
    """For each *new* block, by its number, the one of the *old* blocks with the most similar code.

    Blocks without a similar one are left out; no old block is used twice.
    """
    old_words = [_words(block.code) for block in old]
    pairs = []
    for number, code in new.items():
        words = _words(code.block.content)
        pairs += [(_similarity(old_words[i], words), number, i) for i in range(len(old))]
    found: dict[int, Block] = {}
    used: set[int] = set()
    for similarity, number, i in sorted(pairs, key=lambda pair: (-pair[0], pair[1])):
        if similarity > 0.6 and number not in found and i not in used:
            found[number] = old[i]
            used.add(i)
    return found


#: The most pairs of blocks whose code is compared.
_MOST_PAIRS = 10_000


def _similarity(old: Counter[str], new: Counter[str]) -> float:
    """How similar two blocks are, from 0 to 1, by the words that both have.

    It takes time in proportion to their length, and the old block is from a recording.
    """
    both = (old & new).total()
    return 2 * both / max(old.total() + new.total(), 1)


def _words(code: str) -> Counter[str]:
    return Counter(re.findall(r"\w+|\S", code))


@lru_cache(maxsize=1000)
def _content(folder: Path, digest: str) -> Recording:
    """The recording of this *digest*, read once."""
    del digest
    return migrations.read((folder / FILE_NAME).read_bytes())


@dataclass
class Selection:
    """The pages of a build by document, and its recordings.

    Attributes:
        recordings: the listed ones, sorted.
        checked: all undamaged recordings, by folder.
        archives: the zip files that pages offer for download, by path.
    """

    pages: dict[str, Page] = field(default_factory=dict)
    recordings: list[ListedRecording] = field(default_factory=list)
    checked: dict[Path, ListedRecording] = field(default_factory=dict)
    archives: dict[Path, Any] = field(default_factory=dict)

    @property
    def main(self) -> list[Page]:
        """The main page of each script."""
        return [page for page in self.pages.values() if not page.view]


def choose(
    app: Sphinx, before: Selection, examples: list[Example], gallery_conf: dict[str, Any]
) -> Selection:
    """Choose the recording of each of the *examples*; skip files unchanged since *before*.

    *gallery_conf* are sphinx-gallery's settings for executing examples.

    Raises:
        RecorderError: scripts are damaged or recordings missing, and ``gallery_unrecorded`` makes
            this an error; the message lists all of them.
    """
    said = settings.read(app.config, Path(app.confdir))
    rules = reader.input_rules(app, said, Path(app.confdir))
    here = Here(rules, said, settings.changing_outputs(gallery_conf))
    chosen = Selection(archives=before.archives)
    chosen.checked, damaged = _recordings(said, before.checked)
    found: dict[tuple[str, str], list[ListedRecording]] = {}
    for item in chosen.checked.values():
        found.setdefault((item.location.gallery, item.location.name), []).append(item)
    problems: list[str] = []
    known = {page.example: page for page in before.main}
    taken = {f"{example.pages}/{example.path.stem}" for example in examples}
    without: list[str] = []
    failed: list[str] = []
    for example in examples:
        if not example.executed:
            continue  # sphinx-gallery shows it without outputs
        try:
            page = _page(example, known.get(example))
            needed = needs.needs_of(page.script)
        except ScriptError as error:
            problems.append(str(error))
            continue
        if page.script.key == NO_CODE:
            continue  # sphinx-gallery shows it; there is nothing to execute
        items = found.get((example.gallery, example.name), [])
        items[:] = [with_changes(item, here, page.script) for item in items]
        shown = best(page.script, items, said.devices)
        others = _others(shown, items) if shown and said.others else ()
        if shown is None and said.unrecorded == "stale":
            shown = best(None, items, said.devices)
        later = _later_failure(items, page.script)
        page = replace(page, shown=shown, other_recordings=others, later=later)
        page = _without_taken_views(page, {*taken, *chosen.pages})
        chosen.pages |= {one.docname: one for one in (page, *page.views)}
        if shown is None and later:
            failed.append(_failed(example, later, "the page shows no outputs"))
        elif shown is None and not needed:
            without.append(example.name)
        elif later:
            text = _failed(example, later, "the page shows the outputs of an earlier run")
            logger.warning("%s", text, type="gallery", subtype="failed")
    for text in damaged:
        logger.warning("%s", text, type="gallery", subtype="recording")
    if without and said.unrecorded != "no-output":
        text = f"No recording matches the code of: {', '.join(without)}.\n"
        if not any(root.is_dir() for root in said.roots):
            pull = f"{commands.command()} pull PLACE"
            text += f"{said.roots[0]}: does not exist. If recordings are kept elsewhere: {pull}\n"
        problems.append(f"{text}Record these examples with: {commands.record(without)}")
    if said.unrecorded in ("error", "stale"):
        problems += failed  # otherwise sphinx-gallery reports them
        if problems:
            raise RecorderError("\n\n".join(problems))
    for text in problems:
        logger.warning("%s", text, type="gallery", subtype="unrecorded")
    chosen.recordings = _listed(found, chosen.main)
    return chosen


def _failed(example: Example, later: LaterFailure, shown: str) -> str:
    """The message about an example whose current code failed."""
    why = later.text.splitlines()[0]
    return f"{example.name}: failed when it was recorded ({later.recorded}); {shown}. {why}"


def _later_failure(items: Iterable[ListedRecording], script: Script) -> LaterFailure | None:
    """The first failure of the current code beside one of the recordings *items*.

    A damaged file about a failure is reported and left out.
    """
    for item in items:
        try:
            later = recording.later_failure(item.folder, script)
        except RecordingError as error:
            logger.warning("%s", error, type="gallery", subtype="recording")
            continue
        if later:
            return later
    return None


def _without_taken_views(page: Page, taken: set[str]) -> Page:
    """*page* without the other recordings whose view would have the name of another page."""
    kept = []
    for view, item in zip(page.views, page.other_recordings, strict=True):
        if view.docname in taken:
            text = f"{item.folder / FILE_NAME}: has no page, since {view.docname} is another page"
            logger.warning("%s; rename its device", text, type="gallery", subtype="recording")
            continue
        taken = {*taken, view.docname}
        kept.append(item)
    return replace(page, other_recordings=tuple(kept))


def _recordings(
    said: Settings, before: dict[Path, ListedRecording]
) -> tuple[dict[Path, ListedRecording], list[str]]:
    """All undamaged recordings by folder, and the messages about damaged ones.

    Files unchanged since *before* are not hashed again.
    """
    found: dict[Path, ListedRecording] = {}
    damaged: list[str] = []
    checks = bounds.checks_of(said)
    for root in said.roots:
        for folder in recording.all_recordings(root):
            signature = files.digest(files.times([folder]))
            known = before.get(folder)
            if known and known.signature == signature:
                found[folder] = known
                continue
            try:
                found[folder] = checked(folder, root, checks, signature)
            except RecordingError as error:
                damaged.append(str(error))
    return found, damaged


def checked(folder: Path, root: Path, checks: list[Any], signature: str = "") -> ListedRecording:
    """The recording in *folder* below *root*; RecordingError if it is damaged."""
    made = recording.load(folder, checks)
    return ListedRecording(
        signature=signature,
        location=recording.location_of(folder, root, made),
        digest=hashlib.sha256((folder / FILE_NAME).read_bytes()).hexdigest(),
        key=made.key,
        device=made.provenance.device,
        recorded=made.run.recorded,
        timed=made.timed,
        failed=made.run.status == "failed",
        kind=made.provenance.kind,
        inputs=made.inputs,
        assets=names_below_source(made),
    )


def names_below_source(made: Recording) -> tuple[str, ...]:
    """The files that scrapers wrote below the source folder, outside of the gallery."""
    names = (name for block in made.blocks for name in block.images)
    return tuple(name for name in names if name.startswith("source/"))


def with_changes(item: ListedRecording, here: Here, script: Script) -> ListedRecording:
    """The recording *item* of *script* with what has changed since."""
    return replace(item, why=here.changes(item.inputs, item.kind, script).stale)


def _page(example: Example, known: Page | None) -> Page:
    """The page of *example*; an unchanged script is not split again but taken from *known*."""
    digest = hashlib.sha256(example.path.read_bytes()).hexdigest()
    if known and known.digest == digest and "depends" not in known.script.settings:
        return known  # the code that another script depends on may have changed
    return Page(f"{example.pages}/{example.path.stem}", example, example.load(), digest)


def best(
    script: Script | None, found: list[ListedRecording], devices: Sequence[str]
) -> ListedRecording | None:
    """The recording to show, of those of the current code of *script*; of all without a script."""
    order = {name: number for number, name in enumerate(devices)}

    def rank(item: ListedRecording) -> tuple[bool, bool, int]:
        at = item.location
        return item.failed, not item.timed, order.get(at.place, order.get(at.device, len(order)))

    def age(item: ListedRecording) -> tuple[list[tuple[int, int | str]], str]:
        return order_of(item.location.variant or ""), item.recorded

    fits = (item for item in found if script is None or item.is_current(script))
    return min(sorted(fits, key=age, reverse=True), key=rank, default=None)


def _others(shown: ListedRecording, found: list[ListedRecording]) -> tuple[ListedRecording, ...]:
    """The newest timed recording of the same code from each other device and variant."""
    places = {
        item.location.place: item
        for item in sorted(found, key=lambda item: (item.location.place, item.recorded))
        if item.key == shown.key
        and item.why == shown.why
        and item.timed
        and item.location.place != shown.location.place
    }
    return tuple(places.values())


def _listed(
    found: dict[tuple[str, str], list[ListedRecording]], pages: list[Page]
) -> list[ListedRecording]:
    """The recordings of *pages*, sorted, without untimed recordings that no page shows."""
    items = []
    for page in pages:
        for item in found.get((page.example.gallery, page.example.name), []):
            is_shown = page.shown is not None and page.shown.location == item.location
            state = "shown" if is_shown else "current"
            if not recording.is_current(item.key, page.script):
                state = "of older code"
            elif item.why:
                state = "of older inputs"
            if item.timed or is_shown:
                items.append(replace(item, page=page.docname, state=state))

    def order(item: ListedRecording) -> tuple[int, str, str]:
        name = item.location.name
        return name.count("/"), name, item.location.place

    return sorted(items, key=order)
