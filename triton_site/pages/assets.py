"""Style sheets and scripts only on pages that use them, and no script that blocks drawing.

Extensions add their files to every page. What a page needs is read from its own nodes and body.
In code, tokens that no rule of ours colors lose their elements: two thirds of a lesson's.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_CODE = '<div class="highlight'
#: A name, an operator, a sign or a space in code, which has the color of the text.
_PLAIN = re.compile(r'<span class="(?:n|o|p|w)">([^<]*)</span>')
#: Each file, by its name, and what the body of a page that uses it contains; None: no page does.
_USES: dict[str, re.Pattern[str] | None] = {
    "pygments.css": None,  # custom.css colors code, in the light and in the dark
    "copybutton.css": re.compile(_CODE),
    "clipboard.min.js": re.compile(_CODE),
    "copybutton.js": re.compile(_CODE),
    "documentation_options.js": re.compile(_CODE),  # for copybutton.js
    "sg_gallery.css": re.compile(r"sphx-glr-"),
    "sg_gallery-binder.css": re.compile(r"binder-badge"),
    "sg_gallery-dataframe.css": re.compile(r"output_html|dataframe"),
    "sg_gallery-rendered-html.css": re.compile(r"output_html"),
    "sg-tags.js": re.compile(r"sg-tag"),
    "gallery_recorder.css": None,  # our own rules say the same
    "jquery.js": None,
    "_sphinx_javascript_frameworks_compat.js": None,
    "doctools.js": None,
    "sphinx_highlight.js": None,
    "reading.css": re.compile(r"gallery-(?:fold|steps|tiles|predict|difference)|sphx-glr-|<h2"),
    "reference.css": re.compile(r'class="(?:api-|py |sig|side-by-side)|<figure class|citation'),
    "occupancy.js": re.compile(r"gallery-occupancy"),
    "tiles.js": re.compile(r"gallery-tiles"),
    "player.js": re.compile(r"<triton-trace"),
    "xray.js": re.compile(r"gallery-xray"),
    "plots.js": re.compile(r'sphx-glr-single-img" src="[^"]*\.svg|\.svg"[^>]*sphx-glr-single-img'),
}


def setup(app: Sphinx) -> dict[str, Any]:
    """Choose after all others have added their files."""
    app.connect("html-page-context", _choose, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _choose(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    del app, pagename, template, doctree
    body = context.get("body", "")
    if body:
        context["body"] = _PLAIN.sub(r"\1", body)
    for kind in ("css_files", "script_files"):
        files = context.get(kind, ())
        context[kind] = [_deferred(file) for file in files if _is_used(str(file.filename), body)]


def _deferred(file: Any) -> Any:
    """A script that waits until the page is drawn; a style sheet as it is."""
    if not str(file.filename).endswith(".js") or {"defer", "async"} & file.attributes.keys():
        return file
    made = type(file)  # of Sphinx
    return made(file.filename, priority=file.priority, **file.attributes | {"defer": ""})


def _is_used(file: str, body: str) -> bool:
    name = re.sub(r"\?.*", "", file).rpartition("/")[2]
    if name not in _USES:
        return True
    used = _USES[name]
    return used is not None and used.search(body) is not None
