"""A tutorial's file: its blocks, its title, its settings, and the key of its code.

The blocks are those of sphinx-gallery's own splitter, so what is recorded lines up with what
is rendered. The *key* decides whether a recording still belongs to a script. It is computed from
the syntax tree of each code block: editing prose, comments, docstrings or layout leaves it alone,
editing code never does. Nothing about the machine or its Python version enters it.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sphinx_gallery import py_source_parser
from sphinx_gallery.gen_rst import extract_intro_and_title
from sphinx_gallery.py_source_parser import Block

#: Files in a gallery's folder that are no tutorials, as for sphinx-gallery's ``ignore_pattern``.
NOT_A_TUTORIAL = re.compile(r"(^|/)(_|conftest\.py$)")

#: Where the galleries of the project are: tutorials, and chapters of the guide that execute code.
TUTORIALS = Path("tutorials")
CHAPTERS = Path("guide")

#: A line of text that is underlined, with nothing before it but comments and labels.
_HEADING = re.compile(r"\A\s*(?:\.\. .*\n\s*)*(?:([^\w\s])\1*\n)?\s*\S.*\n([^\w\s])\2*\s*$", re.M)


class ScriptError(Exception):
    """A file that cannot be a tutorial; says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Script:
    """One tutorial, split into blocks.

    Attributes:
        path: the file.
        root: the gallery's folder.
        blocks: sphinx-gallery's blocks, text and code, in order.
        settings: what its ``# sphinx_gallery_<name> = <value>`` comments say.
        title: its first heading, without markup.
    """

    path: Path
    root: Path
    blocks: tuple[Block, ...]
    settings: dict[str, Any]
    title: str

    @property
    def name(self) -> str:
        """The name it is recorded under, as of :class:`ScriptFile`."""
        return ScriptFile(self.root, self.path).name

    @property
    def gallery(self) -> str:
        """The gallery it is recorded under, as of :class:`ScriptFile`."""
        return ScriptFile(self.root, self.path).gallery

    @property
    def source(self) -> str:
        """The path that messages give, as of :class:`ScriptFile`."""
        return ScriptFile(self.root, self.path).source

    @cached_property
    def code(self) -> tuple[CodeBlock, ...]:
        """The blocks that have something to execute; a block of comments alone has not."""
        keep_docstrings = any(_reads_docstrings(b.content) for b in self.blocks if b.type == "code")
        found = []
        for index, block in enumerate(self.blocks):
            if block.type == "code":
                tree = ast.parse(block.content)
                if tree.body:
                    line = block.lineno + tree.body[0].lineno - 1
                    key = _digest(_canonical(tree, keep_docstrings))
                    found.append(CodeBlock(index, block, line, key))
        return tuple(found)

    @cached_property
    def key(self) -> str:
        """SHA-256 over the keys of the code blocks, in order."""
        return _digest("\n".join(block.key for block in self.code))


@dataclass(frozen=True)
class CodeBlock:
    """A code block: its place among all blocks, its first statement's line, and its key."""

    index: int
    block: Block
    line: int
    key: str


def load_script(path: Path, root: Path) -> Script:
    """Read and split the tutorial at *path*, in the gallery at *root*.

    Raises:
        ScriptError: it cannot be read, is not valid Python, or lacks a title or code.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScriptError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise ScriptError(f"{path}: is not UTF-8 ({error}). Save the file as UTF-8.") from error
    try:
        tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        line = f"\n    {error.text.strip()}" if error.text else ""
        raise ScriptError(
            f"{path}:{error.lineno}: is not valid Python: {error.msg}.{line}\n"
            "Correct the line; nothing was executed."
        ) from error
    if not ast.get_docstring(tree):
        raise ScriptError(
            f"{path}: has no title. Begin the file with a docstring whose first line is the title, "
            "underlined with '='."
        )
    settings, blocks = py_source_parser.split_code_and_text_blocks(path)
    if not _HEADING.search(blocks[0].content):
        # sphinx-gallery would take the first sentence for the title, and the page had no heading
        raise ScriptError(
            f"{path}: has no title in its docstring. Its first line must be the title, underlined "
            "with '='."
        )
    _, title = extract_intro_and_title(str(path), blocks[0].content)
    for block in blocks:
        if block.type == "code":
            try:
                ast.parse(block.content)
            except SyntaxError as error:
                raise ScriptError(
                    f"{path}:{block.lineno + (error.lineno or 1) - 1}: a '# %%' text cell splits a "
                    f"statement in two ({error.msg}). Text cells can only stand between top-level "
                    "statements."
                ) from error
    script = Script(path, root, tuple(blocks), settings, title)
    if not script.code:
        raise ScriptError(f"{path}: has no code, so there is nothing to record. Add a code cell.")
    return script


def find_scripts(root: Path) -> list[Path]:
    """All tutorial files of the gallery at *root*, in the order in which their pages appear.

    As in sphinx-gallery: the files of the folder itself and of the folders directly below it
    that have a ``GALLERY_HEADER.rst``, each sorted by file name.
    """
    folders = [root, *sorted(p.parent for p in root.glob("*/GALLERY_HEADER.rst"))]
    return [
        path
        for folder in folders
        for path in sorted(folder.glob("*.py"))
        if not NOT_A_TUTORIAL.search(path.relative_to(root).as_posix())
    ]


@dataclass(frozen=True)
class ScriptFile:
    """A tutorial's file in the gallery at *root*, not read yet."""

    root: Path
    path: Path

    @property
    def name(self) -> str:
        """The name it is recorded under: its path below the gallery, without ``.py``."""
        return self.path.relative_to(self.root).with_suffix("").as_posix()

    @property
    def gallery(self) -> str:
        """The gallery it is recorded under: the name of its folder."""
        return self.root.resolve().name

    @property
    def source(self) -> str:
        """The path that messages give: the same on every machine."""
        root = self.root.as_posix()
        if self.root.is_absolute() or ".." in self.root.parts or root == ".":
            root = self.root.resolve().name
        return f"{root}/{self.name}.py"

    def load(self) -> Script:
        """Read and split it; raises what :func:`load_script` raises."""
        return load_script(self.path, self.root)


