"""The Makefile's values are data: neither make nor the shell executes them."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EVIL = ["$(shell touch {made})", "`touch {made}`", "$$(touch {made})", '"; touch {made}; "']

WRITES_DOWN = """#!/usr/bin/env python3
import json, sys
with open("{calls}", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + chr(10))
"""


@pytest.fixture
def make(tmp_path):
    """Call make with a Python that only writes down its arguments; return those of each call."""
    calls = tmp_path / "calls"
    python = tmp_path / "python"
    python.write_text(WRITES_DOWN.format(calls=calls))
    python.chmod(0o755)

    def called(*words):
        calls.unlink(missing_ok=True)
        command = ["make", "--no-print-directory", f"PYTHON={python}", *words]
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return (
            [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
        )

    return called


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("compare", "OLD"),
        ("compare", "NEW"),
        ("record", "T"),
        ("record", "DEVICE"),
        ("record", "FORCE"),
        ("missing", "DEVICE"),
        ("serve", "PORT"),
        ("publish", "SITE"),
        ("publish", "VERSION"),
        ("publish", "OVERWRITE"),
        ("unpublish", "YES"),
        ("new", "T"),
    ],
)
def test_no_value_is_executed(make, tmp_path, verb, name, evil):
    value = evil.format(made=tmp_path / "made")
    assert make(verb, "OLD=old", "SITE=site", "VERSION=v1", f"{name}={value}")
    assert not (tmp_path / "made").exists()


def test_a_value_reaches_the_command_as_it_is_and_is_no_option(make):
    *_, called = make("record", "T=-D a=b *", "DEVICE=c d")
    assert called[2:] == ["record", "--device", "c d", "--", "-D", "a=b", "*"]
    called = make("compare", "OLD=--help", "NEW=$(HOME)")[0]
    assert called[2:] == ["compare", "--", "--help", "$(HOME)"]
    *_, called = make("publish", "SITE=--help", "VERSION=--yes")
    assert called[2:] == ["publish", "--version=--yes", "--", "build/html", "--help"]
