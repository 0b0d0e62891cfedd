"""The gated delta rule: a matrix as memory, which replaces attention in layers for long texts.

A text is read in chunks of 64 tokens, whose work is products of matrices. Where a text has too few
heads for the GPU, it is also cut into segments that are read at the same time. The kernels are in
``delta_rule_kernels.py``. Ten calls give the same bits.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from gallery_kernels.checks import (
    check_number,
    check_same_dtype,
    check_shape,
    check_tensors,
    check_without_gradient,
    must_replace_bfloat16,
)
from gallery_kernels.delta_rule_kernels import (
    ROWS_OF_LOGS,
    chunk_kernel,
    combine_kernel,
    scan_kernel,
    segment_kernel,
    summary_kernel,
)
from gallery_kernels.descriptor_memory import aligned, launch_with_memory
from gallery_kernels.launch import Launch, Plans, layout_of, limits_of
from gallery_kernels.operations import Operation, is_needed

CHUNK = 64  # tokens
LEAST_TOKENS_OF_A_SEGMENT = 1024
HEAD_DIMS = (16, 32, 64, 128)


def gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """Return *o* of the gated delta rule, without gradients.

    A head has a state S of d × d numbers in fp32, which is 0 before the first token. For each
    token, ``S ← exp(g) · S``, then ``S ← S + beta · k (v - Sᵀ k)ᵀ``, and ``o = scale · Sᵀ q``.

    Args:
        q: ``[batch, tokens, k heads, d]``: float16, bfloat16 or float32; d is 16, 32, 64 or 128. In
            the interpreter, bfloat16 is computed in float32 and rounded once. Tensors that are not
            contiguous are copied.
        k: As *q*. The rule is stable if ``beta · |k|² ≤ 2``; models normalize the keys.
        v: ``[batch, tokens, v heads, d]``, of the same dtype. *v heads* is a multiple of *k heads*;
            a head of q and k serves that many heads of v.
        g: ``[batch, tokens, v heads]``: float16, bfloat16 or float32, the logarithms of the decays,
            not positive. -40 and less clear the state.
        beta: As *g*, the strengths of the corrections, from 0 to 1.
        scale: What the output is multiplied by, finite; ``d ** -0.5`` if None.

    Returns:
        A contiguous tensor with the shape and dtype of *v*. The factors of products have that
        dtype, except that T (see *Source*) is computed in float16 for bfloat16. Their sums are in
        fp32. NaN in *g* or *beta* reaches no earlier token. NaN in *k* or *v* may reach the up to
        63 earlier tokens of its chunk of 64.

    Raises:
        TypeError: An argument is no tensor or has another dtype, or *scale* is no number.
        ValueError: A shape, a layout or a device does not fit, *scale* is not finite in fp32, or a
            tensor requires a gradient.
        NotImplementedError: A tensor carries a tangent of forward-mode differentiation.

    Source: Yang, Kautz and Hatamizadeh, *Gated delta networks*, 2024,
    https://arxiv.org/abs/2412.06464; Yang and others, *Parallelizing linear transformers with the
    delta rule over sequence length*, 2024, https://arxiv.org/abs/2406.06484; lessons
    14-gated-delta-rule and 14b-segments.
    """
    if is_needed(q, k, v, g, beta):
        check_gated_delta_rule(q, k, v, g, beta, scale)
        return GATED_DELTA_RULE(q, k, v, g, beta, number_of(scale, q))
    plan = _plan_of_call(q, k, v, g, beta, scale)
    if plan is None:
        check_gated_delta_rule(q, k, v, g, beta, scale)
        return _compute(q, k, v, g, beta, number_of(scale, q))
    return plan(q, k, v, g, beta)


def check_gated_delta_rule(q: Any, k: Any, v: Any, g: Any, beta: Any, scale: Any) -> None:
    """Raise TypeError or ValueError, naming the argument, if the rule cannot be computed."""
    tensors = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    check_tensors(tensors, replaces_bfloat16=True)
    check_same_dtype({"q": q, "k": k, "v": v})
    for name in ("q", "k", "v"):
        if tensors[name].ndim != 4:
            shape = tuple(tensors[name].shape)
            raise ValueError(f"{name} must be [batch, tokens, heads, d], but has shape {shape}")
    batch, tokens, k_heads, d = q.shape
    v_heads = v.shape[2]
    check_shape("k", k, q.shape)
    check_shape("v", v, (batch, tokens, v_heads, d))
    check_shape("g", g, (batch, tokens, v_heads))
    check_shape("beta", beta, (batch, tokens, v_heads))
    if d not in HEAD_DIMS or k_heads == 0 or v_heads % k_heads:
        raise ValueError(
            f"d must be 16, 32, 64 or 128, and the heads of v a multiple of those of q, but q has "
            f"shape {tuple(q.shape)}, and v {tuple(v.shape)}"
        )
    check_without_gradient("gated_delta_rule", tensors)
    if scale is None:
        return
    check_number("scale", scale)
    if not -(2**128) < scale < 2**128:  # this also refuses NaN
        raise ValueError(f"scale must be a finite number of fp32, but is {scale!r}")


def number_of(scale: float | None, q: torch.Tensor) -> float:
    """Return the scale, ``d ** -0.5`` if it is None."""
    return q.shape[3] ** -0.5 if scale is None else float(scale)


# An ordinary call


@dataclass
class Chain:
    """The launches of a text whose chunks are read one after another, for one layout."""

    tp_shape: tuple[int, ...]  # of T, P and the logarithms
    chunks: Launch
    scan: Launch

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
    ) -> torch.Tensor:
        """Return the output for aligned tensors."""
        tp = v.new_empty(self.tp_shape)
        o = torch.empty_like(v)
        self.chunks(q, k, g, beta, tp)
        launch_with_memory(self.scan, q, k, v, tp, o)
        return o


@dataclass
class Segments:
    """The launches of a text that is read in segments at the same time, for one layout."""

    tp_shape: tuple[int, ...]  # of T, P and the logarithms
    ends_shape: tuple[int, ...]  # of L and M of all segments but the last
    chunks: Launch
    summary: Launch
    combine: Launch
    scan: Launch

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
    ) -> torch.Tensor:
        """Return the output for aligned tensors."""
        tp = v.new_empty(self.tp_shape)
        o = torch.empty_like(v)
        ends = v.new_empty(self.ends_shape, dtype=torch.float32)
        self.chunks(q, k, g, beta, tp)
        launch_with_memory(self._read, q, k, v, tp, ends, o)
        return o

    def _read(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        tp: torch.Tensor,
        ends: torch.Tensor,
        o: torch.Tensor,
    ) -> None:
        self.summary(k, v, tp, ends)
        self.combine(ends)
        self.scan(q, k, v, tp, ends, o)


PLANS = Plans()


def _plan_of_call(q: Any, k: Any, v: Any, g: Any, beta: Any, scale: Any) -> Chain | Segments | None:
    """Return the plan that is kept for a call, or None: it is the first one, or has an error."""
    try:
        tensors = (q, k, v, g, beta)
        if any([x.is_neg() for x in tensors]):  # the sign is still to be changed
            return None
        if torch.is_grad_enabled() and any([x.requires_grad for x in tensors]):  # an error
            return None
        if scale is None:
            scale = q.shape[3] ** -0.5
        elif type(scale) not in (int, float):  # an error, or a subclass of a number
            return None
        return PLANS.get((layout_of(*tensors), scale))
    except (AttributeError, IndexError, RuntimeError):  # no tensor, another shape, a sparse one
        return None


def _compute(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Return the output for any tensors."""
    if v.numel() == 0:
        return v.new_empty(v.shape)
    if must_replace_bfloat16(q):
        return _compute(q.float(), k.float(), v.float(), g, beta, scale).bfloat16()
    q, k, v, g, beta = [aligned(x) for x in (q, k, v, g, beta)]
    key = (layout_of(q, k, v, g, beta), scale)
    plan = PLANS.get(key)
    if plan is None:
        plan = PLANS.keep(key, plan_rule(q, v, scale))
    return plan(q, k, v, g, beta)


