"""Padding."""

import torch


def row(kernels):
    """Rows of six elements in blocks of eight: the mask leaves out what belongs to the next row."""
    x, out = torch.arange(24.0).reshape(4, 6), torch.empty(4, 6)
    kernels.row_kernel[(4,)](x, out, 6, 6, BLOCK=8)
