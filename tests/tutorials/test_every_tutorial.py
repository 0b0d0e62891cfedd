"""What holds for every script of the galleries; a new file is tested without touching a list."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF
from sphinx_gallery.notebook import jupyter_notebook

from tests.fixtures.forked import execute, reader
from tests.galleries import FILES, PAGES
from triton_site.pages.cells import cells_of, in_sight

ROOT = Path(__file__).parents[2]
MAIN = [name for name, f in FILES.items() if f.path.parent.name == "tutorials"]

#: What a downloaded script may import besides the standard library.
ALLOWED = {"torch", "triton", "matplotlib", "tabulate"}

#: A number with the unit of a measurement, or a claim of speed. A size in bytes is no measurement.
MEASURED = re.compile(
    r"\d[\d.,]*\s*(?:[GT]B/s|T?FLOPS|TFLOP/s|µs|us\b|ms\b|milliseconds|microseconds"
    r"|%(?! ?-?\d)|per ?cent|(?:x|×|times)\s+(?:as\s+)?(?:fast|slow))",
    re.IGNORECASE,
)

every_script = pytest.mark.parametrize("name", FILES)


@pytest.mark.parametrize("name", MAIN)
def test_is_executed_as_a_script(name, tutorial):
    """In one process with the others, once for all tests; solutions and chapters by their own."""
    assert tutorial(name)


def one_of(names):
    """As readers do, `make test-stress` executes all of *names*, and `make test` one."""
    marks = {False: pytest.mark.stress, True: ()}
    marked = [pytest.param(name, marks=marks[name == MAIN[0]]) for name in names]
    return pytest.mark.parametrize("name", marked)


@one_of(name for name in FILES if not PAGES[name].startswith("programming-guide"))
def test_runs_as_the_downloaded_script(name, tmp_path):
    """Alone in a folder, with nothing of ours importable, and no variable that helps it."""
    (tmp_path / "downloaded.py").write_bytes(FILES[name].path.read_bytes())
    done = execute(tmp_path, "downloaded.py")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["downloaded.py"], "no timings, no files"


def notebook(name, folder):
    script = FILES[name].load()
    conf = DEFAULT_GALLERY_CONF | {"remove_config_comments": True}
    return nbformat.reads(
        json.dumps(jupyter_notebook(list(script.blocks), conf, folder)), as_version=4
    )


# Solutions and chapters are executed as scripts: their notebooks hold the same lines.
@one_of(MAIN)
def test_runs_as_the_downloaded_notebook(name, tmp_path):
    """With nothing of ours importable, and no variable that helps it."""
    cells = [cell.source for cell in notebook(name, tmp_path).cells if cell.cell_type == "code"]
    done = execute(tmp_path, cells)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    assert list(tmp_path.iterdir()) == [], "no timings, no files"


@pytest.mark.stress
def test_runs_in_jupyter(tmp_path, monkeypatch):
    """One of them in a kernel as Jupyter's, to which cells are sent, and which sends outputs."""
    made = notebook(MAIN[0], tmp_path)
    for variable in set(os.environ) - set(reader()):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    nbclient.NotebookClient(made, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [o for cell in made.cells for o in cell.get("outputs", [])]
    assert outputs
    assert not [o for o in outputs if o.output_type == "error"]


@every_script
def test_needs_nothing_of_ours(name):
    tree = ast.parse(FILES[name].path.read_text())
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - ALLOWED <= set(sys.stdlib_module_names)


@every_script
def test_title_and_structure(name):
    script = FILES[name].load()
    assert script.title
    kinds = [block.type for block in script.blocks]
    assert kinds[0] == "text"
    code = [block for block in script.blocks if block.type == "code"]
    assert len(code) >= 3, "short cells, each followed by its output"
    shown = [in_sight(cell) for cell in cells_of(script)]
    assert max(code.count("\n") for code in shown) <= 120, "a cell too long to read"


@pytest.mark.parametrize("name", MAIN)
def test_ends_with_exercises_and_references(name):
    text = FILES[name].path.read_text()
    headings = re.findall(r"^# (.+)\n# -{3,}$", text, re.MULTILINE)
    assert "Exercises" in headings[-2:]
    assert "References" in headings[-1]
    assert "<solutions/" in text


@pytest.mark.parametrize("name", MAIN)
def test_computes_before_it_times(name):
    """The first statement that checks a result comes before the first that times anything."""
    tree = ast.parse(FILES[name].path.read_text())
    calls = {node.name: _called(node) for node in tree.body if isinstance(node, ast.FunctionDef)}

    def reaches(statement: ast.stmt, wanted: str) -> bool:
        found, todo = set(), list(_called(statement))
        while todo:
            function = todo.pop()
            if function not in found:
                found.add(function)
                todo += calls.get(function, ())
        return wanted in found

    statements = [s for s in tree.body if not isinstance(s, ast.FunctionDef | ast.ClassDef)]
    checks = [i for i, s in enumerate(statements) if reaches(s, "assert_close")]
    timings = [
        i for i, s in enumerate(statements) if reaches(s, "do_bench") or reaches(s, "elapsed_time")
    ]
    assert checks
    assert timings
    assert checks[0] < timings[0]


@every_script
def test_prose_states_no_measured_number(name):
    for block in FILES[name].load().blocks:
        if block.type == "text":
            assert not MEASURED.search(block.content), MEASURED.search(block.content).group()


def test_pages_state_no_measured_number():
    for path in [*(ROOT / "docs").rglob("*.rst"), ROOT / "README.md"]:
        place = path.as_posix()
        if re.search(r"getting-started/tutorials|programming-guide/chapter-[3-9]", place):
            continue  # made of scripts
        assert not (found := MEASURED.search(path.read_text())), f"{place}: {found.group()}"


def _called(node: ast.AST) -> set[str]:
    """The names that *node* calls or hands on: ``f`` of ``f(x)``, ``a.f(x)`` and ``g(f)``."""
    return {
        n.id if isinstance(n, ast.Name) else n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Name | ast.Attribute)
    }
