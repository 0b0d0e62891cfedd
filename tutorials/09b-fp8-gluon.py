"""
Warp roles: an fp8 product in Gluon
===================================

You build ``scaled_mm_by_blocks(a, b, scale_a, scale_b)``, a product whose warps have roles: one
loads, the others multiply and add in turn. From 2048 rows on it is, on average, :measured:`gain`
times as fast as the kernel without roles on a Hopper GPU, and reaches :measured:`share` % of
cuBLAS. You need :doc:`09-fp8-matmul`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "further"
import atexit
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
)  # fmt: skip
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.bench import draw_rates, figure, rates, write_rows

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
NEW = hasattr(tma, "async_load")  # two functions have new names in Triton 3.9
tma_load = tma.async_load if NEW else tma.async_copy_global_to_shared
tma_store = tma.async_store if NEW else tma.async_copy_shared_to_global
SMS, CAN_RUN, IS_HOPPER = 1, True, False
RESULT = torch.bfloat16 if ON_GPU else torch.float32  # the interpreter rounds to bf16 wrongly
if ON_GPU:
    gpu = torch.cuda.get_device_properties(DEVICE)
    SMS, nvidia = gpu.multi_processor_count, not torch.version.hip
    CAN_RUN = (gpu.major, gpu.minor) >= (8, 9) if nvidia else gpu.gcnArchName.startswith("gfx95")
    IS_HOPPER = nvidia and gpu.major == 9
if IS_HOPPER:  # Gluon's compiler (3.9) reports objects of its own as leaked when Python ends
    atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))

# %%
# Who works when
# --------------
#
# In the product of :doc:`09-fp8-matmul`, 128 numbers of a row of A share a scale, and so do 128 ×
# 128 numbers of B. So after each product of 128 columns, a program multiplies the result by the
# scales and adds it to a sum. While it adds, its tensor cores have no work. While they multiply,
# its other units have none.
#
# The remedy is *different roles for different warps*. On Hopper four warps together, a
# **warpgroup**, start a product. A program gets two warpgroups that multiply and add, the
# **consumers**, each with 64 rows of the tile, and one warp that only starts loads, the
# **producer**. While one consumer adds, the tensor cores work for the other one.

# sphinx_gallery_fold = "draws who works when: a sketch, not a measurement"
COLORS = {"load": "#8fb996", "multiply": "#cfe3f1", "add": "#f2c6b4"}
work = [(3, 2 * i, "load", i) for i in range(6)]
for y, start in ((0, 2), (2, 2), (1, 4)):
    work += [(y, start + 4 * i, "multiply", i) for i in range(3)]
    work += [(y, start + 4 * i + 2, "add", i) for i in range(3)]
fig, ax = figure(height=3.3)
for y, start, kind, i in work:
    ax.barh(y, 2, left=start, color=COLORS[kind], edgecolor="#444444", height=0.7)
    ax.text(start + 1, y, str(i), ha="center", va="center")
ax.set_yticks(range(4), ["without roles", "consumer 1", "consumer 0", "producer"])
for kind, color in COLORS.items():
    ax.barh(0, 0, color=color, edgecolor="#444444", label=kind)
ax.set(xticks=[], xlabel="time", title="The tensor cores work in blue bars")
fig.legend(loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %%
# In a Triton kernel you write what a program does, not what each of its warps does. The compiler
# can split a loop among warps (``tl.range(…, warp_specialize=True)``), but you cannot say how.
# **Gluon** is a lower-level language that comes with it. You
# allocate shared memory, say which thread holds which element (a **layout**), start loads and
# products, and wait for them.
#
# Barriers
# --------
#
# A load runs by itself once it has been started. A **barrier**, ``mbarrier`` in shared memory, says
# when its data has arrived. It counts arrivals, or bytes. When all have come, its **phase** ends
# and the next one begins: phase 0, 1, 2, … Only the **parity** of the phase, 0 or 1, is stored.
#
# * ``mbarrier.expect(bar, bytes)`` says how many bytes this phase waits for.
# * ``mbarrier.arrive(bar)`` counts one arrival.
# * ``mbarrier.wait(bar, parity)`` returns when the phase of that parity has completed. A new
#   barrier acts as if a phase of parity 1 had completed before.
#
# A buffer that is filled again and again has two barriers: ``ready`` completes a phase when data
# has arrived, and ``empty`` when the data has been used:

# sphinx_gallery_fold = "draws the phases of the two barriers of a buffer"
_, ax = figure(height=4.3)
lines = {
    "producer": [(0, 2, "load 0"), (4, 6, "load 1"), (8, 10, "load 2")],
    "phase of\nready": [(0, 2, "0"), (2, 6, "1"), (6, 10, "2")],
    "phase of\nempty": [(0, 4, "0"), (4, 8, "1"), (8, 12, "2")],
    "consumer": [(2, 4, "use 0"), (6, 8, "use 1"), (10, 12, "use 2")],
}
for y, (name, bars) in enumerate(reversed(lines.items())):
    for i, (start, stop, text) in enumerate(bars):
        color = ("#eeeeee", "#cfe3f1")[i % 2] if name.startswith("phase") else "#f2c6b4"
        ax.barh(y, stop - start, left=start, color=color, edgecolor="#444444", height=0.62)
        ax.text(start + (0.7 if len(text) == 1 else 1), y, text, ha="center", va="center")
for x, text in ((0, "empty, 1"), (4, "empty, 0"), (8, "empty, 1")):  # the producer's waits
    ax.text(x + 0.1, 3.45, f"wait\n({text})")
    ax.plot([x, x], [0.7, 3.4], color="#444444", linestyle=":")
for x, text in ((2, "ready, 0"), (6, "ready, 1"), (10, "ready, 0")):  # the consumer's
    ax.text(x + 0.1, -0.55, f"wait\n({text})", va="top")
    ax.plot([x, x], [-0.5, 2.3], color="#444444", linestyle=":")
ax.set_yticks(range(4), list(reversed(lines)))
ax.set(xticks=[], xlim=(0, 13), ylim=(-1.2, 4.2))
ax.set_xlabel("time; each wait returns at its dotted line")
plt.show()

# %%
# The consumer's first wait is for parity 0: phase 0 of ``ready`` ends when load 0 has arrived. Its
# second wait is for parity 1. The producer's first wait is for parity **1** of ``empty``, and
# returns at once: the barrier is new. Its next, for parity 0, returns when load 0 has been used.
#
# With several buffers, *stages*, step *s* uses buffer ``s % STAGES``, and its phase is
# ``s // STAGES``. So a consumer waits for the parity ``s // STAGES & 1`` of ``ready``, and the
# producer for the other parity of ``empty``.
#
# The smallest kernel with barriers adds up the rows of a matrix:


@gluon.jit
def sum_kernel(x_desc, out_ptr, K):
    """Add up 64 rows of K numbers, with two buffers; 128 divides K."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    tiles = gl.allocate_shared_memory(x_desc.dtype, [2, 64, 64], x_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    row, steps = gl.program_id(0) * 64, K // 64
    for i in gl.static_range(2):
        mbarrier.init(ready.index(i), count=1)
    fence_async_shared()  # the barriers are there before a load uses them
    for i in gl.static_range(2):  # the first two loads
        mbarrier.expect(ready.index(i), x_desc.block_type.nbytes)
        tma_load(x_desc, [row, i * 64], ready.index(i), tiles.index(i))
    total = gl.zeros([64], gl.float32, gl.SliceLayout(1, layout))
    for step in range(steps):
        here, tile = ready.index(step % 2), tiles.index(step % 2)
        mbarrier.wait(here, step // 2 & 1)  # <-
        total += gl.sum(tile.load(layout).to(gl.float32), 1)
        fence_async_shared()  # our reading comes before the next load into this buffer
        more = step + 2 < steps
        mbarrier.expect(here, x_desc.block_type.nbytes, pred=more)
        tma_load(x_desc, [row, (step + 2) * 64], here, tile, pred=more)
    rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    gl.store(out_ptr + rows, total)


# %%
# .. predict:: For which parity does this kernel wait in step 2, the third one?
#    :choices: 0 | 1 | 2
#    :answer: 1
#
#    Step 2 uses buffer 0 for the second time, so it waits for phase 1 of that buffer's barrier.
#
# The same four warps load and add. They need no ``empty``: they start a load into a buffer only
# after they have read it. ``gl.BlockedLayout`` gives each thread eight neighbors in a row, a warp 4
# × 8 threads, and the program four warps one below the other. ``gl.SliceLayout(1, layout)`` is what
# remains of it when the second axis is summed. ``pred=False`` leaves out an operation.

# sphinx_gallery_fold = "describes matrices, and checks the sums on a Hopper GPU"
TYPES = {E4M3: gl.float8e4nv, E5M2: gl.float8e5, torch.bfloat16: gl.bfloat16}


def described(x, rows, cols=128):
    """Return a descriptor of the matrix *x* with tiles of *rows* × *cols*."""
    layout = gl.NVMMASharedLayout.get_default_for([rows, cols], TYPES[x.dtype])
    return GluonDescriptor(x, list(x.shape), list(x.stride()), [rows, cols], layout)


if IS_HOPPER:
    x = torch.randn(640, 4096, device=DEVICE).bfloat16()
    sums = torch.empty(640, device=DEVICE)
    sum_kernel[(10,)](described(x, 64, 64), sums, 4096, num_warps=4)
    torch.testing.assert_close(sums.double(), x.double().sum(1), rtol=1e-5, atol=1e-3)
    print("sum_kernel agrees with float64")

# %%
# **Try it** *(medium, 40 minutes)*. Write ``row_sums(x)`` with roles: one warp loads, and four
# warps add. ``exercise.pyz`` (see *Exercises*) checks it on a Hopper GPU:
#
# .. code-block:: console
#
#    $ python exercise.pyz 09b-row-sums mine.py
#    09b-row-sums needs a Hopper GPU of NVIDIA, since no interpreter executes Gluon: add --gpu.
#
# If the producer waits for the wrong parity of ``empty``, it overwrites tiles that nobody has read,
# or both roles wait forever. The checker names the first wrong row, or says that it gave up.
#
# Producer and consumers
# ----------------------
#
# The product has six stages. ``ready`` and ``empty`` each have a barrier for each of them. The
# producer visits the consumers' tiles, and starts a load as soon as a stage is empty.

STAGES, GROUP = gl.constexpr(6), gl.constexpr(8)


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
            mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)  # <-
            here = ready.index(stage)
            mbarrier.expect(here, 2 * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma_load(b_desc, [j * 128, k], here, b_tiles.index(stage))
            tma_load(a_desc, [i * 128, k], here, a_tiles.index(stage * 2))
            tma_load(a_desc, [i * 128 + 64, k], here, a_tiles.index(stage * 2 + 1))
            step += 1


# %%
# ``warpgroup_mma`` starts a product, and ``warpgroup_mma_wait`` waits for it.
# ``gl.NVMMADistributedLayout`` is the layout in which the tensor cores leave its result. With
# ``use_acc=False`` a product starts from zero. Each consumer has *two* products in flight, ``p``
# and ``q``: while it adds one, the tensor cores compute the other. Both are finished at the end of
# an iteration, so the assembler can see that no instruction touches the registers of a product in
# flight. When a product is finished, its stage is empty: both consumers arrive at the barrier.


@gluon.jit
def start_product(step, p, WHICH: gl.constexpr, buffers, barriers):
    """Wait for the data of *step*, and start its product, which is going to be in *p*."""
    stage = step % STAGES
    mbarrier.wait(barriers[0].index(stage), step // STAGES & 1)  # <-
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
        rows = (row + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))).to(gl.int64)
        inside = rows < M
        a_ptrs, b_ptr = scales[0] + rows * stride_sam, scales[1] + j.to(gl.int64) * stride_sbn
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
# ``gl.warp_specialize`` runs functions at the same time, each with its own warps and its share of
# the registers. The first function runs in the four warps of the launch, and the others get warps
# of their own. The producer needs few registers, so the consumers get more.


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
# On other GPUs and in the interpreter, the kernel of :doc:`09-fp8-matmul` computes the product.

