"""The GPUs of a machine and their state, as their drivers tell, without a library that computes.

NVIDIA's are asked through NVIDIA's management library (the package nvidia-ml-py), AMD's through
AMD's (the package amdsmi, which comes with ROCm), or else read from what the kernel shows.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.needs import Gpu
from gallery_recorder.store.format import GpuFacts, GpuState

#: The variables that choose which GPUs a process sees.
VISIBLE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

#: Where the kernel shows AMD's GPUs.
KFD = Path("/sys/class/kfd/kfd/topology/nodes")


class DeviceError(RecorderError):
    """The device that was asked for cannot be used."""


def find_gpus() -> list[Gpu]:
    """The GPUs that this process may use, in their order; none where there is none."""
    for found in (_nvidia_gpus, _amd_gpus):
        with contextlib.suppress(Exception):  # no library, no driver, or none of this vendor
            if gpus := found():
                return gpus
    return []


def leased_gpu() -> Gpu | None:
    """The GPU that this process was leased; None where there is none, or nobody can tell."""
    return next(iter(find_gpus()), None)


def facts() -> GpuFacts | None:
    """What the GPU is that this process was leased; None where nobody can tell."""
    gpu = leased_gpu()
    if gpu is None:
        return None
    return GpuFacts(compute_capability=gpu.compute_capability, memory=gpu.memory, driver=_driver())


def state() -> GpuState | None:
    """The state of the GPU that this process was leased; None where nobody can tell."""
    try:
        with _nvml() as nvml:
            gpu = _visible(nvml)[0][0]

            def ask(question: str, *what: Any) -> Any:
                return _ask(nvml, f"nvmlDeviceGet{question}", gpu, *what)

            power, processes = ask("PowerUsage"), ask("ComputeRunningProcesses")
            reasons = ask("CurrentClocksThrottleReasons") or 0
            return GpuState(
                sm_clock=ask("ClockInfo", nvml.NVML_CLOCK_SM),
                memory_clock=ask("ClockInfo", nvml.NVML_CLOCK_MEM),
                temperature=ask("Temperature", nvml.NVML_TEMPERATURE_GPU),
                power=None if power is None else round(power / 1000),
                throttling=tuple(
                    name
                    for name, reason in _THROTTLING.items()
                    if reasons & getattr(nvml, f"nvmlClocksThrottleReason{reason}")
                ),
                other_processes=(
                    None if processes is None else max(0, len(processes) - _uses_gpu())
                ),
            )
    except Exception:  # there is no such library, or no driver that it works with
        return None


def _uses_gpu() -> bool:
    """Whether this process computes on a GPU: then it is one of those that the driver counts.

    (Process ids cannot be compared: in a container they are other ones.)
    """
    opened = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor that lists the folder is closed by now
            opened.append(os.readlink(path))
    return any(name.startswith(("/dev/nvidia-uvm", "/dev/kfd")) for name in opened)


def _driver() -> str | None:
    # Without the library the GPU is AMD's, whose driver is a part of the kernel, or has no version.
    with contextlib.suppress(Exception), _nvml() as nvml:
        return nvml.nvmlSystemGetDriverVersion()
    return _text(Path("/sys/module/amdgpu/version")).strip() or None


# --- NVIDIA's management library ----------------------------------------------------------------

#: The reasons for which the driver holds the clocks down, as the library calls them.
_THROTTLING = {
    "power cap": "SwPowerCap",
    "hardware slowdown": "HwSlowdown",
    "software thermal slowdown": "SwThermalSlowdown",
    "hardware thermal slowdown": "HwThermalSlowdown",
    "power brake": "HwPowerBrakeSlowdown",
}


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    import pynvml  # the module that nvidia-ml-py installs

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _ask(nvml: Any, question: str, *what: Any) -> Any:
    """What the library answers; None where this GPU does not tell, or not in this container."""
    try:
        return getattr(nvml, question)(*what)
    except nvml.NVMLError:  # of no use to tell: the recording says nothing of it
        return None


def _nvidia_gpus() -> list[Gpu]:
    with _nvml() as nvml:
        return [
            Gpu(
                name=nvml.nvmlDeviceGetName(gpu),
                identity=nvml.nvmlDeviceGetUUID(gpu),
                visible=visible,
                memory=nvml.nvmlDeviceGetMemoryInfo(gpu).total,
                compute_capability=".".join(
                    map(str, _ask(nvml, "nvmlDeviceGetCudaComputeCapability", gpu) or ())
                )
                or None,
            )
            for gpu, visible in _visible(nvml)
        ]


def _visible(nvml: Any) -> list[tuple[Any, dict[str, str]]]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` names, or all, each with its own such variables.

    A partitioned GPU (MIG) stands for its partitions.
    """
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    everyone = range(nvml.nvmlDeviceGetCount()) if said is None else ()
    found = []
    for name in [name for name in (said or "").split(",") if name] or map(str, everyone):
        # The library counts GPUs by their bus; CUDA does so only when told.
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if name.isdigit() else {}
        if name.isdigit():
            gpu = nvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            gpu = nvml.nvmlDeviceGetHandleByUUID(name)
        parts = []
        if not name.startswith("MIG") and (_ask(nvml, "nvmlDeviceGetMigMode", gpu) or [0])[0]:
            places = range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu))
            parts = [_ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, n) for n in places]
        found += [
            (part, {"CUDA_VISIBLE_DEVICES": nvml.nvmlDeviceGetUUID(part)})
            for part in parts
            if part is not None
        ] or [(gpu, order | {"CUDA_VISIBLE_DEVICES": name})]
    return found


# --- AMD ------------------------------------------------------------------------------------------


def _amd_gpus() -> list[Gpu]:
    names = _amd_names()
    found: list[Gpu] = []
    nodes = sorted((p for p in KFD.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    for node in nodes:
        properties = dict(re.findall(r"^(\S+) (.+)$", _text(node / "properties"), re.M))
        if properties.get("simd_count", "0") == "0":
            continue  # a CPU
        version = int(properties.get("gfx_target_version", 0))
        chip = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        banks = [_text(bank) for bank in (node / "mem_banks").glob("*/properties")]
        memory = sum(
            int(n) for bank in banks for n in re.findall(r"^size_in_bytes (\d+)", bank, re.M)
        )
        number = len(found)
        name = names[number] if number < len(names) else f"AMD {chip}"
        identity = properties.get("unique_id", node.name)
        found.append(Gpu(name, identity, {"HIP_VISIBLE_DEVICES": str(number)}, memory))
    said = os.environ.get("HIP_VISIBLE_DEVICES")
    if said is None:
        return found
    return [found[int(n)] for n in said.split(",") if n.isdigit() and int(n) < len(found)]


def _amd_names() -> list[str]:
    """What AMD's library calls the GPUs; nothing where it is not installed."""
    try:
        import amdsmi

        amdsmi.amdsmi_init()
        try:
            handles = amdsmi.amdsmi_get_processor_handles()
            return [amdsmi.amdsmi_get_gpu_asic_info(gpu)["market_name"] for gpu in handles]
        finally:
            amdsmi.amdsmi_shut_down()
    except Exception:  # no such library, or no driver that it works with; the kernel tells enough
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # this kernel does not show it
        return ""
