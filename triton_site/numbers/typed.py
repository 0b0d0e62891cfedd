"""Numbers that are written as no reader should find them.

A number with a unit that somebody typed into the prose holds on one GPU, and is forgotten at the
next recording: it is a ``:measured:`` role, which is computed. What follows from a kernel's
arguments (64 × 64, 12 bytes) holds everywhere. A printed count has separators: 131,072.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gallery_recorder.api import Script

_MARKUP = re.compile(r":[\w:-]+:`[^`]*`|``[^`]*``|`[^`]*`_{0,2}")
_MEASURED = re.compile(
    r"(?<![\w.,])\d[\d.,]*(?:\*\*)?[\s\N{NO-BREAK SPACE}]*"
    r"(?:[KMGTP]i?B(?:/s| (?:per|a) second)|[GTP](?:FLOPS|[Ff][Ll][Oo][Pp]s?(?:/s)?)"
    r"|[µμumn]s(?:ec)?|(?:milli|micro|nano)seconds?|%|per[ -]?cent"
    r"|[MG]Hz|W|°C|×(?!\s*\w)|[x×] (?:faster|slower|as|the)"
    r"|times (?:as|the|faster|slower|longer|more|less|its))(?!\w)|\b\d+\.\d+x\b"
)
_COUNT = re.compile(r"(?:(?<![\w.,/#@:+-])|(?<![^\s(\[=])-)[1-9]\d{4,}(?![\w/]|\.\w)")
_CODE = re.compile(
    r"^( *)\.\. code-block::.*\n(?:\1 +.*\n|\s*\n)*|^ *(?:>>>|\.\.\.) .*", re.MULTILINE
)
#: Where pages written by hand stand, below docs/ or beside the scripts.
_PAGES = (
    *(f"docs/{at}*.rst" for at in ("", "getting-started/", "python-api/", "python-api/*/")),
    *(f"docs/programming-guide/{at}*.rst" for at in ("", "chapter-[12]/")),
    *(f"{at}/GALLERY_HEADER.rst" for at in ("tutorials", "tutorials/solutions", "guide/*")),
)
#: What these pages may say: facts of the hardware, and the noise that `releases.py` defines.
_STATED = ("4800 GB/s", "1.98 GHz", "2 %")
#: ``# sphinx_gallery_shows`` of a block that prints addresses or bits.
PLAIN = "plain digits"


def in_prose(script: Script) -> Iterator[str]:
    """The numbers with a unit that are typed into the prose of *script*."""
    for block in script.blocks:
        if block.type == "text":
            for number in _typed(block.content):
                yield f"{script.source}: {number!r} is typed; make it a :measured: number"


def in_pages(root: Path) -> Iterator[str]:
    """The numbers with a unit that are typed into the pages below *root* that no script makes."""
    for path in sorted(path for pattern in _PAGES for path in root.glob(pattern)):
        for number in _typed(_CODE.sub("", path.read_text("utf-8", "replace"))):
            if number not in _STATED:
                at = path.relative_to(root)
                yield f"{at}: {number!r} is typed; make it a :measured: number"


def _typed(text: str) -> Iterator[str]:
    for match in _MEASURED.finditer(_MARKUP.sub("…", text)):
        yield " ".join(match[0].split())


def in_output(text: str) -> Iterator[str]:
    """The counts of more than four digits in an output that have no separators."""
    yield from dict.fromkeys(_COUNT.findall(text))
