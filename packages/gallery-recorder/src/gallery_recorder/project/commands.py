"""Commands for messages, in a form that works on this machine."""

import shlex
import shutil
from collections.abc import Sequence


def command() -> str:
    """The recorder's command; ``python -m gallery_recorder`` where it is not installed."""
    own = "gallery-recorder"
    return own if shutil.which(own) else "python -m gallery_recorder"


def record(names: Sequence[str], *options: str) -> str:
    """The command that records the examples *names*."""
    return f"{command()} {shlex.join(['record', *names, *options])}"


def record_again(name: str) -> str:
    """The advice to record the example *name* again."""
    return f"record it again with: {record([name], '--force')}"
