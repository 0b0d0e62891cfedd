"""``.. cards:: LEVEL``: the pages of a level, each with its introduction and minutes to read.

A script names its level, and :mod:`triton_site.pages.path` orders it. A lesson's card has its
drawing, the first sentence of its introduction, and the sentence with its number. The level of a
chapter, with or without code, is the folder of all chapters: ``.. cards:: programming-guide``.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import docname_join
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import Page, domain_of
from triton_site.pages.path import LEVELS, path_of

#: Stands around a measured number in a text.
_BEGIN, _END = "\ue001\ue002"  # for private use
_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
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
    doctree = app.env.get_doctree(name)
    page = domain_of(app.env).pages.get(name)
    is_lesson = name in chain(*path_of(app.env).values())
    link = nodes.reference("", app.env.titles[name].astext(), internal=True, refuri=uri)
    card = nodes.container("", classes=["gallery-card"])
    if is_lesson and (picture := _picture(doctree)):
        card += picture
    card += nodes.paragraph("", "", link, classes=["gallery-card-title"])
    if is_lesson:
        card += _sentences(app.env, doctree)
    else:
        card += nodes.paragraph("", first_paragraph(app.env, doctree))
    if page:
        card += nodes.paragraph("", f"{minutes(page)} minutes", classes=["gallery-minutes"])
    return card


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


def _sentences(env: BuildEnvironment, doctree: nodes.document) -> list[nodes.paragraph]:
    """The first sentence of a page, and the first with a measured number, which is strong."""
    text = first_paragraph(env, doctree, _BEGIN, _END).replace(" %", "\N{NO-BREAK SPACE}%")
    found = _SENTENCES.split(text)
    line = nodes.paragraph("", _without_marks(found[0]))
    with_number = next((sentence for sentence in found[1:] if _BEGIN in sentence), None)
    if with_number is None:
        return [line]
    before, _, rest = with_number.partition(_BEGIN)
    number, _, after = rest.partition(_END)
    parts = nodes.Text(before), nodes.strong("", number), nodes.Text(_without_marks(after))
    return [line, nodes.paragraph("", "", *parts)]


def _without_marks(text: str) -> str:
    return text.replace(_BEGIN, "").replace(_END, "")


def first_paragraph(
    env: BuildEnvironment, doctree: nodes.document, begin: str = "", end: str = ""
) -> str:
    """The first paragraph of the author's, without citations; pages are named by their titles.

    Measured numbers stand between *begin* and *end*.
    """
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
    for number in [n for n in first.findall(nodes.inline) if "measured" in n["classes"]]:
        number.parent.replace(number, nodes.Text(f"{begin}{number.astext()}{end}"))
    return re.sub(r"\s+(?=[.,]|$)", "", " ".join(first.astext().split()))
