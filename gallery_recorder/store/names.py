"""Names of files and folders that mean the same on every system.

Git, downloads and a published site travel: to systems that do not tell ``A.csv`` from ``a.csv``, or
that keep some names for devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from unicodedata import normalize

#: A name of a file or folder: nothing hidden, no step upwards, no control character.
PART = r"[^\x00-\x1f\x7f/\\.][^\x00-\x1f\x7f/\\]*"

#: A path below a folder.
PATTERN = rf"^{PART}(?:/{PART})*\Z"

#: Windows takes these for devices, whatever follows a dot.
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[\d¹²³]) *(\..*)?", re.IGNORECASE)


def is_portable(name: str) -> bool:
    """Whether every system can have a file called *name*, as far as its letters go."""
    return not _DEVICE.fullmatch(name) and not name.endswith((".", " "))


def is_path(name: str) -> bool:
    """Whether every system can have a file *name*, a path below a folder."""
    return (
        re.match(PATTERN, name) is not None
        and len(name) <= 240
        and all(is_portable(part) for part in name.split("/"))
    )


def twin(name: str, others: Iterable[str]) -> str | None:
    """Which of *others* differs from *name* in case only, or in how its accents are written."""
    same = normalize("NFC", name.casefold())
    return next((o for o in others if o != name and normalize("NFC", o.casefold()) == same), None)


def order_of(variant: str) -> list[tuple[int, int | str]]:
    """What variants are sorted by, versions as numbers: ``a-3.9`` comes before ``a-3.10``."""
    parts = re.findall(r"\d+|\D+", variant)
    return [(1, int(part)) if part.isdecimal() else (0, part) for part in parts]
