"""Which version the checkout is, from git, and its ``versions.json`` in the build.

An extension: ``release`` and ``version`` need not be kept in ``conf.py``. ``release`` becomes what
``git describe`` prints; ``version`` the name that the build is published under, which is the tag
of the commit, else the branch. Templates get ``version_name``, ``version_release`` and
``versions_url``, the page that lists all versions.

Each build has two files for the pages at the root of a site: a page of its own without content, and
what ``CHANGELOG.md`` has under the name of the release, else what the message of its tag says.

Without git history, say what it is in the environment: ``GALLERY_VERSION=v1.0.0 make html``. It is
``local`` otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

from gallery_recorder.project.git import git
from gallery_recorder.publish import front, versions
from gallery_recorder.publish.versions import Version, Versions, VersionsError

#: The name of what is built without git history.
UNKNOWN = "local"

#: Pages that Sphinx makes besides the documents.
_GENERATED = ("genindex", "py-modindex", "search")


@dataclass(frozen=True)
class Release:
    """What git says of a checkout.

    ``name`` is the address under which it is published, ``describe`` what ``git describe`` prints,
    with ``-dirty`` where tracked files were changed, ``date`` that of the commit (UTC).
    """

    name: str
    describe: str
    commit: str | None = None
    date: str | None = None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("config-inited", _find_release)
    app.connect("html-collect-pages", _frame)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def find_release(root: Path) -> Release:
    """The version that the checkout in *root* is.

    Raises:
        VersionsError: what ``GALLERY_VERSION`` says cannot be a version.
    """
    given = os.environ.get("GALLERY_VERSION")
    if given:
        versions.check_name(given)
    if git(root, "rev-parse", "--show-toplevel") != str(root.resolve()):
        return Release(given or UNKNOWN, given or UNKNOWN)
    # Git lets a tag hold markup, and every page shows what this is.
    describe = _plain(git(root, "describe", "--tags", "--always", "--dirty") or "")
    commit, _, seconds = (git(root, "log", "-1", "--format=%H %ct") or "").partition(" ")
    tags = (git(root, "tag", "--points-at", "HEAD") or "").split()
    releases = [(number, tag) for tag in tags if (number := versions.number(tag))]
    if given:
        name = given
    elif releases and not describe.endswith("-dirty"):
        name = max(releases)[1]
    else:
        name = git(root, "branch", "--show-current") or describe or UNKNOWN
    name = name if given else _plain(name)
    date = f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}" if seconds else None
    return Release(name, describe or name, commit or None, date)


def _plain(name: str) -> str:
    """*name* with everything replaced that the name of a version cannot hold."""
    return re.sub(r"[^A-Za-z0-9._+-]", "-", name)


def site_address(config: Config) -> str:
    """Where the site's root is served: ``html_baseurl`` is the stable version below it."""
    return config.html_baseurl.removesuffix("/").removesuffix(f"/{versions.STABLE}") + "/"


def _find_release(app: Sphinx, config: Config) -> None:
    try:
        release = find_release(Path(app.confdir))
    except VersionsError as error:
        raise ConfigError(f"GALLERY_VERSION: {error}") from error
    # Sphinx writes all pages again when one of these changes; it reads none again.
    config.html_context = config.html_context | {
        "version_name": release.name,
        "version_release": release.describe.removesuffix("-dirty"),
        "versions_url": f"{site_address(config)}versions.html",
    }
    app.connect("write-started", lambda app, builder: _set_release(app, release))
    app.connect("build-finished", lambda app, error: _write_versions(app, release, error))


def _set_release(app: Sphinx, release: Release) -> None:
    """Set release and version; set earlier, each commit would have all pages read again."""
    app.config.release = release.describe.removesuffix("-dirty")  # as pages have it
    app.config.version = release.name


def _frame(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    content = {"title": front.TITLE, "body": front.BODY, "pageurl": None}
    yield Path(front.FRAME).stem, content, "page.html"


def find_changes(root: Path, name: str) -> str:
    """What release *name* changed, in Markdown; nothing where *root* does not say it."""
    log = root / "CHANGELOG.md"
    text = log.read_text("utf-8", "replace") if log.is_file() else ""
    number = re.escape(name.removeprefix("v"))
    heading = rf"^##[ \t]+\[?v?{number}(?![\w.+-]).*\n"
    if versions.number(name) and (found := re.search(rf"{heading}((?:(?!## ).*\n?)*)", text, re.M)):
        return found[1].strip() + "\n"
    message = "%(if:equals=tag)%(objecttype)%(then)%(contents:subject)%0a%0a%(contents:body)%(end)"
    return git(root, "for-each-ref", f"--format={message}", f"refs/tags/{name}") or ""


def _write_versions(app: Sphinx, release: Release, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    documents = {unquote(app.builder.get_target_uri(name)) for name in app.env.found_docs}
    generated = {f"{name}.html" for name in _GENERATED if Path(app.outdir, f"{name}.html").exists()}
    version = Version(
        name=release.name,
        release=release.describe,
        pages=tuple(sorted(documents | generated)),
        commit=release.commit,
        date=release.date,
    )
    listed = Versions("build", site_address(app.config), [version], app.config.project)
    Path(app.outdir, versions.FILE_NAME).write_bytes(listed.encode())
    told = Path(app.outdir, front.CHANGES)
    told.unlink(missing_ok=True)  # what another version changed
    if changes := find_changes(Path(app.confdir), release.name):
        told.write_text(changes, "utf-8", "replace")  # git takes any bytes
