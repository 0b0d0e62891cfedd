"""The watch of memory: it names what is wrong, and lets pass what is right."""

import inspect

import pytest
import right_access_kernels
import right_value_kernels
import wrong_access_kernels
import wrong_value_kernels

from triton_watch.places import FaultError
from triton_watch.watch import Watch


def cases(*modules):
    """The functions of *modules* without parameters, by name."""
    return {
        name: function
        for module in modules
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and not inspect.signature(function).parameters
        and function.__module__ == module.__name__
    }


RIGHT = right_access_kernels.HOST | cases(right_access_kernels, right_value_kernels)
WRONG = cases(wrong_access_kernels, wrong_value_kernels)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes(name):
    with Watch() as watch:
        RIGHT[name]()
    assert not watch.faults
    assert watch.launches


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_named(name):
    with pytest.raises(FaultError) as raised, Watch():
        WRONG[name]()
    text = str(raised.value)
    assert all(word in text for word in WRONG[name].words), text
    assert "_kernels.py line" in text
