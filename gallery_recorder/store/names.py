"""Names of files and folders that mean the same on every system.

Git, downloads and a published site travel: to systems that do not tell ``A.csv`` from ``a.csv``, or
that keep some names for devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Windows takes these for devices, whatever follows a dot.
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9])(\..*)?", re.IGNORECASE)


def is_portable(name: str) -> bool:
    """Whether every system can have a file called *name*, as far as its letters go."""
    return not _DEVICE.fullmatch(name) and not name.endswith((".", " "))


def twin(name: str, others: Iterable[str]) -> str | None:
    """Which of *others* differs from *name* in upper and lower case only."""
    return next((o for o in others if o != name and o.casefold() == name.casefold()), None)
