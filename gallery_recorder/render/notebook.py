"""The recorded outputs inside the notebooks to download.

sphinx-gallery writes a notebook without outputs, and packs it into zip files. Sphinx copies these
downloads into the site at the end of a build; there the outputs are added, to the copies, so that
sphinx-gallery's own files, by which it knows what changed, stay its own.

A project's own extension can go on from there: each notebook is handed out, as the event
``gallery-notebook`` with the page's name and the notebook, to be changed in place.
"""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec
from sphinx.application import Sphinx

from gallery_recorder.store import recording
from gallery_recorder.store.recording import Block, Recording

if TYPE_CHECKING:
    from gallery_recorder.render.replay import Replayed

_MIME = {".svg": "image/svg+xml", ".png": "image/png"}


def add_outputs_to_downloads(app: Sphinx, exception: Exception | None) -> None:
    """Put the recorded outputs into each notebook among the built site's downloads."""
    if exception is not None or app.builder.format != "html":
        return
    replayed: dict[str, Replayed] = app.gallery_replayed  # type: ignore[attr-defined]
    for source, (_, name) in app.env.dlfiles.items():
        source_path = PurePosixPath(source)
        target = Path(app.outdir, "_downloads", name)
        if source_path.suffix == ".ipynb":
            item = replayed.get(source_path.with_suffix("").as_posix())
            if item:
                target.write_bytes(with_outputs(target.read_bytes(), item, app))
        elif source_path.suffix == ".zip":
            _rewrite_zip(app, target, source_path.parent, replayed)


def _rewrite_zip(
    app: Sphinx, path: Path, base: PurePosixPath, replayed: dict[str, Replayed]
) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(buffer, "w") as new:
        for entry in sorted(old.infolist(), key=lambda entry: entry.filename):
            content = old.read(entry)
            item = replayed.get((base / entry.filename).with_suffix("").as_posix())
            if item and entry.filename.endswith(".ipynb"):
                content = with_outputs(content, item, app)
            # A fixed date: the same recordings give the same bytes on every machine.
            info = zipfile.ZipInfo(entry.filename, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            new.writestr(info, content)
    path.write_bytes(buffer.getvalue())


def with_outputs(content: bytes, item: Replayed, app: Sphinx | None = None) -> bytes:
    """The notebook *content* with the outputs of the recording in its code cells.

    Only cells that hold more than comments were executed; these are the recorded blocks, in order.
    With *app*, its extensions have a hand in it, through the event ``gallery-notebook``.
    """
    notebook = msgspec.json.decode(content)
    blocks = iter(zip(item.script.code, item.recording.blocks, strict=True))
    count = 0
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"cell-{number}"  # nbformat 4.5 wants one; a fixed one keeps diffs small
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        if not any(
            line.strip() and not line.lstrip().startswith("#") for line in source.splitlines()
        ):
            continue  # comments alone: nothing was executed
        _, block = next(blocks)
        count += 1
        cell["execution_count"] = count
        cell["outputs"] = _outputs(block, item.folder, count)
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    notebook["metadata"]["recorded"] = _where(item.recording) | {
        "date": item.recording.run.recorded
    }
    if app is not None:
        app.emit("gallery-notebook", item.docname, notebook)
    return msgspec.json.format(msgspec.json.encode(notebook), indent=1) + b"\n"


def _where(made: Recording) -> dict[str, Any]:
    software = made.probe(recording.SOFTWARE)
    return {
        "device": made.provenance.device,
        **{name: software.get(name) for name in ("triton", "torch", "toolkit")},
    }


def _outputs(block: Block, folder: Path, count: int) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    for name, text in (("stdout", block.stdout), ("stderr", block.stderr)):
        if text:
            outputs.append({"output_type": "stream", "name": name, "text": text})
    for name in block.images:
        path = folder / name
        mime = _MIME[path.suffix]
        data = (
            path.read_text(encoding="utf-8")
            if path.suffix == ".svg"
            else base64.b64encode(path.read_bytes()).decode()
        )
        outputs.append(
            {
                "output_type": "display_data",
                "data": {mime: data, "text/plain": Path(name).stem},
                "metadata": {},
            }
        )
    if block.value:
        kind = {"text": "text/plain", "html": "text/html"}[block.value.kind]
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": count,
                "data": {kind: block.value.text},
                "metadata": {},
            }
        )
    return outputs
