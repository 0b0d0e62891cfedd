r"""
A product in bf16 with roles
============================

*Solution to the second exercise of* :doc:`../09b-fp8-gluon`.

Without scales, nothing is added outside the tensor cores, so the sum can stay in one accumulator:
``warpgroup_mma`` continues it. Two consumers of 64 rows each and one loading warp remain.
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
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
HOPPER = ON_GPU and not torch.version.hip and torch.cuda.get_device_capability(DEVICE) == (9, 0)
start_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # until 3.8
start_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
STAGES = gl.constexpr(4)

# %%
# The consumers keep one product in flight: when the product of a step has been started, at most it
# is running, and the one before has ended. Then the buffers of the step before are empty.


@gluon.jit
def loading_warp(a_desc, b_desc, buffers, ready, empty, K):
    """Start the loads of one tile of the result."""
    a_tiles, b_tiles = buffers
    i, j = gl.program_id(0) * 128, gl.program_id(1) * 128
    for step in range(gl.cdiv(K, 64)):
        stage = step % STAGES
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        here = ready.index(stage)
        mbarrier.expect(here, 2 * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        start_load(b_desc, [j, step * 64], here, b_tiles.index(stage))
        start_load(a_desc, [i, step * 64], here, a_tiles.index(stage * 2))
        start_load(a_desc, [i + 64, step * 64], here, a_tiles.index(stage * 2 + 1))


@gluon.jit
def multiplying_group(WHICH: gl.constexpr, c_desc, buffers, c_tiles, ready, empty, K):
    """Compute 64 rows of the tile."""
    a_tiles, b_tiles = buffers
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    acc = gl.zeros([64, 128], gl.float32, layout)
    for step in range(gl.cdiv(K, 64)):
        stage = step % STAGES
        mbarrier.wait(ready.index(stage), step // STAGES & 1)
        b = b_tiles.index(stage).permute((1, 0))
        acc = warpgroup_mma(a_tiles.index(stage * 2 + WHICH), b, acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=1, deps=[acc])
        before = (step + STAGES - 1) % STAGES
        mbarrier.arrive(empty.index(before), count=1, pred=step > 0)
    acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
    tile = c_tiles.index(WHICH)
    tile.store(acc.to(c_desc.dtype))
    fence_async_shared()
    start_store(c_desc, [gl.program_id(0) * 128 + WHICH * 64, gl.program_id(1) * 128], tile)
    tma.store_wait(0)


@gluon.jit
def product_kernel(a_desc, b_desc, c_desc, K):
    """Compute a tile of 128 × 128 with nine warps."""
    a_tiles = gl.allocate_shared_memory(a_desc.dtype, [2 * STAGES, 64, 64], a_desc.layout)
    b_tiles = gl.allocate_shared_memory(b_desc.dtype, [STAGES, 128, 64], b_desc.layout)
    c_tiles = gl.allocate_shared_memory(c_desc.dtype, [2, 64, 128], c_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)  # both consumers
    fence_async_shared()
    buffers = a_tiles, b_tiles
    gl.warp_specialize(
        [
            (multiplying_group, (0, c_desc, buffers, c_tiles, ready, empty, K)),
            (multiplying_group, (1, c_desc, buffers, c_tiles, ready, empty, K)),
            (loading_warp, (a_desc, b_desc, buffers, ready, empty, K)),
        ],
        [4, 1],  # warps of the second consumer and of the loading warp
        [232, 24],  # and the registers of their threads
    )


def described(x, rows, cols):
    """Return a descriptor of the matrix *x* in bf16 with tiles of *rows* × *cols*."""
    layout = gl.NVMMASharedLayout.get_default_for([rows, cols], gl.bfloat16)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [rows, cols], layout)


def product(a, w):
    """Return ``a @ w.T`` for contiguous bf16 matrices [M, K] and [N, K]; 8 divides N and K."""
    (M, K), N = a.shape, len(w)
    c = a.new_empty(M, N)
    tiles = described(a, 64, 64), described(w, 128, 64), described(c, 64, 128)
    grid = triton.cdiv(M, 128), triton.cdiv(N, 128)
    product_kernel[grid](*tiles, K, num_warps=4, maxnreg=168)
    return c


# %%

# sphinx_gallery_fold = "checks it against float64, and times it beside cuBLAS"
if HOPPER:
    torch.manual_seed(0)
    for M, N, K in ((8, 8, 8), (200, 136, 320), (1000, 2048, 4096)):
        a, w = (torch.randn(rows, K, device=DEVICE).bfloat16() for rows in (M, N))
        exact = a.double() @ w.double().T
        torch.testing.assert_close(product(a, w).double(), exact, rtol=2**-7, atol=2**-7 * K**0.5)
    print("product agrees with float64")
    a, w = torch.randn(2, 4096, 4096, device=DEVICE).bfloat16()
    for name, call in (("product", lambda: product(a, w)), ("cuBLAS", lambda: a @ w.T)):
        ms = triton.testing.do_bench(call, return_mode="median")
        print(f"{name}: {2 * 4096**3 / ms / 1e9:.0f} TFLOPS at M = N = K = 4096")
else:
    print("This kernel needs a Hopper GPU.")