# sphinx_gallery_fold = "the kernel without roles"


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


def without_roles(a, b, scale_a, scale_b):
    """Return the product, computed by the kernel without roles."""
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty(M, N, dtype=RESULT)
    sides = (a, [64, 128]), (b.T, [128, 128]), (c, [64, 128])
    tiles = [TensorDescriptor(x, x.shape, x.stride(), block) for x, block in sides]
    numbers = M, N, K, *scale_a.stride(), *scale_b.stride()
    grid = triton.cdiv(N, 128), triton.cdiv(M, 64)
    plain_kernel[grid](*tiles, scale_a, scale_b, *numbers, num_warps=4, num_stages=3)
    return c if ON_GPU else c.bfloat16()


# %%


def scaled_mm_by_blocks(a, b, scale_a, scale_b):
    """Return the product of *a* and *b*, each times its scales, in bf16."""
    if not IS_HOPPER:
        return without_roles(a, b, scale_a, scale_b)
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty(M, N, dtype=RESULT)
    tiles = described(a, 64), described(b.T, 128), described(c, 64)
    numbers = M, N, K, *scale_a.stride(), *scale_b.stride()
    grid = (min(SMS, triton.cdiv(M, 128) * triton.cdiv(N, 128)),)
    roles_kernel[grid](*tiles, scale_a, scale_b, *numbers, num_warps=4, maxnreg=168)
    return c


