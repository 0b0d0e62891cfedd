"""Recordings of schema 1, read, checked and written as schema 2.

Schema 1 kept what each block printed and drew, and left it to rendering to make a page of it; it
knew no galleries, no variants and no probes. What it says of software becomes a probe's words.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import msgspec

from gallery_recorder.store import reading, recording
from gallery_recorder.store.reading import ReadingError
from gallery_recorder.store.recording import (
    FILE_NAME,
    GALLERY_FOLDER,
    Block,
    GpuFacts,
    GpuState,
    Provenance,
    Recording,
    RecordingError,
    RunFacts,
    Value,
)

#: What schema 1 says of the machine, and schema 2 under the same name.
_SAME = ("device", "os", "python", "commit")
_GPU = ("compute_capability", "memory", "multiprocessors", "driver")
_KNOWN = {*_SAME, *_GPU, "kind", "sphinx_gallery", "environment", "before", "after"}


def convert(
    old: Path, new: Path, galleries: Mapping[str, str], variant: str | None, probe: str
) -> list[Path]:
    """Convert every recording of schema 1 below *old* into *new*, which may be the same folder.

    *galleries* gives the gallery of each script by its name; *variant* is a pattern over what a
    recording says of its software, such as ``numpy-{numpy}``; *probe* is the name under which
    that is kept. The folders that were written are returned.

    Raises:
        RecordingError: a recording is damaged, or belongs to no script; nothing was written.
    """
    made: list[tuple[Recording, Path, Path]] = []
    with tempfile.TemporaryDirectory(dir=_existing(new)) as scratch:
        for number, folder in enumerate([*recording.all_recordings(old)]):
            plain = _read(folder)
            if plain["schema"] != 1:
                continue
            name = plain["tutorial"]
            if name not in galleries:
                raise RecordingError(
                    f"{folder / FILE_NAME}: `tutorial` is {name}, and no gallery has such a "
                    "script; remove the recording, or put the script back"
                )
            staging = Path(scratch, str(number))
            converted = _converted(plain, folder, staging, galleries[name], variant, probe)
            made.append((converted, staging, folder))
        written = []
        for *_, folder in made:
            shutil.rmtree(folder)
            _remove_empty(folder.parent, old)
        for converted, staging, _ in made:
            location = recording.Location(
                new,
                recording.slug(converted.provenance.device),
                converted.variant,
                converted.gallery,
                converted.name,
            )
            recording.save(converted, staging, location.folder)
            written.append(location.folder)
    return written


def _read(folder: Path) -> dict[str, Any]:
    """The content of ``recording.json``, with every file's hash checked where it is schema 1.

    Raises:
        RecordingError: it cannot be read, or a file is not the one that was recorded.
    """
    path = folder / FILE_NAME
    try:
        plain = msgspec.json.decode(reading.read_file(path, recording.MAX_READ))
        if plain["schema"] == 1:
            for file in plain["files"]:
                content = reading.read_file(folder / file["name"], recording.MAX_READ)
                if hashlib.sha256(content).hexdigest() != file["sha256"]:
                    raise ReadingError(f"{file['name']} is not the file that was recorded")
    except (ReadingError, msgspec.DecodeError, LookupError, TypeError) as error:
        raise RecordingError(f"{path}: cannot be converted: {error}") from error
    return plain


def _converted(
    plain: dict[str, Any],
    folder: Path,
    staging: Path,
    gallery: str,
    variant: str | None,
    probe: str,
) -> Recording:
    """The recording in *folder* as schema 2, with its files in *staging*."""
    old, run = plain["provenance"], plain["run"]
    stem = plain["tutorial"].rsplit("/", 1)[-1]
    images = staging / "images"
    images.mkdir(parents=True)
    names: dict[str, str] = {}
    figures = [figure["file"] for block in plain["blocks"] for figure in block["figures"]]
    for number, file in enumerate(figures, 1):
        names[file] = f"images/sphx_glr_{stem}_{number:03}{Path(file).suffix}"
    if plain["thumbnail"]:
        names[plain["thumbnail"]] = f"images/sphx_glr_{stem}_thumbnail.png"
    for file in plain["files"]:
        target = staging / names.get(file["name"], file["name"])
        shutil.copyfile(folder / file["name"], target)
    if not any(images.iterdir()):
        images.rmdir()
    software = {field: value for field, value in old.items() if field not in _KNOWN and value}
    if run["peak_gpu_memory"] is not None:
        software["peak_gpu_memory"] = run["peak_gpu_memory"]
    gpu = old["kind"] == "gpu"
    return Recording(
        schema=recording.SCHEMA,
        gallery=gallery,
        name=plain["tutorial"],
        title=plain["title"],
        key=plain["key"],
        variant=variant.format(**old) if variant else None,
        run=RunFacts(
            recorded=run["recorded"],
            seconds=run["seconds"],
            peak_host_memory=run["peak_host_memory"],
            timed=gpu,
        ),
        provenance=Provenance(
            kind="gpu" if gpu else "cpu",
            versions={"sphinx-gallery": old["sphinx_gallery"]},
            environment=old["environment"],
            gpu=GpuFacts(**{field: old[field] for field in _GPU}) if gpu else None,
            before=msgspec.convert(old["before"], GpuState | None),
            after=msgspec.convert(old["after"], GpuState | None),
            **{field: old[field] for field in _SAME},
        ),
        blocks=tuple(_block(block, names, stem, folder) for block in plain["blocks"]),
        probes={probe: software},
        thumbnail=names.get(plain["thumbnail"]),
        files={
            path.relative_to(staging).as_posix(): recording.digest(path)
            for path in sorted(staging.rglob("*"))
            if path.is_file()
        },
    )


def _block(old: dict[str, Any], names: dict[str, str], stem: str, folder: Path) -> Block:
    value = Value(old["repr"]["kind"], old["repr"]["value"]) if old["repr"] else None
    figures = [Figure(names[f["file"]], f["alt"], f["width"], f["height"]) for f in old["figures"]]
    data = {name: (folder / name).stat().st_size for name in old["data"]}
    return Block(
        line=old["line"],
        key=old["key"],
        seconds=old["seconds"],
        rst=output_rst(figures, old["stdout"], old["stderr"], value, data, stem),
        stdout=old["stdout"],
        stderr=old["stderr"],
        value=value,
        images=tuple(figure.file for figure in figures),
        data=tuple(old["data"]),
    )


class Figure(msgspec.Struct, frozen=True):
    """A figure of schema 1: its file, the text that stands for it, and its size in CSS pixels."""

    file: str
    alt: str
    width: int
    height: int


def output_rst(
    figures: list[Figure],
    stdout: str,
    stderr: str,
    value: Value | None,
    data: Mapping[str, int],
    stem: str,
) -> str:
    """What a block of schema 1 did, as reStructuredText: figures, text, value, files."""
    parts = [
        f".. image:: /{GALLERY_FOLDER}/{figure.file}\n"
        f"   :alt: {' '.join(figure.alt.split())}\n"
        f"   :width: {figure.width}\n"
        f"   :height: {figure.height}\n"
        "   :loading: lazy\n"
        "   :class: sphx-glr-single-img\n"
        for figure in figures
    ]
    text = stdout
    if value and value.kind == "text":
        text = f"{text.rstrip()}\n{value.text}" if text.strip() else value.text
    parts += [
        f".. rst-class:: {classes}\n\n .. code-block:: none\n\n{indent(shown, ' ' * 4)}\n"
        for classes, shown in (
            ("sphx-glr-script-out", text.strip("\n")),
            ("sphx-glr-script-out gallery-stderr", stderr.strip("\n")),
        )
        if shown.strip()
    ]
    if value and value.kind == "html":
        parts.append(
            ".. raw:: html\n\n"
            '    <div class="output_subarea output_html rendered_html output_result">\n'
            f"{indent(value.text, ' ' * 4)}\n    </div>\n    <br />\n    <br />"
        )
    parts += [data_rst(name, size, stem) for name, size in data.items()]
    return "\n" + "\n\n".join(parts) + "\n\n"


def data_rst(name: str, size: int, stem: str) -> str:
    """The link to a file that a block wrote."""
    return (
        ".. container:: gallery-data\n\n"
        f"   :download:`{name} </{GALLERY_FOLDER}/{stem}/{name}>` ({_readable_bytes(size)})\n"
    )


def _readable_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _existing(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _remove_empty(folder: Path, root: Path) -> None:
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
