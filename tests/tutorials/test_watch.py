"""The watch of memory: it names what is wrong, lets pass what is right, and costs little."""

import inspect
import time

import pytest
import torch

from tests.tutorials import right_kernels, wrong_kernels
from tests.tutorials.practice import exercise

RIGHT = [
    function
    for name, function in vars(right_kernels).items()
    if inspect.isfunction(function) and not function.__code__.co_argcount and name[0] != "_"
    and function.__module__ == right_kernels.__name__
]  # fmt: skip


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_a_right_kernel_passes(function):
    with exercise.Watch() as watch:
        function()
    assert not watch.faults
    assert watch.launches


@pytest.mark.parametrize("name", wrong_kernels.CASES)
def test_a_wrong_kernel_is_named(name):
    function, words = wrong_kernels.CASES[name]
    with pytest.raises(exercise.FaultError) as raised, exercise.Watch():
        function()
    text = str(raised.value)
    assert all(word in text for word in words), text
    assert "_kernels.py line" in text


def seconds(function):
    """The shortest of three runs."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def copies():
    x = torch.randn(200_000)
    right_kernels.copy_kernel[(200,)](x, torch.empty_like(x), 200_000, BLOCK=1024)


def small_blocks():
    x = torch.randn(10_000)
    right_kernels.copy_kernel[(313,)](x, torch.empty_like(x), 10_000, BLOCK=32)


def products():
    a, b = torch.randn(128, 256), torch.randn(256, 128)
    shape = (128, 128, 256, *a.stride(), *b.stride())
    right_kernels.matmul_kernel[(4, 4)](a, b, torch.empty(128, 128), *shape, T=32)


def scalars():
    """The worst case: a program that does nothing but load single numbers."""
    x = torch.randn(2000)
    right_kernels.sum_kernel[(2,)](x, torch.empty(2), 2000)


@pytest.mark.parametrize("function", [copies, small_blocks, products, scalars])
def test_the_watch_takes_at_most_three_times_as_long(function):
    alone = seconds(function)
    with exercise.Watch():
        watched = seconds(function)
    print(f"{function.__name__}: {watched / alone:.2f}")
    assert watched < 3 * alone
