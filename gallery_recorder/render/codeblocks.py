"""A page's code as one string of HTML, with the links that sphinx-gallery would put into it.

To link names to the API reference, sphinx-gallery makes a docutils node of each token: each
bracket, comma and space. On a page of code that is most of the nodes, and an eighth of the time of
a cold build. Here a block becomes one node that holds its HTML; neighbouring tokens of one class
share an element. ``gallery_plain_tokens`` in ``conf.py`` names the classes of Pygments that look
like plain text in the project's theme, which get no element at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from typing import Any, NoReturn

from docutils import nodes
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Name, Operator
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from gallery_recorder.render import seam

_LEXERS: dict[str, Lexer] = {}

#: A token's class and text; a link's HTML has the class None.
_Piece = tuple[str | None, str]


class CodeBlock(nodes.General, nodes.FixedTextElement):
    """A block of code, highlighted and linked; its text is its only child."""


def setup(app: Sphinx) -> None:
    """Register the transform, its node and its setting."""
    app.add_config_value("gallery_plain_tokens", (), "html", (list, tuple))
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
        docname = self.env.docname
        links = seam.code_links(self.env, docname)
        if links is None:
            return
        plain = frozenset(self.config.gallery_plain_tokens)
        for block in list(self.document.findall(nodes.literal_block)):
            language = block.get("language") or "default"
            lexer = seam.lexer_of(language, block.rawsource)
            if lexer is None or block.get("linenos"):
                continue
            pieces = _pieces(block.rawsource, _lexer(lexer), links, plain)
            html = (
                f'<div class="highlight-{language} notranslate"><div class="highlight"><pre>'
                f"{_joined(pieces, plain)}</pre></div></div>\n"
            )
            block.replace_self(CodeBlock(block.rawsource, block.rawsource, html=html))


def _lexer(name: str) -> Lexer:
    return _LEXERS.setdefault(name, get_lexer_by_name(name))


def _pieces(
    code: str, lexer: Lexer, links: seam.CodeLinks, plain: frozenset[str]
) -> Iterator[_Piece]:
    """The tokens of *code*, and links where a dotted name is documented."""
    tokens = list(lexer.get_tokens(code))
    number, before = 0, None
    while number < len(tokens):
        kind, text = tokens[number]
        # The `b` of `a().b` belongs to what stands before it, and is no name of its own.
        if kind in Name and before != (Operator, "."):
            for name, length in _dotted_names(tokens, number):
                if link := links.opening_tag(name):
                    parts = tokens[number : number + length]
                    inner = _joined(((seam.token_class(part), word) for part, word in parts), plain)
                    yield None, f"{link}{inner}</a>"
                    number += length
                    before = parts[-1]
                    break
            else:
                yield seam.token_class(kind), text
                number, before = number + 1, (kind, text)
            continue
        yield seam.token_class(kind), text
        if text.strip():
            before = (kind, text)
        number += 1


def _dotted_names(tokens: list[tuple[Any, str]], first: int) -> Iterator[tuple[str, int]]:
    """``a.b.c``, ``a.b`` and ``a`` with the number of tokens of each, from token *first* on."""
    last = first
    while (
        last + 2 < len(tokens)
        and tokens[last + 1] == (Operator, ".")
        and tokens[last + 2][0] in Name
    ):
        last += 2
    for end in range(last, first - 1, -2):
        yield "".join(text for _, text in tokens[first : end + 1]), end - first + 1


def _joined(pieces: Iterable[_Piece], plain: frozenset[str]) -> str:
    """HTML with one element for neighbours of one class, and none where the class is *plain*."""
    parts = []
    for kind, group in groupby(pieces, lambda piece: "" if piece[0] in plain else piece[0]):
        text = "".join(text for _, text in group)
        if kind is None:
            parts.append(text)
        elif kind:
            parts.append(f'<span class="{kind}">{escape(text, quote=False)}</span>')
        else:
            parts.append(escape(text, quote=False))
    return "".join(parts)
