"""The message about an example that failed: cause, place, and what to do next."""

import errno
import traceback
from collections.abc import Callable
from textwrap import indent

from msgspec.structs import replace

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.script import CodeBlock, Script
from gallery_recorder.run import provenance
from gallery_recorder.run.protocol import Failure, Refusal, Run
from gallery_recorder.run.text import Paths, clean, shorten
from gallery_recorder.run.workspace import Workspace
from gallery_recorder.store.format import SCHEMA, Block, Recording, RunFacts


def failure_of(
    error: BaseException,
    script: Script,
    current: CodeBlock | None,
    printed: list[bytes],
    shown: Callable[[str], str],
) -> Failure:
    """The failure that *error* means, raised in the block *current*.

    *printed* is the output of the block, standard output first; *shown* masks paths in a text.
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
        remedy = "Remove the call of sys.exit; raise an exception where something is wrong."
    elif isinstance(error, RecorderError):
        cause, remedy = f"was not executed: {error}", "Correct conf.py."
    else:
        trace = trace or error.__traceback__
        detail = "".join(traceback.format_exception(type(error), error, trace))
        cause, remedy = f"raised {type(error).__name__}", _remedy(error)
        if last := clean(printed[1]).strip() or clean(printed[0]).strip():
            detail += "Printed before:\n" + indent("\n".join(last.splitlines()[-15:]), "  ")
    return Failure(
        cause=shown(cause),
        remedy=remedy,
        detail=shown(shorten(clean(detail))),
        block=script.code.index(current) + 1 if current else None,
        of=len(script.code),
        line=line,
    )


def recorded(run: Run, script: Script, at: Workspace, failure: Failure) -> Recording:
    """The recording of a *failure* that ended the process: all that was printed, and the reason."""
    copied = at.copied(run.example.path, run.top)
    paths = Paths({copied: run.example.source, at.tmp: "<tmp>", at.folder: "<workspace>"})
    written = at.stdout.read_bytes()[-20_000:] + at.stderr.read_bytes()[-20_000:]
    printed = paths.name(clean(written))
    text, number = failure.told(run.example.source), failure.block or 1
    blocks = [Block(code.line, code.key, 0.0, code.block.content) for code in script.code]
    last = replace(blocks[number - 1], passed=False, exception=text, stdout=printed)
    return Recording(
        schema=SCHEMA,
        gallery=run.example.gallery,
        name=run.example.name,
        title=script.title,
        key=script.key,
        variant=run.settings.variant,
        run=RunFacts(provenance.now(), 0.0, status="failed", timed=False),
        provenance=provenance.of_this_process(run.device, run.kind),
        blocks=(*blocks[: number - 1], last, *blocks[number:]),
    )


def _remedy(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EACCES):
        return "Make room on the disk or set the permissions, then record it again."
    if isinstance(error, MemoryError):
        return "Use smaller sizes, or a machine with more memory."
    if type(error).__name__ in ("OutOfMemoryError", "OutOfResources") and "out of" in text:
        skip = '# sphinx_gallery_needs = "memory>=80GB"'
        return f"Use smaller sizes, or skip the example on smaller GPUs with {skip}"
    if "CUDA error" in text or "HIP error" in text or "device-side assert" in text:
        return (
            "A kernel that this block launched has failed, perhaps one of an earlier line. Find it "
            "with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer."
        )
    if isinstance(error, ModuleNotFoundError):
        return "Install the package where examples are executed, then record the example again."
    return "Correct the example, then record it again."
