"""``.. cards:: LEVEL``: the pages of a level, a row each: title, a sentence, minutes to read.

A script names its level, and :mod:`triton_site.pages.path` orders it. A lesson's row has its
drawing beside the first sentence of its introduction. With ``:large:`` the rows are cards.
Chapters of the guide are named by their folders: ``.. cards:: chapter-4 chapter-5``.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import docname_join
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import Page, domain_of
from triton_site.pages.path import LEVELS, path_of

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
#: How fast a page is read: words of prose and lines of code a minute.
_WORDS, _LINES = 180, 25


class CardsPlace(nodes.General, nodes.Element):
    """The place of the rows of a *level*, which is filled when all pages have been read."""


class CardsDirective(SphinxDirective):
    """``.. cards:: LEVEL``."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {"large": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Leave a node that the resolved page replaces."""
        domain = domain_of(self.env)
        domain.depends("introductions")
        domain.depends("recordings")
        return [CardsPlace(level=self.arguments[0], large="large" in self.options)]


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
    found = []
    for chapter in level.split():
        page = re.compile(rf"programming-guide/{re.escape(chapter)}/(?!recordings-|index$)[^/.]+")
        found += sorted(name for name in env.found_docs if page.fullmatch(name))
    return found


def _fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for place in list(doctree.findall(CardsPlace)):
        rows = [_row(app, docname, name) for name in _pages(app.env, place["level"])]
        shape = "gallery-cards" if place["large"] else "gallery-rows"
        place.parent.replace(place, nodes.container("", *rows, classes=[shape]))


def _row(app: Sphinx, docname: str, name: str) -> nodes.container:
    uri = app.builder.get_relative_uri(docname, name)
    doctree = app.env.get_doctree(name)
    page = domain_of(app.env).pages.get(name)
    link = nodes.reference("", app.env.titles[name].astext(), internal=True, refuri=uri)
    row = nodes.container("", classes=["gallery-row"])
    picture = _picture(doctree)
    if picture is not None and name in chain(*path_of(app.env).values()):
        row += picture
    row += nodes.paragraph("", "", link, classes=["gallery-row-title"])
    sentence = first_sentence(app.env, doctree)
    row += nodes.paragraph("", sentence, classes=["gallery-row-text"])
    if page:
        row += nodes.paragraph("", f"{minutes(page)} minutes", classes=["gallery-minutes"])
    return row


def _picture(doctree: nodes.document) -> nodes.image | None:
    """The drawing of a page: the one beside its script, or the first that the script draws."""
    images = list(doctree.findall(nodes.image))
    images.sort(key=lambda image: "sphx-glr-single-img" in image["classes"])
    if not images:
        return None
    kind = "gallery-drawn" if images[0]["classes"] else "gallery-drawing"
    classes = ["gallery-card-picture", kind]
    uris = {"uri": images[0]["uri"], "candidates": images[0]["candidates"]}
    return nodes.image("", alt="", loading="lazy", classes=classes, **uris)


def first_sentence(env: BuildEnvironment, doctree: nodes.document) -> str:
    """The first sentence of a page."""
    return _SENTENCE.split(first_paragraph(env, doctree))[0]


def first_paragraph(env: BuildEnvironment, doctree: nodes.document) -> str:
    """The first paragraph of the author's, without citations; pages are named by their titles."""
    paragraphs = (
        p for p in doctree.findall(nodes.paragraph) if isinstance(p.parent, nodes.section)
    )
    first = next((p for p in paragraphs if not p["classes"]), nodes.paragraph()).deepcopy()
    for reference in list(first.findall(addnodes.pending_xref)):
        if reference["refdomain"] == "cite":
            reference.parent.remove(reference)
        elif reference["reftype"] == "doc" and not reference["refexplicit"]:
            name = docname_join(reference["refdoc"], reference["reftarget"])
            if name in env.titles:
                reference.replace_self(nodes.Text(env.titles[name].astext()))
    return re.sub(r"\s+(?=[.,]|$)", "", " ".join(first.astext().split()))
