"""A script's file: its blocks, its title, its settings, and the key of its code.

The blocks are those of sphinx-gallery's own splitter, so what is recorded lines up with what
is rendered. The *key* decides whether a recording still belongs to a script. It is computed from
the syntax tree of each code block: editing prose, comments, docstrings or layout leaves it alone,
editing code never does. Nothing about the machine or its Python version enters it.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError

from gallery_recorder import seam
from gallery_recorder.errors import RecorderError
from gallery_recorder.seam import Block


class ScriptError(RecorderError):
    """A file that cannot be recorded."""

    status = 2


@dataclass(frozen=True)
class Script:
    """One script, split into blocks.

    Attributes:
        path: the file.
        source: the path that messages give.
        blocks: sphinx-gallery's blocks, text and code, in order.
        settings: what its ``# sphinx_gallery_<name> = <value>`` comments say.
        title: its first heading, without markup.
        broken: where it is not valid Python, and why; None where it is.
        gallery, name: what it is recorded under, where it was loaded as an example.
    """

    path: Path
    source: str
    blocks: tuple[Block, ...]
    settings: dict[str, Any]
    title: str
    broken: str | None = None
    gallery: str = ""
    name: str = ""

    @cached_property
    def code(self) -> tuple[CodeBlock, ...]:
        """The blocks that have something to execute; a block of comments alone has not."""
        keep_docstrings = any(_reads_docstrings(b.content) for b in self.blocks if b.type == "code")
        found = []
        for index, block in enumerate(self.blocks):
            if block.type != "code":
                continue
            try:
                tree = ast.parse(block.content)
            except SyntaxError:
                found.append(CodeBlock(index, block, block.lineno, _digest(block.content)))
                continue
            if tree.body:
                line = block.lineno + tree.body[0].lineno - 1
                key = _digest(_canonical(tree, keep_docstrings))
                found.append(CodeBlock(index, block, line, key))
        return tuple(found)

    @cached_property
    def key(self) -> str:
        """SHA-256 over the keys of the code blocks, in order."""
        return key_of(block.key for block in self.code)


@dataclass(frozen=True)
class CodeBlock:
    """A code block: its place among all blocks, its first statement's line, and its key."""

    index: int
    block: Block
    line: int
    key: str


def load_script(path: Path, source: str | None = None) -> Script:
    """Read and split the script at *path*; *source* is what messages call it.

    Raises:
        ScriptError: it cannot be read, or has no docstring, and so no title.
    """
    source = source or str(path)
    try:
        text = read(path, source).decode()
    except UnicodeDecodeError as error:
        raise ScriptError(f"{source}: is not UTF-8 ({error}). Save the file as UTF-8.") from error
    broken = None
    try:
        tree = ast.parse(text, filename=str(path))
    except (RecursionError, MemoryError) as error:
        raise ScriptError(f"{source}: is nested too deep for Python to read ({error}).") from error
    except (SyntaxError, ValueError) as error:
        broken = _what_is_broken(source, error)
    else:
        if not ast.get_docstring(tree):
            raise ScriptError(
                f"{source}: has no title. Begin the file with a docstring whose first line is the "
                "title, underlined with '='."
            )
    try:
        settings, blocks, _ = seam.split(path)
        title = seam.title(path, blocks[0].content)
    except ExtensionError as error:
        raise ScriptError(f"{source}: {error}") from error
    return Script(
        path, source, tuple(blocks), settings, title, broken or _split_statement(source, blocks)
    )


def read(path: Path, source: str) -> bytes:
    """The content of the script at *path*, which *source* calls it in messages.

    Raises:
        ScriptError: it cannot be read, or never would be to its end: a pipe, a device.
    """
    try:
        if not path.is_file() and path.exists():
            raise ScriptError(f"{source}: is no plain file.")
        return path.read_bytes()
    except OSError as error:
        raise ScriptError(f"{source}: cannot be read ({error.strerror}).") from error


def _what_is_broken(source: str, error: SyntaxError | ValueError) -> str:
    if not isinstance(error, SyntaxError):
        return f"{source}: is not valid Python: {error}. Nothing was executed."
    line = f"\n    {error.text.strip()}" if error.text else ""
    return (
        f"{source}:{error.lineno}: is not valid Python: {error.msg}.{line}\n"
        "Correct the line; nothing was executed."
    )


def _split_statement(source: str, blocks: list[Block]) -> str | None:
    """Which text cell stands within a statement, if one does."""
    for block in blocks:
        if block.type == "code":
            try:
                ast.parse(block.content)
            except SyntaxError as error:
                return (
                    f"{source}:{block.lineno + (error.lineno or 1) - 1}: a '# %%' text cell splits "
                    f"a statement in two ({error.msg}). Text cells can only stand between "
                    "top-level statements."
                )
    return None


def key_of(keys: Iterable[str]) -> str:
    """The key of a script, of the *keys* of its code blocks in their order."""
    return _digest("\n".join(keys))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


#: The key of a script without code: there is nothing to record.
NO_CODE = _digest("")


def _reads_docstrings(code: str) -> bool:
    """Whether *code* can see docstrings, so that they count as code."""
    return "__doc__" in code or re.search(r"\b(help|getdoc)\(", code) is not None


def _canonical(tree: ast.AST, keep_docstrings: bool) -> str:
    """Write a syntax tree the same way on every Python version.

    ``ast.dump`` is no such form: newer versions add fields to nodes and leave out empty ones. It
    calls itself, too, and a sum of some hundred terms is as deep as it is long.
    """
    written: list[str] = []
    waiting: list[tuple[bool, Any]] = [(False, tree)]  # whether it is written already, and it
    while waiting:
        is_text, node = waiting.pop()
        if is_text:
            written.append(node)
        elif isinstance(node, ast.AST):
            fields = dict(ast.iter_fields(node))
            fields.pop("kind", None)  # u"" against "": no difference to the program
            fields.pop("type_comment", None)
            if not keep_docstrings and _docstring_holder(node):
                fields["body"] = fields["body"][1:]
            said = [(n, value) for n, value in sorted(fields.items()) if value not in (None, [])]
            waiting.append((True, ")"))
            for number, (name, value) in reversed([*enumerate(said)]):
                waiting += [(False, value), (True, f"{',' * bool(number)}{name}=")]
            waiting.append((True, f"{type(node).__name__}("))
        elif isinstance(node, list):
            waiting.append((True, "]"))
            for number, item in reversed([*enumerate(node)]):
                waiting += [(False, item), (True, "," * bool(number))]
            waiting.append((True, "["))
        else:
            written.append(repr(node))
    return "".join(written)


def _docstring_holder(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and ast.get_docstring(node, clean=False) is not None
    )
