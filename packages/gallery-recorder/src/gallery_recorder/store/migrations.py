"""Read recordings of this schema and of older ones.

A recording of an older schema is brought to the current one in memory, by one pure function for
each schema. These functions never change: all that they know of their schema is written here.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from gallery_recorder.store.figures import figures_of
from gallery_recorder.store.format import SCHEMA, Figure, Image, Recording
from gallery_recorder.store.reading import NewerError, ReadingError, decode

_JSON = msgspec.json.Decoder(dict[str, Any])
# Created once, before the recorder's threads decode at the same time.
_RECORDING = msgspec.json.Decoder(Recording)


class _Schema(msgspec.Struct):
    schema: int


_SCHEMA = msgspec.json.Decoder(_Schema)


def read(content: bytes) -> Recording:
    """The recording in the *content* of ``recording.json``.

    NewerError if it is of a later schema; ReadingError if it is damaged.
    """
    schema = decode(content, _SCHEMA).schema
    if schema > SCHEMA:
        raise NewerError(f"`schema` is {schema}; this version reads schemas up to {SCHEMA}")
    if schema == SCHEMA:
        return decode(content, _RECORDING)
    if schema < min(_NEXT):
        raise ReadingError(f"`schema` is {schema}; the oldest schema is {min(_NEXT)}")
    recording = decode(content, _JSON)
    for number in range(schema, SCHEMA):
        try:
            recording = _NEXT[number](recording)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise ReadingError(f"is not a recording of schema {schema} ({what})") from error
    return decode(msgspec.json.encode(recording | {"schema": SCHEMA}), _RECORDING)


# --- from 3 to 4: figures were images with the options of directives, or a scraper's own markup ---


def _from_3(recording: dict[str, Any]) -> dict[str, Any]:
    files = {*recording.get("files", ())}
    blocks = [_block_from_3(block, files) for block in recording["blocks"]]
    return recording | {"blocks": blocks}


def _block_from_3(block: dict[str, Any], files: set[str]) -> dict[str, Any]:
    figures: list[Figure] = []
    for number, figure in enumerate(block.get("figures", ())):
        below = figure.get("below", False)
        if not figure.get("rst"):
            figures += _images_from_3(figure.get("images", ()), below)
            continue
        try:
            figures += figures_of(figure["rst"], files, below)
        except ValueError as error:
            raise ValueError(f"`figures[{number}].rst` has {error}") from error
    return block | {"figures": msgspec.to_builtins(figures)}


def _images_from_3(images: list[dict[str, Any]], below: bool) -> list[Figure]:
    """The figures of *images*: those of sphinx-gallery's scraper stand side by side."""
    made = [_image_from_3(image) for image in images]
    if all(image.scraped for image in made):
        name = "sphx-glr-multi-img" if len(made) > 1 else "sphx-glr-single-img"
        row = [msgspec.structs.replace(image, classes=(name,)) for image in made]
        return [Figure(tuple(row), below)]
    return [Figure((image,), below) for image in made]


def _image_from_3(image: dict[str, Any]) -> Image:
    options = image.get("options", {})
    shown = {"file": image["file"], "alt": image.get("alt", "")}
    if not options:
        return Image(**shown, scraped=True, sources=image.get("sources", {}))
    names = {"class": "classes", "target": "link"}
    for name, value in options.items():
        if name not in ("class", "target", "width", "height", "scale", "align", "loading"):
            raise ValueError(f"`options` has {name}, which no image has")
        shown[names.get(name, name)] = value
    if "class" in options:
        shown["classes"] = tuple(options["class"].split())
    if "scale" in options:
        shown["scale"] = int(options["scale"].removesuffix("%"))
    return Image(**shown)


#: The function that makes a recording of the next schema from one of each older schema.
_NEXT: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {3: _from_3}
