"""Make whole scripts of those that share code: what a reader downloads stands alone.

What several scripts share is written once, in ``tutorials/shared``, and a script imports it::

    import sys  # for shared/
    from pathlib import Path  # for shared/

    sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
    from shared.measuring import measure, significant

so that it runs where it stands. In the assembled script the import is replaced by the code of the
imported names and of all that these need, and the lines marked ``# for shared/`` are gone.
"""

from __future__ import annotations

import ast
import shutil
from functools import cache
from pathlib import Path

from gallery_recorder.render import files

_MARK = "# for shared/"


class AssembleError(Exception):
    """A script imports from ``shared`` what is not there."""


def assemble_gallery(source: Path, target: Path, shared: Path) -> Path:
    """Copy the gallery *source* to *target*, with whole scripts, and return *target*.

    A file is written only where it differs, and what is no longer in *source* is removed, so that
    the times of unchanged files stay; where all times are as they were left, nothing is read.
    """
    stamp = target.with_name(f"{target.name}.stamp")
    if stamp.is_file() and stamp.read_text() == _times(source, target, shared):
        return target
    wanted = {
        path.relative_to(source)
        for path in source.rglob("*")
        if path.is_file() and shared not in path.parents and "__pycache__" not in path.parts
    }
    for path in wanted:
        content = (source / path).read_bytes()
        if path.suffix == ".py":
            text = assemble_script(content.decode(), shared, name=str(source / path))
            content = text.encode()
        place = target / path
        if not place.is_file() or place.read_bytes() != content:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    if target.is_dir():
        for path in target.rglob("*"):
            if path.is_file() and path.relative_to(target) not in wanted:
                path.unlink()
        for path in target.iterdir():
            if path.is_dir() and not any(p.is_file() for p in path.rglob("*")):
                shutil.rmtree(path)
    stamp.write_text(_times(source, target, shared))
    return target


def _times(*folders: Path) -> str:
    return files.digest(files.times([*folders, Path(__file__)]))


def assemble_script(text: str, shared: Path, name: str = "the script") -> str:
    """Return the script *text* with each import from ``shared`` replaced by what it imports.

    Raises:
        AssembleError: A module or a name is not in the folder *shared*.
    """
    lines = text.splitlines(keepends=True)
    given: set[tuple[str, str]] = set()
    replaced: dict[int, tuple[int, str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shared."):
            names = {alias.name for alias in node.names}
            code = _code(shared, node.module.removeprefix("shared."), names, given, name)
            if replaced and code:
                code = "\n" + code
            replaced[node.lineno] = (node.end_lineno or node.lineno, code)
        elif _imports(node):
            given.add(("", ast.dump(node)))  # the script has it already
    made: list[str] = []
    number = 1
    while number <= len(lines):
        if number in replaced:
            last, code = replaced[number]
            made.append(code)
            number = last
        elif not lines[number - 1].rstrip().endswith(_MARK):
            made.append(lines[number - 1])
        number += 1
    return "".join(made)


def _code(
    shared: Path, module: str, names: set[str], given: set[tuple[str, str]], script: str
) -> str:
    """The source of *names* of a shared module and of what they need, less what was *given*."""
    path = shared / f"{module}.py"
    try:
        text, body = _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise AssembleError(
            f"{script}: imports shared.{module}, but {path} is missing: {error}"
        ) from None
    owners: dict[str, list[ast.stmt]] = {}
    for node in body:
        for defined in _defined(node):
            owners.setdefault(defined, []).append(node)
    if missing := names - set(owners):
        raise AssembleError(f"{script}: {path} defines no {', '.join(sorted(missing))}")
    # Statements that define no name (an `if`, a call) always run.
    needed: list[ast.stmt] = [
        n for n in body if not _defined(n) and not isinstance(n, ast.Expr | ast.Import)
    ] + [n for n in body if isinstance(n, ast.Expr) and not _is_text(n)]
    needed += [node for name in names for node in owners[name]]
    kept: list[ast.stmt] = []
    before = ""
    while needed:
        node = needed.pop()
        if node in kept:
            continue
        kept.append(node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shared."):
            other = node.module.removeprefix("shared.")
            before += _code(shared, other, {a.name for a in node.names}, given, script)
            continue
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        needed += [other for name in used for other in owners.get(name, ())]
    lines = text.splitlines(keepends=True)
    code = ""
    last: ast.stmt | None = None
    for node in body:
        identity = ("" if _imports(node) else module, ast.dump(node))
        is_shared = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shared.")
        if node not in kept or identity in given or is_shared:
            continue
        given.add(identity)
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        while first > 1 and lines[first - 2].startswith("#"):
            first -= 1  # its comment
        if last is not None:
            code += _gap(last, node)
        code += "".join(lines[first - 1 : node.end_lineno])
        last = node
    return before + ("\n" if before and code else "") + code


@cache
def _read(path: Path, time: int) -> tuple[str, list[ast.stmt]]:
    """The text and the statements of a shared module as it was at a *time*, for all that ask."""
    text = path.read_text()
    return text, ast.parse(text).body


def _gap(last: ast.stmt, node: ast.stmt) -> str:
    """Blank lines between two statements, as a formatter sets them."""
    blocks = ast.FunctionDef | ast.ClassDef
    if isinstance(last, blocks) or isinstance(node, blocks):
        return "\n\n"
    return "\n" if isinstance(node, ast.If) or _imports(last) != _imports(node) else ""


def _imports(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_text(node: ast.Expr) -> bool:
    return isinstance(node.value, ast.Constant)


def _defined(node: ast.stmt) -> set[str]:
    """The names that a top-level statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
