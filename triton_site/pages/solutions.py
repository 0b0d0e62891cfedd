"""Solutions stand in the order of their exercises, grouped by tutorial, and lead back to them.

A tutorial links to each solution from its exercises, as ``<solutions/02-log-softmax>``: that is the
order. In ``conf.py``::

    extensions = ["triton_site.pages.solutions"]
    sphinx_gallery_conf = {"within_subsection_order": "triton_site.pages.solutions.ExerciseOrder"}
"""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_FOLDER = "solutions"


class ExerciseOrder:
    """A sort key of sphinx-gallery: by file name, and solutions by the place of their exercise."""

    def __init__(self, src_dir: str | Path) -> None:
        self.folder = Path(src_dir)

    def __call__(self, filename: str) -> tuple[str, int, str]:
        """Return what decides the place of *filename* among the files of its folder."""
        name = Path(filename).stem
        if self.folder.name != _FOLDER:
            return (name, 0, name)
        number = name.partition("-")[0]
        text = _tutorials(self.folder.parent, number)
        place = text.find(f"<{_FOLDER}/{name}>")
        return (number, place if place >= 0 else len(text), name)


@cache
def _tutorials(folder: Path, number: str) -> str:
    """The text of the tutorials whose number is *number*, without line breaks in comments."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"{number}*.py"))]
    return "\n".join(texts).replace("\n# ", "")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", lambda app: _tutorials.cache_clear(), priority=400)
    app.connect("doctree-resolved", _lead_back)
    app.connect("doctree-resolved", _group)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}


def _lead_back(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """The link from a solution to its tutorial opens at the exercises."""
    folder, _, name = docname.rpartition("/")
    if not folder.endswith(f"/{_FOLDER}") or name == "index":
        return
    number = name.partition("-")[0]
    gallery = folder.removesuffix(f"/{_FOLDER}")
    for link in doctree.findall(nodes.reference):
        uri = link.get("refuri", "")
        for tutorial in _of_number(app, gallery, number):
            if uri == app.builder.get_relative_uri(docname, tutorial):
                link["refuri"] = f"{uri}#exercises"
                return


def _group(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """In the list of solutions, each tutorial's stand below its title."""
    if not docname.endswith(f"/{_FOLDER}/index"):
        return
    gallery = docname.removesuffix(f"/{_FOLDER}/index")
    last = ""
    card: nodes.raw | None = None
    for node in list(doctree.findall(lambda n: isinstance(n, nodes.raw | nodes.reference))):
        if isinstance(node, nodes.raw):
            card = node if 'class="sphx-glr-thumbcontainer"' in node.astext() else card
            continue
        number = node.get("refuri", "").rpartition("/")[2].partition("-")[0]
        if card is None or not number.isdigit() or number == last:
            continue
        last = number
        titles = [app.env.titles[name].astext() for name in _of_number(app, gallery, number)]
        text = f'<p class="gallery-group">{escape(" · ".join(titles))}</p>'
        card.parent.insert(card.parent.index(card), nodes.raw("", text, format="html"))


def _of_number(app: Sphinx, gallery: str, number: str) -> list[str]:
    """The pages of the tutorials with *number*: a long one has two."""
    return sorted(
        name
        for name in app.env.found_docs
        if name.startswith(f"{gallery}/{number}") and name.count("/") == gallery.count("/") + 1
    )
