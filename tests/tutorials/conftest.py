"""Run a tutorial once a session and hand its names to the tests."""

import os
import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

TUTORIALS = Path(__file__).parents[2] / "tutorials"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a test draw the same numbers whichever tests went before it in its process."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def tutorial(tmp_path_factory) -> Callable[[str], dict[str, Any]]:
    """Return ``tutorial(name)``: the namespace that ``tutorials/<name>.py`` leaves behind.

    The script runs in Triton's interpreter and in an empty working directory, so the tests need
    no GPU and a file that the script writes never lands in the project.
    """

    @cache
    def run(name: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp(name.replace("/", "-"))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("MPLBACKEND", "Agg")
            # Triton reads this when a kernel is decorated and again when it is launched, so it
            # stays set once the script has run.
            os.environ["TRITON_INTERPRET"] = "1"
            names = runpy.run_path(str(TUTORIALS / f"{name}.py"))
        assert not list(folder.iterdir()), "no timings, no files"
        return names

    return run
