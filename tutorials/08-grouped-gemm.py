"""
Grouped matrix multiplication
=============================

In a **mixture of experts** each token is multiplied by a few of many matrices, the *experts*. That
makes a batch of products of different heights, and only the GPU knows the heights. You build
``grouped_mm(x, w, offsets)``, which computes all products in one launch. On average over ten cases
it is :measured:`library` times as fast as PyTorch's ``torch._grouped_mm``. You need
:doc:`03-matrix-multiplication` and :doc:`03b-full-waves`.
"""

# %%
# The kernel
# ----------
#
# ``x`` has one row for each token, sorted by expert: *tokens* × *K*. ``w`` is a stack of matrices,
# *experts* × *K* × *N*. ``offsets[e]`` is the row of ``x`` behind the last row of expert *e*. The
# rows of an expert start where those of the previous expert end. There may be none.

# sphinx_gallery_level = "beyond"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit(do_not_specialize=["experts", "tokens"])
def one_launch_kernel(
    x_ptr, w_ptr, out_ptr, offsets_ptr, experts, tokens, K, N,
    stride_xm, stride_xk, stride_we, stride_wk, stride_wn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of one expert."""
    tile, tiles_n = tl.program_id(0), tl.cdiv(N, BLOCK_N)
    step = tl.full((), BLOCK_K, tl.int64)
    first = 0  # the number of the expert's first tile
    start = 0  # the expert's first row
    for expert in range(experts):
        end = tl.maximum(tl.minimum(tl.load(offsets_ptr + expert), tokens), start)
        after = first + tl.cdiv(end - start, BLOCK_M) * tiles_n
        if (tile >= first) & (tile < after):
            rows = start + (tile - first) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
            columns = (tile - first) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
            ks = tl.arange(0, BLOCK_K).to(tl.int64)
            x_ptrs = x_ptr + rows[:, None] * stride_xm + ks[None, :] * stride_xk
            w_ptrs = w_ptr + tl.full((), expert, tl.int64) * stride_we
            w_ptrs += ks[:, None] * stride_wk + columns[None, :] * stride_wn
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                x_mask = (rows[:, None] < end) & (ks[None, :] < K - k)
                w_mask = (ks[:, None] < K - k) & (columns[None, :] < N)
                x = tl.load(x_ptrs, mask=x_mask, other=0.0)  # [BLOCK_M, BLOCK_K]
                w = tl.load(w_ptrs, mask=w_mask, other=0.0)  # [BLOCK_K, BLOCK_N]
                acc = tl.dot(x, w, acc, input_precision="ieee")
                x_ptrs += step * stride_xk
                w_ptrs += step * stride_wk
            mask = (rows[:, None] < end) & (columns[None, :] < N)
            out_ptrs = out_ptr + rows[:, None] * N + columns[None, :]
            tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)
        first = after
        start = end


# %%
# How it works
# ------------
#
# The tiles of all products form one list: first all tiles of expert 0, then those of expert 1. Each
# program computes the tile with its own number. It walks along the experts and counts their tiles
# until it reaches the expert that owns this number.
#
# * ``end`` comes from ``offsets`` on the GPU, so the CPU need not know it. ``tl.minimum`` and
#   ``tl.maximum`` keep wrong offsets from making a program write outside of ``out``.
# * ``mask`` keeps the last tile of an expert from writing into the rows of the next expert.
# * ``do_not_specialize``: Triton compiles another version for an integer that is 1 or divisible by
#   16. The number of tokens often changes, so one version for all of them is better.
#
# The CPU does not know the number of tiles, so the grid is large enough for the worst case. Each
# expert has at most one row of tiles that is partly full: that makes at most *experts* more rows of
# tiles than one product has. Programs without a tile end at once.

facts = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
SHARED_BYTES = getattr(facts, "shared_memory_per_block_optin", 65536)  # of an SM


def one_launch(x, w, offsets):
    """Return the grouped product, with one program for each tile."""
    (tokens, K), (experts, _, N) = x.shape, w.shape
    side, depth = (128, 64) if SHARED_BYTES >= 98304 else (64, 32)  # three stages fit
    grid = (triton.cdiv(tokens, side) + experts) * triton.cdiv(N, side)
    out = x.new_empty(tokens, N)
    one_launch_kernel[(grid,)](
        x, w, out, offsets, experts, tokens, K, N, *x.stride(), *w.stride(),
        BLOCK_M=side, BLOCK_N=side, BLOCK_K=depth, num_warps=8, num_stages=3,
    )  # fmt: skip
    return out


# %%

# sphinx_gallery_fold = "draws problems, and checks a result with a loop of products in float64"


def loop(x, w, ends):
    """Return the grouped product, one product after another; *ends* is a list of offsets."""
    out = x.new_empty(x.shape[0], w.shape[2])
    for start, end, matrix in zip([0, *ends], ends, w, strict=False):
        if end > start:
            torch.mm(x[start:end], matrix, out=out[start:end])
    return out


def draw_problem(sizes, K, N):
    """Return x, w, offsets, and the offsets as a list, for experts with so many tokens each."""
    dtype = torch.bfloat16 if ON_GPU else torch.float16
    ends = torch.as_tensor(sizes).cumsum(0)
    x = torch.randn(ends[-1], K, device=DEVICE).to(dtype)
    w = torch.randn(len(ends), K, N, device=DEVICE, dtype=dtype)
    return x, w, ends.to(DEVICE, torch.int32), ends.tolist()


def assert_right(out, x, w, ends):
    """Stop unless each sum in fp32, with errors that grow with K, was rounded once."""
    exact, rounding = loop(x.double(), w.double(), ends), torch.finfo(x.dtype).eps
    torch.testing.assert_close(out.double(), exact, rtol=rounding, atol=2**-20 * x.shape[1])


torch.manual_seed(0)
x, w, offsets, ends = draw_problem([5, 0, 70, 1, 0, 133], K=45, N=77)
assert_right(one_launch(x, w, offsets), x, w, ends)
print("right, for six experts, two of them without a token")

# %%
# One descriptor for all experts
# ------------------------------
#
# A **tensor descriptor** lets the hardware load a tile without pointers and masks
# (:doc:`03b-full-waves`). The stack ``w`` is one tensor of three dimensions, so one descriptor
# serves all experts. Its tile is ``1 × BLOCK_K × BLOCK_N``, and the first coordinate is the expert.
# A tile of ``x`` may contain rows of the next expert, because the descriptor does not know the
# offsets. Their products are wrong, but the masked store leaves them out.
#
# The new kernel reads all offsets at once. It keeps a table in registers: ``last`` is the running
# sum of the experts' tiles. Tile *t* belongs to the first expert whose ``last`` is greater than
# *t*. To find it, a program counts the experts that it has ``passed``.


@triton.jit(do_not_specialize=["experts", "tokens", "K"])
def persistent_kernel(
    x_desc, w_desc, out_ptr, offsets_ptr, experts, tokens, K, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BY_COLUMNS: tl.constexpr,
    EXPERTS: tl.constexpr,
):  # fmt: skip
    """Compute the tiles whose numbers are this program's plus multiples of all programs."""
    expert, tiles_n = tl.arange(0, EXPERTS), tl.cdiv(N, BLOCK_N)  # EXPERTS is a power of two
    real = expert < experts
    starts = tl.load(offsets_ptr + expert - 1, mask=real & (expert > 0), other=0)
    ends = tl.minimum(tl.load(offsets_ptr + expert, mask=real, other=0), tokens)
    rows = tl.where(real, tl.maximum(ends - tl.minimum(starts, tokens), 0), 0)
    last = tl.cumsum(tl.cdiv(rows, BLOCK_M), axis=0) * tiles_n  # [EXPERTS]
    tiles = tl.max(last, axis=0)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        passed = last <= tile
        expert = tl.sum(passed.to(tl.int32), axis=0)
        first = tl.max(tl.where(passed, last, 0), axis=0)
        start = tl.max(tl.where(passed, ends, 0), axis=0)
        end = tl.minimum(tl.load(offsets_ptr + expert), tokens)
        tiles_m = tl.cdiv(end - start, BLOCK_M)
        row = start + (tile - first) % tiles_m * BLOCK_M  # down the columns: neighbors in the list
        column = (tile - first) // tiles_m * BLOCK_N  # load the same part of w from L2
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            x = x_desc.load([row, k])
            if BY_COLUMNS:  # w is stored as experts × N × K
                w = w_desc.load([expert, column, k]).reshape(BLOCK_N, BLOCK_K).T
            else:
                w = w_desc.load([expert, k, column]).reshape(BLOCK_K, BLOCK_N)
            acc = tl.dot(x, w, acc)
        out_rows = row + tl.arange(0, BLOCK_M)
        out_columns = column + tl.arange(0, BLOCK_N)
        mask = (out_rows[:, None] < end) & (out_columns[None, :] < N)
        out_ptrs = out_ptr + out_rows.to(tl.int64)[:, None] * N + out_columns[None, :]
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)


