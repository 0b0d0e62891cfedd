"""What a project says of a recording: its software, and how a device is called that is none.

The event ``gallery-facts`` has the recording; its handlers return lists of :class:`Fact`.
"""

from __future__ import annotations

from typing import NamedTuple

from sphinx.application import Sphinx

from gallery_recorder.store.format import Recording


class Fact(NamedTuple):
    """Something that a project says of a recording: ``Triton``, ``3.6.0``.

    ``line`` is what the line under a page's title says of it, ``column`` the head of its column in
    tables of recordings; without these, it is not there. What was ``measured`` follows the time.
    The fact *Device* says how a device is called that is none.
    """

    name: str
    text: str
    line: str = ""
    column: str = ""
    measured: bool = False


def facts_of(app: Sphinx, made: Recording) -> list[Fact]:
    """What the project's extensions say of a recording."""
    return [fact for facts in app.emit("gallery-facts", made) for fact in facts or ()]
