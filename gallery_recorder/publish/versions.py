"""The versions of a site: which there are, in which order, and ``versions.json``, which lists them.

A build's ``versions.json`` lists that build alone. A site's, one folder above its versions, lists
them all, is made from theirs, and is what a page's version menu reads: so an old page knows the
versions that came after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from packaging.version import InvalidVersion
from packaging.version import Version as Number

from gallery_recorder.errors import RecorderError
from gallery_recorder.store import names, reading
from gallery_recorder.store.reading import ReadingError

#: The version of the format; raise it when a field changes its meaning.
SCHEMA = 1
FILE_NAME = "versions.json"

#: Addresses beside the versions, which no version can have.
STABLE, LATEST = "stable", "latest"
#: The branches that ``latest`` means, the first that is there.
_MAIN_BRANCHES = ("main", "master")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_FILE_SUFFIX = re.compile(r"\.(html|json|txt|xml)$", re.IGNORECASE)


_MAX_BYTES = 64_000_000  # of versions.json
#: What no publisher writes into it is not believed.
_Address = Annotated[str, Meta(pattern=r"^(https?://[^\s<>\"'\\]+)?/\Z")]
_Page = Annotated[str, Meta(pattern=r"^(?!/)(?!.*(^|/)\.\.?(/|\Z))[^\x00-\x1f\x7f\\:<>\"]+\Z")]
_Date = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")]


class VersionsError(RecorderError):
    """A name that is no version's, or a list that cannot be read; says what to do."""


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One version: its address, what git says of it, and its pages.

    ``release`` is what ``git describe`` prints, ``date`` that of the commit.
    """

    name: str
    release: str
    pages: tuple[str, ...]
    commit: str | None = None
    date: str | None = None

    @property
    def number(self) -> Number | None:
        """The number of a release, None for a branch."""
        return number(self.name)


class _Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A version as it is written: with what a menu says of it; ``pages`` is a list's index."""

    name: str
    kind: Literal["tag", "branch"]
    prerelease: bool
    old: bool
    release: str
    commit: str | None
    date: _Date | None
    pages: Annotated[int, Meta(ge=0)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``versions.json``. Versions with the same pages, which is most of them, share one list."""

    schema: int
    of: Literal["site", "build"]
    address: _Address
    stable: str | None
    latest: str | None
    versions: tuple[_Listed, ...]
    pages: tuple[tuple[_Page, ...], ...]
    title: str = ""


_DECODER = msgspec.json.Decoder(_File)


class Versions:
    """The versions of a site or, ``of="build"``, the one version that a build is.

    ``address`` is where the site's root is served, ``title`` how the project calls itself;
    ``releases`` are the versions that are tags, newest first, and in ``all`` branches come after
    them.
    """

    def __init__(
        self,
        of: Literal["site", "build"],
        address: str,
        versions: Iterable[Version],
        title: str = "",
    ) -> None:
        self.of = of
        self.address = address
        self.title = title
        listed = sorted(versions, key=lambda v: (v.name not in _MAIN_BRANCHES, v.name))
        numbered = [(v.number, v) for v in listed if v.number]
        numbered.sort(key=lambda pair: pair[0], reverse=True)
        self.releases = tuple(v for _, v in numbered)
        self.all = (*self.releases, *(v for v in listed if not v.number))

    @cached_property
    def stable(self) -> Version | None:
        """The newest release that is no pre-release; before the first one, what ``latest`` is."""
        return next(
            (v for v in self.releases if v.number and not v.number.is_prerelease), self.latest
        )

    @cached_property
    def latest(self) -> Version | None:
        """The main branch; where it is not published, the newest release, else any branch."""
        main = [v for name in _MAIN_BRANCHES for v in self.all if v.name == name]
        return next(iter((*main, *self.all)), None)

    def is_old(self, version: Version) -> bool:
        """Whether a stable release came after *version*."""
        stable = self.stable.number if self.stable else None
        return stable is not None and version.number is not None and version.number < stable

    def encode(self) -> bytes:
        """The content of ``versions.json``."""
        lists = list(dict.fromkeys(version.pages for version in self.all))
        text = msgspec.json.encode(
            _File(
                schema=SCHEMA,
                of=self.of,
                address=self.address,
                stable=self.stable.name if self.stable else None,
                latest=self.latest.name if self.latest else None,
                versions=tuple(
                    _Listed(
                        name=version.name,
                        kind="branch" if version.number is None else "tag",
                        prerelease=bool(version.number and version.number.is_prerelease),
                        old=self.is_old(version),
                        release=version.release,
                        commit=version.commit,
                        date=version.date,
                        pages=lists.index(version.pages),
                    )
                    for version in self.all
                ),
                pages=tuple(lists),
                title=self.title,
            )
        )
        return msgspec.json.format(text, indent=1) + b"\n"


def read(path: Path) -> Versions:
    """The list in the file *path*.

    Raises:
        VersionsError: it is missing, damaged, or of a schema that this version does not know.
    """
    try:
        file = reading.decode(reading.read_file(path, _MAX_BYTES), _DECODER, SCHEMA)
        if wrong := _wrong(file):
            raise reading.ContentError(wrong)
    except reading.ContentError as error:
        raise VersionsError(f"{path}: is no list of versions ({error})") from error
    except ReadingError as error:
        raise VersionsError(f"{path}: {error}") from error
    versions = [
        Version(v.name, v.release, file.pages[v.pages], v.commit, v.date) for v in file.versions
    ]
    return Versions(file.of, file.address, versions, file.title)


def _wrong(file: _File) -> str:
    """What in *file* no publisher writes; nothing where it can be believed."""
    try:
        _ = urlsplit(file.address).port
    except ValueError as error:
        return f"`address`: {error}"
    seen = set()
    for version in file.versions:
        try:
            check_name(version.name)
            datetime.fromisoformat(version.date or "2026-01-01")
        except (VersionsError, ValueError) as error:
            return str(error)
        if version.name in seen:
            return f"{version.name} is in it twice"
        seen.add(version.name)
        if version.pages >= len(file.pages):
            return f"{version.name} has no list of pages"
    return ""


def number(name: str) -> Number | None:
    """The number that *name* is, so that it is a release's; None for a branch's name."""
    try:
        return Number(name)
    except InvalidVersion:
        return None


def check_name(name: str) -> None:
    """Refuse what cannot be a version's address.

    Raises:
        VersionsError: it is empty, a path, has spaces, or is an address of the site's own.
    """
    if not _NAME.fullmatch(name) or ".." in name:
        raise VersionsError(
            f"{name!r} is no version: a version is a tag or a branch, such as v1.0.0 or main, of "
            "letters, digits and . _ + -, at most 64, beginning with a letter or digit"
        )
    if not names.is_portable(name):
        raise VersionsError(f"{name!r} is no version: some systems cannot have a folder called so")
    if name.lower() in (STABLE, LATEST) or _FILE_SUFFIX.search(name):
        raise VersionsError(
            f"{name!r} is no version: the site has something of its own at this address. "
            "Give the tag or the branch that was built, such as v1.0.0 or main"
        )


def twin(name: str, others: Iterable[str]) -> str | None:
    """Which of *others* could be taken for *name*: by its case, or as the same number."""
    listed = list(others)
    own = number(name)
    same = (o for o in listed if o != name and own is not None and number(o) == own)
    return names.twin(name, listed) or next(same, None)
