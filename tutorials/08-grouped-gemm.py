"""
Grouped matrix multiplication
=============================

You build ``grouped_mm(x, w, offsets)``, which multiplies groups of rows by different matrices in
one launch, as the *experts* of a language model need. On average over ten cases it has
:measured:`library` times the speed of PyTorch's ``torch._grouped_mm``. You need
:doc:`03-matrix-multiplication` and :doc:`03b-full-waves`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_level = "further"
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
FACTS = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
SMS = getattr(FACTS, "multi_processor_count", 5)  # the interpreter needs only a few programs
SHARED_BYTES = getattr(FACTS, "shared_memory_per_block_optin", 65536)  # of an SM
HAS_DESCRIPTORS = not ON_GPU or SHARED_BYTES > 200000  # NVIDIA, from Hopper on

# %%
# The kernel
# ----------
#
# In a **mixture of experts** each token is multiplied by a few of many matrices, the *experts*. The
# result is a batch of products with different numbers of rows. Only the GPU knows these numbers.
#
# ``x``, *tokens* × *K*, has one row for each expert of each token, sorted by expert; here, a token
# is such a row. ``w``, *experts* × *K* × *N*, has one matrix for each expert. The rows of expert
# *e* end before row ``offsets[e]``, and those of the next expert start there. An expert may have no
# rows. One program computes one **tile** of the result, ``BLOCK_M × BLOCK_N`` numbers:


@triton.jit(do_not_specialize=["experts", "tokens"])  # not compiled anew for other numbers
def one_launch_kernel(
    x_ptr, w_ptr, out_ptr, offsets_ptr, experts, tokens, K, N,
    stride_xm, stride_xk, stride_we, stride_wk, stride_wn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of one expert."""
    tile, tiles_n = tl.program_id(0), tl.cdiv(N, BLOCK_N)
    step = tl.full((), BLOCK_K, tl.int64)
    first, start = 0, 0  # the expert's first tile, and its first row
    for expert in range(experts):
        end = tl.maximum(tl.minimum(tl.load(offsets_ptr + expert), tokens), start)
        after = first + tl.cdiv(end - start, BLOCK_M) * tiles_n
        if (tile >= first) & (tile < after):  # <-
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
        first, start = after, end


# %%
# How it works
# ~~~~~~~~~~~~
#
# The tiles of all products form one list: all tiles of expert 0, then those of expert 1, and so on.
# Program *t* computes tile *t*. It counts the tiles of one expert after another until it reaches
# the owner of tile *t*. It reads ``offsets`` on the GPU, so the CPU need not know them. The mask of
# the store protects the rows of the next expert. With wrong offsets, ``tl.minimum`` and
# ``tl.maximum`` prevent writes outside of ``out``.
#
# .. predict:: Three experts have 100, 0 and 129 rows, and a tile has 128. How many rows of tiles?
#    :choices: two | three | four
#    :answer: three
#
#    One for the first expert, none for the second, and two for the third. The last tile has one row
#    that counts, and the tensor cores multiply all 128.
#
# .. image:: 08-grouped-gemm.svg
#    :alt: Three experts of 4, 0 and 5 rows. Their products have two, no and four tiles, which are
#          numbered in one list; program t computes tile t.
#    :scale: 100
#    :loading: lazy
#
# The grid covers the worst case: one row of tiles more for each expert than a single product of all
# tokens has. Programs without a tile exit immediately.
#
# **Try it** *(easy, 15 minutes)*. Write ``expert_sums(x, offsets)``, which adds up the rows of each
# expert, with one program for an expert. ``exercise.pyz`` (see *Exercises*) checks it:
#
# .. code-block:: console
#
#    $ python exercise.pyz 08-sums mine.py
#    Not yet. expert_sums((3, 5), (1,)): out of bounds: a load
#      kernel:   kernel, mine.py line 8 `start = tl.load(offsets_ptr + expert - 1)`
#      program:  0, in a grid of 1
#      index:    -1 of `offsets_ptr`, which has 1 element
#
# The first expert has no expert before it.


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
# serves all experts: its tile is ``1 × BLOCK_K × BLOCK_N``, and the first coordinate is the expert.
# A tile of ``x`` may contain rows of the next expert. The masked store leaves their products out.
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
    every, tiles_n = tl.arange(0, EXPERTS), tl.cdiv(N, BLOCK_N)  # EXPERTS is a power of two
    real = every < experts
    starts = tl.load(offsets_ptr + every - 1, mask=real & (every > 0), other=0)
    ends = tl.minimum(tl.load(offsets_ptr + every, mask=real, other=0), tokens)
    rows = tl.where(real, tl.maximum(ends - tl.minimum(starts, tokens), 0), 0)
    last = tl.cumsum(tl.cdiv(rows, BLOCK_M), axis=0) * tiles_n  # [EXPERTS]
    for tile in tl.range(tl.program_id(0), tl.max(last), tl.num_programs(0), flatten=True):
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
# The loop over ``tile`` allows two grids: one program for each tile, or as many programs as the SMs
# can run at the same time. Programs of the second grid are **persistent**: each reads the table
# once and then computes one tile after another. With ``flatten=True`` it loads its next tile,
# perhaps of another expert, while it finishes this one.


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
# A dense product is fastest with a large tile: it uses each number that it loads in more products.
# But the last row of tiles of each expert is only partly full, and the tensor cores multiply all of
# it. So the tile depends on the layer:
#
# * Long sums (*K* from 4096 on): the large tile, and one program on an SM.
# * Shorter sums: a smaller tile, and two programs on an SM.
# * Up to 64 tokens for an expert: a tile of half as many rows, and smaller loads in a longer
#   pipeline.
#
# **Whether the rule pays depends on the layer.** Below, compare ``triton`` with ``3 persistent``,
# which has the large tile everywhere. With 128 tokens for each of 64 experts the rule has :measured:`rule_gains`
# times the speed. With 1024 tokens for each it has :measured:`rule_loses` times.

