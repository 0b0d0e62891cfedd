"""Every notebook of the site: valid, folded where its page is, and free of reStructuredText."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import nbformat
import pytest

from triton_site.pages.notebooks import fold

#: Markup that a reader of a notebook would see as it stands: roles, directives, literals of
#: two backticks, links with an underscore at the end, hyperlink targets, adornments of headings.
LEFTOVER = re.compile(
    r":[a-z][a-z:+-]*:`|^\s*\.\. [\w-]+::|(?<!`)``(?!`)|`_(?!\w)|^\.\. _|^([=~^-])\1{3,}$", re.M
)
FENCED = re.compile(r"^[ >]*(`{3,}).*?^[ >]*\1$", re.M | re.S)


@pytest.fixture(scope="module")
def notebooks(site: Path) -> dict[str, nbformat.NotebookNode]:
    found = sorted(site.glob("_downloads/*/*.ipynb"))
    assert len(found) > 10
    return {f"{path.parent.name}/{path.name}": nbformat.read(path, as_version=4) for path in found}


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


def test_each_is_valid_and_has_its_outputs_under_its_cells(notebooks: dict) -> None:
    for name, notebook in notebooks.items():
        nbformat.validate(notebook)
        ran = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.execution_count]
        assert [cell.execution_count for cell in ran] == list(range(1, len(ran) + 1)), name
        assert any(cell.outputs for cell in ran), name


def test_no_markup_of_the_scripts_is_left(notebooks: dict) -> None:
    left = [
        (name, found.group(), text[max(0, found.start() - 40) : found.end() + 40])
        for name, notebook in notebooks.items()
        for text in texts(notebook)
        for found in LEFTOVER.finditer(FENCED.sub("", text))
    ]
    assert left == []


def test_every_link_leads_to_the_site_or_to_another_host(notebooks: dict) -> None:
    for name, notebook in notebooks.items():
        links = [
            target
            for text in texts(notebook)
            for target in re.findall(r"\]\(([^)]*)\)", FENCED.sub("", text))
        ]
        assert links, name
        assert [target for target in links if not target.startswith("https://")] == [], name


def test_the_first_cells_say_what_to_do_in_colab(notebooks: dict) -> None:
    for name, notebook in notebooks.items():
        title, colab, code = notebook.cells[:3]
        assert title.source.startswith("# "), name
        assert "Runtime → Change runtime type" in colab.source, name
        assert "TRITON_INTERPRET" in code.source, name


def test_what_is_folded_on_the_page_is_folded_in_the_notebook(notebooks: dict) -> None:
    folded = [
        cell
        for notebook in notebooks.values()
        for cell in notebook.cells
        if cell.metadata.get("cellView") == "form"
    ]
    assert len(folded) > len(notebooks)  # more than the cells for Colab
    assert all(cell.source.startswith("# @title ") for cell in folded)
    assert all(cell.metadata["jupyter"]["source_hidden"] for cell in folded)
    assert not any("sphinx_gallery_" in cell.source for cell in folded)


def test_the_archive_has_the_same_notebooks(site: Path, notebooks: dict) -> None:
    archives = list(site.glob("_downloads/*/tutorials_jupyter.zip"))
    assert archives
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".ipynb"):
                    content = nbformat.reads(archive.read(name).decode(), as_version=4)
                    of_that_name = [
                        notebook
                        for place, notebook in notebooks.items()
                        if Path(place).name == Path(name).name
                    ]
                    assert content in of_that_name


def test_a_cell_without_a_line_stays_open() -> None:
    cell = {"source": ["x = 1"], "metadata": {"collapsed": False}}
    fold(cell, "")
    assert cell == {"source": ["x = 1"], "metadata": {}}
