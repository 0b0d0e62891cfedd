"""
Paged attention
===============

A model that writes text computes one token at a time. Each token attends to the keys and values of
all tokens before it, which a serving system keeps in **pages**. You build
``paged_attention(q, k_pages, v_pages, page_table, lengths)``, which reads the pages where they are.
From 16 sequences on it has at least :measured:`gather` times the speed of cuDNN with the pages
collected into one tensor first. You need :doc:`06-fused-attention`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "transformer"
import math
import os
import sys  # for shared/
from functools import partial
from pathlib import Path  # for shared/

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
EARLY = ON_GPU and not torch.version.hip and GPU.major >= 9  # from Hopper on; explained below
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/

# %%
# The kernel
# ----------
#
# Page *p* is ``k_pages[p]`` and ``v_pages[p]``: the keys and the values of 16 tokens. Row *i* of
# ``page_table`` lists the pages of sequence *i*, and ``lengths[i]`` is its number of tokens. The
# simplest kernel has a program for each sequence and each head of queries. It walks over the pages
# of its sequence, one at a time, with the online softmax of :doc:`06-fused-attention`.


@triton.jit
def page_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, o_ptr, heads, kv_heads, most_pages, scale,
    stride_page, stride_token, PAGE: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute the attention of one head of one sequence, page by page."""
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kv = head // (heads // kv_heads)  # several heads of queries share a head of keys
    dims, tokens = tl.arange(0, D), tl.arange(0, PAGE)
    q = tl.load(q_ptr + (sequence * heads + head) * D + dims).to(tl.float32)
    length = tl.load(lengths_ptr + sequence)
    m, z = tl.full((), -float("inf"), tl.float32), tl.full((), 0.0, tl.float32)
    acc = tl.zeros((D,), tl.float32)
    for i in range(tl.cdiv(length, PAGE)):
        page = tl.load(table_ptr + sequence * most_pages + i).to(tl.int64)  # <-
        seen = i * PAGE + tokens < length
        at = page * stride_page + tokens[:, None] * stride_token + kv * D + dims[None, :]  # <-
        k = tl.load(k_ptr + at, mask=seen[:, None], other=0.0).to(tl.float32)  # [PAGE, D]
        v = tl.load(v_ptr + at, mask=seen[:, None], other=0.0).to(tl.float32)
        s = tl.where(seen, tl.sum(q[None, :] * k, axis=1) * scale, -float("inf"))
        m_new = tl.maximum(m, tl.max(s))
        p, correction = tl.exp2(s - m_new), tl.exp2(m - m_new)
        z = z * correction + tl.sum(p)
        acc = acc * correction + tl.sum(p[:, None] * v, axis=0)
        m = m_new
    o = acc / tl.where(z == 0, 1.0, z)  # zeros for a length of 0
    tl.store(o_ptr + (sequence * heads + head) * D + dims, o.to(o_ptr.dtype.element_ty))


# %%
# The two marked lines are new. The number of the next page is data, read from the table. Two
# strides then lead to a key: one from page to page, and one from token to token within a page.
# Tokens past the length are not loaded, so the rest of the last page may hold anything, even NaN.
#
# **Try it** *(easy, 10 minutes)*. Write ``last_keys(k_pages, page_table, lengths)``, which returns
# the key of the last token of each sequence, [batch, heads, d]. ``exercise.pyz`` checks it:
#
# .. code-block:: console
#
#    $ python exercise.pyz 11-last-key mine.py
#    Not yet. last_keys((3, 16, 1, 16), (1, 1), (1,)): out of bounds: a load
#      kernel:   kernel, mine.py line 9 `page = tl.load(table_ptr + sequence * most + n // PAGE)`
#      program:  0, in a grid of 1
#      index:    1 of `table_ptr`, which has 1 element, shape (1, 1)
#
# A sequence of *n* = 16 tokens fills one page, and ``n // PAGE`` is the page after it.
#
# Two sequences, their rows of the page table, and eight pages in memory, three of them free:

# sphinx_gallery_fold = "draws a page table and its pages"
import matplotlib.pyplot as plt
from shared.bench import PALETTE, figure


def draw_pages():
    """Draw two sequences, their rows of the page table, and the pages in memory."""
    _, ax = figure(height=2.8)
    tables, colors = ([5, 1, 3], [0, 6]), ("#cfe3f1", "#f3d9b1")
    owner = {page: color for row, color in zip(tables, colors, strict=True) for page in row}
    for y, (row, color, length) in enumerate(zip(tables, colors, (40, 25), strict=True)):
        ax.text(-0.1, y + 0.4, f"sequence {y}\n{length} tokens", ha="right", va="center")
        for x, page in enumerate(row):
            ax.add_patch(plt.Rectangle((x, y), 0.9, 0.8, facecolor=color, edgecolor="#444444"))
            ax.text(x + 0.45, y + 0.4, page, ha="center", va="center")
    ax.text(-0.1, 3.0, "pages in\nmemory", ha="right", va="center")
    for page in range(8):
        style = {"facecolor": owner.get(page, "white"), "edgecolor": "#444444"}
        ax.add_patch(plt.Rectangle((page, 2.6), 0.9, 0.8, **style))
        ax.text(page + 0.45, 3.0, page, ha="center", va="center")
    ax.set(xlim=(-2.2, 8), ylim=(3.6, -0.2), title="The page table, with pages of 16 tokens")
    ax.axis("off")
    plt.show()


draw_pages()

# %%
# Calling it
# ----------


def paged_attention(q, k_pages, v_pages, page_table, lengths):
    """Return the attention of one token of each sequence, for contiguous tensors."""
    (batch, heads, d), (_, page, kv_heads, _) = q.shape, k_pages.shape
    scale, o = d**-0.5 * math.log2(math.e), torch.empty_like(q)  # exp2 instead of exp
    page_kernel[batch, heads](
        q, k_pages, v_pages, page_table, lengths, o, heads, kv_heads, page_table.shape[1], scale,
        k_pages.stride(0), k_pages.stride(1), PAGE=page, D=d,
    )  # fmt: skip
    return o


plain_attention = paged_attention

# %%
# The check uses pages in random order, and sequences of any length, including 0:

# sphinx_gallery_fold = "draws problems, and compares with float64"