FEW = 64, 128, 4, 4, 2  # rows, columns, warps, stages, programs on an SM
PAIR = 128, 128, 4, 3, 2


def tiling_for(tokens, experts, K, N):
    """Return the tiling for such a layer."""
    if tokens <= 64 * experts:
        return FEW
    return LARGE if N % 256 == 0 and K >= 4096 else PAIR


# %%
# Calling it
# ----------


def grouped_mm(x, w, offsets):
    """Return the rows of *x*, each multiplied by the matrix of its expert."""
    (tokens, K), (experts, _, N) = x.shape, w.shape
    tiles, (grid, numbers, constants) = prepare(tiling_for(tokens, experts, K, N), x, w)
    out = x.new_empty(tokens, N)
    persistent_kernel[grid](*tiles, out, offsets, *numbers, **constants)
    return out


# %%
# Descriptors need rows that start at multiples of 16 bytes. The check has such matrices, with sizes
# around those of a tile, stored by rows and by columns:

# sphinx_gallery_fold = "checks grouped_mm"
problems = [draw_problem(sizes, 64, 96) for sizes in ([0, 0, 3], [0, 200, 0, 0], [5] * 31, [0, 0])]
problems += [draw_problem([127, 128, 129, 0, 1], 72, 264)]
problems += [(x, w.mT.contiguous().mT, *more) for x, w, *more in problems]  # stored by columns
if HAS_DESCRIPTORS:
    for x, w, offsets, ends in problems[:3] + problems[4:8]:
        assert_right(grouped_mm(x, w, offsets), x, w, ends)
    print("grouped_mm is right on 7 problems")

# %%
# In a program
# ------------
#
# The function that others call takes what the plain one cannot. A view whose rows do not start at
# multiples of 16 bytes has no descriptor, so the first kernel of this page multiplies it. Arguments
# that require a gradient are refused, because the result would silently have none;
# ``torch._grouped_mm`` has gradients. For each kind of arguments the function keeps a *plan*, the
# launch and the fields of both descriptors, as in :doc:`/programming-guide/chapter-6/calls`. In the
# benchmark it launches what the plain function launches, so the GPU's times are those of both.

# sphinx_gallery_fold = "the function with its checks"
from shared.launch import Launch, key_of, on_device_of


