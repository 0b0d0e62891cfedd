"""What is recorded of a tutorial that does what tutorials do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image
from room import SECOND, Room

# Each is the second block of a tutorial of this name; all are recorded in one go.
TUTORIALS = {
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
        libc.puts(b"C, in its own buffer")
        print("error", file=sys.stderr)
        os.write(2, b"descriptor\\n")
        logging.warning("logged")
        warnings.warn("careful")
        print(sys.stdout.fileno(), sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.writable())
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
        os.getcwd()
        """,
    "reprs": """
        class Both:
            def __repr__(self):
                return "text"
            def _repr_html_(self):
                return "<b>html</b>"
        Both()

        # %%

        # sphinx_gallery_capture_repr_block = ("__repr__",)
        Both()

        # %%

        # sphinx_gallery_capture_repr_block = ()
        Both()

        # %%
        print("nothing")

        # %%
        x = 1

        # %%
        object()

        # %%
        "a\\tstring\\n"
        """,
    "no-reprs": """
        # sphinx_gallery_capture_repr = ()
        1 + 1
        """,
    "figures": """
        # sphinx_gallery_thumbnail_number = 2
        import matplotlib.pyplot as plt
        figure, axes = plt.subplots(1, 2, figsize=(5, 3))
        figure.suptitle("Both")
        axes[0].set_title("Left\\nside")
        axes[1].set_title("Right")
        plt.show()

        # %%

        # sphinx_gallery_defer_figures
        figure, axes = plt.subplots(figsize=(4, 4), facecolor="red")
        None

        # %%
        axes.set_title("Deferred")
        plt.figure(figsize=(3, 2))
        import numpy as np
        points = plt.plot(*np.random.default_rng(0).random((2, 20_000)), ".")
        """,
    "last-thumbnail": """
        # sphinx_gallery_thumbnail_number = 9
        import matplotlib.pyplot as plt
        first = plt.figure(figsize=(4, 2))
        last = plt.figure(figsize=(2, 4), facecolor="blue")
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
        for name in ("TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES", "MPLBACKEND", "OMP_NUM_THREADS"):
            print(name, repr(os.environ.get(name)))
        print(os.listdir(), "torch" in sys.modules, "matplotlib" in sys.modules)
        """,
    "random": "import random\nprint(random.randint)",
    "comments": """
        # Nothing but a comment.

        # %%
        print("after")
        """,
    "kernel": """
        import torch
        import triton
        import triton.language as tl

        @triton.jit
        def double(x_ptr, n, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + offsets, mask=offsets < n)
            tl.store(x_ptr + offsets, 2 * x, mask=offsets < n)

        x = torch.arange(5)
        double[(2,)](x, 5, BLOCK=4)
        x
        """,
}


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    room = Room(tmp_path_factory.mktemp("child"))
    for name, code in TUTORIALS.items():
        room.write(name, code)
    outcomes = room.record()
    failed = [outcome.text for outcome in outcomes.values() if outcome.status != "recorded"]
    assert failed == []
    return room


def test_all_output_is_recorded_in_its_order(room):
    block = room.load("prints").blocks[1]
    assert block.stdout.splitlines() == [
        "python",
        "descriptor",
        "process",
        "thread",
        r"bytes \xff",
        "100 %",
        "C, in its own buffer",
        "1 False utf-8 True",
    ]
    assert block.stderr.splitlines() == [
        "error",
        "descriptor",
        "WARNING:root:logged",
        f"tutorials/prints.py:{SECOND + 17}: UserWarning: careful",
        '  warnings.warn("careful")',
    ]


def test_no_path_of_the_machine_is_recorded(room):
    made = room.load("paths")
    lines = made.blocks[1].stdout.splitlines()
    assert lines[0] == ". <tmp> ~"
    assert lines[1] == "<python>"
    assert lines[2] == "<packages>/matplotlib"
    assert lines[3].startswith("<python>")
    assert lines[4] == "__main__ ['tutorials/paths.py']"
    assert lines[5:] == ["def function():", '    return "source"', " tutorials/paths.py"]
    assert made.blocks[1].repr.value == "'.'"
    for path in room.device.glob("*/recording.json"):
        text = path.read_text()
        assert str(room.folder) not in text
        assert str(Path.home()) + "/" not in text
        assert str(Path(__file__).parents[2]) not in text


