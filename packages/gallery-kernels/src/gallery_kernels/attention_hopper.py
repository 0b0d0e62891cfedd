"""Launches of the forward pass of attention on Hopper GPUs.

The kernels are written in Gluon, whose names change between releases of Triton. Where they cannot
be imported, ``attention`` uses its Triton kernels, as for all that is not covered here.
"""

import math
from typing import Any

import torch

from gallery_kernels.launch import DescribedLaunch, Launch, Limits, limits_of

try:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from gallery_kernels.attention_hopper_kernels import ahead_kernel, roles_kernel
except (ImportError, AttributeError):  # a release of Triton with other names
    CAN_IMPORT = False
else:
    CAN_IMPORT = True


#: How much more than the mean of all multiprocessors a program may have to compute, if programs
#: compute causal blocks in turns. On an H200, turns were faster up to 1.11, and slower from 1.15.
MOST_OF_MEAN = 1.12


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
    kernel = kernel_for(q, k, causal)
    grid, numbers, constants = settings(kernel, q, k, causal, scale)
    launch = Launch(kernel, grid, numbers, {**constants, "KEEP_LSE": keep_lse})
    keys_of_a_tile = constants["BLOCK_N"]
    rows = (64, keys_of_a_tile, keys_of_a_tile, 64)
    tensors = (q, k, v, torch.empty_like(q))
    tiles = [described_as_matrix(x, count) for x, count in zip(tensors, rows, strict=True)]
    return DescribedLaunch(launch, tiles)


def kernel_for(q: torch.Tensor, k: torch.Tensor, causal: bool) -> Any:
    """Return the faster kernel for such tensors."""
    if q.shape[3] == 64 or (causal and min(q.shape[2], k.shape[2]) <= 1024):
        # Programs are short. Three small ones share a multiprocessor, and one computes while
        # another one fetches or stores. Their tiles also leave less to the causal mask.
        return ahead_kernel
    return roles_kernel


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
        constants |= {"BLOCK_N": 64, "STAGES": 1}  # 48 KiB of tiles, so that three programs fit
    else:
        constants |= {"BLOCK_N": 128, "STAGES": 2}
    together *= group
    programs = queries // 64 * total
    if kernel is roles_kernel:
        programs, together = schedule(queries // 128, total, together, causal, limits)
    numbers = (queries, keys, scale * math.log2(math.e), total, together)
    return (programs,), numbers, constants


def schedule(
    blocks: int, heads: int, together: int, causal: bool, limits: Limits
) -> tuple[int, int]:
    """Return how many programs compute *blocks* of each head, and how many heads run together.

    A program that computes block after block fetches the next one early. If causal, blocks differ
    in length. Then a turn has whole heads, and the next turn goes backwards, so each program gets
    as much in two turns. Where multiprocessors would be idle for long, because whole heads do not
    fill them or because the last turn has no other one, each block has a program of its own, and
    the GPU distributes them.
    """
    most = limits.multiprocessors
    if not causal:
        return min(blocks * heads, most), together
    in_a_turn = min(heads, most // blocks)  # whole heads
    if in_a_turn == 0:
        return blocks * heads, together
    turns = -(-heads // in_a_turn)
    # Tiles of keys that a program computes: the longest block of a turn has as many as *blocks*.
    largest_share = turns // 2 * (blocks + 1) + turns % 2 * blocks
    mean_share = heads * blocks * (blocks + 1) / 2 / most
    if largest_share > MOST_OF_MEAN * mean_share:
        return blocks * heads, together
    return in_a_turn * blocks, in_a_turn


def described_as_matrix(x: torch.Tensor, rows: int) -> Any:
    """Return a descriptor of the contiguous *x* as a matrix, with tiles of *rows* rows."""
    head_dim = x.shape[3]
    dtype = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for([rows, head_dim], dtype)
    matrix = x.view(-1, head_dim)
    return TensorDescriptor(matrix, list(matrix.shape), [head_dim, 1], [rows, head_dim], layout)
