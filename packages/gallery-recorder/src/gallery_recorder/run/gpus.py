"""The GPUs of this machine and their state, without a numerical library.

NVIDIA's GPUs are read with nvidia-ml-py. AMD's are read from Linux; amdsmi, part of ROCm, has their
names.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.needs import Gpu
from gallery_recorder.store.format import GpuFacts, GpuState

#: Where the kernel describes AMD's GPUs.
KFD = Path("/sys/class/kfd/kfd/topology/nodes")

#: Reasons for lower clocks; their names in NVIDIA's library begin and end as follows.
_REASON = "nvmlClocksThrottleReason"
_THROTTLING = {
    "power cap": "SwPowerCap",
    "hardware slowdown": "HwSlowdown",
    "software thermal slowdown": "SwThermalSlowdown",
    "hardware thermal slowdown": "HwThermalSlowdown",
    "power brake": "HwPowerBrakeSlowdown",
}


class DeviceError(RecorderError):
    """The requested device, or cluster, cannot be used."""


def find_gpus() -> list[Gpu]:
    """The GPUs that this process may use, in the driver's order."""
    for found in (_nvidia_gpus, _amd_gpus):
        with contextlib.suppress(Exception):  # no library, no driver, or no GPU of this vendor
            if gpus := found():
                return gpus
    return []


def leased_gpu() -> Gpu | None:
    """The first GPU that this process may use; None without a GPU."""
    return next(iter(find_gpus()), None)


def facts() -> GpuFacts | None:
    """The properties of the leased GPU; None without a GPU."""
    gpu = leased_gpu()
    if gpu is None:
        return None
    driver = None
    with contextlib.suppress(Exception), _nvml() as nvml:  # AMD's driver is part of Linux
        driver = nvml.nvmlSystemGetDriverVersion()
    return GpuFacts(compute_capability=gpu.compute_capability, memory=gpu.memory, driver=driver)


def state() -> GpuState | None:
    """Clocks, temperature, power and use of the leased GPU; None if the driver does not say."""
    try:
        with _nvml() as nvml:
            gpu = _visible(nvml)[0][0]

            def ask(question: str, *what: Any) -> Any:
                return _ask(nvml, f"nvmlDeviceGet{question}", gpu, *what)

            power, processes = ask("PowerUsage"), ask("ComputeRunningProcesses")
            reasons = ask("CurrentClocksThrottleReasons") or 0
            others = None if processes is None else max(0, len(processes) - uses_gpu())
            held = [n for n, r in _THROTTLING.items() if reasons & getattr(nvml, _REASON + r)]
            return GpuState(
                sm_clock=ask("ClockInfo", nvml.NVML_CLOCK_SM),
                memory_clock=ask("ClockInfo", nvml.NVML_CLOCK_MEM),
                temperature=ask("Temperature", nvml.NVML_TEMPERATURE_GPU),
                power=None if power is None else round(power / 1000),  # from mW
                throttling=tuple(held),
                other_processes=others,
            )
    except Exception:  # no library, or no driver
        return None


def uses_gpu() -> bool:
    """Whether this process uses the GPU; in a container the driver's process ids are no help."""
    folder = Path("/proc/self/fd")
    opened = map(os.path.realpath, folder.iterdir() if folder.is_dir() else ())
    return any(path.startswith(("/dev/nvidia-uvm", "/dev/kfd")) for path in opened)


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    import pynvml  # from the package nvidia-ml-py

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _ask(nvml: Any, question: str, *what: Any) -> Any:
    """The library's answer; None if this GPU or container does not support the question."""
    try:
        return getattr(nvml, question)(*what)
    except nvml.NVMLError:
        return None


def _nvidia_gpus() -> list[Gpu]:
    with _nvml() as nvml:
        found = []
        for gpu, visible in _visible(nvml):
            name, identity = nvml.nvmlDeviceGetName(gpu), nvml.nvmlDeviceGetUUID(gpu)
            memory = nvml.nvmlDeviceGetMemoryInfo(gpu).total
            capability = _ask(nvml, "nvmlDeviceGetCudaComputeCapability", gpu) or ()
            version = ".".join(map(str, capability)) or None
            found.append(Gpu(name, identity, visible, memory, version))
        return found


def _visible(nvml: Any) -> list[tuple[Any, dict[str, str]]]:
    """The GPUs in ``CUDA_VISIBLE_DEVICES``, or all, each with the variables that select it."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        chosen = ",".join(map(str, range(nvml.nvmlDeviceGetCount())))
    found: list[tuple[Any, dict[str, str]]] = []
    for name in filter(None, chosen.split(",")):
        if name.isdigit():
            gpu = nvml.nvmlDeviceGetHandleByIndex(int(name))
            # The library numbers GPUs by their bus; CUDA does so only on request.
            visible = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": name}
        else:
            gpu = nvml.nvmlDeviceGetHandleByUUID(name)
            visible = {"CUDA_VISIBLE_DEVICES": name}
        found.append((gpu, visible))
    return found


def _amd_gpus() -> list[Gpu]:
    names: list[str] = []
    with contextlib.suppress(Exception):  # no library, or no driver that it works with
        import amdsmi

        amdsmi.amdsmi_init()
        handles = amdsmi.amdsmi_get_processor_handles()
        names = [amdsmi.amdsmi_get_gpu_asic_info(gpu)["market_name"] for gpu in handles]
        amdsmi.amdsmi_shut_down()
    found: list[Gpu] = []
    nodes = sorted((p for p in KFD.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    for node in nodes:
        properties = dict(re.findall(r"^(\S+) (.+)$", (node / "properties").read_text(), re.M))
        if properties.get("simd_count", "0") == "0":
            continue  # a CPU
        version = int(properties.get("gfx_target_version", 0))
        chip = f"AMD gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        banks = "\n".join(bank.read_text() for bank in (node / "mem_banks").glob("*/properties"))
        memory = sum(map(int, re.findall(r"^size_in_bytes (\d+)", banks, re.M)))
        number = len(found)
        name = names[number] if number < len(names) else chip
        identity = properties.get("unique_id", node.name)
        found.append(Gpu(name, identity, {"HIP_VISIBLE_DEVICES": str(number)}, memory))
    chosen = os.environ.get("HIP_VISIBLE_DEVICES")
    if chosen is None:
        return found
    return [found[int(n)] for n in chosen.split(",") if n.isdigit() and int(n) < len(found)]
