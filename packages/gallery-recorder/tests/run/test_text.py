"""What is kept of printed text."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from gallery_recorder.run.failure import failure_of
from gallery_recorder.run.text import Paths, clean, mask_addresses, name_paths, shorten


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        (b"\n\n", ""),
        (b"a", "a\n"),
        (b"\na  \n\n b\n\n", "\na\n\n b\n"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07b\x1b(B", "red b\n"),
        (b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link\n"),
        (b" 1%\r 50%\r100%\n", "100%\n"),
        (b"abcdef\rxy\n", "xycdef\n"),
        (b"dos\r\nlines\r\n", "dos\nlines\n"),
        (b"a\tb\n", "a       b\n"),
        (b"\xff\xfe \xc3\xa9\n", "\\xff\\xfe é\n"),
        (b"nul\x00 bell\x07 page\x0c\n", "nul\\x00 bell\\x07 page\\x0c\n"),
        ("c1 \x85 one\u2028line µ ≥ →\n".encode(), "c1 \\x85 one\\u2028line µ ≥ →\n"),
        ("text\ud800\n", "text\\ud800\n"),
        ("family 👩‍👩‍👧 and Ελλάδα שלום\n", "family 👩‍👩‍👧 and Ελλάδα שלום\n"),
    ],
)
def test_a_screens_text_is_kept(printed, kept):
    assert clean(printed) == kept
    assert clean(kept) == kept


def test_a_progress_bar_of_a_million_characters_takes_no_time():
    line = "x" * 400_000 + "\ra" * 300_000
    assert clean(line) == "a" + "x" * 399_999 + "\n"


def test_paths_are_named_the_longest_first(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    paths = Paths({tmp_path: "<folder>", tmp_path / "inner": ".", link: "<link>", Path("/"): "no"})
    assert paths.name(f"{tmp_path}/inner/a.py:3") == "./a.py:3"
    assert paths.name(f"{tmp_path}/other") == "<folder>/other"
    assert paths.name(f"{tmp_path}/real/x") == "<link>/x"
    assert paths.name(f"{tmp_path}-more /rooted") == f"{tmp_path}-more /rooted"


def test_a_report_keeps_both_ends_of_a_long_line_and_of_many_lines():
    short = shorten("begin" + "x" * 30_000 + "end\nValueError: wrong\n")
    assert short.startswith("begin")
    assert short.endswith("end\nValueError: wrong\n")
    assert len(short) < 1000
    many = shorten("".join(f"line {n}\n" for n in range(1000))).splitlines()
    assert (many[0], many[60], many[-1], len(many)) == ("line 0", "… 880 lines …", "line 999", 121)


def test_the_filters_for_conf_py():
    assert mask_addresses("<object object at 0x7f63bb10c5e0>") == "<object object at 0x…>"
    assert mask_addresses("at 0x10") == "at 0x10"
    assert name_paths(f"{pytest.__path__[0]}/x.py") == "<packages>/pytest/x.py"
    assert name_paths(f"{Path.home()}/x") == "~/x"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ModuleNotFoundError("No module named 'x'"), "Install the package"),
        (RuntimeError("CUDA error: an illegal memory access"), "CUDA_LAUNCH_BLOCKING=1"),
        (type("OutOfMemoryError", (Exception,), {})("CUDA out of memory"), "sphinx_gallery_needs"),
        (ValueError("x"), "Correct the example"),
    ],
)
def test_frequent_errors_have_a_remedy(error, remedy):
    current = SimpleNamespace(line=1)
    script = SimpleNamespace(path=Path("a.py"), code=[current])
    assert remedy in failure_of(error, script, current, [b"", b""], str).remedy
