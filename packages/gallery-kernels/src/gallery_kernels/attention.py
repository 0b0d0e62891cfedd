"""Attention with grouped heads and gradients, never writing the scores to memory.

The kernels are in ``attention_kernels.py`` for all GPUs, and in ``attention_hopper.py`` for the
forward pass on Hopper GPUs, in Gluon. The backward pass has two kernels without atomic additions,
so ten calls give the same bits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

from gallery_kernels import attention_hopper
from gallery_kernels.attention_kernels import (
    attention_kernel,
    key_gradient_kernel,
    query_gradient_kernel,
)
from gallery_kernels.checks import check_same_dtype, check_tensors
from gallery_kernels.launch import (
    DescribedLaunch,
    Launch,
    Limits,
    Plans,
    describable,
    described,
    know_the_gpu,
    layout_of,
    limits_of,
    on_device_of,
)
from gallery_kernels.operations import (
    Operation,
    is_needed,
    second_derivative_error,
    without_second_derivative,
)

LARGEST_HEAD_DIM = 256


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Return ``softmax(scale · q @ kᵀ) @ v`` for each head.

    Args:
        q: ``[batch, heads, queries, head_dim]``: float16, bfloat16 or float32. *head_dim* is a
            multiple of 8 up to 256. Views of any strides are right; those that no tensor
            descriptor can describe are copied.
        k: ``[batch, key heads, keys, head_dim]``, of the same dtype, with at least one key.
            *heads* is a multiple of *key heads*; a head of keys serves that many heads of queries.
        v: As *k*.
        causal: Whether query *i* sees only the keys up to *i*.
        scale: What scores are multiplied by, positive; ``head_dim ** -0.5`` if None.

    Returns:
        A tensor like *q*. Sums are in fp32; *q*, *k* and *v* get gradients of their dtype. A query
        whose scores are all ``-inf`` gets NaN, as in PyTorch.

    Raises:
        TypeError: An argument is no tensor or has another dtype, or *causal* is no bool.
        ValueError: Shapes, layouts or devices do not fit, or *scale* is not positive in fp32.
        RuntimeError: The backward pass was called with ``create_graph=True``.
        NotImplementedError: A tensor carries a tangent of forward-mode differentiation.

    Source: Dao, *FlashAttention-2*, 2023, https://arxiv.org/abs/2307.08691; on Hopper, Shah and
    others, *FlashAttention-3*, 2024, https://arxiv.org/abs/2407.08608; lessons
    06-fused-attention, 06b-attention-backward and 06c-attention-gluon.
    """
    if is_needed(q, k, v):
        check_attention(q, k, v, causal, scale)
        return ATTENTION(q, k, v, causal, number_of(scale, q))[0]
    plan = _plan_of_call(q, k, v, causal, scale)
    if plan is None:
        check_attention(q, k, v, causal, scale)
        if q.numel() == 0:
            return q + 0 * (k.sum() + v.sum())  # empty, with gradients of 0 for k and v
        q, k, v = [describable(x.resolve_neg()) for x in (q, k, v)]
        plan = _keep_plan(q, k, v, causal, scale)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return Attention.apply(plan, q, k, v)
    return plan.forward(q, k, v)


