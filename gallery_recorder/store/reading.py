"""Read the files of a recording, which is data from a pull request.

Reading ends in bounded time and memory, whatever the file is, and raises only ReadingError.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gallery_recorder.console import visible
from gallery_recorder.errors import RecorderError

_Value = TypeVar("_Value")

#: Bytes of any file of a recording, far more than the recorder accepts.
MAX_READ = 256_000_000
#: Bytes of JSON that is read into memory, where it has thirty times that size.
MAX_JSON = 32_000_000
#: Levels of lists and objects in JSON.
MAX_DEPTH = 100


class ReadingError(RecorderError):
    """A file that cannot be read; the message is one line with the reason."""


class NewerError(ReadingError):
    """A file that a newer version of this package wrote."""


class _Schema(msgspec.Struct):
    schema: int


_SCHEMA = msgspec.json.Decoder(_Schema)


def load(path: Path, kind: type[_Value], limit: int = MAX_JSON) -> _Value:
    """The JSON in the file *path* as a value of the msgspec type *kind*.

    A file whose name ends with ``.gz`` is unpacked; *limit* bounds its bytes before and after.
    ReadingError otherwise, with a message of one line that names the file.
    """
    try:
        content = read_file(path, limit)
        content = unpack(content, limit) if path.suffix == ".gz" else content
        return decode(content, msgspec.json.Decoder(kind))
    except ReadingError as error:
        raise ReadingError(f"{path}: {line(error)}") from error


def read_file(path: Path, limit: int = MAX_READ) -> bytes:
    """The content of the plain file *path* of at most *limit* bytes; ReadingError otherwise."""

    def opened(name: str, flags: int) -> int:
        # To open a pipe without O_NONBLOCK is to wait for its writer. Windows has neither.
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))

    try:
        with open(path, "rb", opener=opened) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ReadingError("is not a plain file")
            content = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise ReadingError(f"cannot be read ({getattr(error, 'strerror', error)})") from error
    if len(content) > limit:
        raise ReadingError(f"has more than {limit:,} bytes")
    return content


def unpack(content: bytes, limit: int) -> bytes:
    """The unpacked *content* of a gzip file, at most *limit* bytes; ReadingError otherwise."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ReadingError(f"is not a whole gzip file ({error})") from error
    if len(unpacked) > limit:
        raise ReadingError(f"unpacks to more than {limit:,} bytes")
    return unpacked


def decode(
    content: bytes, decoder: msgspec.json.Decoder[_Value], schema: int | None = None
) -> _Value:
    """The JSON in *content* as the type of *decoder*, of the version *schema* if given.

    NewerError if it is of a later schema; ReadingError if it is anything else.
    """
    try:
        if schema and (found := _SCHEMA.decode(content).schema) != schema:
            kind = NewerError if found > schema else ReadingError
            raise kind(f"`schema` is {found}, but this version reads schema {schema}")
        value = decoder.decode(content)
        level = [msgspec.to_builtins(value)]
    except msgspec.ValidationError as error:
        raise ReadingError(line(error).replace("`$.", "`")) from error
    except (ValueError, RecursionError) as error:
        raise ReadingError(f"is not whole JSON ({line(error)})") from error
    for _ in range(MAX_DEPTH + 1):
        level = [inner for outer in level for inner in _inner(outer)]
    if level:
        raise ReadingError(f"is nested more than {MAX_DEPTH} levels deep")
    return value


def _inner(value: Any) -> Sequence[Any]:
    value = [*value.values()] if isinstance(value, dict) else value
    return value if isinstance(value, list | tuple) else []


def line(error: Exception) -> str:
    """The message of *error* as one line of bounded length: it may quote the file."""
    return visible(" ".join(str(error).split()))[:400]
