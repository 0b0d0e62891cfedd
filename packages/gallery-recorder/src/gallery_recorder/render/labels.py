"""Facts that a project adds to recordings, and quantities in readable units.

Handlers of the event ``gallery-facts`` get a recording and return lists of :class:`Fact`.
"""

from datetime import datetime, timezone
from typing import NamedTuple

from rich import filesize
from sphinx.application import Sphinx

from gallery_recorder.store.format import Recording


class Fact(NamedTuple):
    """One fact about a recording: ``Triton``, ``3.6.0``.

    ``line`` is its text in the line under a page's title, which omits facts without it. A
    ``measured`` fact follows the time there. A fact named *Device* replaces the device's name.
    """

    name: str
    text: str
    line: str = ""
    measured: bool = False


def facts_of(app: Sphinx, made: Recording) -> list[Fact]:
    """The facts that the project's extensions add to a recording."""
    return [fact for facts in app.emit("gallery-facts", made) for fact in facts or ()]


#: ``3456789`` as ``3.5 MB``.
readable_bytes = filesize.decimal


def readable_seconds(seconds: float) -> str:
    """``75.2`` as ``1 min 15 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def readable_date(recorded: str) -> str:
    """``2026-11-20T17:00:00Z`` as ``20 November 2026``."""
    date = datetime.strptime(recorded, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return f"{date.day} {date:%B %Y}"
