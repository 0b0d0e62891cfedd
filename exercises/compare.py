"""What an exercise asks for, and what is wrong with an answer."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

FP16 = {"rtol": 2**-10, "atol": 2**-10}  # a rounding of fp16, and a sum in fp32
FP32 = {"rtol": 1e-5, "atol": 1e-6}


@dataclass(frozen=True)
class Exercise:
    """What is asked for.

    Attributes:
        function: its name and parameters.
        cases: makes the arguments to try, each a tuple.
        reference: computes what the function must return, from the same arguments.
        tolerance: how far the two may be apart; a function computes it from the arguments.
        least: the bytes that one call has to move at least, from its arguments and its result.
        multiplied: how many products of two numbers it has to compute at least, from its arguments.
        seen: makes of the result what is compared; a ValueError says what it should have been.
        hint: says, from the arguments and the places of wrong elements, what these have in common.
        use: calls the function; one that differentiates it as well returns results and gradients.
        names: what the results are called, where there are several.
        properties: further checks; each returns what is wrong, or nothing.
        level, minutes: how hard it is for who has read the lesson.
        hints: what helps, one after the other.
        kernels: whether kernels compute the result.
        copies: whether PyTorch may copy tensors before the kernel runs (``.contiguous()``).
        gpu: the GPU that it needs, if the interpreter cannot execute it.
        large: makes arguments whose time on a GPU says something.
        pytorch: what PyTorch offers for these arguments.
    """

    function: str
    cases: Callable
    reference: Callable | None = None
    tolerance: dict | Callable = field(default_factory=lambda: FP32)
    least: Callable = lambda arguments, result: size_of(*arguments, result)
    multiplied: Callable | None = None
    seen: Callable = lambda result: result
    hint: Callable = lambda arguments, wrong: ""
    use: Callable = lambda call, arguments: call(*arguments)
    names: tuple = ()
    properties: tuple = ()
    level: str = "medium"
    minutes: int = 30
    hints: tuple = ()
    kernels: bool = True
    copies: bool = True
    gpu: str = ""
    large: Callable | None = None
    pytorch: Callable | None = None

    @property
    def name(self):
        """The name of the function."""
        return self.function.partition("(")[0]

    @property
    def parameters(self):
        """The names of its parameters."""
        (function,) = ast.parse(f"def {self.function}: 0").body
        return [argument.arg for argument in function.args.args]


def size_of(*values):
    """Return the bytes of the tensors in *values* and in tuples there, each element once."""
    tensors = [v for value in values for v in (value if isinstance(value, tuple) else (value,))]
    return sum(v.numel() * v.element_size() for v in tensors if isinstance(v, torch.Tensor))


def difference(got, expected, tolerance, hint=lambda wrong: "", names=()):
    """Return what is wrong with *got*, in one or two sentences; nothing where it is right."""
    if isinstance(expected, tuple):
        if not isinstance(got, tuple) or len(got) != len(expected):
            if names:
                there = len(got) if isinstance(got, tuple) else 1
                return f"there should be {len(expected)}: {', '.join(names)}; and there are {there}"
            return f"it should return {len(expected)} tensors, and returns {shown(got)}"
        pairs = zip(got, expected, strict=True)
        found = [difference(*pair, tolerance, hint) for pair in pairs]
        named = names or [f"of its results, number {i}" for i in range(len(found))]
        return next((f"{name}: {f}" for name, f in zip(named, found, strict=True) if f), "")
    if not isinstance(got, torch.Tensor):
        return f"it returns a {type(got).__name__}, and not a tensor"
    if got.shape != expected.shape:
        return f"its shape is {tuple(got.shape)}, and should be {tuple(expected.shape)}"
    if got.dtype != expected.dtype:
        return f"its dtype is {got.dtype}, and should be {expected.dtype}"
    if got.layout != expected.layout:
        return f"its layout is {got.layout}, and should be {expected.layout}"
    if got.device.type != expected.device.type:
        return f"it is on the device {got.device}, and should be on {expected.device}"
    wrong = ~torch.isclose(got.double(), expected.double(), equal_nan=True, **tolerance)
    if not wrong.any():
        return ""
    first = tuple(wrong.nonzero()[0].tolist())
    text = (
        f"{wrong.sum().item()} of {wrong.numel()} elements are wrong. The first is at {first}: "
        f"{got[first].item():.6g} in place of {expected[first].item():.6g}."
    )
    return f"{text} {hint(wrong) or pattern(got, wrong)}".strip()


def pattern(got, wrong):
    """Return what the places of the *wrong* elements suggest."""
    lost = got.isnan() & wrong
    if lost.sum() == wrong.sum():
        return "All of them are NaN: nothing was written there, or something undefined was used."
    if wrong.all():
        return "All are wrong: look at the formula, and at the strides, before the masks."
    flat = wrong.flatten().nonzero().flatten()
    if len(flat) == wrong.numel() - flat[0]:
        return "All from there to the end: is the last block masked, and is the grid rounded up?"
    if wrong.ndim == 2:
        rows, columns = wrong.any(dim=1), wrong.any(dim=0)
        if wrong[rows].all():
            return f"They are {rows.sum().item()} whole rows: look at what a row has in common."
        if wrong[:, columns].all():
            return f"They are whole columns, from column {columns.nonzero()[0].item()} on: a mask?"
    return ""


def shown(value):
    """Return an argument as it is told: a tensor by its shape."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return f"{tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
