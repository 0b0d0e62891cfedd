"""The built site as a reader gets it: addresses, links, downloads."""

import ast
import csv
import re
import zipfile
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import lxml.html
import nbformat
import pytest

from gallery_recorder import api
from tests.galleries import FILES, PAGES

ROOT = Path(__file__).resolve().parents[2]

#: Addresses that readers have links to; they never change.
KEPT = {
    "": ("index", "contributing", "recordings", "search", "genindex"),
    "getting-started/": ("installation", "tutorials/index"),
    "getting-started/tutorials/0": (
        *("1-vector-add", "2-fused-softmax", "3-matrix-multiplication", "4-low-memory-dropout"),
        *("5-layer-norm", "6-fused-attention", "7-math-functions", "8-grouped-gemm"),
    ),
    "getting-started/tutorials/": ("09-fp8-matmul", "10-cross-entropy"),
    "python-api/": ("triton", "triton.language", "triton.testing"),
    "programming-guide/chapter-": ("1/introduction", "2/related-work", "3/debugging"),
    "programming-guide/": ("chapter-4/measuring", "chapter-5/profiling"),
}

every_script = pytest.mark.parametrize("name", FILES)


def pages(site: Path) -> list[Path]:
    found = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    assert found
    return found


@cache
def parsed(page: Path) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(page.read_bytes())


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(parsed(page).xpath("//@id"))


def links(page: Path, within: str = "") -> dict[str, str]:
    """The addresses of the links in elements of the class *within*, by the links' text."""
    part = f"//*[contains(@class, '{within}')]" if within else ""
    return {link.text_content(): link.get("href") for link in parsed(page).xpath(f"{part}//a")}


def target(page: Path, address: str) -> Path:
    path = unquote(urlsplit(address).path)
    found = (page.parent / path).resolve() if path else page
    return found / "index.html" if found.is_dir() else found


def test_addresses_are_kept(site: Path) -> None:
    kept = [f"{folder}{name}.html" for folder, names in KEPT.items() for name in names]
    assert [name for name in kept if not (site / name).is_file()] == []


def test_links_lead_to_files_and_places_of_the_site(site: Path) -> None:
    broken = []
    for page in pages(site):
        for address in parsed(page).xpath("//a/@href"):
            parts = urlsplit(address)
            if parts.scheme == "http":
                broken.append(f"{page.relative_to(site)}: not encrypted: {address}")
            if parts.scheme or parts.netloc:
                continue
            file, place = target(page, address), unquote(parts.fragment)
            if not file.is_relative_to(site) or not file.is_file():
                broken.append(f"{page.relative_to(site)}: {address}")
            elif place and file.suffix == ".html" and place not in anchors(file):
                broken.append(f"{page.relative_to(site)}: no such place: {address}")
    assert not broken, "\n".join(broken)


def test_the_one_module_of_the_engine_that_others_may_import_is_documented() -> None:
    """Nothing that it offers is unused here, too: an offer is a promise."""
    text = (ROOT / "packages/gallery-recorder/docs/engine.rst").read_text(encoding="utf-8")
    offered = {*api.__all__}
    assert {
        name for name in offered if re.search(rf"(``{name}``|\.{name}(\(\))?\n)", text)
    } == offered
    folders = (ROOT / "triton_site", ROOT / "benchmarks")
    trees = [ast.parse(path.read_bytes()) for f in folders for path in f.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    used = {a.name for n in nodes if n.module == "gallery_recorder.api" for a in n.names}
    assert used <= offered
    assert offered - used <= {"Provenance"}  # the type of a field of Recording


def test_edit_links_lead_to_sources(site: Path) -> None:
    for page in pages(site):
        if address := links(page, "gallery-line").get("Edit"):
            assert (ROOT / address.split("/edit/main/")[1]).is_file(), page
    first = links(site / "getting-started/tutorials/01-vector-add.html", "gallery-line")
    assert first["Edit"].endswith("/edit/main/tutorials/01-vector-add.py")
    engine = links(site / "engine.html", "gallery-line")
    assert engine["Edit"].endswith("/edit/main/packages/gallery-recorder/docs/engine.rst")


@every_script
def test_page_says_where_its_outputs_come_from_and_colab_opens_its_notebook(
    site: Path, name: str
) -> None:
    page = site / f"{PAGES[name]}.html"
    provenance = links(page, "gallery-provenance")
    (line,) = parsed(page).xpath("(//*[@class='gallery-provenance'])[1]")
    assert "Triton" in line.text_content()
    record = next(address for address in provenance.values() if "recordings-" in address)
    assert urlsplit(record).fragment in anchors(target(page, record))
    notebook = links(page, "gallery-line")["Colab"]
    path = notebook.split("/blob/gh-pages/")[1].split("/", 1)[1]
    assert (site / path).is_file()


def test_every_tutorial_has_a_card_on_the_front_page_and_a_place_in_every_menu(site: Path) -> None:
    tutorials = [page for page in PAGES.values() if re.search(r"tutorials/\d", page)]
    assert tutorials
    cards = links(site / "index.html", "gallery-row").values()
    (texts,) = parsed(site / "index.html").xpath("//*[@itemprop='articleBody']")
    assert not re.search(r"\b\d\d\w?-[a-z]+-", texts.text_content()), "pages have titles"
    menu = links(site / "glossary.html", "wy-menu").values()
    for page in tutorials:
        assert f"{page}.html" in cards, page
        assert f"{page}.html" in menu, page


@every_script
def test_references_are_no_numbered_list(site: Path, name: str) -> None:
    """``D. Author`` at the start of one would become a number."""
    assert not parsed(site / f"{PAGES[name]}.html").xpath("//*[@id='references']//ol")


@every_script
def test_page_shows_all_of_the_code(site: Path, name: str) -> None:
    shown = [pre.text_content() for pre in parsed(site / f"{PAGES[name]}.html").iter("pre")]
    for code in FILES[name].load().code:
        lines = code.block.content.strip().splitlines()
        lines = [line for line in lines if not line.startswith("# sphinx_gallery_")]
        lines = [line.removesuffix("  # <-") for line in lines]  # highlighted instead
        assert any("\n".join(lines).strip() in text for text in shown), lines[0]


def code(script: Path) -> str:
    """The syntax of a script, without its docstring."""
    return ast.dump(ast.Module(ast.parse(script.read_text(encoding="utf-8")).body[1:], []))


@every_script
def test_downloads_open(site: Path, name: str) -> None:
    page = site / f"{PAGES[name]}.html"
    by_kind: dict[str, list[Path]] = {}
    for address in parsed(page).xpath("//a[contains(@class, 'download')]/@href"):
        path = target(page, address)
        by_kind.setdefault(path.suffix, []).append(path)

    (script,) = by_kind[".py"]
    assert code(script) == code(FILES[name].path), "numbers and titles stand in its text alone"
    (notebook,) = by_kind[".ipynb"]
    cells = nbformat.read(notebook, as_version=4)
    assert any(cell.get("outputs") for cell in cells.cells), "the notebook has no outputs"
    for path in by_kind[".zip"]:
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert FILES[name].path.name in {Path(name).name for name in archive.namelist()}
    for path in by_kind.get(".csv", []):
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        assert rows, path
        assert all(len(row) == len(header) for row in rows), path