def test_reprs_follow_the_settings(room):
    values = [
        (b.repr.kind, b.repr.value) if b.repr else None for b in room.load("reprs").blocks[1:]
    ]
    assert values == [
        ("html", "<b>html</b>"),
        ("text", "text"),
        None,
        None,
        None,
        ("text", "<object object at 0x…>"),
        ("text", r"'a\tstring\n'"),
    ]
    assert room.load("no-reprs").blocks[1].repr is None


def test_figures(room):
    made = room.load("figures")
    figures = [
        [(f.file, f.alt, f.width, f.height) for f in block.figures] for block in made.blocks[1:]
    ]
    assert figures == [
        [("figure-01.svg", "Both, Left side, Right", 480, 288)],
        [],
        [
            ("figure-02.svg", "Deferred", 384, 384),
            ("figure-03.png", "figure 3", 288, 192),  # many points: PNG is smaller
        ],
    ]
    folder = room.device / "figures"
    assert Image.open(folder / "figure-03.png").size == (450, 300)
    svg = (folder / "figure-02.svg").read_text()
    assert "<dc:date>" not in svg
    assert "ff0000" in svg
    with Image.open(folder / "thumbnail.png") as image:
        assert image.size == (400, 280)
        image = image.convert("RGB")
        assert image.getpixel((5, 140)) == (255, 255, 255)
        assert image.getpixel((80, 5)) == (255, 0, 0)


def test_the_last_figure_is_the_thumbnail_where_there_are_fewer(room):
    made = room.load("last-thumbnail")
    assert made.thumbnail == "thumbnail.png"
    with Image.open(room.device / "last-thumbnail" / "thumbnail.png") as image:
        assert image.convert("RGB").getpixel((200, 140)) == (0, 0, 255)
    assert room.load("prints").thumbnail is None


def test_files_belong_to_the_block_that_wrote_them_last(room):
    made = room.load("files")
    assert [block.data for block in made.blocks] == [(), (), ("later.csv", "renamed.csv")]
    assert (room.device / "files" / "later.csv").read_text() == "a\n1\n2\n"
    assert [file.name for file in made.files] == ["later.csv", "renamed.csv"]


def test_time_and_memory(room):
    made = room.load("times")
    assert 0.3 <= made.blocks[1].seconds < 1
    assert made.run.seconds == pytest.approx(sum(b.seconds for b in made.blocks), abs=0.002)
    assert 200_000_000 < made.run.peak_host_memory < 500_000_000
    assert made.run.peak_gpu_memory is None
    assert room.load("forks").run.peak_host_memory < 200_000_000
    drawn = room.load("figures").blocks
    assert sum(block.seconds for block in drawn) < 3


def test_a_forked_copy_executes_nothing_twice(room):
    assert room.load("forks").blocks[2].stdout == "once\n"


def test_the_environment_is_made_for_it(room):
    assert room.load("environment").blocks[1].stdout.splitlines() == [
        "TRITON_INTERPRET '1'",
        "CUDA_VISIBLE_DEVICES ''",
        "MPLBACKEND 'agg'",
        "OMP_NUM_THREADS '1'",
        "['environment.py'] False False",
    ]
    provenance = room.load("environment").provenance
    assert provenance.kind == "interpreter"
    assert provenance.environment == {"TRITON_INTERPRET": "1"}
    assert re.match(r"3\.\d+\.\d+", provenance.python)
    assert provenance.torch[0].isdigit()


def test_a_file_name_is_no_module_name(room):
    assert "bound method Random.randint" in room.load("random").blocks[1].stdout


def test_a_block_of_comments_is_no_block(room):
    made = room.load("comments")
    assert [block.stdout for block in made.blocks] == ["begun\n", "after\n"]


def test_a_kernel_in_the_interpreter(room):
    assert room.load("kernel").blocks[1].repr.value == "tensor([0, 2, 4, 6, 8])"


def test_blocks_know_their_line_and_key(room):
    first, second = room.load("times").blocks[:2]
    assert (first.line, second.line) == (11, SECOND)
    assert first.key == room.load("prints").blocks[0].key
    assert first.key != second.key