# %%
# The reference is in float64:

# sphinx_gallery_fold = "checks both kernels against float64"
from shared.blocks import assert_right, draw_problem

SHAPES = [(8, 8, 16), (200, 176, 320), *([(3000, 2200, 1152)] if ON_GPU else [])]
if CAN_RUN:
    for shape in SHAPES:
        problem = draw_problem(*shape)
        assert_right(without_roles(*problem), *problem)
        assert_right(scaled_mm_by_blocks(*problem), *problem)
    print("right, with roles" if IS_HOPPER else "right; the roles need a Hopper GPU")

# %%
# The benchmark
# -------------
#
# The squares (see the plot) and layers are those of :doc:`09-fp8-matmul`; cuBLAS has our scales.

# sphinx_gallery_fold = "times the products, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "roles_kernel: M = N = K = 8192"
SQUARES = [(n, n, n) for n in (1024, 1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192)]
LAYERS = [(4096, 10240, 8192), (4096, 8192, 8192), (4096, 57344, 8192), (4096, 8192, 28672)]
library = partial(torch._scaled_mm, out_dtype=torch.bfloat16)
NAMES = {"triton, blocks of 128": "with roles", "plain": "without roles"}
NAMES |= {"cublas, blocks of 128": "cuBLAS"}

if IS_HOPPER:
    rows = []
    for M, N, K in LAYERS + SQUARES:
        problem = draw_problem(M, N, K)
        calls = zip(NAMES, (scaled_mm_by_blocks, without_roles, library), strict=True)
        calls = {name: partial(function, *problem) for name, function in calls}
        rows += rates((M, N, K), calls, "TFLOPS", 2 * M * N * K, rounds=20)
    scaled_mm_by_blocks(*problem)  # the last launch is the one whose X-ray is shown
    write_rows("fp8-gluon-performance.csv", ["M", "N", "K"], rows)
    ours = {name: name.replace("plain", "triton, plain") for name in NAMES}  # the color of ours
    squares = [(*row[:3], ours[row[3]], *row[4:]) for row in rows if row[:3] in SQUARES]
    names = {ours[name]: label for name, label in NAMES.items()}
    draw_rates(squares, names, "fp8 products, scales by blocks of 128", "M = N = K")

