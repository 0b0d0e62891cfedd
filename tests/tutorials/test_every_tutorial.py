"""What holds for every script of the galleries; a new file is tested without touching a list."""

import ast
import re
import sys

import pytest

from tests.fixtures.reach import reaches
from tests.fixtures.readers import execute
from tests.galleries import FILES

MAIN = [name for name, file in FILES.items() if file.path.parent.name == "tutorials"]
#: Gluon's kernels run on a GPU only.
KERNELS = [name for name in MAIN if "@triton.jit" in FILES[name].path.read_text()]
SOLUTIONS = [name for name in FILES if name.startswith("solutions/")]

#: What a downloaded script may import besides the standard library.
ALLOWED = {"torch", "triton", "matplotlib", "tabulate"}
#: Libraries beside which a page times ours; without one of them it shows a dash.
PEERS = {"libraries": {"liger_kernel", "fla", "gemlite"}}

#: A number with the unit of a measurement, or a claim of speed. A size in bytes is no measurement.
MEASURED = re.compile(
    r"\d[\d.,]*\s*(?:[GT]B/s|T?FLOPS|TFLOP/s|µs|us\b|ms\b|milliseconds|microseconds"
    r"|%(?! ?-?\d)|per ?cent|(?:x|×|times)\s+(?:as\s+)?(?:fast|slow))",
    re.IGNORECASE,
)


def some(names, always):
    """Parametrise over *names*; ``make test`` tries *always*, ``make test-stress`` the others."""
    others = [pytest.param(n, marks=pytest.mark.stress) for n in names if n not in always]
    return pytest.mark.parametrize("name", [*always, *others])


@pytest.mark.parametrize("name", MAIN)
def test_runs_in_the_interpreter(name, tutorial):
    assert tutorial(name)


def put_beside(name, folder):
    """Copy the scripts that a script names into *folder*; return their paths."""
    names = str(FILES[name].load().settings.get("depends", "")).split(",")
    needed = [FILES[name].path.parent / other.strip() for other in names if other.strip()]
    for path in needed:
        (folder / path.name).write_bytes(path.read_bytes())
    return needed


@some(MAIN + SOLUTIONS, always=MAIN[:1])
def test_a_downloaded_script_runs_alone(name, tmp_path):
    """In a folder with the scripts it names, without our packages or a variable that helps it."""
    (tmp_path / "downloaded.py").write_bytes(FILES[name].path.read_bytes())
    needed = put_beside(name, tmp_path)
    done = execute(tmp_path, "downloaded.py")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        "downloaded.py",
        *(p.name for p in needed),
    }


class WrongStores(ast.NodeTransformer):
    """Every store of a kernel writes its value plus one per cent and 0.01."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if ast.unparse(node.func).endswith(".store") and len(node.args) > 1:
            value = ast.unparse(node.args[1])
            node.args[1] = ast.parse(f"({value}) * 1.01 + 0.01", mode="eval").body
        return node


@some(KERNELS, always=KERNELS[:1])
def test_a_script_with_a_wrong_kernel_stops(name, tmp_path):
    """The script's own check fails; `test_checks_before_it_times` says that nothing is timed."""
    tree = WrongStores().visit(ast.parse(FILES[name].path.read_text()))
    (tmp_path / "wrong.py").write_text(ast.unparse(ast.fix_missing_locations(tree)))
    put_beside(name, tmp_path)
    done = execute(tmp_path, "wrong.py")
    assert done.returncode != 0
    assert "AssertionError" in done.stderr


@pytest.mark.parametrize("name", MAIN)
def test_checks_before_it_times(name):
    """The first statement that checks a result comes before the first that times anything."""
    tree = ast.parse(FILES[name].path.read_text())
    statements = [s for s in tree.body if not isinstance(s, ast.FunctionDef | ast.ClassDef)]
    checks, timings = (
        [i for i, statement in enumerate(statements) if reaches(statement, names, tree)]
        for names in ({"assert_close", "compare"}, {"do_bench", "elapsed_time"})
    )
    assert checks[0] < timings[0]


@pytest.mark.parametrize("name", FILES)
def test_imports_only_what_a_reader_has(name):
    imported = set()
    for node in ast.walk(ast.parse(FILES[name].path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - ALLOWED - PEERS.get(name, set()) <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("name", FILES)
def test_no_measured_number_is_typed_into_prose(name):
    text = "\n".join(block.content for block in FILES[name].load().blocks if block.type == "text")
    assert not (found := MEASURED.search(text)), found.group()
