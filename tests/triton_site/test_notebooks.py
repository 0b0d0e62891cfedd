"""Every notebook of the site: valid, folded where its page is, and free of reStructuredText."""

import re
from pathlib import Path

import nbformat
import pytest

#: Roles, directives, literals of two backticks, links with an underscore, adornments of headings.
LEFTOVER = re.compile(
    r":[a-z][a-z:+-]*:`|^\s*\.\. [\w-]+::|(?<!`)``(?!`)|`_(?!\w)|^\.\. _|^([=~^-])\1{3,}$", re.M
)
FENCED = re.compile(r"^[ >]*(`{3,}).*?^[ >]*\1$", re.M | re.S)


@pytest.fixture(scope="module")
def notebooks(site: Path) -> dict[str, nbformat.NotebookNode]:
    found = sorted(site.glob("_downloads/*/*.ipynb"))
    assert len(found) > 10
    return {f"{path.parent.name}/{path.name}": nbformat.read(path, as_version=4) for path in found}


def prose(notebook: nbformat.NotebookNode) -> str:
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return "\n\n".join(FENCED.sub("", text) for text in cells)


def test_each_is_valid_and_has_outputs_under_its_cells(notebooks: dict) -> None:
    for name, notebook in notebooks.items():
        nbformat.validate(notebook)
        ran = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.execution_count]
        assert [cell.execution_count for cell in ran] == list(range(1, len(ran) + 1)), name
        assert any(cell.outputs for cell in ran), name


def test_text_has_no_markup_of_the_scripts_and_links_lead_to_the_web(notebooks: dict) -> None:
    for name, notebook in notebooks.items():
        text = prose(notebook)
        left = [text[max(0, m.start() - 40) : m.end() + 40] for m in LEFTOVER.finditer(text)]
        assert left == [], name
        links = re.findall(r"\]\(([^)]*)\)", re.sub(r"`[^`]*`", "", text))  # but kernel[grid](x)
        assert links, name
        assert [link for link in links if not link.startswith("https://")] == [], name


def test_the_first_cells_prepare_colab(notebooks: dict) -> None:
    for name, notebook in notebooks.items():
        title, colab, code = notebook.cells[:3]
        assert title.source.startswith("# "), name
        assert "Runtime → Change runtime type" in colab.source, name
        assert "TRITON_INTERPRET" in code.source, name


def test_cells_that_fold_on_the_page_fold_in_the_notebook(notebooks: dict) -> None:
    cells = [cell for notebook in notebooks.values() for cell in notebook.cells]
    folded = [cell for cell in cells if cell.metadata.get("cellView") == "form"]
    assert len(folded) > len(notebooks)  # more than the cells for Colab
    assert all(cell.source.startswith("# @title ") for cell in folded)
    assert all(cell.metadata["jupyter"]["source_hidden"] for cell in folded)
    assert not any("sphinx_gallery_" in cell.source for cell in cells)