def draw_problem(lengths, heads, kv_heads, d, page=16):
    """Return arguments for sequences whose pages lie in random order; three pages are unused."""
    counts = [-(-n // page) for n in lengths]
    order = torch.randperm(sum(counts) + 3).int()
    page_table = torch.full((len(lengths), max(1, *counts)), -(2**31), dtype=torch.int32)
    dtype, shape = torch.bfloat16 if ON_GPU else torch.float16, (len(order), page, kv_heads, d)
    q = torch.randn(len(lengths), heads, d, device=DEVICE).to(dtype)
    k_pages, v_pages = (torch.randn(shape, device=DEVICE, dtype=dtype) for _ in range(2))
    for n, row, own in zip(lengths, page_table, order[:-3].split(counts), strict=True):
        row[: len(own)] = own
        if n % page:  # behind the length
            k_pages[own[-1], n % page :] = v_pages[own[-1], n % page :] = math.nan
    return q, k_pages, v_pages, page_table.to(DEVICE), torch.tensor(lengths).int().to(DEVICE)


def assert_right(out, q, k_pages, v_pages, page_table, lengths, scale=None):
    """Stop unless *out* agrees with the formula in float64, up to the rounding of its dtype."""
    eps, scale = torch.finfo(out.dtype).eps, q.shape[2] ** -0.5 if scale is None else scale
    for i, n in enumerate(lengths.tolist()):
        own = page_table[i, : -(-n // k_pages.shape[1])].long()
        k, v = (x[own].flatten(0, 1)[:n].double().transpose(0, 1) for x in (k_pages, v_pages))
        scores = scale * q[i].double().unflatten(0, (len(k), -1)) @ k.mT  # [kv heads, group, n]
        expected = (scores.softmax(-1) @ v).flatten(0, 1)
        torch.testing.assert_close(out[i].double(), expected, rtol=eps, atol=eps)


torch.manual_seed(0)
problem = draw_problem([0, 1, 15, 16, 17, 100], heads=8, kv_heads=2, d=64)
assert_right(paged_attention(*problem), *problem)
print("right; the sequence of 100 tokens has the pages", *problem[3][5].tolist())

# %%
# What decoding reads
# -------------------
#
# A token has one query for each head, but it reads all keys and values before it: 4096 bytes for
# each token and layer, with 8 heads of keys and values, *d* = 128, and bf16. Each byte is used in a
# few operations, so decoding is **memory-bound**.
#
# .. predict:: How many times is each key loaded, with 64 heads of queries and 8 of keys?
#    :choices: once | 8 times | 64 times
#    :answer: 8 times
#
#    Eight heads of queries share a head of keys, and each has a program of its own. The caches
#    absorb some of these loads, but each key still travels to eight programs.
#
# **Pages save memory, not time.** A contiguous cache must reserve the longest possible row for each
# sequence. Pages are given out while a sequence grows, and sequences with the same beginning share
# its pages. The price is one more load before the loads of keys and values.
#
# Three changes together make the kernel faster:
#
# **Grouped heads share a read.** One program takes all queries that use a head of keys, as the rows
# of one tile ``q``. Tensor cores multiply at least 16 rows at a time, so half of this tile is
# empty, but they have time to spare.
#
# **Loads in flight.** A load takes hundreds of cycles, and by the rule of
# :doc:`/programming-guide/chapter-1/gpu` each multiprocessor (SM) of an H100 needs about eight
# kilobytes in flight at every moment. Two numbers of the launch ensure this: four pages in each
# iteration (``BLOCK_N = 64``) and ``num_stages = 5``. The compiler sees that the loads of keys
# depend on page numbers. It starts the loads of page numbers four iterations early, and those of
# keys and values two: :term:`pipelining`.
#
# **Split keys.** One sequence has only eight heads of keys, hence eight programs, on eight SMs. And
# with mixed lengths, the longest sequence decides when all are done. One change solves both
# problems: each sequence is cut into **chunks**, with one program for each chunk and head of keys.
# The lengths are on the GPU, and the CPU must not wait for them. So the grid has programs for all
# chunks that the page table has room for, and a program past the end of its sequence exits
# immediately.
#
# The kernel with these three changes has the same loop. Each program handles ``GROUP`` heads and
# one chunk, and all strides are its arguments:

# sphinx_gallery_fold = "the kernel for grouped heads and chunks"


@triton.jit(do_not_specialize=["most", "pages", "chunk"])
def attention_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, o_ptr, part_ptr, most, pages, chunk, heads, scale,
    stride_k, stride_k_token, stride_k_head, stride_v, stride_v_token, stride_v_head, stride_row,
    PAGE: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
    BLOCK_N: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute a chunk of a sequence, for the GROUP heads of queries that share a head of keys."""
    if EARLY:
        gdc_launch_dependents()
    kv_heads, part = heads // GROUP, tl.program_id(1)
    sequence = (tl.program_id(0) // kv_heads).to(tl.int64)
    kv = (tl.program_id(0) % kv_heads).to(tl.int64)  # offsets of large caches need 64 bits
    length = tl.minimum(tl.load(lengths_ptr + sequence), most)  # most: room in the table
    first = part * chunk
    if (first >= length) & (part > 0):
        return
    rows, dims = tl.arange(0, ROWS), tl.arange(0, D)  # ROWS >= GROUP; tensor cores multiply 16 rows
    head, mask = kv * GROUP + rows, rows[:, None] < GROUP
    q_at = (sequence * heads + head)[:, None] * D + dims[None, :]
    q = tl.load(q_ptr + q_at, mask=mask, other=0.0)
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    z = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    stop = tl.minimum(length, first + chunk)
    for start in range(first, stop, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        seen = keys < stop
        page = tl.load(table_ptr + sequence * stride_row + keys // PAGE, mask=seen, other=0)
        page = tl.minimum(tl.maximum(page, 0), pages - 1).to(tl.int64)  # never another address
        token = (keys % PAGE).to(tl.int64)
        k_at = page * stride_k + token * stride_k_token + kv * stride_k_head
        v_at = page * stride_v + token * stride_v_token + kv * stride_v_head
        k = tl.load(k_ptr + k_at[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
        v = tl.load(v_ptr + v_at[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee")  # [ROWS, BLOCK_N]
        s = tl.where(seen[None, :], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1) * scale)  # scale contains log2(e)
        p = tl.exp2(tl.fma(s, scale, -m_new[:, None]))
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    o = acc / tl.where(z == 0, 1.0, z)[:, None]  # zeros for a length of 0
    if length <= chunk:
        tl.store(o_ptr + q_at, o.to(o_ptr.dtype.element_ty), mask=mask)
    else:  # one of several chunks
        part_ptr += (sequence * tl.num_programs(1) + part) * heads * (D + 1)
        tl.store(part_ptr + head[:, None] * D + dims[None, :], o, mask=mask)
        tl.store(part_ptr + heads * D + head, m + tl.log2(z), mask=rows < GROUP)


def arguments_of(q, k_pages, v_pages, page_table, scale=None, chunk=2**30, block_n=16, stages=3):
    """Return the grid, the numbers and the constants of a launch."""
    (batch, heads, d), (pages, page, kv_heads, _) = q.shape, k_pages.shape
    most, group = page_table.shape[1] * page, heads // kv_heads
    scale = (d**-0.5 if scale is None else scale) * math.log2(math.e)
    strides = *k_pages.stride()[:3], *v_pages.stride()[:3], page_table.stride(0)
    constants = {"PAGE": page, "GROUP": group, "ROWS": max(16, triton.next_power_of_2(group))}
    constants |= {"D": d, "BLOCK_N": block_n, "EARLY": EARLY, "num_stages": stages}
    grid = batch * kv_heads, triton.cdiv(most, chunk)
    return grid, (most, pages, chunk, heads, scale, *strides), constants


def simple(q, k_pages, v_pages, page_table, lengths, **options):
    """Return the attention of each sequence's query, with a program for each head of keys."""
    grid, numbers, constants = arguments_of(q, k_pages, v_pages, page_table, **options)
    o = torch.empty_like(q)
    attention_kernel[grid](q, k_pages, v_pages, page_table, lengths, o, o, *numbers, **constants)
    return o


assert_right(simple(*problem), *problem)

# %%
# Combining the chunks
# --------------------
#
# The result of a chunk is a weighted mean of its values. Its weight is the sum of the exponentials
# of its scores. The logarithm of this sum, the :term:`log-sum-exp`, is stored after the means. A
# second kernel combines the chunks: a softmax over their log-sum-exps gives the weights. From
# Hopper on, the second kernel is launched before the first has ended (*programmatic dependent
# launch*), and ``gdc_wait`` makes it wait for the results.


@triton.jit(do_not_specialize=["most", "chunk", "parts"])
def combine_kernel(
    lengths_ptr, o_ptr, part_ptr, most, chunk, parts, heads,
    PARTS: tl.constexpr, D: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Combine the chunks of one sequence, for one head."""
    sequence, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    length = tl.minimum(tl.load(lengths_ptr + sequence), most)
    if EARLY:
        gdc_wait()
    if length <= chunk:
        return
    dims, part = tl.arange(0, D), tl.arange(0, PARTS)  # PARTS is a power of two
    part_ptr += (sequence * parts + part) * heads * (D + 1)
    mask = part * chunk < length
    lse = tl.load(part_ptr + heads * D + head, mask=mask, other=-float("inf"))
    o = tl.load((part_ptr + head * D)[:, None] + dims[None, :], mask=mask[:, None], other=0.0)
    weight = tl.exp2(lse - tl.max(lse, axis=0))
    o = tl.sum(o * weight[:, None], axis=0) / tl.sum(weight, axis=0)
    tl.store(o_ptr + (sequence * heads + head) * D + dims, o.to(o_ptr.dtype.element_ty))


# %%
# In a program
# ------------
#
# The public ``paged_attention`` launches both kernels. It picks the number of chunks estimated to
# finish first, from the number of programs that fit on the GPU at the same time, and keeps a plan
# for each kind of arguments: :doc:`/programming-guide/chapter-6/calls`. It reads pages with any
# strides. Lengths and page numbers are on the GPU, and a check of them would make the CPU wait. So
# the kernel limits both: a wrong page number reads the wrong page, but never other memory. For
# ``torch.compile`` the function is one operation.

# sphinx_gallery_fold = "the function with its checks"
from shared.launch import Launch, key_of
from shared.plans import Plans
from torch._subclasses.fake_tensor import FakeTensor


def traced(x):
    """Return whether *x* has no values, as PyTorch's compiler asks for shapes only."""
    return torch.compiler.is_compiling() or isinstance(x, FakeTensor)


SMS = getattr(GPU, "multi_processor_count", 5)  # the interpreter needs only a few programs
SHARED_BYTES = getattr(GPU, "shared_memory_per_block_optin", 65536)  # of an SM
FLOATS = torch.float16, torch.bfloat16, torch.float32


def check_arguments(q, k_pages, v_pages, page_table, lengths, scale):
    """Raise TypeError or ValueError where ``paged_attention`` cannot work on its arguments."""
    names = "q", "k_pages", "v_pages", "page_table", "lengths"
    tensors = q, k_pages, v_pages, page_table, lengths
    for name, x, dims in zip(names, tensors, (3, 4, 4, 2, 1), strict=True):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
        if x.dtype not in ((torch.int32,) if dims < 3 else FLOATS if x is q else (q.dtype,)):
            rule = "int32" if dims < 3 else "fp16, bf16 or fp32" if x is q else f"as q, {q.dtype}"
            raise TypeError(f"{name} must be {rule}, but its dtype is {x.dtype}")
        strided = x.layout == torch.strided
        if not strided or x.dim() != dims or x.device.type != DEVICE.type or x.device != q.device:
            found = f"but is on {x.device}, {x.layout}, and has shape {tuple(x.shape)}"
            raise ValueError(
                f"{name} must be on one {DEVICE.type} device and have {dims} dimensions, {found}"
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} requires a gradient; use torch.no_grad(): there is none")
        if x is not q and x.stride(-1) != 1 and x.shape[-1] > 1:
            raise ValueError(f"{name} must have a last stride of 1, but has strides {x.stride()}")
    (batch, heads, d), (pages, page, kv_heads, last) = q.shape, k_pages.shape
    for right, rule in (
        (k_pages.shape == v_pages.shape, "k_pages and v_pages must have one shape"),
        (d == last and d in (16, 32, 64, 128, 256), "d must be 16, 32, 64, 128 or 256, as in q"),
        (page and kv_heads, "k_pages must have heads, and a page tokens"),
        (heads % max(1, kv_heads) == 0, "q must have a multiple of the heads of k_pages"),
        (len(page_table) == len(lengths) == batch, "q, page_table, lengths must have one batch"),
    ):
        if not right:
            shapes = ", ".join(f"{n} {tuple(x.shape)}" for n, x in zip(names, tensors, strict=True))
            raise ValueError(f"{rule}, but the shapes are {shapes}")
    if scale is not None and not (isinstance(scale, int | float) and 0 < scale < 2.0**127):
        raise ValueError(f"scale must be positive and less than 2**127, but is {scale!r}")
    if ON_GPU or not batch or traced(q):
        return  # the next checks would wait for the GPU
    most = page_table.shape[1] * page
    if not 0 <= lengths.min() <= lengths.max() <= most:
        raise ValueError(f"lengths must be from 0 to {most}, but are {lengths.tolist()}")
    used = page_table[page * torch.arange(page_table.shape[1], device=q.device) < lengths[:, None]]
    if len(used) and not 0 <= used.min() <= used.max() < pages:
        raise ValueError(f"page_table must be from 0 to {pages - 1}, but is {used.tolist()}")


def plan_of(q, k_pages, v_pages, page_table, scale):
    """Return the launches of both kernels, and how many numbers they need for parts."""
    (batch, heads, d), (_, page, kv_heads, _) = q.shape, k_pages.shape
    pairs, most = batch * kv_heads, page_table.shape[1] * page
    at_once, least = (3 * SMS, min(8, triton.cdiv(most, 2048))) if pairs > SMS else (2 * SMS, 1)
    tried = range(least, 129)  # three programs fit on an SM, and two have enough loads in flight
    times = [triton.cdiv(pairs * n, at_once) * (most / n + 128 * ON_GPU) for n in tried]  # in keys
    chunk = triton.cdiv(most, 64 * tried[times.index(min(times))]) * 64
    parts, large = triton.cdiv(most, chunk), 512 * d * q.element_size() > SHARED_BYTES
    block_n = 16 if large else 64
    arguments = arguments_of(q, k_pages, v_pages, page_table, scale, chunk, block_n, stages=5)
    options = {"PARTS": triton.next_power_of_2(parts), "D": d, "EARLY": EARLY}
    options |= {"num_warps": 4 if parts > 16 else 1} | ({"launch_pdl": True} if EARLY else {})
    second = Launch(combine_kernel, (batch * heads,), (most, chunk, parts, heads), options)
    first, size = Launch(attention_kernel, *arguments), batch * parts * heads * (d + 1)
    return first, second if parts > 1 else None, size


PLANS = Plans()


def paged_attention(q, k_pages, v_pages, page_table, lengths, scale=None):
    """Return the attention of one token of each sequence, [batch, heads, d], without gradients.

    Args:
        q: [batch, heads, d], fp16, bf16 or fp32; d is 16, 32, 64, 128 or 256.
        k_pages: [pages, page, kv heads, d], as q; heads is a multiple of kv heads.
        v_pages: As k_pages.
        page_table: [batch, most pages], int32; row *i* begins with the pages of sequence *i*.
        lengths: [batch], int32, the tokens of each sequence; 0 gives zeros.
        scale: What scores are multiplied by, above 0, below 2 ** 127; d ** -0.5 if None.

    Values of page_table and lengths are checked on the CPU only: on a GPU that would wait. There,
    another page is read in place of one that does not exist.

    Raises:
        TypeError: An argument is no tensor, or its dtype is not as described.
        ValueError: Shapes, devices or strides do not fit, or a tensor requires a gradient.
    """
    plan, compiling = None, traced(q)
    tensors = q, k_pages, v_pages, page_table, lengths
    try:
        tensors = q, k_pages, v_pages, *_, lengths = [t.resolve_neg() for t in tensors]
        gradient = q.requires_grad or k_pages.requires_grad or v_pages.requires_grad
        if ON_GPU and not compiling and not (gradient and torch.is_grad_enabled()):
            plan = PLANS.get((key_of(*tensors), scale))
    except (AttributeError, RuntimeError, TypeError):  # no tensors, or a scale that is not a number
        pass
    if plan is None:
        check_arguments(*tensors, scale)
        if compiling:
            return paged_attention_op(*tensors, scale)
        if not all(x.numel() for x in tensors):
            return q.new_zeros(q.shape)
        if not ON_GPU and q.dtype == torch.bfloat16:  # the interpreter computes bf16 wrongly
            floats = (x.float() for x in tensors[:3])
            return paged_attention(*floats, page_table, lengths, scale).bfloat16()
        tensors = q.contiguous(), *tensors[1:]
        PLANS.keep((key_of(*tensors), scale), plan := plan_of(*tensors[:4], scale))
    first, second, size = plan
    o, parts = torch.empty_like(tensors[0]), q.new_empty(size, dtype=torch.float32)
    first(*tensors, o, parts)
    if second is not None:
        second(lengths, o, parts)
    return o


# For torch.compile, the function is one operation, which the compiler does not look into.
schema = "(Tensor q, Tensor k, Tensor v, Tensor table, Tensor lengths, float? scale) -> Tensor"
operation = torch.library.custom_op("gallery::paged_attention", mutates_args=(), schema=schema)
paged_attention_op = operation(paged_attention)
fake = paged_attention_op.register_fake(lambda q, *_: q.new_empty(q.shape))

for page, heads, kv_heads, d in ((16, 8, 2, 64), (1, 4, 4, 16), (24, 6, 1, 32), (64, 16, 8, 128)):
    for lengths in ([0, 1, page - 1, page, page + 1], [600], [3, 300, 0, 64, 16], [0, 0]):
        problem = draw_problem(lengths, heads, kv_heads, d, page)
        assert_right(paged_attention(*problem, 0.3), *problem, 0.3)
print("paged_attention agrees with float64")

# %%
# The benchmark
# -------------
#
# The benchmark has 64 heads of queries, 8 of keys, *d* = 128, bf16, and pages of 16 tokens in
# random order. In the last case, 64 sequences have 100 to 8000 tokens. Rates count each key and
# value once. **cuDNN** gets contiguous keys; mixed lengths are padded and masked. **gather**
# collects the pages into such keys first. ``amax`` **reads** as many bytes; a better read may be a
# little faster.

# sphinx_gallery_fold = "times five batches, draws the rates, and keeps the rows"
# sphinx_gallery_xray = "attention_kernel: 64 sequences of mixed lengths"
from shared.bench import rates, write_calls, write_rows
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as torch_attention

mixed = torch.randint(100, 8001, (64,), generator=torch.Generator().manual_seed(1)).tolist()
cases = [32768], [8192] * 16, [4096] * 64, [1024] * 256, mixed


@triton.jit
def empty_kernel():
    """Do nothing."""


def cudnn(q, k, v, mask, page_table=None):
    """Return cuDNN's attention. With a page_table, k and v are pages, which are collected first."""
    if page_table is not None:
        k, v = (pages[page_table].flatten(1, 2).transpose(1, 2) for pages in (k, v))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch_attention(q[:, :, None], k, v, attn_mask=mask, enable_gqa=True)[:, :, 0]


def benchmark(lengths):
    """Return rows (batch, keys, page, provider, unit, median, p20, p80)."""
    problem = q, k_pages, v_pages, page_table, n = draw_problem(lengths, 64, 8, 128)
    page_table.clamp_(min=0)  # PyTorch refuses other entries, and a mask does not hide NaN
    pages, mixed = (k_pages.nan_to_num_(), v_pages.nan_to_num_()), len(set(lengths)) > 1
    mask = (torch.arange(16 * page_table.shape[1], device=DEVICE) < n[:, None])[:, None, None]
    calls = {"triton": partial(paged_attention, *problem)}
    calls["triton, one page"] = partial(simple, *problem)
    calls["triton, plain"] = partial(plain_attention, *problem)
    calls["triton, in flight"] = partial(simple, *problem, block_n=64, stages=5)
    if not torch.version.hip:
        contiguous = [x[page_table].flatten(1, 2).transpose(1, 2).contiguous() for x in pages]
        calls["cudnn"] = partial(cudnn, q, *contiguous, mask if mixed else None)
        calls["gather"] = partial(cudnn, q, *pages, mask if mixed else None, page_table)
    assert_right(right := calls["triton"](), *problem)
    for call in calls.values():
        torch.testing.assert_close(call(), right, rtol=2**-6, atol=2**-6)
    amount = 2 * sum(lengths) * k_pages[0, 0].nbytes
    calls["read"] = torch.zeros(amount // 4, dtype=torch.int32, device=DEVICE).amax
    size = len(lengths), 0 if mixed else lengths[0], 16
    return rates(size, calls, "GB/s", amount, rounds=20)


if ON_GPU:
    rows = [row for lengths in cases for row in benchmark(lengths)]
    write_rows("paged-attention.csv", ["batch", "keys", "page"], rows)
    labels = {"read": "read (ceiling)", "cudnn": "cuDNN, contiguous keys"}
    labels |= {"triton": "paged_attention", "gather": "gather, then cuDNN"}
    _, ax = figure(height=6.6)
    for i, (name, label) in enumerate(labels.items()):
        speeds = [row[5] for row in rows if row[3] == name]
        color = PALETTE.get(name, "#1b6ca8")
        bars = ax.barh([5 * j + i for j in range(len(speeds))], speeds, color=color, label=label)
        ax.bar_label(bars, fmt="{:,.0f}", padding=3)
    names = [f"{row[0]} × {row[1] or 'mixed'}" for row in rows if row[3] == "triton"]
    ax.set_yticks([5 * j + 1.5 for j in range(len(names))], names)
    ax.invert_yaxis()
    ax.set(xlabel="GB/s of keys and values, higher is better", ylabel="sequences × keys")
    ax.margins(x=0.18)  # room for the values
    ax.locator_params(axis="x", nbins=5)
    ax.set_title(f"Attention of one token, bf16\non {GPU.name}")
    ax.figure.legend(loc="outside lower center", ncols=2, frameon=False)
    plt.show()
    paged_attention(*draw_problem(mixed, 64, 8, 128))  # the launch whose X-ray is shown
    q, k, v = (torch.randn(4, 8, n, 128, device=DEVICE).bfloat16() for n in (1, 512, 512))
    calls = {"triton": partial(paged_attention, *draw_problem([512] * 4, 64, 8, 128))}
    calls["torch"] = partial(torch_attention, q.repeat(1, 8, 1, 1), k, v, enable_gqa=True)
    calls["launch"] = lambda: [empty_kernel[(1,)]() for _ in range(2)]
    write_calls({"paged_attention": calls})
else:
    print("Without a GPU there is nothing to time.")

# %%
# The steps, with mixed lengths:
#
# .. steps:: read
#    :unit: GB/s
#
#    plain: one program for each head of queries
#    pages: heads share a read, pages one by one
#    flight: loads in flight
#    triton: split keys
#
# With one sequence, chunks bring :measured:`split` times the rate of a program for each head of
# keys. ``paged_attention`` has at least :measured:`cudnn` % of cuDNN's rate on contiguous keys, and
# with mixed lengths :measured:`mixed` % of the rate of a read. cuDNN itself can read page tables,
# but PyTorch's attention function does not offer that. FlashInfer and FlashAttention have kernels
# for pages, too; they are packages of their own, which our measurements do without.
#
# A call keeps the CPU busy for :measured:`cpu` µs, and one of PyTorch's attention on contiguous
# keys for :measured:`cpu_torch` µs. In a loop that does not wait, a call costs the larger of the
# CPU's and the GPU's time.
#
# Exercises
# ---------
#
# 1. **A window** *(easy, 20 minutes)*. Let each token see only the last *W* keys, in
#    ``window_attention(q, k_pages, v_pages, page_table, lengths, window)``.
#    :doc:`Solution <solutions/11-window>`.
# 2. **Pages of int8** *(medium, 40 minutes)*. Each key and each value has a scale, in ``k_scales``
#    and ``v_scales``, [pages, page, kv heads]. Multiply the scores and the weights by them, not
#    keys and values, in
#    ``int8_attention(q, k_pages, v_pages, k_scales, v_scales, page_table, lengths)``.
#    :doc:`Solution <solutions/11-int8-pages>`.
#
# References
# ----------
#
# * Woosuk Kwon et al.: *Efficient memory management for large language model serving with
#   PagedAttention*, SOSP 2023, https://arxiv.org/abs/2309.06180
# * Tri Dao et al.: *Flash-Decoding*, 2023, https://crfm.stanford.edu/2023/10/12/flashdecoding.html
