"""The failure of an example: the message with cause, place and remedy, and the recording of it."""

import errno
import traceback
from collections.abc import Callable
from contextlib import suppress
from textwrap import indent

import msgspec
from msgspec.structs import replace

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.galleries import decode
from gallery_recorder.project.script import CodeBlock, Script
from gallery_recorder.run import provenance
from gallery_recorder.run.protocol import Failure, Finished, Refusal, Run
from gallery_recorder.run.text import Paths, clean, shorten
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.run.written import with_files
from gallery_recorder.store.format import Block, Recording, RunFacts


def failure_of(
    error: BaseException,
    script: Script,
    current: CodeBlock | None,
    printed: list[bytes],
    shown: Callable[[str], str],
) -> Failure:
    """The failure for *error*, which the block *current* raised.

    *printed* is the block's standard output and standard error; *shown* masks paths in a text.
    """
    line, trace = current.line if current else None, error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != str(script.path):
        trace = trace.tb_next  # frames of sphinx-gallery and of this package
    for frame in traceback.extract_tb(trace):
        if frame.filename == str(script.path):
            line = frame.lineno
    detail = ""
    if isinstance(error, Refusal):
        cause, remedy = error.args
    elif isinstance(error, SystemExit):
        cause = f"ended itself with sys.exit({shorten(repr(error.code)).strip()})"
        remedy = "Remove the call of sys.exit; to report an error, raise an exception."
    elif isinstance(error, ModuleNotFoundError) and error.name:
        cause, remedy = f"needs {error.name}, which is not installed", _remedy(error)
    elif isinstance(error, RecorderError):
        cause, remedy = f"was not executed: {error}", "Correct conf.py."
    else:
        trace = trace or error.__traceback__
        detail = "".join(traceback.format_exception(type(error), error, trace))
        cause, remedy = f"raised {type(error).__name__}", _remedy(error)
        if last := clean(printed[1]).strip() or clean(printed[0]).strip():
            detail += "It printed before:\n" + indent("\n".join(last.splitlines()[-15:]), "  ")
    return Failure(
        cause=shown(cause),
        remedy=remedy,
        detail=shown(shorten(clean(detail))),
        block=script.code.index(current) + 1 if current else None,
        of=len(script.code),
        line=line,
    )


def recording_of(
    run: Run, script: Script, at: Workspace, failure: Failure, made: Recording | None = None
) -> Recording:
    """The recording of a *failure*: the outputs of finished blocks, each in its place, and why.

    *made* is the recording that the worker wrote, if it came so far.
    """
    copied = at.copied(run.example.path, run.top)
    shown = Paths({copied: run.example.source, at.tmp: "<tmp>", at.folder: "<workspace>"}).name
    text = shown(failure.for_readers())
    if made:
        if made.run.status == "passed":  # it failed after its last block
            made = replace(
                made,
                run=replace(made.run, status="failed"),
                blocks=(*made.blocks[:-1], replace(made.blocks[-1], passed=False, failure=text)),
            )
        return made
    blocks = [Block(code.line, code.key, 0.0, code.block.content) for code in script.code]
    finished = []
    for line in at.finished.read_bytes().splitlines():
        with suppress(msgspec.DecodeError):  # the process was killed while it wrote this line
            finished.append(decode(line, Finished))
    for one in finished:
        blocks[one.number - 1] = one.block
    last = finished[-1] if finished else None
    number = min(failure.block or (last.number if last else 0) + 1, len(blocks))
    streams = zip((at.stdout, at.stderr), last.printed if last else (0, 0), strict=True)
    stdout, stderr = (shown(clean(path.read_bytes()[begin:][-20_000:])) for path, begin in streams)
    if last and last.number == number:
        blocks[number - 1] = replace(last.block, passed=False, failure=text)
    else:
        here = replace(blocks[number - 1], passed=False, failure=text, stdout=stdout, stderr=stderr)
        blocks[number - 1] = replace(here, shown=stdout)  # `text` quotes standard error already
    kept, files = with_files(blocks, last.files if last else (), at.recording)
    facts = RunFacts(provenance.now(), 0.0, status="failed", timed=False)
    where = provenance.of_run(run)
    return provenance.recording_of(
        run, script, run=facts, provenance=where, blocks=kept, files=files
    )


def _remedy(error: BaseException) -> str:
    text = ""
    with suppress(Exception):  # raised by `__str__` of the example's own class
        text = str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EACCES):
        return "Free space on the disk or correct the permissions, then record it again."
    if isinstance(error, MemoryError):
        return "Use smaller sizes, or a machine with more memory."
    if type(error).__name__ in ("OutOfMemoryError", "OutOfResources") and "out of" in text:
        skip = '# sphinx_gallery_needs = "memory>=80GB"'
        return f"Use smaller sizes, or skip the example on smaller GPUs with {skip}"
    if "CUDA error" in text or "HIP error" in text or "device-side assert" in text:
        return (
            "A kernel that this block launched failed, perhaps in an earlier line. Find it with "
            "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer."
        )
    if isinstance(error, ModuleNotFoundError):
        return "Install the package where examples are executed, then record the example again."
    return "Correct the example, then record it again."
