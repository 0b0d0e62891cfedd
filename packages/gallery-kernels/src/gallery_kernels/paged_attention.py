"""Attention of one token of each sequence, to keys and values that lie in pages.

The kernels are in ``paged_attention_kernels.py``. A sequence is cut into chunks, with one program
for each chunk and head of keys; a second kernel combines them.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton

from gallery_kernels.checks import (
    FLOATS,
    INTERPRETED,
    check_same_dtype,
    check_tensors,
    check_without_gradient,
)
from gallery_kernels.launch import Launch, Plans, layout_of, limits_of
from gallery_kernels.operations import Operation, is_needed
from gallery_kernels.paged_attention_kernels import chunk_kernel, combine_kernel

MOST_PARTS = 128  # chunks of a sequence


def paged_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """Return the attention of one token of each sequence.

    Args:
        q: ``[batch, heads, d]``: float16, bfloat16 or float32; *d* is a multiple of 8 up to 256.
        k_pages: ``[pages, page, kv heads, d]``, of the same dtype, with a last stride of 1. *heads*
            is a multiple of *kv heads*. A page has any number of tokens.
        v_pages: As *k_pages*.
        page_table: ``[batch, most pages]``, int32; row *i* begins with the pages of sequence *i*.
        lengths: ``[batch]``, int32: the tokens of each sequence. 0 gives zeros.
        scale: What scores are multiplied by, positive; ``d ** -0.5`` if None.

    Returns:
        ``[batch, heads, d]`` of q's dtype, without gradients. What lies in a page behind the
        length is never used, NaN included.

    Lengths and page numbers are on the GPU, and a check of them would wait for it. There, a page
    that does not exist is replaced by another one, and a length beyond the table by its end. In the
    interpreter they are refused.

    Raises:
        TypeError: An argument is no tensor, or its dtype is not as described.
        ValueError: Shapes, devices or strides do not fit, *scale* is not positive in fp32, or a
            tensor requires a gradient.
        NotImplementedError: A tensor carries a tangent of forward-mode differentiation.

    Source: Kwon and others, *Efficient memory management for large language model serving with
    PagedAttention*, 2023, https://arxiv.org/abs/2309.06180; Dao and others, *Flash-Decoding*, 2023;
    lesson 11-paged-attention.
    """
    tensors = (q, k_pages, v_pages, page_table, lengths)
    if is_needed(*tensors):
        check_paged_attention(*tensors, scale)
        return PAGED_ATTENTION(*tensors, None if scale is None else float(scale))
    plan = _plan_of_call(tensors, scale)
    if plan is not None:
        return plan.run(*tensors)
    check_paged_attention(*tensors, scale)
    return attend(*tensors, scale)


def attend(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None,
) -> torch.Tensor:
    """Return the attention of checked tensors that have memory."""
    if 0 in (q.numel(), k_pages.numel(), page_table.numel()):
        return q.new_zeros(q.shape)
    q = q.resolve_neg().contiguous()
    k_pages, v_pages = k_pages.resolve_neg(), v_pages.resolve_neg()
    page_table, lengths = page_table.resolve_neg(), lengths.resolve_neg().contiguous()
    if page_table.stride(1) != 1:
        page_table = page_table.contiguous()
    if INTERPRETED:
        check_pages(k_pages, page_table, lengths)
    tensors = (q, k_pages, v_pages, page_table, lengths)
    key = (layout_of(*tensors), type(scale), scale)
    plan = PLANS.get(key)
    if plan is None:
        plan = PLANS.keep(key, plan_for(q, k_pages, v_pages, page_table, scale))
    return plan.run(*tensors)


def check_paged_attention(
    q: Any, k_pages: Any, v_pages: Any, page_table: Any, lengths: Any, scale: Any
) -> None:
    """Raise TypeError or ValueError if paged attention cannot be computed."""
    floats = {"q": q, "k_pages": k_pages, "v_pages": v_pages}
    check_tensors(floats, FLOATS)
    check_same_dtype(floats)
    for name, x in (("page_table", page_table), ("lengths", lengths)):
        check_tensors({name: x}, [torch.int32])
        if x.device != q.device:
            raise ValueError(f"{name} must be on {q.device} as q, but is on {x.device}")
    check_without_gradient("paged_attention", floats)
    named = {**floats, "page_table": page_table, "lengths": lengths}
    for (name, x), dimensions in zip(named.items(), (3, 4, 4, 2, 1), strict=True):
        if x.ndim != dimensions:
            raise ValueError(
                f"{name} must have {dimensions} dimensions, but has shape {tuple(x.shape)}"
            )
    for name, x in (("k_pages", k_pages), ("v_pages", v_pages)):
        if x.shape[-1] > 1 and x.stride(-1) != 1:
            raise ValueError(f"{name} must have a last stride of 1, but has strides {x.stride()}")
    _check_sizes(q, k_pages, v_pages, page_table, lengths)
    if scale is not None:
        if isinstance(scale, bool) or not isinstance(scale, int | float | torch.SymInt):
            raise TypeError(f"scale must be a number or None, but is a {type(scale).__name__}")
        if not 2**-126 <= scale < 2**127:
            raise ValueError(f"scale must be positive and finite in fp32, but is {scale!r}")


def _check_sizes(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    batch, heads, d = q.shape
    _, page, kv_heads, last = k_pages.shape
    shapes = (
        f"the shapes are q {tuple(q.shape)}, k_pages {tuple(k_pages.shape)}, "
        f"v_pages {tuple(v_pages.shape)}, page_table {tuple(page_table.shape)}, "
        f"lengths {tuple(lengths.shape)}"
    )
    if k_pages.shape != v_pages.shape:
        raise ValueError(f"k_pages and v_pages must have one shape; {shapes}")
    if d != last or d % 8 or not 8 <= d <= 256:
        raise ValueError(f"d must be a multiple of 8 up to 256, in k_pages as in q; {shapes}")
    if page == 0 or kv_heads == 0:
        raise ValueError(f"k_pages must have heads, and a page tokens; {shapes}")
    if heads % kv_heads:
        raise ValueError(f"q must have a multiple of the heads of k_pages; {shapes}")
    if page_table.shape[0] != batch or lengths.shape[0] != batch:
        raise ValueError(f"q, page_table and lengths must have one batch; {shapes}")
    if page_table.shape[1] * page >= 2**31:
        raise ValueError(f"page_table must have room for fewer than 2**31 tokens; {shapes}")


def check_pages(k_pages: torch.Tensor, page_table: torch.Tensor, lengths: torch.Tensor) -> None:
    """Raise ValueError for lengths and pages that do not exist; this reads their values."""
    if lengths.numel() == 0:
        return
    pages, page = k_pages.shape[:2]
    most = page_table.shape[1] * page
    if not 0 <= lengths.min() <= lengths.max() <= most:
        raise ValueError(f"lengths must be from 0 to {most}, but are {lengths.tolist()}")
    first_tokens = page * torch.arange(page_table.shape[1], device=page_table.device)
    used = page_table[first_tokens < lengths[:, None]]
    if used.numel() and not 0 <= used.min() <= used.max() < pages:
        raise ValueError(f"page_table must be from 0 to {pages - 1}, but is {used.tolist()}")


# An ordinary call


@dataclass
class PagedPlan:
    """What calls with readable tensors of one layout have in common."""

    chunks: Launch
    combine: Launch | None  # where a sequence may have several chunks
    part_numbers: int  # that the chunks store

    def run(self, q: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the output."""
        o = torch.empty_like(q)
        parts = torch.empty(self.part_numbers, dtype=torch.float32, device=q.device)
        self.chunks(q, *tensors, o, parts)
        if self.combine is not None:
            self.combine(tensors[-1], o, parts)
        return o


