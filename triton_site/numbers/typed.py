"""Numbers that are written as no reader should find them.

A number with a unit that somebody typed into the prose holds on one GPU, and is forgotten at the
next recording: it is a ``:measured:`` role, which is computed. What follows from a kernel's
arguments (64 × 64, 12 bytes) holds everywhere. A printed count has separators: 131,072.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gallery_recorder.api import Script

_MARKUP = re.compile(r":[\w:-]+:`[^`]*`|``[^`]*``|`[^`]*`_{0,2}")
_MEASURED = re.compile(
    r"(?<![\w.,])\d[\d.,]*[\s\N{NO-BREAK SPACE}]*"
    r"(?:GB/s|TB/s|[GT](?:FLOPS|[Ff][Ll][Oo][Pp]s?(?:/s)?)|[µumn]s|(?:milli|micro|nano)seconds?|%|percent"
    r"|[MG]Hz|W|×(?!\s*\w)|[x×] (?:faster|slower|as|the)"
    r"|times (?:as|the|faster|slower|longer|more|less|its))(?!\w)"
)
_COUNT = re.compile(r"(?<![\w.,/#@:+-])[1-9]\d{4,}(?![\w./])")
#: ``# sphinx_gallery_shows`` of a block that prints addresses or bits.
PLAIN = "plain digits"


def in_prose(script: Script) -> Iterator[str]:
    """The numbers with a unit that are typed into the prose of *script*."""
    for block in script.blocks:
        if block.type == "text":
            for match in _MEASURED.finditer(_MARKUP.sub("…", block.content)):
                number = " ".join(match[0].split())
                yield f"{script.source}: {number!r} is typed; make it a :measured: number"


def in_output(text: str) -> Iterator[str]:
    """The counts of more than four digits in an output that have no separators."""
    yield from dict.fromkeys(_COUNT.findall(text))
