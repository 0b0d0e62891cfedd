"""The walk over K, and the order of the tiles."""

import torch

TILES = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}


def tile(kernels):
    """Each program walks along a row of tiles of A and a column of tiles of B."""
    a, b, c = torch.ones(32, 48).half(), torch.ones(48, 32).half(), torch.empty(32, 32).half()
    kernels.tile_kernel[(2, 2)](a, b, c, 32, 48, 48, 1, 32, 1, **TILES)


def grouped(kernels):
    """Groups of two rows: programs that follow each other share tiles of A and of B."""
    a, b, c = torch.ones(64, 32).half(), torch.ones(32, 64).half(), torch.empty(64, 64).half()
    kernels.grouped_kernel[(16,)](a, b, c, 64, 64, 32, 32, 1, 64, 1, **TILES, GROUP=2)