def check_arguments(x, w, offsets):
    """Raise TypeError or ValueError, naming the argument, where ``grouped_mm`` cannot go on."""
    for name, t, dims in (("x", x, 2), ("w", w, 3), ("offsets", offsets, 1)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(t).__name__}")
        if t.layout != torch.strided:
            raise ValueError(f"{name} must be strided, but its layout is {t.layout}")
        if t.dim() != dims or t.device.type != DEVICE.type or t.device != x.device:
            found = f"but is on {t.device} and has shape {tuple(t.shape)}"
            raise ValueError(f"{name} must be on {DEVICE} and have {dims} dimensions, {found}")
        if t.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} requires a gradient, which grouped_mm does not compute; use "
                f"torch._grouped_mm, or pass {name}.detach()"
            )
    if x.dtype not in (torch.bfloat16, torch.float16) or w.dtype != x.dtype:
        raise TypeError(f"x and w must both be bfloat16 or float16, but are {x.dtype}, {w.dtype}")
    if offsets.dtype != torch.int32:
        raise TypeError(f"offsets must be int32, but is {offsets.dtype}")
    if not offsets.is_contiguous():
        found = f"but has strides {offsets.stride()}: pass offsets.contiguous()"
        raise ValueError(f"offsets must be contiguous, {found}")
    if x.shape[1] != w.shape[1]:
        found = f"{tuple(x.shape)}, {tuple(w.shape)}"
        raise ValueError(f"x must have as many columns as each matrix of w has rows: {found}")
    if len(offsets) != len(w):
        found = f"{len(w)}, but has {len(offsets)}"
        raise ValueError(f"offsets must have one number for each expert, {found}")
    known = not ON_GPU and type(offsets) is torch.Tensor and not torch.compiler.is_compiling()
    ends = [0, *offsets.tolist()] if known else [0]
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
    (tokens, K), (experts, _, N) = x.shape, w.shape
    if not (HAS_DESCRIPTORS and described and N % 8 == 0):
        return None, None
    tiles, arguments = prepare(tiling_for(tokens, experts, K, N), x, w)
    return Launch(persistent_kernel, *arguments), [vars(tile) | {"base": None} for tile in tiles]


PLANS = {}
ORDINARY = {torch.Tensor, torch.nn.Parameter}


def grouped_mm(x, w, offsets):
    """Return the rows of *x*, each multiplied by the matrix of its expert, without gradients.

    Args:
        x: tokens × K in bf16 or fp16, sorted by expert, with any strides.
        w: experts × K × N of the same dtype, with any strides. It is fastest if the rows or columns
            of each matrix are contiguous and start at multiples of 16 bytes.
        offsets: int32, contiguous: the row of *x* behind each expert's last row. Results behind the
            last one are undefined. The values are checked on the CPU only: on a GPU that would
            wait.

    Raises:
        TypeError: An argument is no tensor, or has another dtype.
        ValueError: Shapes or devices do not fit, or a tensor requires a gradient outside of
            ``torch.no_grad()``.
    """
    ordinary = {type(x), type(w), type(offsets)} <= ORDINARY
    if torch.compiler.is_compiling() or not (ordinary and x.layout == w.layout == torch.strided):
        check_arguments(x, w, offsets)
        return grouped_mm_op(x, w, offsets)
    x, w, offsets = x.resolve_neg(), w.resolve_neg(), offsets.resolve_neg()
    needs_gradient = (x.requires_grad or w.requires_grad) and torch.is_grad_enabled()
    plan = PLANS.get(key_of(x, w, offsets)) if ON_GPU and not needs_gradient else None
    if plan is None:
        check_arguments(x, w, offsets)
        if not x.numel() or not w.numel():
            return x.new_zeros(x.shape[0], w.shape[2])
        if not ON_GPU and x.dtype == torch.bfloat16:  # the interpreter computes bf16 wrongly
            x, w = x.float(), w.float()
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        plan = PLANS[key_of(x, w, offsets)] = plan_of(x, w)
    launch, fields = plan
    if launch is None:
        with on_device_of(x):
            out = one_launch(x, w, offsets)
    else:
        out = x.new_empty(x.shape[0], w.shape[2])
        tiles = [object.__new__(TensorDescriptor) for _ in fields]  # the plan has checked them
        for tile, same, t in zip(tiles, fields, (x, w), strict=True):
            tile.__dict__.update(same, base=t)
        launch(*tiles, out, offsets)
    return out.bfloat16() if out.dtype == torch.float32 else out


# For torch.compile, and for tensors without memory, the function is one operation.
SCHEMA = "(Tensor x, Tensor w, Tensor offsets) -> Tensor"


@torch.library.custom_op("gallery::grouped_mm", mutates_args=(), schema=SCHEMA)
def grouped_mm_op(x, w, offsets):
    """Return what ``grouped_mm`` returns."""
    return grouped_mm(x.detach(), w.detach(), offsets.detach())


@grouped_mm_op.register_fake
def grouped_mm_shape(x, w, offsets):
    """Return a tensor like the result, without computing it."""
    return x.new_empty(x.shape[0], w.shape[2])