def check_attention(q: Any, k: Any, v: Any, causal: Any, scale: Any) -> None:
    """Raise TypeError or ValueError, naming the argument, if ``attention`` cannot be computed."""
    tensors = {"q": q, "k": k, "v": v}
    check_tensors(tensors)
    check_same_dtype(tensors)
    for name, x in tensors.items():
        if x.ndim != 4:
            raise ValueError(f"{name} must be [batch, heads, N, head_dim], not {tuple(x.shape)}")
    head_dim = q.shape[3]
    if head_dim % 8 or not 8 <= head_dim <= LARGEST_HEAD_DIM:
        raise ValueError(
            f"q must have a head_dim that is a multiple of 8 up to {LARGEST_HEAD_DIM}, "
            f"but has {head_dim}"
        )
    for name, x in tensors.items():
        if x.shape[3] != head_dim:
            raise ValueError(
                f"{name} must have a head_dim of {head_dim} as q, but has {x.shape[3]}"
            )
    shapes = f"have {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[1] == 0 or k.shape[2] == 0:
        raise ValueError(f"k and v must have one shape, q's batch, and keys; q, k and v {shapes}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"q must have a multiple of the heads of k; q, k and v {shapes}")
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be True or False, but is {causal!r}; scale is the next one")
    if scale is None:
        return
    if isinstance(scale, bool) or not isinstance(scale, int | float | torch.SymInt):
        raise TypeError(f"scale must be a number or None, but is a {type(scale).__name__}")
    if not 2**-126 <= scale < 2**127:
        raise ValueError(f"scale must be positive and finite in fp32, but is {scale!r}")


def number_of(scale: float | None, q: torch.Tensor) -> float:
    """Return the scale, ``head_dim ** -0.5`` if it is None."""
    return q.shape[3] ** -0.5 if scale is None else float(scale)


# An ordinary call


class AttentionPlan:
    """What calls with describable tensors of one layout have in common."""

    def __init__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
    ):
        self.causal = causal
        self.scale = scale
        self.backward_plans = Plans()  # BackwardPlan by the layouts of all tensors
        self._launch = forward_launch(q, k, v, causal, scale, keep_lse=False)
        self._launch_with_lse = forward_launch(q, k, v, causal, scale, keep_lse=True)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return the output."""
        o = torch.empty_like(q)
        self._launch((q, k, v, o), o)  # the kernel does not use the last pointer
        return o

    def forward_with_lse(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output and the log-sum-exp of each query to the base of 2."""
        o = torch.empty_like(q)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        self._launch_with_lse((q, k, v, o), lse)
        return o, lse

    def backward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
        do: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the gradients of q, k and v."""
        know_the_gpu()  # autograd's own thread does not
        do = do.resolve_neg()
        plan = self.backward_plans.get(_layout_in_backward(q, k, v, o, do))
        if plan is None:
            # The gradient of a sum is one expanded number, and a hook may keep other strides.
            q, k, v, o, do = [describable(x) for x in (q, k, v, o, do)]
            key = _layout_in_backward(q, k, v, o, do)
            plan = self.backward_plans.get(key)
        if plan is None:
            plan = plan_backward(q, k, v, o, do, self.causal, self.scale)
            self.backward_plans.keep(key, plan)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        delta = torch.empty_like(lse)
        plan.of_queries((k, v), q, o, do, dq, lse, delta)
        plan.of_keys((q, do), k, v, dk, dv, lse, delta)
        return dq, dk, dv


@dataclass
class BackwardPlan:
    """Both launches of a backward pass: the first also computes delta, which the second needs."""

    of_queries: DescribedLaunch
    of_keys: DescribedLaunch


PLANS = Plans()


def _plan_of_call(q: Any, k: Any, v: Any, causal: Any, scale: Any) -> AttentionPlan | None:
    """Return the plan that is kept for a call, or None: it is the first one, or has an error."""
    try:
        if q.is_neg() or k.is_neg() or v.is_neg():  # the sign is still to be changed
            return None
        return PLANS.get((layout_of(q, k, v), type(causal), causal, type(scale), scale))
    except (AttributeError, RuntimeError, TypeError):  # no tensor, a sparse one, an odd scale
        return None


def _keep_plan(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float | None
) -> AttentionPlan:
    """Return the plan for describable tensors, a new one if none is kept."""
    key = (layout_of(q, k, v), type(causal), causal, type(scale), scale)
    plan = PLANS.get(key)
    if plan is None:
        with on_device_of(q):
            know_the_gpu()
            plan = PLANS.keep(key, AttentionPlan(q, k, v, causal, number_of(scale, q)))
    return plan


def _layout_in_backward(*tensors: torch.Tensor) -> tuple:
    """Return what may differ between backward passes of one plan."""
    strides = [x.stride() for x in tensors]
    return (*strides, *[x.data_ptr() % 16 for x in tensors])


class Attention(torch.autograd.Function):
    """Attention with its gradients, for describable tensors."""

    @staticmethod
    def forward(ctx: Any, plan: AttentionPlan, *qkv: torch.Tensor) -> torch.Tensor:
        """Return the output, and keep what the gradients need."""
        o, lse = plan.forward_with_lse(*qkv)
        ctx.save_for_backward(*qkv, o, lse)
        ctx.plan = plan
        return o

    @staticmethod
    def backward(ctx: Any, do: torch.Tensor) -> Any:
        """Return None, and the gradients of q, k and v."""
        if torch.is_grad_enabled():  # create_graph=True
            raise second_derivative_error("attention")
        return None, *ctx.plan.backward(*ctx.saved_tensors, do)


# Plans


@dataclass
class Tile:
    """What a program works on, and with what."""

    own: int  # rows that a program owns
    other: int  # rows of a step of its loop
    warps: int
    stages: int
    most_registers: int | None = None  # of a thread

    def options(self) -> dict[str, int]:
        """Return the options of a launch."""
        options = {"num_warps": self.warps, "num_stages": self.stages}
        if self.most_registers is not None:
            options["maxnreg"] = self.most_registers
        return options


def tile_for(kernel: Any, q: torch.Tensor, keys: int) -> Tile:
    """Return the tile that was fastest on H100 and H200, made smaller where it does not fit."""
    limits = limits_of(q.device)
    head = padded(q.shape[3])
    if q.dtype == torch.float32 and head == 256:  # larger tiles do not fit in registers
        tile = Tile(32, 32, warps=8, stages=1)
    elif q.dtype == torch.float32:  # for accuracy, not for speed
        tile = Tile(64, 32, warps=4, stages=1)
    elif kernel is attention_kernel:
        tile = tile_of_forward(head, keys, limits)
    elif kernel is query_gradient_kernel:
        tiles = {128: Tile(128, 64, warps=8, stages=3), 256: Tile(64, 32, warps=8, stages=2)}
        tile = tiles.get(head, Tile(64, 64, warps=4, stages=3))
    else:
        tiles = {128: Tile(64, 64, warps=4, stages=2), 256: Tile(64, 32, warps=8, stages=1)}
        tile = tiles.get(head, Tile(64, 64, warps=4, stages=3))
    return tile_that_fits(tile, head * q.element_size(), limits.shared_bytes)


def tile_of_forward(head: int, keys: int, limits: Limits) -> Tile:
    """Return the tile of the forward pass for 16-bit numbers."""
    if head == 256:
        return Tile(128, 64, warps=8, stages=2)
    if head == 128:
        return Tile(128, 64, warps=4, stages=2)
    if keys <= 1024:
        return Tile(128, 64, 4, stages=3, most_registers=168 if limits.is_nvidia else None)
    return Tile(64, 128, warps=4, stages=2)


def tile_that_fits(tile: Tile, row_bytes: int, shared_bytes: int) -> Tile:
    """Return *tile* with fewer stages and rows until its two kinds of rows fit in shared memory."""
    while 2 * (tile.own + tile.stages * tile.other) * row_bytes > shared_bytes - 2048:
        if tile.stages > 1:
            tile.stages -= 1
        elif tile.other > 16:
            tile.other //= 2
        elif tile.own > 16:
            tile.own //= 2
        else:
            break
    return tile


def padded(head_dim: int) -> int:
    """Return the columns of a tile: a power of two, and at least 16."""
    return max(16, triton.next_power_of_2(head_dim))


def forward_launch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float, keep_lse: bool
) -> DescribedLaunch:
    """Return the launch of the forward pass; its tensors are q, k, v, o, and the log-sum-exp."""
    if attention_hopper.is_covered(q, k, v):
        return attention_hopper.forward_launch(q, k, v, causal, scale, keep_lse)
    tile = tile_for(attention_kernel, q, k.shape[2])
    return launch_with_tile(tile, q, k, v, causal, scale, keep_lse)


def launch_with_tile(
    tile: Tile,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float,
    keep_lse: bool,
) -> DescribedLaunch:
    """Return the launch of the Triton kernel of the forward pass with this tile."""
    (batch, heads, queries, _), keys = q.shape, k.shape[2]
    constants = {
        **constants_for(q, k, causal),
        "BLOCK_M": tile.own,
        "BLOCK_N": tile.other,
        "MASKED": causal or keys % tile.other != 0,
        "KEEP_LSE": keep_lse,
        **tile.options(),
    }
    del constants["HEAD"]  # descriptors know it
    numbers = (heads, queries, keys, scale * math.log2(math.e))
    grid = (triton.cdiv(queries, tile.own) * batch * heads,)
    launch = Launch(attention_kernel, grid, numbers, constants)
    rows = (tile.own, tile.other, tile.other, tile.own)
    return DescribedLaunch(launch, descriptors_of((q, k, v, torch.empty_like(q)), rows))


def plan_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    do: torch.Tensor,
    causal: bool,
    scale: float,
) -> BackwardPlan:
    """Return the launches of a backward pass with describable tensors."""
    keys = k.shape[2]
    query_tile = tile_for(query_gradient_kernel, q, keys)
    key_tile = tile_for(key_gradient_kernel, q, keys)
    return BackwardPlan(
        of_queries=launch_of_queries(query_tile, q, k, v, o, do, causal, scale),
        of_keys=launch_of_keys(key_tile, q, k, v, do, causal, scale),
    )


def launch_of_queries(
    tile: Tile,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    do: torch.Tensor,
    causal: bool,
    scale: float,
) -> DescribedLaunch:
    """Return the launch for dQ and delta; its tensors are k and v, then the pointers."""
    (batch, heads, queries, _), keys = q.shape, k.shape[2]
    constants = {
        **constants_for(q, k, causal),
        "BLOCK_M": tile.own,
        "BLOCK_N": tile.other,
        "MASKED": causal or keys % tile.other != 0,
        **tile.options(),
    }
    dq = torch.empty_like(q)
    numbers = (heads, queries, keys, scale * math.log2(math.e), scale)
    grid = (triton.cdiv(queries, tile.own) * batch * heads,)
    launch = Launch(query_gradient_kernel, grid, (*strides_of(q, o, do, dq), *numbers), constants)
    return DescribedLaunch(launch, descriptors_of((k, v), (tile.other, tile.other)))


def launch_of_keys(
    tile: Tile,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    causal: bool,
    scale: float,
) -> DescribedLaunch:
    """Return the launch for dK and dV; its tensors are q and do, then the pointers."""
    (batch, key_heads, keys, _), queries = k.shape, q.shape[2]
    constants = {
        **constants_for(q, k, causal),
        "BLOCK_M": tile.other,
        "BLOCK_N": tile.own,
        "MASKED": causal or keys % tile.own != 0 or queries % tile.other != 0,
        **tile.options(),
    }
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    numbers = (key_heads, queries, keys, scale * math.log2(math.e), scale)
    grid = (triton.cdiv(keys, tile.own) * batch * key_heads,)
    launch = Launch(key_gradient_kernel, grid, (*strides_of(k, v, dk, dv), *numbers), constants)
    return DescribedLaunch(launch, descriptors_of((q, do), (tile.other, tile.other)))


def constants_for(q: torch.Tensor, k: torch.Tensor, causal: bool) -> dict[str, Any]:
    """Return the constants that all kernels have."""
    head_dim = q.shape[3]
    group = q.shape[1] // k.shape[1]
    return {"GROUP": group, "D": padded(head_dim), "HEAD": head_dim, "CAUSAL": causal}


def descriptors_of(tensors: Sequence[torch.Tensor], rows: Sequence[int]) -> list:
    """Return descriptors of ``[batch, heads, N, d]`` tensors with tiles of so many rows."""
    return [
        described(x, [1, 1, count, padded(x.shape[3])])
        for x, count in zip(tensors, rows, strict=True)
    ]


def strides_of(*tensors: torch.Tensor) -> list[tuple[int, ...]]:
    """Return the strides of all dimensions but the last, whose elements lie together."""
    return [x.stride()[:3] for x in tensors]


# Operations, for torch.compile, torch.func and tensors without memory


def _compute(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output and the log-sum-exp of any tensors."""
    if q.numel() == 0:
        return _describe(q, k, v, causal, scale)
    layout = torch.empty_like(q)  # what the compiler was told, also where q has to be copied
    q, k, v = [describable(x.resolve_neg()) for x in (q, k, v)]
    o, lse = _keep_plan(q, k, v, causal, scale).forward_with_lse(q, k, v)
    return laid_out(o, layout), lse


