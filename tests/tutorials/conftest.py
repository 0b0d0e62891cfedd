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


@pytest.fixture(scope="session")
def tutorial(tmp_path_factory) -> Callable[[str], dict[str, Any]]:
    """Return ``tutorial(name)``: the namespace that ``tutorials/<name>.py`` leaves behind.

    The script runs in Triton's interpreter and in an empty working directory, so the tests need
    no GPU and a file that the script writes never lands in the project.
    """

    @cache
    def run(name: str) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path_factory.mktemp(name.replace("/", "-")))
            patch.setenv("MPLBACKEND", "Agg")
            # Triton reads this when a kernel is decorated and again when it is launched, so it
            # stays set once the script has run.
            os.environ["TRITON_INTERPRET"] = "1"
            torch.set_num_threads(1)  # blocks are small; threads would only wait for each other
            return runpy.run_path(str(TUTORIALS / f"{name}.py"))

    return run