def project_galleries() -> tuple[Path, ...]:
    """The galleries of the project in the working directory; ``tutorials``, if there is none."""
    chapters = sorted(p.parent for p in CHAPTERS.glob("*/GALLERY_HEADER.rst"))
    return (TUTORIALS, *(p for p in chapters if find_scripts(p)))


def select_scripts(roots: Sequence[Path], names: Sequence[str]) -> list[ScriptFile]:
    """The tutorials of the galleries *roots* that *names* mean; all where *names* is empty.

    A name is a path below a gallery without ``.py``, a file name without ``.py``, or the number
    that a file name begins with.

    Raises:
        ScriptError: a name means no tutorial, a gallery has none, or two tutorials of different
            galleries have one name, and so would have one recording.
    """
    files: dict[str, ScriptFile] = {}
    for root in {root.resolve(): root for root in roots}.values():  # each once
        paths = find_scripts(root)
        if not paths:
            raise ScriptError(f"{root}: has no tutorials (NN-name.py files). Is --tutorials right?")
        for file in (ScriptFile(root, path) for path in paths):
            if file.name in files:
                raise ScriptError(
                    f"{file.path}: {files[file.name].path} has the same name, and recordings are "
                    "kept by name. Rename one of them."
                )
            files[file.name] = file
    if not names:
        return list(files.values())
    chosen: set[str] = set()
    for name in names:
        wanted = name.removesuffix(".py").strip("/")
        found = (
            [wanted]
            if wanted in files
            else [n for n, file in files.items() if file.path.stem == wanted]
            or [n for n in files if "/" not in n and _number(n) == wanted]
        )
        if not found:
            raise ScriptError(
                f"no tutorial is called {name!r}. The tutorials in "
                f"{', '.join(map(str, roots))}: {', '.join(files)}."
            )
        chosen.update(found)
    return [file for name, file in files.items() if name in chosen]


def _number(name: str) -> str:
    match = re.match(r"\d+", name)
    return match.group() if match else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _reads_docstrings(code: str) -> bool:
    """Whether *code* can see docstrings, so that they count as code."""
    return "__doc__" in code or re.search(r"\b(help|getdoc)\(", code) is not None


def _canonical(node: Any, keep_docstrings: bool) -> str:
    """Write a syntax tree the same way on every Python version.

    ``ast.dump`` is no such form: newer versions add fields to nodes and leave out empty ones.
    """
    if isinstance(node, ast.AST):
        fields = dict(ast.iter_fields(node))
        fields.pop("kind", None)  # u"" against "": no difference to the program
        fields.pop("type_comment", None)
        if not keep_docstrings and _docstring_holder(node):
            fields["body"] = fields["body"][1:]
        inner = ",".join(
            f"{name}={_canonical(value, keep_docstrings)}"
            for name, value in sorted(fields.items())
            if value is not None and value != []
        )
        return f"{type(node).__name__}({inner})"
    if isinstance(node, list):
        return f"[{','.join(_canonical(item, keep_docstrings) for item in node)}]"
    return repr(node)


def _docstring_holder(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and ast.get_docstring(node, clean=False) is not None
    )