PLANS = Plans()


def _plan_of_call(tensors: tuple, scale: Any) -> PagedPlan | None:
    """Return the plan that is kept for a call, or None: it is the first one, or has an error."""
    if INTERPRETED:
        return None  # the values of lengths and pages are checked in each call
    try:
        for x in tensors:
            if x.is_neg() or (x.requires_grad and torch.is_grad_enabled()):
                return None
        return PLANS.get((layout_of(*tensors), type(scale), scale))
    except (AttributeError, RuntimeError, TypeError):  # no tensor, a sparse one, an odd scale
        return None


def plan_for(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    scale: float | None,
) -> PagedPlan:
    """Return the launches for readable tensors."""
    batch, heads, d = q.shape
    _, page, kv_heads, _ = k_pages.shape
    most = page_table.shape[1] * page
    chunk = chunk_for(batch * kv_heads, most, limits_of(q.device).multiprocessors)
    parts = triton.cdiv(most, chunk)
    chunks = chunk_launch(q, k_pages, v_pages, page_table, scale, chunk)
    if parts == 1:
        return PagedPlan(chunks, None, part_numbers=1)
    early = limits_of(q.device).starts_early
    constants = {
        "PARTS": triton.next_power_of_2(parts),
        "D": padded(d),
        "HEAD": d,
        "EARLY": early,
        "num_warps": 4 if parts > 16 else 1,
    }
    if early:
        constants["launch_pdl"] = True
    numbers = (most, chunk, parts, heads)
    combine = Launch(combine_kernel, (batch * heads,), numbers, constants)
    return PagedPlan(chunks, combine, part_numbers=batch * parts * heads * (d + 1))


