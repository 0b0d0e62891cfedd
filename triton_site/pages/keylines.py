"""Key lines of code: the comment ``# <-`` ends them, and the page highlights them.

A kernel of twenty lines has one or two that carry its idea::

    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=-float("inf"))  # <-

The script and the notebook keep the comment. The page does not show it. Sphinx highlights lines of
its own code blocks; those in which sphinx-gallery has linked names are highlighted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

#: A class of a block for each of its key lines, followed by the line's number.
_LINE = "gallery-key-line-"
_MARK = re.compile(r"[ \t]*# <-[ \t]*$", re.M)


def setup(app: Sphinx) -> dict[str, Any]:
    """Change the code blocks of each page that is read, before other topics look at them."""
    app.connect("doctree-read", _highlight, priority=300)
    app.connect("doctree-resolved", _highlight_linked)
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
        block["classes"] = [f"{_LINE}{line}" for line in lines]  # which sphinx-gallery keeps
    return block


def _highlight(app: Sphinx, doctree: nodes.document) -> None:
    del app
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language", "").lower() == "python" and _MARK.search(block.astext()):
            made = code_block(block.astext())
            block["highlight_args"] = block.get("highlight_args", {}) | made["highlight_args"]
            block["classes"] += made["classes"]
            block.rawsource = made.rawsource
            block[:] = made.children


def _highlight_linked(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Highlight the key lines of blocks in which sphinx-gallery has linked names."""
    del app, docname
    for block in list(
        doctree.findall(lambda node: isinstance(node, nodes.Element) and "lang" in node)
    ):
        keys = {int(name[len(_LINE) :]) for name in block["classes"] if name.startswith(_LINE)}
        if keys:
            lines = list(_lines(block.children))
            block.clear()
            for number, line in enumerate(lines, 1):
                block += nodes.inline("", "", *line, classes=["hll"]) if number in keys else line


def _lines(tokens: list[nodes.Node]) -> Iterator[list[nodes.Node]]:
    """The *tokens* of each line of code; a token of several lines becomes one for each."""
    line: list[nodes.Node] = []
    for token in tokens:
        parts = token.astext().splitlines(keepends=True)
        for part in parts:
            if len(parts) == 1:
                line.append(token)
            elif isinstance(token, nodes.Text):
                line.append(nodes.Text(part))
            else:
                line.append(nodes.inline(part, part, classes=token["classes"]))
            if part.endswith("\n"):
                yield line
                line = []
    yield line
