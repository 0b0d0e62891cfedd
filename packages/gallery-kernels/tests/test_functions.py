"""What holds for every function, in the interpreter or on a GPU."""

from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from triton.runtime.interpreter import InterpreterBuilder

from arguments import (
    DETACHING,
    DIFFERENTIABLE,
    NAMES,
    WITH_SECOND_DERIVATIVES,
    WITHOUT_GRADIENTS,
    arguments_of,
    floats,
    function_of,
    put,
    results_and_gradients,
    results_of,
)

each = pytest.mark.parametrize("name", NAMES)
each_differentiable = pytest.mark.parametrize("name", DIFFERENTIABLE)


def assert_same(found, right) -> None:
    for one, other in zip(found, right, strict=True):
        assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@each
def test_a_sign_that_is_still_to_be_changed(name, device):
    """A plan kept for the same shapes and strides must not read the numbers with their old sign."""
    call, arguments = function_of(name), arguments_of(name, device)
    for i in floats(arguments):
        right = results_of(call, put(arguments, i, -arguments[i]))
        assert_same(results_of(call, put(arguments, i, torch._neg_view(arguments[i]))), right)
    if name in DIFFERENTIABLE:
        right = results_and_gradients(call, arguments, torch.neg)
        assert_same(results_and_gradients(call, arguments, torch._neg_view), right)


@pytest.mark.parametrize("name", sorted(WITHOUT_GRADIENTS - DETACHING))
def test_a_gradient_that_the_result_would_not_have_is_refused(name, device):
    call, arguments = function_of(name), arguments_of(name, device)
    right = results_of(call, arguments)
    for i in floats(arguments):
        leaf = put(arguments, i, arguments[i].clone().requires_grad_())
        with pytest.raises(ValueError, match="requires a gradient"):
            call(*leaf)
        with torch.no_grad():
            assert_same(results_of(call, leaf), right)


@each
def test_nans_in_any_argument_reach_the_result(name, device, monkeypatch):
    """Where a GPU's maximum of a number and nan is the number, no nan may get lost."""
    for unused, least in (("maxnumf", np.fmax), ("minnumf", np.fmin)):
        operation = f"create_{unused}"
        replaced = lambda builder, x, y, least=least: builder.binary_op(x, y, least)  # noqa: E731
        monkeypatch.setattr(InterpreterBuilder, operation, replaced)
    call, arguments = function_of(name), arguments_of(name, device)
    for i in floats(arguments):
        with_nan = arguments[i].clone()
        with_nan.view(-1)[::2] = torch.nan
        if name == "sample" and with_nan.is_cuda:  # which does not wait for the GPU
            (tokens,) = results_of(call, put(arguments, i, with_nan))
            assert (tokens[with_nan.isnan().any(1)] == -1).all()
        elif name in ("pack_int4", "sample"):
            with pytest.raises(ValueError, match="nan"):
                call(*put(arguments, i, with_nan))
        else:
            found = results_of(call, put(arguments, i, with_nan))
            assert any(x.isnan().any() for x in found), i


@each
def test_a_tensor_without_memory_has_the_right_shape(name, device):
    call, arguments = function_of(name), arguments_of(name, device)
    right = results_of(call, arguments)  # which leaves a plan
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in arguments]
        found = results_of(call, fakes)
    for one, other in zip(found, right, strict=True):
        assert type(one) is FakeTensor
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)


@pytest.mark.parametrize("dynamic", [False, True])
@each
def test_a_compiled_function_is_one_graph_and_gives_the_same(name, dynamic, device):
    """Where sizes change between calls, PyTorch's tracer sees symbols in place of numbers."""
    call, arguments = function_of(name), arguments_of(name, device)
    inside = lambda *arguments: call(*arguments)  # noqa: E731
    for user in (call, inside):
        torch.compiler.reset()
        compiled = torch.compile(user, backend="aot_eager", fullgraph=True, dynamic=dynamic)
        assert_same(results_of(compiled, arguments), results_of(call, arguments))
        if name in DIFFERENTIABLE:
            found = results_and_gradients(compiled, arguments)
            assert_same(found, results_and_gradients(call, arguments))


class Recorder(TorchDispatchMode):
    """Notes the arguments of an operation."""

    def __init__(self, operation):
        super().__init__()
        self.operation = operation
        self.arguments = None

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        """Call the operation."""
        if operation is self.operation:
            self.arguments = args
        return operation(*args, **(kwargs or {}))


@each
def test_the_operation_passes_the_tests_of_pytorch(name, device):
    """Its schema, its shapes without numbers, and its gradient under the compiler's tracer."""
    call, arguments = function_of(name), arguments_of(name, device)
    operation = getattr(torch.ops.gallery_kernels, name).default
    derived = [x.as_subclass(Derived) if isinstance(x, torch.Tensor) else x for x in arguments]
    with Recorder(operation) as recorder:
        call(*derived)  # another class than torch.Tensor gets the operation
    given = [
        x.detach().as_subclass(torch.Tensor) if isinstance(x, torch.Tensor) else x
        for x in recorder.arguments
    ]
    torch.library.opcheck(operation, given)