# %%
# From 2048 on, the product with roles is on average :measured:`gain` times as fast as without. At
# 1024 it is :measured:`small` times as fast, and at 1536 :measured:`middle` times. Its tiles are
# twice as high: 64 at 1024, and 144 at 1536, which are two waves for 132 multiprocessors.
#
# In a program
# ------------
#
# The kernel trusts its arguments: past the end of scales of a wrong shape it would read other
# memory, and a matrix whose rows do not begin at multiples of 16 bytes has no descriptor. So the
# function checks dtypes, shapes, strides and devices, and names the argument that is wrong. It
# refuses scales that require a gradient, since it has no backward pass. For ``torch.compile`` the
# product is one operation. A *plan* saves Python's work, see
# :doc:`/programming-guide/chapter-6/calls`.

# sphinx_gallery_fold = "the function with its checks"
from shared.launch import Launch, key_of, know_the_gpu, on_device_of
from shared.plans import ORDINARY, Plan, Plans

PLANS = Plans()


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
        if t.dim() != 2 or t.device != a.device or t.device.type != DEVICE.type:
            where = f"on {a.device}, as a," if name != "a" else f"on a {DEVICE.type} device"
            raise ValueError(f"{name} must be a matrix {where} not {t.dim()}-d on {t.device}")
        if t.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} requires a gradient, which this product does not compute")
    (M, K), N, steps = a.shape, b.shape[1], triton.cdiv(a.shape[1], 128)
    if b.shape[0] != K or not M * N * K or K % 16 or N % 8:
        rule = "a must be M × K and b K × N, where 16 divides K and 8 divides N"
        raise ValueError(f"{rule}, but they are {(M, K)} and {tuple(b.shape)}")
    for name, t in (("a", a), ("b.T", b.T)):
        aligned = type(t) not in ORDINARY or torch.compiler.is_compiling() or not t.data_ptr() % 16
        if t.stride(1) != 1 or t.stride(0) % 16 or t.stride(0) < K or not aligned:
            raise ValueError(f"{name} must have contiguous rows, at multiples of 16 bytes")
    shapes = (M, steps), (steps, triton.cdiv(N, 128))
    if (found := (tuple(scale_a.shape), tuple(scale_b.shape))) != shapes:
        raise ValueError(f"scale_a and scale_b must have shapes {shapes}, but have {found}")


