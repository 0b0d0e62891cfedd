"""The code cells of a tutorial on its page: which box on the page is which cell of the script.

sphinx-gallery writes a page out of a script's blocks and leaves its ``# sphinx_gallery_…`` comments
out. What such a comment asks for is therefore read from the script, and carried out on the box.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from gallery_recorder import seam
from gallery_recorder.project.script import Script
from gallery_recorder.render.domain import domain_of


@dataclass(frozen=True)
class Page:
    """A tutorial's page: its script, and the recording that it shows, if any: where, of what.

    ``view`` names the recording where it is not the one that the page shows first.
    """

    script: Script
    folder: Path | None
    interpreted: bool = False
    device: str = ""
    view: str = ""
    probes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """A code cell: its place among the code cells, its code, and what its comments ask for."""

    number: int
    code: str
    settings: dict[str, Any]

    def setting(self, name: str) -> str:
        """What ``# sphinx_gallery_<name> = "…"`` says in this cell; empty where there is none."""
        return str(self.settings.get(name, ""))


def page_of(app: Sphinx, docname: str) -> Page | None:
    """The tutorial that *docname* is the page of; None for other pages."""
    return recorded_page(app, docname)


def recorded_page(app: Sphinx, docname: str) -> Page | None:
    """What the engine says of the page *docname*: the one place that asks it."""
    item = domain_of(app.env).pages.get(docname)
    if item is None:
        return None
    if item.folder is None:
        return Page(item.script, None)
    made = item.recording
    return Page(
        script=item.script,
        folder=item.folder,
        interpreted=not made.timed,
        device=made.provenance.device,
        view=item.view,
        probes=made.probes,
    )


def stamps(app: Sphinx) -> dict[str, str]:
    """What the pages of tutorials are made from, in a word each; of one stamp, they are alike."""
    return {name: item.stamp for name, item in sorted(domain_of(app.env).pages.items())}


def cells_of(script: Script) -> list[Cell]:
    """The code cells of *script* as its page shows them; what holds settings alone is none."""
    contents = [block.content for block in script.blocks if block.type == "code"]
    shown = [(seam.without_settings(content).strip(), content) for content in contents]
    return [
        Cell(number, code, seam.settings_in(content))
        for number, (code, content) in enumerate(pair for pair in shown if pair[0])
    ]


def boxes_of(doctree: nodes.document, script: Script) -> Iterator[tuple[Cell, nodes.literal_block]]:
    """Each code cell of *script* with its box in *doctree*, in the order of the page."""
    boxes = (
        node
        for node in doctree.findall(nodes.literal_block)
        if str(node.get("language")).lower() == "python"
    )
    cells = iter(cells_of(script))
    cell = next(cells, None)
    for box in boxes:
        # A text cell may show code, too: that is no cell.
        if cell is not None and _same(box.astext(), cell.code):
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
    """The code of *cell* that its page shows without a click."""
    if not cell.setting("fold"):
        return cell.code
    found = functions(cell.code)
    names = [name.strip() for name in cell.setting("show").split(",") if name.strip()]
    if missing := [name for name in names if name not in found]:
        raise ValueError(
            f"a cell that folds wants to show {missing[0]!r}, which it does not define"
        )
    return "\n\n\n".join(found[name] for name in names)


def _same(shown: str, code: str) -> bool:
    """Whether two texts are equal but for the blanks that reStructuredText does not keep."""
    return [line.rstrip() for line in shown.strip().splitlines()] == [
        line.rstrip() for line in code.expandtabs(8).splitlines()
    ]