x, w, offsets, ends = draw_problem([40, 0, 24], 64, 96)
problems += [(x, w[:, :, ::2], offsets, ends), (x[:, 8:], w[:, 8:], offsets, ends)]
problems += [draw_problem([127, 128, 129, 0, 1], 45, 77)]  # for the first kernel
for x, w, offsets, ends in 2 * problems:  # the second call uses the plan
    assert_right(grouped_mm(x, w, offsets), x, w, ends)
print(f"grouped_mm is right on {len(problems)} problems")

# %%
# The benchmark
# -------------
#
# We time five layers, each with random and with skewed numbers of tokens; the plot shows the skewed
# ones, with experts × K × N and the tokens of each layer. The *dense* product of the same work is a
# ceiling: it reads one matrix instead of one for each expert. The *loop* has a PyTorch product for
# each expert, and its offsets on the CPU already. A real program would wait for the GPU to fetch
# them.

# sphinx_gallery_fold = "times the products, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "persistent_kernel: 128 experts, 4096 tokens, bf16"
from shared.bench import figure, gpu_times, rates, spread, write_calls, write_rows, write_table
import matplotlib.pyplot as plt

CASES = [(8, 8192, 4096, 4096), (8, 8192, 4096, 14336), (64, 8192, 2048, 1408),
         (64, 65536, 2048, 1408), (128, 4096, 2048, 768)]  # fmt: skip


def group_sizes(experts, tokens, skewed):
    """Return the tokens of each expert. If *skewed*, some are popular, and others have none."""
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.randperm(experts, generator=generator) if skewed else torch.zeros(experts)
    popularity = 1 / (1.0 + shuffled)
    popularity[3::8] *= not skewed
    picks = torch.multinomial(popularity, tokens, replacement=True, generator=generator)
    return torch.bincount(picks, minlength=experts)


@triton.jit
def empty_kernel():
    """Do nothing."""


def benchmark(case, skewed):
    """Return rows (experts, tokens, K, N, skewed, provider, unit, median, p20, p80)."""
    experts, tokens, K, N = case
    x, w, offsets, ends = draw_problem(group_sizes(experts, tokens, skewed), K, N)
    assert_right(out := grouped_mm(x, w, offsets), x, w, ends)
    calls = {"triton": partial(grouped_mm, x, w, offsets), "dense": partial(torch.mm, x, w[0])}
    calls |= {"loop": partial(loop, x, w, ends), "1 one launch": partial(one_launch, x, w, offsets)}
    if HAS_DESCRIPTORS:
        calls["grouped_mm"] = partial(torch._grouped_mm, x, w, offs=offsets)
        for name, tiling in {"2 descriptors": TILE_BY_TILE, "3 persistent": LARGE}.items():
            tiles, arguments = prepare(tiling, x, w)
            calls[name] = partial(Launch(persistent_kernel, *arguments), *tiles, out, offsets)
    rows = rates((*case, int(skewed)), calls, "TFLOPS", 2 * tokens * K * N, 60)
    calls["triton"]()  # the last launch is the one whose X-ray is shown
    return rows


def weights_allow(experts, tokens, K, N):
    """Return the megabytes of all weights, and the TFLOPS if reading them took all the time."""
    w = torch.randn(experts, K, N, device=DEVICE, dtype=torch.bfloat16)
    ms = spread(gpu_times({"": w.amax})[""])[0]
    return w.nbytes / 1e6, 2 * tokens * K * N / ms / 1e9


def draw(rows):
    """Draw a bar for each provider, on the skewed layers."""
    names = {"triton": "ours", "grouped_mm": "PyTorch", "loop": "loop", "dense": "dense"}
    colors = ["#1b6ca8", "#d1495b", "#d9820f", "#444444"]
    fig, ax = figure(height=6.4)
    for i, (provider, label) in enumerate(names.items()):
        found = [row[7] for row in rows if row[4] and row[5] == provider]
        bars = ax.barh([5 * j + i for j in range(len(found))], found, color=colors[i], label=label)
        ax.bar_label(bars, fmt="{:,.0f}", padding=3)
    labels = [f"{e} × {k} × {n}\n{t} tokens" for e, t, k, n in CASES]
    ax.set_yticks([5 * j + 1.5 for j in range(len(CASES))], labels)
    ax.invert_yaxis()
    ax.margins(x=0.14)  # room for the values
    gpu = torch.get_device_module().get_device_name()
    ax.set(xlabel="TFLOPS, higher is better", title=f"Grouped products, bf16, skewed\non {gpu}")
    fig.legend(loc="outside lower center", ncols=4, frameon=False)
    plt.show()


