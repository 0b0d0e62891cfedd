"""Key lines of code: the comment ``# <-`` ends them, and the page highlights them.

A kernel of twenty lines has one or two that carry its idea::

    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=-float("inf"))  # <-

The script and the notebook keep the comment. The page does not show it.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_MARK = re.compile(r"[ \t]*# <-[ \t]*$", re.M)


def setup(app: Sphinx) -> dict[str, Any]:
    """Change the code blocks of each page that is read, before other topics look at them."""
    app.connect("doctree-read", _highlight, priority=300)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def without_marks(code: str) -> str:
    """*code* without the comments that mark its key lines."""
    return _MARK.sub("", code)


def code_block(code: str) -> nodes.literal_block:
    """A block that shows *code* and highlights its key lines."""
    lines = [number for number, line in enumerate(code.split("\n"), 1) if _MARK.search(line)]
    shown = without_marks(code)
    block = nodes.literal_block(shown, shown, language="Python")
    if lines:
        block["highlight_args"] = {"hl_lines": lines}
    return block


def _highlight(app: Sphinx, doctree: nodes.document) -> None:
    del app
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language", "").lower() == "python" and _MARK.search(block.astext()):
            made = code_block(block.astext())
            block["highlight_args"] = block.get("highlight_args", {}) | made["highlight_args"]
            block.rawsource = made.rawsource
            block[:] = made.children
