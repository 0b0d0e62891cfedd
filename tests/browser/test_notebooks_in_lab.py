"""Notebooks opened in JupyterLab: prose, tables and formulas rendered, folds folded, outputs shown.

Needs ``jupyterlab``, of a group of its own, which ``make test-stress`` installs, and a browser.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import nbformat
import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page

from tests.browser.conftest import PATIENCE, reader
from tests.fixtures.waiting import wait_for

pytestmark = [
    pytest.mark.stress,  # JupyterLab alone takes longer to begin than most other tests
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterlab") is None,
        reason="jupyterlab is not installed: pip install --group notebooks",
    ),
]

GALLERY = "getting-started/tutorials"
#: One with a picture by hand, with formulas in two columns, with a table of shapes, the longest.
NAMES = ("01-vector-add", "02-fused-softmax", "03-matrix-multiplication", "06-fused-attention")
#: Markup that was not taken for such, in the text that a reader sees: of both languages.
RAW = re.compile(
    r":(?:doc|ref|math|term|py:\w+):|^\s*\.\. |`|\]\(http|^#+ |\*\*|\$[^$\n]+\$|^\|.*\|$", re.M
)
#: Where JupyterLab and its kernels keep something for the next time.
OWN = ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")

#: All cells in the document, and not just those near the window.
SETTINGS = "@jupyterlab/notebook-extension/tracker.jupyterlab-settings"

SEEN = """() => [...document.querySelectorAll(".jp-Notebook .jp-Cell")].map((cell) => {
    const read = ".jp-RenderedMarkdown";
    const prose = cell.querySelector(".jp-RenderedMarkdown");
    const text = prose?.cloneNode(true);
    for (const part of text?.querySelectorAll("code, pre, mjx-container") ?? []) part.remove();
    const all = (selector, map) => [...cell.querySelectorAll(selector)].map(map);
    return {
        code: cell.classList.contains("jp-CodeCell"),
        folded: !!cell.querySelector(".jp-InputPlaceholder"),
        edited: !!cell.querySelector(".jp-InputArea-editor .cm-content"),
        text: text?.innerText ?? "",
        headings: all("h1, h2, h3", (heading) => heading.tagName),
        links: all(`${read} a:not(.jp-InternalAnchorLink)`, (a) => a.getAttribute("href")),
        tables: all(`${read} table`, (table) => table.rows.length),
        items: all(`${read} li`, (item) => item.innerText),
        formulas: all(`${read} mjx-container`, (math) => math.offsetWidth),
        errors: all("mjx-merror, [data-mml-node=merror]", (error) => error.innerText),
        outputs: all(".jp-OutputArea-output", (output) => output.offsetHeight),
        pictures: all(".jp-OutputArea-output :is(img, svg)", (picture) => picture.clientHeight),
    };
})"""


@pytest.fixture(scope="module")
def lab(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab in a folder with the notebooks that the pages lead to."""
    folder = tmp_path_factory.mktemp("lab")
    for name in NAMES:
        (folder / f"{name}.ipynb").write_bytes(site_notebook(site, name).read_bytes())
    settings = folder / "settings" / SETTINGS
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"windowingMode": "none"}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "ServerApp.ip": "127.0.0.1", "ServerApp.port": port, "ServerApp.port_retries": 0,
        "ServerApp.root_dir": folder, "IdentityProvider.token": "",
        "LabApp.extension_manager": "readonly",
        "LabServerApp.user_settings_dir": folder / "settings",
    }  # fmt: skip
    address = f"http://127.0.0.1:{port}/"
    with open(folder / "log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
            + [f"--{name}={value}" for name, value in options.items()],
            # Its own: several at a time share neither what was open nor databases of history.
            env=os.environ | {name: str(folder / name) for name in OWN},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: server.poll() is not None or answers(f"{address}api"))
        assert server.poll() is None, (folder / "log").read_text()
        yield address
    finally:
        server.terminate()
        server.wait()


def answers(address: str) -> bool:
    with contextlib.suppress(URLError):
        urlopen(address).close()
        return True
    return False


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Page]:
    """One page for all, which asks no other host: what JupyterLab has read, it keeps."""
    with reader(browser) as context:
        opened = context.new_page()
        opened.set_default_timeout(10 * PATIENCE)  # all of JupyterLab, on a machine that does more
        opened.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), lambda route: route.abort())
        yield opened


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_reads_as_its_page(site: Path, lab: str, window: Page, name: str) -> None:
    cells = nbformat.read(site_notebook(site, name), as_version=4).cells
    window.goto(f"{lab}doc/tree/{name}.ipynb")
    window.wait_for_function(
        """count => document.querySelectorAll(".jp-Notebook .jp-Cell").length === count
            && !document.querySelector(".jp-MarkdownCell:not(:has(.jp-RenderedMarkdown > *))")""",
        arg=len(cells),
    )
    formulas = sum(len(re.findall(r"\$\$.*?\$\$|(?<!\\)\$[^$]+\$", prose(c), re.S)) for c in cells)
    window.wait_for_function(
        "count => document.querySelectorAll('.jp-RenderedMarkdown mjx-container').length >= count",
        arg=formulas,
    )
    seen = window.evaluate(SEEN)

    assert [found for cell in seen for found in RAW.findall(cell["text"])] == []
    assert sum(cell["headings"].count("H1") for cell in seen) == 1
    assert sum(cell["headings"].count("H2") for cell in seen) > 5
    links = [link for cell in seen for link in cell["links"]]
    assert len(links) > 5
    assert [link for link in links if not link.startswith("https://")] == []
    assert sum(len(cell["formulas"]) for cell in seen) == formulas
    assert all(width > 0 for cell in seen for width in cell["formulas"])
    assert [error for cell in seen for error in cell["errors"]] == []

    page = BeautifulSoup(
        (site / GALLERY / f"{name}.html").read_text(encoding="utf-8"), "html.parser"
    )
    body = page.select_one("[itemprop=articleBody]")
    for table in body.select("table.gallery-ladder"):
        assert len(table.select("tr")) in {rows for cell in seen for rows in cell["tables"]}
    items = ["".join(item.split()) for cell in seen for item in cell["items"]]
    for term in body.select("dl.simple > dt"):
        said = "".join(term.get_text().split())
        assert any(item.startswith(said) for item in items), said

    for cell, shown in zip(cells, seen, strict=True):
        assert shown["code"] is (cell.cell_type == "code")
        if cell.cell_type != "code":
            continue
        hidden = cell.metadata.get("jupyter", {}).get("source_hidden", False)
        assert (shown["folded"], shown["edited"]) == (hidden, not hidden)
        assert len(shown["outputs"]) == len(cell.outputs)
        assert all(height > 10 for height in shown["outputs"])
        drawn = [out for out in cell.outputs if "<img" in out.get("data", {}).get("text/html", "")]
        assert sum(height > 40 for height in shown["pictures"]) >= len(drawn)


def site_notebook(site: Path, name: str) -> Path:
    page = (site / GALLERY / f"{name}.html").read_text(encoding="utf-8")
    return site / re.search(rf"_downloads/\w+/{name}\.ipynb", page).group()


def prose(cell: nbformat.NotebookNode) -> str:
    """The text of a cell without its code."""
    if cell.cell_type != "markdown":
        return ""
    return re.sub(r"(`+).+?\1", "", cell.source, flags=re.S)
