"""Read projects and record examples without waiting for imports each time.

The recorder itself is executed. Only where it would start Python, a process that has imported what
is needed is copied instead.
"""

import io
import subprocess
from types import SimpleNamespace
from typing import Protocol
from unittest import mock

from gallery_recorder.project.galleries import Project, Where
from gallery_recorder.run import process, recorder
from gallery_recorder.run.progress import Outcome, Progress
from gallery_recorder.testing import processes

_SUBPROCESS = SimpleNamespace(**vars(subprocess) | {"Popen": processes.Server})


class Made(Protocol):
    """A project that a test makes."""

    def project(self) -> Project:
        """What its conf.py says."""


def read(where: Where) -> Project:
    """Read a project."""
    with mock.patch.object(process, "subprocess", _SUBPROCESS), process.Client(where) as server:
        return server.project


def record(
    made: Made,
    options: recorder.Options,
    plan: Project | None = None,
    out: io.StringIO | None = None,
) -> dict[str, Outcome]:
    """Record; return the outcome of each script."""
    plan = plan or made.project()
    with mock.patch.object(process, "subprocess", _SUBPROCESS):
        outcomes, _ = recorder.record(plan, options, Progress(out or io.StringIO()))
    return {outcome.script: outcome for outcome in outcomes}
