"""The signals that ask the recorder to stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Signals:
    """Which signal asked the recorder to stop."""

    received: int | None = None


@contextlib.contextmanager
def heard(stop: threading.Event) -> Iterator[Signals]:
    """Let the signals that end a program set *stop* instead, so that nothing is left behind."""
    told = Signals()

    def handle(number: int, _frame: object) -> None:
        told.received = number
        stop.set()

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
    # Who ignores a signal from the start, as nohup does, goes on ignoring it.
    numbers = [n for n in numbers if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in numbers}
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # they mean nothing here, and end nothing
        if signal.getsignal(number) == signal.SIG_DFL:
            before[number] = signal.signal(number, lambda *_: None)
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
