"""What a plan keeps of a launch, with Triton's launcher and without a GPU."""

import gc
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from gallery_kernels.launch import DescribedLaunch, Launch, Plans, describable, layout_of

nvidia = pytest.importorskip("triton.backends.nvidia.driver")


@pytest.fixture
def gpu(monkeypatch):
    """A driver whose current device is 0 and whose current stream is 7."""
    active = MagicMock(get_current_device=lambda: 0, get_current_stream=lambda device: 7)
    monkeypatch.setattr(type(triton.runtime.driver), "active", active)
    monkeypatch.setattr(torch.accelerator, "device_index", nullcontext)
    return active


class Compiled:
    """What Triton returns: it unloads its code when nobody holds it."""

    function, packed_metadata = "code", ()

    def __init__(self, launched, unloaded):
        self.run = lambda *arguments: launched.append(arguments)
        self.unloaded = unloaded

    def __del__(self):
        self.unloaded.append(self.function)


def test_the_code_of_a_kept_launch_is_not_unloaded_with_the_kernel_that_triton_forgets(gpu):
    launched, unloaded = [], []

    class Kernel:
        arg_names = ("x_ptr",)

        def __getitem__(self, grid):
            return lambda *arguments, **constants: Compiled(launched, unloaded)

    kept = Launch(Kernel(), (1,), (), {})
    kept(torch.zeros(1))
    gc.collect()
    kept(torch.zeros(1))
    assert len(launched) == 1
    assert not unloaded


@pytest.mark.parametrize("grid", [(1, 65_536), (1, 1, 70_000)])
def test_a_grid_that_the_hardware_refuses_is_refused_by_name(grid):
    with pytest.raises(ValueError, match="too many on axis 1 or 2"):
        Launch(None, grid, (), {})
    Launch(None, (2**31 - 1,), (), {})


