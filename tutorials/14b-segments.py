r"""
One text on the whole GPU
=========================

You build a ``gated_delta_rule`` that fills the GPU even if a text has few heads: it cuts the text
into segments, and reads all of them at the same time. At 32,768 tokens and 8 heads it takes
:measured:`triton` ms, and a chain of all chunks takes :measured:`faster` times as long. You need
:doc:`14-gated-delta-rule`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "further"
# sphinx_gallery_depends = "14-gated-delta-rule.py"
import contextvars
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.lesson import lesson

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
GPU = torch.cuda.get_device_properties(0) if ON_GPU else None
SMS = getattr(GPU, "multi_processor_count", 132)  # as on an H100
CHAIN = lesson("14-gated-delta-rule")

# %%
# The state is linear
# -------------------
#
# In :doc:`14-gated-delta-rule` the chunks of a head are a chain, because each chunk starts from the
# state that the chunk before it leaves. Two programs share a head of 128 columns, so 8 heads keep
# 16 multiprocessors busy. But a token only multiplies the state by a matrix and adds a matrix:
#
# .. math::
#    S \leftarrow e^{g} (1 - \beta k k^\top) S + \beta k v^\top
#
# Here 1 is the identity. Many tokens, a **segment**, do no more than that: the state *S* at its
# start becomes *M S* + *L* at its end. Two runs from special states find *M* and *L*:


def end(S, k, v, g, beta):
    """Return the state after some tokens that start from the state S."""
    for t in range(len(k)):
        S = g[t].exp() * S
        S = S + beta[t] * torch.outer(k[t], v[t] - S.T @ k[t])
    return S


k, v = torch.tensor([[0.6, 0.8], [1.0, 0.0]]), torch.tensor([[1.0, 2.0], [5.0, 7.0]])
g, beta, S = torch.tensor([-0.1, -0.2]), torch.tensor([0.5, 0.5]), torch.tensor([[3.0, 1], [1, 4]])
kept = end(torch.eye(2), k, 0 * v, g, beta)  # M: from the identity, with values of 0
added = end(torch.zeros(2, 2), k, v, g, beta)  # L: from a state of 0
for name, state in ("from S", end(S, k, v, g, beta)), ("M S + L", kept @ S + added):
    print(f"{name:8}", ", ".join(f"{x:.4f}" for x in state.flatten()))

# %%
# Neither *M* nor *L* needs the state at the start, so all segments can compute theirs **at the same
# time**. Then the states between segments are known after a few products, and all segments can be
# read again, each from its own state:
#
# .. image:: 14b-segments.svg
#    :alt: Sixteen chunks as one chain take sixteen steps. Four segments take four steps for their
#          summaries, a short step that combines them, and four steps for their scans.
#    :scale: 100
#    :loading: lazy
#
# .. predict:: A chunk costs five products in one chain. How much work is it in segments?
#    :choices: the same | about twice as much | four times as much
#    :answer: about twice as much
#
#    Three of the five products change the state, and two make the output. *L* and *M* need three
#    each and no output, and the scan needs all five: 11 products instead of 5.
#
# The summary of a segment
# ------------------------
#
# ``step`` is one link of the chain, as in :doc:`14-gated-delta-rule`: three products, with *K*, *T*
# and *K* again. That lesson's ``chunk_kernel`` has put *T* and the logarithms of *γ* into memory.
# The state is transposed, so each row is independent of the others.


@triton.jit
def step(state, k, v, t, tp_ptr, C: tl.constexpr):
    """Return U of a chunk and the state after it, both transposed, and the logarithms of γ."""
    logs = (tp_ptr + 2 * C * C).to(tl.pointer_type(tl.float32))
    log, last = tl.load(logs + tl.arange(0, C))[None, :], tl.load(logs + C - 1)
    read = tl.exp(log) * tl.dot(state.to(k.dtype), tl.trans(k), input_precision="ieee")
    missing = (tl.trans(v) - read).to(v.dtype)
    u = tl.dot(missing, tl.trans(t), input_precision="ieee")
    left = (u * tl.exp(last - log)).to(v.dtype)
    return u, tl.dot(left, k, tl.exp(last) * state, input_precision="ieee"), log


@triton.jit
def summary_kernel(
    k_ptr, v_ptr, tp_ptr, ends_ptr, tokens, k_heads, v_heads, length,
    C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK rows of the transposed L of a segment, or of its M, which lies below L."""
    segment, head, batch = tl.program_id(1), tl.program_id(2) % v_heads, tl.program_id(2) // v_heads
    batch, k_row, v_row = batch.to(tl.int64), k_heads * D, v_heads * D
    k_ptr, v_ptr = k_ptr + batch * tokens * k_row, v_ptr + batch * tokens * v_row
    k_tiles = tl.make_tensor_descriptor(k_ptr, [tokens, k_row], [k_row, 1], [C, D])
    v_tiles = tl.make_tensor_descriptor(v_ptr, [tokens, v_row], [v_row, 1], [C, BLOCK])
    first = segment * length
    tp_ptr += ((batch * v_heads + head) * tl.cdiv(tokens, C) + first) * (2 * C + 2) * C
    tp_tiles = tl.make_tensor_descriptor(tp_ptr, [(2 * C + 2) * length, C], [C, 1], [C, C])
    row = tl.program_id(0) * BLOCK
    rows, d = row + tl.arange(0, BLOCK), tl.arange(0, D)
    state = tl.where(rows[:, None] - D == d[None, :], 1.0, 0.0)  # zeros, then the identity
    at_k, at_v = head // SHARE * D, tl.where(row < D, head * D + row, v_row)  # beyond v are zeros
    for chunk in range(length):
        token = (first + chunk) * C
        k, v = k_tiles.load([token, at_k]), v_tiles.load([token, at_v])
        t = tp_tiles.load([chunk * (2 * C + 2), 0])
        _, state, _ = step(state, k, v, t, tp_ptr, C)  # <-
        tp_ptr += (2 * C + 2) * C
    ends_ptr += ((batch * v_heads + head) * tl.num_programs(1) + segment) * (2 * D * D)
    tl.store(ends_ptr + rows[:, None] * D + d[None, :], state)


