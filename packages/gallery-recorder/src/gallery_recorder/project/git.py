"""Call git in a folder."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gallery_recorder.errors import RecorderError


class GitError(RecorderError):
    """A git command failed, or git is not installed."""


def git(folder: Path, *arguments: str) -> str | None:
    """The output of a git command in *folder*; None if git is missing or the command fails."""
    try:
        return call(folder, *arguments)
    except GitError:
        return None


def call(folder: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
    """The output of a git command in *folder*; GitError if git is missing or the command fails."""
    try:
        made = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            check=True,
            encoding="utf-8",
            errors="surrogateescape",  # as names of files are
            env=os.environ | (variables or {}),
        )
    except OSError as error:
        raise GitError(f"git cannot be started: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise GitError(f"git {' '.join(arguments)} failed:\n{error.stderr.strip()}") from error
    return made.stdout.rstrip()
