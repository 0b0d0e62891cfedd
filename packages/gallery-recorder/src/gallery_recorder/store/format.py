"""The structure of ``recording.json``, and checks for contradictions in one."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, TypedDict
from unicodedata import normalize

import msgspec
from msgspec import Meta

FILE_NAME = "recording.json"

#: The version of the structures below. A new field with a default leaves it as it is, since older
#: engines ignore unknown fields. Any other change raises it and adds a step to ``migrations.py``.
SCHEMA = 4

#: Placeholder in HTML of a scraper for the folder of its page, which may be renamed.
GALLERY_FOLDER = "@@gallery@@"

#: Suffixes of files that a build would read as pages or execute.
_SOURCES = (".inc", ".ipynb", ".md", ".py", ".rest", ".rst", ".txt")
#: Suffixes of images that can become thumbnails.
_THUMBNAILS = (".gif", ".jpeg", ".jpg", ".png", ".svg", ".webp")

# Characters of no file name: control characters, those that Windows refuses, all white space but
# single spaces, and what is invisible or turns the direction of text.
_NOT_IN_NAMES = (
    r"\x00-\x1f\x7f-\xa0\xad/\\<>:\"|?*\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    r"\u3000\ud800-\udfff\ufeff\ufff9-\ufffb"
)
_DEVICES_OF_WINDOWS = r"(?i:aux|con|nul|prn|com[0-9]|lpt[0-9])(?:[./]|\Z)"
# Nothing hidden, no step upwards, no name that some system cannot check out.
_PART = rf"(?![. ])(?!{_DEVICES_OF_WINDOWS})[^{_NOT_IN_NAMES}]+(?<![. ])"
_FileName = Annotated[str, Meta(max_length=240, pattern=rf"^(?!.*  ){_PART}(?:/{_PART})*\Z")]
_FolderName = Annotated[str, Meta(max_length=240, pattern=rf"^(?!.*  ){_PART}\Z")]
# The argument of a directive has no space, and a list of images is split at commas.
_ShownFile = Annotated[str, Meta(max_length=240, pattern=rf"^(?!.*[ ,]){_PART}(?:/{_PART})*\Z")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Slug = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}\Z")]
Date = Annotated[str, Meta(pattern=r"^[12][0-9]{3}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z\Z")]
# sphinx-gallery names files after objects.
_Object = Annotated[str, Meta(pattern=r"^(?!\.\.)[ !#-&()+,\-.0-9;=@A-Z\[\]^_a-z{}~]{0,200}\Z")]
# An input, relative to the folder of conf.py.
_InputName = Annotated[
    str,
    Meta(
        max_length=1000,
        pattern=r"^(?:\.\./)*(?!\.{1,2}(?:/|\Z))[^\x00-\x1f\x7f/\\\ud800-\udfff]+"
        r"(?:/(?!\.{1,2}(?:/|\Z))[^\x00-\x1f\x7f/\\\ud800-\udfff]+)*\Z",
    ),
]
_Line = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f\x85\u2028\u2029]*\Z")]
# Pages calculate with these numbers, so they have bounds, far beyond any machine.
_Count = Annotated[int, Meta(ge=0, le=10**18)]
_Seconds = Annotated[float, Meta(ge=0, le=1e8)]
# Attributes of images, which become options of directives.
_Scale = Annotated[str, Meta(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3})?\Z")]
_Class = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,99}\Z")]
_Length = Annotated[str, Meta(pattern=r"^[0-9]{1,6}(\.[0-9]{1,4})?(px|em|ex|in|cm|mm|pt|pc|%)?\Z")]
_Percent = Annotated[int, Meta(ge=1, le=1000)]
_Align = Literal["left", "center", "right", "top", "middle", "bottom"]
_Link = Annotated[str, Meta(pattern=r"^https?://[!#$%&()*+,\-./0-9:;=?@A-Z\[\]_a-z~]{1,2000}\Z")]
_Memory = Annotated[float, Meta(ge=-1e12, le=1e12)]


class _Struct(msgspec.Struct, frozen=True):
    """A part of a recording; fields that only newer engines know are ignored."""


class Image(_Struct, frozen=True, omit_defaults=True, tag="image", tag_field="kind"):
    """An image with its alternative text, and a figure's ``caption``.

    Attributes:
        scraped: whether it is from sphinx-gallery's ``figure_rst``, with ``sources``.
        sources: versions for finer screens, by scale: ``{"2.0": "images/…_2_00x.png"}``.
        width, height: with a unit or in pixels; *width* also in percent.
        scale: in percent.
        link: the address that the image leads to.
        container: the classes of a container around it.
    """

    file: _ShownFile
    alt: _Line | None = None
    scraped: bool = False
    sources: dict[_Scale, _ShownFile] = {}
    classes: tuple[_Class, ...] = ()
    width: _Length | None = None
    height: _Length | None = None
    scale: _Percent | None = None
    align: _Align | None = None
    loading: Literal["embed", "link", "lazy"] | None = None
    link: _Link | None = None
    caption: _Line = ""
    container: tuple[_Class, ...] = ()


class Video(_Struct, frozen=True, omit_defaults=True, tag="video", tag_field="kind"):
    """A video, as sphinxcontrib-video shows it."""

    file: _ShownFile
    alt: _Line | None = None
    classes: tuple[_Class, ...] = ()
    width: _Count | None = None
    height: _Count | None = None
    autoplay: bool = False
    loop: bool = False
    muted: bool = False
    container: tuple[_Class, ...] = ()


class Html(_Struct, frozen=True, omit_defaults=True, tag="html", tag_field="kind"):
    """HTML of the example's author, shown as it is: a ``text``, or a ``file`` of the recording."""

    text: str = ""
    file: _ShownFile | None = None
    container: tuple[_Class, ...] = ()


