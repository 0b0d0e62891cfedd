"""Put a finished build into a site under its version, and take a version out of it.

A site is a folder of versions, each an immutable tree, with files at the root that are made from
the versions' own ``versions.json`` (see :mod:`~gallery_recorder.publish.front`). ``stable`` and
``latest`` are relative links to a version: a redirect would lose the address that readers copy,
and search engines the page that ``rel=canonical`` names; hosts without links get copies.

Everything is written beside the site's own files first, and put in place by renames. So whatever
dies, and whenever, each version is served whole, old or new; what was left is removed by the next.
Files are copied and not linked: Sphinx writes into the files of a build, so a link would have the
next build change what is published.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from gallery_recorder.errors import RecorderError
from gallery_recorder.publish import front, versions
from gallery_recorder.publish.inspection import inspect
from gallery_recorder.publish.versions import LATEST, STABLE, Version, Versions, VersionsError
from gallery_recorder.store import atomic, lock, reading

_STAGING = ".publishing"
_LOCK = ".publishing.lock"
#: In the staging folder: the root's files to be, and the list of a site without versions.
_ROOT = ".root"
_EMPTY = "empty.json"
_TOLD = 4_000_000  # bytes of what a version tells of itself


class PublishError(RecorderError):
    """Nothing was changed; says what is wrong, where, and what to do."""


def publish(build: Path, site: Path, name: str, overwrite: bool = False) -> Versions:
    """Put the finished *build* into *site* as version *name*; return the versions there now.

    A branch is replaced, a release only where *overwrite* says so. What lies in the way and is no
    version of this site is never replaced.

    Raises:
        InspectionError: *build* is not fit to be published, or another version.
        PublishError: *site* is no site, another publisher is at work, or the disk is full.
        VersionsError: *name* cannot be a version's.
    """
    versions.check_name(name)
    if build.resolve() in site.resolve().parents:
        raise PublishError(f"{site}: lies in the build, {build}. Give a folder beside it")
    _Found(site, quiet=True)  # refuses what is no site, before anything is written into it
    built = inspect(build, name)
    (version,) = built.all
    with _site_for_us(site) as found:
        found.check_place_of(version, overwrite)
        there = (found.versions | {name: version}).values()
        now = Versions("site", built.address, there, built.title)
        _put(found, now, name, build)
    return now


def unpublish(site: Path, name: str) -> Versions:
    """Take version *name* out of *site*; return the versions that are left.

    Raises:
        PublishError: *site* is no site, has no such version, or no other.
        VersionsError: *name* cannot be a version's.
    """
    versions.check_name(name)
    if not site.is_dir():
        raise PublishError(f"{site}: is no folder. Which site did you mean?")
    _Found(site, quiet=True)
    with _site_for_us(site) as found:
        there = ", ".join(found.versions) or "none"
        if name not in found.versions:
            raise PublishError(f"{site}: has no {name}. It has: {there}")
        if len(found.versions) == 1:
            raise PublishError(f"{site}: has no version but {name}. Delete the folder instead")
        kept = (version for key, version in found.versions.items() if key != name)
        now = Versions("site", found.address, kept, found.title)
        _put(found, now, name)
    return now


# --- the site as it is ----------------------------------------------------------------------------


class _Found:
    """What is in a site before it is changed.

    Attributes:
        versions: the versions whose trees are there, by name, whatever the list at the root says.
        listed: what that list says, None where it is missing or damaged.
        address, title: where the site is served, and its name.
    """

    def __init__(self, site: Path, quiet: bool = False) -> None:
        """Look into *site*, and tell of each list that is damaged, unless *quiet*.

        Raises:
            PublishError: it is no site, and no folder to make one of.
        """
        try:
            entries = [entry for entry in site.iterdir() if not entry.name.startswith(".")]
        except FileNotFoundError:
            entries = []
        except OSError as error:
            raise PublishError(f"{site}: is no folder to publish to ({error.strerror})") from error
        self.site = site
        self._tell = (lambda problem: None) if quiet else _warn
        self._lost: set[str] = set()
        self.address = self.title = ""
        self._unread: VersionsError | None = None
        self.listed = self._list()
        self.versions = dict(sorted(self._trees(entries)))
        if entries and self.listed is None and not self.versions:
            raise PublishError(
                f"{site}: has files in it, but is no site ({self._unread}). Give a site, or a "
                "folder that is empty or does not exist yet"
            )

    def check_place_of(self, version: Version, overwrite: bool) -> None:
        """Refuse to put *version* in the place of what it must not replace."""
        name, place = version.name, self.site / version.name
        if not os.path.lexists(place):
            if other := versions.twin(name, os.listdir(self.site)):
                raise PublishError(
                    f"{place}: the site has {other}, which some systems and readers cannot tell "
                    f"from {name}. Publish it under another name, or take {other} out first"
                )
            return
        if name not in self.versions:
            raise PublishError(
                f"{place}: is in the way, and is no version of this site. Nothing was changed; "
                "move it out of the site"
            )
        if name in self._lost and not overwrite:
            raise PublishError(
                f"{place}: has lost its {versions.FILE_NAME}, so it may be no version. Nothing "
                "was changed; move it out, or replace it: --overwrite (make: OVERWRITE=1)"
            )
        # In a list that is there, a version without an entry was not published to the end.
        ended = self.listed is None or name in self.listed
        if ended and version.number is not None and not overwrite:
            raise PublishError(
                f"{place}: is published already, and a release never changes. Publish the "
                "change as a new one; if readers must not see this: --overwrite (make: OVERWRITE=1)"
            )

    def _list(self) -> dict[str, Version] | None:
        path = self.site / versions.FILE_NAME
        try:
            read = versions.read(path)
        except VersionsError as error:
            self._unread = error
            if os.path.lexists(path):
                self._tell(f"{error}; it is made again from the versions that are there")
            return None
        if read.of != "site":
            raise PublishError(f"{self.site}: is a build, not a site. Give a folder beside it")
        self.address, self.title = read.address, read.title
        return {version.name: version for version in read.all}

    def _trees(self, entries: list[Path]) -> Iterator[tuple[str, Version]]:
        for entry in entries:
            if entry.is_symlink() or not entry.is_dir():
                continue
            path = entry / versions.FILE_NAME
            try:
                tree = versions.read(path)
            except VersionsError as error:
                there = os.path.lexists(path)
                if listed := (self.listed or {}).get(entry.name):
                    self._tell(f"{error}; the site's own list says what it is. Publish it again")
                    if not there:
                        self._lost.add(entry.name)
                    yield entry.name, listed
                elif there:
                    self._tell(f"{error}; it is left as it is, and out of the list of versions")
                continue
            if tree.of != "build" or [v.name for v in tree.all] != [entry.name]:
                raise PublishError(
                    f"{entry}: holds no version {entry.name}; move it out of the site"
                )
            self.address = self.address or tree.address
            self.title = self.title or tree.title
            yield entry.name, tree.all[0]


def _warn(problem: str) -> None:
    print(f"gallery_recorder: {problem}", file=sys.stderr)


@contextlib.contextmanager
def _site_for_us(site: Path) -> Iterator[_Found]:
    """Hold the lock of *site*, with what a publisher left that was ended put in order.

    Raises:
        PublishError: another publisher has it, something cannot be written, or it is no site.
    """
    made, interrupted = not site.exists(), os.path.lexists(site / _LOCK)
    with _explained(site, "Nothing was changed"):
        descriptor = lock.try_lock(site / _LOCK)
    if descriptor is None:
        raise PublishError(
            f"{site}: is being published to by {lock.holder(site / _LOCK)}. Wait for it, then "
            "try again"
        )
    try:
        with _explained(site, "Nothing was changed"):
            _finish_interrupted(site, interrupted)
        yield _Found(site)
    finally:
        lock.unlock(site / _LOCK, descriptor)
        if made:
            with contextlib.suppress(OSError):  # it is not empty: something was published
                site.rmdir()


@contextlib.contextmanager
def _explained(site: Path, consequence: str) -> Iterator[None]:
    """Tell of an error of the file system with its place and its *consequence*."""
    try:
        yield
    except shutil.Error as error:  # of copytree: (source, target, reason) of each file
        (_, target, reason), *_ = error.args[0]
        raise PublishError(f"{target}: cannot be written: {reason}. {consequence}") from error
    except OSError as error:
        where = error.filename or site
        raise PublishError(
            f"{where}: cannot be written: {error.strerror or error}. {consequence}"
        ) from error


def _finish_interrupted(site: Path, interrupted: bool) -> None:
    """Put in order what a publisher left, its lock, too; whatever else has such a name stays."""
    staging = site / _STAGING
    if interrupted and staging.is_dir() and not staging.is_symlink():
        shutil.rmtree(staging)
    if os.path.lexists(staging):
        raise PublishError(f"{staging}: is in the way. Nothing was changed; move it elsewhere")
    for aside in site.glob(".*.replaced"):
        name = aside.name.removeprefix(".").removesuffix(".replaced")
        if _is_tree(aside, name):
            atomic.finish_interrupted_replacement(site / name)
            if aside.exists():
                shutil.rmtree(aside)


def _is_tree(folder: Path, name: str) -> bool:
    """Whether *folder* holds the version *name*, as its own list says."""
    try:
        return [v.name for v in versions.read(folder / versions.FILE_NAME).all] == [name]
    except VersionsError:
        return False


# --- the site as it shall be ----------------------------------------------------------------------


def _put(found: _Found, now: Versions, name: str, build: Path | None = None) -> None:
    """Have the site be *now*: *build* comes to it as version *name*, or without it, that goes."""
    site, staging = found.site, found.site / _STAGING
    with _explained(site, "Nothing was changed"):
        staging.mkdir()
    try:
        with _explained(site, "Nothing was changed"):
            if build:
                shutil.copytree(build, staging / name, ignore=shutil.ignore_patterns(".*"))
            root = _stage_root(site, staging, now)
            _check_root(site, root)
            _sync_tree(staging)
        again = "publish" if build else "unpublish"
        with _explained(site, f"Every version is whole; {again} again to finish"):
            if build:
                if found.listed is None:  # what makes a folder a site
                    os.replace(staging / _ROOT / _EMPTY, site / versions.FILE_NAME)
                atomic.replace_folder(staging / name, site / name)
            _put_root(staging, site, root)
            if not build:  # nothing leads to it any more
                os.rename(site / name, staging / name)
    finally:
        shutil.rmtree(staging)


def _links(now: Versions) -> dict[str, str]:
    named = ((STABLE, now.stable), (LATEST, now.latest))
    return {link: version.name for link, version in named if version}


def _stage_root(site: Path, staging: Path, now: Versions) -> list[str]:
    """Write the root's files to be; returns their names, in the order to put them in place."""
    root = staging / _ROOT
    root.mkdir()
    (root / _EMPTY).write_bytes(Versions("site", now.address, [], now.title).encode())

    def told(version: Version, file: str) -> str:
        staged = staging / version.name
        try:
            return reading.read_file(
                (staged if staged.is_dir() else site / version.name) / file, _TOLD
            ).decode()
        except (reading.ReadingError, UnicodeDecodeError):
            return ""  # the pages of a site do without it

    links, files = _links(now), front.files(now, told)
    for name, target in links.items():
        (root / name).symlink_to(target, target_is_directory=True)
    for name, content in files.items():
        (root / name).write_bytes(content)
    return [*links, *files]


