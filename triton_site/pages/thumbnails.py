"""Thumbnails without words: the curves of a figure, and nothing that would be too small to read.

sphinx-gallery makes a thumbnail by shrinking a figure to the size of a card, where its words have
five pixels. Where the figure was recorded as SVG, the card shows its first axes alone: lines,
bands, bars and grid, at any size. What they are, the title of the card says.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from sphinx.application import Sphinx

from gallery_recorder.render import downloads
from gallery_recorder.render.domain import domain_of
from triton_site.pages.cells import cells_of, page_of

SVG = "http://www.w3.org/2000/svg"
_THUMBNAIL = re.compile(
    r"^(?P<gallery>.*)/images/thumb/(?P<stem>sphx_glr_(?P<name>.+)_thumb)\.png$"
)
#: matplotlib's names of groups that are words, or are about them.
_WORDS = re.compile(r"text_|legend_|matplotlib\.axis_\d+_offset")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def setup(app: Sphinx) -> dict[str, Any]:
    """Change the images of a page that was read, before Sphinx looks for their files."""
    app.connect("doctree-read", _change, priority=300)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _change(app: Sphinx, doctree: nodes.document) -> None:
    for image in doctree.findall(nodes.image):
        if found := _THUMBNAIL.match(image["uri"]):
            figure = _figure(app, f"{found['gallery'].strip('/')}/{found['name']}", found["name"])
            if figure is not None and (drawn := curves(figure.read_text(encoding="utf-8"))):
                # The page is read again for another recording, or another of its figures.
                domain_of(app.env).depends("recordings")
                app.env.note_dependency(image["uri"].lstrip("/"))
                image["uri"] = f"{found['gallery']}/images/thumb/{found['stem']}.svg"
                downloads.write(Path(app.srcdir, image["uri"].lstrip("/")), drawn.encode())


def _figure(app: Sphinx, docname: str, name: str) -> Path | None:
    """The SVG that the script of *docname* chose for its card, in its recording."""
    page = page_of(app, docname)
    if page is None or page.folder is None:
        return None
    numbers = [cell.settings.get("thumbnail_number", 0) for cell in cells_of(page.script)]
    number = next(filter(None, numbers), 1)
    path = page.folder / "images" / f"sphx_glr_{name}_{number:03}.svg"
    return path if path.is_file() else None


def curves(svg: str) -> str:
    """The first axes of a figure of matplotlib, without words; empty where there are none."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    figure = ElementTree.fromstring(svg)
    axes = figure.find(f".//{{{SVG}}}g[@id='axes_1']")
    ground = None if axes is None else axes.find(f"{{{SVG}}}g/{{{SVG}}}path")
    if axes is None or ground is None:
        return ""
    numbers = [float(number) for number in _NUMBER.findall(ground.get("d", ""))]
    left, right, top, bottom = *_ends(numbers[::2]), *_ends(numbers[1::2])
    for parent in list(axes.iter()):
        for child in list(parent):
            if _WORDS.match(child.get("id", "")):
                parent.remove(child)
    made = ElementTree.Element(f"{{{SVG}}}svg")
    made.set("viewBox", f"{left - 3:g} {top - 3:g} {right - left + 6:g} {bottom - top + 6:g}")
    made.extend(child for child in figure if child.tag.endswith(("}defs", "}style")))
    made.append(axes)
    return ElementTree.tostring(made, encoding="unicode")


def _ends(numbers: list[float]) -> tuple[float, float]:
    return min(numbers), max(numbers)
