"""The examples of the semantics page do what the page says, in Triton's interpreter."""

from pathlib import Path

from tests.fixtures.readers import execute

PAGE = Path(__file__).parents[2] / "docs" / "python-api" / "semantics.rst"

#: In a process of its own: the interpreter must be chosen before Triton is imported.
CHECK = f"""
import doctest, os, sys

os.environ["TRITON_INTERPRET"] = "1"
found = doctest.testfile(
    {str(PAGE)!r}, module_relative=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL
)
sys.exit(found.failed > 0 or found.attempted < 20)
"""


def test_examples(tmp_path):
    (tmp_path / "check.py").write_text(CHECK)
    result = execute(tmp_path, "check.py")
    assert result.returncode == 0, result.stdout + result.stderr
