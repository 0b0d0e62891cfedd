"""
Warp roles: an fp8 product in Gluon
===================================

You write ``scaled_mm_by_blocks(a, b, scale_a, scale_b)``, a product whose warps have roles: one
loads, the others multiply and add in turn. On Hopper it is :measured:`gain` times as fast as the
kernel without roles, and reaches :measured:`share` % of cuBLAS. You need :doc:`09-fp8-matmul`.
"""

# %%
# The kernel without roles
# ------------------------

# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "beyond"
import atexit
import os
from functools import partial

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@triton.jit(do_not_specialize=["M", "N", "K", "stride_sak", "stride_sbk", "stride_sbn"])
def plain_kernel(
    a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, M, N, K,
    stride_sam, stride_sak, stride_sbk, stride_sbn,
):  # fmt: skip
    """Compute a tile of 64 × 128; b_desc describes the transpose of B."""
    tiles_m, tiles_n = tl.num_programs(1), tl.num_programs(0)
    i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tiles_m, tiles_n, 8)  # in groups
    row, column = i * 64, j * 128
    rows = row + tl.arange(0, 64)
    scale_a_ptrs = scale_a_ptr + rows.to(tl.int64) * stride_sam
    scale_b_ptrs = scale_b_ptr + j.to(tl.int64) * stride_sbn
    acc = tl.zeros((64, 128), dtype=tl.float32)
    for k in range(0, K, 128):
        scale = tl.load(scale_a_ptrs, mask=rows < M, other=0.0) * tl.load(scale_b_ptrs)
        p = tl.dot(a_desc.load([row, k]), b_desc.load([column, k]).T)  # [64, 128]
        acc += p * scale[:, None]
        scale_a_ptrs += stride_sak
        scale_b_ptrs += stride_sbk
    c_desc.store([row, column], acc.to(c_desc.dtype))


# %%
# This is the kernel of :doc:`09-fp8-matmul`: 128 numbers of a row of A share a scale, and so do
# 128 × 128 numbers of B. While the program adds ``p`` to ``acc``, it gives the tensor cores no
# work. While they multiply, it gives the other units none.
#
# Roles
# -----
#
# The remedy is *different roles for different warps*. A **warpgroup**, four warps, issues a
# product. A program gets two warpgroups that multiply, the **consumers**, each with 64 rows of the
# tile, and one warp that only starts loads, the **producer**. While one consumer adds its ``p``,
# the tensor cores work for the other one. The picture is a sketch, not a measurement.

# sphinx_gallery_fold = "draws who works when"
import matplotlib.pyplot as plt

COLORS = {"load": "#8fb996", "multiply": "#cfe3f1", "add": "#f2c6b4"}
work = [(3, 2 * i, "load", i) for i in range(6)]
for y, start in ((0, 2), (2, 2), (1, 4)):
    work += [(y, start + 4 * i, "multiply", i) for i in range(3)]
    work += [(y, start + 4 * i + 2, "add", i) for i in range(3)]
_, ax = plt.subplots(figsize=(7.5, 2.6), layout="constrained")
for y, start, kind, i in work:
    ax.barh(y, 2, left=start, color=COLORS[kind], edgecolor="#444444", height=0.7)
    ax.text(start + 1, y, f"{kind} {i}", ha="center", va="center", fontsize=9)
ax.set_yticks(range(4), ["without roles", "consumer 1", "consumer 0", "producer"])
ax.set(xticks=[], xlabel="time", title="The tensor cores work in blue bars")
plt.show()

# %%
# In Triton, a program is one sequence of steps. **Gluon** is a lower-level language that comes with
# Triton: you allocate shared memory, say which thread holds which element (a *layout*), start loads
# and products, and wait for them.
#
# ``mbarrier``
#     A counter in shared memory, in *phases*: a phase ends when all expected threads or bytes have
#     arrived. ``wait(bar, phase)`` waits for the end of a phase, numbered 0, 1, 0, 1, …
# ``ready`` and ``empty``
#     Two barriers for each stage of the pipeline: its data has arrived, and both consumers are done
#     with it. The producer waits for *empty*, and the consumers wait for *ready*.
# ``warpgroup_mma`` and ``warpgroup_mma_wait``
#     Start a product, and wait for it. With ``use_acc=False`` it starts from zero.
# ``gl.warp_specialize``
#     Runs functions at the same time, each with its own warps and its share of the registers.
#
# The producer
# ------------
#
# The producer visits the consumers' tiles, and loads as soon as a stage is empty.

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
)  # fmt: skip
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor

