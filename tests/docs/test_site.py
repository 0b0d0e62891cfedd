"""The built site as a reader gets it: addresses, links, downloads, weight, nothing foreign."""

from __future__ import annotations

import ast
import csv
import gzip
import itertools
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup, Tag

from gallery_recorder.publish import versions
from gallery_recorder.publish.front import FRAME
from gallery_recorder.publish.inspection import inspect
from tests.galleries import CONF, FILES, PAGES
from triton_site.pages import bundle

ROOT = Path(__file__).resolve().parents[2]
GALLERY = "getting-started/tutorials"

#: Addresses that readers have links to; they never change.
KEPT = [
    "index.html",
    "getting-started/installation.html",
    f"{GALLERY}/index.html",
    f"{GALLERY}/01-vector-add.html",
    f"{GALLERY}/02-fused-softmax.html",
    f"{GALLERY}/03-matrix-multiplication.html",
    f"{GALLERY}/04-low-memory-dropout.html",
    "python-api/triton.html",
    "python-api/triton.language.html",
    "python-api/triton.testing.html",
    "programming-guide/chapter-1/introduction.html",
    "programming-guide/chapter-2/related-work.html",
    "programming-guide/chapter-3/debugging.html",
    "programming-guide/chapter-4/measuring.html",
    "programming-guide/chapter-5/profiling.html",
    "contributing.html",
    "recordings.html",
    "search.html",
    "genindex.html",
]

#: What a browser loads by itself, by element; a plain link loads nothing.
LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
    "embed": "src",
}
#: Bytes of a first visit, compressed, without pictures.
FIRST_LOAD = 200_000

every_script = pytest.mark.parametrize("name", FILES)


def pages(site: Path) -> list[Path]:
    found = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    assert found
    return found