if ON_GPU:
    rows = [row for case in CASES for skewed in (False, True) for row in benchmark(case, skewed)]
    write_rows("grouped-gemm-performance.csv", ["experts", "tokens", "K", "N", "skewed"], rows)
    megabytes, allowed = weights_allow(*CASES[-1])
    values = [("weights", "MB", megabytes), ("weights allow", "TFLOPS", allowed)]
    draw(rows)
else:
    print("Without a GPU there is nothing to time.")

# %%

# sphinx_gallery_fold = "measures the CPU's share of a call, and where the GPU takes longer"
if ON_GPU:
    x, w, offsets, _ = draw_problem([64, 0, 100, 92], 512, 512)
    calls = {"triton": partial(grouped_mm, x, w, offsets), "launch": empty_kernel[(1,)]}
    more = {"torch": partial(torch._grouped_mm, x, w, offs=offsets)} if HAS_DESCRIPTORS else {}
    cpu = write_calls({"grouped_mm": calls | more})
    for tokens in [8 * 2**i for i in range(12)]:
        x, w, offsets, _ = draw_problem([tokens // 8] * 8, 1024, 1024)
        ((_, _, median, *_),) = rates((), {"": partial(grouped_mm, x, w, offsets)}, "µs")
        if median > cpu["grouped_mm", "triton"]:
            break
    values.append(("GPU longer from", "tokens", tokens))
    write_table("08-grouped-gemm-values.csv", ["name", "unit", "value"], values)

# %%
# * **Few experts, many tokens** (the first two layers). Each product of the loop fills the GPU by
#   itself. On average, ``grouped_mm`` has :measured:`large_loop` times the rate of the loop, and
#   :measured:`large_dense` % of that of the dense product.
# * **Many experts, few tokens** (the third layer and the last). Each product of the loop has too
#   few tiles for the GPU, and they run one after the other: ``grouped_mm`` has at least
#   :measured:`few_loop` times the speed of the loop.
# * **The last layer is memory-bound.** The weights of all experts have :measured:`weights` MB. If
#   the product took as long as PyTorch needs to read them once, its rate would be
#   :measured:`allowed` TFLOPS. ``grouped_mm`` reaches :measured:`few_rate` on random numbers of
#   tokens. PyTorch's read is ``amax``; a rate above the allowed one means that ours reads faster.
#   On skewed numbers it can be faster still, since an eighth of the experts has no tokens. The
#   dense product reads a single matrix, so it is no ceiling there.
# * **Many experts, many tokens** (the fourth). ``grouped_mm`` reaches :measured:`triton` TFLOPS on
#   skewed numbers of tokens, and ``torch._grouped_mm`` :measured:`many_torch`. The steps of this
#   page there:
#
# .. steps:: dense
#    :unit: TFLOPS
#    :of: the dense product
#
#    one: one launch, with pointers
#    descriptors: descriptors, and a table of the experts
#    persistent: persistent programs, with large tiles
#    triton: tiles that fit the experts
#
# Which of the last two is faster depends on the layer and on the GPU. The file of the benchmark has
# both for each layer.
#
# A call keeps the CPU busy for :measured:`cpu` µs, and a call of ``torch._grouped_mm`` for
# :measured:`cpu_torch` µs. In a loop that does not wait, a call costs the larger of two times: the
# CPU's, and the GPU's. For eight experts of 1024 × 1024 the GPU's is the larger from
# :measured:`gpu_longer` tokens on.
#
# Exercises
# ---------
#
# 1. **The backward product** *(hard, 60 minutes)*. The gradient of ``w[e]`` is a sum over the rows
#    of expert *e*. Which mask does that need? Write ``grouped_gradient(x, g, offsets)`` with the
#    gradient *g* of the output. :doc:`Solution <solutions/08-backward>`.
# 2. **A gate** *(medium, 40 minutes)*. Compute ``silu(x @ w_gate[e]) * (x @ w_up[e])``, the first
#    layer of many experts, in a kernel: ``gated_experts(x, w_gate, w_up, offsets)``. :doc:`Solution
#    <solutions/08-gate>`.
#
# References
# ----------
#
# * Noam Shazeer et al.: *Outrageously large neural networks: the sparsely-gated mixture-of-experts
#   layer*, ICLR 2017, https://arxiv.org/abs/1701.06538
# * Trevor Gale, Deepak Narayanan, Cliff Young and Matei Zaharia: *MegaBlocks: efficient sparse
#   training with mixture-of-experts*, MLSys 2023, https://arxiv.org/abs/2211.15841
