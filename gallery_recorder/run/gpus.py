"""The GPUs of a machine and their state, as their drivers tell, without a library that computes.

NVIDIA's are asked through NVIDIA's management library (the package nvidia-ml-py), AMD's through
AMD's (the package amdsmi, which comes with ROCm), or else read from what the kernel shows.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gallery_recorder.store.recording import GpuFacts, GpuState

#: The variables that choose which GPUs a process sees.
VISIBLE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

#: Where the kernel shows AMD's GPUs.
KFD = Path("/sys/class/kfd/kfd/topology/nodes")


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that scripts can be recorded on.

    ``visible`` are the variables that show a process this GPU and no other, ``identity`` tells it
    from every other GPU of the machine, ``memory`` is in bytes.
    """

    name: str
    identity: str
    visible: dict[str, str]
    memory: int
    compute_capability: str | None = None


class DeviceError(Exception):
    """The device that was asked for cannot be used; says why and what to do."""


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

            def ask(question: Callable[..., Any], *what: Any) -> Any:
                try:
                    return question(gpu, *what)
                except nvml.NVMLError:  # this GPU does not tell, or not in this container
                    return None

            power = ask(nvml.nvmlDeviceGetPowerUsage)
            processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses)
            others = None if processes is None else max(0, len(processes) - _uses_gpu())
            return GpuState(
                sm_clock=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
                memory_clock=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
                temperature=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
                power=None if power is None else round(power / 1000),
                throttling=_names_of(ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons), nvml),
                other_processes=others,
            )
    except Exception:  # there is no such library, or no driver that it works with
        return None


def _uses_gpu() -> bool:
    """Whether this process computes on a GPU: then it is one of those that the driver counts.

    (Process ids cannot be compared: in a container they are other ones.)
    """
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(path).startswith(("/dev/nvidia-uvm", "/dev/kfd")):
                return True
    return False


def _driver() -> str | None:
    with contextlib.suppress(Exception), _nvml() as nvml:
        return nvml.nvmlSystemGetDriverVersion()
    for path, pattern in (
        ("/proc/driver/nvidia/version", r"Kernel Module(?: for \S+)?\s+(\d+\.[\d.]+)"),
        ("/sys/module/amdgpu/version", r"(\S+)"),
    ):
        with contextlib.suppress(OSError):
            if match := re.search(pattern, Path(path).read_text()):
                return match.group(1)
    return None


# --- NVIDIA's management library ----------------------------------------------------------------


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    import pynvml  # the module that nvidia-ml-py installs

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _nvidia_gpus() -> list[Gpu]:
    with _nvml() as nvml:
        return [_described(nvml, gpu, visible) for gpu, visible in _visible(nvml)]


def _visible(nvml: Any) -> list[tuple[Any, dict[str, str]]]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` names, or all, each with its own such variables.

    A partitioned GPU (MIG) stands for its partitions.
    """
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is None:
        names = [str(index) for index in range(nvml.nvmlDeviceGetCount())]
    else:
        names = [name for name in said.split(",") if name]
    found = []
    for name in names:
        # The library counts GPUs by their bus; CUDA does so only when told.
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if name.isdigit() else {}
        if name.isdigit():
            gpu = nvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            gpu = nvml.nvmlDeviceGetHandleByUUID(name)
        parts = [] if name.startswith("MIG") else _partitions(nvml, gpu)
        if parts:
            found += [(p, {"CUDA_VISIBLE_DEVICES": nvml.nvmlDeviceGetUUID(p)}) for p in parts]
        else:
            found.append((gpu, order | {"CUDA_VISIBLE_DEVICES": name}))
    return found


def _partitions(nvml: Any, gpu: Any) -> list[Any]:
    try:
        if not nvml.nvmlDeviceGetMigMode(gpu)[0]:
            return []
    except nvml.NVMLError:
        return []
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        with contextlib.suppress(nvml.NVMLError):
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
    return found


def _described(nvml: Any, gpu: Any, visible: dict[str, str]) -> Gpu:
    capability = None
    with contextlib.suppress(nvml.NVMLError):
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(gpu)
        capability = f"{major}.{minor}"
    return Gpu(
        name=nvml.nvmlDeviceGetName(gpu),
        identity=nvml.nvmlDeviceGetUUID(gpu),
        visible=visible,
        memory=nvml.nvmlDeviceGetMemoryInfo(gpu).total,
        compute_capability=capability,
    )


def _names_of(reasons: int | None, nvml: Any) -> tuple[str, ...]:
    """The reasons for which the driver holds the clocks down, by name; idleness is none."""
    names = {
        "power cap": nvml.nvmlClocksThrottleReasonSwPowerCap,
        "hardware slowdown": nvml.nvmlClocksThrottleReasonHwSlowdown,
        "software thermal slowdown": nvml.nvmlClocksThrottleReasonSwThermalSlowdown,
        "hardware thermal slowdown": nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        "power brake": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
    }
    return tuple(name for name, bit in names.items() if (reasons or 0) & bit)


# --- AMD ------------------------------------------------------------------------------------------


def _amd_gpus() -> list[Gpu]:
    names = _amd_names()
    found = []
    for number, node in enumerate(_amd_nodes()):
        properties = dict(
            line.split(maxsplit=1) for line in (node / "properties").read_text().splitlines()
        )
        version = int(properties.get("gfx_target_version", 0))
        chip = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        memory = sum(
            int(size)
            for bank in (node / "mem_banks").glob("*/properties")
            for size in re.findall(r"^size_in_bytes (\d+)", bank.read_text(), re.M)
        )
        name = names[number] if number < len(names) else f"AMD {chip}"
        identity = properties.get("unique_id", node.name)
        found.append(Gpu(name, identity, {"HIP_VISIBLE_DEVICES": str(number)}, memory, None))
    said = os.environ.get("HIP_VISIBLE_DEVICES")
    if said is None:
        return found
    chosen = [name for name in said.split(",") if name.isdigit()]
    return [found[int(name)] for name in chosen if int(name) < len(found)]


def _amd_nodes() -> list[Path]:
    """The nodes of the kernel's list that compute and are no CPUs, in their order."""
    nodes = sorted((p for p in KFD.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    return [
        node for node in nodes if re.search(r"^simd_count [1-9]", _text(node / "properties"), re.M)
    ]


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
    except Exception:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
