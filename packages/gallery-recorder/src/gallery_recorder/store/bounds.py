"""Checks of recordings with the bounds of a project: what a page of one may cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gallery_recorder.project import settings
from gallery_recorder.project.settings import Settings
from gallery_recorder.store.format import Block, Recording
from gallery_recorder.store.reading import ReadingError, line

#: Text on a page per byte that a block may print: it is kept apart and joined, and cleaning it
#: writes some bytes as several characters.
_TEXT_PER_OUTPUT = 4


def checks_of(said: Settings) -> list[Callable[[Path, Recording], None]]:
    """The checks of recordings in a project: of the text on a page, and those of its probes."""
    limit = int(said.limits["output"]) * _TEXT_PER_OUTPUT

    def text_fits(folder: Path, recording: Recording) -> None:
        del folder
        for number, block in enumerate(recording.blocks):
            if _length_of_text(block) > limit:
                raise ReadingError(
                    f"`blocks[{number}]` has {_length_of_text(block):,} characters of text; "
                    f"gallery_limits in conf.py allows {limit:,}"
                )

    return [text_fits, *map(_contained, settings.checks(said))]


def _length_of_text(block: Block) -> int:
    """The number of characters that a page shows of *block*, without HTML."""
    texts = [block.stdout, block.stderr, block.shown, block.exception, block.failure, block.code]
    texts.append(block.value.get("text/plain"))
    return sum(len(text) for text in texts if text)


def _contained(check: Any) -> Callable[[Path, Recording], None]:
    """The *check* of a probe, of which any error is an error of the recording."""

    def contained(folder: Path, recording: Recording) -> None:
        try:
            check(folder, recording)
        except ReadingError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {line(error)}"
            raise ReadingError(f"`probes` cannot be checked ({what})") from error

    return contained