def _check_root(site: Path, names: list[str]) -> None:
    """Refuse where a folder has the name of a file or link of the root: it cannot be ours."""
    for name in names:
        if (site / name).is_dir() and not (site / name).is_symlink():
            raise PublishError(
                f"{site / name}: is in the way, a folder where the site has a file of its own. "
                "Nothing was changed; move it out of the site"
            )


def _put_root(staging: Path, site: Path, names: list[str]) -> None:
    for name in names:
        os.replace(staging / _ROOT / name, site / name)
    atomic.sync(site)


def _sync_tree(folder: Path) -> None:
    """Have a whole tree on the disk for after a power cut, and readable by whoever serves it."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
            atomic.sync(path)
    atomic.sync(folder)


# --- the command line -----------------------------------------------------------------------------


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``publish`` and ``unpublish`` to the command line."""
    parser = commands.add_parser("publish", help="put a finished build into a site of versions")
    parser.add_argument("build", type=Path, metavar="BUILD", help="the HTML that Sphinx made")
    parser.add_argument("site", type=Path, metavar="SITE", help="a site, or a folder to make one")
    parser.add_argument("--version", required=True, help="the tag or branch that was built")
    parser.add_argument("--overwrite", action="store_true", help="replace a release, too")
    parser.set_defaults(command=_publish)

    parser = commands.add_parser("unpublish", help="take a version out of a site")
    parser.add_argument("site", type=Path, metavar="SITE", help="the site")
    parser.add_argument("--version", required=True, help="which")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(command=_unpublish)


def _publish(options: argparse.Namespace) -> int:
    now = publish(options.build, options.site, options.version, options.overwrite)
    print(f"Published: {options.site / options.version}")
    _show(now)
    for release in [v for v in now.releases if v.name != options.version][:1]:
        (published,) = (v for v in now.all if v.name == options.version)
        if gone := sorted(set(release.pages) - set(published.pages)):
            print(f"Pages of {release.name} that it does not have: {', '.join(gone)}")
    return 0


def _unpublish(options: argparse.Namespace) -> int:
    if not options.yes:
        question = f"Take {options.version} out of {options.site}, for good? [y/N] "
        try:
            answer = input(question)
        except EOFError as error:
            print(file=sys.stderr)
            raise PublishError("nobody is there to answer; give --yes (make: YES=1)") from error
        if answer.strip().lower() not in ("y", "yes"):
            print("Nothing was changed.")
            return 1
    now = unpublish(options.site, options.version)
    print(f"Taken out: {options.site / options.version}")
    _show(now)
    return 0


def _show(now: Versions) -> None:
    names = ", ".join(version.name for version in now.all)
    links = ", ".join(f"{link} is {target}" for link, target in _links(now).items())
    print(f"Versions: {names} ({links})")
