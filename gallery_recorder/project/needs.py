"""A script's own settings: ``# sphinx_gallery_timeout = …`` and ``# sphinx_gallery_needs = …``."""

from __future__ import annotations

import re

import msgspec
from packaging.version import Version

from gallery_recorder.project.script import Script, ScriptError

_NEED = re.compile(r"compute_capability\s*>=\s*(\d+\.\d+)|memory\s*>=\s*(\d+)\s*GB")


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that scripts can be recorded on.

    Attributes:
        identity: unique among the GPUs of the machine.
        visible: the variables with which a process sees only this GPU.
        memory: in bytes.
    """

    name: str
    identity: str
    visible: dict[str, str]
    memory: int
    compute_capability: str | None = None


def timeout_of(script: Script, default: float) -> float:
    """The time limit of *script* in seconds: its own, or *default*; ScriptError for a wrong one."""
    value = script.settings.get("timeout", default)
    if type(value) not in (int, float) or not 0 < value < 1e9:
        raise ScriptError(
            f"{script.source}: sphinx_gallery_timeout = {value!r} is not a number of seconds. "
            "Write for example: # sphinx_gallery_timeout = 120"
        )
    return float(value)


def needs_of(script: Script) -> list[str]:
    """The GPU that *script* needs; empty if it can be executed anywhere. ScriptError if unclear."""
    parts = str(script.settings.get("needs", "")).split(",")
    found = [part.strip() for part in parts if part.strip()]
    for need in found:
        if not _NEED.fullmatch(need):
            raise ScriptError(
                f"{script.source}: {need!r} is not a need of a GPU. Write for "
                'example: # sphinx_gallery_needs = "compute_capability>=9.0, memory>=40GB"'
            )
    return found


def unmet_need(script: Script, gpu: Gpu | None) -> str | None:
    """The need of *script* that *gpu* does not meet; None if it can be executed there."""
    for need in needs_of(script):
        if gpu is None:
            return f"a GPU with {need}"
        capability, memory = _NEED.fullmatch(need).groups()  # type: ignore[union-attr]
        if memory and gpu.memory < int(memory) * 10**9:
            return f"{need}, and {gpu.name} has {gpu.memory / 10**9:.0f} GB"
        has = gpu.compute_capability
        if capability and (has is None or Version(has) < Version(capability)):
            return f"{need}, and {gpu.name} has {has or 'none'}"
    return None