#: All that a scraper's output can be: a closed list, of which a page is made without parsing.
Item = Image | Video | Html


class Figure(_Struct, frozen=True, omit_defaults=True):
    """The output of image scrapers: one item, or several side by side.

    With ``below``, the figure stands below the printed text.
    """

    items: tuple[Item, ...]
    below: bool = False


#: The value of a last expression by MIME type.
Value = dict[Literal["text/plain", "text/html"], str]


class Block(_Struct, frozen=True, omit_defaults=True):
    """The outputs of one code block.

    Attributes:
        line: its first line when it was recorded.
        key: the key of its code.
        code: the executed code; empty in a recording of schema 2.
        memory: in MB, as sphinx-gallery measures it.
        failure: why the block did not finish, if not by an exception; a text for readers.
        shown: the printed text as sphinx-gallery shows it, if that is not ``stdout``.
        value: the value of the last expression, by MIME type.
        images: the files of ``figures``.
        data: the files that the block wrote.
        probes: the results of probes, by their dotted names.
    """

    line: _Count
    key: Sha256
    seconds: _Seconds
    code: str = ""
    memory: _Memory | None = None
    passed: bool = True
    exception: str | None = None
    failure: str | None = None
    stdout: str = ""
    stderr: str = ""
    shown: str | None = None
    value: Value = {}
    figures: tuple[Figure, ...] = ()
    images: tuple[_FileName, ...] = ()
    data: tuple[_FileName, ...] = ()
    probes: dict[str, Any] = {}


class GpuState(_Struct, frozen=True):
    """The GPU at one moment: clocks in MHz, temperature in °C, power in W, reasons to throttle."""

    sm_clock: _Count | None = None
    memory_clock: _Count | None = None
    temperature: _Count | None = None
    power: _Count | None = None
    throttling: tuple[str, ...] = ()
    other_processes: _Count | None = None


class GpuFacts(_Struct, frozen=True):
    """The properties of a GPU that its driver reports; ``memory`` in bytes."""

    compute_capability: str | None = None
    memory: _Count | None = None
    multiprocessors: _Count | None = None
    driver: str | None = None


