"""Sampling of tokens from logits without a sort: top-k, top-p and temperature.

Four launches read each logit twice: one finds the maximum and a rough sum of each piece of a row,
one guesses from a few logits in which range the threshold of the row lies, one adds up the weights
exactly and collects the few logits in that range, and the last finds the threshold among these, and
samples. A row for which the guess was wrong is sampled in a slower way with the same result. The
kernels are in ``sampling_kernels.py``. Ten calls give the same tokens.
"""

import sys
from dataclasses import dataclass
from typing import Any

import torch
import triton

from gallery_kernels.checks import (
    INTERPRETED,
    check_number,
    check_tensor,
    check_tensors,
    check_whole_number,
    check_without_gradient,
    must_replace_bfloat16,
)
from gallery_kernels.launch import Launch, Plans, layout_of, limits_of
from gallery_kernels.operations import Operation, is_needed
from gallery_kernels.sampling_kernels import (
    collect_kernel,
    finish_kernel,
    guess_kernel,
    sum_kernel,
)

MOST_TOKENS = 2**22  # weights of up to 2**40 add up in 63 bits
LOG2_E = 1.4426950408889634
LOWEST_TEMPERATURE = 1e-20  # below it, the maximum is taken


def sample(
    logits: torch.Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | torch.Tensor = 0,
) -> torch.Tensor:
    """Return a token for each row, sampled in proportion to ``exp(logit / temperature)``.

    The logits that are kept are those of top-k, and then those of top-p of what is left. All logits
    that equal the last one kept are kept, too. Weights are computed in fp32 and rounded to
    multiples of 2⁻⁴⁰ of the largest, and all sums of them are exact.

    Args:
        logits: ``[batch, tokens]``, float16, bfloat16 or float32, with at most 2²² tokens. Those
            that are not contiguous are copied. ``-inf`` excludes a token. A row that contains NaN,
            or only ``-inf``, is refused on the CPU; on a GPU, where that would wait, its token is
            -1.
        temperature: What logits are divided by, 0 or more. With 0, the maximum is taken.
        top_k: How many of the largest logits are kept; 0 for all.
        top_p: The share of the sum of weights that the fewest, largest logits have to reach, from
            above 0 to 1; 1 for all.
        seed: From 0 to 2⁶³ - 1, or an int64 tensor of one element on the GPU of the logits, which
            is read when the kernels run. So each replay of a CUDA graph can have another one. The
            token of a row depends on the seed, on the logits of the row, and on its number.

    Returns:
        ``[batch]``, int64.

    Raises:
        TypeError: An argument is no tensor or has another dtype, or no number of its kind.
        ValueError: A shape, a layout or a device does not fit, a number is out of range, a tensor
            requires a gradient, or a row on the CPU has no token.
        NotImplementedError: A tensor carries a tangent of forward-mode differentiation.

    Source: Holtzman and others, *The curious case of neural text degeneration*, 2019,
    https://arxiv.org/abs/1904.09751; lesson 13-sampling.
    """
    if is_needed(logits) or (isinstance(seed, torch.Tensor) and is_needed(seed)):
        check_sample(logits, temperature, top_k, top_p, seed)
        numbers = (float(temperature), top_k, float(top_p))
        if isinstance(seed, torch.Tensor):
            return SAMPLE(logits, *numbers, 0, seed)
        return SAMPLE(logits, *numbers, seed, None)
    plan = _plan_of_call(logits, temperature, top_k, top_p, seed)
    if plan is None:
        check_sample(logits, temperature, top_k, top_p, seed)
        return _compute_with(logits, temperature, top_k, top_p, seed)
    check_rows(logits)
    return plan(logits, seed)


