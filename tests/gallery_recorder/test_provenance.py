"""GPUs and their state, with a management library and a torch that are made up."""

# ruff: noqa: N801, N802, N815, N818
# (the names are NVIDIA's)

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from gallery_recorder.run import provenance
from gallery_recorder.run.provenance import Gpu
from gallery_recorder.store.recording import GpuState


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch):
    for name in provenance.VISIBLE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


class Nvml(ModuleType):
    """Two GPUs as ``pynvml`` shows them."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    nvmlClocksThrottleReasonSwPowerCap = 4
    nvmlClocksThrottleReasonHwSlowdown = 8
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80

    class NVMLError(Exception):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    def __init__(self, partitioned=False):
        super().__init__("pynvml")
        self.partitioned = partitioned
        self.nvmlInit = self.nvmlShutdown = lambda: None
        self.nvmlDeviceGetCount = lambda: 2
        self.nvmlDeviceGetHandleByIndex = lambda index: index
        self.nvmlDeviceGetHandleByUUID = lambda uuid: int(uuid[-1])
        self.nvmlDeviceGetName = lambda gpu: "NVIDIA H200"
        self.nvmlDeviceGetUUID = lambda gpu: f"GPU-{gpu}"
        self.nvmlDeviceGetCudaComputeCapability = lambda gpu: (9, 0)
        self.nvmlDeviceGetMemoryInfo = lambda gpu: SimpleNamespace(total=150_000_000_000)
        self.nvmlDeviceGetClockInfo = lambda gpu, kind: 1980 if kind == 1 else 3201
        self.nvmlDeviceGetTemperature = lambda gpu, kind: 40 + gpu
        self.nvmlDeviceGetPowerUsage = lambda gpu: 120_400
        self.nvmlDeviceGetCurrentClocksThrottleReasons = lambda gpu: 1 | 4 | 0x40
        self.nvmlDeviceGetComputeRunningProcesses = lambda gpu: ["own", "other"]
        self.nvmlSystemGetDriverVersion = lambda: "580.1"

    def nvmlDeviceGetMigMode(self, gpu):
        if self.partitioned:
            return (1, 1)
        raise self.NVMLError_NotSupported


def fake_torch(hip=None):
    properties = SimpleNamespace(
        name="AMD Instinct MI300X" if hip else "NVIDIA H200",
        total_memory=192_000_000_000,
        major=9,
        minor=4,
        uuid="abc",
        multi_processor_count=304,
        gcnArchName="gfx942:sramecc+:xnack-",
    )
    torch = ModuleType("torch")
    torch.__version__ = "2.11.0+cu130"
    torch.version = SimpleNamespace(hip=hip, cuda=None if hip else "13.0")
    torch.cuda = SimpleNamespace(
        device_count=lambda: 2, get_device_properties=lambda index: properties
    )
    return torch


def test_gpus_are_found_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it would fail
    assert provenance.find_gpus() == [
        Gpu(
            "NVIDIA H200",
            f"GPU-{index}",
            {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(index)},
            150_000_000_000,
            "9.0",
        )
        for index in range(2)
    ]


@pytest.mark.parametrize("why", ["hidden", "partitioned", "no library"])
def test_else_torch_is_asked_in_another_process(monkeypatch, why):
    if why == "hidden":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setitem(sys.modules, "pynvml", None if why == "no library" else Nvml(True))
    monkeypatch.setattr(provenance, "_may_have_gpu", lambda: True)
    asked = []

    def run(command, **options):
        asked.append((command, options["env"]["PYTHONPATH"]))
        told = '[{"name": "X", "identity": "i", "visible": {"A": "1"}, "memory": 5}]'
        return SimpleNamespace(returncode=0, stdout=f"a warning\n{told}\n", stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    assert provenance.find_gpus() == [Gpu("X", "i", {"A": "1"}, 5)]
    assert asked[0][0][-2:] == ["-m", "gallery_recorder.run.provenance"]


def test_a_torch_that_cannot_be_asked_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(provenance, "_may_have_gpu", lambda: True)
    broken = SimpleNamespace(returncode=1, stdout="", stderr="ImportError: libcuda\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: broken)
    with pytest.raises(provenance.DeviceError, match="ImportError: libcuda\nCheck the install"):
        provenance.find_gpus()


def test_without_a_driver_torch_is_not_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(provenance, "_may_have_gpu", lambda: False)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: 1 / 0)
    assert provenance.find_gpus() == []


@pytest.mark.parametrize(
    ("hip", "shown", "visible", "capability"),
    [
        (None, None, [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}], "9.4"),
        (None, "5,3", [{"CUDA_VISIBLE_DEVICES": "5"}, {"CUDA_VISIBLE_DEVICES": "3"}], "9.4"),
        ("6.4", "2,7", [{"HIP_VISIBLE_DEVICES": "2"}, {"HIP_VISIBLE_DEVICES": "7"}], None),
    ],
)
def test_what_torch_says(monkeypatch, hip, shown, visible, capability):
    monkeypatch.setitem(sys.modules, "torch", fake_torch(hip))
    if shown:
        monkeypatch.setenv("HIP_VISIBLE_DEVICES" if hip else "CUDA_VISIBLE_DEVICES", shown)
    found = provenance._gpus_by_torch()
    assert [gpu.visible for gpu in found] == visible
    assert {gpu.compute_capability for gpu in found} == {capability}


def test_the_state_of_the_leased_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    state = provenance.gpu_state(own_processes=1)
    assert (state.sm_clock, state.memory_clock, state.temperature, state.power) == (
        *(1980, 3201),
        41,
        120,
    )
    assert state.throttling == ("power cap", "hardware thermal slowdown")
    assert state.other_processes == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0")
    assert provenance.gpu_state().temperature == 40
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert provenance.gpu_state() is None


def test_what_the_gpu_does_not_tell_is_left_out(monkeypatch):
    nvml = Nvml()

    def refuse(*_):
        raise nvml.NVMLError_NotSupported

    nvml.nvmlDeviceGetPowerUsage = nvml.nvmlDeviceGetComputeRunningProcesses = refuse
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = refuse
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert provenance.gpu_state() == GpuState(1980, 3201, 40)


def test_the_provenance_of_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    made = provenance.describe("NVIDIA H200", "abc")
    assert (made.kind, made.device, made.compute_capability) == ("gpu", "NVIDIA H200", "9.4")
    assert (made.toolkit, made.driver, made.multiprocessors) == ("CUDA 13.0", "580.1", 304)
    assert (made.commit, made.torch) == ("abc", "2.11.0+cu130")
    monkeypatch.setitem(sys.modules, "torch", fake_torch("6.4"))
    made = provenance.describe("AMD Instinct MI300X", None)
    assert (made.compute_capability, made.toolkit) == ("gfx942", "ROCm 6.4")


def test_the_provenance_of_the_interpreter_does_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("TRITON_X", "1")
    made = provenance.describe("interpreter", None)
    assert made.kind == "interpreter"
    assert re.match(r"\d+\.", made.torch)
    assert os.uname().nodename not in made.os.replace("-", " ").split()
    assert provenance.variables()["TRITON_X"] == "1"
    assert provenance._version("no-such-distribution") == "not installed"
