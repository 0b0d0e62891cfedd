"""Printed text, as it is recorded: what a reader would have seen, the same on every machine.

What a program prints has colours, progress bars that write over themselves, bytes that are no
text, and paths of the machine that it ran on. A recording keeps what remains on the screen.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # window titles and links
    r"|[ -/]*[0-~])"
)
#: Characters that change the direction of the text around them, break a line where none is seen, or
#: are seen by nobody: with them a text reads as something that it is not.
_DECEIVING = re.compile(
    "[\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}\b")


def clean(output: bytes | str) -> str:
    r"""What *output* looks like on a screen, as plain text that ends with one newline.

    Colours are dropped, a carriage return writes over its line, bytes that are not UTF-8 and
    control characters are written as ``\xNN``, what turns the direction of text as ``\u202e``,
    and tabs become spaces.
    """
    text = output.decode("utf-8", "backslashreplace") if isinstance(output, bytes) else output
    text = _ESCAPE_SEQUENCE.sub("", text).replace("\r\n", "\n")
    lines = [_visible(_overwrite(line).expandtabs()).rstrip() for line in text.split("\n")]
    text = "\n".join(lines).rstrip("\n")
    return text + "\n" if text else ""


def shorten(text: str, width: int = 500, lines: int = 120) -> str:
    """*text* for a report: the middle of a long line and of many lines is left out, and told."""
    found = [_shorten_line(line, width) for line in text.splitlines()]
    if len(found) > lines:
        left_out = len(found) - lines
        half = lines // 2
        found[half : len(found) - lines + half] = [f"… {left_out:,} lines …"]
    return "".join(f"{line}\n" for line in found)


def _shorten_line(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    half = width // 2
    return f"{line[:half]} … {len(line) - 2 * half:,} characters … {line[-half:]}"


def name_of(error: BaseException) -> str:
    """The name of the class of *error*, whatever that class does to hide it, or hides in it."""
    name = type.__dict__["__name__"].__get__(type(error))
    return _shorten_line(" ".join(clean(name).split()), 100)


def said_by(value: object, how: Callable[[object], str] = str) -> str:
    """``str(value)``, or *how* else it is to be said; what happened where that raises."""
    try:
        return how(value)
    except BaseException as error:
        return f"<{how.__name__}() of it raised {name_of(error)}>"


def _overwrite(line: str) -> str:
    """Let each carriage return in *line* begin it anew, as a terminal does."""
    *earlier, shown = line.split("\r")
    for part in reversed(earlier):  # from the last one: what is seen of each is what sticks out
        shown += part[len(shown) :]
    return shown


def _visible(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(
        f"\\x{ord(c):02x}" if unicodedata.category(c) == "Cc" else c for c in undeceiving(line)
    )


def undeceiving(text: str) -> str:
    r"""*text* with what turns its direction, or is seen by nobody, written as ``\u202e``."""
    return _DECEIVING.sub(lambda match: ascii(match.group())[1:-1], text)


class Paths:
    """Replaces the paths of this machine in a text by names that mean the same everywhere."""

    def __init__(self, names: dict[Path, str]) -> None:
        known = {}
        for path, name in names.items():
            known[str(path)] = name
            known[os.path.realpath(path)] = name
        # A path below another one comes first, so that the longer one is found.
        self._names = dict(sorted(known.items(), key=lambda item: -len(item[0])))
        either = "|".join(re.escape(path) for path in self._names if path != "/")
        self._pattern = re.compile(rf"(?<![\w.-])(?:{either})(?![\w-])")

    def name(self, text: str) -> str:
        """*text* with every known path by its name."""
        return self._pattern.sub(lambda match: self._names[match.group()], text)


# --- filters, for gallery_filters in conf.py -----------------------------------------------------


def mask_addresses(text: str) -> str:
    """An object's address, which is another one each time, becomes ``at 0x…``."""
    return _ADDRESS.sub("at 0x…", text)


def name_paths(text: str) -> str:
    """Where this Python, its packages and its user live becomes ``<packages>``, ``~`` and so on."""
    return _machine_paths().name(text)


@lru_cache(maxsize=1)
def _machine_paths() -> Paths:
    library = Path(sysconfig.get_path("stdlib"))
    found = {
        Path(os.path.expanduser("~")): "~",
        Path(sys.prefix): "<python>",
        Path(sys.base_prefix): "<python>",
    }
    found |= {Path(p): "<packages>" for p in sys.path if os.path.isabs(p)}
    found |= {library: "<python>/lib", library / "lib-dynload": "<python>/lib/lib-dynload"}
    # /usr is the same everywhere, and a name for it would be a puzzle.
    return Paths({path: name for path, name in found.items() if len(path.parts) > 2 or name == "~"})
