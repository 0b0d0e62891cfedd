"""``make new`` writes a skeleton that runs, passes the linters and replaces nothing."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from triton_site.pages import assemble, new_tutorial

ROOT = Path(__file__).parents[2]


@pytest.fixture
def written(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("tutorials").mkdir()
    new_tutorial.main("11-my-kernel")
    return tmp_path / "tutorials" / "11-my-kernel.py"


@pytest.mark.execute
def test_the_skeleton_runs_as_a_download(written, tmp_path):
    download = tmp_path / "downloaded.py"
    shared = ROOT / "tutorials" / "shared"
    download.write_text(assemble.assemble_script(written.read_text(), shared))
    assert "double" in runpy.run_path(str(download))


def test_the_skeleton_passes_the_linters(written):
    for command in (("check",), ("format", "--check")):
        subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", ROOT / "pyproject.toml", written],
            check=True,
        )


@pytest.mark.parametrize("name", ["", "my-kernel", "../11-x", "11-my-kernel.py", "11-" + 297 * "a"])
def test_a_wrong_name_is_refused_with_an_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="such as 11-my-kernel"):
        new_tutorial.main(name)
    assert list(tmp_path.iterdir()) == []


def test_a_number_is_given_once(written):
    before = written.read_text()
    with pytest.raises(SystemExit, match=r"11-my-kernel\.py has the number 11"):
        new_tutorial.main("11-other")
    assert written.read_text() == before
