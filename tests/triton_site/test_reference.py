"""Entries of the API reference in a project of their own: no Triton, no gallery."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.forked import sphinx
from triton_site.kernels import api
from triton_site.kernels.api import Api, Entry, Member, Overload

OLD = Api(
    "3.8.0",
    (
        Entry("triton.language.load", "function", "t.core", "kernel", "(pointer)", "Loads."),
        Entry("triton.language.gone", "function", "t.core", "kernel", "()", "Was here."),
    ),
)
NEW = Api(
    "3.9.0",
    (
        Entry(
            "triton.language.load",
            "function",
            "triton.language.core",
            "kernel",
            "(pointer, mask=None, size: constexpr = 1)",
            "Loads from `pointer`.\n\n:param pointer: where\n:type pointer: Block",
            method=True,
        ),
        Entry("triton.language.math.load", "function", same_as="triton.language.load"),
        Entry("triton.language.silent", "function", "triton.language.core", "both", "(x)"),
        Entry("triton.language.constexpr", "class", doc="A constant.", signature="(value)"),
        Entry(
            "triton.language.tensor",
            "class",
            doc="A block.",
            members=(Member("load", "method", "()"), Member("T", "property", doc="Turned.")),
        ),
        Entry(
            "triton.language.sin",
            "function",
            doc="Sine.",
            overloads=(Overload("cuda", "fp32", "fp32", "s"),),
        ),
    ),
)
PAGE = """
Page
====

.. py:module:: triton.language

.. api-versions::

.. api-index::

Section
-------

"""
ALL = ".. api:: load\n.. api:: gone\n.. api:: constexpr\n.. api:: tensor\n.. api:: sin\n"


def build(root: Path, entries: str) -> subprocess.CompletedProcess[str]:
    root.mkdir(parents=True)
    api.save([OLD, NEW], root / "api.json")
    (root / "conf.py").write_text(
        'extensions = ["triton_site.kernels.reference"]\n'
        'triton_api = "api.json"\nnitpicky = True\nhtml_theme = "basic"\n'
    )
    (root / "index.rst").write_text(PAGE + entries)
    return render(root)


def render(root: Path) -> subprocess.CompletedProcess[str]:
    return sphinx(root, "-q", "-W", "--keep-going", "-b", "html", ".", "html")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    root = tmp_path_factory.mktemp("reference") / "project"
    result = build(root, ALL)
    assert result.returncode == 0, result.stderr
    html = (root / "html" / "index.html").read_text()
    return " ".join(re.sub(r"<[^>]+>", "", html[html.index("<h1>") :]).split())


def test_an_entry_says_what_is_known(text):
    for part in (
        "Read from Triton 3.9.0, and compared with 3.8.0.",
        "Section: load gone constexpr tensor T sin".replace(" T ", " "),
        "Call it in kernels; also a method, x.load(…); also triton.language.math.load",
        "read from triton.language.core, Triton 3.9.0.",
        "Loads from pointer .".replace(" .", "."),
        "pointer (tensor) – where",
        "Changed in version 3.9: Before, the parameters were (pointer).",
        "Removed in version 3.9",
        "Functions that are also methods: load.",
        "NVIDIA: fp32 → fp32",
    ):
        assert part in text


def test_words_of_ours_stand_in_for_a_docstring(tmp_path):
    result = build(tmp_path / "p", ALL + ".. api:: silent\n\n   Says nothing.\n")
    assert result.returncode == 0, result.stderr
    html = (tmp_path / "p" / "html" / "index.html").read_text()
    assert "In our words; Triton has no docstring here." in html


def test_a_name_without_any_words_is_a_warning(tmp_path):
    result = build(tmp_path / "p", ALL + ".. api:: silent\n")
    assert result.returncode != 0
    assert "triton.language.silent has no docstring; say in the directive" in result.stderr


def test_an_unknown_name_is_an_error(tmp_path):
    result = build(tmp_path / "p", ALL + ".. api:: lode\n")
    assert result.returncode != 0
    assert "has the name triton.language.lode" in result.stderr
    assert "make api" in result.stderr


def test_a_damaged_file_stops_the_build(tmp_path):
    build(tmp_path / "p", ALL)
    path = tmp_path / "p" / "api.json"
    path.write_text(path.read_text()[:100])
    result = render(tmp_path / "p")
    assert result.returncode != 0
    assert "is not whole JSON" in result.stderr


def test_a_new_version_renders_its_pages_again(tmp_path):
    build(tmp_path / "p", ALL)
    api.save([OLD, NEW, Api("3.10.0", NEW.entries)], tmp_path / "p" / "api.json")
    assert render(tmp_path / "p").returncode == 0
    assert "Read from Triton 3.10.0" in (tmp_path / "p" / "html" / "index.html").read_text()
