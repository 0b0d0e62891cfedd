"""Where and when a recording was made, as far as the engine knows without a probe."""

import platform
from collections.abc import Iterable
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from gallery_recorder.project.git import git
from gallery_recorder.project.script import Script
from gallery_recorder.run.protocol import Run
from gallery_recorder.store.format import SCHEMA, Provenance, Recording
from gallery_recorder.version import VERSION


def now() -> str:
    """The date and time, as a recording holds them."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def of_run(run: Run, **measured: Any) -> Provenance:
    """The provenance of *run* in this process; *measured* are fields that only the worker knows."""
    return Provenance(
        device=run.device,
        kind=run.kind,
        os=_operating_system(),
        python=platform.python_version(),
        versions=_versions(),
        commit=run.commit,
        **measured,
    )


def recording_of(run: Run, script: Script, /, **contents: Any) -> Recording:
    """The recording of *script* in this *run*, with other fields as in *contents*."""
    named = {"gallery": run.example.gallery, "name": run.example.name, "title": script.title}
    own = {"schema": SCHEMA, "key": script.key, "variant": run.settings.variant, **named}
    return Recording(**(own | contents))


def prepare() -> None:
    """Find out what is the same for all examples, once for all of them."""
    _versions()
    _operating_system()


@cache
def _versions() -> dict[str, str]:
    """The versions of the packages that execute examples."""
    versions = {name: metadata.version(name) for name in ("sphinx", "sphinx-gallery")}
    return {"gallery-recorder": VERSION, **versions}


@cache
def _operating_system() -> str:
    """``Ubuntu 24.04.3 LTS, Linux 6.8.0, x86_64``."""
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):  # no such file, or it names nothing
        name = platform.system()
    return f"{name}, {platform.system()} {platform.release()}, {platform.machine()}"


def commit_of(top: Path, besides: Iterable[Path]) -> str | None:
    """The commit of the project at *top*, with ``-dirty`` if files differ; None outside git.

    Files in the folders *besides*, such as recordings, are ignored.
    """
    left_out = [f":(exclude){p.relative_to(top)}" for p in besides if p.is_relative_to(top)]
    commit = git(top, "rev-parse", "HEAD")
    changed = git(top, "status", "--porcelain", "--", ".", *left_out)
    if commit is None or changed is None:
        return None
    return commit + ("-dirty" if changed else "")
