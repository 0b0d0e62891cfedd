"""What holds on a GPU for every function that a lesson offers to programs."""

import sys
import threading
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from tests.tutorials.functions import BETWEEN_GRAPHS, FUNCTIONS

sys.path.insert(0, str(Path(__file__).parents[2] / "tutorials"))
from shared.lesson import lesson

each = pytest.mark.parametrize(("name", "function"), FUNCTIONS)


@pytest.fixture
def function_of(definitions):
    """Return ``function_of(name, function)``; of 07 and 09, nothing but definitions is executed."""
    quick = cache(lesson)

    def find(name, function):
        if name.startswith(("07-", "09-")):
            return getattr(quick(name), function)
        return definitions(name)[function]

    return find


def on_gpu(name, function, device):
    return [x.to(device) if isinstance(x, torch.Tensor) else x for x in FUNCTIONS[name, function]()]


def whole(found):
    """All results of a call, in one tuple."""
    return found if isinstance(found, tuple) else (found,)


def assert_same(found, right):
    for one, other in zip(whole(found), whole(right), strict=True):
        assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def refill(arguments, name, function, device):
    """Put other numbers into the same tensors."""
    for x, new in zip(arguments, on_gpu(name, function, device), strict=True):
        if isinstance(x, torch.Tensor):
            x.copy_(new)


@each
def test_a_graph_that_is_replayed_twice_computes_with_new_data(function_of, device, name, function):
    call, arguments = function_of(name, function), on_gpu(name, function, device)
    call(*arguments)  # compiles the kernels
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call(*arguments)
    for _ in range(2):
        refill(arguments, name, function, device)
        graph.replay()
        assert_same(found, call(*arguments))


@pytest.mark.parametrize("dynamic", [False, True])
@each
def test_a_compiled_function_computes_the_same(function_of, device, name, function, dynamic):
    """Where sizes change between calls, PyTorch's tracer sees symbols in place of numbers."""
    call, arguments = function_of(name, function), on_gpu(name, function, device)
    inside = lambda *arguments: tuple(2 * x for x in whole(call(*arguments)))  # noqa: E731
    one_graph = not name.startswith(BETWEEN_GRAPHS)
    for user in (call, inside):
        torch.compiler.reset()
        compiled = torch.compile(user, fullgraph=one_graph, dynamic=dynamic)
        for _ in range(2):
            assert_same(compiled(*arguments), user(*arguments))
            arguments = on_gpu(name, function, device)


@each
def test_a_call_runs_on_the_stream_that_is_current(function_of, device, name, function):
    """On another stream, it would read the numbers before they are there."""
    call, arguments = function_of(name, function), on_gpu(name, function, device)
    call(*arguments)
    news = on_gpu(name, function, device)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)
        for x, new in zip(arguments, news, strict=True):
            if isinstance(x, torch.Tensor):
                x.copy_(new)
        found = call(*arguments)
        torch.cuda.current_stream().synchronize()
    assert_same(found, call(*news))


@each
def test_eight_new_threads_get_the_same(function_of, device, name, function):
    call, arguments = function_of(name, function), on_gpu(name, function, device)
    results, errors = [], []

    def run():
        try:
            results.append(call(*arguments))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    right = call(*arguments)
    torch.cuda.synchronize()
    for found in results:
        assert_same(found, right)


@each
def test_inference_mode(function_of, device, name, function):
    call, arguments = function_of(name, function), on_gpu(name, function, device)
    right = call(*arguments)
    with torch.inference_mode():
        assert_same(call(*arguments), right)
        inside = [x.clone() if isinstance(x, torch.Tensor) else x for x in arguments]
        assert_same(call(*inside), right)
    assert_same(call(*arguments), right)  # a plan that was kept inside serves outside


@each
def test_no_memory_is_kept_after_a_call(function_of, device, name, function):
    call, arguments = function_of(name, function), on_gpu(name, function, device)
    kept = []
    for _ in range(4):
        call(*arguments)
        torch.cuda.synchronize()
        kept.append(torch.cuda.memory_allocated())
    assert kept[0] == kept[-1]


@each
def test_a_tensor_that_begins_at_an_odd_address(function_of, device, name, function):
    """A plan kept for aligned tensors would load 16 bytes at once from an odd address."""
    call, arguments = function_of(name, function), on_gpu(name, function, device)
    right = call(*arguments)
    for i, x in enumerate(arguments):
        if not isinstance(x, torch.Tensor) or not x.is_contiguous():
            continue
        moved = torch.empty(x.numel() + 1, dtype=x.dtype, device=device)[1:].view(x.shape)
        moved.copy_(x)
        given = [moved if k == i else y for k, y in enumerate(arguments)]
        if name.startswith("09b-") and i < 2:  # its docstring asks for multiples of 16 bytes
            with pytest.raises(ValueError, match="16 bytes"):
                call(*given)
            continue
        found = call(*given)
        for one, other in zip(whole(found), whole(right), strict=True):
            assert_close(one, other)


def columns_of_wider(x):
    """The same numbers in a matrix whose rows are three longer, and begin at an odd address."""
    wide = torch.empty((*x.shape[:-1], x.shape[-1] + 3), dtype=x.dtype, device=x.device)
    return wide[..., 1 : x.shape[-1] + 1].copy_(x)


def every_second(x):
    return torch.stack([x, x], dim=-1)[..., 0]


def turned(x):
    """The same numbers, with the first dimension as the one whose elements are neighbors."""
    return x.movedim(0, -1).contiguous().movedim(-1, 0)


def expanded(x):
    """Other numbers: the first of the last dimension but one, for all of it."""
    return x.narrow(-2, 0, 1).expand(x.shape) if x.dim() > 1 else x


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("view", [columns_of_wider, every_second, turned, expanded])
@each
def test_views_give_what_their_copies_give(function_of, device, name, function, view, dtype):
    """PyTorch's attention in bf16, to which 06c hands some sizes, misreads rows of 67 numbers."""
    call, arguments = function_of(name, function), on_gpu(name, function, device)
    floats = torch.float16, torch.float32
    for i, x in enumerate(arguments):
        if not isinstance(x, torch.Tensor) or x.dim() == 0:
            continue
        given = [
            y.to(dtype) if isinstance(y, torch.Tensor) and y.dtype in floats else y
            for y in arguments
        ]
        given[i] = view(given[i])
        copies = [
            y.clone() if isinstance(y, torch.Tensor) and k == i else y for k, y in enumerate(given)
        ]
        copies[i] = copies[i].contiguous() if arguments[i].is_contiguous() else copies[i]
        try:
            right = call(*copies)
        except (TypeError, ValueError):
            continue  # of this dtype, or an order of elements that the function asks for
        try:
            found = call(*given)
        except ValueError as refusal:
            assert "contiguous" in str(refusal) or "stride" in str(refusal)  # noqa: PT017
            continue
        for one, other in zip(whole(found), whole(right), strict=True):
            assert_close(one, other, rtol=2 * torch.finfo(dtype).eps, atol=2e-3, equal_nan=True)
