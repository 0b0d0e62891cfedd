"""conf.py is read once, where the recorder is called; its failures are its own."""

import os
import re
import subprocess
import sys

import pytest

from gallery_recorder.project.galleries import ProjectError
from gallery_recorder.run import recorder
from gallery_recorder.testing import in_process, processes
from gallery_recorder.testing.projects import Gallery

ONCE = """
import atexit, os, pathlib
print("conf.py prints")
os.environ["FROM_CONF"] = "yes"
pathlib.Path(__file__).with_name("kept").touch()
atexit.register(os.remove, pathlib.Path(__file__).with_name("kept"))  # not after each example
def handler(app):
    open("reads", "a").write("handler ")
def setup(app):
    open("reads", "a").write(open("data.txt").read())  # relative to where sphinx-build is called
    app.connect("builder-inited", handler, priority=100)
"""

#: As PyTorch's tutorials wrap it.
ISOLATED = """
import multiprocessing, sphinx_gallery.gen_rst as gen_rst
multiprocessing = multiprocessing.get_context("fork")
def call(function, arguments, results):
    try:
        results.put((True, function(*arguments)))
    except Exception as error:
        results.put((False, str(error)))
def isolate(function):
    def wrapper(*arguments):
        results = multiprocessing.Queue()
        process = multiprocessing.Process(target=call, args=(function, arguments, results))
        process.start()
        process.join()
        success, result = results.get()
        if not success:
            raise RuntimeError(result)
        return result
    return wrapper
gen_rst.NAME = isolate(gen_rst.NAME)
"""
INSIDE = "import sphinx_gallery.gen_rst as g\nf = g.NAME\ng.NAME = lambda *a: f(*a)\n"
THREAD = (
    "import threading, time\nthreading.Thread(target=time.sleep, args=[9], daemon=True).start()"
)
GPU = "from gallery_recorder.run import gpus; gpus.uses_gpu = lambda: True"
EARLY = "gallery_environment = {'cpu': {'MALLOC_ARENA_MAX': '1'}}"


def test_conf_py_runs_once_where_the_recorder_is_called(tmp_path, monkeypatch):
    gallery = Gallery(tmp_path, more=ONCE)
    (tmp_path / "data.txt").write_text("setup ")
    monkeypatch.chdir(tmp_path)
    for name in "abcd":
        gallery.write(name, "import os\nprint(os.environ['FROM_CONF'])")
    project = gallery.project()
    (tmp_path / "reads").unlink()
    outcomes = in_process.record(gallery, recorder.Options(device="cpu"), project)
    assert {outcome.status for outcome in outcomes.values()} == {"recorded"}
    assert (tmp_path / "reads").read_text() == "setup handler "
    assert [gallery.load(name).blocks[1].stdout for name in "ad"] == ["yes\n"] * 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("x = {}['k']", r"conf\.py:11: raised KeyError: 'k'"),
        (
            "def setup(app):\n    open('nowhere')",
            r"conf\.py:12: raised FileNotFound(.|\n)*where you",
        ),
        ("x = (", r"conf\.py:11: raised SyntaxError"),
        ("import sys; sys.exit(3)", r"conf\.py:11: raised SystemExit: 3"),
        ("print('why'); import os; os._exit(3)", r"ended its process with status 3\n(.|\n)*why"),
    ],
)
def test_a_failure_of_conf_py_is_blamed_on_its_line(tmp_path, more, message):
    with pytest.raises(ProjectError, match=message):
        Gallery(tmp_path, more=more).project()


