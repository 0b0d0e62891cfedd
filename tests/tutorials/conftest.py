"""Execute a download once a session and hand its names to the tests."""

import ast
import linecache
import re
import runpy
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch

from tests.galleries import FILES


@pytest.fixture(autouse=True)
def reproducible() -> Iterator[None]:
    """Draw the same random numbers, whichever tests ran before; fill new memory with NaN."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def tutorial(tmp_path_factory) -> Callable[[str], dict[str, Any]]:
    """Return ``tutorial(name)``: the global names of an executed script, such as ``01-vector-add``.

    It is the script as readers download it, in Triton's interpreter and in an empty folder.
    """

    @cache
    def run(name: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(name.replace("/", "-"))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("MPLBACKEND", "Agg")
            names = runpy.run_path(str(FILES[name].path), run_name=name)  # one name, one module
        assert not list(folder.iterdir()), "without a GPU nothing is timed and no file is written"
        return names

    return run


@pytest.fixture(scope="session")
def plain() -> Callable[[str], types.SimpleNamespace]:
    """Return ``plain(name)``: what a lesson defines before its part *In a program*.

    Imports, constants (names in capitals), functions and classes are executed, nothing else, so no
    check and no benchmark runs. ``tutorial(name)`` has the names at the end of the script.
    """

    @cache
    def load(name: str) -> types.SimpleNamespace:
        path = FILES[name].path
        text = path.read_text(encoding="utf-8")
        end = re.search(r"^# In a program\n# -{3,}$", text, re.M)
        assert end, f"{name} has no part In a program"
        tree = ast.parse(text[: end.start()])
        tree.body = [node for node in tree.body if _defines(node)]
        module = types.ModuleType(f"plain_{name}")
        module.__file__ = str(path)
        sys.modules[module.__name__] = module  # Triton looks up the globals of a kernel
        linecache.checkcache(str(path))
        exec(compile(tree, str(path), "exec"), vars(module))
        return types.SimpleNamespace(**vars(module))

    return load


def _defines(node: ast.stmt) -> bool:
    """Whether a statement is an import, a function, a class, a constant or a setting of those."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
        return True
    if isinstance(node, ast.Expr):  # os.environ.setdefault(…), before Triton is imported
        return ast.unparse(node).startswith("os.environ.")
    targets = node.targets if isinstance(node, ast.Assign) else []
    if targets and re.search(r"\btriton\.(jit|autotune|Config)\(", ast.unparse(node.value)):
        return True
    names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return bool(names) and all(name.isupper() for name in names)


@pytest.fixture(scope="module")
def page(request, tutorial) -> dict[str, Any]:
    """The names of the tutorial whose number the test file has: ``test_05_layer_norm.py``."""
    number = request.path.stem.split("_")[1]
    (name,) = (name for name in FILES if name.startswith(f"{number}-"))
    return tutorial(name)
