"""The examples of the semantics page do what the page says, in Triton's interpreter."""

import doctest
import os
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "python-api" / "semantics.rst"


def test_examples():
    # In a process of its own: the interpreter has to be chosen before Triton is imported.
    result = subprocess.run(
        [sys.executable, __file__],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr


if __name__ == "__main__":
    results = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL
    )
    sys.exit(results.failed > 0 or results.attempted < 20)