STAGES, GROUP = gl.constexpr(6), gl.constexpr(8)
NEW = hasattr(tma, "async_load")  # two functions have new names in Triton 3.9
tma_load = tma.async_load if NEW else tma.async_copy_global_to_shared
tma_store = tma.async_store if NEW else tma.async_copy_shared_to_global


@gluon.jit
def place(tile, tiles_m, tiles_n):
    """Return (row, column) of a tile, GROUP rows at a time."""
    in_group = GROUP * tiles_n
    first = tile // in_group * GROUP
    rows = gl.minimum(tiles_m - first, GROUP)
    return first + tile % in_group % rows, tile % in_group // rows


@gluon.jit
def producer(descriptors, buffers, barriers, scales, sizes, strides):
    """Start the loads for all tiles of this program, as early as there is room."""
    a_desc, b_desc, _ = descriptors
    a_tiles, b_tiles, _ = buffers
    ready, empty = barriers
    M, N, K = sizes
    tiles_m, tiles_n = gl.cdiv(M, 128), gl.cdiv(N, 128)
    step = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        i, j = place(tile, tiles_m, tiles_n)
        for k in range(0, gl.cdiv(K, 256) * 256, 128):  # two steps at a time; behind K: zeros
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
            here = ready.index(stage)
            mbarrier.expect(here, 2 * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma_load(b_desc, [j * 128, k], here, b_tiles.index(stage))
            tma_load(a_desc, [i * 128, k], here, a_tiles.index(stage * 2))
            tma_load(a_desc, [i * 128 + 64, k], here, a_tiles.index(stage * 2 + 1))
            step += 1


# %%
# The consumers
# -------------
#
# Each consumer has *two* products in flight, ``p`` and ``q``: while it adds one, the tensor cores
# compute the other. Both are finished at the end of an iteration, so the assembler can see that no
# instruction touches the registers of a product in flight.


@gluon.jit
def start_product(step, p, WHICH: gl.constexpr, buffers, barriers):
    """Wait for the data of *step*, and start its product, which is going to be in *p*."""
    stage = step % STAGES
    mbarrier.wait(barriers[0].index(stage), step // STAGES & 1)
    a, b = buffers[0].index(stage * 2 + WHICH), buffers[1].index(stage)
    return warpgroup_mma(a, b.permute((1, 0)), p, use_acc=False, is_async=True)


@gluon.jit
def consumer(WHICH: gl.constexpr, descriptors, buffers, barriers, scales, sizes, strides):
    """Compute 64 rows of each tile of this program: the upper ones, or the lower ones."""
    c_desc, c_tile = descriptors[2], buffers[2].index(WHICH)
    empty = barriers[1]
    M, N, K = sizes
    stride_sam, stride_sak, stride_sbk, stride_sbn = strides
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 32])
    tiles_m, tiles_n = gl.cdiv(M, 128), gl.cdiv(N, 128)
    p, q = gl.zeros((64, 128), gl.float32, layout), gl.zeros((64, 128), gl.float32, layout)
    step = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        i, j = place(tile, tiles_m, tiles_n)
        row = i * 128 + WHICH * 64
        rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
        inside = rows < M
        a_ptrs, b_ptr = scales[0] + rows * stride_sam, scales[1] + j * stride_sbn
        acc = gl.zeros((64, 128), gl.float32, layout)
        there = K > 128
        a_p, a_q = gl.load(a_ptrs, inside, 0.0), gl.load(a_ptrs + stride_sak, inside & there, 0.0)
        b_p, b_q = gl.load(b_ptr), gl.load(b_ptr + stride_sbk, there, 0.0)
        for k in range(0, K, 256):
            p = start_product(step, p, WHICH, buffers, barriers)
            q = start_product(step + 1, q, WHICH, buffers, barriers)
            scale_p, scale_q = a_p * b_p, a_q * b_q
            a_ptrs += 2 * stride_sak  # the next scales are on their way meanwhile
            b_ptr += 2 * stride_sbk
            here, there = k + 256 < K, k + 384 < K
            a_p = gl.load(a_ptrs, inside & here, 0.0)
            a_q = gl.load(a_ptrs + stride_sak, inside & there, 0.0)
            b_p = gl.load(b_ptr, here, 0.0)
            b_q = gl.load(b_ptr + stride_sbk, there, 0.0)
            p, q = warpgroup_mma_wait(num_outstanding=1, deps=(p, q))  # p is done, q need not be
            mbarrier.arrive(empty.index(step % STAGES), count=1)
            acc += p * scale_p[:, None]
            q, acc = warpgroup_mma_wait(num_outstanding=0, deps=(q, acc))
            mbarrier.arrive(empty.index((step + 1) % STAGES), count=1)
            acc += q * scale_q[:, None]
            step += 2
        tma.store_wait(pendings=0)  # the tile before has left the shared memory
        c_tile.store(acc.to(c_desc.dtype))
        fence_async_shared()
        tma_store(c_desc, [row, j * 128], c_tile)
    tma.store_wait(pendings=0)


