"""Code with fewer bytes: no element for tokens that look like text, no attribute that nothing uses.

Pygments writes an element for each name, comma and space, sphinx-gallery five classes for each
link to the reference, and docutils an element for each word of code in a sentence; on a page of
kernels, or of the reference, that is most of what a reader downloads and a browser lays out. The
tokens in ``gallery_plain_tokens`` have the colour of text in this theme and stay plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pygments.formatters import HtmlFormatter
from pygments.token import STANDARD_TYPES, Text
from sphinx.application import Sphinx

#: What sphinx-gallery calls a link in code, and docutils a word of code: no rule asks for them.
_LINK = re.compile(r'<a class="sphx-glr-backref-[^"]*"')
#: docutils' roles of a bibliography: one that is deprecated, in a list that may not hold it.
_ROLE = re.compile(r' role="(?:list(?=" class="citation-list)|doc-biblioentry)"')
_WORD = re.compile(r'<span class="pre">([^<]*)</span>')


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", _use_lean_formatter)
    app.connect("html-page-context", _make_lean)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class LeanFormatter(HtmlFormatter):
    """HTML of code in which the tokens of the classes *plain* have no element."""

    def __init__(self, plain: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(**options)
        self._plain = {kind for kind, name in STANDARD_TYPES.items() if name in plain}

    def format_unencoded(self, tokensource: Iterator[tuple[Any, str]], outfile: Any) -> None:
        """Write the tokens to *outfile*."""
        tokens = ((Text if kind in self._plain else kind, text) for kind, text in tokensource)
        super().format_unencoded(tokens, outfile)


def _use_lean_formatter(app: Sphinx) -> None:
    bridge = getattr(app.builder, "highlighter", None)
    if app.builder.format == "html" and bridge is not None:
        plain = tuple(app.config.gallery_plain_tokens)
        bridge.formatter = lambda **options: LeanFormatter(plain, **options)


def lean(html: str) -> str:
    """*html* without what says nothing to a reader."""
    return _WORD.sub(r"\1", _ROLE.sub("", _LINK.sub("<a", html)))


def _make_lean(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    del app, pagename, template, doctree
    for part in ("body", "toc"):
        if context.get(part):
            context[part] = lean(context[part])
