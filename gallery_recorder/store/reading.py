"""Read a file that somebody else may have put there: a plain file, not too large, whole JSON.

Whatever lies under the name, reading it ends: a pipe is not waited for, a device not read to its
end, and what is in the file raises :class:`ReadingError` and nothing else.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

_Value = TypeVar("_Value")

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class ReadingError(Exception):
    """A file that cannot be read; says why, and leaves it to the caller to say which."""


class ContentError(ReadingError):
    """A file of JSON that does not say what it should."""


class NewerError(ReadingError):
    """A file that a newer version of this package wrote."""


class _Schema(msgspec.Struct):
    schema: int


_SCHEMA = msgspec.json.Decoder(_Schema)


def read_file(path: Path, limit: int) -> bytes:
    """The content of the plain file *path*, which must not be larger than *limit* bytes.

    A symbolic link is no plain file: it could lead to any file of the machine.

    Raises:
        ReadingError: it is missing, too large, or something else.
    """
    if path.is_symlink():
        raise ReadingError("is a symbolic link, not a plain file")
    try:
        # Opened without waiting: a pipe that nobody writes to would be waited for for ever.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise ReadingError(f"cannot be read ({_reason(error)})") from error
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            kind = _KINDS.get(stat.S_IFMT(state.st_mode), "something else")
            raise ReadingError(f"is {kind}, not a plain file")
        if state.st_size > limit:
            raise ReadingError(f"has {state.st_size:,} bytes; the limit is {limit:,}")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise ReadingError(f"cannot be read ({_reason(error)})") from error
    finally:
        os.close(descriptor)
    if len(content) > limit:  # it grew, or its system tells no size
        raise ReadingError(f"has more than {limit:,} bytes")
    return content


def decode(
    content: bytes, decoder: msgspec.json.Decoder[_Value], schema: int | None = None
) -> _Value:
    """What the JSON in *content* says, as *decoder* wants it, which is of this *schema*.

    Raises:
        NewerError: it is of a later schema.
        ContentError: it does not say what it should.
        ReadingError: it is no JSON, or of an earlier schema.
    """
    try:
        if schema is not None and (found := _SCHEMA.decode(content).schema) != schema:
            kind = NewerError if found > schema else ReadingError
            raise kind(f"`schema` is {found}, but this version reads schema {schema}")
        return decoder.decode(content)
    except msgspec.ValidationError as error:  # Expected `str`, got `int` - at `$.run.recorded`
        text, at, field = str(error).partition(" - at `$")
        field = field.removesuffix("`").lstrip(".")
        raise ContentError(f"`{field}`: {text}" if at else text) from error
    except UnicodeDecodeError as error:
        raise ReadingError(f"is not whole JSON (not UTF-8: {error.reason})") from error
    except RecursionError as error:
        raise ReadingError("is not whole JSON (nested too deep)") from error
    except ValueError as error:  # msgspec's, and Python's for a number of thousands of digits
        raise ReadingError(f"is not whole JSON ({error})") from error


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
