"""What holds for every function that a lesson offers to programs."""

from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.testing import assert_close
from torch.utils._pytree import tree_map
from triton.runtime.interpreter import InterpreterBuilder

from tests.tutorials.compiled import compiled
from tests.tutorials.functions import BETWEEN_GRAPHS, DIFFERENTIABLE, FUNCTIONS

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf in NumPy


def each(keys, but=()):
    """Parametrise over the lessons and functions of *keys*, less lessons that begin with *but*."""
    chosen = [key for key in keys if not key[0].startswith(tuple(but))]
    return pytest.mark.parametrize(("name", "function"), chosen)


def floats(arguments: list) -> list[int]:
    """The places of tensors whose sign may be changed."""
    return [
        i
        for i, x in enumerate(arguments)
        if isinstance(x, torch.Tensor) and x.dtype in (torch.float16, torch.float32)
    ]


def put(arguments: list, place: int, value: Any) -> list:
    return [value if i == place else x for i, x in enumerate(arguments)]


def result(call, arguments):
    found = call(*arguments)
    return found if isinstance(found, tuple) else (found,)


def gradients(call, arguments, sign=None):
    leaves = {i: arguments[i].detach().clone().requires_grad_() for i in floats(arguments)}
    y = call(*[leaves.get(i, x) for i, x in enumerate(arguments)])
    g = torch.linspace(-1, 1, y.numel()).view(y.shape)
    return (y.detach(), *torch.autograd.grad(y, [*leaves.values()], sign(g) if sign else g))


@each(FUNCTIONS)
def test_a_sign_that_is_still_to_be_changed(tutorial, name, function):
    """A plan kept for the same shapes and strides must not read the numbers with their old sign."""
    call, arguments = tutorial(name)[function], FUNCTIONS[name, function]()
    for i in floats(arguments):
        right = result(call, put(arguments, i, -arguments[i]))
        found = result(call, put(arguments, i, torch._neg_view(arguments[i])))
        assert all(map(torch.equal, found, right)), i
    if (name, function) in DIFFERENTIABLE:
        found, right = (gradients(call, arguments, s) for s in (torch._neg_view, torch.neg))
        assert all(map(torch.equal, found, right))


@each([key for key in FUNCTIONS if key not in DIFFERENTIABLE])
def test_a_gradient_that_the_result_would_not_have_is_refused(tutorial, name, function):
    call, arguments = tutorial(name)[function], FUNCTIONS[name, function]()
    right = result(call, arguments)
    for i in floats(arguments):
        leaf = put(arguments, i, arguments[i].clone().requires_grad_())
        with pytest.raises(ValueError, match="requires a gradient"):
            call(*leaf)
        with torch.no_grad():
            assert all(map(torch.equal, result(call, leaf), right))


@each(FUNCTIONS)
def test_nans_in_any_argument_reach_the_result(tutorial, name, function, monkeypatch):
    """Where a GPU's maximum of a number and nan is the number, no nan may get lost."""
    for unused in ("maxnumf", "minnumf"):
        least = np.fmax if unused == "maxnumf" else np.fmin
        monkeypatch.setattr(
            InterpreterBuilder, f"create_{unused}", lambda b, x, y, f=least: b.binary_op(x, y, f)
        )
    call, arguments = tutorial(name)[function], FUNCTIONS[name, function]()
    for i in floats(arguments):
        with_nan = arguments[i].clone()
        with_nan.view(-1)[::2] = torch.nan
        if function == "sample":
            with pytest.raises(ValueError, match="nan"):
                call(*put(arguments, i, with_nan))
        else:
            assert any(x.isnan().any() for x in result(call, put(arguments, i, with_nan))), i


