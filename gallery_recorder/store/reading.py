"""Read the files of a recording, which is data from a pull request.

Reading ends in bounded time and memory, whatever the file is, and raises only ReadingError.
"""

import gzip
import io
import stat
import zlib
from pathlib import Path
from typing import TypeVar

import msgspec

from gallery_recorder.console import visible
from gallery_recorder.errors import RecorderError

_Value = TypeVar("_Value")

#: Bytes of any file of a recording, far more than the recorder accepts.
MAX_READ = 256_000_000
#: Bytes of JSON that is read into memory, where it has thirty times that size.
MAX_JSON = 32_000_000


class ReadingError(RecorderError):
    """A file that cannot be read; the message is one line with the reason."""


class NewerError(ReadingError):
    """A file that a newer version of this package wrote."""


def load(path: Path, kind: type[_Value], limit: int = MAX_JSON) -> _Value:
    """The JSON in the file *path* as a value of the msgspec type *kind*.

    A file whose name ends with ``.gz`` is unpacked; *limit* bounds its bytes before and after.
    ReadingError otherwise, with a message of one line that names the file.
    """
    try:
        content = read_file(path, limit)
        if path.suffix == ".gz":
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(limit + 1)
            if len(content) > limit:
                raise ReadingError(f"unpacks to more than {limit:,} bytes")
        return decode(content, msgspec.json.Decoder(kind))
    except (ReadingError, OSError, EOFError, zlib.error) as error:
        raise ReadingError(f"{path}: {line(error)}") from error


def read_file(path: Path, limit: int = MAX_READ) -> bytes:
    """The content of the plain file *path* of at most *limit* bytes; ReadingError otherwise."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):  # to open a pipe is to wait for its writer
            raise ReadingError("is not a plain file")
        if status.st_size > limit:
            raise ReadingError(f"has more than {limit:,} bytes")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise ReadingError(f"cannot be read ({getattr(error, 'strerror', error)})") from error


def decode(content: bytes, decoder: msgspec.json.Decoder[_Value]) -> _Value:
    """The JSON in *content* as the type of *decoder*; ReadingError if it is anything else."""
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as error:
        raise ReadingError(line(error).replace("`$.", "`")) from error
    except (ValueError, RecursionError) as error:
        raise ReadingError(f"is not valid JSON ({line(error)})") from error


def line(error: Exception) -> str:
    """The message of *error* as one line of bounded length: it may quote the file."""
    return visible(" ".join(str(error).split()))[:400]
