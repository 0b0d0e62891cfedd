"""Read the files of a recording, which may come from a pull request.

Reading takes bounded time and memory, whatever the file holds, and raises only ReadingError.
"""

import gzip
import io
import re
import stat
import zlib
from pathlib import Path
from typing import TypeVar

import msgspec

from gallery_recorder.console import visible
from gallery_recorder.errors import RecorderError

_Value = TypeVar("_Value")
#: A pattern of names in a message, which nobody can read.
_LONG_PATTERN = re.compile(r"regex (?:'.{80,}'|\".{80,}\") - at")

#: The most bytes of a file of a recording, far more than the recorder accepts.
MAX_READ = 256_000_000
#: The most bytes of a JSON file; in memory it takes about thirty times as much.
MAX_JSON = 32_000_000
#: The most bytes of a JSON file that is unpacked: few packed bytes can become many.
MAX_UNPACKED = 8_000_000


class ReadingError(RecorderError):
    """A file cannot be read; the message is one line with the reason."""


class NewerError(ReadingError):
    """A file was written by a newer version of this package."""


def load(path: Path, kind: type[_Value], limit: int = MAX_JSON) -> _Value:
    """The JSON in the file *path* as a value of the msgspec type *kind*.

    A ``.gz`` file is unpacked to at most *limit* or ``MAX_UNPACKED`` bytes. Raises ReadingError,
    with a message of one line that names the file.
    """
    try:
        content = read_file(path, limit)
        if path.suffix == ".gz":
            content = _unpacked(content, min(limit, MAX_UNPACKED))
        return decode(content, msgspec.json.Decoder(kind))
    except (ReadingError, OSError, EOFError, zlib.error) as error:
        raise ReadingError(f"{path}: {line(error)}") from error


def _unpacked(content: bytes, limit: int) -> bytes:
    """The gzip file *content*, unpacked; ReadingError if that has more than *limit* bytes."""
    with gzip.open(io.BytesIO(content)) as file:
        unpacked = file.read(limit + 1)
    if len(unpacked) > limit:
        raise ReadingError(f"unpacks to more than {limit:,} bytes")
    return unpacked


def read_file(path: Path, limit: int = MAX_READ) -> bytes:
    """The content of the plain file *path*, at most *limit* bytes; else ReadingError."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
            raise ReadingError("is not a plain file")
        if status.st_size > limit:
            raise ReadingError(f"has more than {limit:,} bytes")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise ReadingError(f"cannot be read ({getattr(error, 'strerror', error)})") from error


def decode(content: bytes, decoder: msgspec.json.Decoder[_Value]) -> _Value:
    """The JSON in *content* as the type of *decoder*; ReadingError if it does not fit."""
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as error:
        text = _LONG_PATTERN.sub("regex … - at", " ".join(str(error).split()))
        raise ReadingError(visible(text).replace("`$.", "`")[:400]) from error
    except (ValueError, RecursionError) as error:
        raise ReadingError(f"is not valid JSON ({line(error)})") from error


def line(error: Exception) -> str:
    """The message of *error*, which may quote the file, as one line of bounded length."""
    return visible(" ".join(str(error).split()))[:400]
