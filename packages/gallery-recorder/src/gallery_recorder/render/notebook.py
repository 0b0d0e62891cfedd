"""Notebooks with recorded outputs.

sphinx-gallery writes notebooks without outputs. Each code cell is marked with the line of its
block, so that outputs can be matched to cells. Handlers of the event ``gallery-notebook`` get the
document's name and the notebook, and change it in place.
"""

import base64
from pathlib import Path
from typing import Any

import msgspec
from sphinx.application import Sphinx

from gallery_recorder import seam
from gallery_recorder.render.selection import Page
from gallery_recorder.store.format import Block

_MIME = {f".{kind}": f"image/{kind}" for kind in ("gif", "jpeg", "png", "webp")}
_MIME |= {".jpg": "image/jpeg", ".svg": "image/svg+xml"}

#: The key in a cell's metadata for the line of its block.
_MARK = "gallery_line"


def marked(script_blocks: list[Any], gallery_conf: Any, target_dir: Any) -> dict[str, Any]:
    """sphinx-gallery's notebook, with each code cell marked."""
    lines = {id(block.content): block.lineno for block in script_blocks if block.type == "code"}

    def add_code_cell(work_notebook: dict[str, Any], code: str) -> None:
        seam.ORIGINAL["add_code_cell"](work_notebook, code)
        if id(code) in lines:
            work_notebook["cells"][-1]["metadata"][_MARK] = lines[id(code)]

    with seam.replaced(add_code_cell=add_code_cell):
        return seam.ORIGINAL["jupyter_notebook"](script_blocks, gallery_conf, target_dir)


def finished(
    content: bytes, page: Page, app: Sphinx | None = None, with_outputs: bool = True
) -> bytes:
    """The notebook *content*, *with_outputs* of the recording in its code cells."""
    notebook = msgspec.json.decode(content)
    # A cell of nothing but settings is empty.
    notebook["cells"] = [cell for cell in notebook["cells"] if "".join(cell["source"]).strip()]
    blocks: dict[int, Block] = {}
    if page.folder and with_outputs:
        made = page.recording
        blocks = {code.block.lineno: block for code, block in page.outputs if block}
        where = {"device": made.provenance.device, "date": made.run.recorded}
        notebook["metadata"]["recorded"] = where
    count = 0
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"cell-{number}"  # required by nbformat 4.5; fixed, for small diffs
        block = blocks.get(cell["metadata"].pop(_MARK, None))
        if block and page.folder:
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = _outputs(block, page.folder, count)
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    if app:
        app.emit("gallery-notebook", page.docname, notebook)
    return msgspec.json.format(msgspec.json.encode(notebook), indent=1) + b"\n"


def _outputs(block: Block, folder: Path, count: int) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    for name, text in (("stdout", block.stdout), ("stderr", block.stderr)):
        if text:
            outputs.append({"output_type": "stream", "name": name, "text": text})
    for name in block.images:
        path = folder / name
        mime = _MIME.get(path.suffix)
        if mime is None or "_2_0" in path.stem or not path.stem.startswith("sphx_glr_"):
            continue  # a video, a finer version, or an image that is not sphinx-gallery's
        data = base64.b64encode(path.read_bytes()).decode()
        if path.suffix == ".svg":  # JupyterLab does not show SVG in an untrusted notebook
            mime, data = "text/html", f'<img src="data:{mime};base64,{data}">'
        shown = {mime: data, "text/plain": path.stem}
        outputs.append({"output_type": "display_data", "data": shown, "metadata": {}})
    if block.value:
        result = {"output_type": "execute_result", "execution_count": count, "data": block.value}
        outputs.append(result | {"metadata": {}})
    return outputs
