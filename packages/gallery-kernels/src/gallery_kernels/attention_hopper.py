"""The forward pass of attention on Hopper GPUs, in Gluon."""

import torch

from gallery_kernels.launch import DescribedLaunch


def is_covered(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> bool:
    """Whether the kernels are for such tensors."""
    return False


def forward_launch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float, keep_lse: bool
) -> DescribedLaunch:
    """Return the launch of the forward pass."""
    raise NotImplementedError
