"""Which engine executes scripts: this machine's, or a cluster's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gallery_recorder.run.places import Engine, LocalEngine


@contextlib.contextmanager
def engine(
    name: str,
    device: str,
    jobs: int | None,
    address: str | None = None,
    accelerator: str | None = None,
) -> Iterator[Engine]:
    """The engine *name*: ``local``, or ``ray`` with the cluster at *address*.

    Raises:
        DeviceError: what was asked for is not there, or cannot be used.
    """
    if name == "local":
        yield LocalEngine(device, jobs)
        return
    from gallery_recorder.run import ray

    with ray.connected(address):
        yield ray.RayEngine(device, jobs, accelerator)
