"""The traces that lessons show: of the current kernels, small, and on the page."""

import ast
import json

import pytest
from bs4 import BeautifulSoup

from traces import make

SCRIPTS = make.scripts()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_trace_is_of_the_current_kernels_and_small(script):
    assert make.is_current(script), "run `make traces`"
    file = make.data_file(script)
    assert file.stat().st_size <= make.MOST
    traces = json.loads(file.read_text(encoding="utf-8"))["traces"]
    for trace in traces.values():
        assert trace["caption"]
        for launch in trace["launches"]:
            assert launch["programs"]
            for step in launch["programs"][-1]["steps"]:
                assert "outside" not in step


def test_a_change_of_a_kernel_makes_its_trace_stale_and_a_comment_does_not(tmp_path, monkeypatch):
    script = SCRIPTS[0]
    lesson = make.lesson_of(script)
    monkeypatch.setattr(make, "LESSONS", tmp_path)
    text = lesson.read_text(encoding="utf-8")
    copy = tmp_path / lesson.name
    copy.write_text(f"# a comment\n{text}\nprint('other code')\n", encoding="utf-8")
    assert make.is_current(script)
    copy.write_text(text.replace("offsets < n", "offsets <= n"), encoding="utf-8")
    assert not make.is_current(script)


def test_the_statements_of_kernels_are_no_others():
    names = set()
    for node in make.kernel_statements(make.LESSONS / "03-matrix-multiplication.py"):
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
    assert {"tile_kernel", "tile_position", "grouped_kernel"} <= names
    assert "matmul" not in names


def test_a_page_has_the_player_its_script_and_its_data(site):
    path = site / "getting-started/tutorials/01-vector-add.html"
    page = BeautifulSoup(path.read_bytes(), "html.parser")
    player = page.select_one("triton-trace")
    file = (path.parent / player["src"]).resolve()
    data = file.read_text(encoding="utf-8").partition(" = ")[2].rstrip(";\n")
    assert player["name"] in json.loads(data)["traces"]
    assert "blocks of eight" in page.select_one("figure.trace").text
    assert page.select("script[src*='player.js']")
    other = site / "getting-started/installation.html"
    assert not BeautifulSoup(other.read_bytes(), "html.parser").select("script[src*='player.js']")
