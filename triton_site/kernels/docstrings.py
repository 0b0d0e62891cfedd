"""Triton's docstrings as reStructuredText that builds without a warning.

They are written for another site, with roles that resolve only there, single backquotes for code,
field lists without a blank line around them, and types that are no Python names. :func:`sound`
repairs the markup; the text stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import dedent, indent

#: Turns a name such as ``tl.dot`` or ``tensor`` into the full name of an entry, or None.
Resolver = Callable[[str], str | None]

#: Triton's remarks for its own site.
_FOREIGN = re.compile(
    r"This function can also be called as a member function on.*?instead of\s+:code:`[^`]*`\.?"
    r"|^\.\. highlight::[^\n]*\n|^\.\. rubric:: Constructors\n.*\Z",
    re.DOTALL | re.MULTILINE,
)
_HEADING = re.compile(r"^(\S.*)\n([*=~^-])\2{2,}$", re.MULTILINE)
_FIELD = re.compile(
    r"^:(param|type|returns?|rtype|note|ivar|raises)\b ?([^:\n]*):(.*(?:\n+[ \t]+\S.*)*)\n?",
    re.MULTILINE,
)
#: Markup that stays comes first: code, literals, links, emphasis, bullets. Then what is repaired.
_MARKUP = re.compile(
    r":(?:code|math):`[^`]*`|``.*?``|`[^`]+`__?|\*\w[^*\n]*\*|^ *\* "
    r"|:(?:py:)?(?:class|func|meth|mod|obj):`~?(?P<name>[^`]+)`"
    r"|`(?P<quoted>[^`]+)`"
    r'|(?P<string>"[^"\s]*")'  # a value such as ".ca"; as prose its quotes would become curly
    r"|(?P<star>(?<!\*)\*(?!\*))",
    re.DOTALL | re.MULTILINE,
)


def sound(text: str, resolve: Resolver) -> str:
    """The docstring *text*, repaired; *resolve* finds the entries that its names mean."""
    text = _HEADING.sub(r"**\1**\n", _FOREIGN.sub("", text))  # an entry has no sections
    runs: list[tuple[bool, list[str]]] = []  # of prose and of literal blocks, in turn
    literal: int | None = None  # the indentation of the text above a literal block
    for line in text.split("\n"):
        indentation = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indentation <= literal:
            literal = None
        if not runs or runs[-1][0] != (literal is not None):
            runs.append((literal is not None, []))
        runs[-1][1].append(line.rstrip())
        if literal is None and re.search(r"(^\s*\.\. code-block::|::$)", line.rstrip()):
            literal = indentation
    body: list[str] = []
    fields: list[str] = []
    for is_literal, lines in runs:
        part = "\n".join(lines)
        if not is_literal:
            part = _MARKUP.sub(lambda found: _repair(found, resolve), part)
            fields += (_field(found, resolve) for found in _FIELD.finditer(part))
            part = _FIELD.sub("\n", part)
        body.append(part)
    notes = [field for field in fields if not field.startswith(":")]
    rest = [field for field in fields if field.startswith(":")]
    return "\n\n".join(["\n".join(body), *notes, "\n".join(rest)]).strip("\n")


def _repair(found: re.Match[str], resolve: Resolver) -> str:
    if name := found["name"]:
        full = resolve(name)
        return f":py:obj:`{name} <{full}>`" if full else f"``{name}``"
    if code := found["quoted"] or found["string"]:
        return f"``{code}``"
    if found.group().endswith("`_"):
        return f"{found.group()}_"  # a link without a name, which two entries may share
    return r"\*" if found["star"] else found.group()


def _field(found: re.Match[str], resolve: Resolver) -> str:
    """A field whose lines are one, however indented, unless they are a list; a note is text."""
    kind, name, content = found.groups()
    first, _, rest = content.strip().partition("\n")
    if re.search(r"^\s*[*-] ", rest, re.MULTILINE):
        text = f"{first}\n\n{dedent(rest).strip()}"
    else:
        text = " ".join(content.split())
    if kind == "note":
        return text
    if kind in ("type", "rtype"):
        text = _type(text, resolve)
    kind = "param" if kind == "ivar" else kind
    return f":{kind} {name}".rstrip() + ": " + indent(text, "   ").lstrip()


def _type(text: str, resolve: Resolver) -> str:
    """A type with links: ``Block`` and ``Tensor`` are the tensors of the language.

    Emphasis keeps Sphinx from reading other words as names of Python classes.
    """

    def link(found: re.Match[str]) -> str:
        name = {"Block": "tensor", "Tensor": "tensor", "DType": "dtype"}.get(found.group(), "")
        full = resolve(name or found.group().removeprefix("tl."))
        return f":py:obj:`{name or found.group()} <{full}>`" if full else found.group()

    linked = re.sub(r"(?<![\w.`])(Block|Tensor|DType|tl\.\w+)(?![\w.`])", link, text)
    return linked if "`" in linked or not linked else f"*{linked}*"
