"""What went wrong in a script, in words: the cause, the place, and what to do next."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

from gallery_recorder import seam
from gallery_recorder.project.script import CodeBlock, Script
from gallery_recorder.project.settings import SettingsError
from gallery_recorder.run.protocol import Failure, Refusal
from gallery_recorder.run.text import clean, name_of, said_by, shorten


def failure_of(
    error: BaseException,
    script: Script,
    current: CodeBlock | None,
    printed: list[bytes],
    shown: Callable[[str], str],
) -> Failure:
    """What *error* means, which block *current* raised; *shown* masks what is the machine's."""
    line = current.line if current else None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(script.path):
            line = frame.lineno
    detail = ""
    if isinstance(error, Refusal):
        cause, remedy = error.cause, error.remedy
    elif isinstance(error, SystemExit):
        said = shorten(clean(said_by(error.code, repr))).strip()  # what is longer is not sent
        cause = f"ended itself with sys.exit({said})"
        remedy = (
            "A script runs to its last block. Raise an exception where something is wrong, "
            "and leave sys.exit out."
        )
    elif isinstance(error, SettingsError):
        cause, remedy = f"was not executed: {error}", "Correct conf.py."
    elif current is None and isinstance(error, OSError):
        cause = f"was executed, but could not be written: {error.strerror}"
        remedy = "Make room on the disk, or set the permissions, then record it again."
    else:
        detail = _traceback(error)
        cause, remedy = f"raised {name_of(error)}", _remedy(error, detail)
        texts = [clean(text).strip() for text in reversed(printed)]  # standard error first
        if last := next(filter(None, texts), ""):
            detail += "Printed before:\n" + indent("\n".join(last.splitlines()[-15:]), "  ")
    return Failure(
        cause=cause,
        remedy=remedy,
        detail=shown(shorten(clean(detail))),
        block=script.code.index(current) + 1 if current else None,
        of=len(script.code),
        line=line,
    )


def _traceback(error: BaseException) -> str:
    """The traceback of *error*, without the frames of sphinx-gallery and of this package."""
    own = str(Path(__file__).parents[1])
    formatted = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = formatted
    while part is not None:
        part.stack = traceback.StackSummary.from_list(
            [frame for frame in part.stack if not frame.filename.startswith((own, seam.FOLDER))]
        )
        part = part.__cause__ or part.__context__
    return "".join(formatted.format())


def _remedy(error: BaseException, detail: str) -> str:
    text = said_by(error)
    if isinstance(error, MemoryError):
        return "Use smaller sizes, or a machine with more memory."
    if name_of(error) in ("OutOfMemoryError", "OutOfResources") and "out of" in text:
        return (
            "Use smaller sizes, or say what the script needs, so that it is skipped on smaller "
            'GPUs: # sphinx_gallery_needs = "memory>=80GB"'
        )
    if "CUDA error" in text or "HIP error" in text or "device-side assert" in text:
        return (
            "A kernel started in this block, not always at this line, failed. Find it with "
            "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer."
        )
    if isinstance(error, ModuleNotFoundError):
        return "Install it where scripts are executed, then record the script again."
    if "socket.gaierror: " in detail:  # that, or what led to it
        return "It asks a machine that is not found from here: record it where there is a network."
    if isinstance(error, FileNotFoundError):
        return "There is what lies beside it and what is installed, not what another script writes."
    return "Correct the script, then record it again."
