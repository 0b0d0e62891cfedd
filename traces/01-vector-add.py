"""Blocks and masks."""

import torch


def add(kernels):
    """Two programs add ten elements in blocks of eight. The second mask leaves out six."""
    x, y, out = torch.arange(10.0), torch.arange(10.0), torch.empty(10)
    kernels.add_kernel[(2,)](x, y, out, 10, BLOCK=8)
