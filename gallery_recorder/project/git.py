"""Ask git about a folder."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> str | None:
    """The output of a git command in *folder*; None if git is missing or the command fails."""
    try:
        made = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            check=True,
            encoding="utf-8",
            errors="surrogateescape",  # as names of files are
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return made.stdout.rstrip()