# %%
# Starting all three
# ------------------
#
# The producer needs few registers, so the consumers get more.


@gluon.jit(do_not_specialize=["M", "N", "K", "stride_sak", "stride_sbk", "stride_sbn"])
def roles_kernel(
    a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, M, N, K,
    stride_sam, stride_sak, stride_sbk, stride_sbn,
):  # fmt: skip
    """Compute this program's share of the tiles, 128 × 128, by two consumers and a producer."""
    a_tiles = gl.allocate_shared_memory(a_desc.dtype, [2 * STAGES, 64, 128], a_desc.layout)
    b_tiles = gl.allocate_shared_memory(b_desc.dtype, [STAGES, 128, 128], b_desc.layout)
    c_tiles = gl.allocate_shared_memory(c_desc.dtype, [2, 64, 128], c_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)  # both consumers
    tiles, buffers = (a_desc, b_desc, c_desc), (a_tiles, b_tiles, c_tiles)
    bars, scales = (ready, empty), (scale_a_ptr, scale_b_ptr)
    sizes, strides = (M, N, K), (stride_sam, stride_sak, stride_sbk, stride_sbn)
    gl.warp_specialize(
        [
            (consumer, (0, tiles, buffers, bars, scales, sizes, strides)),
            (consumer, (1, tiles, buffers, bars, scales, sizes, strides)),
            (producer, (tiles, buffers, bars, scales, sizes, strides)),
        ],
        [4, 1],  # warps of the second consumer and of the producer
        [232, 24],  # and their registers
    )


# %%
# Calling it
# ----------
#
# The function keeps a plan for calls that are alike (:doc:`/programming-guide/chapter-6/calls`). On
# GPUs other than Hopper, and in the interpreter, it uses the kernel without roles.

import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

# %%

# sphinx_gallery_fold = "checks the arguments, and makes a plan"
SMS, CAN_RUN, IS_HOPPER, PLANS = 1, True, False, {}
RESULT = torch.bfloat16 if ON_GPU else torch.float32  # the interpreter rounds to bf16 wrongly
if ON_GPU:
    gpu = torch.cuda.get_device_properties(DEVICE)
    SMS, nvidia = gpu.multi_processor_count, not torch.version.hip
    CAN_RUN = (gpu.major, gpu.minor) >= (8, 9) if nvidia else gpu.gcnArchName.startswith("gfx95")
    IS_HOPPER = nvidia and gpu.major == 9
if IS_HOPPER:  # Gluon's compiler (3.9) reports objects of its own as leaked when Python ends
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))


