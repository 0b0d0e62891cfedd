"""What a script asks for in its own file: the time it may take, and the GPU that it needs.

In sphinx-gallery's comment style, so that sphinx-gallery leaves the lines out of the page::

    # sphinx_gallery_timeout = 120
    # sphinx_gallery_needs = "compute_capability>=9.0, memory>=40GB"
"""

from __future__ import annotations

import re

import msgspec

from gallery_recorder.project.script import Script, ScriptError

_NEED = re.compile(
    r"compute_capability\s*>=\s*(?P<major>\d+)\.(?P<minor>\d+)|memory\s*>=\s*(?P<memory>\d+)\s*GB"
)


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that scripts can be recorded on.

    ``visible`` are the variables that show a process this GPU and no other, ``identity`` tells it
    from every other GPU of the machine, ``memory`` is in bytes, and ``compute_capability`` is such
    as ``9.0``; None where it has none.
    """

    name: str
    identity: str
    visible: dict[str, str]
    memory: int
    compute_capability: str | None = None


def timeout_of(script: Script, default: float) -> float:
    """The seconds that *script* may take, as it says itself or else *default*.

    Raises:
        ScriptError: it says something that is no time.
    """
    value = script.settings.get("timeout", default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ScriptError(
            f"{script.source}: sphinx_gallery_timeout = {value!r} is no time. Write the seconds: "
            "# sphinx_gallery_timeout = 120"
        )
    return float(value)


def needs_of(script: Script) -> list[str]:
    """What *script* needs of a GPU, in its words; empty where it can be executed anywhere.

    Raises:
        ScriptError: its needs cannot be understood.
    """
    said = script.settings.get("needs", "")
    found = [part.strip() for part in str(said).split(",") if part.strip()]
    for need in found:
        if not _NEED.fullmatch(need):
            raise ScriptError(
                f"{script.source}: sphinx_gallery_needs = {said!r} cannot be understood at "
                f"{need!r}. Write for example: # sphinx_gallery_needs = "
                '"compute_capability>=9.0, memory>=40GB"'
            )
    return found


def unmet_need(script: Script, gpu: Gpu | None) -> str | None:
    """What *script* needs and *gpu* does not have; None where it can be executed there.

    Raises:
        ScriptError: its needs cannot be understood.
    """
    for need in needs_of(script):
        if gpu is None:
            return f"a GPU with {need}"
        major, minor, memory = _NEED.fullmatch(need).groups()  # type: ignore[union-attr]
        if memory is None:
            has = [int(part) for part in (gpu.compute_capability or "").split(".") if part]
            if has < [int(major), int(minor)]:
                return f"{need}, and {gpu.name} has {gpu.compute_capability or 'none'}"
        elif gpu.memory < int(memory) * 10**9:
            return f"{need}, and {gpu.name} has {gpu.memory / 10**9:.0f} GB"
    return None
