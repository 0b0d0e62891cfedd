r"""
The log-sum-exp of the scores
=============================

*Solution to the second exercise of* :doc:`../06c-attention-gluon`.

The log-sum-exp of a query's scores is what the backward pass of attention keeps. It needs no
values. So the loop is that of the first exercise, with a second running number: the sum of the
exponentials, corrected whenever the maximum rises.
"""

# %

# sphinx_gallery_fold = "imports, names of functions in several releases, and device"
import math
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
HOPPER = ON_GPU and not torch.version.hip and torch.cuda.get_device_capability(DEVICE) == (9, 0)
start_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # until 3.8


# %%
# All of the softmax of tile *j − 1* runs while tile *j* is multiplied. Powers of two save a
# multiplication: ``scale`` contains log2(e), and the last line goes back to the natural logarithm.


@gluon.jit
def fetch(desc, row, arrived, buffer, wanted):
    """Start to copy a tile to *buffer*; the barrier *arrived* knows when it is there."""
    mbarrier.expect(arrived, desc.block_type.nbytes, pred=wanted)
    start_load(desc, [row, 0], arrived, buffer, pred=wanted)


@gluon.jit
def add_tile(m, z, s, scale):
    """Return the maximum and the sum so far, with the scores *s* of one more tile."""
    m_new = gl.maximum(m, gl.max(s, 1) * scale)
    p = gl.exp2(s * scale - m_new[:, None])
    return m_new, z * gl.exp2(m - m_new) + gl.sum(p, 1)


@gluon.jit
def lse_kernel(q_desc, k_desc, out_ptr, queries, keys, scale, D: gl.constexpr):
    """Compute the log-sum-exp of 64 queries; *scale* contains log2(e)."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    row, tiles = gl.program_id(0) * 64, keys // 128
    q = gl.allocate_shared_memory(q_desc.dtype, [64, D], q_desc.layout)
    k_tiles = gl.allocate_shared_memory(k_desc.dtype, [2, 128, D], k_desc.layout)
    arrived = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(3):  # of both buffers, and of the queries
        mbarrier.init(arrived.index(i), count=1)
    fence_async_shared()
    fetch(q_desc, row, arrived.index(2), q, True)
    for i in gl.static_range(2):
        fetch(k_desc, i * 128, arrived.index(i), k_tiles.index(i), i < tiles)
    zeros = gl.zeros([64, 128], gl.float32, SCORES)
    m = gl.full([64], -float("inf"), gl.float32, gl.SliceLayout(1, SCORES))
    z = gl.zeros([64], gl.float32, gl.SliceLayout(1, SCORES))
    mbarrier.wait(arrived.index(2), 0)
    mbarrier.wait(arrived.index(0), 0)
    k = k_tiles.index(0).permute((1, 0))
    s = warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, deps=[s])
    fetch(k_desc, 2 * 128, arrived.index(0), k_tiles.index(0), tiles > 2)
    for j in range(1, tiles):
        slot = j % 2
        mbarrier.wait(arrived.index(slot), j // 2 & 1)
        k = k_tiles.index(slot).permute((1, 0))
        following = warpgroup_mma(q, k, zeros, use_acc=False, is_async=True)
        m, z = add_tile(m, z, s, scale)  # the tile before, while this one is multiplied
        s = warpgroup_mma_wait(0, deps=[following])
        fetch(k_desc, (j + 2) * 128, arrived.index(slot), k_tiles.index(slot), j + 2 < tiles)
    m, z = add_tile(m, z, s, scale)
    rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES))
    gl.store(out_ptr + rows, (m + gl.log2(z)) * 0.6931471805599453, mask=rows < queries)


def described(x, rows, cols):
    """Return a descriptor of the matrix *x* in bf16 with tiles of *rows* × *cols*."""
    layout = gl.NVMMASharedLayout.get_default_for([rows, cols], gl.bfloat16)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [rows, cols], layout)


def log_sum_exp(q, k, scale=None):
    """Return the log-sum-exp of the scores of each query, ``scale * q @ k.T``, in fp32.

    *q* is [queries, d] and *k* is [keys, d], contiguous bf16; d is 64 or 128, and 128 divides keys.
    """
    (queries, d), out = q.shape, torch.empty(len(q), device=q.device)
    scale = (d**-0.5 if scale is None else scale) * math.log2(math.e)
    tiles = described(q, 64, d), described(k, 128, d)
    grid = (triton.cdiv(queries, 64),)
    lse_kernel[grid](*tiles, out, queries, len(k), scale, D=d, num_warps=4)
    return out


# %%

# sphinx_gallery_fold = "checks it against float64"
if HOPPER:
    torch.manual_seed(0)
    for queries, keys, d in ((1, 128, 64), (100, 256, 128), (1000, 4096, 64), (64, 384, 128)):
        q, k = (torch.randn(n, d, device=DEVICE).bfloat16() for n in (queries, keys))
        for scale in (d**-0.5, 3.0):
            exact = torch.logsumexp(scale * q.double() @ k.double().T, 1)
            found = log_sum_exp(q, k, scale).double()
            torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-4)
    print("log_sum_exp agrees with float64")
else:
    print("This kernel needs a Hopper GPU.")
