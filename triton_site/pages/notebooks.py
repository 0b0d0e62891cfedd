"""The notebooks to download: text cells in Markdown, folded code cells, and a first cell for Colab.

sphinx-gallery writes notebooks, and the engine adds the recorded outputs. Their text cells are
reStructuredText, so they are written again from the page that Sphinx has read. A cell that is
folded on the page is folded here: ``source_hidden`` for JupyterLab, a form for Colab.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransformer
from sphinx.transforms.post_transforms import ReferencesResolver

from gallery_recorder.api import Page
from triton_site.pages.cells import boxes_of, cells_of, page_of
from triton_site.pages.folds import Fold
from triton_site.pages.markdown import Writer

#: How the classes begin of what a notebook holds as outputs, or not at all.
_NOT_TEXT = ("sphx-glr-", "output_subarea", "gallery-banner", "gallery-data", "gallery-provenance",
             "gallery-stderr")  # fmt: skip

#: Stands for a code cell in the text of a page.
_CELL = "\ue000"  # for private use

COLAB_TEXT = """\
**In Colab**, choose a runtime with a GPU first: *Runtime → Change runtime type*. Triton compiles \
for NVIDIA GPUs from compute capability 8.0 on (A100, L4, H100; a T4 is older) and for AMD GPUs. \
Without one, the next cell chooses Triton's interpreter: kernels run on the CPU, slowly, and \
nothing is timed. Steps that need a newer GPU say so and are skipped. The outputs below are those \
of the page [{title}]({address}); running a cell replaces them.\
"""
COLAB_CODE = """\
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
    """Change each notebook that the engine writes."""
    app.connect("gallery-notebook", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _finish(app: Sphinx, docname: str, notebook: dict[str, Any]) -> None:
    page = page_of(app, docname)
    if page is None:
        return
    cells = cells_of(page.script)
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if len(codes) != len(cells):
        raise ValueError(
            f"{docname}: the notebook has {len(codes)} code cells, its script {len(cells)}"
        )
    for code, cell in zip(codes, cells, strict=True):
        fold(code, cell.setting("fold"))
    address = f"{app.config.html_baseurl}{app.builder.get_target_uri(docname)}"
    made: list[dict[str, Any]] = []
    for number, text in enumerate(_texts(app, docname, page, address)):
        made += [_text_cell(text)] if text else []
        made += codes[number : number + 1]
    colab = _text_cell(COLAB_TEXT.format(title=page.script.title, address=address))
    first: dict[str, Any] = {"cell_type": "code", "metadata": {}, "source": [COLAB_CODE]}
    first |= {"execution_count": None, "outputs": []}
    fold(first, "")
    made[1:1] = [colab, first]
    for number, one in enumerate(made):
        one["id"] = f"cell-{number}"  # nbformat 4.5 wants one; a fixed one keeps diffs small
    notebook["cells"] = made


def fold(cell: dict[str, Any], summary: str) -> None:
    """Fold the code *cell* to a line; Colab takes it from a comment ``# @title``."""
    source = "".join(cell["source"])
    if summary:
        source = f"# @title {summary[:1].upper()}{summary[1:]}\n{source}"
    if source.startswith("# @title"):
        cell["metadata"] |= {"cellView": "form", "jupyter": {"source_hidden": True}}
    cell["metadata"].pop("collapsed", None)
    cell["source"] = source.splitlines(keepends=True)


def _texts(app: Sphinx, docname: str, page: Page, address: str) -> list[str]:
    """The page's Markdown before its first code cell, between code cells, and after the last."""
    doctree = app.env.get_doctree(docname)
    transformer = SphinxTransformer(doctree)
    transformer.set_environment(app.env)
    transformer.add_transforms([ReferencesResolver])
    transformer.apply_transforms()
    for _, box in list(boxes_of(doctree, page.script)):
        place = box.parent if isinstance(box.parent, Fold) else box
        place.replace_self(nodes.paragraph("", _CELL))
    for node in list(doctree.findall(_is_output)):
        node.parent.remove(node)
    text = Writer(address, folded=True).blocks(doctree.children)
    return [part.strip() for part in text.split(_CELL)]


def _is_output(node: nodes.Node) -> bool:
    if not isinstance(node, nodes.Element) or isinstance(node, nodes.section):
        return False
    is_xray = isinstance(node, Fold) and node["kind"] == "xray"
    return is_xray or any(name.startswith(_NOT_TEXT) for name in node["classes"])


def _text_cell(text: str) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    return {"cell_type": "markdown", "metadata": {}, "source": lines}