def check_sample(logits: Any, temperature: Any, top_k: Any, top_p: Any, seed: Any) -> None:
    """Raise TypeError or ValueError, naming the argument, if no token can be sampled."""
    check_tensors({"logits": logits}, replaces_bfloat16=True)
    if logits.ndim != 2 or not 0 < logits.shape[1] <= MOST_TOKENS:
        raise ValueError(
            f"logits must be [batch, 1 to 2**22 tokens], but has shape {tuple(logits.shape)}"
        )
    check_without_gradient("sample", {"logits": logits})
    check_number("temperature", temperature)
    if not 0 <= temperature <= sys.float_info.max:  # this also refuses NaN
        raise ValueError(f"temperature must be 0 or more, and finite, but is {temperature}")
    check_whole_number("top_k", top_k)
    if top_k < 0:
        raise ValueError(f"top_k must be 0 (no limit) or more, but is {top_k}")
    check_number("top_p", top_p)
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must be more than 0, and at most 1 (no limit), but is {top_p}")
    check_seed(seed, logits.device)


def check_seed(seed: Any, device: torch.device) -> None:
    """Raise TypeError or ValueError unless *seed* is a number, or a tensor of one."""
    if not isinstance(seed, torch.Tensor):
        check_whole_number("seed", seed)
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed must be from 0 to 2**63 - 1, but is {seed}")
        return
    if seed.dtype != torch.int64 or seed.numel() != 1 or seed.device != device:
        raise ValueError(
            f"seed must be one int64 on {device}, but is {seed.dtype} of shape "
            f"{tuple(seed.shape)} on {seed.device}"
        )
    check_tensor("seed", seed, (torch.int64,))  # its layout


def check_rows(logits: torch.Tensor) -> None:
    """Raise ValueError if a row on the CPU has no token."""
    if logits.device.type != "cpu" or logits.shape[0] == 0:
        return
    if not (logits.amax(dim=1) > -float("inf")).all():
        raise ValueError("a row of logits contains nan, or only -inf")


# An ordinary call


@dataclass
class SamplePlan:
    """What calls with contiguous logits of one layout and the same numbers have in common."""

    work_shape: tuple[int, int]  # of the memory in which the launches leave what they found
    launches: tuple[Launch, Launch, Launch]
    last: Launch

    def __call__(self, logits: torch.Tensor, seed: int | torch.Tensor) -> torch.Tensor:
        """Return a token for each row."""
        work = logits.new_empty(self.work_shape, dtype=torch.int64)
        out = logits.new_empty(self.work_shape[:1], dtype=torch.int64)
        for launch in self.launches:
            launch(logits, work)
        if isinstance(seed, torch.Tensor):
            self.last(logits, work, out, seed, 0)
        else:
            self.last(logits, work, out, work, seed)  # the kernel does not read it from memory
        return out


PLANS = Plans()


def _plan_of_call(
    logits: Any, temperature: Any, top_k: Any, top_p: Any, seed: Any
) -> SamplePlan | None:
    """Return the plan that is kept for a call, or None: it is the first one, or has an error."""
    try:
        if logits.is_neg() or (logits.requires_grad and torch.is_grad_enabled()):
            return None
        if isinstance(seed, torch.Tensor):
            found = (seed.dtype, seed.numel(), seed.device, seed.layout, seed.is_neg())
            if found != (torch.int64, 1, logits.device, torch.strided, False):
                return None
        elif type(seed) is not int or not 0 <= seed < 2**63:
            return None
        return PLANS.get(_key(logits, temperature, top_k, top_p, seed))
    except (AttributeError, RuntimeError, TypeError):  # no tensor, a sparse one, no number
        return None


def _key(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, seed: int | torch.Tensor
) -> tuple:
    numbers = (type(temperature), temperature, type(top_k), top_k, type(top_p), top_p)
    return (layout_of(logits), *numbers, isinstance(seed, torch.Tensor))