@cache
def parsed(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(element["id"] for element in parsed(page).find_all(id=True))


def loaded(page: Path) -> Iterator[tuple[Tag, str]]:
    """The elements of a page that make a browser load something, and what."""
    for name, attribute in LOADED.items():
        for element in parsed(page).find_all(name):
            rel = element.get("rel") or []
            fetched = name != "link" or {"stylesheet", "icon", "preload", "search"} & set(rel)
            if element.get(attribute) and fetched:
                yield element, element[attribute]


def target(page: Path, address: str) -> Path:
    path = unquote(urlsplit(address).path)
    found = (page.parent / path).resolve() if path else page
    return found / "index.html" if found.is_dir() else found


@pytest.mark.parametrize("address", KEPT)
def test_address_is_kept(site: Path, address: str) -> None:
    assert (site / address).is_file()


@every_script
def test_each_script_has_a_page_in_the_menu(site: Path, name: str) -> None:
    """Of its own page, all of it is open: the page is there, and marked."""
    page = site / f"{PAGES[name]}.html"
    current = parsed(page).select(".wy-menu a.current")
    assert page.resolve() in {target(page, link["href"]) for link in current}


def test_all_pages_and_outputs_are_there_and_links_lead_somewhere(site: Path) -> None:
    (version,) = versions.read(site / versions.FILE_NAME).all
    inspect(site, version.name)


def test_links_to_other_sites_are_encrypted(site: Path) -> None:
    plain = {
        link["href"]
        for page in pages(site)
        for link in parsed(page).find_all("a", href=True)
        if urlsplit(link["href"]).scheme not in ("", "https", "mailto")
    }
    assert not plain


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    foreign = [
        f"{page.relative_to(site)}: {element}"
        for page in pages(site)
        for element, address in loaded(page)
        if urlsplit(address).netloc or urlsplit(address).scheme not in ("", "data")
    ]
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        for address in re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", text):
            parts = urlsplit("".join(address))
            if parts.netloc or parts.scheme not in ("", "data"):
                foreign.append(f"{sheet.relative_to(site)}: {''.join(address)}")
    loads = re.compile(
        r"""(?:fetch|import|importScripts|open|\.load|\.getScript|src\s*=)\s*\(?\s*"""
        r"""["'`](?:https?:)?//[^"'`]+"""
    )
    inline = [
        (page, script.get_text())
        for page in pages(site)
        for script in parsed(page).find_all("script", src=False)
    ]
    scripts = {target(p, a) for p in pages(site) for tag, a in loaded(p) if tag.name == "script"}
    files = [(path, path.read_text(encoding="utf-8")) for path in sorted(scripts)]
    for path, text in itertools.chain(inline, files):
        foreign += [f"{path.relative_to(site)}: {found}" for found in loads.findall(text)]
    assert not foreign, "\n".join(foreign)


def test_local_styles_name_files_that_exist(site: Path) -> None:
    missing = []
    for sheet in (site / "_static").glob("*.css"):
        for address in re.findall(r"url\(\s*['\"]?([^'\")]+)", sheet.read_text(encoding="utf-8")):
            if not address.startswith("data:") and not target(sheet, address).is_file():
                missing.append(f"{sheet.name}: {address}")
    assert not missing


def test_each_page_has_a_title_and_a_language(site: Path) -> None:
    titles: dict[str, Path] = {}
    for page in pages(site):
        soup = parsed(page)
        title = soup.title.get_text(strip=True) if soup.title else ""
        assert title, page
        assert title not in titles, f"{page} and {titles.get(title)} are both called {title!r}"
        titles[title] = page
        assert soup.html["lang"] == "en"
        if page.name not in ("search.html", FRAME):  # which a script fills, and the publisher
            assert len(soup.find_all("h1")) == 1, page


def test_images_have_text_and_links_have_names(site: Path) -> None:
    for page in pages(site):
        for image in parsed(page).find_all("img"):
            assert image.has_attr("alt"), f"{page}: {image}"
            if "sphx-glr-single-img" in image.get("class", []):
                assert image["alt"].strip(), f"{page}: {image}"
        for link in parsed(page).find_all("a", href=True):
            images = " ".join(image.get("alt", "") for image in link.find_all("img"))
            name = (
                link.get_text(strip=True) or images or link.get("aria-label") or link.get("title")
            )
            assert name, f"{page}: {link}"


def test_edit_links_lead_to_sources(site: Path) -> None:
    for page in pages(site):
        links = parsed(page).select(".wy-breadcrumbs-aside a")
        for link in links:
            if link.get_text() == "Edit this page":
                assert (ROOT / link["href"].split("/edit/main/")[1]).is_file(), page
    (edit,) = (
        link["href"]
        for link in parsed(site / GALLERY / "01-vector-add.html").select(".wy-breadcrumbs-aside a")
        if link.get_text() == "Edit this page"
    )
    assert edit.endswith("/edit/main/tutorials/01-vector-add.py")


@every_script
def test_colab_opens_the_published_notebook(site: Path, name: str) -> None:
    soup = parsed(site / f"{PAGES[name]}.html")
    links = {a.get_text(): a["href"] for a in soup.select(".wy-breadcrumbs-aside a")}
    assert links["Download"].removeprefix("#") in anchors(site / f"{PAGES[name]}.html")
    colab = links["Open in Colab"]
    path = colab.split("/blob/gh-pages/")[1].split("/", 1)[1]  # without the version
    assert (site / path).is_file()


@every_script
def test_page_says_where_its_outputs_come_from(site: Path, name: str) -> None:
    soup = parsed(site / f"{PAGES[name]}.html")
    line = soup.h1.find_next_sibling()
    assert "gallery-provenance" in line["class"]
    assert "Triton" in line.get_text()
    record, _, place = line.a["href"].partition("#")
    assert re.search(r"(^|/)recordings-[^/]+\.html$", record)
    assert place in anchors(target(site / f"{PAGES[name]}.html", record))
    interpreted = "interpreter" in line.get_text().lower()
    assert bool(soup.select(".gallery-banner")) == interpreted


@every_script
def test_page_shows_all_of_the_code(site: Path, name: str) -> None:
    shown = [pre.get_text() for pre in parsed(site / f"{PAGES[name]}.html").find_all("pre")]
    for code in FILES[name].load().code:
        lines = [
            line
            for line in code.block.content.strip().splitlines()
            if not line.startswith("# sphinx_gallery_")
        ]
        assert any("\n".join(lines).strip() in text for text in shown), lines[0]


@every_script
def test_downloads_open(site: Path, name: str) -> None:
    page = site / f"{PAGES[name]}.html"
    links = [target(page, a["href"]) for a in parsed(page).select("a.download")]
    by_kind: dict[str, list[Path]] = {}
    for path in links:
        by_kind.setdefault(path.suffix, []).append(path)

    (script,) = by_kind[".py"]
    ast.parse(script.read_text(encoding="utf-8"))
    original = FILES[name].path
    assert script.read_text(encoding="utf-8") == original.read_text(encoding="utf-8")

    (notebook,) = by_kind[".ipynb"]
    cells = nbformat.read(notebook, as_version=4)
    nbformat.validate(cells)
    assert any(cell.get("outputs") for cell in cells.cells), "the notebook has no outputs"

    for path in by_kind[".zip"]:
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert f"{original.name}" in {Path(name).name for name in archive.namelist()}

    for path in by_kind.get(".csv", []):
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        assert rows, path
        assert all(len(row) == len(header) for row in rows), path


@pytest.mark.usefixtures("site", "only_builder")
@pytest.mark.stress  # it reads all documents again; links within the site have a test of their own
def test_linkcheck_passes_what_is_not_of_other_hosts(tmp_path: Path) -> None:
    """`make linkcheck` with other hosts left out: their state is no matter of this test."""
    ignored = ["https?://.*", *CONF["linkcheck_ignore"]]
    command = [sys.executable, "-m", "sphinx", "-b", "linkcheck", "-c", str(ROOT), "-q"]
    command += ["-D", f"linkcheck_ignore={','.join(ignored)}", "-d", str(tmp_path / "doctrees")]
    shutil.copytree(ROOT / "build" / "doctrees", tmp_path / "doctrees")
    subprocess.run([*command, str(ROOT / "docs"), str(tmp_path / "out")], check=False)
    lines = (tmp_path / "out" / "output.json").read_text(encoding="utf-8").splitlines()
    links = [json.loads(line) for line in lines]
    assert len(links) > 50
    assert not [link["uri"] for link in links if link["status"] == "broken"]


def test_formulas_need_no_script(site: Path) -> None:
    written = [page for page in pages(site) if parsed(page).select("math")]
    assert written, "no page has a formula"
    for page in pages(site):
        for script in parsed(page).select("script"):
            assert "mathjax" not in str(script).lower(), page


@every_script
def test_search_knows_the_tutorial(site: Path, name: str) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert f'"{PAGES[name]}"' in index


def test_pages_are_light(site: Path) -> None:
    """What the first visit loads, compressed as hosts do: page, styles, scripts, two fonts.

    Pictures are left out: figures are loaded when the reader comes near them. The search page comes
    after another one.
    """
    icons, letters = (site / "_static" / f"gallery-{name}.woff2" for name in ("icons", "math"))
    sizes: dict[Path, int] = {}
    heavy = []
    for page in pages(site):
        files = {
            target(page, address)
            for element, address in loaded(page)
            if "search" not in (element.get("rel") or [])
        }
        files = {path for path in files if path.suffix in (".js", ".css")} | {page}
        for path in files - sizes.keys():
            sizes[path] = len(gzip.compress(path.read_bytes(), 6))
        whole = sum(sizes[path] for path in files) + icons.stat().st_size
        whole += letters.stat().st_size if parsed(page).find("math") else 0
        if whole > FIRST_LOAD and page.name != "search.html":
            heavy.append(f"{page.relative_to(site)}: {whole:,} bytes")
    assert not heavy, "\n".join(heavy)


def test_no_page_needs_a_style_that_is_left_out(site: Path) -> None:
    """:data:`triton_site.pages.bundle.UNUSED_STYLES` is right: no page needs them."""
    needed = set()
    for page in pages(site):
        text = page.read_text(encoding="utf-8")
        classes = set(itertools.chain(*map(str.split, re.findall(r'class="([^"]*)"', text))))
        used = {f".{name}" for name in classes} | ({"tt"} if "<tt" in text else set())
        needed |= {name for name in used if bundle.UNUSED_STYLES.match(name)}
    assert not needed


def test_text_stands_out_from_its_ground() -> None:
    """Light and dark: text at least 4.5:1, lines of charts 3:1 (WCAG 2.2, level AA)."""
    sheet = (ROOT / "docs" / "_static" / "custom.css").read_text(encoding="utf-8")
    one = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", sheet))
    two = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", sheet)
    light = one | {name: color for name, color, _ in two}
    dark = one | {name: color for name, _, color in two}
    text = ("text", "muted", "link", "visited")
    code = ("keyword", "string", "comment", "number", "name", "decorator", "builtin")
    boxes = ("note", "tip", "warn", "danger")
    pairs = [
        *itertools.product(text, ("ground",)),
        *itertools.product(("out", "err"), ("ground",)),
        *itertools.product((*code, "text", "muted"), ("raised", "ground")),
        *itertools.product(("text", "link"), boxes),
        *itertools.product(("side-text", "side-muted"), ("side", "side-raised", "brand")),
    ]
    lines = itertools.product(("chart-0", "chart-1", "chart-2", "chart-3"), ("ground",))
    limits = [*((pair, 4.5) for pair in pairs), *((pair, 3.0) for pair in lines)]
    for scheme, colours in (("light", light), ("dark", dark)):
        for (front, ground), limit in limits:
            ratio = contrast(colours[front], colours[ground])
            assert ratio >= limit, f"{scheme}: {front} on {ground} is {ratio:.2f}:1"


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
