"""``.. cards:: LEVEL``: the pages of a level, each with its introduction and minutes to read.

A script names its level, and :mod:`triton_site.pages.path` orders it. The level of a
chapter, with or without code, is the folder of all chapters: ``.. cards:: programming-guide``.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import docname_join
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import Page, domain_of
from triton_site.pages.path import LEVELS, path_of

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


def _pages(env: BuildEnvironment, level: str) -> list[str]:
    """The pages of a level, in order; names with a dot are of other recordings."""
    if level in LEVELS:
        return path_of(env)[level]
    chapter = re.compile(rf"{re.escape(level)}/chapter-\d+/(?!recordings-|index$)[^/.]+")
    return sorted(name for name in env.found_docs if chapter.fullmatch(name))


def _fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for place in list(doctree.findall(CardsPlace)):
        cards = (_card(app, docname, name) for name in _pages(app.env, place["level"]))
        place.replace_self(nodes.container("", *cards, classes=["gallery-cards"]))


def _card(app: Sphinx, docname: str, name: str) -> nodes.container:
    uri = app.builder.get_relative_uri(docname, name)
    link = nodes.reference("", app.env.titles[name].astext(), internal=True, refuri=uri)
    card = nodes.container("", classes=["gallery-card"])
    card += nodes.paragraph("", "", link, classes=["gallery-card-title"])
    card += nodes.paragraph("", first_paragraph(app.env, app.env.get_doctree(name)))
    if page := domain_of(app.env).pages.get(name):
        card += nodes.paragraph("", f"{minutes(page)} minutes", classes=["gallery-minutes"])
    return card


def first_paragraph(env: BuildEnvironment, doctree: nodes.document) -> str:
    """The first paragraph of the author's, without citations; pages are named by their titles."""
    paragraphs = (
        p for p in doctree.findall(nodes.paragraph) if isinstance(p.parent, nodes.section)
    )
    first = next((p for p in paragraphs if not p["classes"]), nodes.paragraph())
    for reference in list(first.findall(addnodes.pending_xref)):
        if reference["refdomain"] == "cite":
            reference.parent.remove(reference)
        elif reference["reftype"] == "doc" and not reference["refexplicit"]:
            name = docname_join(reference["refdoc"], reference["reftarget"])
            if name in env.titles:
                reference.replace_self(nodes.Text(env.titles[name].astext()))
    return re.sub(r"\s+(?=[.,]|$)", "", " ".join(first.astext().split()))
