"""
Matrix multiplication: full waves
=================================

The kernel of :doc:`03-matrix-multiplication` loses time between tiles, and in its last wave. Here
you build a second ``matmul``, with tensor descriptors, persistent programs and a last wave that is
cut into small tiles. Over 29 sizes it reaches :measured:`share` % of the speed of cuBLAS.
"""

# %%
# The kernel
# ----------
#
# So far, a program computes a pointer and a mask for each element. NVIDIA GPUs since Hopper have
# hardware for this, the *tensor memory accelerator*. It gets a **tensor descriptor**: address,
# shape and strides of a matrix, and the shape of a tile. Then a position is enough to load a tile
# into shared memory. Outside the matrix, loads give zeros and stores write nothing. The rows must
# be contiguous and start at multiples of 16 bytes. (Other GPUs use pointers and masks.)

# sphinx_gallery_thumbnail_number = 2
# sphinx_gallery_level = "beyond"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def compute_tile(
    a_desc, b_desc, c_desc, row, column, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute the tile of C = activation(A @ B) that begins at (row, column)."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    if ACTIVATION == "leaky_relu":
        acc = tl.where(acc >= 0, acc, 0.01 * acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


def random_pair(M, N, K):
    """Return random fp16 matrices of M × K and K × N elements."""
    return [torch.randn(shape, device=DEVICE).half() for shape in ((M, K), (K, N))]


def check(c, a, b, activation=""):
    """Stop if *c* is not ``activation(a @ b)``, computed in float64."""
    exact = a.double() @ b.double()
    if activation == "leaky_relu":
        exact = torch.nn.functional.leaky_relu(exact)
    rounding, summing = torch.finfo(a.dtype).eps, 2**-20 * a.shape[1]  # K products in fp32
    torch.testing.assert_close(c.double(), exact, rtol=rounding, atol=summing)


a, b = random_pair(48, 56, 96)
c = torch.empty(48, 56, dtype=a.dtype, device=DEVICE)
blocks = ((a, [64, 32]), (b, [32, 64]), (c, [64, 64]))
descriptors = [TensorDescriptor(t, t.shape, t.stride(), block) for t, block in blocks]
compute_tile[(1,)](*descriptors, 0, 0, 96, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, ACTIVATION="")
check(c, a, b)
print("48 × 96 by 96 × 56: right, by one tile of 64 × 64 without a mask")

# %%
# Persistent programs
# -------------------
#
# A large tile occupies a whole multiprocessor (SM). When its program ends, nothing is multiplied
# until the next program has loaded its first tiles. A **persistent** program avoids this pause: the
# grid has one program for each SM, and each computes one tile after the other. ``flatten=True``
# joins the loop over tiles and the loop along K, so loads start before a tile is finished::
#
#     for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
#         i, j = tile_position(tile, tiles_m, tiles_n)
#         compute_tile(…)
#
# From three waves on, that is :measured:`persistent` times as fast. One wave has no pause to avoid.
#
# Counting waves
# --------------
#
# Tiles run in **waves**: as many at a time as there are SMs. The last wave takes as long as any
# other, even if only one tile is left for it. No order of the tiles changes that:
#
# .. tile-order::
#    :size: 9
#    :group: 4
#    :processors: 16
#
# Nine tiles on four SMs are three waves, and three quarters of the last one are idle. If the last
# tile is cut into four pieces, all SMs share the rest.

# sphinx_gallery_fold = "draws nine tiles on four SMs"
import matplotlib.pyplot as plt

bars = [(i % 4, i // 4, 1, str(i)) for i in range(8)]  # SM, start, length, tile
pieces = [(i, 2, 0.25, f"8{'abcd'[i]}") for i in range(4)]
fig, axes = plt.subplots(2, 1, figsize=(7, 4.4), sharex=True, layout="constrained")
for ax, last in zip(axes, ([(0, 2, 1, "8")], pieces), strict=True):
    for sm, start, length, tile in bars + last:
        color = plt.get_cmap("tab10")(int(tile[0]))
        ax.barh(sm, length, 0.8, left=start, color=color, alpha=0.5, edgecolor="#444444")
        ax.text(start + length / 2, sm, tile, ha="center", va="center")
    ax.set(ylabel="SM", yticks=range(4), xlim=(0, 3.05), ylim=(3.6, -0.6))
axes[0].set_title("9 tiles on 4 SMs; below, the last one is cut in four")
axes[1].set_xlabel("time, in large tiles")
plt.show()

# %%
# So the tile that fills its waves is often better than the largest one, and an estimate chooses it.
# For each column of A, an m × n tile needs m · n products and loads m + n numbers. Assume that
# loading one number takes as long as 24 products. Then the whole product costs K times the waves
# times m · n + 24 (m + n). Pieces cost their own waves, plus 2²⁴ products to start.

# sphinx_gallery_fold = "asks the GPU for its SMs, and estimates the time of a plan"
# sphinx_gallery_show = "Plan, tile_cost, plan_cost"
import math
from copy import copy
from dataclasses import dataclass, replace

SMS, SHARED_BYTES = 132, 232448  # of an H200
if ON_GPU:
    gpu = torch.get_device_module().get_device_properties(DEVICE)
    SMS = gpu.multi_processor_count
    SHARED_BYTES = getattr(gpu, "shared_memory_per_block_optin", 65536)


@dataclass(frozen=True)
class Plan:
    """How to compute a product: its tiles, and what one program gets to work with."""

    tile: tuple[int, int, int]  # BLOCK_M, BLOCK_N, BLOCK_K
    warps: int
    stages: int
    persistent: bool = False  # one program for each SM, which computes many tiles
    at_once: int = 0  # so many programs share an SM, and all run at once; 0: in waves
    cut: tuple[int, int] | None = None  # the smaller tile for the last wave


def count_waves(plan, M, N):
    """Return the full waves of *plan*, the tiles that are left, and the pieces of these."""
    m, n = plan.tile[:2]
    waves, left = divmod(triton.cdiv(M, m) * triton.cdiv(N, n), SMS)
    return waves, left, left * m * n // math.prod(plan.cut or (m, n))


def tile_cost(m, n):
    """Return the time of one column of A in an m × n tile, in products."""
    return m * n + 24 * (m + n)


def plan_cost(plan, M, N, K):
    """Estimate the time of an (M, K) by (K, N) product, in products of one SM."""
    waves, _, pieces = count_waves(plan, M, N)
    last = triton.cdiv(pieces, SMS)
    if plan.at_once and waves + last != plan.at_once:
        return math.inf  # not the number of programs on an SM that this plan is for
    cost = waves * tile_cost(*plan.tile[:2]) + last * tile_cost(*(plan.cut or plan.tile[:2]))
    return K * cost + (2**24 if plan.cut and not plan.at_once else 0)


def fit(plan):
    """Return *plan* with as many of its stages as the shared memory of this GPU has room for."""
    m, n, k = plan.tile
    buffer = 2 * m * n if plan.persistent else 0  # bytes, for storing a tile
    room = SHARED_BYTES // (plan.at_once or 1) - buffer - 1024
    return replace(plan, stages=min(plan.stages, room // (2 * (m + n) * k)))


# %%
# Cutting the last wave
# ---------------------
#
# A persistent program knows its tiles, so it can cut the last wave itself. It computes the first
# ``whole`` tiles as they are, and the others in pieces.


@triton.jit
def tile_position(tile, tiles_m, tiles_n):
    """Return (row, column) of the tile with number *tile*, taking eight rows at a time."""
    first = tile // (8 * tiles_n) * 8  # first row of this group
    rows = min(tiles_m - first, 8)  # the last group may have fewer rows
    return first + tile % (8 * tiles_n) % rows, tile % (8 * tiles_n) // rows


@triton.jit(do_not_specialize=["whole"])
def descriptor_kernel(
    a_desc, b_desc, c_desc, a_cut, b_cut, c_cut, M, N, K, whole,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    CUT_M: tl.constexpr, CUT_N: tl.constexpr, PERSISTENT: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute this program's share of the tiles of C = activation(A @ B)."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    if PERSISTENT:
        for tile in tl.range(program, whole, programs, flatten=True):
            i, j = tile_position(tile, tiles_m, tiles_n)
            row, column = i * BLOCK_M, j * BLOCK_N
            compute_tile(
                a_desc, b_desc, c_desc, row, column, K, BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION
            )
    elif program < whole:  # one program for each tile
        i, j = tile_position(program, tiles_m, tiles_n)
        row, column = i * BLOCK_M, j * BLOCK_N
        compute_tile(a_desc, b_desc, c_desc, row, column, K, BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION)

    if CUT_M:
        ACROSS: tl.constexpr = BLOCK_N // CUT_N
        PIECES: tl.constexpr = BLOCK_M // CUT_M * ACROSS  # of one tile
        pieces = (tiles_m * tiles_n - whole) * PIECES
        first = program  # my first piece
        if not PERSISTENT:  # the programs after those for whole tiles have one piece each
            first = tl.where(program < whole, pieces, program - whole)
        for piece in range(first, pieces, programs):
            i, j = tile_position(whole + piece // PIECES, tiles_m, tiles_n)
            row = i * BLOCK_M + piece % PIECES // ACROSS * CUT_M
            column = j * BLOCK_N + piece % ACROSS * CUT_N
            compute_tile(a_cut, b_cut, c_cut, row, column, K, CUT_M, CUT_N, BLOCK_K, ACTIVATION)


# %%
# With short pipelines, two programs fit on one SM: while one waits or stores, the other multiplies.
# This pays for small products whose programs all run ``at_once``. (*Stream-K*, see below, shares
# the steps along K of the last wave among SMs, and adds up partial sums in memory.)
#
# Choosing a plan
# ---------------
#
# Of all these plans, the rule takes the one with the lowest estimate.

LARGE = fit(Plan((128, 256, 64), warps=8, stages=3, persistent=True))
MEDIUM = fit(Plan((128, 128, 64), warps=4, stages=5, persistent=True))
CUTS = ((64, 64), (64, 128))
PLANS = [
    *(Plan((64, n, 128), warps=4, stages=4, at_once=1) for n in (32, 64, 128)),
    Plan((64, 128, 64), warps=4, stages=4, at_once=2, cut=(64, 64)),
    *(Plan((128, 128, 64), warps=4, stages=3, at_once=2, cut=cut) for cut in CUTS),
    *(MEDIUM, *(replace(MEDIUM, cut=cut) for cut in CUTS), LARGE),
]
PLANS = [p for p in map(fit, PLANS) if p.stages >= 2] or [Plan((64, 64, 32), warps=4, stages=2)]


def best_plan(M, N, K, plans=PLANS):
    """Return the plan with the lowest estimate."""
    return min(plans, key=lambda plan: plan_cost(plan, M, N, K))


for n in (512, 1024, 1536, 2048, 2176, 3072, 4096):
    print(f"{n:4}: {best_plan(n, n, n)}")

# %%
# The function
# ------------
#
# ``matmul`` keeps a prepared product for each kind of arguments. A descriptor holds an address, so
# each call makes new ones from those kept. A matrix that no descriptor can address is copied first.

# sphinx_gallery_fold = "checks the arguments, and prepares products"
# sphinx_gallery_show = "prepare, matmul"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch_recorded import Launch, key_of

KEPT = {}  # a prepared product for each kind of arguments


def check_arguments(a, b, activation):
    """Raise TypeError or ValueError, naming the argument, if ``matmul`` cannot go on."""
    for name, t in (("a", a), ("b", b)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dtype not in (torch.float16, torch.bfloat16):
            raise TypeError(f"{name} must be float16 or bfloat16, but is {t.dtype}")
        if t.dim() != 2 or t.device != DEVICE:
            found = f"{tuple(t.shape)} on {t.device}"
            raise ValueError(f"{name} must be a matrix on {DEVICE}, but is {found}")
    if a.dtype != b.dtype or a.shape[1] != b.shape[0]:
        found = f"{a.dtype} {tuple(a.shape)} × {b.dtype} {tuple(b.shape)}"
        raise ValueError(f"a and b must have one dtype, and shapes that fit, but are {found}")
    if activation not in ("", "leaky_relu"):
        raise ValueError(f'activation must be one of "" and "leaky_relu", but is {activation!r}')


def can_describe(matrix):
    """Say if the rows of *matrix* are contiguous and start at multiples of 16 bytes."""
    row, column = matrix.stride()
    return column == 1 and row % 8 == 0 and matrix.data_ptr() % 16 == 0 and row >= matrix.shape[1]


def padded(matrix):
    """Return a copy of *matrix* with zeros at the end of each row, to a multiple of 16 bytes."""
    return torch.nn.functional.pad(matrix, (0, -matrix.shape[1] % 8)).contiguous()


def moved(descriptor, tensor):
    """Return *descriptor* for another *tensor* of the same shape and strides."""
    new = copy(descriptor)
    new.base = tensor
    return new


def prepare(plan, a, b, activation=""):
    """Return a function that computes products of matrices like *a* and *b* by *plan*."""
    (M, K), N = a.shape, b.shape[1]
    if M * N * K == 0:
        return lambda a, b: a.new_zeros(M, N)
    if N % 8 or not (can_describe(a) and can_describe(b)):
        start = prepare(plan, padded(a)[:, :K], padded(b), activation)
        return lambda a, b: start(padded(a)[:, :K], padded(b))[:, :N].contiguous()
    waves, left, pieces = count_waves(plan, M, N)
    (m, n, k), (cut_m, cut_n) = plan.tile, plan.cut or (None, None)
    whole, pieces = (waves * SMS, pieces) if plan.cut else (waves * SMS + left, 0)
    programs = min(SMS, max(whole, pieces)) if plan.persistent else whole + pieces
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "CUT_M": cut_m, "CUT_N": cut_n}
    constants |= {"PERSISTENT": plan.persistent, "ACTIVATION": activation}
    constants |= {"num_warps": plan.warps, "num_stages": plan.stages}
    launch = Launch(descriptor_kernel, (programs,), (M, N, K, whole), constants)
    blocks = [[m, k], [k, n], [m, n]] + ([[cut_m, k], [k, cut_n], [cut_m, cut_n]] * bool(plan.cut))
    forms = [(a.shape, a.stride()), (b.shape, b.stride()), ((M, N), (N, 1))]
    kept = [TensorDescriptor(a, *forms[i % 3], block) for i, block in enumerate(blocks)]
    kept, missing = [moved(descriptor, None) for descriptor in kept], [None] * (6 - len(blocks))

    def start(a, b):
        c = torch.empty((M, N), dtype=a.dtype, device=a.device)
        tensors = zip(kept, (a, b, c, a, b, c), strict=False)
        launch(*[moved(descriptor, tensor) for descriptor, tensor in tensors], *missing)
        return c

    return start


def matmul(a, b, activation=""):
    """Return ``activation(a @ b)``, summed in fp32 and rounded once.

    *a* has shape (M, K) and *b* (K, N). Both are fp16 or bf16, on one device, with any strides.
    *activation* is "" or "leaky_relu". TypeError and ValueError name a wrong argument.
    """
    try:
        start = KEPT[key_of(a, b), activation]
    except (AttributeError, TypeError, KeyError):  # no tensors, or the first call of its kind
        check_arguments(a, b, activation)
        if len(KEPT) == 1000:  # a program whose shapes never repeat
            KEPT.clear()
        start = prepare(best_plan(len(a), b.shape[1], len(b)), a, b, activation)
        KEPT[key_of(a, b), activation] = start
    return start(a, b)


for shape in [(33, 129, 77), (144, 272, 128), (64, 256, 128), (4, 0, 3), (3, 2, 0)]:
    a, b = random_pair(*shape)
    check(matmul(a, b), a, b)
    check(matmul(a, b[:, ::2], "leaky_relu"), a, b[:, ::2], "leaky_relu")
a, b = random_pair(1936, 2064, 256) if ON_GPU else random_pair(144, 272, 128)
for plan in PLANS:
    check(prepare(plan, a, b, "leaky_relu")(a, b), a, b, "leaky_relu")
print("matmul is right on five shapes and on views; every plan is right by itself")

# %%
# The benchmark
# -------------
#
# Square fp16 matrices from 512 to 4096. Step 1 is the large tile in waves, step 2 the same tile in
# persistent programs, step 3 the better of two tiles, and step 4 ``matmul``.

# sphinx_gallery_fold = "times the steps, draws the rates, and keeps the rows"
from functools import partial

from shared.bench import plot_rates, rows_of, spread, time_on_gpu, write_calls
from shared.bench import write_rows, write_table

LIBRARY = "rocblas" if torch.version.hip else "cublas"
STEPS = ("1 descriptors", "2 persistent", "3 the better tile", "4 cut")


@triton.jit
def empty_kernel():
    """Do nothing."""


def steps_of(a, b):
    """Return {step: call} for the way this page has gone, for square matrices."""
    better = best_plan(len(a), len(a), len(a), (LARGE, MEDIUM))
    plans = (replace(LARGE, persistent=False), LARGE, better)
    calls = [partial(prepare(plan, a, b), a, b) for plan in plans] + [partial(matmul, a, b)]
    return dict(zip(STEPS, calls, strict=True)) | {LIBRARY: partial(torch.matmul, a, b)}


if ON_GPU:
    rows, ranks = [], []
    for n in range(512, 4097, 128):
        a, b = random_pair(n, n, n)
        rows += rows_of((n, n, n), steps_of(a, b), "TFLOPS", 2 * n**3, 20, (STEPS[3], LIBRARY))
        if n % 512 == 0:
            possible = [p for p in PLANS if plan_cost(p, n, n, n) < math.inf]
            times = time_on_gpu({p: partial(prepare(p, a, b), a, b) for p in possible}, 10)
            best = min(spread(ms)[0] for ms in times.values())
            ranks.append(100 * best / spread(times[best_plan(n, n, n)])[0])
    write_rows("matmul-steps-fp16.csv", ["M", "N", "K"], rows)
    write_table("03b-full-waves-values.csv", ["name", "unit", "value"], [("rank", "%", min(ranks))])
    a, b = random_pair(512, 512, 512)
    calls = {"triton": partial(matmul, a, b), "torch": partial(torch.matmul, a, b)}
    write_calls({"matmul": calls | {"launch": empty_kernel[(1,)]}})
    _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    names = {"triton": STEPS[3], "torch": LIBRARY, "compile": STEPS[1]}
    names["triton, as called"] = f"{STEPS[3]}, as called"
    kinds = {label: kind for kind, label in names.items()}
    shown = [(row[0], kinds[row[3]], *row[4:]) for row in rows if row[3] in kinds]
    plot_rates(ax, shown, names, "Matrix product in fp16", "M = N = K")

# %%
# The steps at M = N = K = 2176, a size with an awkward last wave:
#
# .. steps:: library
#    :unit: TFLOPS
#    :of: the library
#
#    one: descriptors, one program for each tile
#    two: persistent programs
#    three: the tile that fills its waves
#    four: the last wave cut
#
# **The teeth** of the large tile are its waves. Persistent programs save the pause between tiles,
# but the teeth stay. **Cutting** fills the valleys, as far as small tiles are efficient. Choosing
# between two tiles brings a factor of :measured:`better` on average, and cutting :measured:`cut`.
# **The rule** reaches at least :measured:`rank` % of the fastest plan's speed.
#
# **As called**, ``matmul`` reaches :measured:`called` % of the library. A call takes the CPU
# :measured:`cpu` µs (PyTorch: :measured:`cpu_torch` µs): it encodes descriptors anew.
#
# Exercises
# ---------
#
# 1. **A long K.** A single SM computes a product of 64 × K by K × 64 matrices. Share K between
#    programs, with the same result every time. :doc:`Solution <solutions/03-split-k>`.
# 2. **A GPU with other numbers.** Write ``filled(tiles, processors)``, the share of the places in
#    all waves that hold a tile. Set ``SMS`` to 84 or to 304: which plan does the rule choose?
#
# References
# ----------
#
# * Muhammad Osama et al.: *Stream-K: work-centric parallel decomposition for dense matrix-matrix
#   multiplication on the GPU*, PPoPP 2023, https://doi.org/10.1145/3572848.3577479