# %%
# Persistent programs
# -------------------
#
# The loop over ``tile`` allows two grids. With one program for each tile, a program runs the loop at
# most once. With as many programs as the SMs can run at the same time, the programs are
# **persistent**: each one reads the table once and then computes one tile after another. With
# ``flatten=True`` it loads its next tile, perhaps of another expert, while it finishes this one.

SMS = getattr(facts, "multi_processor_count", 5)  # the interpreter needs only a few programs
HAS_DESCRIPTORS = not ON_GPU or SHARED_BYTES > 200000  # NVIDIA, from Hopper on
TILE_BY_TILE = 128, 128, 8, 3, 0  # rows, columns, warps, stages, programs on an SM (0: no limit)
LARGE = 128, 256, 8, 3, 1


def prepare(tiling, x, w):
    """Return two descriptors, and grid, numbers and constants for ``persistent_kernel``."""
    m, n, warps, stages, share = tiling
    (tokens, K), (experts, _, N) = x.shape, w.shape
    by_columns = w.stride(2) != 1
    w, block = (w.mT, [1, n, 64]) if by_columns else (w, [1, 64, n])
    x_tile = TensorDescriptor(x, x.shape, x.stride(), [m, 64])
    w_tile = TensorDescriptor(w, w.shape, w.stride(), block)
    tiles = (triton.cdiv(tokens, m) + experts) * triton.cdiv(N, n)  # in the worst case
    grid = (min(SMS * share, tiles) if share else tiles,)
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "BY_COLUMNS": by_columns}
    constants |= {"num_warps": warps, "num_stages": stages}
    constants["EXPERTS"] = max(32, triton.next_power_of_2(experts))
    return (x_tile, w_tile), (grid, (experts, tokens, K, N), constants)


