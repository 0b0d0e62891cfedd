"""The code of a tutorial's page with half the markup.

To link names to the API reference, sphinx-gallery puts each token of the code into an element of
its own: each bracket, comma and space. On a long tutorial that is more than half of the page. When
the links are in place, this transform joins what looks alike, and leaves what has no colour bare.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

#: Pygments' classes of names, operators, punctuation and space, which have the colour of text.
_PLAIN = {("n",), ("o",), ("p",), ("w",)}


class LeanCode(SphinxPostTransform):
    """Join neighbouring tokens of one class, in blocks that sphinx-gallery has put links into."""

    default_priority = 6  # sphinx-gallery's own has 5
    formats = ("html",)

    def run(self, **options: Any) -> None:
        """Rewrite the blocks of one page."""
        del options
        for block in self.document.findall(lambda node: node.tagname == "code_links_block"):
            block[:] = list(joined(block.children))


def joined(children: list[nodes.Node]) -> Iterator[nodes.Node]:
    """The same text in fewer nodes; links are left alone."""
    for classes, group in groupby(children, _classes):
        if classes is None:
            yield from group
            continue
        text = "".join(node.astext() for node in group)
        yield nodes.inline(text, text, classes=list(classes)) if classes else nodes.Text(text)


def _classes(node: nodes.Node) -> tuple[str, ...] | None:
    """The classes of a token, none for a plain one; None for what is no token, such as a link."""
    if isinstance(node, nodes.Text):
        return ()
    if type(node) is not nodes.inline:
        return None
    classes = tuple(node["classes"])
    return () if classes in _PLAIN else classes


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_post_transform(LeanCode)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
