"""What the process of a script says that it did, compared with what it was told to do."""

from __future__ import annotations

from gallery_recorder.run.messages import Failure, Result, Run, ScriptFailedError
from gallery_recorder.run.staging import Staging
from gallery_recorder.source.project import decode
from gallery_recorder.store import reading

_MAX_RESULT = 256_000_000  # bytes


def read(run: Run, staging: Staging) -> Result:
    """What the process says that it did, where that is what it was told to do.

    Raises:
        ScriptFailedError: it says something else.
    """
    try:
        content = reading.read_file(staging.result, _MAX_RESULT)
        result = decode(content, Result)
    except (reading.ReadingError, ValueError, RecursionError) as error:
        raise _unbelievable(f"nothing that can be read ({error})") from error
    check(run, result)
    return result


def check(run: Run, result: Result) -> None:
    """Compare *result*, wherever it comes from, with the order *run*.

    Raises:
        ScriptFailedError: it is of something else.
    """
    if wrong := _wrong(run, result):
        raise _unbelievable(wrong)


def _unbelievable(told: str) -> ScriptFailedError:
    return ScriptFailedError(
        Failure(
            f"told of {told}",
            "The script changed what its own process tells the recorder. A script prints, "
            "draws and writes files; leave everything else as it is.",
        )
    )


def _wrong(run: Run, result: Result) -> str:
    """What in *result* does not fit the order *run*; nothing where all does."""
    where = result.provenance
    if (where.device, where.kind) != (run.device, run.kind):
        return f"another device, {where.device}, than {run.device}"
    if where.gpu is not None and run.kind != "gpu":
        return "a GPU where there is none"
    if len(result.blocks) != len(run.keys):
        return f"{len(result.blocks)} blocks where the script has {len(run.keys)}"
    if tuple(block.key for block in result.blocks) != run.keys:
        return "other blocks than the script has"
    if not run.may_fail and not (result.passed and all(block.passed for block in result.blocks)):
        return "a failure that it did not report"
    return ""
