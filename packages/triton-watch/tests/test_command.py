"""The command, the pytest plugin and the wheel, as users call them."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ADD = """
import sys
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x + 1, mask=offsets < n)


def add(x):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(len(x), 32),)](x, out, len(x), BLOCK=32)
    return out
"""
WRONG = ADD.replace("x + 1, mask=offsets < n", "x + 1")
CALL = "print(sys.argv[1:], add(torch.ones(40)).sum().item())\n"


def run(folder, *command, **environment):
    """Run a command in *folder*; return its exit status and what it prints."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    kept["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=kept | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
    )
    return done.returncode, done.stdout


def watch(folder, text, *words):
    """``python -m triton_watch`` of a script with this text."""
    (folder / "script.py").write_text(text)
    before = [word for word in words if word.startswith("--")]
    after = [word for word in words if not word.startswith("--")]
    return run(folder, "-m", "triton_watch", *before, "script.py", *after)


def test_a_right_script_ends_well_with_its_own_arguments(tmp_path):
    status, printed = watch(tmp_path, ADD + CALL, "an", "argument")
    assert status == 0, printed
    assert "['an', 'argument'] 80.0" in printed
    assert printed.endswith("watched 1 launch of kernels and found nothing wrong with memory.\n")


def test_a_wrong_script_ends_with_1_and_the_readers_line(tmp_path):
    status, printed = watch(tmp_path, WRONG + CALL, "--trace=out.html")
    assert status == 1
    assert "script.py line 12 `tl.store(out_ptr + offsets, x + 1)`" in printed
    assert "Traceback" not in printed
    assert "<triton-trace>" in (tmp_path / "out.html").read_text()


def test_a_file_of_the_readers_may_have_the_name_of_a_package(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')")
    (tmp_path / "trace.py").write_text("")
    (tmp_path / "elsewhere").mkdir()
    status, printed = run(
        tmp_path, "-m", "triton_watch", "--no-compile", "elsewhere/script.py"
    )  # the file does not exist, and that is what is said
    assert status == 1
    assert "There is no file elsewhere/script.py" in printed


def test_a_script_that_measures_times_is_watched_and_the_times_are_skipped(tmp_path):
    bench = "from triton.testing import do_bench\nprint(do_bench(lambda: add(torch.ones(40))))\n"
    status, printed = watch(tmp_path, ADD + bench, "--no-compile")
    assert status == 0, printed
    assert "do_bench is skipped" in printed
    assert "0 active drivers" not in printed


def test_strict_makes_an_error_of_elements_that_were_never_written(tmp_path):
    text = f"{ADD}\nout = torch.empty(64)\nadd_kernel[(1,)](torch.ones(64), out, 64, BLOCK=32)\n"
    assert watch(tmp_path, text, "--no-compile")[0] == 0
    status, printed = watch(tmp_path, text, "--no-compile", "--strict")
    assert status == 1
    assert "Found: add_kernel leaves out a part of `out_ptr`: 32 of 64" in printed


def test_pytest_watches_each_test(tmp_path):
    tests = "\n\ndef test_right():\n    assert add(torch.ones(40)).sum() == 80\n"
    tests += "\n\ndef test_counts(triton_watch):\n    add(torch.ones(40))\n"
    tests += "    assert triton_watch.loaded == 160\n"
    caught = WRONG.replace("def add(", "def add_wrong(").replace("add_kernel", "wrong_kernel")
    tests += f"{caught}\n\ndef test_caught():\n    try:\n        add_wrong(torch.ones(40))\n"
    tests += "    except Exception:\n        pass\n"
    (tmp_path / "test_add.py").write_text(ADD + tests)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    plugin = ("-p", "triton_watch.pytest_plugin")
    status, printed = run(tmp_path, "-m", "pytest", *plugin, "-q", "--triton-watch")
    assert status == 1
    assert "3 passed" in printed
    assert "1 error" in printed
    assert "out of bounds: a store" in printed


def test_without_the_interpreter_the_api_says_what_to_set(tmp_path):
    text = "import triton_watch\nwith triton_watch.watch():\n    pass\n"
    (tmp_path / "script.py").write_text(text)
    status, printed = run(tmp_path, "script.py")
    assert status == 1
    assert "set TRITON_INTERPRET=1 before Python starts" in printed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this package."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    code = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    status, printed = run(ROOT, "-c", code, str(folder))
    assert status == 0, printed
    (file,) = folder.glob("*.whl")
    return file


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    modules = {name for name in names if name.startswith("triton_watch/")}
    sources = {p.name for p in (ROOT / "src/triton_watch").iterdir() if p.is_file()}
    assert modules == {f"triton_watch/{name}" for name in sources}
    assert "triton_watch/player.js" in modules
    others = {name.partition("/")[2] for name in names if name not in modules}
    assert others == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_an_installed_wheel_gives_the_command_and_the_plugin(wheel, tmp_path):
    """In an environment of its own, which sees the installed torch and triton."""
    pytest.importorskip("pip")
    venv.create(tmp_path / "env", system_site_packages=True, with_pip=False)
    place = tmp_path / "env/lib"
    (packages,) = place.glob("python*/site-packages")
    status, printed = run(
        tmp_path, "-m", "pip", "install", "--no-deps", "--no-index", "-q",
        "--prefix", str(tmp_path / "env"), str(wheel), PYTHONPATH="",
    )  # fmt: skip
    assert status == 0, printed
    outer = Path(pytest.__file__).resolve().parents[1]
    (packages / "outer.pth").write_text(f"{outer}\n")
    (tmp_path / "script.py").write_text(WRONG + CALL)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [tmp_path / "env/bin/python", tmp_path / "env/bin/triton-watch", "script.py"],
        cwd=tmp_path,
        env=environment,
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "out of bounds: a store" in done.stdout
    points = next(packages.glob("triton_watch-*.dist-info")) / "entry_points.txt"
    assert "triton_watch.pytest_plugin" in points.read_text()
