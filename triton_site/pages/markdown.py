"""A page as Markdown: prose, lists, tables, formulas and code, with addresses that work anywhere.

Where a page is read outside of the site (in a notebook, by a program), reStructuredText's roles and
directives are noise. :func:`blocks` turns what Sphinx has read into Markdown of the kind that
JupyterLab, Colab and GitHub share: pipe tables, ``$`` formulas, fenced code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import urljoin

from docutils import nodes
from sphinx import addnodes

from triton_site.kernels.kernel_diff import Difference
from triton_site.pages.folds import Fold

#: The class of the links at the foot of a page to the files that this text may be part of.
_DOWNLOADS = "sphx-glr-footer"
#: What has no place in the text: comments, targets, markup of one format, and entries of the index.
_SILENT = (
    nodes.comment,
    nodes.target,
    nodes.substitution_definition,
    nodes.raw,
    nodes.system_message,
    addnodes.index,
    addnodes.toctree,
)
_ADMONITIONS = (nodes.note, nodes.warning, nodes.tip, nodes.hint, nodes.important, nodes.caution,
                nodes.danger, nodes.error, nodes.attention, nodes.admonition)  # fmt: skip
#: Markdown's own characters; a page's text must not be taken for them.
_SPECIAL = re.compile(r"([\\`*_\[\]<>$|])")
_AT_START = re.compile(r"^(\s*)([#+-]|\d+[.)])(?=\s)")


class Writer:
    """Writes nodes of one page as Markdown.

    Args:
        address: The address of the page on the site, to which all links are made absolute.
    """

    def __init__(self, address: str) -> None:
        """Remember the address; it ends with ``.html``."""
        self.address = address

    # --- blocks -----------------------------------------------------------------------------------

    def blocks(self, children: list[nodes.Node], level: int = 1) -> str:
        """Several blocks, with blank lines between them; *level* is the next heading's."""
        found = (self.block(child, level) for child in children)
        return "\n\n".join(text for text in found if text)

    def block(self, node: nodes.Node, level: int = 1) -> str:
        """One block; empty for what has no text."""
        if isinstance(node, _SILENT) or (
            isinstance(node, nodes.Element) and _DOWNLOADS in node.get("classes", ())
        ):
            return ""
        writers: list[tuple[type | tuple[type, ...], Callable[..., str]]] = [
            (nodes.section, lambda n: self.blocks(n.children, level + 1)),
            (nodes.title, lambda n: f"{'#' * max(1, level - 1)} {self.inline(n)}"),
            (nodes.rubric, lambda n: f"**{self.inline(n)}**"),
            (nodes.literal_block, self._code),
            (nodes.doctest_block, self._code),
            (nodes.math_block, self._formula),
            (addnodes.desc_signature, self._signature),
            # What is written as it stands, whoever made the node: code blocks with links in them.
            (nodes.FixedTextElement, self._code),
            (nodes.bullet_list, lambda n: self._list(n, lambda number: "- ")),
            (nodes.enumerated_list, lambda n: self._list(n, lambda number: f"{number}. ")),
            (nodes.definition_list, self._definitions),
            (nodes.field_list, self._fields),
            (nodes.table, self._table),
            (nodes.image, self._image),
            (nodes.line_block, self._lines),
            (_ADMONITIONS, self._admonition),
            (nodes.block_quote, lambda n: _indent(self.blocks(n.children, level), "> ")),
            (nodes.transition, lambda n: "---"),
            (Difference, self._difference),
            (Fold, self._fold),
        ]
        for kind, write in writers:
            if isinstance(node, kind):
                return write(node)
        if isinstance(node, nodes.TextElement):
            return _AT_START.sub(r"\1\\\2", self.inline(node))
        if isinstance(node, nodes.Element):
            return self.blocks(node.children, level)
        return self.inline_text(node)

    def _code(self, node: nodes.Element) -> str:
        language = str(node.get("language", "")).lower()
        return fenced(node.astext(), "" if language in ("none", "default") else language)

    def _signature(self, node: nodes.Element) -> str:
        name = "".join(
            part.astext()
            for part in node.children
            if isinstance(part, addnodes.desc_addname | addnodes.desc_name)
        )
        lists = list(node.findall(addnodes.desc_parameterlist))
        parameters = ", ".join(part.astext() for items in lists for part in items.children)
        return f"**{code_span(f'{name}({parameters})' if lists else name)}**"

    def _formula(self, node: nodes.Element) -> str:
        text = node.astext().strip()
        if ("&" in text or r"\\" in text) and r"\begin" not in text:
            text = f"\\begin{{aligned}}\n{text}\n\\end{{aligned}}"
        return f"$$\n{text}\n$$"

    def _list(self, node: nodes.Element, marker: Callable[[int], str]) -> str:
        start = int(node.get("start", 1))
        loose = any(len(item.children) > 1 for item in node.children)
        items = []
        for number, item in enumerate(node.children, start):
            sign = marker(number)
            text = _indent(self.blocks(item.children), " " * len(sign))
            items.append(sign + text[len(sign) :])
        return ("\n\n" if loose else "\n").join(items)

    def _definitions(self, node: nodes.Element) -> str:
        # CommonMark has no definition lists: a list whose items begin with their terms.
        items = []
        for item in node.children:
            terms = [self.inline(child) for child in item.children if isinstance(child, nodes.term)]
            body = self.blocks([c for c in item.children if isinstance(c, nodes.definition)])
            items.append(f"- {', '.join(terms)}\n\n{_indent(body, '  ')}")
        return "\n\n".join(items)

    def _fields(self, node: nodes.Element) -> str:
        rows = []
        for field in node.children:
            name, body = field.children
            rows.append(f"- **{self.inline(name)}**: {self._cell(body)}")
        return "\n".join(rows)

    def _table(self, node: nodes.Element) -> str:
        title = next((c for c in node.children if isinstance(c, nodes.title)), None)
        rows = [
            [self._cell(entry) for entry in row.children] for row in node.findall(nodes.row)
        ]  # cells over several columns or rows do not occur
        if not rows:
            return ""
        head = next(node.findall(nodes.thead), None)
        if head is None:
            rows.insert(0, [""] * len(rows[0]))
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, f"|{' --- |' * len(rows[0])}")
        caption = f"**{self.inline(title)}**\n\n" if title is not None else ""
        return caption + "\n".join(lines)

    def _cell(self, node: nodes.Element) -> str:
        return re.sub(r"\s*\n\s*", "<br>", self.blocks(node.children).replace("\n\n", "\n"))

    def _image(self, node: nodes.Element) -> str:
        return f"![{_escaped(node.get('alt', ''))}]({self.absolute(node['uri'])})"

    def _lines(self, node: nodes.Element) -> str:
        return "  \n".join(self.inline(line) for line in node.children)

    def _admonition(self, node: nodes.Element) -> str:
        children = list(node.children)
        name = node.tagname.capitalize()
        if children and isinstance(children[0], nodes.title):
            name = self.inline(children.pop(0))
        return _indent(f"**{name}**\n\n{self.blocks(children)}", "> ")

    def _difference(self, node: nodes.Element) -> str:
        lines = [
            f"@@ {text} @@" if sign == "…" else f"{sign} {text}" for sign, text in node["lines"]
        ]
        return fenced("\n".join(lines), "diff")

    def _fold(self, node: nodes.Element) -> str:
        note = f" ({node['note']})" if node.get("note") else ""
        return (
            f"<details><summary>{node['summary']}{note}</summary>\n\n"
            f"{self.blocks(node.children)}\n\n</details>"
        )

    # --- inside a line ----------------------------------------------------------------------------

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
        inner = "".join(map(self.inline_text, node.children))
        if isinstance(node, nodes.image):
            return self._image(node)
        if isinstance(node, nodes.emphasis):
            return f"*{inner}*"
        if isinstance(node, nodes.strong):
            return f"**{inner}**"
        if isinstance(node, nodes.subscript):
            return f"<sub>{inner}</sub>"
        if isinstance(node, nodes.superscript):
            return f"<sup>{inner}</sup>"
        if isinstance(node, nodes.reference):
            target = node.get("refuri") or (f"#{node['refid']}" if "refid" in node else "")
            return f"[{inner}]({self.absolute(target)})" if target else inner
        return inner

    def absolute(self, address: str) -> str:
        """*address*, which may be relative to the page, from anywhere."""
        return urljoin(self.address, address)


def code_span(text: str) -> str:
    """Code inside a line, whatever backticks it has."""
    text = " ".join(text.split())
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fenced(text: str, language: str = "") -> str:
    """A block of code, whatever fences it has."""
    fence = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def flattened(children: list[nodes.Node], level: int = 1) -> Iterator[tuple[nodes.Node, int]]:
    """The blocks of a page one after another, without the sections, each with its level."""
    for child in children:
        if isinstance(child, nodes.section):
            yield from flattened(child.children, level + 1)
        else:
            yield child, level


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _indent(text: str, prefix: str) -> str:
    return "\n".join((prefix + line).rstrip() for line in text.split("\n"))
