"""Solutions in the order of their exercises, grouped by tutorial.

A tutorial links to each solution from its exercises, as ``<solutions/02-log-softmax>``; these links
give the order. In ``conf.py``::

    sphinx_gallery_conf = {"within_subsection_order": "triton_site.pages.solutions.ExerciseOrder"}
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_FOLDER = "solutions"


class ExerciseOrder:
    """A sort key of sphinx-gallery: file names, and in the solutions the order of the exercises."""

    def __init__(self, src_dir: str | Path) -> None:
        self.folder = Path(src_dir)

    def __call__(self, filename: str) -> tuple[str, int, str]:
        """Return the sort key of *filename* among the files of its folder."""
        name = Path(filename).stem
        if self.folder.name != _FOLDER:
            return (name, 0, name)
        number = name.partition("-")[0]
        text = _tutorials(self.folder.parent, number)
        place = text.find(f"<{_FOLDER}/{name}>")
        return (number, place if place >= 0 else len(text), name)


@cache
def _tutorials(folder: Path, number: str) -> str:
    """The text of the tutorials with *number*, without line breaks in comments."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"{number}*.py"))]
    return "\n".join(texts).replace("\n# ", "")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", lambda app: _tutorials.cache_clear(), priority=400)
    app.connect("doctree-resolved", _group)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _group(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the titles of the tutorials above the cards of their solutions."""
    gallery, folder, name = docname.rpartition(f"/{_FOLDER}/")
    if not folder or name != "index":
        return
    last = ""
    card: nodes.raw | None = None
    for node in list(doctree.findall(lambda n: isinstance(n, nodes.raw | nodes.reference))):
        if isinstance(node, nodes.raw):
            card = node if 'class="sphx-glr-thumbcontainer"' in node.astext() else card
            continue
        number = node.get("refuri", "").rpartition("/")[2].partition("-")[0]
        if card is not None and number.isdigit() and number != last:
            last = number
            # 03 and 03b, but no pages of other recordings, whose names have a dot
            pattern = re.compile(rf"{re.escape(gallery)}/{number}[^/.]*")
            names = sorted(filter(pattern.fullmatch, app.env.found_docs))
            title = escape(" · ".join(app.env.titles[name].astext() for name in names))
            heading = nodes.raw("", f'<p class="gallery-group">{title}</p>', format="html")
            card.parent.insert(card.parent.index(card), heading)
