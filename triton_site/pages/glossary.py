"""Links from the first use of each glossary term on a tutorial's page to its entry.

Tutorials are plain text in scripts and notebooks, so the page finds the terms, singular or plural.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from triton_site.pages.cells import page_of


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", _link_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _link_terms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    if page_of(app, docname) is None:
        return
    objects = app.env.domains.standard_domain.get_objects()
    terms = {
        name.lower(): f"{app.builder.get_relative_uri(docname, page)}#{anchor}"
        for name, _, kind, page, anchor, _ in objects
        if kind == "term"
    }
    for paragraph in doctree.findall(nodes.paragraph):
        for text in [child for child in paragraph if isinstance(child, nodes.Text)]:
            is_generated = paragraph["classes"] or isinstance(paragraph.parent, nodes.entry)
            if terms and not is_generated:
                paragraph.replace(text, list(_linked(text, terms)))


def _linked(text: str, terms: dict[str, str]) -> Iterator[nodes.Node]:
    """*text* with links in it; the linked *terms* are removed."""
    words = "|".join(sorted(map(re.escape, terms), key=len, reverse=True))
    end = 0
    for match in re.finditer(rf"(?<![\w-])({words})(?:e?s)?(?![\w-])", text, re.IGNORECASE):
        if uri := terms.pop(match[1].lower(), ""):
            yield nodes.Text(text[end : match.start()])
            word = nodes.inline("", match[0], classes=["gallery-term"])
            yield nodes.reference("", "", word, refuri=uri, internal=True)
            end = match.end()
    yield nodes.Text(text[end:])
