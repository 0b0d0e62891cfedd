"""The description of GPUs and their state, with a made-up management library."""

# ruff: noqa: N815
# (the names are NVIDIA's)

import sys
from types import ModuleType, SimpleNamespace

import pytest

from gallery_recorder.project.needs import Gpu
from gallery_recorder.project.variables import VISIBLE_VARIABLES
from gallery_recorder.run import gpus
from gallery_recorder.store.format import GpuFacts, GpuState


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

    def __init__(self):
        super().__init__("pynvml")
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
        self.nvmlDeviceGetComputeRunningProcesses = lambda gpu: ["one", "other"]
        self.nvmlSystemGetDriverVersion = lambda: "580.1"


@pytest.fixture
def nvml(monkeypatch):
    for name in VISIBLE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    monkeypatch.setitem(sys.modules, "pynvml", found := Nvml())
    return found


def test_gpus_are_found_without_torch(nvml):
    visible = [
        {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": number} for number in "01"
    ]
    assert gpus.find_gpus() == [
        Gpu("NVIDIA H200", f"GPU-{number}", visible[number], 150_000_000_000, "9.0")
        for number in range(2)
    ]
    assert gpus.facts() == GpuFacts("9.0", 150_000_000_000, driver="580.1")


@pytest.mark.parametrize(
    ("chosen", "found"), [("1", ["1"]), ("GPU-1,GPU-0", ["GPU-1", "GPU-0"]), ("", [])]
)
def test_only_the_gpus_in_cuda_visible_devices_are_used(nvml, monkeypatch, chosen, found):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert [gpu.visible["CUDA_VISIBLE_DEVICES"] for gpu in gpus.find_gpus()] == found


def test_the_state_is_that_of_the_leased_gpu(nvml, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    reasons = ("power cap", "hardware thermal slowdown")
    assert gpus.state() == GpuState(1980, 3201, 41, 120, reasons, other_processes=2)

    def refuse(*_):
        raise nvml.NVMLError

    nvml.nvmlDeviceGetPowerUsage = nvml.nvmlDeviceGetComputeRunningProcesses = refuse
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = refuse
    assert gpus.state() == GpuState(1980, 3201, 41)


def test_amd_gpus_are_read_from_the_kernel(nvml, monkeypatch, tmp_path):
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


def test_without_a_driver_there_is_no_gpu(nvml, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(gpus, "KFD", tmp_path / "none")
    assert (gpus.find_gpus(), gpus.facts(), gpus.state()) == ([], None, None)
