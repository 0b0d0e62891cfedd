"""``.. cards:: first hour``: the tutorials of a level, with introduction and minutes to read.

A script names its level in a comment: ``# sphinx_gallery_level = "first hour"``.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.selection import Page
from triton_site.pages.chapters import first_paragraph

#: How fast a page is read: words of prose and lines of code a minute.
_WORDS, _LINES = 180, 25


class CardsPlace(nodes.General, nodes.Element):
    """The place of the cards of a *level*, which is filled when all pages have been read."""


class CardsDirective(SphinxDirective):
    """``.. cards:: LEVEL``."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Leave a node that the resolved page replaces."""
        domain = domain_of(self.env)
        domain.depends("introductions")
        domain.depends("recordings")
        return [CardsPlace(level=self.arguments[0])]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("cards", CardsDirective)
    app.add_node(CardsPlace)
    app.connect("doctree-resolved", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def minutes(page: Page) -> int:
    """How long reading takes, in steps of five minutes; folded code is not read."""
    text = [block.content for block in page.script.blocks if block.type == "text"]
    code = [block.content for block in page.script.blocks if block.type == "code"]
    words = sum(len(content.split()) for content in text)
    lines = sum(len(c.splitlines()) for c in code if "sphinx_gallery_fold" not in c)
    return 5 * max(round((words / _WORDS + lines / _LINES) / 5), 1)


def _fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for place in list(doctree.findall(CardsPlace)):
        pages = (p for p in domain_of(app.env).selection.main)
        level = [p for p in pages if p.script.settings.get("level") == place["level"]]
        cards = (_card(app, docname, page) for page in sorted(level, key=lambda p: p.docname))
        place.replace_self(nodes.container("", *cards, classes=["gallery-cards"]))


def _card(app: Sphinx, docname: str, page: Page) -> nodes.container:
    uri = app.builder.get_relative_uri(docname, page.docname)
    title = app.env.titles[page.docname].astext()
    link = nodes.reference("", title, internal=True, refuri=uri)
    about = nodes.paragraph("", first_paragraph(app.env.get_doctree(page.docname)))
    time = nodes.paragraph("", f"{minutes(page)} minutes", classes=["gallery-minutes"])
    heading = nodes.paragraph("", "", link, classes=["gallery-card-title"])
    return nodes.container("", heading, about, time, classes=["gallery-card"])
