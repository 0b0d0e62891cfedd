"""The machine and the software that a recording was made with, as far as no probe is needed."""

import platform
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from gallery_recorder.project.git import git
from gallery_recorder.project.settings import Kind
from gallery_recorder.store.format import Provenance


def now() -> str:
    """The date and time of a recording."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def of_this_process(device: str, kind: Kind) -> Provenance:
    """What this process knows of itself, and of the *device* of this *kind*."""
    python = platform.python_version()
    return Provenance(device, kind, _operating_system(), python, _versions())


def _versions() -> dict[str, str]:
    """The versions of the packages that execute scripts."""
    found = {}
    for name in ("gallery-recorder", "sphinx", "sphinx-gallery"):
        with suppress(metadata.PackageNotFoundError):  # run from its checkout
            found[name] = metadata.version(name)
    return found


def _operating_system() -> str:
    """``Ubuntu 24.04.3 LTS, Linux 6.8.0, x86_64``."""
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):  # no such file, or it names nothing
        name = platform.system()
    return f"{name}, {platform.system()} {platform.release()}, {platform.machine()}"


def commit_of(top: Path, besides: Iterable[Path]) -> str | None:
    """The commit that the project at *top* is at, with ``-dirty`` where files in it differ.

    What lies in the folders *besides* does not count: they are what is recorded. None outside git.
    """
    left_out = [f":(exclude){p.relative_to(top)}" for p in besides if p.is_relative_to(top)]
    commit = git(top, "rev-parse", "HEAD")
    changed = git(top, "status", "--porcelain", "--", ".", *left_out)
    if commit is None or changed is None:
        return None
    return commit + ("-dirty" if changed else "")