# %%
# *M* and *L* are one tall matrix, so the kernel has no branch. A program in the upper half starts
# from zeros and loads columns of *V*. One in the lower half starts from the identity, and its tile
# of *V* lies beyond the tensor, where a descriptor gives zeros.
#
# The states between the segments
# -------------------------------
#
# From here on the text is a chain of segments, which is short. A program walks along it with 16
# columns of the state, and replaces each *L* by the state at the end of that segment. Rounding *M*
# to 16 bits would cost digits here. ``tf32x3`` splits each factor into two parts of tf32,
# multiplies three pairs of parts on tensor cores, and keeps nearly all digits of fp32.


@triton.jit
def combine_kernel(
    ends_ptr, segments, D: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr
):
    """Replace L of each segment by the state at its end, for BLOCK columns of the state."""
    rows, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)
    ends_ptr += tl.program_id(1).to(tl.int64) * segments * (2 * D * D)
    at, whole = rows[:, None] * D + d[None, :], d[:, None] * D + d[None, :]
    state = tl.load(ends_ptr + at)
    for _ in range(1, segments):
        ends_ptr += 2 * D * D
        m = tl.load(ends_ptr + D * D + whole)
        state = tl.dot(state, m, tl.load(ends_ptr + at), input_precision=PRECISION)  # <-
        tl.store(ends_ptr + at, state)


# %%
# The scan of a segment
# ---------------------
#
# ``segment_kernel`` is the ``scan_kernel`` of :doc:`14-gated-delta-rule` with two differences: it
# starts from the state at the end of the segment before, and it stops where its segment ends.


