"""The one writer of Markdown: a page's nodes as text for notebooks and programs.

The dialect is what JupyterLab, Colab and GitHub share: pipe tables, ``$`` formulas, fenced code.
All links are absolute, because the text is read away from the site.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urljoin

from docutils import nodes
from sphinx import addnodes

from triton_site.pages.folds import Fold

#: The class of sphinx-gallery's links to downloads, which may hold this text themselves.
_DOWNLOADS = "sphx-glr-footer"
#: Nodes without text: comments, targets, index entries, markup of another format.
_SILENT = (nodes.Invisible, nodes.raw, nodes.system_message, addnodes.toctree)
#: Characters with a meaning in Markdown.
_SPECIAL = re.compile(r"([\\`*_\[\]<>$|])")
_AT_START = re.compile(r"^(\s*)([#+-]|\d+[.)])(?=\s)")
_INLINE = {nodes.emphasis: "*{}*", nodes.strong: "**{}**", nodes.superscript: "^{}"}


class Writer:
    """Writes nodes of the page at *address*, whose folds stay *folded* where HTML is rendered."""

    def __init__(self, address: str, folded: bool = False) -> None:
        self.address = address
        self.folded = folded

    def blocks(self, children: list[nodes.Node], level: int = 1) -> str:
        """Several blocks with blank lines between them; *level* is the next heading's."""
        return "\n\n".join(filter(None, (self.block(child, level) for child in children)))

    def block(self, node: nodes.Node, level: int = 1) -> str:
        """One block; empty if it has no text."""
        if not isinstance(node, nodes.Element):
            return self.inline_text(node)
        if isinstance(node, _SILENT) or _DOWNLOADS in node.get("classes", ()):
            return ""
        if "lang" in node:  # a code block in which sphinx-gallery has linked names
            return fenced(node.astext(), node["lang"].lower())
        writers: list[tuple[type, Callable[..., str]]] = [
            (nodes.section, lambda n: self.blocks(n.children, level + 1)),
            (nodes.title, lambda n: f"{'#' * max(1, level - 1)} {self.inline(n)}"),
            (nodes.rubric, lambda n: f"**{self.inline(n)}**"),
            (nodes.math_block, self._formula),
            (addnodes.desc_signature, self._signature),
            (nodes.FixedTextElement, self._code),  # code blocks of any kind
            (nodes.bullet_list, lambda n: self._list(n, lambda number: "- ")),
            (nodes.enumerated_list, lambda n: self._list(n, lambda number: f"{number}. ")),
            (nodes.definition_list_item, self._definition),
            (nodes.field, lambda n: f"- **{self.inline(n[0])}**: {self._cell(n[1])}"),
            (nodes.table, self._table),
            (nodes.image, self._image),
            (nodes.paragraph, self._text),  # some of the engine's are admonitions, too
            (nodes.Admonition, self._admonition),
            (nodes.block_quote, lambda n: _indent(self.blocks(n.children, level), "> ")),
            (Fold, self._fold),
            (nodes.TextElement, self._text),
        ]
        for kind, write in writers:
            if isinstance(node, kind):
                return write(node)
        return self.blocks(node.children, level)

    def _text(self, node: nodes.Element) -> str:
        return _AT_START.sub(r"\1\\\2", self.inline(node))

    def _code(self, node: nodes.Element) -> str:
        language = str(node.get("language", "")).lower()
        return fenced(node.astext(), "" if language in ("none", "default") else language)

    def _signature(self, node: nodes.Element) -> str:
        names = (addnodes.desc_addname, addnodes.desc_name)
        text = "".join(part.astext() for part in node.children if isinstance(part, names))
        for parameters in node.findall(addnodes.desc_parameterlist):
            text += f"({', '.join(part.astext() for part in parameters.children)})"
        return f"**{code_span(text)}**"

    def _formula(self, node: nodes.Element) -> str:
        text = node.astext().strip()
        if ("&" in text or r"\\" in text) and r"\begin" not in text:
            text = f"\\begin{{aligned}}\n{text}\n\\end{{aligned}}"
        return f"$$\n{text}\n$$"

    def _list(self, node: nodes.Element, marker: Callable[[int], str]) -> str:
        loose = any(len(item.children) > 1 for item in node.children)
        items = []
        for number, item in enumerate(node.children, node.get("start", 1)):
            sign = marker(number)
            items.append(sign + _indent(self.blocks(item.children), " " * len(sign)).lstrip())
        return ("\n\n" if loose else "\n").join(items)

    def _definition(self, node: nodes.Element) -> str:
        # CommonMark has no definition lists: the items of a list begin with their terms.
        terms = ", ".join(
            self.inline(term) for term in node.children if isinstance(term, nodes.term)
        )
        return f"- {terms}\n\n{_indent(self.blocks(node[-1].children), '  ')}"

    def _table(self, node: nodes.Element) -> str:
        rows = [[self._cell(entry) for entry in row.children] for row in node.findall(nodes.row)]
        if not node.next_node(nodes.thead):
            rows.insert(0, [""] * len(rows[0]))
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, f"|{' --- |' * len(rows[0])}")
        titles = [f"**{self.inline(c)}**\n" for c in node.children if isinstance(c, nodes.title)]
        return "\n".join([*titles, *lines])

    def _cell(self, node: nodes.Element) -> str:
        return " ".join(self.blocks(node.children).split())

    def _image(self, node: nodes.Element) -> str:
        return f"![{_escaped(node.get('alt', ''))}]({urljoin(self.address, node['uri'])})"

    def _admonition(self, node: nodes.Element) -> str:
        children = list(node.children)
        name = node.tagname.capitalize()
        if children and isinstance(children[0], nodes.title):
            name = self.inline(children.pop(0))
        return _indent(f"**{name}**\n\n{self.blocks(children)}", "> ")

    def _fold(self, node: nodes.Element) -> str:
        summary = node["summary"] + (f" ({node['note']})" if node.get("note") else "")
        content = self.blocks(node.children)
        if self.folded:
            return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"
        return f"*{_escaped(summary)}:*\n\n{content}"

    def inline(self, node: nodes.Element) -> str:
        """The text of *node* with its emphasis, code, formulas and links, in one line."""
        return "".join(map(self.inline_text, node.children)).strip()

    def inline_text(self, node: nodes.Node) -> str:
        """One piece of a line."""
        if isinstance(node, nodes.Text):
            return _escaped(re.sub(r"\s*\n\s*", " ", node.astext()))
        if isinstance(node, _SILENT):
            return ""
        if isinstance(node, nodes.literal):
            return code_span(node.astext())
        if isinstance(node, nodes.math):
            return f"${' '.join(node.astext().split())}$"
        if isinstance(node, nodes.image):
            return self._image(node)
        text = "".join(map(self.inline_text, node.children))
        if isinstance(node, nodes.reference):
            target = node.get("refuri") or (f"#{node['refid']}" if "refid" in node else "")
            return f"[{text}]({urljoin(self.address, target)})" if target else text
        return _INLINE.get(type(node), "{}").format(text)


def code_span(text: str) -> str:
    """Code inside a line, with any backticks in it."""
    text = " ".join(text.split())
    fence = _fence(text, 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fenced(text: str, language: str = "") -> str:
    """A block of code, with any fences in it."""
    fence = _fence(text, 3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _fence(text: str, least: int) -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _indent(text: str, prefix: str) -> str:
    return "\n".join((prefix + line).rstrip() for line in text.split("\n"))
