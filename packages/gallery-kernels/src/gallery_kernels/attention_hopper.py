"""Launches of the forward pass of attention on Hopper GPUs.

The kernels are written in Gluon, whose names change between releases of Triton. Where they cannot
be imported, ``attention`` uses its Triton kernels, as for all that is not covered here.
"""

import math
from typing import Any

import torch

from gallery_kernels.launch import DescribedLaunch, Launch, limits_of

try:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from gallery_kernels.attention_hopper_kernels import ahead_kernel, roles_kernel
except (ImportError, AttributeError):  # a release of Triton with other names
    CAN_IMPORT = False
else:
    CAN_IMPORT = True


def is_covered(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether the kernels are for such tensors; they have a Hopper GPU."""
    if not CAN_IMPORT or not limits_of(q.device).is_hopper:
        return False
    return has_covered_layout(q, k, v)


def has_covered_layout(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether dtype, sizes and strides are those of the kernels."""
    if q.dtype not in (torch.float16, torch.bfloat16) or q.shape[3] not in (64, 128):
        return False
    if q.shape[2] % 128 or k.shape[2] % 128:
        return False
    if max(q.shape[:3].numel(), k.shape[:3].numel()) >= 2**31:  # rows are counted in 32 bits
        return False
    return all([x.is_contiguous() and x.data_ptr() % 16 == 0 for x in (q, k, v)])


def forward_launch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float, keep_lse: bool
) -> DescribedLaunch:
    """Return the launch of the forward pass; its tensors are q, k, v, o, and the log-sum-exp."""
    kernel = ahead_kernel if q.shape[3] == 64 else roles_kernel
    grid, numbers, constants = settings(kernel, q, k, causal, scale)
    launch = Launch(kernel, grid, numbers, {**constants, "KEEP_LSE": keep_lse})
    keys_of_a_tile = constants["BLOCK_N"]
    rows = (64, keys_of_a_tile, keys_of_a_tile, 64)
    tensors = (q, k, v, torch.empty_like(q))
    tiles = [described_as_matrix(x, count) for x, count in zip(tensors, rows, strict=True)]
    return DescribedLaunch(launch, tiles)


def settings(
    kernel: Any, q: torch.Tensor, k: torch.Tensor, causal: bool, scale: float
) -> tuple[tuple[int], tuple, dict[str, Any]]:
    """Return the grid, the numbers and the constants of a launch."""
    batch, heads, queries, head_dim = q.shape
    keys = k.shape[2]
    group = heads // k.shape[1]
    total = batch * heads
    limits = limits_of(q.device)
    short = not causal or keys <= 1024
    # Heads that run together have keys and values in half of the L2 cache.
    together = 2 if short else max(1, limits.l2_bytes // (8 * keys * head_dim))
    constants = {"GROUP": group, "D": head_dim, "CAUSAL": causal, "num_warps": 4}
    if kernel is ahead_kernel:
        constants["BLOCK_M"] = 64
    if kernel is ahead_kernel and head_dim == 128:
        constants |= {"BLOCK_N": 64, "STAGES": 3}
    else:
        constants |= {"BLOCK_N": 128, "STAGES": 2}
    programs = queries // 64 * total
    if kernel is roles_kernel:
        programs //= 2
        if short:  # long causal blocks differ in length, and the GPU distributes them
            programs = min(programs, limits.multiprocessors)
    numbers = (queries, keys, scale * math.log2(math.e), total, group * together)
    return (programs,), numbers, constants


def described_as_matrix(x: torch.Tensor, rows: int) -> Any:
    """Return a descriptor of the contiguous *x* as a matrix, with tiles of *rows* rows."""
    head_dim = x.shape[3]
    dtype = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for([rows, head_dim], dtype)
    matrix = x.view(-1, head_dim)
    return TensorDescriptor(matrix, list(matrix.shape), [head_dim, 1], [rows, head_dim], layout)
