"""Put a finished build into a site under its version, and take a version out of it.

A site is a folder of versions, each an immutable tree, with files at the root that are made from
the versions' own ``versions.json`` (see :mod:`~gallery_recorder.publish.front`). ``stable`` and
``latest``
are relative links to a version: a redirect would lose the address that readers copy, and
search engines the page that ``rel=canonical`` names; hosts without links get copies, two whatever
the number of versions.

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

from gallery_recorder.publish import front, versions
from gallery_recorder.publish.inspection import InspectionError, inspect
from gallery_recorder.publish.versions import LATEST, STABLE, Version, Versions, VersionsError
from gallery_recorder.store import atomic, lock

_STAGING = ".publishing"
_LOCK = ".publishing.lock"
#: In the staging folder: the root's files to be, and the list of a site without versions.
_ROOT = ".root"
_EMPTY = "empty.json"


class PublishError(Exception):
    """Nothing was changed; says what is wrong, where, and what to do."""


def publish(build: Path, site: Path, name: str, overwrite: bool = False) -> Versions:
    """Put the finished *build* into *site* as version *name*; return the versions there now.

    A branch is replaced, a release only where *overwrite* says so.

    Raises:
        InspectionError: *build* is not fit to be published, or another version.
        PublishError: *site* is no site, another publisher is at work, or the disk is full.
        VersionsError: *name* cannot be a version's.
    """
    versions.check_name(name)
    _check_site(site)
    built = inspect(build, name)
    (version,) = built.all
    with _site_for_us(site):
        published = _versions_in(site)
        released = name in published and name in _listed(site)
        if released and version.number is not None and not overwrite:
            raise PublishError(
                f"{site / name}: is published already, and a release never changes. Publish the "
                "change as a new release; if readers must not see this one, add OVERWRITE=1"
            )
        now = Versions("site", built.address, (published | {name: version}).values())
        with _staging(site) as staging:
            with _explained(site, "Nothing was changed"):
                shutil.copytree(build, staging / name, ignore=shutil.ignore_patterns(".*"))
                root = _stage_root(staging, now)
                _sync_tree(staging)
            with _explained(site, "Every version is whole; publish again to finish"):
                if not (site / versions.FILE_NAME).exists():  # what makes a folder a site
                    os.rename(staging / _ROOT / _EMPTY, site / versions.FILE_NAME)
                atomic.replace_folder(staging / name, site / name)
                _put_root(staging, site, root)
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
    _check_site(site)
    with _site_for_us(site):
        published = _versions_in(site)
        if name not in published:
            raise PublishError(f"{site}: has no {name}. It has: {', '.join(published) or 'none'}")
        if len(published) == 1:
            raise PublishError(f"{site}: has no version but {name}. Delete the folder instead")
        address = versions.read(site / versions.FILE_NAME).address
        now = Versions("site", address, (v for key, v in published.items() if key != name))
        with _staging(site) as staging:
            with _explained(site, "Nothing was changed"):
                root = _stage_root(staging, now)
                _sync_tree(staging)
            with _explained(site, "Every version is whole; unpublish again to finish"):
                _put_root(staging, site, root)  # nothing leads to it any more
                os.rename(site / name, staging / name)
    return now


# --- the site as it is ----------------------------------------------------------------------------


def _check_site(site: Path) -> None:
    """Refuse a folder that is no site, before anything is written into it."""
    try:
        visible = [entry for entry in os.listdir(site) if not entry.startswith(".")]
    except FileNotFoundError:
        return
    except OSError as error:
        raise PublishError(f"{site}: is no folder to publish to ({error.strerror})") from error
    if not visible:
        return
    try:
        found = versions.read(site / versions.FILE_NAME)
    except VersionsError as error:
        raise PublishError(
            f"{site}: has files in it, but is no site ({error}). Give a site, or a folder that is "
            "empty or does not exist yet"
        ) from error
    if found.of != "site":
        raise PublishError(f"{site}: is a build, not a site. Give SITE=folder beside it")


def _versions_in(site: Path) -> dict[str, Version]:
    """The versions whose trees are there, whatever the list at the root says."""
    found = {}
    for entry in sorted(site.iterdir()):
        if entry.is_symlink() or not (entry / versions.FILE_NAME).is_file():
            continue
        listed = versions.read(entry / versions.FILE_NAME)
        if listed.of != "build" or [v.name for v in listed.all] != [entry.name]:
            raise PublishError(f"{entry}: holds no version {entry.name}; move it out of the site")
        found[entry.name] = listed.all[0]
    return found


def _listed(site: Path) -> set[str]:
    """The versions that the list at the root names: those whose publishing came to its end."""
    path = site / versions.FILE_NAME
    return {v.name for v in versions.read(path).all} if path.exists() else set()


@contextlib.contextmanager
def _site_for_us(site: Path) -> Iterator[None]:
    """Hold the lock of *site*, with what a publisher left that was ended put in order.

    Raises:
        PublishError: another publisher has it, or something cannot be written.
    """
    made = not site.exists()
    with _explained(site, "Nothing was changed"):
        descriptor = lock.try_lock(site / _LOCK)
    if descriptor is None:
        raise PublishError(
            f"{site}: is being published to by {lock.holder(site / _LOCK)}. Wait for it, then "
            "try again"
        )
    try:
        with _explained(site, "Nothing was changed"):
            _finish_interrupted(site)
        yield
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


def _finish_interrupted(site: Path) -> None:
    if (site / _STAGING).exists():
        shutil.rmtree(site / _STAGING)
    for aside in site.glob(".*.replaced"):
        folder = site / aside.name.removeprefix(".").removesuffix(".replaced")
        atomic.finish_interrupted_replacement(folder)
        if aside.exists():
            shutil.rmtree(aside)


# --- the site as it shall be ----------------------------------------------------------------------


@contextlib.contextmanager
def _staging(site: Path) -> Iterator[Path]:
    """A folder on the file system of *site*, out of readers' sight, removed at the end."""
    staging = site / _STAGING
    with _explained(site, "Nothing was changed"):
        staging.mkdir()
    try:
        yield staging
    finally:
        shutil.rmtree(staging)