def chunk_for(pairs: int, most: int, multiprocessors: int) -> int:
    """Return the tokens of a chunk, so that all programs are estimated to end first.

    *pairs* are sequences times heads of keys, and *most* the tokens of the longest sequence.
    """
    if pairs > multiprocessors:
        at_once, least = 3 * multiprocessors, min(8, triton.cdiv(most, 2048))
    else:  # two programs of a multiprocessor have enough loads in flight
        at_once, least = 2 * multiprocessors, 1
    start_of_a_program = 0 if INTERPRETED else 128  # as many tokens could be read meanwhile
    tried = range(least, MOST_PARTS + 1)
    times = [
        triton.cdiv(pairs * parts, at_once) * (most / parts + start_of_a_program) for parts in tried
    ]
    parts = tried[times.index(min(times))]
    return triton.cdiv(most, 64 * parts) * 64


def chunk_launch(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    scale: float | None,
    chunk: int,
) -> Launch:
    """Return the launch of the first kernel."""
    batch, heads, d = q.shape
    pages, page, kv_heads, _ = k_pages.shape
    most, group = page_table.shape[1] * page, heads // kv_heads
    large = 512 * padded(d) * q.element_size() > limits_of(q.device).shared_bytes
    constants = {
        "PAGE": page,
        "GROUP": group,
        "ROWS": max(16, triton.next_power_of_2(group)),
        "D": padded(d),
        "HEAD": d,
        "BLOCK_N": 16 if large else 64,
        "EARLY": limits_of(q.device).starts_early,
        "num_stages": 5,
    }
    number = (d**-0.5 if scale is None else float(scale)) * math.log2(math.e)
    strides = (*k_pages.stride()[:3], *v_pages.stride()[:3], page_table.stride(0))
    grid = (batch * kv_heads, triton.cdiv(most, chunk))
    return Launch(chunk_kernel, grid, (most, pages, chunk, heads, number, *strides), constants)


def padded(d: int) -> int:
    """Return the columns of a tile: a power of two, and at least 16."""
    return max(16, triton.next_power_of_2(d))


# Operation, for torch.compile, torch.func and tensors without memory


def _describe(q: torch.Tensor, *_: Any) -> torch.Tensor:
    return q.new_empty(q.shape)


PAGED_ATTENTION = Operation(
    "paged_attention",
    "(Tensor q, Tensor k_pages, Tensor v_pages, Tensor page_table, Tensor lengths, float? scale) "
    "-> Tensor",
    compute=attend,
    describe=_describe,
)
