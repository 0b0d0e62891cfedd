"""
Paged attention
===============

A model that writes text computes one token at a time. Each token looks at the keys and values of
all tokens before it, and a serving system keeps these in **pages**. You write
``paged_attention(q, k_pages, v_pages, page_table, lengths, scale=None)``, which reads the pages
where they are. From 16 sequences on it is at least :measured:`gather` times as fast as collecting
the pages for cuDNN. You need :doc:`06-fused-attention`.
"""

# %%
# The kernel
# ----------
#
# A page holds the keys or values of 16 tokens. ``page_table[i]`` lists the pages of sequence *i*,
# and ``lengths[i]`` is its number of tokens. A program takes one sequence and one head of keys.

# sphinx_gallery_level = "transformer"
import math
import os
from functools import partial

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device


@triton.jit
def attend(m, z, acc, q, k, v, bias, scale):
    """Add keys and values to an online softmax; *bias* is 0 for a key that counts, or -inf."""
    s = tl.fma(tl.dot(q, k.T, input_precision="ieee"), scale, bias[None, :])  # [ROWS, BLOCK_N]
    m_new = tl.maximum(m, tl.max(s, axis=1))
    p = tl.exp2(s - m_new[:, None])
    correction = tl.exp2(m - m_new)
    z = z * correction + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
    return m_new, z, acc


@triton.jit
def simple_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, o_ptr, heads, scale,
    stride_page, stride_token, stride_head, stride_row,
    PAGE: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute one sequence and one head of keys for the GROUP heads of queries that share it."""
    sequence, kv = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rows, dims = tl.arange(0, 16), tl.arange(0, D)  # tl.dot needs 16 rows, so GROUP <= 16
    at = (sequence * heads + kv * GROUP + rows)[:, None] * D + dims[None, :]
    q = tl.load(q_ptr + at, mask=rows[:, None] < GROUP, other=0.0)
    m = tl.full((16,), -float("inf"), tl.float32)
    z = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    length = tl.load(lengths_ptr + sequence)
    for start in range(0, length, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        seen = keys < length
        page = tl.load(table_ptr + sequence * stride_row + keys // PAGE, mask=seen, other=0)
        row = page.to(tl.int64) * stride_page + keys % PAGE * stride_token + kv * stride_head
        k = tl.load(k_ptr + row[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
        v = tl.load(v_ptr + row[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
        bias = tl.where(seen, 0.0, -float("inf"))
        m, z, acc = attend(m, z, acc, q, k, v, bias, scale)
    o = acc / tl.where(z > 0, z, 1.0)[:, None]  # zeros for a length of 0
    tl.store(o_ptr + at, o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < GROUP)


# %%
# ``attend`` is the online softmax of :doc:`06-fused-attention`. ``row`` is new: it is the offset of
# each key's row, computed from the page that the table names. Rows behind the length are not
# loaded, so their contents do not matter, even if they are NaN.


def simple(q, k_pages, v_pages, page_table, lengths, block_n=16, **options):
    """Return the attention of each sequence's query, with a program for each head of keys."""
    (batch, heads, d), (_, page, kv_heads, _) = q.shape, k_pages.shape
    o = torch.empty_like(q)
    simple_kernel[batch, kv_heads](
        q, k_pages, v_pages, page_table, lengths, o, heads, d**-0.5 * math.log2(math.e),
        *k_pages.stride()[:3], page_table.stride(0),
        PAGE=page, GROUP=heads // kv_heads, D=d, BLOCK_N=block_n, **options,
    )  # fmt: skip
    return o


# %%

# sphinx_gallery_fold = "draws problems, and compares with float64"