# Plans


def plan_rule(q: torch.Tensor, v: torch.Tensor, scale: float) -> Chain | Segments:
    """Return the launches for aligned tensors: in segments, if a chain leaves the GPU idle."""
    segments = segments_for(q, v, limits_of(q.device).multiprocessors)
    if segments == 1:
        return plan_chain(q, v, scale)
    return plan_segments(q, v, scale, segments)


def segments_for(q: torch.Tensor, v: torch.Tensor, multiprocessors: int) -> int:
    """Return into how many segments each text is cut.

    There are as many as leave at most one program of the scan for each multiprocessor. More would
    be shorter, but their states are combined one after another.
    """
    batch, tokens, heads, d = v.shape
    programs = batch * heads * (d // columns_of_scan(q))
    segments = min(multiprocessors // programs, tokens // LEAST_TOKENS_OF_A_SEGMENT)
    if segments <= 1:
        return 1
    chunks = triton.cdiv(tokens, CHUNK)
    chunks_of_a_segment = triton.cdiv(chunks, segments)
    return triton.cdiv(chunks, chunks_of_a_segment)  # so that each has some


def columns_of_scan(q: torch.Tensor) -> int:
    """Return how many columns of a state a program has: in fp32, few, for its registers."""
    return 16 if q.dtype == torch.float32 else min(q.shape[3], 64)


def constants_for(q: torch.Tensor, v: torch.Tensor) -> dict[str, Any]:
    """Return the constants that all kernels have which read chunks."""
    return {
        "C": CHUNK,
        "D": q.shape[3],
        "SHARE": v.shape[2] // q.shape[2],
        "num_warps": 8 if q.dtype == torch.float32 else 4,
    }


def constants_of_scan(q: torch.Tensor, v: torch.Tensor) -> dict[str, Any]:
    """Return the constants of the kernels that walk over chunks."""
    stages = 1 if q.dtype == torch.float32 else 3
    return {**constants_for(q, v), "BLOCK": columns_of_scan(q), "num_stages": stages}


def shape_of_tp(v: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of T, P and the logarithms of all chunks."""
    batch, tokens, heads, _ = v.shape
    return (batch, heads, triton.cdiv(tokens, CHUNK), 2 * CHUNK + ROWS_OF_LOGS.value, CHUNK)


def launch_of_chunks(q: torch.Tensor, v: torch.Tensor, scale: float) -> Launch:
    """Return the launch whose tensors are q, k, g, beta, and T and P."""
    batch, tokens, k_heads, _ = q.shape
    exact = q.dtype == torch.float32
    constants = {
        **constants_for(q, v),
        "KIND": tl.float32 if exact else tl.float16,
        "LOG_KIND": tl.float64 if exact else tl.float32,
    }
    programs = triton.cdiv(tokens, CHUNK) * k_heads * batch
    numbers = (tokens, k_heads, v.shape[2], scale)
    return Launch(chunk_kernel, (programs,), numbers, constants)


def plan_chain(q: torch.Tensor, v: torch.Tensor, scale: float) -> Chain:
    """Return two launches."""
    batch, tokens, k_heads, d = q.shape
    v_heads = v.shape[2]
    programs = d // columns_of_scan(q) * v_heads * batch
    numbers = (tokens, k_heads, v_heads, scale)
    scan = Launch(scan_kernel, (programs,), numbers, constants_of_scan(q, v))
    return Chain(shape_of_tp(v), launch_of_chunks(q, v, scale), scan)


def plan_segments(q: torch.Tensor, v: torch.Tensor, scale: float, segments: int) -> Segments:
    """Return four launches. Nobody needs L and M of the last segment."""
    batch, tokens, k_heads, d = q.shape
    v_heads = v.shape[2]
    heads = batch * v_heads
    length = triton.cdiv(triton.cdiv(tokens, CHUNK), segments)
    numbers = (tokens, k_heads, v_heads, length, segments)
    constants = constants_of_scan(q, v)
    blocks = d // constants["BLOCK"]
    exact = q.dtype == torch.float32
    combine = {
        "D": d,
        "BLOCK": 16,
        # Factors rounded to 16 bits would cost digits here.
        "PRECISION": "tf32x3" if limits_of(q.device).is_nvidia and not exact else "ieee",
        "num_warps": 8,
    }
    return Segments(
        tp_shape=shape_of_tp(v),
        ends_shape=(heads, segments - 1, 2, d, d),
        chunks=launch_of_chunks(q, v, scale),
        summary=Launch(summary_kernel, (2 * blocks * (segments - 1) * heads,), numbers, constants),
        combine=Launch(combine_kernel, (d // 16 * heads,), (segments,), combine),
        scan=Launch(segment_kernel, (blocks * segments * heads,), (*numbers, scale), constants),
    )


# The operation, for torch.compile, torch.func and tensors without memory

GATED_DELTA_RULE = Operation(
    "gated_delta_rule",
    "(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, float scale) -> Tensor",
    compute=_compute,
    describe=lambda q, k, v, g, beta, scale: v.new_empty(v.shape),
)