@triton.jit
def segment_kernel(
    q_ptr, k_ptr, v_ptr, tp_ptr, ends_ptr, o_ptr, tokens, k_heads, v_heads, length, scale,
    C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """Walk over the chunks of a segment of one head, with BLOCK columns of its state."""
    segment, head, batch = tl.program_id(1), tl.program_id(2) % v_heads, tl.program_id(2) // v_heads
    batch, k_row, v_row = batch.to(tl.int64), k_heads * D, v_heads * D
    at_k, at_v = head // SHARE * D, head * D + tl.program_id(0) * BLOCK
    q_ptr, k_ptr = q_ptr + batch * tokens * k_row, k_ptr + batch * tokens * k_row
    v_ptr, o_ptr = v_ptr + batch * tokens * v_row, o_ptr + batch * tokens * v_row
    q_tiles = tl.make_tensor_descriptor(q_ptr, [tokens, k_row], [k_row, 1], [C, D])
    k_tiles = tl.make_tensor_descriptor(k_ptr, [tokens, k_row], [k_row, 1], [C, D])
    v_tiles = tl.make_tensor_descriptor(v_ptr, [tokens, v_row], [v_row, 1], [C, BLOCK])
    o_tiles = tl.make_tensor_descriptor(o_ptr, [tokens, v_row], [v_row, 1], [C, BLOCK])
    first, chunks = segment * length, tl.cdiv(tokens, C)
    count = tl.minimum(length, chunks - first)
    tp_ptr += ((batch * v_heads + head) * chunks + first) * (2 * C + 2) * C
    tp_tiles = tl.make_tensor_descriptor(tp_ptr, [(2 * C + 2) * count, C], [C, 1], [C, C])
    rows, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)
    ends_ptr += ((batch * v_heads + head) * (tl.num_programs(1) - 1) + segment - 1) * (2 * D * D)
    at = ends_ptr + rows[:, None] * D + d[None, :]
    state = tl.load(at, mask=(rows[:, None] >= 0) & (segment > 0), other=0.0)  # <-
    for chunk in range(count):
        token, row = (first + chunk) * C, chunk * (2 * C + 2)
        k, v = k_tiles.load([token, at_k]), v_tiles.load([token, at_v])
        t, rounded = tp_tiles.load([row, 0]), state.to(v.dtype)
        u, state, log = step(state, k, v, t, tp_ptr, C)
        q, p = q_tiles.load([token, at_k]), tp_tiles.load([row + C, 0])
        o = scale * tl.exp(log) * tl.dot(rounded, tl.trans(q), input_precision="ieee")
        o = tl.trans(tl.dot(u.to(v.dtype), tl.trans(p), o, input_precision="ieee"))
        o_tiles.store([token, at_v], o.to(v.dtype))
        tp_ptr += (2 * C + 2) * C


# %%
# Calling it
# ----------
#
# Four launches, of which the first is that of :doc:`14-gated-delta-rule`. Nobody needs a summary of
# the last segment. The next fold has the grids and block sizes. The tensors are contiguous here:

# sphinx_gallery_fold = "the grids and the sizes"