def make_plan(a, b, scale_a, scale_b):
    """Return a plan for tensors like these, with the launch of the plain function."""
    know_the_gpu()  # a new thread does not
    (M, K), N = a.shape, b.shape[1]
    numbers = M, N, K, *scale_a.stride(), *scale_b.stride()
    c = a.new_empty(M, N, dtype=RESULT)
    tiles = described(a, 64), described(b.T, 128), described(c, 64)
    grid = (min(SMS, triton.cdiv(M, 128) * triton.cdiv(N, 128)),)
    constants = {"num_warps": 4, "maxnreg": 168}
    return Plan(Launch(roles_kernel, grid, numbers, constants), tiles)


def scaled_mm_by_blocks(a, b, scale_a, scale_b):
    """Return the product of *a* and *b*, each times its scales, in bf16.

    Args:
        a: M × K in float8_e4m3fn or float8_e5m2, contiguous rows; K is a multiple of 16.
        b: K × N, likewise, but with contiguous columns; N is a multiple of 8.
        scale_a: M × ⌈K / 128⌉ in fp32. It is fastest with contiguous columns.
        scale_b: ⌈K / 128⌉ × ⌈N / 128⌉ in fp32.

    TypeError refuses other dtypes; ValueError refuses shapes, strides and devices that do not fit,
    and scales that require a gradient; RuntimeError says that the GPU has no products of fp8.
    """
    ordinary = {type(x) for x in (a, b, scale_a, scale_b)} <= ORDINARY
    if torch.compiler.is_compiling() or not ordinary:
        check_arguments(a, b, scale_a, scale_b)
        return scaled_mm_op(a, b, scale_a, scale_b)
    if a.is_neg() or b.is_neg() or scale_a.is_neg() or scale_b.is_neg():  # refuses fp8
        a, b, scale_a, scale_b = (x.resolve_neg() for x in (a, b, scale_a, scale_b))
    plan = PLANS.get(key_of(a, b, scale_a, scale_b))
    if plan is None or scale_a.requires_grad or scale_b.requires_grad:
        check_arguments(a, b, scale_a, scale_b)
    if plan is None:
        with on_device_of(a):
            if not IS_HOPPER:
                return without_roles(a, b, scale_a, scale_b)
            plan = make_plan(a, b, scale_a, scale_b)
        PLANS.keep(key_of(a, b, scale_a, scale_b), plan)
    c = a.new_empty(a.shape[0], b.shape[1], dtype=RESULT)
    plan((a, b, c), scale_a, scale_b)
    return c


