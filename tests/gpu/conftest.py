"""What the tests on a GPU share: the definitions of a tutorial, and memory full of NaN."""

import ast
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from tests.fixtures.reach import reaches

TUTORIALS = Path(__file__).parents[2] / "tutorials"
_DEFINITIONS = (ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign)
_SLOW = {"measure", "measure_memory", "benchmark", "do_bench", "elapsed_time", "show", "check"}


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker("gpu")


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    """The GPU. PyTorch hands out memory full of NaN next, so an element left unwritten shows."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.accelerator.is_available():
        pytest.skip("there is no GPU; in the interpreter these sizes would take hours")
    torch.manual_seed(0)
    device = torch.accelerator.current_accelerator()
    block = torch.full((2**28,), torch.nan, device=device)
    del block
    yield device
    torch.accelerator.synchronize()
    torch.cuda.empty_cache()


@pytest.fixture(scope="session")
def definitions() -> Iterator[Callable[[str], dict[str, Any]]]:
    """Return ``definitions(name)``: what ``tutorials/<name>.py`` defines; nothing is timed."""
    mpl.use("agg")

    @cache
    def load(name: str) -> dict[str, Any]:
        path = TUTORIALS / f"{name}.py"
        tree = ast.parse(path.read_text())
        tree.body = [
            statement
            for statement in tree.body
            if isinstance(statement, ast.FunctionDef)
            or (_defines(statement) and not reaches(statement, _SLOW, tree))
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
