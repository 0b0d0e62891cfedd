"""Links the first use of each glossary term on a tutorial's page to its entry.

Tutorials are written in plain words, which also read well in their scripts and notebooks. Where a
word of the glossary appears for the first time in a page's running text, singular or plural, it
becomes a link. Headings, code, captions and text that is a link already are left alone.

What each term means goes to ``_static/glossary-terms.js``, which ``terms.js`` fetches to show it at
the link.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from gallery_recorder.render import downloads
from triton_site.pages.search import SearchDomain

#: Where the terms are, below the site's root.
FILE_NAME = "_static/glossary-terms.js"

#: What is no running text, or has a meaning of its own.
_NOT_PROSE = (
    nodes.FixedTextElement,
    nodes.caption,
    nodes.literal,
    nodes.math,
    nodes.raw,
    nodes.reference,
    nodes.title,
    addnodes.pending_xref,
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_post_transform(LinkTerms)
    app.connect("build-finished", _write_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}


def _write_terms(app: Sphinx, error: Exception | None) -> None:
    """Write what the search has read of the glossary, by the anchor of each term."""
    if error or app.builder.format != "html":
        return
    pages = app.env.domaindata[SearchDomain.name]["pages"]
    terms = {
        section.anchor: section.prose
        for sections in pages.values()
        for section in sections
        if section.kind == "term"
    }
    text = f"galleryTerms({json.dumps(terms, ensure_ascii=False)});\n"
    downloads.write(Path(app.outdir, FILE_NAME), text.encode())


class LinkTerms(SphinxPostTransform):
    """Turn the first use of every term into a reference, before references are resolved."""

    default_priority = 6

    def run(self, **kwargs: Any) -> None:
        """Go through the page's text once, from the top."""
        del kwargs
        docname = self.env.current_document.docname
        folders = self.config.sphinx_gallery_conf["gallery_dirs"]
        if not docname.startswith(tuple(f"{folder}/" for folder in folders)):
            return
        terms = {
            name.lower(): name
            for name, _, kind, *_ in self.env.domains.standard_domain.get_objects()
            if kind == "term"
        }
        already = (node for node in self.document.findall(addnodes.pending_xref))
        for node in already:
            if node["reftype"] == "term":
                terms.pop(node["reftarget"].lower(), None)
        for text in list(self.document.findall(nodes.Text)):
            if not terms:
                return
            if _is_prose(text):
                text.parent.replace(text, _link(text.astext(), terms, docname))


def _is_prose(text: nodes.Text) -> bool:
    """Whether *text* belongs to a paragraph, and not to code or a link within it."""
    node: nodes.Node | None = text.parent
    in_paragraph = False
    while node is not None:
        if isinstance(node, _NOT_PROSE):
            return False
        if "gallery-provenance" in getattr(node, "attributes", {}).get("classes", ()):
            return False
        in_paragraph = in_paragraph or isinstance(node, nodes.paragraph)
        node = node.parent
    return in_paragraph


def _link(text: str, terms: dict[str, str], docname: str) -> list[nodes.Node]:
    """*text* in pieces, those that are in *terms* as references; what was linked is taken out."""
    pieces: list[nodes.Node] = []
    end = 0
    while found := _pattern(tuple(terms)).search(text, end):
        start = found.start()
        pieces.append(nodes.Text(text[end:start]))
        end = found.end()
        name = terms.pop(found["term"].lower())
        pieces.append(
            addnodes.pending_xref(
                "",
                nodes.inline("", text[start:end], classes=["gallery-term"]),
                refdomain="std",
                reftype="term",
                reftarget=name,
                refexplicit=True,
                refwarn=True,
                refdoc=docname,
            )
        )
        if not terms:
            break
    return [*pieces, nodes.Text(text[end:])]


@lru_cache
def _pattern(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Any of *terms*, the longest first, as a whole word that may be in the plural."""
    words = "|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True))
    return re.compile(rf"(?<![\w-])(?P<term>{words})(?:e?s)?(?![\w-])", re.IGNORECASE)
