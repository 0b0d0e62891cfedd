"""Waves, given by the script."""

from triton_watch.trace import Scene


def waves(kernels):
    """Forty tiles on sixteen SMs: two full waves, and a third one that leaves half of them idle."""
    scene = Scene("40 tiles on 16 SMs")
    tiles = scene.tensor("tiles", (4, 10))
    processors = scene.tensor("SMs", (1, 16))
    for wave, first in enumerate(range(0, 40, 16)):
        last = min(first + 16, 40)
        busy = last - first
        scene.step(
            f"Wave {wave + 1}: tiles {first} to {last - 1}.",
            tiles,
            range(first, last),
            kind="store",
        )
        scene.step(
            f"{busy} of 16 SMs have a tile.",
            processors,
            range(busy),
            values=[str(first + i) if i < busy else "" for i in range(16)],
        )
    return scene
