"""Which tutorial runs where and when: the longest first, one at a time on each place.

It knows no clock and starts nothing, so that it can be tested with durations that nobody waits
for. Longest first keeps the last to finish within a third of the shortest possible time (Graham
1969), and in a gallery, where no tutorial takes most of the time, much closer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

Name = TypeVar("Name")
Place = TypeVar("Place")


class Scheduler(Generic[Name, Place]):
    """Tutorials waiting for places, such as GPUs.

    *seconds* says how long each tutorial took last time. One that was never recorded may be
    the longest, so it comes first.
    """

    def __init__(self, seconds: Mapping[Name, float | None], places: Iterable[Place]) -> None:
        self._waiting = sorted(
            seconds,
            key=lambda name: -float("inf") if seconds[name] is None else -seconds[name],
        )
        self._free = list(places)
        self._running: dict[Name, Place] = {}

    def start(self) -> Iterator[tuple[Name, Place]]:
        """Every tutorial that can begin now, with its place, which it has until it is finished."""
        while self._waiting and self._free:
            name, place = self._waiting.pop(0), self._free.pop(0)
            self._running[name] = place
            yield name, place

    def finish(self, name: Name) -> None:
        """Give back the place of *name*."""
        self._free.append(self._running.pop(name))

    @property
    def running(self) -> bool:
        """Whether a tutorial has a place."""
        return bool(self._running)