# For torch.compile, and for tensors without memory, the function is one operation.
SCHEMA = "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b) -> Tensor"


@torch.library.custom_op("gallery::by_blocks", mutates_args=(), schema=SCHEMA)
def scaled_mm_op(a, b, scale_a, scale_b):
    """Return the result of ``scaled_mm_by_blocks``."""
    return scaled_mm_by_blocks(*(t.detach() for t in (a, b, scale_a, scale_b)))


@scaled_mm_op.register_fake
def scaled_mm_shape(a, b, scale_a, scale_b):
    """Return a tensor like the result, without computing it."""
    return a.new_empty(len(a), b.shape[1], dtype=torch.bfloat16)


# %%
# The same check, twice, because the second call uses the plan, and the CPU's share of a call:

# sphinx_gallery_fold = "checks the function, times its calls, and keeps the values"
from shared.bench import write_calls, write_table
from shared.plans import empty_kernel

if CAN_RUN:
    for shape in SHAPES * 2:
        problem = draw_problem(*shape)
        assert_right(scaled_mm_by_blocks(*problem), *problem)
    print("right, twice")

if IS_HOPPER:
    problem = draw_problem(256, 256, 256)
    calls = {"triton": partial(scaled_mm_by_blocks, *problem), "torch": partial(library, *problem)}
    cpu = write_calls({"scaled_mm_by_blocks": calls | {"launch": empty_kernel[(1,)]}})
    times = {n: 2e-6 * n**3 / rate for n, _, _, name, _, rate, *_ in squares if "triton" in name}
    longer = min(n for n, us in times.items() if us > cpu["scaled_mm_by_blocks", "triton"])
    values = [("GPU longer from", "rows", longer)]
    write_table("09b-fp8-gluon-values.csv", ["name", "unit", "value"], values)

# %%
# A call keeps the CPU busy for :measured:`cpu` µs, and a call of PyTorch's function for
# :measured:`cpu_torch` µs. In a loop that does not wait, a call costs the larger of two times: the
# CPU's, and the GPU's. Squares from M = N = K = :measured:`gpu_longer` on keep the GPU busy longer.
#
# Exercises
# ---------
#
# 1. **Row sums** *(medium, 40 minutes)*. The exercise above.
#    :doc:`Solution <solutions/09b-row-sums>`.
# 2. **A product in bf16** *(hard, 60 minutes)*. Write ``product(a, w)``, which is ``a @ w.T`` in
#    bf16 without scales. Nothing has to be added outside the tensor cores. Which part of
#    ``consumer`` is left? :doc:`Solution <solutions/09b-product>`.
#
# References
# ----------
#
# * Triton: *Gluon tutorials*, https://github.com/triton-lang/triton/tree/main/python/tutorials/gluon
# * DeepSeek-AI: *DeepGEMM*, https://github.com/deepseek-ai/DeepGEMM
