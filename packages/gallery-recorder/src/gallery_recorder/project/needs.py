"""Settings in an example's comments: its timeout, its launcher and the GPUs that it needs."""

import re
import shlex
from collections.abc import Sequence

import msgspec
from packaging.version import Version

from gallery_recorder import seam
from gallery_recorder.project.script import Script, ScriptError
from gallery_recorder.project.settings import plain

#: sphinx-gallery's setting of a script that must not run beside others.
_PARALLEL = "parallel"

#: The setting of a block for the methods that show its last expression.
CAPTURE = "capture_repr_block"

_NEED = re.compile(
    r"compute_capability\s*>=\s*(\d+\.\d+)|memory\s*>=\s*(\d+)\s*GB"
    r"|gpus\s*>=\s*([1-9]\d{0,3})"
)


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that scripts can be recorded on.

    Attributes:
        identity: unique on the machine.
        visible: the variables that hide all other GPUs from a process.
        memory: in bytes.
    """

    name: str
    identity: str
    visible: dict[str, str]
    memory: int
    compute_capability: str | None = None


def timeout_of(script: Script, default: float) -> float:
    """The time limit of *script* in seconds, or *default*; ScriptError if its own is invalid."""
    value = script.settings.get("timeout", default)
    if type(value) not in (int, float) or not 0 < value < 1e9:
        raise ScriptError(
            f"{script.source}: sphinx_gallery_timeout = {value!r} is not a number of seconds. "
            "Write for example: # sphinx_gallery_timeout = 120"
        )
    return float(value)


def launcher_of(script: Script, default: tuple[str, ...]) -> tuple[str, ...]:
    """The command that starts the ranks of *script*, or *default*; empty for no launcher.

    ScriptError if the script's own launcher is invalid.
    """
    value = script.settings.get("launcher", default)
    try:
        return tuple(shlex.split(value)) if isinstance(value, str) else tuple(value)
    except (ValueError, TypeError) as error:
        raise ScriptError(
            f"{script.source}: sphinx_gallery_launcher = {value!r} is not a command. Write for "
            'example: # sphinx_gallery_launcher = "torchrun --nproc-per-node=2"'
        ) from error


def captured(script: Script, default: str) -> tuple[str, ...]:
    """For each code block of *script*, the methods that show its last expression, as a text.

    *default* is the text of sphinx-gallery's setting ``capture_repr``.
    """
    if "capture_repr" in script.settings:
        default = plain(script.settings["capture_repr"])
    found = []
    for code in script.code:
        own = seam.settings_in(code.block.content)
        found.append(plain(own[CAPTURE]) if CAPTURE in own else default)
    return tuple(found)


def needs_of(script: Script) -> list[str]:
    """The needs of *script*; empty if it runs anywhere. ScriptError if they are invalid."""
    parts = str(script.settings.get("needs", "")).split(",")
    found = [part.strip() for part in parts if part.strip()]
    for need in found:
        if not _NEED.fullmatch(need):
            raise ScriptError(
                f"{script.source}: {need!r} is not a valid need. Write for example: "
                '# sphinx_gallery_needs = "gpus>=2, compute_capability>=9.0, memory>=40GB"'
            )
    return found


def runs_beside_others(script: Script) -> bool:
    """Whether *script* may be executed at the same time as others (``sphinx_gallery_parallel``)."""
    return script.settings.get(_PARALLEL, True) is not False


def gpus_of(script: Script) -> int:
    """The number of GPUs for *script* on a machine with GPUs."""
    return max([int(count) for *_, count in _parts(script) if count], default=1)


def in_words(script: Script) -> str:
    """The GPUs that *script* needs, in words; empty if it runs anywhere."""
    found, count = needs_of(script), gpus_of(script)
    others = " and ".join(need for need in found if not need.startswith("gpus"))
    gpus = f"{count} GPUs" if count > 1 else "a GPU"
    return f"{gpus} with {others}" if others else gpus if found else ""


def unmet_need(script: Script, gpu: Gpu | None, count: int) -> str | None:
    """The first need of *script* that *count* GPUs like *gpu* do not meet; None if all are met."""
    if needs_of(script) and (gpu is None or count < gpus_of(script)):
        return in_words(script) + (f"; {count} can be used here" if gpu else "")
    for need, (capability, memory, _) in zip(needs_of(script), _parts(script), strict=True):
        assert gpu is not None
        if memory and gpu.memory < int(memory) * 10**9:
            return f"{need}; {gpu.name} has {gpu.memory / 10**9:.0f} GB"
        has = gpu.compute_capability
        if capability and (has is None or Version(has) < Version(capability)):
            return f"{need}; {gpu.name} has {has or 'none'}"
    return None


def _parts(script: Script) -> list[tuple[str | None, ...]]:
    """Compute capability, memory and number of GPUs in each need."""
    return [_NEED.fullmatch(need).groups() for need in needs_of(script)]  # type: ignore[union-attr]


def visible(gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variables that hide all but these *gpus* from a process."""
    return {
        name: ",".join(dict.fromkeys(gpu.visible[name] for gpu in gpus if name in gpu.visible))
        for name in {name: None for gpu in gpus for name in gpu.visible}
    }
