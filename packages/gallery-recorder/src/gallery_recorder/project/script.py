"""An example's script: its blocks, its title, its settings, and the key of its code.

sphinx-gallery splits the file, so the recorded blocks are the blocks of the page. The *key* decides
whether a recording matches a script. Changing code changes the key; changing prose, comments,
docstrings or layout does not. The key is the same on every machine and Python version.
"""

import ast
import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError

from gallery_recorder import seam
from gallery_recorder.errors import RecorderError
from gallery_recorder.seam import Block


class ScriptError(RecorderError):
    """The file cannot be recorded."""

    status = 2


@dataclass(frozen=True)
class CodeBlock:
    """A code block: its index among all blocks, the line of its first statement, and its key."""

    index: int
    block: Block
    line: int
    key: str


@dataclass(frozen=True)
class Script:
    """The script of an example, split into blocks.

    Attributes:
        source: its path in messages.
        blocks: sphinx-gallery's blocks, text and code, in order.
        settings: the values of its ``# sphinx_gallery_<name> = <value>`` comments.
        title: its first heading, without markup.
        broken: the message about invalid Python; None if it is valid.
        gallery, name: those of the example.
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
        """The code blocks, except blocks that contain only comments.

        The key of a block that depends on other scripts changes with their code.
        """
        found = []
        for code in self._own_code:
            others = self._others(seam.settings_in(code.block.content))
            key = key_of([code.key, *others]) if others else code.key
            found.append(replace(code, key=key))
        return tuple(found)

    @cached_property
    def reads_docstrings(self) -> bool:
        """Whether the code may read docstrings, which then count as code."""
        return any(_reads_docstrings(b.content) for b in self.blocks if b.type == "code")

    @cached_property
    def _own_code(self) -> tuple[CodeBlock, ...]:
        blocks = [(i, block) for i, block in enumerate(self.blocks) if block.type == "code"]
        found = []
        for index, block in blocks:
            line, key = block.lineno, _digest(block.content)
            with suppress(SyntaxError, RecursionError):
                tree = ast.parse(block.content)
                if not tree.body:
                    continue
                line += tree.body[0].lineno - 1
                key = _digest(_canonical(tree, self.reads_docstrings))
            found.append(CodeBlock(index, block, line, key))
        return tuple(found)

    def _others(self, settings: dict[str, Any]) -> list[str]:
        """The keys of the scripts in ``# sphinx_gallery_depends = "PATH, PATH"``.

        Paths are relative to this script's folder. Dependencies of those scripts do not count.
        """
        names = [name.strip() for name in str(settings.get("depends", "")).split(",")]
        keys = []
        for name in filter(None, names):
            path = self.path.parent / name
            try:
                keys.append(key_of(code.key for code in load_script(path)._own_code))
            except ScriptError as error:
                raise ScriptError(f"{self.source}: sphinx_gallery_depends: {error}") from error
        return keys

    @cached_property
    def key(self) -> str:
        """SHA-256 over the keys of the code blocks, in order."""
        return key_of(block.key for block in self.code)


def load_script(path: Path, source: str | None = None) -> Script:
    """Load the script at *path*, called *source* in messages; ScriptError if that fails."""
    source = source or str(path)
    broken = None
    try:
        settings, blocks, tree = seam.split(path)
        title = seam.title(path, blocks[0].content)
        if tree is None:
            ast.parse(path.read_bytes())  # says what is wrong
    except OSError as error:
        raise ScriptError(f"{source}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise ScriptError(f"{source}: is not UTF-8 ({error}). Save the file as UTF-8.") from error
    except SyntaxError as error:
        line = f"\n    {error.text.strip()}" if error.text else ""
        broken = f"{source}:{error.lineno}: is not valid Python: {error.msg}.{line}\nCorrect it."
    except (ValueError, RecursionError, MemoryError) as error:  # a null byte, or nested too deep
        raise ScriptError(f"{source}: Python cannot parse it ({error}).") from error
    except (ExtensionError, AssertionError) as error:  # sphinx-gallery has found no docstring
        remedy = "Begin the file with a docstring whose first line is the title"
        raise ScriptError(f"{source}: has no title. {remedy}.") from error
    return Script(path, source, tuple(blocks), settings, title, broken)


def module_key(content: bytes, keep_docstrings: bool) -> str:
    """SHA-256 of a module's syntax tree; of its text if it is not valid Python.

    Docstrings count with *keep_docstrings*, or if the module itself reads docstrings.
    """
    text = content.decode(errors="replace").replace("\r\n", "\n")
    keep = keep_docstrings or _reads_docstrings(text)
    try:
        tree = ast.parse(content)
        if not keep and ast.get_docstring(tree, False) is not None:
            tree.body = tree.body[1:]
        return _digest(_canonical(tree, keep))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _digest(text)


def key_of(keys: Iterable[str]) -> str:
    """The key of a script from the *keys* of its code blocks, in order."""
    return _digest("\n".join(keys))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


#: The key of a script without code, for which nothing is recorded.
NO_CODE = _digest("")


def _reads_docstrings(code: str) -> bool:
    """Whether *code* may read docstrings, which then count as code."""
    return "__doc__" in code or re.search(r"\b(help|getdoc)\(", code) is not None


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

#: The most levels of a syntax tree; deeper code, such as a long sum, is hashed as text.
_DEEPEST = 300


def _canonical(node: Any, keep_docstrings: bool, deep: int = 0) -> str:
    """A syntax tree as text, which unlike that of ``ast.dump`` is the same in every Python."""
    if isinstance(node, list):
        return f"[{','.join([_canonical(item, keep_docstrings, deep) for item in node])}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if deep > _DEEPEST:
        raise RecursionError
    parts = []
    kind: Any = type(node)
    for name in _fields(kind):
        value: Any = getattr(node, name, None)
        if name == "body" and isinstance(node, _SCOPES) and not keep_docstrings:
            value = value[ast.get_docstring(node, False) is not None :]
        if value is not None and value != []:
            parts.append(f"{name}={_canonical(value, keep_docstrings, deep + 1)}")
    return f"{kind.__name__}({','.join(parts)})"


@cache
def _fields(kind: Any) -> list[str]:
    return sorted({*kind._fields} - {"kind", "type_comment"})  # u"" and "" are the same program
