"""The notebooks to download: text as Markdown, machinery folded, and a first cell for Colab.

sphinx-gallery writes notebooks with reStructuredText in them, and the engine adds the recorded
outputs. Here their text cells are made anew out of what Sphinx has read, so that roles are links to
the site, and definition lists, tables and formulas are what they are on the page. A cell that is
folded on the page is folded here: ``source_hidden`` for JupyterLab, a form for Colab.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransformer
from sphinx.transforms.post_transforms import ReferencesResolver

from triton_site.pages.cells import Cell, boxes_of, cells_of, page_of
from triton_site.pages.folds import Fold
from triton_site.pages.markdown import Writer, flattened

#: Parts of a page that a notebook has as outputs, or not at all.
_NOT_TEXT = {
    "gallery-banner",
    "gallery-data",
    "gallery-provenance",
    "gallery-stderr",
    "output_subarea",
    "sphx-glr-download-link-note",
    "sphx-glr-footer",
    "sphx-glr-multi-img",
    "sphx-glr-script-out",
    "sphx-glr-signature",
    "sphx-glr-single-img",
    "sphx-glr-timing",
}

#: The first cell: what Colab's runtimes have, and what to do where it is not enough.
FIRST_TEXT = """\
**In Colab**, choose a runtime with a GPU first: *Runtime → Change runtime type*. Triton compiles \
for NVIDIA GPUs from compute capability 8.0 on (A100, L4, H100; a T4 is older) and for AMD's. On \
anything else the next cell chooses Triton's interpreter: the kernels run on the CPU, slowly, and \
nothing is timed. Steps that need a newer GPU than yours say so, and are left out. The outputs \
below are those of the page [{title}]({address}){where}; they are replaced as you run the cells.\
"""
FIRST_CODE = """\
# @title Chooses the interpreter where the GPU is too old, and an up-to-date Triton
import os

import torch

%pip install --quiet "triton>=3.6"
if torch.version.cuda and torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 8:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    print("This GPU is too old for Triton: the kernels run in its interpreter.")
elif not torch.accelerator.is_available():
    print("There is no GPU: the kernels run in Triton's interpreter.")\
"""


def setup(app: Sphinx) -> dict[str, Any]:
    """Have a hand in each notebook that the engine writes."""
    app.connect("gallery-notebook", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _finish(app: Sphinx, docname: str, notebook: dict[str, Any]) -> None:
    page = page_of(app, docname)
    if page is None:
        return
    doctree = _resolved(app, docname)
    address = f"{app.config.html_baseurl}{app.builder.get_target_uri(docname)}"
    cells = cells_of(page.script)
    codes = _codes(notebook, cells)
    texts = texts_between(doctree, [box for _, box in boxes_of(doctree, page.script)], address)
    made: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        if text:
            made.append({"cell_type": "markdown", "metadata": {}, "source": _lines(text)})
        if number < len(codes):
            fold(codes[number], cells[number].setting("fold"))
            made.append(codes[number])
    where = (page.interpreted and "made in Triton's interpreter") or page.device
    first = FIRST_TEXT.format(
        title=page.script.title, address=address, where=f" ({where})" if where else ""
    )
    made.insert(1, {"cell_type": "markdown", "metadata": {}, "source": _lines(first)})
    colab = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    made.insert(2, colab | {"source": _lines(FIRST_CODE)})
    fold(made[2], "")
    for number, cell in enumerate(made):
        cell["id"] = f"cell-{number}"  # nbformat 4.5 wants one; a fixed one keeps differences small
    notebook["cells"] = made


def _codes(notebook: dict[str, Any], cells: list[Cell]) -> list[dict[str, Any]]:
    """The code cells of *notebook* that are *cells*, in order.

    Raises:
        ValueError: They are not the same.
    """
    found = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if len(found) != len(cells):
        raise ValueError(
            f"the notebook has {len(found)} code cells, but its script has {len(cells)}"
        )
    return found


def fold(cell: dict[str, Any], line: str) -> None:
    """Fold the code *cell* to *line*; Colab takes a first line ``# @title`` for a form's title."""
    source = "".join(cell["source"])
    if line:
        source = f"# @title {line[:1].upper()}{line[1:]}\n{source}"
    if source.startswith("# @title"):
        cell["metadata"] |= {"cellView": "form", "jupyter": {"source_hidden": True}}
    cell["metadata"].pop("collapsed", None)
    cell["source"] = _lines(source)


def texts_between(
    doctree: nodes.document, boxes: list[nodes.literal_block], address: str
) -> list[str]:
    """The Markdown before the first of the *boxes*, between them, and after the last."""
    writer = Writer(address)
    parts: list[list[str]] = [[]]
    rest = list(boxes)
    for node, level in flattened(doctree.children, 1):
        inside = list(node.findall(nodes.literal_block)) if rest else []
        if rest and (node is rest[0] or rest[0] in inside):
            rest.pop(0)
            parts.append([])
        elif not _is_output(node):
            parts[-1].append(writer.block(node, level))
    return ["\n\n".join(filter(None, part)) for part in parts]


def _is_output(node: nodes.Node) -> bool:
    classes = set(node.get("classes", ())) if isinstance(node, nodes.Element) else set()
    return bool(classes & _NOT_TEXT) or (isinstance(node, Fold) and node["kind"] == "xray")


def _resolved(app: Sphinx, docname: str) -> nodes.document:
    """The page with its references as links; nothing else of what the HTML builder does to it."""
    doctree = app.env.get_doctree(docname)
    transformer = SphinxTransformer(doctree)
    transformer.set_environment(app.env)
    transformer.add_transforms([ReferencesResolver])
    transformer.apply_transforms()
    return doctree


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
