"""What the tests that need a GPU share: the functions of a tutorial, without its benchmarks."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

TUTORIALS = Path(__file__).parents[2] / "tutorials"
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign)
_SLOW = {"measure", "measure_memory", "benchmark", "do_bench", "elapsed_time", "show", "check"}


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker("gpu")


@pytest.fixture(scope="session")
def on_gpu() -> None:
    """Skip where there is no GPU: these sizes would take hours in the interpreter."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.accelerator.is_available():
        pytest.skip("there is no GPU; in the interpreter these sizes would take hours")


@pytest.fixture(scope="session")
def definitions(on_gpu) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Return ``definitions(name)``: what ``tutorials/<name>.py`` defines, nothing of it timed."""
    mpl.use("agg")

    @cache
    def load(name: str) -> dict[str, Any]:
        path = TUTORIALS / f"{name}.py"
        tree = ast.parse(path.read_text())
        functions = {n.name: _names(n) for n in tree.body if isinstance(n, ast.FunctionDef)}
        tree.body = [
            statement
            for statement in tree.body
            if _defines(statement)
            and (isinstance(statement, ast.FunctionDef) or not _reaches(statement, functions))
        ]
        module = sys.modules[name] = types.ModuleType(name)  # where dataclasses look for it
        exec(compile(tree, path, "exec"), module.__dict__)
        return module.__dict__

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TUTORIALS)  # for tutorials/shared
        yield load


def _defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return all(isinstance(s, ast.Assign) for s in [*statement.body, *statement.orelse])
    return isinstance(statement, _DEFINITIONS)


def _names(node: ast.AST) -> set[str]:
    return {
        n.id if isinstance(n, ast.Name) else n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Name | ast.Attribute)
    }


def _reaches(statement: ast.stmt, functions: dict[str, set[str]]) -> bool:
    """Whether *statement* draws, times or checks something, itself or through functions."""
    found: set[str] = set()
    todo = list(_names(statement))
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += functions.get(name, ())
    return bool(found & _SLOW)
