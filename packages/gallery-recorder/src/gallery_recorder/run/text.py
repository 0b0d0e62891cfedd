"""Printed text as recordings keep it: as it looks on a screen, the same on every machine."""

import os
import re
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # window titles and links
    r"|[ -/]*[0-~])"
)
#: Control characters, and line separators that editors do not show.
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}\b")


def clean(output: bytes | str) -> str:
    r"""*output* as it looks on a screen, as plain text that ends with one newline.

    Colours are removed, a carriage return overwrites its line, bytes that are not UTF-8 and control
    characters become ``\xNN``, and tabs become spaces.
    """
    text = output.decode("utf-8", "backslashreplace") if isinstance(output, bytes) else output
    text = without_colors(encodable(text))
    lines = [_overwrite(line).expandtabs() for line in text.split("\n")]
    shown = (_INVISIBLE.sub(lambda c: ascii(c.group())[1:-1], line).rstrip() for line in lines)
    text = "\n".join(shown).rstrip("\n")
    return text + "\n" if text else ""


def without_colors(text: str) -> str:
    """*text* without terminals' escape sequences."""
    return _ESCAPE_SEQUENCE.sub("", text)


def encodable(text: str) -> str:
    r"""*text* with lone surrogates, which UTF-8 cannot encode, as ``\udc80``."""
    return text.encode("utf-8", "backslashreplace").decode()


def shorten(text: str, width: int = 500, lines: int = 120) -> str:
    """*text* for a report: without the middle of a long line and of many lines."""
    found = text.splitlines()
    for number, line in enumerate(found):
        if (left_out := len(line) - width) > 0:
            found[number] = (
                f"{line[: width // 2]} … {left_out:,} characters … {line[-width // 2 :]}"
            )
    if (left_out := len(found) - lines) > 0:
        found[lines // 2 : -(lines // 2)] = [f"… {left_out:,} lines …"]
    return "".join(f"{line}\n" for line in found)


def _overwrite(line: str) -> str:
    """*line* as a terminal shows it: after a carriage return, text overwrites the line."""
    *earlier, shown = line.split("\r")
    for part in reversed(earlier):  # of an earlier part, only a longer end stays visible
        shown += part[len(shown) :]
    return shown


class Paths:
    """Replaces paths of this machine in a text by names that are the same everywhere."""

    def __init__(self, names: dict[Path, str]) -> None:
        known = {}
        for path, name in names.items():
            known[str(path)] = name
            known[os.path.realpath(path)] = name
        self._names = known
        # The longest path first, so that a folder does not hide the folders below it.
        either = "|".join(re.escape(p) for p in sorted(known, key=len, reverse=True) if p != "/")
        self._pattern = re.compile(rf"(?<![\w.-])(?:{either})(?![\w-])")

    def name(self, text: str) -> str:
        """*text* with the name of every known path."""
        return self._pattern.sub(lambda match: self._names[match.group()], text)


def mask_addresses(text: str) -> str:
    """Replace the address of an object, which differs in each run, by ``at 0x…``."""
    return _ADDRESS.sub("at 0x…", text)


def name_paths(text: str) -> str:
    """Replace the folders of Python, its packages and the user by ``<packages>``, ``~``, etc."""
    return _machine_paths().name(text)


@lru_cache(maxsize=1)
def _machine_paths() -> Paths:
    found = {Path(os.path.expanduser("~")): "~"}
    found |= {Path(p): "<python>" for p in (sys.prefix, sys.base_prefix)}
    found |= {Path(p): "<packages>" for p in sys.path if os.path.isabs(p)}
    found[Path(sysconfig.get_path("stdlib"))] = "<python>/lib"
    # /usr is the same everywhere.
    return Paths({path: name for path, name in found.items() if len(path.parts) > 2 or name == "~"})