def _describe(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _compute_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of any tensors."""
    if q.numel() == 0:
        return torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    layouts = [torch.empty_like(x) for x in (q, k, v)]
    q, k, v, o = [describable(x.resolve_neg()) for x in (q, k, v, o)]
    dq, dk, dv = _keep_plan(q, k, v, causal, scale).backward(q, k, v, o, lse, do)
    return laid_out(dq, layouts[0]), laid_out(dk, layouts[1]), laid_out(dv, layouts[2])


def laid_out(x: torch.Tensor, layout: torch.Tensor) -> torch.Tensor:
    """Return *x* with the strides of *layout*, which is filled if they differ."""
    return x if x.stride() == layout.stride() else layout.copy_(x)


def _describe_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple, output: tuple) -> None:
    q, k, v, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)


def _differentiate(ctx: Any, do: torch.Tensor, _: Any) -> tuple:
    return *ATTENTION_BACKWARD(do, *ctx.saved_tensors, ctx.causal, ctx.scale), None, None


ATTENTION_BACKWARD = Operation(
    "attention_backward",
    "(Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, bool causal, float scale) "
    "-> (Tensor, Tensor, Tensor)",
    compute=_compute_backward,
    describe=_describe_backward,
    **without_second_derivative("attention"),
)
ATTENTION = Operation(
    "attention",
    "(Tensor q, Tensor k, Tensor v, bool causal, float scale) -> (Tensor, Tensor)",
    compute=_compute,
    describe=_describe,
    keep=_keep,
    differentiate=_differentiate,
)