def _links(now: Versions) -> dict[str, str]:
    return {STABLE: now.stable.name, LATEST: now.latest.name}


def _stage_root(staging: Path, now: Versions) -> list[str]:
    """Write the root's files to be; returns their names, in the order to put them in place."""
    root = staging / _ROOT
    root.mkdir()
    (root / _EMPTY).write_bytes(Versions("site", now.address, []).encode())
    links, files = _links(now), front.files(now)
    for name, target in links.items():
        (root / name).symlink_to(target, target_is_directory=True)
    for name, content in files.items():
        (root / name).write_bytes(content)
    return [*links, *files]


def _put_root(staging: Path, site: Path, names: list[str]) -> None:
    for name in names:
        os.replace(staging / _ROOT / name, site / name)
    atomic.sync(site)


def _sync_tree(folder: Path) -> None:
    """Have a whole tree on the disk, so that a power cut later finds it whole."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            atomic.sync(path)
    atomic.sync(folder)


# --- the command line -----------------------------------------------------------------------------


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``publish`` and ``unpublish`` to the command line."""
    parser = commands.add_parser("publish", help="put a finished build into a site of versions")
    parser.add_argument("build", type=Path, metavar="BUILD", help="what `make html` made")
    parser.add_argument("site", type=Path, metavar="SITE", help="a site, or a folder to make one")
    parser.add_argument("--version", required=True, help="the tag or branch that was built")
    parser.add_argument("--overwrite", action="store_true", help="replace a release, too")
    parser.set_defaults(command=_publish)

    parser = commands.add_parser("unpublish", help="take a version out of a site")
    parser.add_argument("site", type=Path, metavar="SITE")
    parser.add_argument("--version", required=True)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(command=_unpublish)


def _publish(options: argparse.Namespace) -> int:
    try:
        now = publish(options.build, options.site, options.version, options.overwrite)
    except (InspectionError, PublishError, VersionsError) as error:
        return _complain(error)
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
        except EOFError:
            print(file=sys.stderr)
            return _complain("nobody is there to answer; give --yes (make: YES=1)")
        if answer.strip().lower() not in ("y", "yes"):
            print("Nothing was changed.")
            return 1
    try:
        now = unpublish(options.site, options.version)
    except (PublishError, VersionsError) as error:
        return _complain(error)
    print(f"Taken out: {options.site / options.version}")
    _show(now)
    return 0


def _show(now: Versions) -> None:
    names = ", ".join(version.name for version in now.all)
    links = ", ".join(f"{link} is {target}" for link, target in _links(now).items())
    print(f"Versions: {names} ({links})")


def _complain(error: object) -> int:
    print(f"gallery_recorder: {error}", file=sys.stderr)
    return 1
