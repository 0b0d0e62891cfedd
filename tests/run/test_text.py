"""What is kept of printed text."""

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from gallery_recorder.run.failure import failure_of
from gallery_recorder.run.text import (
    Paths,
    clean,
    mask_addresses,
    name_of,
    name_paths,
    said_by,
    shorten,
)


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        (b"", ""),
        (b"\n\n", ""),
        (b"a\n", "a\n"),
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
        ("c1 \x85 µ ≥ →\n".encode(), "c1 \\x85 µ ≥ →\n"),
        (b"at 0x12 stays\n", "at 0x12 stays\n"),
        ("text\ud800\n", "text\\ud800\n"),
        ("a\u202eb\u2066c\u200fd\n", "a\\u202eb\\u2066c\\u200fd\n"),
        ("one\u2028line\ufeff\n", "one\\u2028line\\ufeff\n"),
        ("tag\U000e0041\n", "tag\\U000e0041\n"),
        ("family 👩‍👩‍👧 and Ελλάδα שלום\n", "family 👩‍👩‍👧 and Ελλάδα שלום\n"),
    ],
)
def test_clean(printed, kept):
    assert clean(printed) == kept
    assert clean(kept) == kept


def test_paths_are_named_and_longer_ones_first(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    paths = Paths(
        {
            tmp_path: "<folder>",
            tmp_path / "inner": ".",
            link: "<link>",
            Path("/root"): "~",
            Path("/"): "never",
        }
    )
    assert paths.name(f"{tmp_path}/inner/a.py:3") == "./a.py:3"
    assert paths.name(f"{tmp_path}/other") == "<folder>/other"
    assert paths.name(f"{tmp_path}/real/x") == "<link>/x"
    assert (
        paths.name(f"{tmp_path}-more /rooted /root, x/root") == f"{tmp_path}-more /rooted ~, x/root"
    )


def test_a_progress_bar_of_a_million_characters_takes_no_time():
    """Each carriage return once copied the whole line: a megabyte took minutes."""
    line = "x" * 400_000 + "\ra" * 300_000
    assert clean(line) == "a" + "x" * 399_999 + "\n"


def test_a_report_keeps_both_ends_of_a_long_line_and_of_many_lines():
    text = "begin" + "x" * 30_000 + "end\nValueError: wrong\n"
    short = shorten(text)
    assert short.startswith("begin")
    assert short.endswith("end\nValueError: wrong\n")
    assert "characters" in short
    assert len(short) < 1000
    many = shorten("".join(f"line {n}\n" for n in range(1000)))
    assert many.startswith("line 0\n")
    assert many.endswith("line 999\n")
    assert "… 880 lines …" in many
    assert len(many.splitlines()) == 121
    assert shorten("a\nb") == "a\nb\n"


def test_what_cannot_be_said_is_told():
    class OddError(Exception):
        def __str__(self):
            raise SystemExit(3)

        def __repr__(self):
            raise KeyboardInterrupt

    class Hidden(type):
        __name__ = property(lambda self: 1 / 0)

    class NamelessError(Exception, metaclass=Hidden):
        pass

    assert said_by(OddError()) == "<str() of it raised SystemExit>"
    assert said_by(OddError(), repr) == "<repr() of it raised KeyboardInterrupt>"
    assert said_by(7) == "7"
    assert name_of(NamelessError()) == "NamelessError"


def test_filters():
    assert mask_addresses("<object object at 0x7f63bb10c5e0>") == "<object object at 0x…>"
    assert mask_addresses("at 0x10") == "at 0x10"
    assert name_paths(f"{pytest.__path__[0]}/x.py") == "<packages>/pytest/x.py"
    assert name_paths(f"{Path.home()}/x") == "~/x"


#: What libraries make of a name that the network does not know.
CAUSED = OSError("no connection")
CAUSED.__cause__ = socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ModuleNotFoundError("No module named 'x'"), "Install it where scripts are executed"),
        (FileNotFoundError(2, "No such file", "x.csv"), "not what another script writes"),
        (CAUSED, "record it where there is a network"),
        (ValueError("x"), "Correct the script"),
    ],
)
def test_what_a_new_project_meets_first_has_a_remedy(error, remedy):
    current = SimpleNamespace(line=1)
    script = SimpleNamespace(path=Path("a.py"), code=[current])
    assert remedy in failure_of(error, script, current, [], str).remedy


def test_a_status_that_is_a_long_text_is_shortened():
    """Else it would be too long for what a process tells, and be taken for forged."""
    script = SimpleNamespace(path=Path("a.py"), code=[])
    told = failure_of(SystemExit("x" * 2_000_000), script, None, [], str)
    assert told.cause.startswith("ended itself with sys.exit('xxx")
    assert len(told.cause) < 1_000
