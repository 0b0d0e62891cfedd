"""The code cells of a tutorial, and the code block of each on its page.

sphinx-gallery leaves ``# sphinx_gallery_…`` comments out of the pages. What such a comment asks for
is read from the script and done to the code block.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from gallery_recorder.api import Page, Script, domain_of, seam
from triton_site.pages.keylines import without_marks


@dataclass(frozen=True)
class Cell:
    """A code cell: its code, and the settings in its comments."""

    code: str
    settings: dict[str, Any]

    def setting(self, name: str) -> str:
        """The value of ``# sphinx_gallery_<name> = "…"`` in this cell, or an empty text."""
        return str(self.settings.get(name, ""))


def page_of(app: Sphinx, docname: str) -> Page | None:
    """The script and the recording of the page *docname*; None if it is no tutorial's."""
    return domain_of(app.env).pages.get(docname)


def cells_of(script: Script) -> list[Cell]:
    """The code cells that the page of *script* shows; a cell of settings alone is left out."""
    contents = [block.content for block in script.blocks if block.type == "code"]
    cells = [Cell(seam.without_settings(text).strip(), seam.settings_in(text)) for text in contents]
    return [cell for cell in cells if cell.code]


def boxes_of(doctree: nodes.document, script: Script) -> Iterator[tuple[Cell, nodes.literal_block]]:
    """Each code cell of *script* with its code block in *doctree*, in the order of the page."""
    cells = iter(cells_of(script))
    cell = next(cells, None)
    for box in doctree.findall(nodes.literal_block):
        # Text may hold code blocks, too, which are no cells.
        if cell and box.get("language", "").lower() == "python" and _same(box.astext(), cell.code):
            yield cell, box
            cell = next(cells, None)


def functions(code: str) -> dict[str, str]:
    """The source of each top-level function and class in *code*, with its decorators."""
    lines = code.splitlines()
    found = {}
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return found


def in_sight(cell: Cell) -> str:
    """The code of *cell* that its page shows outside of folds.

    Raises:
        ValueError: ``sphinx_gallery_show`` names a function that the cell does not define.
    """
    if not cell.setting("fold"):
        return cell.code
    found = functions(cell.code)
    names = [name.strip() for name in cell.setting("show").split(",") if name.strip()]
    if missing := [name for name in names if name not in found]:
        raise ValueError(
            f"sphinx_gallery_show names {missing[0]!r}, which the folded cell does not define"
        )
    return "\n\n\n".join(found[name] for name in names)


def _same(shown: str, code: str) -> bool:
    """Whether two texts are equal but for tabs, spaces and the marks of key lines."""
    return [line.rstrip() for line in without_marks(shown).strip().splitlines()] == [
        line.rstrip() for line in without_marks(code).expandtabs(8).splitlines()
    ]
