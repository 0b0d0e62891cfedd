"""The files at the root of a site, beside its versions, all made from the list of versions.

``index.html`` leads to the stable version, with and without a script. ``versions.html`` lists all,
``404.html`` searches, ``feed.xml`` announces releases, ``sitemap.xml`` and ``robots.txt`` are for
search engines, and ``.nojekyll`` has GitHub Pages serve folders that begin with an underscore.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from gallery_recorder.publish import versions
from gallery_recorder.publish.versions import Version, Versions

_TEMPLATES = ("index.html", "versions.html", "404.html", "feed.xml", "sitemap.xml", "robots.txt")
_GENERATED = ("genindex.html", "py-modindex.html", "search.html")


def files(listed: Versions) -> dict[str, bytes]:
    """The name and the content of every file at the root; ``versions.json`` comes first."""
    # Imported here: the other commands need no templates, and start faster.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader(__name__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

    def describe(version: Version) -> list[str]:
        return _describe(listed, version)

    made = {versions.FILE_NAME: listed.encode()}
    for name in _TEMPLATES:
        text = templates.get_template(name).render(
            versions=listed,
            address=listed.address,
            path=urlsplit(listed.address).path,
            stable=versions.STABLE,
            generated=_GENERATED,
            describe=describe,
        )
        made[name] = text.encode()
    return made | {".nojekyll": b""}


def _describe(listed: Versions, version: Version) -> list[str]:
    """What a reader wants to know of a version, in a few words."""
    words = []
    if version.number is None:
        words.append("in development")
    elif version is listed.stable:
        words.append("stable")
    if version.number is not None and version.number.is_prerelease:
        words.append("pre-release")
    if listed.is_old(version):
        words.append("old")
    if version.release != version.name:
        words.append(version.release)
    if version.date:
        words.append(version.date[:10])
    return words
