"""Which exercises are done, in a file beside ``exercise.pyz``."""

import contextlib
import datetime
import json
import zipimport
from pathlib import Path

NAME = "exercises-done.json"


def _file():
    """The file beside ``exercise.pyz``, or in the current folder for a checkout."""
    if isinstance(__loader__, zipimport.zipimporter):
        return Path(__loader__.archive).with_name(NAME)
    return Path(NAME)


def read():
    """The day on which each exercise was done first, by the exercise's name."""
    try:
        done = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return done if isinstance(done, dict) else {}


def note(name):
    """An exercise is done. Where the file cannot be written, that is not kept."""
    done = read()
    if name in done:
        return
    done[name] = datetime.date.today().isoformat()
    with contextlib.suppress(OSError):
        _file().write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
