"""Call git in a folder."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gallery_recorder.errors import RecorderError

#: Variables by which git finds a repository elsewhere. A hook has them, for its own repository.
_PLACES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
)


class GitError(RecorderError):
    """A git command failed, or git is not installed."""


def git(folder: Path, *arguments: str) -> str | None:
    """The output of a git command in *folder*; None if git is missing or the command fails."""
    try:
        return call(folder, *arguments)
    except GitError:
        return None


def environment() -> dict[str, str]:
    """The variables of this process, without those that name another repository."""
    return {name: value for name, value in os.environ.items() if name not in _PLACES}


def call(
    folder: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    given: str | None = None,
) -> str:
    """The output of a git command in *folder*; GitError if git is missing or the command fails.

    The command reads the text *given*, and has the *variables* besides those of this process.
    """
    try:
        made = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            check=True,
            encoding="utf-8",
            errors="surrogateescape",  # as names of files are
            env=environment() | dict(variables or {}),
            input=given,
        )
    except OSError as error:
        raise GitError(f"git cannot be started: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise GitError(f"git {' '.join(arguments)} failed:\n{error.stderr.strip()}") from error
    return made.stdout.rstrip()
