"""Execute a download once a session and hand its names to the tests."""

import runpy
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


@pytest.fixture(scope="module")
def page(request, tutorial) -> dict[str, Any]:
    """The names of the tutorial whose number the test file has: ``test_05_layer_norm.py``."""
    number = request.path.stem.split("_")[1]
    (name,) = (name for name in FILES if name.startswith(f"{number}-"))
    return tutorial(name)
