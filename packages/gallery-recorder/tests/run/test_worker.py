"""What is recorded of a script that does what scripts do, as a conf.py chooses."""

import re
from pathlib import Path

import pytest

from gallery_recorder.testing.projects import SECOND, Gallery

# Each is the second block of a script of this name; all are recorded in one go.
SCRIPTS = {
    "prints": """
        import ctypes, logging, os, subprocess, sys, threading, warnings
        print("python")
        os.write(1, b"descriptor\\n")
        subprocess.run(["echo", "process"])
        thread = threading.Thread(target=print, args=("thread",))
        thread.start()
        thread.join()
        sys.stdout.buffer.write(b"bytes \\xff\\n")
        sys.stdout.buffer.flush()
        for percent in range(0, 101, 25):
            print(f"\\r\\x1b[32m{percent} %\\x1b[0m", end="")
        print()
        libc = ctypes.CDLL(None)
        print("error", file=sys.stderr)
        os.write(2, b"descriptor\\n")
        logging.warning("logged")
        warnings.warn("careful")
        print(sys.stdout.fileno(), sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.writable())
        libc.puts(b"C, in its own buffer")
        """,
    "paths": """
        import inspect, os, sys, tempfile
        import matplotlib
        print(os.getcwd(), tempfile.gettempdir(), os.path.expanduser("~"))
        print(sys.prefix)
        print(os.path.dirname(matplotlib.__file__))
        print(os.path.dirname(os.__file__))
        print(__name__, sys.argv)
        def function():
            return "source"
        print(inspect.getsource(function), inspect.getsourcefile(function))
        object()
        """,
    "files": """
        open("kept.csv", "w").write("a\\n1\\n")
        open("removed.csv", "w").write("a\\n1\\n")
        open("later.csv", "w").write("a\\n1\\n")
        import os, tempfile
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/a")
            open(f"{folder}/a/b", "w").write("x")
        None

        # %%
        os.remove("removed.csv")
        os.rename("kept.csv", "renamed.csv")
        with open("later.csv", "a") as file:
            rows = file.write("2\\n")
        """,
    "times": """
        import time
        time.sleep(0.3)

        # %%
        block = bytearray(200_000_000)
        """,
    "forks": """
        import os
        child = os.fork()
        if child:
            done = os.waitpid(child, 0)

        # %%
        print("once")
        """,
    "environment": """
        import os, sys
        for name in ("MADE_FOR_IT", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
            print(name, repr(os.environ.get(name)))
        print("environment.py" in os.listdir(), "torch" in sys.modules)
        """,
    "random": "import random\nprint(random.randint)",  # no import finds the example instead
}

MORE = """
gallery_data = ["*.csv"]
gallery_stderr = "apart"
gallery_environment = {"cpu": {"OMP_NUM_THREADS": "1", "MADE_FOR_IT": "yes"}}
gallery_variables = ["MADE_*"]
gallery_filters = [
    "gallery_recorder.run.text.mask_addresses", "gallery_recorder.run.text.name_paths"
]
"""


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    gallery = Gallery(tmp_path_factory.mktemp("child"), more=MORE)
    for name, code in SCRIPTS.items():
        gallery.write(name, code)
    return gallery.record_all()


def test_all_output_is_recorded_in_its_order(gallery):
    block = gallery.load("prints").blocks[1]
    assert block.stdout.splitlines() == [
        "python",
        "descriptor",
        "process",
        "thread",
        r"bytes \xff",
        "100 %",
        "1 False utf-8 True",
        "C, in its own buffer",
    ]
    assert block.stderr.splitlines() == [
        "error",
        "descriptor",
        "WARNING:root:logged",
        f"examples/prints.py:{SECOND + 16}: UserWarning: careful",
        '  warnings.warn("careful")',
    ]
    assert block.shown is None  # the page shows each in a box of its own


def test_no_path_of_the_machine_is_recorded(gallery):
    made = gallery.load("paths")
    lines = made.blocks[1].stdout.splitlines()
    assert lines[0] == ". <tmp> ~"
    assert lines[1] == "<python>"
    assert lines[2] == "<packages>/matplotlib"
    assert lines[3].startswith("<python>")
    assert lines[4] == "__main__ ['examples/paths.py']"
    assert lines[5:] == ["def function():", '    return "source"', " examples/paths.py"]
    assert made.blocks[1].value["text/plain"] == "<object object at 0x…>"
    for path in gallery.recorded.glob("*/recording.json"):
        text = path.read_text()
        assert str(gallery.root) not in text
        assert str(Path.home()) + "/" not in text
        assert str(Path(__file__).parents[2]) not in text


def test_files_belong_to_the_block_that_wrote_them_last(gallery):
    made = gallery.load("files")
    assert [block.data for block in made.blocks] == [(), (), ("later.csv", "renamed.csv")]
    assert (gallery.recorded / "files" / "later.csv").read_text() == "a\n1\n2\n"
    assert [*made.files] == ["later.csv", "renamed.csv"]


def test_time_and_memory(gallery):
    made = gallery.load("times")
    assert made.blocks[1].seconds >= 0.3
    assert made.run.seconds >= sum(b.seconds for b in made.blocks) - 0.01
    assert made.run.peak_host_memory > 200_000_000
    assert made.timed


def test_a_forked_copy_executes_nothing_twice(gallery):
    assert gallery.load("forks").blocks[2].stdout == "once\n"


def test_the_environment_is_made_for_it(gallery):
    assert gallery.load("environment").blocks[1].stdout.splitlines() == [
        "MADE_FOR_IT 'yes'",
        "CUDA_VISIBLE_DEVICES ''",
        "OMP_NUM_THREADS '1'",
        "True False",
    ]
    provenance = gallery.load("environment").provenance
    assert provenance.kind == "cpu"
    assert {"MADE_FOR_IT": "yes", "OMP_NUM_THREADS": "1"}.items() <= provenance.environment.items()
    assert re.match(r"3\.\d+\.\d+", provenance.python)
    assert provenance.versions["sphinx-gallery"][0].isdigit()


def test_in_any_folder_a_script_can_open_sockets(tmp_path):
    gallery = Gallery(tmp_path / ("deep" * 30))  # no path of a socket has 108 bytes
    code = """
        import os, socket, tempfile
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as opened:
            opened.bind(f"{folder}/socket")
            print(opened.getsockname().replace(folder, "folder"))
        print(tempfile.gettempdir(), os.path.realpath(tempfile.gettempdir()))
        print(tempfile.gettempdir()[::-1])
        """
    gallery.write("opens", code)
    gallery.record_all()
    opened, paths, reverse = gallery.load("opens").blocks[1].stdout.splitlines()
    assert opened == "folder/socket"
    assert paths == "<tmp> <tmp>", "no link: programs that resolve links would call it otherwise"
    assert not Path(reverse[::-1]).exists()
