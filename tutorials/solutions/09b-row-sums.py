r"""
Row sums with two roles
=======================

*Solution to the first exercise of* :doc:`../09b-fp8-gluon`.

In ``sum_kernel`` of the lesson, the warps that add also start the loads. Here one warp starts all
loads, as early as a buffer is empty, and four warps add. Two barriers for each buffer connect them:
``ready`` says that a tile has arrived, ``empty`` that it has been read.
"""

# %

# sphinx_gallery_fold = "imports, names of functions in several releases, and device"
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
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
HOPPER = ON_GPU and not torch.version.hip and torch.cuda.get_device_capability(DEVICE) == (9, 0)
start_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # until 3.8
STAGES = gl.constexpr(4)

# %%
# Both roles walk over the same steps. Step *s* uses buffer *s* mod 4, and the buffer's phase is the
# parity of *s* div 4. The loading warp waits for the *other* parity: for the first four steps that
# is parity 1, which a new barrier acts as if it had completed.


@gluon.jit
def loading_warp(x_desc, tiles, ready, empty, K):
    """Start the loads of 64 rows, as early as there is room."""
    for step in range(gl.cdiv(K, 64)):
        stage = step % STAGES
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        mbarrier.expect(ready.index(stage), x_desc.block_type.nbytes)
        start = [gl.program_id(0) * 64, step * 64]
        start_load(x_desc, start, ready.index(stage), tiles.index(stage))


@gluon.jit
def adding_group(out_ptr, tiles, ready, empty, M, K):
    """Add up 64 rows, and store the sums."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    total = gl.zeros([64], gl.float32, gl.SliceLayout(1, layout))
    for step in range(gl.cdiv(K, 64)):
        stage = step % STAGES
        mbarrier.wait(ready.index(stage), step // STAGES & 1)
        x = tiles.index(stage).load(layout)
        fence_async_shared()  # our reading comes before the next load into this buffer
        mbarrier.arrive(empty.index(stage), count=1)
        total += gl.sum(x.to(gl.float32), 1)
    rows = gl.program_id(0) * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    gl.store(out_ptr + rows, total, mask=rows < M)


@gluon.jit
def sums_kernel(x_desc, out_ptr, M, K):
    """Add up 64 rows with five warps."""
    tiles = gl.allocate_shared_memory(x_desc.dtype, [STAGES, 64, 64], x_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (adding_group, (out_ptr, tiles, ready, empty, M, K)),
            (loading_warp, (x_desc, tiles, ready, empty, K)),
        ],
        [1],  # warps of the second role
        [24],  # and the registers of their threads
    )


def described(x, rows, cols):
    """Return a descriptor of the matrix *x* in bf16 with tiles of *rows* × *cols*."""
    layout = gl.NVMMASharedLayout.get_default_for([rows, cols], gl.bfloat16)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [rows, cols], layout)


def row_sums(x):
    """Return the fp32 sum of each row of *x*, a contiguous bf16 matrix; 8 divides its width."""
    M, K = x.shape
    out = torch.empty(M, device=x.device)
    sums_kernel[(triton.cdiv(M, 64),)](described(x, 64, 64), out, M, K, num_warps=4)
    return out


# %%

# sphinx_gallery_fold = "checks it against float64"
if HOPPER:
    torch.manual_seed(0)
    for shape in ((1, 8), (64, 64), (100, 1000), (5000, 4096)):
        x = torch.randn(shape, device=DEVICE).bfloat16()
        torch.testing.assert_close(row_sums(x).double(), x.double().sum(1), rtol=1e-5, atol=1e-3)
    print("row_sums agrees with float64")
else:
    print("This kernel needs a Hopper GPU.")

# %%
# Columns behind the last one are loaded as zeros, which add nothing. The number of bytes to expect
# stays the same: the zeros count.
