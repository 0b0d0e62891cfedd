"""What a GPU or its compiler refuses is named; what they accept is not."""

import inspect

import pytest
import refused_kernels
import right_access_kernels
import right_compiled_kernels
import right_value_kernels
import torch
import triton
import triton.language as tl

import triton_watch
from triton_watch.compiles import Compiler
from triton_watch.source import findings
from triton_watch.watch import Watch


def functions_of(module):
    """The functions of a module without parameters, by name."""
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not inspect.signature(function).parameters
    }


REFUSED = functions_of(refused_kernels)
RIGHT = {
    **right_access_kernels.HOST,
    **functions_of(right_access_kernels),
    **functions_of(right_value_kernels),
    **functions_of(right_compiled_kernels),
}


@pytest.fixture(scope="module")
def compiler():
    """One compiler for all tests: its process starts once."""
    one = Compiler()
    yield one
    one.close()


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_compiler_refuses_is_named_with_its_line_and_a_remedy(name, compiler):
    function = REFUSED[name]
    watch = Watch(compiler=compiler)
    error = None
    try:
        with watch:
            function()
    except triton_watch.FaultError as fault:
        error = fault
    assert (error is not None) == function.before
    watch.finish()
    assert len(watch.faults) == 1
    text = str(watch.faults[0])
    assert all(word in text for word in function.words), text
    assert "refused_kernels.py line" in text
    assert "launched" in text


@pytest.mark.parametrize("name", [name for name, one in REFUSED.items() if one.certain])
def test_the_source_alone_tells_where_nothing_can_be_compiled(name):
    watch = Watch()
    with pytest.raises(triton_watch.FaultError), watch:
        REFUSED[name]()
    assert all(word in str(watch.faults[0]) for word in REFUSED[name].words)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_compiles(name, compiler):
    watch = Watch(compiler=compiler)
    with watch:
        RIGHT[name]()
    watch.finish()
    assert not watch.faults, watch.faults[0]


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes_where_nothing_can_be_compiled(name):
    with Watch() as watch:
        RIGHT[name]()
    assert not watch.faults


def test_the_source_of_a_branch_that_is_chosen_early_is_a_suspicion_alone():
    found = findings(right_compiled_kernels.branches_kernel.fn)
    assert found
    assert not any(one.certain for one in found)


@triton.jit
def copy_kernel(x_ptr, out_ptr, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def axis_kernel(x_ptr):
    tl.store(x_ptr + tl.program_id(1), 1.0)


@triton.jit
def small_dot_kernel(a_ptr, out_ptr, K: tl.constexpr):
    i, k = tl.arange(0, 16), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    product = tl.dot(a, tl.trans(a))
    tl.store(out_ptr + i[:, None] * 16 + i[None, :], product)


@triton.jit
def assert_kernel(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.device_assert(x >= 0, "negative")
    tl.store(x_ptr + tl.arange(0, 16), tl.sqrt(x))


@triton.autotune([triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"])
@triton.jit
def in_place_kernel(x_ptr, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, x + 1, mask=offsets < n)


@triton.autotune([triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"])
@triton.jit
def sum_kernel(x_ptr, sum_ptr, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(sum_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)))


@triton.jit
def endless_kernel(x_ptr, n):
    while n > 0:
        n = n + 0
    tl.store(x_ptr, 1.0)


@triton.jit
def everything_kernel(x_ptr, out_ptr, n, B: tl.constexpr):
    for start in range(0, n, B):
        offsets = start + tl.arange(0, B)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, x + 1, mask=offsets < n)


@triton.jit
def bias_kernel(x_ptr, bias_ptr, out_ptr):
    i = tl.arange(0, 16)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(bias_ptr + i))


def grid_of(programs):
    return lambda meta: (triton.cdiv(programs, meta["B"]),)


FAULTS = {
    "a_grid_of_too_many_programs_on_axis_1": (
        lambda: axis_kernel[(1, 65_536)](torch.zeros(65_536)),
        ("axis:     1, with 65536 programs", "65535"),
    ),
    "a_product_of_tiles_with_a_small_k": (
        lambda: small_dot_kernel[(1,)](torch.ones(16, 8).half(), torch.empty(16, 16), K=8),
        ("K is 8", "tl.dot(a, tl.trans(a))", "at least 16"),
    ),
    "a_device_assert_that_fails": (
        lambda: assert_kernel[(1,)](torch.arange(16.0) - 3),
        ("negative", "3 of 16, the first at 0", "tl.device_assert(x >= 0"),
    ),
    "autotuning_in_place": (
        lambda: in_place_kernel[grid_of(40)](torch.zeros(40), 40),
        ("autotuned", 'restore_value=["x_ptr"]', "in_place_kernel"),
    ),
    "autotuning_of_a_sum": (
        lambda: sum_kernel[grid_of(40)](torch.ones(40), torch.zeros(1), 40),
        ("autotuned", "`sum_ptr`", "reset_to_zero"),
    ),
    "a_list_as_an_argument": (
        lambda: copy_kernel[(1,)]([1.0, 2.0], torch.empty(2), B=2),
        ("a list", "`x_ptr`", "float"),
    ),
    "none_as_an_argument": (
        lambda: bias_kernel[(1,)](torch.ones(16), None, torch.empty(16)),
        ("None", "`bias_ptr`", "tl.load(bias_ptr + i)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_gpu_refuses_is_named(name):
    function, words = FAULTS[name]
    with pytest.raises(triton_watch.FaultError) as raised, Watch():
        function()
    assert all(word in str(raised.value) for word in words), raised.value
    assert "test_refused.py line" in str(raised.value)


def test_a_kernel_that_does_not_end_is_stopped_and_named():
    with pytest.raises(triton_watch.FaultError, match="does not end") as raised, Watch(limit=0.5):
        endless_kernel[(1,)](torch.zeros(1), 1)
    assert "test_refused.py line" in str(raised.value)
    assert "program:  0" in str(raised.value)


def test_programs_that_all_do_all_the_work_are_noted():
    with Watch() as watch:
        everything_kernel[(3,)](torch.ones(40), torch.empty(40), 40, B=16)
    (note,) = watch.remarks()
    assert "`out_ptr`" in note
    assert "3 of 3 programs" in note


def test_a_copy_of_pytorch_is_counted():
    x = torch.ones(8, 6)
    with Watch() as watch:
        copy_kernel[(3,)](x.t().contiguous(), torch.empty(48), B=16)
    assert watch.copied == 2 * 48 * 4


def test_times_are_skipped_and_what_is_timed_runs_once(capsys):
    from triton import testing

    x, out = torch.ones(16), torch.empty(16)
    with Watch() as watch:
        ms = testing.do_bench(lambda: copy_kernel[(1,)](x, out, B=16))
        low, high = testing.do_bench(lambda: None, quantiles=[0.2, 0.8])
    assert ms != ms
    assert low != high
    assert watch.launches == 1
    assert capsys.readouterr().out.count("skipped") == 1


def test_elements_that_were_never_written_are_an_error_where_that_is_asked_for():
    out = torch.empty(32)
    with pytest.raises(triton_watch.FaultError, match="never been written"):
        with triton_watch.watch(strict=True, compile=False):
            out = torch.empty(32)
            copy_kernel[(1,)](torch.ones(16), out, B=16)
