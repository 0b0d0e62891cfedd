"""Views: pages for other recordings than the main page's, with ``gallery_others = True``.

The view ``02-softmax.release-9`` shows the example ``02-softmax`` as recorded with the variant
``release-9``. Views are in no menu and no search, and cross-references lead to the main page.
"""

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform

from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.selection import Page


def setup(app: Sphinx) -> None:
    """Register the transform and the events."""
    app.add_transform(LocalNames)
    app.connect("source-read", _prepare_source)


def _view(env: BuildEnvironment, docname: str) -> Page | None:
    """The page *docname* if it is a view."""
    page = domain_of(env).pages.get(docname)
    return page if page and page.view else None


def _prepare_source(app: Sphinx, docname: str, content: list[str]) -> None:
    """Keep a view out of menus and search; offer the example's script for download.

    Only equations of the main page have labels.
    """
    if page := _view(app.env, docname):
        name, script = f"{docname.rpartition('/')[2]}.py", page.script.path.name
        text = content[0].replace(f"{name} <{name}>", f"{script} <{script}>")
        text = re.sub(r"^ +:label: .*\n", "", text, flags=re.MULTILINE)
        content[0] = f":orphan:\n:nosearch:\n\n{text}"


class LocalNames(SphinxTransform):
    """Leave labels, citations, index entries and toctrees to the main page."""

    default_priority = 610  # Sphinx registers citations at 619, labels at 850

    def apply(self, **options: object) -> None:
        """Change a view; leave all other documents unchanged."""
        del options
        if not _view(self.env, self.env.docname):
            return
        for name in self.document.nametypes:
            if not name.startswith("sphx_glr_"):  # which has the name of the page
                self.document.nametypes[name] = False
        for citation in list(self.document.findall(nodes.citation)):
            label, *body = citation.children
            term = nodes.term("", f"[{label.astext()}]")
            item = nodes.definition_list_item("", term, nodes.definition("", *body))
            citation.replace_self(nodes.definition_list("", item))
        for kind in (addnodes.index, addnodes.toctree):
            for node in list(self.document.findall(kind)):
                node.parent.remove(node)
