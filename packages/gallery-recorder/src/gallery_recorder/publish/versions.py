"""``versions.json``: in a build it lists that build, at the root of a site all versions.

The version menu of every page reads the site's list, so old pages show newer versions. Which pages
a version has is in a second file, which a menu reads when a reader opens it.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from packaging.version import InvalidVersion
from packaging.version import Version as Number

from gallery_recorder.errors import RecorderError
from gallery_recorder.store.reading import ReadingError, load

FILE_NAME = "versions.json"
PAGES_FILE_NAME = "versions-pages.json"
_MAIN = ("main", "master")
#: The name of a version: no path, and no name that the site itself has at its root.
_NAME = re.compile(r"(?!(?i:stable|latest|.*\.(html|json))\Z|.*\.\.)[A-Za-z0-9][\w.+-]{0,63}", re.A)
_Address = Annotated[str, Meta(pattern=r"^(https?://[\w.:-]+)?/([^\s<>\"'\\]*/)?\Z")]


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version; releases are tags.

    ``pages`` is an index of :attr:`Versions.pages`; menus of earlier engines read it.
    """

    name: str
    kind: Literal["tag", "branch"]
    release: str  # the output of git describe
    date: str | None = None  # of the commit
    pages: Annotated[int, Meta(ge=0)] = 0


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``versions.json``.

    ``pages`` has one list, the pages of a build; the list of a site is empty, so that the file
    stays small. ``stale`` has the pages of a build that show outputs of older code.
    """

    schema: Literal[1] = 1
    of: Literal["site", "build"] = "build"
    address: _Address  # of the site's root
    title: str = ""  # the project's name
    stable: str | None = None
    latest: str | None = None
    all: tuple[Version, ...] = msgspec.field(name="versions")
    pages: tuple[tuple[str, ...], ...]
    stale: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Write the list into *folder*."""
        text = msgspec.json.encode(self)
        if self.of == "build":
            text = msgspec.json.format(text, indent=1)
        (folder / FILE_NAME).write_bytes(text + b"\n")


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``versions-pages.json``: which versions of a site have a page.

    For each page, the first and the last index of each run of versions in the site's list.
    """

    schema: Literal[1] = 1
    pages: dict[str, list[tuple[int, int]]]

    def write(self, folder: Path) -> None:
        """Write it into *folder*."""
        (folder / PAGES_FILE_NAME).write_bytes(msgspec.json.encode(self) + b"\n")


def merge(builds: Iterable[Versions]) -> Versions:
    """The list of a site of one or more *builds*: releases, newest first, then branches."""
    build_of = {build.all[0]: build for build in builds}
    numbers = {v: number(v.name) or Number("0.dev0") for v in build_of if v.kind == "tag"}
    releases = sorted(numbers, key=numbers.__getitem__, reverse=True)
    branches = sorted(build_of.keys() - numbers, key=lambda v: (v.name not in _MAIN, v.name))
    ordered = releases + branches
    latest = next((v for v in ordered if v.name in _MAIN), ordered[0])
    stable = next((v for v in releases if not numbers[v].is_prerelease), latest)
    return replace(
        build_of[latest],
        of="site",
        stable=stable.name,
        latest=latest.name,
        all=tuple(ordered),
        pages=((),),
    )


def pages_of(listed: Versions, builds: Mapping[str, Versions]) -> Pages:
    """The pages of the site *listed*, whose versions are *builds* by name."""
    runs: dict[str, list[tuple[int, int]]] = {}
    for index, version in enumerate(listed.all):
        for page in builds[version.name].pages[0]:
            found = runs.setdefault(page, [])
            if found and found[-1][1] == index - 1:
                found[-1] = (found[-1][0], index)
            else:
                found.append((index, index))
    return Pages(pages=runs)


def read_build(folder: Path) -> Versions:
    """The list of the build in *folder*; raises RecorderError if it is missing or damaged."""
    try:
        found = load(folder / FILE_NAME, Versions)
    except ReadingError as error:
        remedy = "A build with the extension gallery_recorder.publish.release has this file"
        raise RecorderError(f"{error}. {remedy}") from error
    if found.of != "build" or len(found.all) != 1 or len(found.pages) != 1 or found.all[0].pages:
        raise RecorderError(f"{folder}: is a site, not a build. Name the folder of a build")
    return found


def number(name: str) -> Number | None:
    """The number in *name*, such as ``v1.0.0``; None for other names."""
    try:
        return Number(name)
    except InvalidVersion:
        return None


def check_name(name: str) -> None:
    """Raise RecorderError if *name* cannot be the name of a version."""
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise RecorderError(
            f"{name!r} cannot be the name of a version. Use the tag or branch that was built, such "
            "as v1.0.0 or main: at most 64 letters, digits and . _ + -, not stable or latest"
        )
