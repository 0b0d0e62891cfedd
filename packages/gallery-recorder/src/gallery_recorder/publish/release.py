"""A Sphinx extension that writes the version of the project to ``versions.json`` of a build.

The version's name is ``GALLERY_VERSION``, or the commit's tag if it is a number, such as
``v1.0.0``, or the branch. Templates get ``version_name``, ``version_release``, ``versions_url``.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.git import git
from gallery_recorder.publish.versions import FILE_NAME, Version, Versions, check_name, number

#: Tags that are versions of the project. Those of its packages are others, such as `lib-v1.0`.
_MATCH = ("--match", "v[0-9]*", "--match", "[0-9]*")
_OTHER = re.compile(r"[^\w.+:\n-]", re.ASCII)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("config-inited", _find_version)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def find_version(folder: Path) -> Version:
    """The version of the project in *folder*; only a tag makes a release, not a branch ``2.0``."""
    if given := os.environ.get("GALLERY_VERSION", ""):
        check_name(given)
    is_tracked = git(folder, "ls-files", "conf.py")  # not just below another project's checkout

    def ask(*arguments: str) -> str:
        """The answer of git, without characters that no version's name can have."""
        return _OTHER.sub("-", (is_tracked and git(folder, *arguments)) or "")

    describe = ask("describe", "--tags", *_MATCH, "--always", "--dirty") or given or "local"
    tags = ask("tag", "--points-at", "HEAD").split() if is_tracked else [given]
    numbers = {tag: value for tag in tags if (value := number(tag))}
    if given:
        kind = os.environ.get("GITHUB_REF_TYPE") or ("tag" if given in numbers else "branch")
        name, is_release = given, kind == "tag" and number(given) is not None
    else:
        is_release = bool(numbers) and not describe.endswith("-dirty")
        newest = max(numbers, key=numbers.__getitem__, default="")
        name = newest if is_release else ask("branch", "--show-current") or describe
    date = ask("log", "-1", "--format=%cI") or None
    return Version(name=name, kind="tag" if is_release else "branch", release=describe, date=date)


def _find_version(app: Sphinx, config: Config) -> None:
    try:
        version = find_version(app.confdir)
    except RecorderError as error:
        raise ConfigError(f"GALLERY_VERSION: {error}") from error
    release = version.release.removesuffix("-dirty")
    # html_baseurl is the stable version below the root of the site.
    address = config.html_baseurl.removesuffix("/").removesuffix("/stable") + "/"
    # If one of these changes, Sphinx writes all pages again without reading them again.
    context = {"version_name": version.name, "version_release": release}
    config.html_context = (
        config.html_context | context | {"versions_url": address + "versions.html"}
    )

    def set_release(app: Sphinx, _: object) -> None:
        # If these were set earlier, Sphinx would read all pages again after each commit.
        app.config.release, app.config.version = release, version.name

    def forget_versions(app: Sphinx) -> None:
        # The file of an earlier build says nothing about this build, which may fail.
        Path(app.outdir, FILE_NAME).unlink(missing_ok=True)

    def write_versions(app: Sphinx, error: Exception | None) -> None:
        # With -W, warnings make Sphinx fail after this event.
        warned = getattr(app, "_fail_on_warnings", False) and app._warncount
        if error is None and not warned and app.builder.format == "html":
            files = (path.relative_to(app.outdir).as_posix() for path in app.outdir.rglob("*.html"))
            pages = tuple(sorted(file for file in files if not file.startswith("_")))
            stale: tuple[str, ...] = ()
            if "gallery" in app.env.domains:
                gallery: Any = app.env.domains["gallery"]
                stale = tuple(gallery.stale)
            more = {"title": config.project, "pages": (pages,), "stale": stale}
            Versions(address=address, all=(version,), **more).write(app.outdir)

    known = "write-started" in app.events.events  # since Sphinx 7.4
    app.connect("write-started" if known else "env-check-consistency", set_release)
    app.connect("builder-inited", forget_versions)
    app.connect("build-finished", write_versions, priority=900)  # others may raise
