"""What a plan keeps of a launch with descriptors, with Triton's launcher and without a GPU."""

import gc
import sys
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
import triton
from triton.backends.nvidia import driver as nvidia
from triton.tools.tensor_descriptor import TensorDescriptor

TUTORIALS = Path(__file__).parents[2] / "tutorials"


class Kernel:
    """A kernel whose launcher is Triton's, down to the function of the driver."""

    arg_names = ("a_desc", "b_desc", "c_desc", "n", "BLOCK")

    def __init__(self, driver, metadata=None):
        signature = dict.fromkeys(self.arg_names[:2], "tensordesc<fp16[16, 16]>")
        signature |= {"c_desc": "constexpr", "n": "i32", "BLOCK": "constexpr"}
        metadata = [{}, {}] if metadata is None else metadata
        run = object.__new__(nvidia.CudaLauncher)
        run.__dict__.update(dict.fromkeys(
            ("global_scratch_size", "global_scratch_align", "profile_scratch_size",
             "profile_scratch_align", "launch_cooperative_grid", "launch_pdl", "gsan_enabled"), 0,
        ))  # fmt: skip
        run.num_ctas, run.arg_annotations, run.kernel_signature = 1, [], b""
        run.launch = nvidia.wrap_handle_tensordesc(driver, signature, metadata)
        self.compiled = SimpleNamespace(
            run=run, function=5, packed_metadata=(4, 1, 0),
            metadata=SimpleNamespace(tensordesc_meta=metadata),
        )  # fmt: skip
        self.asked = 0

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            self.asked += 1
            return self.compiled

        return launch


@pytest.fixture
def made(monkeypatch):
    """Return ``made()``: a plan, its kernel, what was launched, and what was encoded."""
    monkeypatch.syspath_prepend(TUTORIALS)
    launched, encoded = [], []

    def encode(descriptor, *_):
        encoded.append(descriptor.base.data_ptr())
        return [f"map of {descriptor.base.data_ptr()}", *descriptor.shape, *descriptor.strides]

    monkeypatch.setattr(nvidia, "make_tensordesc_arg", encode)
    active = MagicMock(get_current_device=lambda: 0, get_current_stream=lambda device: 7)
    monkeypatch.setattr(type(triton.runtime.driver), "active", active)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shared"]:
        monkeypatch.delitem(sys.modules, name)
    from shared.launch import Launch
    from shared.plans import EncodedPlan

    def make(metadata=None):
        kernel = Kernel(lambda *arguments: launched.append(arguments), metadata)
        x = torch.zeros(16, 16).half()
        tile = TensorDescriptor(x, x.shape, x.stride(), [16, 16])
        plan = EncodedPlan(Launch(kernel, (2,), (3,), {"BLOCK": 16}), [tile, tile, None])
        return plan, kernel, launched, encoded

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == "shared"]:
        monkeypatch.delitem(sys.modules, name)


def drawn(count):
    return [torch.randn(16, 16).half() for _ in range(count)]


def test_descriptors_are_encoded_once_for_the_same_addresses(made):
    plan, kernel, launched, encoded = made()
    a, b, c = drawn(3)
    for _ in range(4):
        plan(a, b)
    assert kernel.asked == 1  # the call that compiles
    assert encoded == [a.data_ptr(), b.data_ptr()]
    assert launched == [launched[0]] * 3
    plan(a, c)
    plan(a, b)
    assert encoded == [x.data_ptr() for x in (a, b, a, c)]
    assert str(c.data_ptr()) in str(launched[3])
    assert launched[4] == launched[0]


def test_another_stream_gets_its_own_launch(made):
    plan, _, launched, _ = made()
    a, b = drawn(2)
    streams = [7, 7, 8, 8, 7]
    plan(a, b)
    for stream in streams:
        plan.launch.active.get_current_stream = lambda device, stream=stream: stream
        plan(a, b)
    assert [arguments[3] for arguments in launched] == streams


def test_no_tensor_is_held(made):
    plan, _, _, _ = made()
    a, b = drawn(2)
    for _ in range(3):
        plan(a, b)
    held = [weakref.ref(x) for x in (a, b)]
    del a, b
    gc.collect()
    assert not any(x() is not None for x in held)


def test_addresses_that_never_come_again_are_forgotten(made):
    plan, _, launched, _ = made()
    tensors = drawn(300)
    for x in tensors:
        plan(x, x)
    assert len(launched) == 299
    assert len(plan.known) <= 256


def test_a_profiler_and_another_device_get_the_launch_that_asks(made, monkeypatch):
    plan, kernel, launched, _ = made()
    a, b = drawn(2)
    for _ in range(3):
        plan(a, b)
    monkeypatch.setattr(torch.accelerator, "device_index", nullcontext)
    monkeypatch.setattr(plan.launch.active, "get_current_device", lambda: 1)
    plan(a, b)
    assert (kernel.asked, len(launched)) == (2, 2)
    monkeypatch.setattr(plan.launch.active, "get_current_device", lambda: 0)
    monkeypatch.setattr(triton.knobs.runtime.launch_enter_hook, "calls", [print])
    plan(a, b)
    assert (kernel.asked, len(launched)) == (3, 2)


def test_without_encoded_descriptors_each_call_is_launched_as_before(made):
    plan, kernel, _, _ = made(metadata=[])
    a, b = drawn(2)
    for _ in range(3):
        plan(a, b)
    assert not plan.known
    assert kernel.asked == 1


def test_in_a_release_with_other_names_each_call_is_launched_as_before(made):
    plan, kernel, _, _ = made()
    kernel.compiled.run = lambda *arguments: None
    a, b = drawn(2)
    for _ in range(3):
        plan(a, b)
    assert not plan.known
    assert kernel.asked == 1
