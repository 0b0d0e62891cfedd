"""Triton's docstrings as reStructuredText that builds without a warning.

They are written for another site: roles that resolve only there, single backquotes for code, field
lists that begin without a blank line, types that are no Python names. :func:`parse` takes one
apart into prose and parameters, and makes each part sound. What it says is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import dedent

#: Turns a name such as ``tl.dot`` or ``tensor`` into the full name of an entry, or None.
Resolver = Callable[[str], str | None]

_HEADING = re.compile(r"^(\S.*)\n([*=~^-])\2{2,}$", re.MULTILINE)
_FIELD = re.compile(r":(param|type|return|returns|rtype|note|ivar|raises)\b ?([^:\n]*):\s*(.*)")
#: What has to be repaired, and before it what has not: code, literals, links, emphasis, bullets.
_MARKUP = re.compile(
    r":(?:code|math):`[^`]*`|``.*?``|`[^`]+`_|\*\w[^*\n]*\*|^ *\* "
    r"|(?P<role>:(?:py:)?(?:class|func|meth|mod|obj):`~?(?P<name>[^`]+)`)"
    r"|`(?P<quoted>[^`]+)`"
    r'|(?P<string>"[^"\s]*")'  # a value such as ".ca"; in prose its quotes would become curly
    r"|(?P<star>(?<!\*)\*(?!\*))",
    re.DOTALL | re.MULTILINE,
)
_MEMBER_SENTENCE = re.compile(
    r"This function can also be called as a member function on.*?instead of\s+:code:`[^`]*`\.?",
    re.DOTALL,
)
#: Markup for Triton's own site: its remark about the order of the methods, and its highlighting.
_FOREIGN_LINE = re.compile(r"^\.\. highlight::.*\n", re.MULTILINE)
_FOREIGN_END = re.compile(r"^\.\. rubric:: Constructors\n.*\Z", re.DOTALL | re.MULTILINE)


@dataclass
class Field:
    """A parameter: its name, its type and what it is for, in reStructuredText."""

    name: str
    type: str = ""
    text: str = ""


@dataclass
class Docstring:
    """A docstring in parts, in reStructuredText."""

    body: str = ""
    parameters: list[Field] = field(default_factory=list)
    returns: Field = field(default_factory=lambda: Field(""))
    notes: list[str] = field(default_factory=list)


def parse(text: str, resolve: Resolver) -> Docstring:
    """Take the docstring *text* apart; *resolve* finds the entries that its names mean."""
    text = _FOREIGN_END.sub("", _FOREIGN_LINE.sub("", _MEMBER_SENTENCE.sub("", text)))
    text = _HEADING.sub(r"**\1**\n", text)  # an entry has no sections
    result = Docstring()
    parameters: dict[str, Field] = {}
    body: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        found = _FIELD.match(lines[at])
        if found is None:
            body.append(lines[at])
            at += 1
            continue
        kind, name, first = found.groups()
        content: list[str] = []
        at += 1
        while at < len(lines) and (lines[at].startswith(" ") or _blank_inside(lines, at)):
            content.append(lines[at])
            at += 1
        value = sound(_joined(first, content), resolve)
        if kind in ("param", "ivar"):
            parameters.setdefault(name, Field(name)).text = value
        elif kind == "type":
            parameters.setdefault(name, Field(name)).type = _type(value, resolve)
        elif kind == "rtype":
            result.returns.type = _type(value, resolve)
        elif kind == "note":
            result.notes.append(value)
        else:
            result.returns.text = value
    result.body = sound("\n".join(body), resolve)
    result.parameters = list(parameters.values())
    return result


def sound(text: str, resolve: Resolver) -> str:
    """Make every role resolve, and every single backquote mean code; leave literal blocks alone."""
    runs: list[tuple[bool, list[str]]] = []  # of prose and of literal blocks, in turn
    literal: int | None = None  # the indentation of what a literal block belongs to
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if not runs or runs[-1][0] != (literal is not None):
            runs.append((literal is not None, []))
        runs[-1][1].append(line.rstrip())
        if literal is None and re.search(r"(^\s*\.\. code-block::|::$)", line.rstrip()):
            literal = indent
    parts = ["\n".join(lines) for _, lines in runs]
    return "\n".join(
        part if is_literal else _MARKUP.sub(lambda found: _repair(found, resolve), part)
        for (is_literal, _), part in zip(runs, parts, strict=True)
    ).strip("\n")


def _repair(found: re.Match[str], resolve: Resolver) -> str:
    if found["role"]:
        return _reference(found["name"], resolve)
    if found["quoted"]:
        return f"``{found['quoted']}``"
    if found["string"]:
        return f"``{found['string']}``"
    return r"\*" if found["star"] else found.group()


def _reference(name: str, resolve: Resolver) -> str:
    full = resolve(name)
    return f":py:obj:`{name} <{full}>`" if full else f"``{name}``"


def _type(text: str, resolve: Resolver) -> str:
    """``Block`` and ``Tensor`` are the language's tensors, ``DType`` its data types."""

    def link(found: re.Match[str]) -> str:
        name = {"Block": "tensor", "Tensor": "tensor", "DType": "dtype"}.get(found.group(), "")
        full = resolve(name or found.group().removeprefix("tl."))
        return f":py:obj:`{name or found.group()} <{full}>`" if full else found.group()

    return re.sub(r"(?<![\w.`])(Block|Tensor|DType|tl\.\w+)(?![\w.`])", link, text)


def _joined(first: str, rest: list[str]) -> str:
    """The lines of a field: those of a list as they are, others as one, however indented."""
    if any(re.match(r"\s*[*-] ", line) for line in rest):
        return f"{first.strip()}\n{dedent(chr(10).join(rest))}".strip()
    return " ".join([first, *(line.strip() for line in rest)]).strip()


def _blank_inside(lines: list[str], at: int) -> bool:
    """Whether a blank line has more of the same field below it."""
    return not lines[at].strip() and at + 1 < len(lines) and lines[at + 1].startswith(" ")