def _compute_with(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, seed: int | torch.Tensor
) -> torch.Tensor:
    """Return the tokens of any tensors."""
    if logits.shape[0] == 0:
        return logits.new_empty(0, dtype=torch.int64)
    logits = logits.resolve_neg().contiguous()
    check_rows(logits)
    if must_replace_bfloat16(logits):
        logits = logits.float()
    if isinstance(seed, torch.Tensor):
        seed = seed.resolve_neg()
    key = _key(logits, temperature, top_k, top_p, seed)
    plan = PLANS.get(key)
    if plan is None:
        seed_on_gpu = isinstance(seed, torch.Tensor)
        plan = PLANS.keep(key, plan_sample(logits, temperature, top_k, top_p, seed_on_gpu))
    return plan(logits, seed)


# Plans


@dataclass(frozen=True)
class Sizes:
    """How much a program works on at a time."""

    piece: int  # logits
    most_collected: int  # logits of a row
    guessed_from: int  # logits of a row
    columns: int  # of a tile of a program that works on a row: one for each thread
    warps: int
    columns_of_piece: int
    warps_of_piece: int


def sizes_for(tokens: int) -> Sizes:
    """Return the sizes for rows of so many tokens."""
    if INTERPRETED:
        return Sizes(128, 256, 64, columns=16, warps=1, columns_of_piece=16, warps_of_piece=1)
    guessed_from = 8192 if tokens < 200_000 else 32_768
    return Sizes(
        *(1024, 8192, guessed_from), columns=512, warps=16, columns_of_piece=64, warps_of_piece=2
    )


def plan_sample(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, seed_on_gpu: bool
) -> SamplePlan:
    """Return the launches for contiguous logits."""
    rows, tokens = logits.shape
    if temperature < LOWEST_TEMPERATURE:
        temperature, top_k = 1.0, 1
    k = top_k if top_k < tokens else 0
    rate = LOG2_E / temperature
    sizes = sizes_for(tokens)
    pieces = triton.cdiv(tokens, sizes.piece)
    early = limits_of(logits.device).starts_early
    launched_early = {"launch_pdl": True} if early else {}  # for kernels that wait

    of_piece = {
        "PIECE": sizes.piece,
        "MOST": sizes.most_collected,
        "C": sizes.columns_of_piece,
        "EARLY": early,
        "num_warps": sizes.warps_of_piece,
    }
    of_row = {
        "MOST": sizes.most_collected,
        "N": triton.next_power_of_2(pieces),
        "C": sizes.columns,
        "EARLY": early,
        "num_warps": sizes.warps,
        **launched_early,
    }
    of_pieces = (tokens, pieces, rate)
    of_rows = (tokens, pieces, k, float(top_p), rate)
    guess = {**of_row, "SAMPLE": sizes.guessed_from}
    finish = {**of_row, "PIECE": sizes.piece, "SEED_ON_GPU": seed_on_gpu}
    return SamplePlan(
        work_shape=(rows, 4 + 2 * pieces + sizes.most_collected),
        launches=(
            Launch(sum_kernel, (rows * pieces,), of_pieces, of_piece),
            Launch(guess_kernel, (rows,), of_rows, guess),
            Launch(collect_kernel, (rows * pieces,), of_pieces, {**of_piece, **launched_early}),
        ),
        last=Launch(finish_kernel, (rows,), of_rows, finish),
    )


# The operation, for torch.compile, torch.func and tensors without memory


def _compute(
    logits: torch.Tensor,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    seed_on_gpu: torch.Tensor | None,
) -> torch.Tensor:
    """Return the tokens of any tensors."""
    if seed_on_gpu is None:
        return _compute_with(logits, temperature, top_k, top_p, seed)
    return _compute_with(logits, temperature, top_k, top_p, seed_on_gpu)


def _describe(logits: torch.Tensor, *others: Any) -> torch.Tensor:
    return logits.new_empty(logits.shape[0], dtype=torch.int64)


SAMPLE = Operation(
    "sample",
    "(Tensor logits, float temperature, SymInt top_k, float top_p, SymInt seed, "
    "Tensor? seed_on_gpu) -> Tensor",
    compute=_compute,
    describe=_describe,
)