@each(FUNCTIONS, but={*BETWEEN_GRAPHS} - {"05-"})
def test_a_tensor_without_memory_has_the_right_shape(tutorial, name, function):
    call, arguments = tutorial(name)[function], FUNCTIONS[name, function]()
    right = result(call, arguments)  # which leaves a plan
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in arguments]
        found = result(call, fakes)
    for one, other in zip(found, right, strict=True):
        assert (type(one), one.shape, one.dtype) == (FakeTensor, other.shape, other.dtype)


@pytest.mark.parametrize("dynamic", [False, True])
@each(FUNCTIONS, but=["12-", "13-", "14-", "14b-"])  # the tracer still fails in their launches
def test_a_compiled_function_gives_the_same(tutorial, name, function, dynamic):
    """Where sizes change between calls, PyTorch's tracer sees symbols in place of numbers."""
    call, whole = tutorial(name)[function], not name.startswith(BETWEEN_GRAPHS)
    user = lambda *arguments: call(*arguments)  # noqa: E731
    with compiled(call, user, whole=whole, dynamic=dynamic) as traced:
        for _ in range(2):
            arguments = FUNCTIONS[name, function]()
            if (name, function) in DIFFERENTIABLE:
                found, right = (gradients(f, arguments) for f in (traced, call))
            else:
                found, right = (result(f, arguments) for f in (traced, call))
            for one, other in zip(found, right, strict=True):
                assert_close(one, other, rtol=0, atol=0)


class Derived(torch.Tensor):
    """As many libraries have; the compiler's operations see it, not a plain tensor."""


@each(FUNCTIONS, but=["10b-"])  # which refuses them
def test_tensors_of_a_derived_class(tutorial, name, function):
    call, arguments = tutorial(name)[function], FUNCTIONS[name, function]()
    derived = [x.as_subclass(Derived) if isinstance(x, torch.Tensor) else x for x in arguments]
    for found, right in zip(result(call, derived), result(call, arguments), strict=True):
        assert_close(found.as_subclass(torch.Tensor), right, rtol=0, atol=0, equal_nan=True)


@each([key for key in FUNCTIONS if key[0][:2] in ("08", "10", "11", "12", "13", "14")])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_sparse_tensor_is_refused_by_its_layout(tutorial, name, function):
    call, arguments = tutorial(name)[function], FUNCTIONS[name, function]()
    call(*arguments)  # which leaves a plan
    for i in floats(arguments):
        for sparse in (arguments[i].to_sparse(), torch.ones_like(arguments[i]).to_sparse_csr()):
            with pytest.raises(ValueError, match=r"^(?!.*storage).*torch\.sparse|strided"):
                call(*put(arguments, i, sparse))


class Wrapper(torch.Tensor):
    """A tensor without memory of its own, such as a distributed one; operations see the inner one.

    A kernel that is launched on it would use the address 0.
    """

    @staticmethod
    def __new__(cls, inner):
        kind = {"strides": inner.stride(), "dtype": inner.dtype, "device": inner.device}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **kind)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        """Apply the operation to the inner tensors."""
        args, kwargs = tree_map(inner, (args, kwargs or {}))
        wrap = lambda x: Wrapper(x) if isinstance(x, torch.Tensor) else x  # noqa: E731
        return tree_map(wrap, operation(*args, **kwargs))


def inner(x):
    return x.inner if isinstance(x, Wrapper) else x


@each(FUNCTIONS, but=["08-", "09", "1"])
def test_a_tensor_that_wraps_another_is_right_or_refused(tutorial, name, function):
    call, arguments = tutorial(name)[function], FUNCTIONS[name, function]()
    right = result(call, arguments)  # which leaves a plan
    for i, x in enumerate(arguments):
        if not isinstance(x, torch.Tensor):
            continue
        wrapped = put(arguments, i, Wrapper(x))
        if name.startswith(("05b-", "06b-")):
            with pytest.raises(ValueError, match="must have memory, but is a Wrapper"):
                call(*wrapped)
            continue
        for one, other in zip(map(inner, result(call, wrapped)), right, strict=True):
            assert_close(one, other, rtol=1e-4, atol=1e-4, equal_nan=True)