class Kernel:
    """A kernel whose launcher is Triton's, down to the function of the driver."""

    arg_names = ("a_desc", "b_desc", "c_ptr", "n", "BLOCK")

    def __init__(self, driver, metadata=None):
        signature = dict.fromkeys(self.arg_names[:2], "tensordesc<fp16[16, 16]>")
        signature |= {"c_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
        metadata = [{}, {}] if metadata is None else metadata
        run = object.__new__(nvidia.CudaLauncher)
        names = ["global_scratch_size", "global_scratch_align", "profile_scratch_size"]
        names += ["profile_scratch_align", "launch_cooperative_grid", "launch_pdl", "gsan_enabled"]
        run.__dict__.update(dict.fromkeys(names, 0))
        run.num_ctas, run.arg_annotations, run.kernel_signature = 1, [], b""
        run.launch = nvidia.wrap_handle_tensordesc(driver, signature, metadata)
        self.compiled = SimpleNamespace(
            run=run,
            function=5,
            packed_metadata=(4, 1, 0),
            metadata=SimpleNamespace(tensordesc_meta=metadata),
        )
        self.asked = 0

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            self.asked += 1
            return self.compiled

        return launch


@pytest.fixture
def made(monkeypatch, gpu):
    """Return ``made()``: a described launch, its kernel, what was launched, and encoded."""
    launched, encoded = [], []

    def encode(descriptor, *_):
        encoded.append(descriptor.base.data_ptr())
        return [f"map of {descriptor.base.data_ptr()}", *descriptor.shape, *descriptor.strides]

    monkeypatch.setattr(nvidia, "make_tensordesc_arg", encode)

    def make(metadata=None):
        kernel = Kernel(lambda *arguments: launched.append(arguments), metadata)
        x = torch.zeros(16, 16).half()
        tile = TensorDescriptor(x, x.shape, x.stride(), [16, 16])
        launch = DescribedLaunch(Launch(kernel, (2,), (3,), {"BLOCK": 16}), [tile, tile])
        return launch, kernel, launched, encoded

    return make


def tensors(count):
    return [torch.randn(16, 16).half() for _ in range(count)]


def test_descriptors_are_encoded_once_for_the_same_addresses(made):
    launch, kernel, launched, encoded = made()
    a, b, c, pointer = tensors(4)
    for _ in range(4):
        launch((a, b), pointer)
    assert kernel.asked == 1  # the call that compiles
    assert encoded == [a.data_ptr(), b.data_ptr()]
    assert launched == [launched[0]] * 3
    launch((a, c), pointer)
    launch((a, b), pointer)
    assert encoded == [x.data_ptr() for x in (a, b, a, c)]
    assert str(c.data_ptr()) in str(launched[3])
    assert launched[4] == launched[0]


def test_another_pointer_gets_its_own_launch(made):
    launch, _, launched, _ = made()
    a, b, one, other = tensors(4)
    for pointer in (one, one, other, one, other):
        launch((a, b), pointer)
    for arguments, pointer in zip(launched, (one, other, one, other), strict=True):
        assert pointer.data_ptr() in arguments[-1]


def test_another_stream_gets_its_own_launch(made):
    launch, _, launched, _ = made()
    a, b, pointer = tensors(3)
    streams = [7, 7, 8, 8, 7]
    launch((a, b), pointer)
    for stream in streams:
        launch.launch.active.get_current_stream = lambda device, stream=stream: stream
        launch((a, b), pointer)
    assert [arguments[3] for arguments in launched] == streams


def test_no_tensor_is_held(made):
    launch, _, _, _ = made()
    a, b, pointer = tensors(3)
    for _ in range(3):
        launch((a, b), pointer)
    held = [weakref.ref(x) for x in (a, b, pointer)]
    del a, b, pointer
    gc.collect()
    assert not any(x() is not None for x in held)


def test_addresses_that_never_come_again_are_forgotten(made):
    launch, _, launched, _ = made()
    for x in (many := tensors(600)):
        launch((x, x), x)
    assert len(launched) == len(many) - 1
    assert len(launch.encoded) <= launch.MOST_ADDRESSES


def test_a_profiler_and_another_device_get_the_launch_that_asks(made, monkeypatch):
    launch, kernel, launched, _ = made()
    a, b, pointer = tensors(3)
    for _ in range(3):
        launch((a, b), pointer)
    monkeypatch.setattr(launch.launch.active, "get_current_device", lambda: 1)
    launch((a, b), pointer)
    assert (kernel.asked, len(launched)) == (2, 2)
    monkeypatch.setattr(launch.launch.active, "get_current_device", lambda: 0)
    monkeypatch.setattr(triton.knobs.runtime.launch_enter_hook, "calls", [print])
    launch((a, b), pointer)
    assert (kernel.asked, len(launched)) == (3, 2)


def test_without_encoded_descriptors_each_call_is_launched_as_before(made):
    launch, kernel, _, _ = made(metadata=[])
    a, b, pointer = tensors(3)
    for _ in range(3):
        launch((a, b), pointer)
    assert not launch.encoded
    assert kernel.asked == 1


def test_in_a_release_with_other_names_each_call_is_launched_as_before(made):
    launch, kernel, _, _ = made()
    kernel.compiled.run = lambda *arguments: None
    a, b, pointer = tensors(3)
    for _ in range(3):
        launch((a, b), pointer)
    assert not launch.encoded
    assert kernel.asked == 1


def test_plans_begin_anew_after_a_thousand_shapes():
    plans = Plans()
    for i in range(2500):
        plans.keep(i, i)
    assert len(plans) <= Plans.MOST
    assert plans.get(2499) == 2499


def test_a_layout_tells_shapes_strides_dtypes_and_alignment_apart():
    x = torch.zeros(64)
    others = [x[:48].view(6, 8), x[:48].view(8, 6).T, x[1:49].view(6, 8), x[:48].view(6, 8).int()]
    assert len({layout_of(other) for other in others}) == 4
    assert layout_of(x[:4]) == layout_of(x[4:8])


@pytest.mark.parametrize(
    ("x", "copied"),
    [
        (torch.zeros(3, 16), False),
        (torch.zeros(3, 32)[:, :16], False),
        (torch.zeros(3, 17)[:, :16], True),
        (torch.zeros(16, 3).T, True),
        (torch.zeros(1, 16).expand(3, 16), True),
        (torch.zeros(49)[1:].view(3, 16), True),
    ],
)
def test_what_no_descriptor_can_describe_is_copied(x, copied):
    y = describable(x)
    assert (y is not x) == copied
    assert torch.equal(x, y)
    strides = [stride * y.element_size() for stride in y.stride()[:-1]]
    assert all(stride > 0 and stride % 16 == 0 for stride in strides)
    assert y.stride(-1) == 1
