"""Put a finished build into a site under its version, and delete a version of a site.

Only a folder with a ``versions.json`` of its own name is a version; other folders are not listed,
replaced or deleted. A build is copied beside the versions and put in place by one rename. If the
process dies, every version is whole, and the next call removes leftovers.
"""

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from gallery_recorder import console
from gallery_recorder.errors import RecorderError
from gallery_recorder.publish import versions
from gallery_recorder.publish.versions import Versions
from gallery_recorder.store import atomic

_STAGING = ".gallery-publishing"


def publish(build: Path, site: Path, name: str, overwrite: bool = False) -> Versions:
    """Put the finished *build* into *site* as version *name*; return the list of the site."""
    versions.check_name(name)
    built = versions.read_build(build)
    if (found := built.all[0]).name != name:
        raise RecorderError(
            f"{build}: is a build of {found.name} ({found.release}), not of {name}. Build {name}, "
            f"or publish this build as {found.name}"
        )
    if built.stale:
        raise RecorderError(
            f"{build}: these pages show outputs of older code: {', '.join(built.stale)}. Record "
            "their examples, then build again"
        )
    with _changing(site, name) as trees:
        place, staged = site / name, site / _STAGING / name
        if os.path.lexists(place) and name not in trees:
            raise RecorderError(f"{place}: exists and is not a version. Move it out of the site")
        if name in trees and trees[name].all[0].kind == "tag" and not overwrite:
            raise RecorderError(
                f"{place}: is a published release, which must not change. Publish a new release; "
                "to replace this one nevertheless, use --overwrite (make: OVERWRITE=1)"
            )
        shutil.copytree(build, staged, ignore=_unpublished)
        atomic.make_readable(staged)
        atomic.replace_folder(staged, place)
        return _write_root(site, trees | {name: built})


def unpublish(site: Path, name: str) -> Versions:
    """Delete version *name*, not the only one, from *site*; return the list of the site."""
    versions.check_name(name)
    if not site.is_dir():
        raise RecorderError(f"{site}: is not a folder. Name the folder of the site")
    with _changing(site, name) as trees:
        if name not in trees or len(trees) == 1:
            has = " and ".join(trees) or "no version"
            raise RecorderError(
                f"{site}: has {has}. Name a version; the last one cannot be deleted"
            )
        del trees[name]
        listed = _write_root(site, trees)
        os.rename(site / name, site / _STAGING / name)  # now that nothing links to it
        return listed


def _unpublished(folder: str, names: list[str]) -> list[str]:
    """The hidden files of a build, which are not published; RecorderError for a symbolic link."""
    for path in (Path(folder, name) for name in names):
        if path.is_symlink():
            raise RecorderError(f"{path}: is a symbolic link. Replace it by a copy of its target")
    return [name for name in names if name.startswith(".")]


@contextlib.contextmanager
def _changing(site: Path, name: str) -> Iterator[dict[str, Versions]]:
    """Lock *site*, repair what a killed process left; the value has its versions' lists."""
    from filelock import FileLock, Timeout  # here, so other commands start faster

    staging, lock = site / _STAGING, site / f"{_STAGING}.lock"
    try:
        atomic.make_folder(site)
        with FileLock(lock, blocking=False):
            try:
                shutil.rmtree(staging, ignore_errors=True)
                staging.mkdir()
                atomic.finish_interrupted_replacement(site / name)
                if trees := dict(_trees(site)):
                    _write_root(site, trees)
                elif any(not path.name.startswith(".") for path in site.iterdir()):
                    raise RecorderError(f"{site}: has files but no version. Name an empty folder")
                yield trees
            finally:
                shutil.rmtree(staging, ignore_errors=True)
                lock.unlink()
    except Timeout as error:
        what = "another process is publishing to this site; wait until it finishes"
        raise RecorderError(f"{site}: {what}") from error
    except OSError as error:
        # The error of copytree has (source, target, reason) for each file.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        remedy = "No version was damaged; correct the cause and try again"
        raise RecorderError(f"{site}: cannot be written ({reason}). {remedy}") from error


def _trees(site: Path) -> Iterator[tuple[str, Versions]]:
    """The names and lists of the versions in *site*; prints a message about each damaged list."""
    for folder in sorted(site.iterdir()):
        if folder.is_symlink() or not (folder / versions.FILE_NAME).exists():
            continue
        try:
            listed = versions.read_build(folder)
        except RecorderError as error:
            remedy = "Move the folder out of the site and publish it again; it is not listed now"
            print(f"gallery_recorder: {error}. {remedy}", file=sys.stderr)
            continue
        if listed.all[0].name == folder.name:
            yield folder.name, listed


def _write_root(site: Path, trees: dict[str, Versions]) -> Versions:
    """Write the files at the root of a *site* with the versions *trees*."""
    from jinja2 import Environment, PackageLoader  # here, so other commands start faster

    listed = versions.merge(trees.values())
    templates = Environment(loader=PackageLoader("gallery_recorder.publish"), autoescape=True)
    staged = site / _STAGING / ".root"
    staged.mkdir(exist_ok=True)
    for name in ("index.html", "versions.html", "404.html"):
        page = templates.get_template(name)
        text = page.render(listed=listed, path=urlsplit(listed.address).path)
        (staged / name).write_text(text, encoding="utf-8")
    listed.write(staged)
    versions.pages_of(listed, trees).write(staged)
    (staged / ".nojekyll").touch()  # GitHub Pages then serves folders such as _static
    atomic.make_readable(staged)
    for name in ("stable", "latest"):
        (staged / name).symlink_to(getattr(listed, name), target_is_directory=True)
    for path in sorted(staged.iterdir()):
        os.replace(path, site / path.name)
    return listed


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``publish`` and ``unpublish`` to the command line."""
    adding = commands.add_parser("publish", help="put a finished build into a site of versions")
    adding.add_argument("build", type=Path, metavar="BUILD", help="the folder that Sphinx wrote")
    adding.add_argument("--overwrite", action="store_true", help="replace a release, too")
    deleting = commands.add_parser("unpublish", help="delete a version of a site")
    deleting.add_argument("--yes", action="store_true", help="do not ask")
    for parser, command in ((adding, _publish), (deleting, _unpublish)):
        parser.add_argument("site", type=Path, metavar="SITE", help="the folder of the site")
        parser.add_argument("--version", required=True, help="the tag or branch that was built")
        parser.set_defaults(command=command)


def _publish(options: argparse.Namespace) -> int:
    listed = publish(options.build, options.site, options.version, options.overwrite)
    print(f"Published: {options.site / options.version} (stable: {listed.stable})")
    return 0


def _unpublish(options: argparse.Namespace) -> int:
    question = f"Delete {options.version} from {options.site}?"
    if not options.yes and not console.confirms(question):
        return 1
    listed = unpublish(options.site, options.version)
    print(f"Deleted: {options.site / options.version} (stable: {listed.stable})")
    return 0
