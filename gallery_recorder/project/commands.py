"""The commands that messages name: those that exist in the project at hand."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path


def command() -> str:
    """How the recorder is started here: by its own command, or as a module of Python."""
    if Path(sys.argv[0]).name == "gallery-recorder" or shutil.which("gallery-recorder"):
        return "gallery-recorder"
    return "python -m gallery_recorder"


def record(names: Sequence[str], *options: str) -> str:
    """The command that records the scripts *names*."""
    return f"{command()} {shlex.join(['record', *names, *options])}"


def record_again(name: str) -> str:
    """The advice to record the script *name* again."""
    return f"record it again with: {record([name], '--force')}"