class Provenance(_Struct, frozen=True):
    """The machine that made the recording; ``versions`` are those of the recorder's packages."""

    device: str
    kind: Literal["gpu", "cpu"]
    os: str
    python: str
    versions: dict[str, str] = {}
    environment: dict[str, str] = {}
    commit: str | None = None
    gpu: GpuFacts | None = None
    before: GpuState | None = None
    after: GpuState | None = None


class Inputs(_Struct, frozen=True, omit_defaults=True):
    """Everything that an example used besides its code. Paths are relative to conf.py's folder.

    Attributes:
        modules: SHA-256 of the syntax trees of the project's modules that it imported, by path.
        files: SHA-256 of the project's files that Python opened for reading, by path.
        matched: SHA-256 of the files that match a pattern of ``gallery_inputs``, by pattern.
        versions: versions of the imported distributions.
        variables: the environment variables of ``gallery_variables`` and ``gallery_refresh``; None
            for a variable that was not set.
        settings: the settings that change outputs, as texts.
        capture_repr: for each code block, the methods that show its last expression.
    """

    modules: dict[_InputName, Sha256] = {}
    files: dict[_InputName, Sha256] = {}
    matched: dict[_Line, dict[_InputName, Sha256]] = {}
    versions: dict[_Line, _Line] = {}
    variables: dict[_Line, str | None] = {}
    settings: dict[_Line, _Line] = {}
    capture_repr: tuple[_Line, ...] = ()


class RunFacts(_Struct, frozen=True):
    """The run: its date (UTC), duration, memory in MB (``show_memory``) and peak memory in bytes.

    ``status`` is *failed* if a block failed; ``timed`` says whether times are the device's own.
    """

    recorded: Date
    seconds: _Seconds
    memory: _Memory | None = None
    peak_host_memory: _Count | None = None
    status: Literal["passed", "failed"] = "passed"
    timed: bool = True


class Reference(TypedDict):
    """An object that the code names, as resolved by sphinx-gallery."""

    name: _Object
    module: _Object
    module_short: _Object
    is_class: bool
    is_explicit: bool


_References = dict[_Object, list[Reference]]


class Recording(_Struct, frozen=True):
    """One example on one device.

    Attributes:
        name: the example's path below the folder of its gallery, without suffix.
        key: the key of the example's code.
        probes: the results of probes for the whole run, by their dotted names.
        backreferences: the objects that the code names.
        thumbnail: the image for the thumbnail, if a scraper chose one.
        files: the SHA-256 of each file.
        inputs: what the example used; None in a recording of an older engine, or of an example
            that did not reach its end.
    """

    schema: int
    gallery: _FolderName
    name: _FileName
    title: str
    key: Sha256
    run: RunFacts
    provenance: Provenance
    blocks: Annotated[tuple[Block, ...], Meta(max_length=10_000)]
    variant: _Slug | None = None
    probes: dict[str, Any] = {}
    backreferences: _References = {}
    thumbnail: _FileName | None = None
    files: dict[_FileName, Sha256] = {}
    inputs: Inputs | None = None

    @property
    def timed(self) -> bool:
        """Whether its times are those of the device."""
        return self.run.timed

    @property
    def data(self) -> list[str]:
        """The names of the files that its blocks wrote, in order."""
        return [name for block in self.blocks for name in block.data]

    def probe(self, name: str) -> dict[str, Any]:
        """The result of the probe *name* for the whole run; empty without one."""
        found = self.probes.get(name)
        return found if isinstance(found, dict) else {}


def slug(device_name: str) -> str:
    """The folder name for a device: ``NVIDIA H200`` becomes ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-") or "unknown"


def date_of(text: str) -> datetime:
    """The date and time in the *text* of a recording; ValueError if there is no such date."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


def encode(recording: Recording) -> bytes:
    """The content of ``recording.json``, without the empty fields of blocks.

    Its last line has the SHA-256 of the text before it.
    """
    text = msgspec.json.format(msgspec.json.encode(recording), indent=2)
    text = text.removesuffix(b"\n}")
    return text + b',\n  "sha256": "%s"\n}\n' % hashlib.sha256(text).hexdigest().encode()


_HASH = re.compile(rb',\n  "sha256": "([0-9a-f]{64})"\n}\n\Z')


