"""Bring a recording of an older schema to the current schema, step by step.

A step changes the JSON of ``recording.json`` in place. Steps never change: all that they know of
their schema is written here.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gallery_recorder.store import markup
from gallery_recorder.store.format import SCHEMA, Recording
from gallery_recorder.store.reading import NewerError, ReadingError, decode

_JSON = msgspec.json.Decoder(dict[str, Any])
# Created once, before the recorder's threads decode at the same time.
_RECORDING = msgspec.json.Decoder(Recording)


class _Schema(msgspec.Struct):
    schema: int


_SCHEMA = msgspec.json.Decoder(_Schema)


def schema_of(content: bytes) -> int:
    """The schema of the *content* of ``recording.json``; ReadingError if it has none."""
    return decode(content, _SCHEMA).schema


def read(content: bytes) -> Recording:
    """The recording in the *content* of ``recording.json``.

    NewerError if it is of a later schema; ReadingError if it is damaged.
    """
    schema = schema_of(content)
    if schema > SCHEMA:
        raise NewerError(f"`schema` is {schema}; this version reads schemas up to {SCHEMA}")
    if schema == SCHEMA:
        return decode(content, _RECORDING)
    made = decode(content, _JSON)
    try:
        while schema < SCHEMA:
            step = _STEPS.get(schema)
            if step is None:
                raise ReadingError(f"`schema` is {schema}; the oldest schema is {min(_STEPS)}")
            step(made)
            schema += 1
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ReadingError(f"is not a recording of schema {made['schema']} ({what})") from error
    made["schema"] = SCHEMA
    return decode(msgspec.json.encode(made), _RECORDING)


# --- from 2 to 3: a block had the reStructuredText of its page, with sphinx-gallery's markup ------

_DATA = re.compile(
    r"(\n\.\. container:: gallery-data\n\n   :download:`[^`\n]*` \([^)\n]*\)\n\n?)+\Z"
)
_BOX = re.compile(
    r"\.\. rst-class:: sphx-glr-script-out(| gallery-stderr)\n\n \.\. code-block:: none\n\n"
    r"((?:    .*\n|[ \t]*\n)+)\Z"
)
_HTML = (
    '.. raw:: html\n\n    <div class="output_subarea output_html rendered_html output_result">\n'
)
_PYTB = ".. rst-class:: sphx-glr-script-out\n\n.. code-block:: pytb\n"


def _from_2(made: dict[str, Any]) -> None:
    for block in made["blocks"]:
        _take_apart(block)


def _take_apart(block: dict[str, Any]) -> None:
    """Replace a block's ``rst`` by figures and printed text."""
    rst, value = _DATA.sub("", block.pop("rst", "")), block.pop("value", None)
    apart = False
    if (box := _BOX.search(rst)) and box[1]:
        apart, rst = True, rst[: box.start()]
    printed = block.get("stdout", "") if not rst.strip() else ""
    if value and value["kind"] == "html" and _HTML in rst:
        rst = rst[: rst.rindex(_HTML)]
        block["value"] = {"text/html": value["text"]}
    if box := _BOX.search(rst.rstrip() + "\n"):
        rst = rst[: box.start()]
        printed = re.sub("^    ", "", box[2], flags=re.MULTILINE)
        text = value["text"] if value and value["kind"] == "text" else ""
        if text and printed.rstrip("\n").endswith(text):
            printed = printed.rstrip("\n").removesuffix(text)[:-1]
            block["value"] = {"text/plain": text}
    elif block.get("exception") is not None and _PYTB in rst:
        rst, printed = rst[: rst.index(_PYTB)], block.get("stdout", "")
    is_as_printed = printed.rstrip("\n") == block.get("stdout", "").rstrip("\n")
    if not is_as_printed or (block.get("stderr") and not apart):
        block["shown"] = printed
    if rst.strip():
        figure = markup.figure_of(rst, block.get("images", ()))
        block["figures"] = [msgspec.to_builtins(figure)]


#: The step from each older schema to the next one.
_STEPS: dict[int, Callable[[dict[str, Any]], None]] = {2: _from_2}
