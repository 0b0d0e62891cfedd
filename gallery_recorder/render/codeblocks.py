"""A page's code as one string of HTML, with the links that sphinx-gallery would put into it.

To link names to the API reference, sphinx-gallery makes a docutils node of each token: each
bracket, comma and space. On a page of code that is most of the nodes, and an eighth of the time of
a cold build. Here a block becomes one node that holds its HTML; neighbouring tokens of one class
share an element. ``gallery_plain_tokens`` in ``conf.py`` names the classes of Pygments that look
like plain text in the project's theme, which get no element at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import groupby
from typing import Any, NoReturn

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from gallery_recorder import seam


class CodeBlock(nodes.General, nodes.FixedTextElement):
    """A block of code, highlighted and linked; its text is its only child."""


def setup(app: Sphinx) -> None:
    """Register the transform and its node."""
    app.add_node(CodeBlock, html=(_visit, None))
    app.add_post_transform(LinkedCode)


def _visit(translator: Any, node: CodeBlock) -> NoReturn:
    translator.body.append(node["html"])
    raise nodes.SkipNode


class LinkedCode(SphinxPostTransform):
    """Do for sphinx-gallery what its own transform does, which then finds nothing left to do."""

    default_priority = seam.CODE_LINKS_PRIORITY - 1
    formats = ("html",)

    def run(self, **options: Any) -> None:
        """Rewrite the blocks of one page; those with numbered lines stay sphinx-gallery's."""
        del options
        links = seam.code_links(self.env, self.env.docname)
        if links is None:
            return
        plain = frozenset(self.config.gallery_plain_tokens)
        for block in list(self.document.findall(nodes.literal_block)):
            language = block.get("language") or "default"
            tokens = links.tokens(language, block.rawsource)
            if tokens and not block.get("linenos"):
                html = (
                    f'<div class="highlight-{language} notranslate"><div class="highlight"><pre>'
                    f"{joined(tokens, plain)}</pre></div></div>\n"
                )
                block.replace_self(CodeBlock(block.rawsource, block.rawsource, html=html))


def joined(tokens: Iterable[seam.Token], plain: frozenset[str]) -> str:
    """HTML with one element for neighbours of one class, and none where the class is *plain*."""
    parts = []
    for kind, group in groupby(tokens, lambda token: "" if token[0] in plain else token[0]):
        if kind.startswith("<a"):
            parts += [f"{kind}{joined(inner, plain)}</a>" for _, inner in group]
            continue
        text = escape("".join(text for _, text in group), quote=False)
        parts.append(f'<span class="{kind}">{text}</span>' if kind else text)
    return "".join(parts)
