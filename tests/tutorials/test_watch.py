"""The watch of memory: it names what is wrong, and lets pass what is right."""

import inspect

import pytest

from tests.tutorials import right_kernels, wrong_kernels
from tests.tutorials.practice import exercise

RIGHT = right_kernels.HOST | {
    name: function
    for name, function in vars(right_kernels).items()
    if inspect.isfunction(function)
    and not function.__code__.co_argcount
    and function.__module__ == right_kernels.__name__
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes(name):
    with exercise.Watch() as watch:
        RIGHT[name]()
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
