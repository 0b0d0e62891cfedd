"""GPUs and their state, with a management library that is made up."""

# ruff: noqa: N801, N802, N815, N818
# (the names are NVIDIA's)

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from gallery_recorder.project.needs import Gpu
from gallery_recorder.run import gpus
from gallery_recorder.store.format import GpuState


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch):
    for name in gpus.VISIBLE_VARIABLES:
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


def test_gpus_are_found_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it would fail
    assert gpus.find_gpus() == [
        Gpu(
            "NVIDIA H200",
            f"GPU-{index}",
            {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(index)},
            150_000_000_000,
            "9.0",
        )
        for index in range(2)
    ]


def test_the_variable_that_hides_gpus_is_followed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (only,) = gpus.find_gpus()
    assert only.identity == "GPU-1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0,GPU-1")
    assert [gpu.visible for gpu in gpus.find_gpus()] == [
        {"CUDA_VISIBLE_DEVICES": "GPU-0"},
        {"CUDA_VISIBLE_DEVICES": "GPU-1"},
    ]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.find_gpus() == []


def test_a_partitioned_gpu_stands_for_its_parts(monkeypatch):
    nvml = Nvml(True)
    nvml.nvmlDeviceGetMaxMigDeviceCount = lambda gpu: 7

    def part(gpu, index):
        if index > 1:
            raise nvml.NVMLError
        return 10 * (gpu + 1) + index

    nvml.nvmlDeviceGetMigDeviceHandleByIndex = part
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert [gpu.visible["CUDA_VISIBLE_DEVICES"] for gpu in gpus.find_gpus()] == ["GPU-10", "GPU-11"]


def test_amd_gpus_are_read_from_what_the_kernel_shows(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setattr(gpus, "KFD", tmp_path)
    for number, simds in enumerate((0, 304, 304)):
        node = tmp_path / str(number)
        (node / "mem_banks" / "0").mkdir(parents=True)
        (node / "mem_banks" / "0" / "properties").write_text("size_in_bytes 192000000000\n")
        (node / "properties").write_text(
            f"simd_count {simds}\ngfx_target_version 90402\nunique_id {number}5\n"
        )
    assert gpus.find_gpus() == [
        Gpu("AMD gfx942", f"{number + 1}5", {"HIP_VISIBLE_DEVICES": str(number)}, 192_000_000_000)
        for number in range(2)
    ]
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert [gpu.identity for gpu in gpus.find_gpus()] == ["25"]


def test_without_a_driver_there_is_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(gpus, "KFD", tmp_path / "none")
    assert gpus.find_gpus() == []
    assert gpus.facts() is None


def test_the_state_of_the_leased_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    state = gpus.state()
    assert (state.sm_clock, state.memory_clock, state.temperature, state.power) == (
        *(1980, 3201),
        41,
        120,
    )
    assert state.throttling == ("power cap", "hardware thermal slowdown")
    assert state.other_processes == 2  # this process computes on no GPU
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0")
    assert gpus.state().temperature == 40
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpus.state() is None


def test_what_the_gpu_does_not_tell_is_left_out(monkeypatch):
    nvml = Nvml()

    def refuse(*_):
        raise nvml.NVMLError_NotSupported

    nvml.nvmlDeviceGetPowerUsage = nvml.nvmlDeviceGetComputeRunningProcesses = refuse
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = refuse
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert gpus.state() == GpuState(1980, 3201, 40)


def test_the_facts_of_the_leased_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    found = gpus.facts()
    assert (found.compute_capability, found.memory) == ("9.0", 150_000_000_000)
    assert found.driver == "580.1"