def check_arguments(a, b, scale_a, scale_b):
    """Raise an error, naming the argument, where ``scaled_mm_by_blocks`` cannot go on."""
    if not CAN_RUN:
        raise RuntimeError("this GPU has no products of float8_e4m3fn")
    for name, t in (("a", a), ("b", b), ("scale_a", scale_a), ("scale_b", scale_b)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        dtypes = (torch.float32,) if "scale" in name else (E4M3, E5M2)
        if t.dtype not in dtypes:
            raise TypeError(f"{name} must have a dtype of {dtypes}, but has {t.dtype}")
        if t.dim() != 2 or t.device != DEVICE:
            raise ValueError(f"{name} must be a matrix on {DEVICE}, not {t.dim()}-d on {t.device}")
    (M, K), N, steps = a.shape, b.shape[1], triton.cdiv(a.shape[1], 128)
    if b.shape[0] != K or not M * N * K or K % 16 or N % 8:
        raise ValueError(f"a and b cannot have shapes {(M, K)} and {tuple(b.shape)}")
    for name, t in (("a", a), ("b.T", b.T)):
        if t.stride(1) != 1 or t.stride(0) % 16 or t.stride(0) < K or t.data_ptr() % 16:
            raise ValueError(f"{name} must have contiguous rows, at multiples of 16 bytes")
    shapes = (M, steps), (steps, triton.cdiv(N, 128))
    if (scale_a.shape, scale_b.shape) != shapes:
        raise ValueError(f"scale_a and scale_b must have shapes {shapes[0]} and {shapes[1]}")


def make_plan(a, b, scale_a, scale_b, roles=IS_HOPPER):
    """Return a launch, the class of its descriptors, and what they say."""
    (M, K), N = a.shape, b.shape[1]
    numbers = M, N, K, *scale_a.stride(), *scale_b.stride()
    c = a.new_empty(M, N, dtype=RESULT)
    described = [(a, [64, 128]), (b.T, [128, 128]), (c, [64, 128])]
    if roles:
        types = {E4M3: gl.float8e4nv, E5M2: gl.float8e5, c.dtype: gl.bfloat16}
        tiles = []
        for t, block in described:
            layout = gl.NVMMASharedLayout.get_default_for(block, types[t.dtype])
            tiles.append(GluonDescriptor(t, list(t.shape), list(t.stride()), block, layout))
        grid = (min(SMS, triton.cdiv(M, 128) * triton.cdiv(N, 128)),)
        constants = {"num_warps": 4, "maxnreg": 168}
        launch = Launch(roles_kernel, grid, numbers, constants)
    else:
        tiles = [TensorDescriptor(t, t.shape, t.stride(), block) for t, block in described]
        grid = triton.cdiv(N, 128), triton.cdiv(M, 64)
        launch = Launch(plain_kernel, grid, numbers, {"num_warps": 4, "num_stages": 3})
    return launch, type(tiles[0]), [vars(tile) | {"base": None} for tile in tiles]  # no tensor


def run_plan(plan, a, b, scale_a, scale_b):
    """Return the product, computed as the *plan* says."""
    launch, kind, fields = plan
    c = a.new_empty(a.shape[0], b.shape[1], dtype=RESULT)
    tiles = [object.__new__(kind) for _ in fields]
    for tile, said, t in zip(tiles, fields, (a, b, c), strict=True):
        tile.__dict__.update(said, base=t)  # it is not checked again
    launch(*tiles, scale_a, scale_b)
    return c if ON_GPU else c.bfloat16()


# %%


def scaled_mm_by_blocks(a, b, scale_a, scale_b):
    """Return the product of *a* and *b*, each times its scales, in bf16.

    Args:
        a: M × K in float8_e4m3fn or float8_e5m2, contiguous rows; K is a multiple of 16.
        b: K × N, likewise, but with contiguous columns; N is a multiple of 8.
        scale_a: M × ⌈K / 128⌉ in fp32. It is fastest with contiguous columns.
        scale_b: ⌈K / 128⌉ × ⌈N / 128⌉ in fp32.
    """
    if torch.compiler.is_compiling():
        check_arguments(a, b, scale_a, scale_b)
        return scaled_mm_op(a, b, scale_a, scale_b)
    try:
        plan = PLANS.get(key_of(a, b, scale_a, scale_b))
    except AttributeError:  # not a tensor
        plan = None
    if plan is None:
        check_arguments(a, b, scale_a, scale_b)
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        plan = make_plan(a, b, scale_a, scale_b)
        plan = PLANS.setdefault(key_of(a, b, scale_a, scale_b), plan)
    return run_plan(plan, a, b, scale_a, scale_b)


name, types = "gallery::by_blocks", "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b) -> Tensor"
scaled_mm_op = torch.library.custom_op(name, scaled_mm_by_blocks, mutates_args=(), schema=types)
scaled_mm_op.register_fake(lambda a, b, *_: a.new_empty(len(a), b.shape[1], dtype=torch.bfloat16))

# %%
# The reference is in float64. Each call is made twice, because the second call uses the plan.


# sphinx_gallery_fold = "checks both kernels against float64"
def draw_problem(M, N, K, seed=0):
    """Return random a and b in e4m3, b stored by columns, and their scales by blocks."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    a = torch.randn(M, K, device=DEVICE, generator=generator)
    b = torch.randn(K, N, device=DEVICE, generator=generator)
    steps, columns = triton.cdiv(K, 128), triton.cdiv(N, 128)
    scale_a = torch.rand(steps, M, device=DEVICE, generator=generator).T + 0.5
    scale_b = torch.rand(steps, columns, device=DEVICE, generator=generator) + 0.5
    return a.to(E4M3), b.T.contiguous().to(E4M3).T, scale_a, scale_b.T.contiguous().T


def assert_right(c, a, b, scale_a, scale_b):
    """Raise AssertionError where *c* is not the product of the scaled matrices."""
    K, N = b.shape
    a = a.double() * scale_a.double().repeat_interleave(128, 1)[:, :K]
    b = b.double() * scale_b.double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:K, :N]
    size = a.norm(dim=1, keepdim=True) * b.norm(dim=0, keepdim=True)
    torch.testing.assert_close(c.double() / size, a @ b / size, rtol=2**-7, atol=2**-12)


if CAN_RUN:
    for shape in ((8, 8, 16), (200, 176, 320), *([(3000, 2200, 1152)] if ON_GPU else [])):
        problem = draw_problem(*shape)
        assert_right(run_plan(make_plan(*problem, roles=False), *problem), *problem)
        for _ in range(2):
            assert_right(scaled_mm_by_blocks(*problem), *problem)
    print("right, with roles" if IS_HOPPER else "right; the roles need a Hopper GPU")

# %%
# The benchmark
# -------------
#
# The shapes are those of :doc:`09-fp8-matmul`. The ceiling is cuBLAS with the same scales.

# sphinx_gallery_fold = "times the products, draws the rates, and keeps the rows"
from shared.bench import plot_rates, rows_of, write_calls, write_rows

SQUARES = [(n, n, n) for n in (1024, 1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192)]
LAYERS = [(4096, 10240, 8192), (4096, 8192, 8192), (4096, 57344, 8192), (4096, 8192, 28672)]
library = partial(torch._scaled_mm, out_dtype=torch.bfloat16)
STYLES = {  # of the providers, in their order
    "triton": "with roles", "compile": "without roles", "torch": "cuBLAS",
    "triton, as called": "with roles, as called", "torch, as called": "cuBLAS, as called",
}  # fmt: skip


@triton.jit
def empty_kernel():
    """Do nothing."""


if IS_HOPPER:
    rows = []
    for M, N, K in SQUARES + LAYERS:
        problem = draw_problem(M, N, K)
        calls = {
            "triton, blocks of 128": partial(scaled_mm_by_blocks, *problem),
            "plain": partial(run_plan, make_plan(*problem, roles=False), *problem),
            "cublas, blocks of 128": partial(library, *problem),
        }
        rows += rows_of((M, N, K), calls, "TFLOPS", 2 * M * N * K, 20, as_called=list(calls)[::2])
    write_rows("fp8-gluon-performance.csv", ["M", "N", "K"], rows)
    problem = draw_problem(256, 256, 256)
    calls = {"triton": partial(scaled_mm_by_blocks, *problem), "torch": partial(library, *problem)}
    write_calls({"scaled_mm_by_blocks": calls | {"launch": empty_kernel[(1,)]}})
    styles = dict(zip(dict.fromkeys(r[3] for r in rows), STYLES, strict=True))
    squares = [(r[0], styles[r[3]], *r[4:]) for r in rows if r[:3] in SQUARES]
    _, ax = plt.subplots(figsize=(7, 4.8), layout="constrained")
    ax.set_ylim(0, 1.1 * max(row[3] for row in squares))
    plot_rates(ax, squares, STYLES, "fp8 products, scales by blocks of 128", "M = N = K")
else:
    print("Without a Hopper GPU there is nothing to time.")

# %%
# From 2048 on, the roles make the product :measured:`gain` times as fast, and :measured:`small`
# times at 1024, where the larger tiles leave many SMs without work. As called, the function reaches
# :measured:`called` % of cuBLAS. A call keeps the CPU busy for :measured:`cpu` µs, and a call of
# PyTorch's function for :measured:`cpu_torch` µs.
#
# References
# ----------
#
# * Triton: *Gluon tutorials*, https://github.com/triton-lang/triton/tree/main/python/tutorials/gluon
# * DeepSeek-AI: *DeepGEMM*, https://github.com/deepseek-ai/DeepGEMM
