"""Scripts with their shared code in them, so that a download runs alone.

Code that several scripts share is in ``tutorials/shared``, and a script imports it::

    import sys  # for shared/
    from pathlib import Path  # for shared/

    sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
    from shared.bench import rates, write_rows

The assembled script has, in place of the import, the code of these names and of everything they
use. Lines marked ``# for shared/`` are left out.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TypeGuard

from gallery_recorder.api import files

_MARK = "# for shared/"


class AssembleError(Exception):
    """A script imports a module or a name that ``shared`` does not have."""


def assemble_gallery(source: Path, target: Path, shared: Path) -> Path:
    """Copy the gallery *source* to *target* with assembled scripts, and return *target*.

    A file is written only if its content differs: Sphinx compares modification times.
    """
    stamp = target.with_name(f"{target.name}.stamp")
    folders = [source, target, shared, Path(__file__)]
    if stamp.is_file() and stamp.read_text() == files.digest(files.times(folders)):
        return target
    wanted = {
        path.relative_to(source)
        for path in source.rglob("*")
        if path.is_file() and shared not in path.parents and "__pycache__" not in path.parts
    }
    for path in wanted:
        content = (source / path).read_bytes()
        if path.suffix == ".py":
            content = assemble_script(content.decode(), shared, str(source / path)).encode()
        place = target / path
        if not place.is_file() or place.read_bytes() != content:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    for path in sorted(target.rglob("*"), reverse=True):  # files before their folders
        if path.is_file() and path.relative_to(target) not in wanted:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    stamp.write_text(files.digest(files.times(folders)))
    return target


def assemble_script(text: str, shared: Path, name: str = "the script") -> str:
    """Return the script *text* with each import from ``shared`` replaced by the imported code.

    Raises:
        AssembleError: A module or a name is not in the folder *shared*.
    """
    lines = text.splitlines(keepends=True)
    given: set[str] = set()  # statements that the script has already
    first = True
    for node in ast.parse(text).body:
        if _is_shared(node):
            code = _code(shared, node, given, name)
            lines[node.lineno - 1] = code if first or not code else f"\n{code}"
            end = node.end_lineno or node.lineno
            lines[node.lineno : end] = [""] * (end - node.lineno)
            first = False
        elif _is_import(node) and not lines[node.lineno - 1].rstrip().endswith(_MARK):
            given.add(ast.unparse(node))
    return "".join(line for line in lines if not line.rstrip().endswith(_MARK))


def _code(shared: Path, wanted: ast.ImportFrom, given: set[str], script: str) -> str:
    """The code that an import asks for, with everything it uses, without what is *given*."""
    module = (wanted.module or "").removeprefix("shared.")
    path = shared / f"{module.replace('.', '/')}.py"
    try:
        text, body = _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise AssembleError(f"{script}: imports shared.{module}: {error}") from None
    owners: dict[str, list[ast.stmt]] = {}
    for node in body:
        for name in defined(node):
            owners.setdefault(name, []).append(node)
    names = [alias.name for alias in wanted.names]
    if missing := set(names) - set(owners):
        raise AssembleError(f"{script}: {path} does not define {', '.join(sorted(missing))}")

    kept: list[ast.stmt] = []
    # A statement that defines no name, such as a call, always runs.
    waiting = [node for node in body if not defined(node) and not _is_docstring(node)]
    waiting += [node for name in names for node in owners[name]]
    while waiting:
        node = waiting.pop()
        if node not in kept:
            kept.append(node)
            waiting += [other for name in used(node) for other in owners.get(name, ())]

    before = "".join(_code(shared, n, given, script) for n in body if n in kept and _is_shared(n))
    lines = text.splitlines(keepends=True)
    code = ""
    last: ast.stmt | None = None
    for node in body:
        identity = ast.unparse(node) if _is_import(node) else f"{module}:{node.lineno}"
        if node not in kept or _is_shared(node) or identity in given:
            continue
        given.add(identity)
        start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        while start > 1 and lines[start - 2].startswith("#"):
            start -= 1  # the statement's comment
        code += (_gap(last, node) if last else "") + "".join(lines[start - 1 : node.end_lineno])
        last = node
    return before + ("\n" if before and code else "") + code


@cache
def _read(path: Path, time: int) -> tuple[str, list[ast.stmt]]:
    """The text and the statements of a shared module, as modified at *time*."""
    text = path.read_text()
    return text, ast.parse(text).body


def _gap(last: ast.stmt, node: ast.stmt) -> str:
    """Blank lines between two statements, as a formatter sets them."""
    blocks = ast.FunctionDef | ast.ClassDef
    if isinstance(last, blocks) or isinstance(node, blocks):
        return "\n\n"
    return "\n" if isinstance(node, ast.If) or _is_import(last) != _is_import(node) else ""


def _is_import(node: ast.stmt) -> TypeGuard[ast.Import | ast.ImportFrom]:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_shared(node: ast.stmt) -> TypeGuard[ast.ImportFrom]:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shared.")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@cache
def used(node: ast.stmt) -> set[str]:
    """The names that a statement uses."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


@cache
def defined(node: ast.stmt) -> set[str]:
    """The names that a top-level statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if _is_import(node):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}
