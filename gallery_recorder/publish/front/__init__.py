"""The files at the root of a site, beside its versions, all made from the list of versions.

``index.html`` leads to the stable version, with and without a script. ``versions.html`` lists all,
``404.html`` searches, ``feed.xml`` announces releases, ``sitemap.xml`` and ``robots.txt`` are for
search engines, and ``.nojekyll`` has GitHub Pages serve folders that begin with an underscore.

What a version's own build says is taken over: the frame of its pages, with logo and menu, around
the first two, and what it changed into the feed (see :mod:`~gallery_recorder.publish.release`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from gallery_recorder.publish import versions
from gallery_recorder.publish.versions import Version, Versions

#: Files of a version's tree: a page with nothing but these two marks, and what it changed, in
#: Markdown. Where they are missing, pages are plain, and the feed has no notes.
FRAME, CHANGES = "_frame.html", "_changes.md"
TITLE, BODY = "gallery-front-title", "<!-- gallery-front-body -->"

_TEMPLATES = ("index.html", "versions.html", "404.html", "feed.xml", "sitemap.xml", "robots.txt")
_FRAMED = ("versions.html", "404.html")
_GENERATED = ("genindex.html", "py-modindex.html", "search.html")
_UNSEEN = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML cannot have it
_RELATIVE = re.compile(r'(\s(?:href|src|action|data-content_root)=")(?!#|/|[a-z]+:)(?:\./)?')


@cache
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(__name__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def files(listed: Versions, told: Callable[[Version, str], str]) -> dict[str, bytes]:
    """The name and the content of every file at the root; ``versions.json`` comes first.

    *told* gives the text of a file in the tree of a version; empty where there is none.
    """
    # Imported here: the other commands need no templates, and start faster.
    from markdown_it import MarkdownIt

    templates = _templates()
    path = urlsplit(listed.address).path
    markdown = MarkdownIt("commonmark", {"html": False})
    context = {
        "versions": listed,
        "address": listed.address,
        "path": path,
        "stable": versions.STABLE,
        "generated": _GENERATED,
        "describe": lambda version: _describe(listed, version),
        "changes": lambda version: markdown.render(told(version, CHANGES)).strip(),
    }
    frame = told(listed.stable, FRAME) if listed.stable else ""
    made = {versions.FILE_NAME: listed.encode()}
    for name in _TEMPLATES:
        template = templates.get_template(name)
        if name in _FRAMED and BODY in frame:
            # The address of a page that is not there may be at any depth.
            root = path if name == "404.html" else ""
            framed = _RELATIVE.sub(rf"\g<1>{root}{versions.STABLE}/", frame)
            parts = template.new_context(context)
            block = {key: "".join(made(parts)).strip() for key, made in template.blocks.items()}
            framed = framed.replace("</head>", f"{block['head']}</head>", 1)
            text = framed.replace(TITLE, block["title"]).replace(BODY, block["main"])
        else:
            text = template.render(context)
        made[name] = _UNSEEN.sub("\ufffd", text).encode()
    return made | {".nojekyll": b""}


def _describe(listed: Versions, version: Version) -> list[str]:
    """What a reader wants to know of a version, in a few words."""
    number = version.number
    words = [
        ("in development", number is None),
        ("stable", number is not None and version is listed.stable),
        ("pre-release", number is not None and number.is_prerelease),
        ("old", listed.is_old(version)),
        (version.release, version.release != version.name),
        ((version.date or "")[:10], version.date),
    ]
    return [word for word, holds in words if holds]