@each_differentiable
def test_func_grad_and_vmap_are_right(name, device):
    call, arguments = function_of(name), arguments_of(name, device)
    right = results_and_gradients(call, arguments)
    places = tuple(floats(arguments))
    g = torch.linspace(-1, 1, right[0].numel(), device=device).view(right[0].shape)

    def loss(*arguments):
        return (call(*arguments) * g).sum()

    found = torch.func.grad(loss, places)(*arguments)
    assert_same(found, right[1:])


@each
def test_vmap_is_a_loop(name, device):
    call, arguments = function_of(name), arguments_of(name, device)
    i = floats(arguments)[0]
    both = torch.stack([arguments[i], -arguments[i]])
    with torch.no_grad():
        found = torch.vmap(lambda x: results_of(call, put(arguments, i, x)))(both)
        for number in range(2):
            right = results_of(call, put(arguments, i, both[number]))
            assert_same([x[number] for x in found], right)


@each
def test_a_tangent_is_refused_by_name(name, device):
    """A function without a forward-mode derivative would silently return none."""
    call, arguments = function_of(name), arguments_of(name, device)
    for i in floats(arguments):
        x = arguments[i]
        user = lambda x, i=i: call(*put(arguments, i, x))  # noqa: E731
        with pytest.raises(NotImplementedError, match=f"{name} has no forward-mode derivative"):
            torch.func.jvp(user, (x,), (x,))
        with pytest.raises(NotImplementedError, match=f"{name} has no forward-mode derivative"):
            torch.func.jvp(torch.vmap(user), (x[None],), (x[None],))
        with (
            forward_ad.dual_level(),
            pytest.raises(NotImplementedError, match=f"{name} has no forward-mode derivative"),
        ):
            user(forward_ad.make_dual(x, torch.ones_like(x)))
    one = torch.ones((), device=device)
    right = results_of(call, arguments)
    found = torch.func.jvp(lambda z: [z * y for y in results_of(call, arguments)], (one,), (one,))
    tangents = [x.to(y.dtype) for x, y in zip(found[1], right, strict=True)]  # of int, a float
    assert_same(tangents, right)  # of what a tangent does not follow, nothing is refused


@pytest.mark.parametrize("name", sorted({*DIFFERENTIABLE} - WITH_SECOND_DERIVATIVES))
def test_a_second_derivative_is_refused_by_name(name, device):
    call, arguments = function_of(name), arguments_of(name, device)
    places = floats(arguments)
    leaves = {i: arguments[i].clone().requires_grad_() for i in places}
    y = call(*[leaves.get(i, x) for i, x in enumerate(arguments)])
    with pytest.raises(RuntimeError, match=f"{name} has no second derivative"):
        torch.autograd.grad(y.sum(), leaves[places[0]], create_graph=True)


@each
def test_autocast_changes_no_result(name, device):
    """Where a function hands its arguments to PyTorch, that would round them to bf16."""
    call, arguments = function_of(name), arguments_of(name, device)
    right = results_of(call, arguments)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert_same(results_of(call, arguments), right)


class Derived(torch.Tensor):
    """As many libraries have; the compiler's operations see it, not a plain tensor."""


@each
def test_tensors_of_a_derived_class(name, device):
    call, arguments = function_of(name), arguments_of(name, device)
    derived = [x.as_subclass(Derived) if isinstance(x, torch.Tensor) else x for x in arguments]
    found = [x.as_subclass(torch.Tensor) for x in results_of(call, derived)]
    assert_same(found, results_of(call, arguments))


@each
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_sparse_tensor_is_refused_by_its_layout(name, device):
    call, arguments = function_of(name), arguments_of(name, device)
    call(*arguments)  # which leaves a plan
    for i in floats(arguments):
        for sparse in (arguments[i].to_sparse(), torch.ones(2, 2, device=device).to_sparse_csr()):
            with pytest.raises(ValueError, match="must be strided, but its layout is torch.sparse"):
                call(*put(arguments, i, sparse.to(arguments[i].dtype)))


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


def inner(x: Any) -> Any:
    return x.inner if isinstance(x, Wrapper) else x


@each
def test_a_tensor_that_wraps_another_is_right(name, device):
    call, arguments = function_of(name), arguments_of(name, device)
    right = results_of(call, arguments)  # which leaves a plan
    for i, x in enumerate(arguments):
        if isinstance(x, torch.Tensor):
            found = results_of(call, put(arguments, i, Wrapper(x)))
            assert_same([inner(y) for y in found], right)


@each
def test_another_device_is_refused_by_name(name, device):
    """Also after a right call, for which a plan is kept."""
    call, arguments = function_of(name), arguments_of(name, device)
    call(*arguments)
    for i in floats(arguments):
        with pytest.raises(ValueError, match="must be on .* but is on meta"):
            call(*put(arguments, i, arguments[i].to("meta")))


@each
def test_what_is_no_tensor_is_refused_by_name(name, device):
    call, arguments = function_of(name), arguments_of(name, device)
    for i in floats(arguments):
        for wrong in (None, [1.0], 2.0):
            with pytest.raises(TypeError, match=r"must be a torch\.Tensor, but is a"):
                call(*put(arguments, i, wrong))
