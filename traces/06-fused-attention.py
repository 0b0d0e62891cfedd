"""Tiles of keys, and the rescaling of the sums."""

import math

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_watch.trace import Scene


def tiles(kernels):
    """A program has 16 queries and goes through keys and values in tiles of 16."""
    q, k, v, o = (torch.ones(1, 1, 48, 16).half() for _ in range(4))
    described = [
        TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, 16, 16]) for x in (q, k, v, o)
    ]
    kernels.online_kernel[(3, 1)](*described, 1, 48, 0.25, BLOCK_M=16, BLOCK_N=16, D=16)


def rescaling(kernels):
    """One query, six scores in tiles of two: a larger maximum makes the old sums smaller."""
    scores = [1.0, 2.0, 4.0, 3.0, 2.0, 5.0]
    scene = Scene("the softmax of one row, two scores at a time")
    row = scene.tensor("scores", (6,))
    sums = scene.tensor("m, z", (2,))
    scene.step("The scores of one query.", row, range(6), values=[f"{s:.0f}" for s in scores])
    maximum, total = -math.inf, 0.0
    for first in range(0, 6, 2):
        tile = scores[first : first + 2]
        text = f"The next tile: {tile[0]:.0f} and {tile[1]:.0f}."
        scene.step(text, row, (first, first + 1), kind="load")
        larger = max(maximum, *tile)
        correction = math.exp(maximum - larger)
        total *= correction
        text = f"The maximum is {larger:.0f}; the sum so far is multiplied by {correction:.2f}."
        shown = [f"{larger:.0f}", f"{total:.2f}"]
        scene.step(text, sums, (0, 1), values=shown, kind="atomic")
        total += sum(math.exp(score - larger) for score in tile)
        maximum = larger
        text = f"The weights of the tile are added: z = {total:.2f}."
        shown = [f"{larger:.0f}", f"{total:.2f}"]
        scene.step(text, sums, (1,), values=shown, kind="store")
    return scene