# %%
# A tile that fits the experts
# ----------------------------
#
# A dense product is fastest with a large tile. Experts prefer lower tiles: the last row of tiles of
# each expert is partly full, and the tensor cores multiply all of it. A low tile should be wide, so
# that each number of ``x`` takes part in more products. There are three tilings:

FEW = 64, 128, 4, 4, 2  # few tokens: memory-bound, so many loads should be in flight
PAIR = 128, 128, 4, 3, 2  # one program multiplies while the other one stores
WIDE = 64, 256, 8, 4, 1  # for sums so long that the pauses between tiles do not matter


def choose_tiling(experts, tokens, K, N):
    """Return a tiling by what the CPU knows: the average number of tokens, and the shapes."""
    if tokens <= 64 * experts:
        return FEW
    return WIDE if N % 256 == 0 and K >= 4096 else PAIR


# %%
# Calling it
# ----------
#
# ``grouped_mm`` keeps a plan for each kind of arguments
# (:doc:`/programming-guide/chapter-6/calls`). The plan holds the launch and the fields of both
# descriptors, and each call adds its tensors.

# sphinx_gallery_fold = "checks the arguments, and plans a launch"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of


def check_arguments(x, w, offsets):
    """Raise TypeError or ValueError, naming the argument, where ``grouped_mm`` cannot go on."""
    for name, t, dims in (("x", x, 2), ("w", w, 3), ("offsets", offsets, 1)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.dim() != dims:
            raise ValueError(f"{name} must have {dims} dimensions, but has shape {tuple(t.shape)}")
        if t.device != DEVICE:
            raise ValueError(f"{name} must be on {DEVICE}, but is on {t.device}")
    if x.dtype not in (torch.bfloat16, torch.float16):
        raise TypeError(f"x must be bfloat16 or float16, but its dtype is {x.dtype}")
    if w.dtype != x.dtype:
        raise TypeError(f"w must have the dtype of x, {x.dtype}, but has {w.dtype}")
    if offsets.dtype != torch.int32 or not offsets.is_contiguous():
        raise TypeError(f"offsets must be int32 and contiguous, but is {offsets.dtype}")
    if x.shape[1] != w.shape[1]:
        shapes = f"{tuple(x.shape)}, {tuple(w.shape)}"
        raise ValueError(f"x must have as many columns as each matrix of w has rows: {shapes}")
    if len(offsets) != len(w):
        found = f"{len(w)}, but has {len(offsets)}"
        raise ValueError(f"offsets must have one number for each expert, {found}")
    ends = [0] if ON_GPU else [0, *offsets.tolist()]
    if ends != sorted(ends) or ends[-1] > len(x):
        found = f"{len(x)}, the rows of x, but are {ends[1:]}"
        raise ValueError(f"offsets must not decrease, and must be from 0 to {found}")


def can_describe(t):
    """Say if the last dimension is contiguous, and all rows start at multiples of 16 bytes."""
    *outer, last = t.stride()
    aligned = all(stride > 0 and stride * t.element_size() % 16 == 0 for stride in outer)
    return last == 1 and aligned and t.data_ptr() % 16 == 0 and t.stride(-2) >= t.shape[-1]


def plan_of(x, w):
    """Return a launch and the fields of its descriptors, or two None for the first kernel."""
    described = can_describe(x) and (can_describe(w) or can_describe(w.mT))
    if not (HAS_DESCRIPTORS and described and w.shape[2] % 8 == 0):
        return None, None
    tiles, arguments = prepare(choose_tiling(len(w), *x.shape, w.shape[2]), x, w)
    return Launch(persistent_kernel, *arguments), [vars(tile) | {"base": None} for tile in tiles]


def tile_of(fields, t):
    """Return a descriptor of *t*, without the checks that its plan has passed."""
    tile = object.__new__(TensorDescriptor)
    tile.__dict__.update(fields, base=t)
    return tile


# %%

PLANS = {}


def grouped_mm(x, w, offsets):
    """Return the rows of *x*, each multiplied by the matrix of its expert, without gradients.

    Args:
        x: tokens × K in bf16 or fp16, sorted by expert. Rows that no expert owns, those behind the
            last offset, have an undefined result.
        w: experts × K × N of the same dtype, with any strides. It is fastest if the rows or columns
            of each matrix are contiguous and start at multiples of 16 bytes.
        offsets: int32, the row of *x* behind each expert's last row. On a GPU, where reading them
            would wait, their values are not checked.
    """
    plan, compiling = None, torch.compiler.is_compiling()
    if ON_GPU and not compiling:
        try:
            plan = PLANS.get(key_of(x, w, offsets))
        except (AttributeError, RuntimeError):  # not tensors, or not dense
            pass
    if plan is None:
        check_arguments(x, w, offsets)
        if compiling:
            return grouped_mm_op(x, w, offsets)
        if not x.numel() or not w.numel():
            return x.new_zeros(x.shape[0], w.shape[2])
        if not ON_GPU and x.dtype == torch.bfloat16:  # the interpreter computes bf16 wrongly
            x, w = x.float(), w.float()
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        plan = PLANS[key_of(x, w, offsets)] = plan_of(x, w)
    launch, fields = plan
    if launch is None:
        out = one_launch(x, w, offsets)
    else:
        out = x.new_empty(x.shape[0], w.shape[2])
        launch(*map(tile_of, fields, (x, w)), out, offsets)
    return out.bfloat16() if out.dtype == torch.float32 else out


# For torch.compile, the function is one operation, which the compiler does not look into.
schema = "(Tensor x, Tensor w, Tensor offsets) -> Tensor"
grouped_mm_op = torch.library.custom_op(
    "gallery::grouped_mm", lambda *args: grouped_mm(*args), mutates_args=(), schema=schema
)
grouped_mm_op.register_fake(lambda x, w, offsets: x.new_empty(x.shape[0], w.shape[2]))

# %%
# The check has experts whose rows end one before a tile or one behind it, and tensors that need the
# first kernel. Each problem is computed twice, because the second call has a plan.

problems = [draw_problem(sizes, 64, 96) for sizes in ([0, 0, 3], [0, 200, 0, 0], [5] * 31, [0, 0])]
problems += [draw_problem(sizes, 45, 77) for sizes in ([1], [127, 128, 129, 0, 1])]
problems += [(x, w.mT.contiguous().mT, *more) for x, w, *more in problems]  # stored by columns
x, w, offsets, ends = draw_problem([40, 0, 24], 64, 96)
problems += [(x, w[:, :, ::2], offsets, ends), (x[:, 8:], w[:, 8:], offsets, ends)]
for x, w, offsets, ends in 2 * problems:
    assert_right(grouped_mm(x, w, offsets), x, w, ends)
print(f"grouped_mm is right on {len(problems)} problems")

# %%
# The benchmark
# -------------
#
# Five layers, each with even and with skewed numbers of tokens. The *dense* product of the same
# work is the ceiling: it reads one matrix instead of one for each expert. The *loop* gets its
# offsets on the CPU for free. A program would have to wait for the GPU to fetch them.

# sphinx_gallery_fold = "times the products, draws the rates, and keeps the rows"
from functools import partial

import matplotlib.pyplot as plt

from shared.bench import rows_of, write_calls, write_rows

CASES = [  # experts, tokens, K, N
    (8, 8192, 4096, 4096),
    (8, 8192, 4096, 14336),
    (64, 8192, 2048, 1408),
    (64, 65536, 2048, 1408),
    (128, 4096, 2048, 768),
]


def group_sizes(experts, tokens, skewed):
    """Return the tokens of each expert. If *skewed*, some are popular, and others have none."""
    generator = torch.Generator().manual_seed(0)
    popularity = torch.ones(experts)
    if skewed:
        popularity = 1 / (1.0 + torch.randperm(experts, generator=generator))
        popularity[3::8] = 0
    picks = torch.multinomial(popularity, tokens, replacement=True, generator=generator)
    return torch.bincount(picks, minlength=experts)


@triton.jit
def empty_kernel():
    """Do nothing."""


def benchmark(case, skewed):
    """Return rows (experts, tokens, K, N, skewed, provider, unit, median, p20, p80)."""
    experts, tokens, K, N = case
    x, w, offsets, ends = draw_problem(group_sizes(experts, tokens, skewed), K, N)
    out = grouped_mm(x, w, offsets)
    assert_right(out, x, w, ends)
    calls = {"triton": partial(grouped_mm, x, w, offsets), "loop": partial(loop, x, w, ends)}
    calls |= {"dense": partial(torch.mm, x, w[0]), "1 one launch": partial(one_launch, x, w, offsets)}
    if HAS_DESCRIPTORS:
        calls["grouped_mm"] = partial(torch._grouped_mm, x, w, offs=offsets)
        for name, tiling in {"2 descriptors": TILE_BY_TILE, "3 persistent": LARGE}.items():
            tiles, arguments = prepare(tiling, x, w)
            calls[name] = partial(Launch(persistent_kernel, *arguments), *tiles, out, offsets)
    as_called = {"triton", "grouped_mm"} & set(calls)
    work = 2 * tokens * K * N
    return rows_of((*case, int(skewed)), calls, "TFLOPS", work, rounds=60, as_called=as_called)


def draw(rows):
    """Draw a group of bars for each layer with skewed numbers of tokens."""
    colors = {"triton": "#1b6ca8", "triton, as called": "#8fbcdb", "grouped_mm": "#d1495b"}
    _, ax = plt.subplots(figsize=(7, 6), layout="constrained")
    for i, (name, color) in enumerate((colors | {"loop": "#2e8b57", "dense": "#444444"}).items()):
        rates = [row[7] for row in rows if row[4] and row[5] == name]
        ax.barh([6 * j + i for j in range(len(rates))], rates, color=color, label=name)
    labels = [f"{e} × {k} × {n}\n{t} tokens" for e, t, k, n in CASES]
    ax.set_yticks([6 * j + 2 for j in range(len(CASES))], labels)
    ax.invert_yaxis()
    gpu = torch.get_device_module().get_device_name()
    ax.set(xlabel="TFLOPS, higher is better", title=f"Grouped products, bf16, skewed, on {gpu}")
    ax.legend()
    plt.show()


if ON_GPU:
    rows = [row for case in CASES for skewed in (False, True) for row in benchmark(case, skewed)]
    write_rows("grouped-gemm-performance.csv", ["experts", "tokens", "K", "N", "skewed"], rows)
    x, w, offsets, _ = draw_problem([64, 0, 100, 92], 512, 512)
    calls = {"triton": partial(grouped_mm, x, w, offsets), "launch": empty_kernel[(1,)]}
    more = {"torch": partial(torch._grouped_mm, x, w, offs=offsets)} if HAS_DESCRIPTORS else {}
    write_calls({"grouped_mm": calls | more})
    draw(rows)
else:
    print("Without a GPU there is nothing to time.")

# %%
# **Few experts, many tokens** (the first two layers). Each product of the loop fills the GPU by
# itself. ``grouped_mm`` reaches :measured:`large_loop` times the rate of the loop, and
# :measured:`large_dense` % of the dense product.
#
# **Many experts, few tokens** (the third layer and the last). Each product of the loop is over
# before the next launch arrives, and ``grouped_mm`` is at least :measured:`few_loop` times as fast.
# The dense product is out of reach, because the experts read all of their matrices.
#
# **Many experts, many tokens** (the fourth). The steps of this page, with skewed sizes:
#
# .. steps:: dense
#    :unit: TFLOPS
#
#    one: one launch, with pointers
#    descriptors: descriptors, and a table of the experts
#    persistent: persistent programs, with large tiles
#    triton: tiles that fit the experts
#
# **As called**, ``grouped_mm`` reaches :measured:`called` TFLOPS here, and :measured:`triton` on the
# GPU. A call keeps the CPU busy for :measured:`cpu` µs, one of ``torch._grouped_mm`` for
# :measured:`cpu_torch` µs.
#
# Exercises
# ---------
#
# 1. **The backward product.** The gradient of ``w[e]`` is a sum over the rows of expert *e*, so the
#    length of the sum differs from expert to expert. Which mask does that need? Write
#    ``grouped_gradient(x, g, offsets)`` with the gradient *g* of the output.
#    :doc:`Solution <solutions/08-backward>`.
# 2. **A gate.** The first layer of an expert is often ``silu(x @ w_gate[e]) * (x @ w_up[e])``.
#    Compute both products in one kernel, ``gated_experts(x, w_gate, w_up, offsets)``.
#    :doc:`Solution <solutions/08-gate>`.
#
# References
# ----------
#
# * Noam Shazeer et al.: *Outrageously large neural networks: the sparsely-gated mixture-of-experts
#   layer*, ICLR 2017, https://arxiv.org/abs/1701.06538
# * Trevor Gale, Deepak Narayanan, Cliff Young and Matei Zaharia: *MegaBlocks: efficient sparse
#   training with mixture-of-experts*, MLSys 2023, https://arxiv.org/abs/2211.15841