class _Hashed(msgspec.Struct):
    """The field that :func:`encode` adds; recordings of older engines have none."""

    sha256: Any = None


_HASHED = msgspec.json.Decoder(_Hashed)


def is_as_encoded(content: bytes) -> bool:
    """Whether the valid JSON *content* is the text of :func:`encode`, or has no hash.

    Line breaks may be those of another system.
    """
    if _HASHED.decode(content).sha256 is None:
        return True
    text = content.replace(b"\r\n", b"\n")
    found = _HASH.search(text)
    if found is None:
        return False
    return hashlib.sha256(text[: found.start()]).hexdigest() == found[1].decode()


def contradictions(recording: Recording) -> Iterator[str]:
    """The contradictions within *recording*."""
    if not is_date(recording.run.recorded):
        yield f"`run.recorded`: {recording.run.recorded} is not a date"
    if (recording.run.status == "passed") != all(block.passed for block in recording.blocks):
        yield f"`run.status` is {recording.run.status}, which `passed` of `blocks` contradicts"
    yield from _contradicting_names(recording)
    for name, meant in recording.backreferences.items():
        if not is_code(name, meant):
            yield f"`backreferences` has a name that is too long for a file: {name[:40]}…"


def _contradicting_names(recording: Recording) -> Iterator[str]:
    """Names of files that contradict each other, or what they are named for."""
    shown = {name for block in recording.blocks for name in files_shown(block)}
    thumbnails = set() if recording.thumbnail is None else {recording.thumbnail}
    for name in sorted(shown):
        if name.lower().endswith(_SOURCES):
            yield f"`images` or `figures` name {name}, which is not an image"
    for name in thumbnails:
        if not name.lower().endswith(_THUMBNAILS):
            yield f"`thumbnail` names {name}, which is not an image"
    for name in sorted({*shown, *thumbnails, *recording.data} - recording.files.keys()):
        yield f"`blocks` or `thumbnail` names {name}, which `files` does not list"
    folded = {normalize("NFC", name.casefold()) for name in (FILE_NAME, *recording.files)}
    if len(folded) <= len(recording.files):
        yield f"`files` lists {FILE_NAME}, or names that some systems cannot tell apart"


def files_shown(block: Block) -> list[str]:
    """The files that a page of *block* shows: images, videos, HTML; each once."""
    names = [*block.images]
    for figure in block.figures:
        for item in figure.items:
            if item.file is not None:
                names.append(item.file)
            if isinstance(item, Image):
                names += item.sources.values()
    return list(dict.fromkeys(names))


def is_date(text: str) -> bool:
    """Whether *text* is a date as recordings have it."""
    try:
        date_of(text)
    except ValueError:
        return False
    return True


def is_path(name: str) -> bool:
    """Whether *name* can be the name of a recording's file: a path below a folder."""
    return _fits(name, _FileName)


def is_shown(name: str) -> bool:
    """Whether *name* can be the name of an image on a page."""
    return _fits(name, _ShownFile)


def is_input(name: str) -> bool:
    """Whether *name* can be the name of an input."""
    return _fits(name, _InputName)


def is_line(text: str) -> bool:
    """Whether *text* is one line without control characters."""
    return _fits(text, _Line)


def is_code(name: str, meant: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a recording can hold *name* and the objects it may mean: they become file names."""
    meant = [*meant]
    if not _fits({name: meant}, _References):
        return False
    files = [f"{one['module_short']}.{one['name']}.examples.new" for one in meant]
    files += [f"{one['module']}.{one['name']}.examples.new" for one in meant]
    return all(len(file) <= _LONGEST_FILE_NAME for file in files)


#: Bytes of a file's name on all systems.
_LONGEST_FILE_NAME = 255


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def order_of(variant: str) -> list[tuple[int, int | str]]:
    """The key for sorting variants, with versions as numbers: ``a-3.9`` before ``a-3.10``."""
    parts = re.findall(r"\d+|\D+", variant)
    return [(1, int(part)) if part.isdecimal() else (0, part) for part in parts]
