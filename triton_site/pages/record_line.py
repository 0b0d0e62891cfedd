"""What was recorded, in the one line above a page's text: a chip such as *H100 · Triton 3.9*.

The engine puts lines of provenance below the title. They move into the chip, which opens; the
templates get it as ``record``, with a ``summary`` and its ``content`` as HTML.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from gallery_recorder.api import Page
from triton_site.pages.cells import page_of
from triton_site.pages.folds import add_node
from triton_site.references import SOFTWARE

#: The class of the engine's lines.
_LINE = "gallery-provenance"


class RecordLine(nodes.General, nodes.Element):
    """The engine's lines of provenance; a page shows them in its chip, not where they stand."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx; the engine adds its lines before."""
    add_node(app, RecordLine, _skip, None)
    app.connect("doctree-read", _gather, priority=800)
    app.connect("html-page-context", _add_chip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _skip(translator: Any, node: RecordLine) -> None:
    raise nodes.SkipNode


def _gather(app: Sphinx, doctree: nodes.document) -> None:
    if page_of(app, app.env.docname) is None:
        return
    lines = [line for line in doctree.findall(nodes.paragraph) if _LINE in line["classes"]]
    if not lines:
        return
    gathered = RecordLine()
    lines[0].parent.insert(lines[0].parent.index(lines[0]), gathered)
    for line in lines:
        line.parent.remove(line)
        gathered += nodes.paragraph("", "", *line.children, classes=[_LINE])


def _add_chip(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    del template
    page = page_of(app, pagename)
    if page is None or doctree is None:
        return
    builder: Any = app.builder  # of HTML, which can render a part
    for gathered in doctree.findall(RecordLine):
        parts = [builder.render_partial(line.deepcopy()) for line in gathered.children]
        content = "".join(part["fragment"] for part in parts)
        context["record"] = {"summary": summary(page), "content": content}


def summary(page: Page) -> str:
    """``H100 · Triton 3.9``: the model of the GPU, and the release without its last part."""
    made = page.recording
    release = str(made.probe(SOFTWARE).get("triton", ""))
    device = short_device(made.provenance.device) if made.timed else "CPU"
    short = re.sub(r"^(\d+\.\d+)\..*", r"\1", release)
    return f"{device} · Triton {short}" if short else device


def release(page: Page) -> str:
    """``NVIDIA H100 80GB HBM3 with Triton 3.9.0``."""
    made = page.recording
    found = made.probe(SOFTWARE).get("triton", "")
    return f"{made.provenance.device} with Triton {found}" if found else made.provenance.device


def short_device(device: str) -> str:
    """``H100`` for ``NVIDIA H100 80GB HBM3``; another device keeps its name."""
    found = re.search(r"\b([A-Z]{1,2}\d{2,4}[A-Za-z]*|MI\d{3}[A-Za-z]*)\b", device)
    return found[1] if found else device