def draw_problem(lengths, heads, kv_heads, d, page=16, spare=3):
    """Return arguments for sequences whose pages lie in random order, *spare* pages unused."""
    counts = [-(-n // page) for n in lengths]
    dtype, size = torch.bfloat16 if ON_GPU else torch.float16, sum(counts) + spare
    page_table = torch.full((len(lengths), max(counts)), -(2**31), dtype=torch.int32)
    for row, own in zip(page_table, torch.randperm(size)[: sum(counts)].split(counts), strict=True):
        row[: len(own)] = own
    q = torch.randn(len(lengths), heads, d, device=DEVICE).to(dtype)
    shape = size, page, kv_heads, d
    k_pages, v_pages = (torch.randn(shape, device=DEVICE, dtype=dtype) for _ in range(2))
    for n, row in zip(lengths, page_table, strict=True):
        for pages in (k_pages, v_pages) if n % page else ():
            pages[row[n // page], n % page :] = math.nan  # behind the length: must not matter
    return q, k_pages, v_pages, page_table.to(DEVICE), torch.tensor(lengths).int().to(DEVICE)


def reference(q, k_pages, v_pages, page_table, lengths, scale=None):
    """Return the attention of each sequence in float64."""
    out, groups = torch.zeros_like(q, dtype=torch.float64), k_pages.shape[2]
    for i, n in enumerate(lengths.tolist()):
        used = page_table[i, : -(-n // k_pages.shape[1])].long()
        k, v = (x[used].flatten(0, 1)[:n].double().transpose(0, 1) for x in (k_pages, v_pages))
        s = q[i].double().unflatten(0, (groups, -1)) @ k.mT  # [kv heads, group, keys]
        p = (s * (q.shape[2] ** -0.5 if scale is None else scale)).softmax(-1)
        out[i] = (p @ v).flatten(0, 1) if n else 0
    return out


def assert_right(out, *problem, scale=None):
    """Stop unless *out* agrees with float64, up to the rounding of its dtype."""
    unit = torch.finfo(problem[1].dtype).eps
    torch.testing.assert_close(out.double(), reference(*problem, scale), rtol=unit, atol=unit)


# %%

torch.manual_seed(0)
problem = draw_problem([0, 1, 15, 16, 17, 100], heads=8, kv_heads=2, d=64)
assert_right(simple(*problem), *problem)
print("right, for sequences of 0 to 100 tokens; page_table begins with\n", problem[3][3:, :3].cpu())

# %%
# What decoding reads
# -------------------
#
# A token of one sequence has one query for each head, but reads all keys and values before it. With
# 8 heads of keys and values, *d* = 128 and bf16, a token of the past has 4096 bytes in each layer.
# Each byte is used in a few operations, so decoding is **memory-bound**, and its speed is in GB/s
# of keys and values. Three things follow:
#
# * **Grouped heads share a read.** Here eight heads of queries use the same head of keys. They are
#   the rows of one tile of ``q``. ``tl.dot`` needs 16 rows, so half of them are empty. The tensor
#   cores have nothing else to do.
# * **Pages save memory, not time.** A cache with a contiguous row for each sequence must reserve
#   the longest possible row. Pages are given out as a sequence grows, and two sequences with the
#   same beginning share its pages. The price is one more load before the loads of keys and values.
# * **Collecting the pages first does not pay.** It reads all bytes, writes them, and reads them
#   again: three transfers in place of one.
#
# Loads in flight
# ---------------
#
# The simple kernel loads one page, waits, computes, and loads the next one. A multiprocessor (SM)
# of an H200 reads 32 bytes in each nanosecond, and a load takes most of a microsecond: tens of
# kilobytes must be **in flight** at any time. Larger blocks help, and so does
# :term:`pipelining`: ``num_stages`` loads the keys of later iterations early. But the compiler must
# know their pages. The final kernel loads the *page numbers* of the next block in each iteration,
# so that the loads of keys depend on no other load.
#
# Equal shares
# ------------
#
# One sequence has eight programs now, for 132 SMs. And in a batch, the longest sequence decides
# when all are done. The remedy for both is to split the keys. Write the keys of all sequences into
# one list, cut into units of 16. Part *p* of *P* takes the units from ``p * total // P`` to
# ``(p + 1) * total // P``, wherever sequences begin and end:

lengths, parts = [400, 0, 50, 700], 4
starts = [0]
for n in lengths:
    starts.append(starts[-1] + -(-n // 16))
for part in range(parts):
    low, high = (p * starts[-1] // parts for p in (part, part + 1))
    pieces = [(i, max(low, a) - a, min(high, b) - a) for i, (a, b) in enumerate(zip(starts, starts[1:]))]
    text = [f"units {a} to {b - 1} of sequence {i}" for i, a, b in pieces if a < b]
    print(f"part {part}:", ", ".join(text))


# %%
# The lengths are on the GPU, and the CPU must not wait for them. So each program computes this
# list itself, with a running sum of all lengths.


@triton.jit
def share_of(part, parts, lengths_ptr, batch, most, BATCH: tl.constexpr):
    """Return the first unit of a part, the unit behind its last, and each sequence's end."""
    every = tl.arange(0, BATCH)  # BATCH is a power of two
    lengths = tl.load(lengths_ptr + every, mask=every < batch, other=0)
    units = tl.cdiv(tl.minimum(tl.maximum(lengths, 0), most), 16)
    ends = tl.cumsum(units, axis=0)
    total = tl.max(ends, axis=0).to(tl.int64)
    return (part * total // parts).to(tl.int32), ((part + 1) * total // parts).to(tl.int32), ends


@triton.jit
def sequence_at(unit, ends):
    """Return the sequence that a unit belongs to, its first unit, and the unit behind it."""
    before = ends <= unit
    first = tl.max(tl.where(before, ends, 0), axis=0)
    end = tl.min(tl.where(before, 2147483647, ends), axis=0)
    return tl.sum(before.to(tl.int32), axis=0).to(tl.int64), first, end


@triton.jit(do_not_specialize=["batch", "most", "pages"])
def part_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, o_ptr, part_ptr,
    batch, most, pages, heads, parts, scale,
    stride_k, stride_k_token, stride_k_head, stride_v, stride_v_token, stride_v_head, stride_row,
    PAGE: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
    BATCH: tl.constexpr, BLOCK_N: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute one part of all keys, for one head of keys. *scale* contains log2(e)."""
    if EARLY:
        gdc_launch_dependents()
    kv, part = tl.program_id(0), tl.program_id(1)  # all heads of a page are read at the same time
    unit, stop, ends = share_of(part, parts, lengths_ptr, batch, most, BATCH)
    rows, dims, cols = tl.arange(0, ROWS), tl.arange(0, D), tl.arange(0, BLOCK_N)
    head, inside = kv * GROUP + rows, rows < GROUP
    k_ptr += kv * stride_k_head
    v_ptr += kv * stride_v_head
    while unit < stop:  # one sequence in each iteration
        sequence, first, end = sequence_at(unit, ends)
        q_at = (sequence * heads + head)[:, None] * D + dims[None, :]
        q = tl.load(q_ptr + q_at, mask=inside[:, None], other=0.0)
        m = tl.full((ROWS,), -float("inf"), tl.float32)
        z = tl.zeros((ROWS,), tl.float32)
        acc = tl.zeros((ROWS, D), tl.float32)
        row_ptr = table_ptr + sequence * stride_row
        start = (unit - first) * 16
        last = tl.minimum(tl.minimum(tl.load(lengths_ptr + sequence), most), (stop - first) * 16)
        page = tl.load(row_ptr + (start + cols) // PAGE, mask=start + cols < last, other=0)
        for i in range(start, last, BLOCK_N):
            keys = i + cols
            valid = (page >= 0) & (page < pages)  # other entries of the table give NaN
            loaded = (keys < last) & valid
            token = keys % PAGE
            k_row = page.to(tl.int64) * stride_k + token * stride_k_token
            v_row = page.to(tl.int64) * stride_v + token * stride_v_token
            k = tl.load(k_ptr + k_row[:, None] + dims[None, :], mask=loaded[:, None], other=0.0)
            v = tl.load(v_ptr + v_row[:, None] + dims[None, :], mask=loaded[:, None], other=0.0)
            keys += BLOCK_N
            page = tl.load(row_ptr + keys // PAGE, mask=keys < last, other=0)
            bias = tl.where(loaded, 0.0, tl.where(valid, -float("inf"), float("nan")))
            m, z, acc = attend(m, z, acc, q, k, v, bias, scale)
        o = acc / z[:, None]
        if (unit == first) & (end <= stop):  # the whole sequence
            tl.store(o_ptr + q_at, o.to(o_ptr.dtype.element_ty), mask=inside[:, None])
        else:  # a part that another one continues has the second half of the slots
            slot = tl.where(unit == first, parts + part, part) * heads + head
            tl.store(part_ptr + slot[:, None] * D + dims[None, :], o, mask=inside[:, None])
            tl.store(part_ptr + 2 * parts * heads * D + slot, m + tl.log2(z), mask=inside)
        unit = end


# %%
# Each part of a sequence is a weighted mean of its values, and its weight is the sum of the
# exponentials of its scores. Their logarithm, the **log-sum-exp**, is stored beside the mean.
# A second kernel combines the parts of a sequence: a softmax over log-sum-exps gives the weights.
# The kernel is started early, by *programmatic dependent launch*: its programs compute their
# shares while the first kernel runs, and wait for its results at ``gdc_wait``.


@triton.jit(do_not_specialize=["batch", "most"])
def combine_kernel(
    lengths_ptr, o_ptr, part_ptr, batch, most, heads, parts,
    D: tl.constexpr, BATCH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Combine the sequence that begins in one part and ends in another, for one head."""
    head, part = tl.program_id(0), tl.program_id(1)
    low, high, ends = share_of(part, parts, lengths_ptr, batch, most, BATCH)
    sequence, first, end = sequence_at(high - 1, ends)
    dims, step = tl.arange(0, D), tl.arange(0, 16)
    for empty in range(part, batch, parts):
        if tl.load(lengths_ptr + empty) <= 0:
            o_at = (tl.full((), empty, tl.int64) * heads + head) * D + dims
            tl.store(o_ptr + o_at, tl.zeros((D,), o_ptr.dtype.element_ty))
    if EARLY:
        gdc_wait()
    if (low < high) & (first >= low) & (end > high):
        total = tl.max(ends, axis=0).to(tl.int64)
        last = ((end.to(tl.int64) * parts - 1) // total).to(tl.int32)  # the part of its last unit
        m = -float("inf")
        z = 0.0
        acc = tl.zeros((D,), tl.float32)
        for start in range(part, last + 1, 16):
            some = start + step
            slot = tl.where(some == part, parts + part, some) * heads + head
            at, inside = slot[:, None] * D + dims[None, :], some <= last
            inside &= some * total // parts < (some + 1) * total // parts  # the others are empty
            o = tl.load(part_ptr + at, mask=inside[:, None], other=0.0)
            lse_at = 2 * parts * heads * D + slot
            lse = tl.load(part_ptr + lse_at, mask=inside, other=-float("inf"))
            m_new = tl.maximum(m, tl.max(lse, axis=0))
            weight = tl.exp2(lse - m_new)
            z = z * tl.exp2(m - m_new) + tl.sum(weight, axis=0)
            acc = acc * tl.exp2(m - m_new) + tl.sum(o * weight[:, None], axis=0)
            m = m_new
        tl.store(o_ptr + (sequence * heads + head) * D + dims, (acc / z).to(o_ptr.dtype.element_ty))


# %%
# Calling it
# ----------
#
# ``parts`` is chosen so that all programs run at the same time, two on each SM. ``paged_attention``
# keeps a plan for each kind of arguments, as in :doc:`/programming-guide/chapter-6/calls`.

# sphinx_gallery_fold = "checks the arguments, and plans both launches"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.launch import Launch, key_of

GPU = torch.get_device_module(DEVICE).get_device_properties(DEVICE) if ON_GPU else None
SMS = getattr(GPU, "multi_processor_count", 5)  # the interpreter needs only a few programs
SHARED_BYTES = getattr(GPU, "shared_memory_per_block_optin", 65536)  # of an SM
EARLY = ON_GPU and not torch.version.hip and GPU.major >= 9  # from Hopper on


def check_arguments(q, k_pages, v_pages, page_table, lengths, scale):
    """Raise TypeError or ValueError, naming the argument, where ``paged_attention`` cannot go on."""
    given = {"q": q, "k_pages": k_pages, "v_pages": v_pages}
    given |= {"page_table": page_table, "lengths": lengths}
    dims = {"q": 3, "k_pages": 4, "v_pages": 4, "page_table": 2, "lengths": 1}
    for name, x in given.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is a {type(x).__name__}")
        if x.dim() != dims[name] or x.device != DEVICE:
            found = f"but is on {x.device} and has shape {tuple(x.shape)}"
            raise ValueError(f"{name} must be on {DEVICE} and have {dims[name]} dimensions, {found}")
        if name in ("page_table", "lengths"):
            if x.dtype != torch.int32:
                raise TypeError(f"{name} must be int32, but is {x.dtype}")
        elif x.dtype != q.dtype or q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            allowed = "float16, bfloat16 or float32" if x is q else f"{q.dtype} as q"
            raise TypeError(f"{name} must be {allowed}, but its dtype is {x.dtype}")
        elif torch.is_grad_enabled() and x.requires_grad:
            raise ValueError(f"{name} requires a gradient; use torch.no_grad(): there is none")
        if x.stride(-1) != 1 and x.shape[-1] > 1 and name != "q":
            raise ValueError(f"{name} must have a last stride of 1, but its strides are {x.stride()}")
    (batch, heads, d), (_, page, kv_heads, _) = q.shape, k_pages.shape
    shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in given.items())
    if k_pages.shape != v_pages.shape or k_pages.shape[3] != d or d not in (16, 32, 64, 128, 256):
        message = "k_pages and v_pages must have one shape and q's head_dim, 16, 32, 64, 128 or 256"
        raise ValueError(f"{message}: {shapes}")
    if 0 in (heads, page, kv_heads) or heads % kv_heads:
        raise ValueError(f"the heads of q must be a multiple of those of the pages: {shapes}")
    if len(page_table) != batch or len(lengths) != batch:
        raise ValueError(f"q, page_table and lengths must have one batch: {shapes}")
    if scale is not None and not (isinstance(scale, int | float) and 0 < scale < math.inf):
        raise ValueError(f"scale must be positive and finite, but is {scale!r}")
    if ON_GPU or torch.compiler.is_compiling():
        return  # the next checks would wait for the GPU
    if batch and not 0 <= lengths.min() <= lengths.max() <= page_table.shape[1] * page:
        most = f"{page_table.shape[1]} pages of {page}"
        raise ValueError(f"lengths must be from 0 to {most}, but are {lengths.tolist()}")
    used = page_table[torch.arange(page_table.shape[1]) < (lengths[:, None] + page - 1) // page]
    if len(used) and not 0 <= used.min() <= used.max() < len(k_pages):
        found = f"from {used.min()} to {used.max()}"
        raise ValueError(f"page_table must be from 0 to {len(k_pages) - 1}, but is {found}")


def plan_of(q, k_pages, v_pages, page_table, scale):
    """Return the launches of both kernels, and the elements that they need for parts."""
    (batch, heads, d), (pages, page, kv_heads, _) = q.shape, k_pages.shape
    most = page_table.shape[1] * page
    parts = max(1, min(2 * SMS // kv_heads, batch * triton.cdiv(most, 16)))
    block_n, stages = 64, 4
    while block_n > 16 and 2 * stages * block_n * d * q.element_size() > SHARED_BYTES // 2 - 8192:
        stages, block_n = (stages - 1, block_n) if stages > 2 else (4, block_n // 2)
    constants = {"D": d, "BATCH": max(16, triton.next_power_of_2(batch)), "EARLY": EARLY}
    group = heads // kv_heads
    rows = max(16, triton.next_power_of_2(group))
    both = {"PAGE": page, "GROUP": group, "ROWS": rows, "BLOCK_N": block_n, **constants}
    strides = *k_pages.stride()[:3], *v_pages.stride()[:3], page_table.stride(0)
    scale = (d**-0.5 if scale is None else scale) * math.log2(math.e)
    numbers = batch, most, pages, heads, parts, scale, *strides
    options = {"num_warps": 4, "num_stages": stages}
    first = Launch(part_kernel, (kv_heads, parts), numbers, both | options)
    options = {"num_warps": 4} | ({"launch_pdl": True} if EARLY else {})
    second = Launch(combine_kernel, (heads, parts), (batch, most, heads, parts), constants | options)
    return first, second, 2 * parts * heads * (d + 1)


# %%

PLANS = {}


def paged_attention(q, k_pages, v_pages, page_table, lengths, scale=None):
    """Return the attention of one token of each sequence, [batch, heads, d], without gradients.

    Args:
        q: [batch, heads, d], fp16, bf16 or fp32; d is 16, 32, 64, 128 or 256.
        k_pages: [pages, page, kv heads, d], as q; the rows are contiguous. heads is a multiple of
            kv heads.
        v_pages: As k_pages.
        page_table: [batch, most pages], int32; row *i* begins with the pages of sequence *i*.
        lengths: [batch], int32, the tokens of each sequence; 0 gives zeros.
        scale: What scores are multiplied by, positive; d ** -0.5 if None.

    Values of page_table and lengths are checked on the CPU only: on a GPU that would wait. There, a
    page that does not exist makes the result of its sequence NaN, and no other memory is read.
    """
    plan, compiling = None, torch.compiler.is_compiling()
    try:
        if ON_GPU and not (compiling or q.requires_grad or k_pages.requires_grad):
            plan = PLANS.get((key_of(q, k_pages, v_pages, page_table, lengths), scale))
    except (AttributeError, RuntimeError, TypeError):  # no tensors, or a scale that is not a number
        pass
    if plan is None:
        check_arguments(q, k_pages, v_pages, page_table, lengths, scale)
        if compiling:
            return paged_attention_op(q, k_pages, v_pages, page_table, lengths, scale)
        if not q.numel() or not page_table.numel():
            return q.new_zeros(q.shape)
        if not ON_GPU and q.dtype == torch.bfloat16:  # the interpreter computes bf16 wrongly
            q, k_pages, v_pages = q.float(), k_pages.float(), v_pages.float()
            return paged_attention(q, k_pages, v_pages, page_table, lengths, scale).bfloat16()
        q = q.contiguous()
        if len(PLANS) == 1000:  # a program whose shapes never repeat
            PLANS.clear()
        key = key_of(q, k_pages, v_pages, page_table, lengths), scale
        plan = PLANS[key] = plan_of(q, k_pages, v_pages, page_table, scale)
    first, second, size = plan
    o, parts = torch.empty_like(q), q.new_empty(size, dtype=torch.float32)
    first(q, k_pages, v_pages, page_table, lengths, o, parts)
    second(lengths, o, parts)
    return o


# For torch.compile, the function is one operation, which the compiler does not look into.
schema = "(Tensor q, Tensor k, Tensor v, Tensor table, Tensor lengths, float? scale) -> Tensor"
paged_attention_op = torch.library.custom_op(
    "gallery::paged_attention", mutates_args=(), schema=schema
)(lambda *arguments: paged_attention(*arguments).contiguous())
paged_attention_op.register_fake(lambda q, *_: q.new_empty(q.shape))

# %%
# The check covers lengths around a page, pages of other sizes, shared pages, and one head of keys.

for page, heads, kv_heads, d in ((16, 8, 2, 64), (1, 4, 4, 16), (24, 6, 1, 32), (64, 16, 8, 128)):
    for lengths in ([0, 1, page - 1, page, page + 1], [1000], [3, 500, 0, 64, 16, 7], [0, 0]):
        problem = draw_problem(lengths, heads, kv_heads, d, page)
        for scale in (None, 0.3):
            assert_right(paged_attention(*problem, scale), *problem, scale=scale)
q, k_pages, v_pages, page_table, lengths = draw_problem([60, 50, 77], 8, 2, 64)
page_table[1:, :3] = page_table[0, :3]  # the sequences share their first 48 tokens
assert_right(paged_attention(q, k_pages, v_pages, page_table, lengths), q, k_pages, v_pages, page_table, lengths)
print("paged_attention agrees with float64")