def cut(q, v, segments):
    """Return the shape of all L and M, numbers for kernels, and three grids and constants."""
    (batch, tokens, k_heads, d), v_heads, exact = q.shape, v.shape[2], q.dtype == torch.float32
    numbers = tokens, k_heads, v_heads, triton.cdiv(triton.cdiv(tokens, 64), segments)
    heads, sizes = batch * v_heads, {"C": 64, "D": d, "SHARE": v_heads // k_heads}
    block = 16 if exact else min(d, 64)  # products of fp32 need many registers
    sizes |= {"BLOCK": block, "num_warps": 8 if exact else 4, "num_stages": 1 if exact else 3}
    precision = "ieee" if exact or torch.version.hip else "tf32x3"
    combine = {"D": d, "BLOCK": 16, "PRECISION": precision, "num_warps": 8}
    grids = (2 * d // block, segments - 1, heads), (d // 16, heads), (d // block, segments, heads)
    return (heads, segments - 1, 2, d, d), numbers, grids, (sizes, combine, sizes)


# %%


def gated_delta_rule(q, k, v, g, beta, scale, segments):
    """Return the gated delta rule of contiguous tensors, in segments."""
    shape, first, _ = CHAIN.plan_of(q, v, scale)
    ends_shape, numbers, grids, constants = cut(q, v, segments)
    tp, o = v.new_empty(shape), torch.empty_like(v)
    ends = torch.empty(ends_shape, dtype=torch.float32, device=v.device)
    first(q, k, g, beta, tp)
    summary_kernel[grids[0]](k, v, tp, ends, *numbers, **constants[0])
    combine_kernel[grids[1]](ends, segments - 1, **constants[1])
    segment_kernel[grids[2]](q, k, v, tp, ends, o, *numbers, scale, **constants[2])
    return o


# %%
# In the check, tokens hardly change the state, and it hardly decays. With usual tokens, a segment
# forgets the state at its start, and a wrong *M* would go unnoticed:

# sphinx_gallery_fold = "draws a problem, and compares with float64"
if ON_GPU:
    triton.set_allocator(CHAIN.allocate)  # descriptors need memory


def draw(tokens, k_heads, v_heads, d, dtype, batch=1, weak=0.02):
    """Return random arguments whose gates and strengths are *weak* times the usual."""
    q, k, v, g, beta = CHAIN.draw(tokens, k_heads, v_heads, d, dtype, batch)
    return q, k, v, weak * g, weak * beta


torch.manual_seed(0)
DTYPE = torch.bfloat16 if ON_GPU else torch.float16
LIMIT = 2 * torch.finfo(DTYPE).eps
arguments = draw(700, 1, 2, 32, DTYPE)
for segments in (2, 4):
    o = gated_delta_rule(*arguments, 0.2, segments)
    error = CHAIN.compare(o, arguments, 0.2, LIMIT)
    print(f"in {segments} segments, the error is {error:.1e}")

# %%
# In a program
# ------------
#
# How many segments are right? The function makes as many as leave at most one program of the scan
# for each multiprocessor. More segments would be shorter, but their states are combined one after
# the other. All segments but the last have at least 16 chunks. If one segment is left, as with many
# heads, the function calls the one of :doc:`14-gated-delta-rule`. It keeps plans as that one does,
# and shares its checks.

# sphinx_gallery_fold = "the function with its checks"
from shared.compiled import between_graphs
from shared.launch import Launch, key_of
from shared.plans import Plans


def segments_of(q, v):
    """Return how many segments the text is cut into; 1 is one chain."""
    try:
        (batch, tokens, heads, d), exact = v.shape, q.dtype == torch.float32
    except (AttributeError, ValueError):
        return 1  # no tensors of four dimensions: the other function says so
    programs = batch * heads * (d // (16 if exact else max(1, min(d, 64))))
    segments = min(SMS // programs, tokens // 1024) if programs else 1
    chunks = triton.cdiv(tokens, 64)  # of which each segment has some
    return triton.cdiv(chunks, triton.cdiv(chunks, segments)) if segments > 1 else 1


def plan_of(q, v, scale, segments):
    """Return the shapes of *T* and *P*, and of all *L* and *M*, and four launches."""
    scale = q.shape[3] ** -0.5 if scale is None else float(scale)
    shape, first, _ = CHAIN.plan_of(q, v, scale)
    ends_shape, numbers, grids, constants = cut(q, v, segments)
    summary = Launch(summary_kernel, grids[0], numbers, constants[0])
    combine = Launch(combine_kernel, grids[1], (segments - 1,), constants[1])
    scan = Launch(segment_kernel, grids[2], (*numbers, scale), constants[2])
    return shape, ends_shape, (first, summary, combine, scan)


def launch_all(launches, q, k, v, g, beta, tp, ends, o):
    """Launch the four kernels; to be run in a copy of the context."""
    triton.set_allocator(CHAIN.allocate)
    first, summary, combine, scan = launches
    first(q, k, g, beta, tp)
    summary(k, v, tp, ends)
    combine(ends)
    scan(q, k, v, tp, ends, o)


PLANS = Plans()


@between_graphs
def gated_delta_rule(q, k, v, g, beta, scale=None):
    """Return *o* of the gated delta rule, with a state of zero before the first token.

    A long text of few heads is read in segments. Arguments and errors are those of the function of
    the same name in ``14-gated-delta-rule.py``.
    """
    segments = segments_of(q, v)
    if segments == 1 or (not ON_GPU and q.dtype == torch.bfloat16):
        return CHAIN.gated_delta_rule(q, k, v, g, beta, scale)
    try:
        q, k, v, g, beta = (x.resolve_neg() for x in (q, k, v, g, beta))
        needs = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, g, beta))
        plan = None if needs else PLANS.get((key_of(q, k, v, g, beta), scale))
    except (AttributeError, RuntimeError, TypeError):  # what cannot be in a key is refused below
        plan = None
    if plan is None:
        CHAIN.check_arguments(q, k, v, g, beta, scale)
        q, k, v, g, beta = (
            x.clone(memory_format=torch.contiguous_format) if x.data_ptr() % 16 else x.contiguous()
            for x in (q, k, v, g, beta)
        )
        PLANS.keep((key_of(q, k, v, g, beta), scale), plan := plan_of(q, v, scale, segments))
    shape, ends_shape, launches = plan
    tp, o = v.new_empty(shape), torch.empty_like(v)
    ends = torch.empty(ends_shape, dtype=torch.float32, device=v.device)
    contextvars.copy_context().run(launch_all, launches, q, k, v, g, beta, tp, ends, o)
    return o


problems = [draw(2048, 1, 1, 32, DTYPE), draw(2111, 1, 2, 16, DTYPE, batch=2, weak=1)]
g, beta = problems[-1][3:]
g[:, ::500], g[:, 1::3], beta[:, ::4], beta[:, 1::4] = -float("inf"), 0.0, 0.0, 1.0
for arguments in 2 * problems:
    assert segments_of(arguments[0], arguments[2]) > 1
    CHAIN.compare(gated_delta_rule(*arguments, 0.1), arguments, 0.1, LIMIT)
print(f"gated_delta_rule is right on {len(problems)} problems")

# %%
# The benchmark
# -------------
#
# One text of 32,768 tokens, a quarter as many heads of queries and keys as of values, *d* = 128,
# bf16. The ceiling is a copy of as many bytes as the arguments and the output have.

# sphinx_gallery_fold = "checks the longest text in float64, times both functions, draws the times"
# sphinx_gallery_xray = "summary_kernel: 32,768 tokens, 8 heads, bf16; combine_kernel: 8 heads; segment_kernel: 32,768 tokens, 8 heads, bf16"  # noqa: E501
from matplotlib.scale import LogScale
from shared.bench import draw_rates, rates, write_calls, write_rows, write_table


def benchmark(tokens, heads):
    """Return rows (tokens, heads, provider, unit, median, p20, p80)."""
    q, k, v, g, beta = arguments = draw(tokens, heads // 4, heads, 128, torch.bfloat16)
    source = torch.empty(k.nbytes + v.nbytes + g.nbytes, dtype=torch.uint8, device=DEVICE)
    calls = {"triton": partial(gated_delta_rule, *arguments), "bound": source.clone}
    calls |= {"triton, one chain": partial(CHAIN.gated_delta_rule, *arguments)}
    if (segments := segments_of(q, v)) > 1:
        shape, ends_shape, (first, summary, combine, scan) = plan_of(q, v, None, segments)
        tp, ends = torch.zeros(shape, dtype=v.dtype, device=DEVICE), v.new_zeros(ends_shape).float()
        o = torch.empty_like(v)
        calls |= {"triton, chunks": partial(first, q, k, g, beta, tp)}
        calls |= {"triton, summaries": partial(summary, k, v, tp, ends)}
        calls |= {"triton, states": partial(combine, ends)}
        calls |= {"triton, scans": partial(scan, q, k, v, tp, ends, o)}
    return rates((tokens, heads), calls, "ms", rounds=20)


if ON_GPU:
    arguments = draw(32768, 2, 8, 128, torch.bfloat16)
    values = []
    for name, function in ("segments", gated_delta_rule), ("chain", CHAIN.gated_delta_rule):
        error = CHAIN.compare(function(*arguments), arguments, 128**-0.5, tolerance=0.01)
        values.append((f"error {name}", "1", error))
    write_table("14b-segments-values.csv", ["name", "unit", "value"], values)
    counts = [4, 8, 16, 32, 64]
    rows = [row for heads in counts for row in benchmark(32768, heads)]
    labels = {"triton": "in segments", "triton, one chain": "one chain", "bound": "copy (ceiling)"}
    axes = {"xscale": LogScale(None, base=2), "xticks": counts, "xticklabels": counts}
    draw_rates(rows, labels, "Gated delta rule, 32,768 tokens", "heads", column=1, **axes)
    write_rows("delta-rule-segments.csv", ["tokens", "heads"], rows + benchmark(8192, 8))
    short = partial(gated_delta_rule, *draw(2048, 1, 1, 128, torch.bfloat16))
    write_calls({"gated_delta_rule": {"triton": short}})
    gated_delta_rule(*arguments)  # the launches of the X-ray
else:
    print("Without a GPU there is nothing to time.")

# %%
# With 8 heads the text takes :measured:`triton` ms in segments and :measured:`chain` ms as one
# chain. Of our time, :measured:`chunks` % goes to *T* and *P*, :measured:`summaries` % to the
# summaries, :measured:`states` % to the states between segments, and :measured:`scans` % to the
# scans. Each kernel was timed alone, so the shares need not add up to one. With 4 heads one chain
# takes :measured:`faster_4` times as long as segments, and with 16 heads :measured:`faster_16`
# times. Where one chain fills the GPU, both functions make the same launches. At 8,192 tokens and 8
# heads, one chain takes :measured:`faster_short` times as long.
#
# The error against float64, relative to the norm of the output, is :measured:`error` in segments
# and :measured:`error_chain` in one chain. The copy takes :measured:`bound` ms, so bytes are not
# the limit. A call keeps the CPU busy for :measured:`cpu` µs. It launches four kernels, and one
# chain launches two.
#
# The same cut serves every recurrence whose steps are linear in the state, such as Mamba's. There a
# step multiplies each number of the state by a factor. Then *M* is one factor for each number, and
# costs one multiplication a token. Here *M* has *d* × *d* numbers, and costs as much as *L*.
# FlashQLA and FlashInfer cut texts in a similar way; :doc:`/programming-guide/chapter-9/libraries`
# has their public figures.
#
# Exercises
# ---------
#
# 1. **The states between segments** *(easy, 20 minutes)*. ``states(maps, ends)`` gets the *M* and
#    the *L* of all segments, not transposed, and returns the state after each segment. The first
#    one starts from zero. :doc:`Solution <solutions/14b-states>`.
# 2. **A recurrence of numbers** *(medium, 40 minutes)*. ``recurrence(a, b)`` returns all
#    *h*\ :sub:`t` = *a*\ :sub:`t` *h*\ :sub:`t−1` + *b*\ :sub:`t` of each column, from zero. Read
#    the tokens in segments. :doc:`Solution <solutions/14b-recurrence>`.
#
# References
# ----------
#
# * Guy E. Blelloch: *Prefix sums and their applications*, 1990,
#   https://www.cs.cmu.edu/~guyb/papers/Ble93.pdf: recurrences in parallel
# * Songlin Yang et al.: *Parallelizing linear transformers with the delta rule over sequence
#   length*, https://arxiv.org/abs/2406.06484