@pytest.mark.parametrize(
    "more",
    [
        ISOLATED.replace("NAME", "generate_file_rst"),
        INSIDE.replace("NAME", "generate_file_rst"),
        INSIDE.replace("NAME", "execute_script"),
        THREAD,
        EARLY,
        GPU,
    ],
    ids=["forks", "wraps", "wraps-execution", "thread", "early", "gpu"],
)
def test_examples_are_executed_inside_of_wrappers(tmp_path, more):
    gallery = Gallery(tmp_path, more=more)
    gallery.write("a", "import matplotlib.pyplot as plt\nprint('drawn')\nplt.plot([1, 2])")
    gallery.record_all()
    made = gallery.load("a")
    assert made.blocks[1].stdout == "drawn\n"
    assert made.blocks[1].images
    done = processes.sphinx(tmp_path, "-b", "html", "doc", "build")
    assert "warning" not in done.stderr.lower().replace("any toctree", ""), done.stderr
    assert "drawn" in (tmp_path / "build" / "auto_examples" / "a.html").read_text()


def test_who_forks_where_nobody_can_follow_is_named_and_a_crash_is_noticed(tmp_path):
    gallery = Gallery(tmp_path / "a", more=ISOLATED.replace("NAME", "execute_script"))
    gallery.write("a", "x = 1")
    assert re.search(r"in a process forked by isolate.*conf\.py:\d+", gallery.record()["a"].text)
    gallery = Gallery(tmp_path / "b", more=ISOLATED.replace("NAME", "generate_file_rst"))
    gallery.write("a", "import os\nos._exit(0)")
    assert "ended the process of isolate" in gallery.record()["a"].text


def test_a_failure_is_kept_where_nothing_good_is_and_tried_again(tmp_path):
    gallery = Gallery(tmp_path)
    gallery.write("a", "print('before')\n1 / 0")
    gallery.write("b", "print('before', flush=True)\nimport os\nos._exit(3)")
    gallery.write("c", "x = 1")
    assert gallery.record()["c"].status == "recorded"
    good = (gallery.recorded / "c" / "recording.json").read_bytes()
    gallery.write("c", "1 / 0")
    assert {o.status for o in gallery.record().values()} == {"failed"}
    assert (gallery.recorded / "c" / "recording.json").read_bytes() == good
    done = processes.sphinx(tmp_path, "-b", "html", "doc", "build")
    assert done.returncode != 0  # as where sphinx-gallery executes them
    assert "Unexpected failing examples (3)" in done.stderr
    for name, why in (("a", "ZeroDivisionError"), ("b", "status 3")):
        page = (tmp_path / "build" / "auto_examples" / f"{name}.html").read_text()
        assert "before" in page
        assert why in page
    only_warn = "-D", "sphinx_gallery_conf.only_warn_on_example_error=1"
    done = processes.sphinx(tmp_path, *only_warn, "-b", "html", "doc", "build")
    assert done.returncode == 0
    assert "Unexpected failing examples (3)" in done.stderr
    at_once = "-D", "abort_on_example_error=1"
    done = processes.sphinx(tmp_path, *at_once, "-b", "html", "doc", "build")
    assert done.returncode != 0
    assert "a.py failed when it was recorded" in done.stderr
    assert "Unexpected failing examples" not in done.stderr
    gallery.write("a", "print('repaired')")
    assert gallery.record()["a"].status == "recorded"


def test_without_fcntl_all_but_recording_works(tmp_path):
    gallery = Gallery(tmp_path)
    gallery.write("a", "print('shown')")
    gallery.record_all()
    hide = "import os, sys\nfor n in ('fcntl', 'resource', 'termios'): sys.modules[n] = None\n"
    hide += "for n in ('fork', 'sched_getaffinity'): delattr(os, n)\n"
    (tmp_path / "sitecustomize.py").write_text(hide)
    path = os.pathsep.join([str(tmp_path), str(processes.SOURCE)])

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": path}
        command = [sys.executable, "-m", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    assert " current " in run("gallery_recorder", "status").stdout
    assert run("gallery_recorder", "compare", "recordings", "recordings").returncode == 0
    assert run("sphinx", "-b", "html", "doc", "build").returncode == 0
    assert "shown" in (tmp_path / "build" / "auto_examples" / "a.html").read_text()
    refused = run("gallery_recorder", "record")
    assert refused.returncode == 1
    assert "needs Linux or macOS" in refused.stderr
