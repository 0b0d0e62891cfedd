"""The commands in messages, as they can be called here."""

import shlex
import shutil
from collections.abc import Sequence


def command() -> str:
    """The command of the recorder: its own, or ``python -m`` where that is not installed."""
    own = "gallery-recorder"
    return own if shutil.which(own) else "python -m gallery_recorder"


def record(names: Sequence[str], *options: str) -> str:
    """The command that records the scripts *names*."""
    return f"{command()} {shlex.join(['record', *names, *options])}"


def record_again(name: str) -> str:
    """The advice to record the script *name* again."""
    return f"record it again with: {record([name], '--force')}"
