"""Products with weights of 4 bits: ``pack_int4`` packs them, and ``int4_mm`` multiplies by them.

The kernel is in ``int4_kernels.py``. Ten calls give the same bits.
"""

from typing import Any

import torch
import triton

from gallery_kernels.checks import (
    INTERPRETED,
    check_device,
    check_shape,
    check_tensor,
    check_tensors,
    check_without_gradient,
    must_replace_bfloat16,
)
from gallery_kernels.descriptor_memory import aligned, launch_with_memory
from gallery_kernels.int4_kernels import int4_kernel
from gallery_kernels.launch import Launch, Limits, Plans, layout_of, limits_of
from gallery_kernels.operations import Operation, is_needed

GROUPS = (64, 128, 256)
LARGEST_WEIGHT = 1e9
MOST_ROWS = 2**23  # of a weight: offsets within a tile have 32 bits

FLOATS = (torch.bfloat16, torch.float16, torch.float32)
WEIGHT_DTYPES = (*FLOATS, torch.float64)
X_DTYPES = FLOATS if INTERPRETED else FLOATS[:2]

#: With several stages, Triton before 3.9 overwrites registers that a product still reads.
HAS_SAFE_STAGES = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)


def pack_int4(
    weight: torch.Tensor, group: int = 128
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a weight as integers of 4 bits, with a scale and a zero for each group.

    A weight is close to ``integer * scale + zero``: the error is at most half of the scale. The
    zero is the smallest weight of its group, rounded down to bfloat16, and the scale is a fifteenth
    of the way from there to the largest weight, rounded up to bfloat16. So the scale is at most
    0.8 % more than a fifteenth of the group's range and of the distance between the smallest weight
    and the number of bfloat16 below it. That distance counts in groups far from zero.

    The check of the numbers waits for the GPU, so a CUDA graph cannot capture this function.

    Args:
        weight: ``[N, K]``, float16, bfloat16, float32 or float64, of less than 10⁹ in size. K is a
            multiple of *group*. A gradient does not flow through it. It may be on a CPU.
        group: How many neighbors in a row share a scale and a zero: 64, 128 or 256.

    Returns:
        packed: ``[K / group, N, group / 4]``, int16. Word *j* of a group holds its columns *j*,
            *j* + group / 4, … from the lowest bits on.
        scales: ``[N, K / group]``, bfloat16.
        zeros: ``[N, K / group]``, bfloat16: what the integer 0 stands for. In memory each zero lies
            behind its scale, as ``int4_mm`` reads them.

    Raises:
        TypeError: *weight* is no tensor of floats.
        ValueError: A shape or *group* does not fit, or the weight contains NaN, infinity or numbers
            of 10⁹ and more.
        NotImplementedError: The weight carries a tangent of forward-mode differentiation.

    Source: lesson 12-int4-weights.
    """
    check_pack_int4(weight, group)
    if is_needed(weight):
        with torch.no_grad():
            packed, pairs = PACK_INT4(weight, group)
    else:
        packed, pairs = _pack(weight.detach(), group)
    return packed, pairs[..., 0].T, pairs[..., 1].T


def check_pack_int4(weight: Any, group: Any) -> None:
    """Raise TypeError or ValueError, naming the argument, if a weight cannot be packed."""
    check_tensor("weight", weight, WEIGHT_DTYPES, replaces_bfloat16=True)
    if weight.device.type == "meta":
        check_device("weight", weight)
    check_group(group)
    if weight.ndim != 2 or weight.shape[1] % group:
        raise ValueError(
            f"weight must be [N, a multiple of {group}], but has shape {tuple(weight.shape)}"
        )


def check_group(group: Any) -> None:
    """Raise ValueError unless *group* is a number of weights that can share a scale."""
    if isinstance(group, bool) or not isinstance(group, int | torch.SymInt) or group not in GROUPS:
        raise ValueError(f"group must be 64, 128 or 256, but is {group!r}")


def _pack(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the words, and scales and zeros side by side, ``[groups, N, 2]``."""
    if not (weight.abs() < LARGEST_WEIGHT).all():
        raise ValueError("weight contains nan, inf or numbers of 1e9 and more")
    rows, columns = weight.shape
    w = weight.float().reshape(rows, columns // group, 4, group // 4).transpose(0, 1)
    zeros = rounded_down(w.amin(dim=(2, 3)))  # [groups, N]
    scales = rounded_up((w.amax(dim=(2, 3)) - zeros.float()) / 15)
    s, z = scales.float()[..., None, None], zeros.float()[..., None, None]
    n = torch.where(s > 0, (w - z) / s, 0.0).round().clamp(0, 15).int()
    words = n[:, :, 0] | n[:, :, 1] << 4 | n[:, :, 2] << 8 | n[:, :, 3] << 12
    packed = (words - (words >> 15 << 16)).to(torch.int16).contiguous()  # the same 16 bits
    return packed, torch.stack([scales, zeros], dim=2)


def rounded_down(x: torch.Tensor) -> torch.Tensor:
    """Return the largest numbers of bfloat16 that are not above *x*, in float32."""
    y = x.bfloat16()
    return torch.where(y.float() > x, torch.nextafter(y, torch.full_like(y, -torch.inf)), y)


def rounded_up(x: torch.Tensor) -> torch.Tensor:
    """Return the smallest numbers of bfloat16 that are not below *x*, in float32."""
    return -rounded_down(-x)


def int4_mm(
    x: torch.Tensor,
    packed: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    group: int = 128,
) -> torch.Tensor:
    """Return ``x @ weight.T`` for a weight that :func:`pack_int4` packed, without gradients.

    Args:
        x: ``[M, K]``, bfloat16 or float16. In float16 the weights are unpacked more slowly. In the
            interpreter also float32, in which bfloat16 is computed there.
        packed: ``[K / group, N, group / 4]``, int16. N is at most 2²³.
        scales: ``[N, K / group]``: bfloat16, float16 or float32, rounded to bfloat16.
        zeros: As *scales*. Both are copied, unless they lie in memory as ``pack_int4`` leaves them.
        group: How many weights share a scale and a zero: 64, 128 or 256.

    Returns:
        ``[M, N]``, contiguous, of the dtype of *x*. Each weight is rounded to that dtype once, and
        sums are in fp32.

    Raises:
        TypeError: An argument is no tensor, or has another dtype.
        ValueError: A shape, a layout, a device or *group* does not fit, or a tensor requires a
            gradient.
        NotImplementedError: A tensor carries a tangent of forward-mode differentiation.

    Source: Kim and others, *Who says elephants can't run*, 2022, https://arxiv.org/abs/2211.10017;
    lesson 12-int4-weights.
    """
    if is_needed(x, packed, scales, zeros):
        check_int4_mm(x, packed, scales, zeros, group)
        return INT4_MM(x, packed, scales, zeros, group)
    plan = _plan_of_call(x, packed, scales, zeros, group)
    if plan is None:
        check_int4_mm(x, packed, scales, zeros, group)
        return _compute(x, packed, scales, zeros, group)
    return product(plan, x, packed, scales)


def check_int4_mm(x: Any, packed: Any, scales: Any, zeros: Any, group: Any) -> None:
    """Raise TypeError or ValueError, naming the argument, if the product cannot be computed."""
    check_tensors({"x": x}, X_DTYPES, replaces_bfloat16=True)
    check_tensor("packed", packed, (torch.int16,))
    others = {"packed": packed, "scales": scales, "zeros": zeros}
    for name in ("scales", "zeros"):
        check_tensor(name, others[name], FLOATS, replaces_bfloat16=True)
    for name, tensor in others.items():
        if tensor.device != x.device:
            raise ValueError(f"{name} must be on {x.device} as x, but is on {tensor.device}")
    check_group(group)
    if packed.ndim != 3 or packed.shape[2] != group // 4:
        raise ValueError(
            f"packed must be [K / group, N, group / 4] of pack_int4, but has shape "
            f"{tuple(packed.shape)}, and group is {group}"
        )
    groups, rows, _ = packed.shape
    if rows > MOST_ROWS:
        raise ValueError(f"packed must have at most 2**23 rows of the weight, but has {rows}")
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix, but has shape {tuple(x.shape)}")
    check_shape("x", x, (x.shape[0], groups * group))
    check_shape("scales", scales, (rows, groups))
    check_shape("zeros", zeros, (rows, groups))
    check_without_gradient("int4_mm", {"x": x, "scales": scales, "zeros": zeros})


# An ordinary call

PLANS = Plans()


def _plan_of_call(x: Any, packed: Any, scales: Any, zeros: Any, group: Any) -> Launch | None:
    """Return the plan that is kept for a call, or None: it is the first one, or has an error."""
    try:
        tensors = (x, packed, scales, zeros)
        if any([t.is_neg() for t in tensors]) or not lie_side_by_side(scales, zeros):
            return None
        if torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):  # an error
            return None
        return PLANS.get((layout_of(*tensors), type(group), group))
    except (AttributeError, RuntimeError, TypeError):  # no tensor, a sparse one, no int
        return None


def lie_side_by_side(scales: torch.Tensor, zeros: torch.Tensor) -> bool:
    """Return whether a kernel can read a scale and its zero as one number of 32 bits."""
    return zeros.data_ptr() == scales.data_ptr() + 2 and scales.data_ptr() % 4 == 0


def _compute(
    x: torch.Tensor,
    packed: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    group: int,
) -> torch.Tensor:
    """Return the product of any tensors."""
    rows, columns = x.shape[0], packed.shape[1]
    if rows * columns * packed.shape[0] == 0:
        return x.new_zeros(rows, columns)
    if must_replace_bfloat16(x):
        return _compute(x.float(), packed, scales, zeros, group).bfloat16()
    x, packed = aligned(x), aligned(packed)
    scales, zeros = side_by_side(scales.resolve_neg(), zeros.resolve_neg())
    key = (layout_of(x, packed, scales, zeros), type(group), group)
    plan = PLANS.get(key)
    if plan is None:
        plan = PLANS.keep(key, plan_product(x, packed))
    return product(plan, x, packed, scales)


def product(
    plan: Launch, x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor
) -> torch.Tensor:
    """Return the product of readable tensors; the zeros lie beside the scales."""
    out = x.new_empty(plan.numbers[:2])
    if plan.constants["FEW"]:
        plan(x, packed, scales, out)
    else:
        launch_with_memory(plan, x, packed, scales, out)
    return out


def side_by_side(scales: torch.Tensor, zeros: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both as :func:`pack_int4` leaves them: in bfloat16, a zero behind each scale."""
    strides = (2, 2 * scales.shape[0])
    have_strides = scales.stride() == strides and zeros.stride() == strides
    have_dtype = scales.dtype == torch.bfloat16 and zeros.dtype == torch.bfloat16
    if have_strides and have_dtype and lie_side_by_side(scales, zeros):
        return scales, zeros
    pairs = torch.stack([scales.T, zeros.T], dim=2).bfloat16()
    return pairs[..., 0].T, pairs[..., 1].T


# Plans


def plan_product(x: torch.Tensor, packed: torch.Tensor) -> Launch:
    """Return the launch, with the tile that was fastest on an H100."""
    limits = limits_of(x.device)
    M, (groups, N, quarter) = x.shape[0], packed.shape
    constants = {
        **tile_for(M, N, 4 * quarter, limits),
        "BY_BITS": x.dtype == torch.bfloat16 and multiplies_pairs(x.device, limits),
    }
    programs = triton.cdiv(M, constants["BLOCK_M"]) * triton.cdiv(N, constants["BLOCK_N"])
    return Launch(int4_kernel, (programs,), (M, N, groups), constants)


def multiplies_pairs(device: torch.device, limits: Limits) -> bool:
    """Return whether a GPU has the instruction for two products in bfloat16."""
    return limits.is_nvidia and torch.cuda.get_device_capability(device) >= (8, 0)


def tile_for(M: int, N: int, group: int, limits: Limits) -> dict[str, Any]:
    """Return the tile, the groups of a step, the warps and the stages."""
    memory = limits.shared_bytes - 1024
    few = M <= 16
    crowded = triton.cdiv(N, 64) > limits.multiprocessors
    most_elements = 2**15 if memory > 2**17 else 2**13
    rows = max(triton.next_power_of_2(M), 8 if few else 32)
    rows = min(rows, most_elements // max(group, 128))
    largest = rows == 256 and M > 256
    wide = largest or (rows == 64 and crowded)
    if wide:
        columns = 128
    elif few and not crowded:
        columns = 32
    else:
        columns = 64
    if crowded and rows <= 32:
        memory //= 2  # two programs on a multiprocessor
    bytes_of_a_group = group * (2 * rows + columns // 2)
    groups = 4
    while not few and groups > 1 and 3 * groups * bytes_of_a_group > memory:
        groups //= 2
    stages = max(1, min(3 if wide else 4, memory // (groups * bytes_of_a_group)))
    if not few and not HAS_SAFE_STAGES:
        stages = 1
    return {
        "GROUP": group,
        "S": groups,
        "BLOCK_M": rows,
        "BLOCK_N": columns,
        "FEW": few,
        "num_warps": 8 if largest else 4,
        "num_stages": stages,
    }


# Operations, for torch.compile, torch.func and tensors without memory


def _describe_pack(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows, groups = weight.shape[0], weight.shape[1] // group
    packed = weight.new_empty((groups, rows, group // 4), dtype=torch.int16)
    return packed, weight.new_empty((groups, rows, 2), dtype=torch.bfloat16)


PACK_INT4 = Operation(
    "pack_int4",
    "(Tensor weight, SymInt group) -> (Tensor, Tensor)",
    compute=lambda weight, group: _pack(weight.resolve_neg(), group),
    describe=_describe_pack,
)
INT4_MM = Operation(
    "int4_mm",
    "(Tensor x, Tensor packed, Tensor scales, Tensor zeros, SymInt group) -> Tensor",
    compute=_compute,
    describe=lambda x, packed, scales, zeros, group: x.new_empty(x.shape[0], packed.shape[1]),
)
