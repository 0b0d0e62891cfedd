"""Entries of the API reference in a project of their own: no Triton, no gallery."""

import re
from pathlib import Path

import pytest

from gallery_recorder.testing.processes import sphinx
from triton_site.kernels import api
from triton_site.kernels.api import Entry, Member, Overload

T = "triton.language."
OLD = (
    Entry(f"{T}load", "function", "t.core", "kernel", "(pointer)", "Loads."),
    Entry(f"{T}gone", "function", "t.core", "kernel", "()", "Was here."),
)
DOC = "Loads from `pointer`.\n\n:param pointer: where\n:type pointer: Block"
SIGNATURE = "(pointer, mask=None, size: constexpr = 1)"
MEMBERS = (Member("load", "method", "()"), Member("T", "property", doc="Turned."))
NEW = (
    Entry(f"{T}load", "function", f"{T}core", "kernel", SIGNATURE, DOC, method=True),
    Entry(f"{T}math.load", "function", same_as=f"{T}load"),
    Entry(f"{T}silent", "function", f"{T}core", "both", "(x)"),
    Entry(f"{T}constexpr", "class", doc="A constant.", signature="(value)"),
    Entry(f"{T}tensor", "class", doc="A block.", members=MEMBERS),
    Entry(f"{T}sin", "function", doc="Sine.", overloads=(Overload("cuda", "fp32", "fp32"),)),
)
PAGE = f"""
Page
====

.. py:module:: {T[:-1]}

.. api-index::

Section
-------

.. api:: load
.. api:: gone
.. api:: constexpr
.. api:: tensor
.. api:: sin

"""


def build(root: Path, entries: str = ""):
    if not root.exists():
        root.mkdir()
        (root / "conf.py").write_text(
            'extensions = ["triton_site.kernels.reference"]\n'
            'triton_api = "api.json"\nnitpicky = True\nhtml_theme = "basic"\n'
        )
        (root / "index.rst").write_text(PAGE + entries)
        api.save({"3.6.0": OLD, "3.9.0": NEW}, root / "api.json")
    return sphinx(root, "-q", "-W", "--keep-going", "-b", "html", ".", "html")


def text_of(root: Path) -> str:
    html = (root / "html" / "index.html").read_text()
    return " ".join(re.sub(r"<[^>]+>", "", html[html.index("<h1>") :]).split())


def test_an_entry_shows_signature_docstring_changes_and_other_names(tmp_path):
    root = tmp_path / "project"
    result = build(root, ".. api:: silent\n\n   Says nothing.\n")
    assert result.returncode == 0, result.stderr
    text = text_of(root)
    for part in (
        "Section: load gone constexpr tensor sin silent",
        "Call it in kernels; also a method, x.load(…); also triton.language.math.load",
        "read from triton.language.core, Triton 3.9.0.",
        "Loads from pointer.",
        "pointer (tensor) – where",
        "Changed in version 3.9: Before, the parameters were (pointer).",
        "Removed in version 3.9",
        "Added in version 3.9",
        "Functions that are also methods: load.",
        "NVIDIA : fp32 → fp32",
        "In our words; Triton has no docstring here.",
    ):
        assert part.replace(" :", ":") in text
    api.save({"3.9.0": NEW, "3.10.0": (*NEW, *OLD[1:])}, root / "api.json")
    assert build(root).returncode == 0
    assert "core, Triton 3.10.0." in text_of(root), "a new release renders the page again"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (".. api:: silent\n", "triton.language.silent has no docstring; describe it"),
        (".. api:: lode\n", "has the name triton.language.lode"),
    ],
)
def test_a_name_without_words_or_without_an_entry_fails_the_build(tmp_path, entries, message):
    result = build(tmp_path / "project", entries)
    assert result.returncode != 0
    assert message in result.stderr
