"""The machine that a recording was made on: its GPUs, their state, and the software.

The GPUs are found through NVIDIA's management library, which takes milliseconds. Where it is not
installed, cannot tell (AMD GPUs, partitioned GPUs), or where a variable hides some GPUs, a short
process asks torch instead. This process itself never imports torch to look.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from gallery_recorder.store.recording import INTERPRETER, GpuFacts, GpuState, Provenance

#: The variables that choose which GPUs a process sees.
VISIBLE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that tutorials can be recorded on.

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
    """The GPUs that this process may use, in their order; none where there is none.

    Raises:
        DeviceError: torch is there, and a driver, but torch cannot be asked.
    """
    if not any(os.environ.get(name) is not None for name in VISIBLE_VARIABLES):
        with contextlib.suppress(Exception):  # no library, no driver, or partitioned GPUs
            return _gpus_by_nvml()
    if not (_installed("torch") and _may_have_gpu()):
        return []
    answer = subprocess.run(
        [sys.executable, "-P", "-m", "gallery_recorder.run.provenance"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": python_path()},
    )
    if answer.returncode != 0:
        raise DeviceError(
            f"torch could not be asked which GPUs there are:\n{answer.stderr.strip()}\n"
            "Check the installation of torch, or record with --device cpu."
        )
    return msgspec.json.decode(answer.stdout.strip().splitlines()[-1], type=list[Gpu])


def leased_gpu() -> Gpu | None:
    """The GPU that this process was leased; None where NVIDIA's library cannot tell."""
    with contextlib.suppress(Exception), _nvml() as nvml:
        return _described(nvml, _leased_gpu(nvml), {})
    return None


def python_path() -> str:
    """``PYTHONPATH`` for a process that shall import this package as this one does."""
    own = str(Path(__file__).resolve().parents[2])
    there = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != own]
    return os.pathsep.join([*there, own])


def variables() -> dict[str, str]:
    """The variables of this process that change what Triton does."""
    return {name: v for name, v in sorted(os.environ.items()) if name.startswith("TRITON_")}


def describe(device_name: str, commit: str | None) -> tuple[Provenance, dict[str, Any]]:
    """The provenance of what this process executed, and the software that it used.

    On a GPU, torch must be usable; the interpreter's provenance does without importing it.
    """
    machine = Provenance(
        device=device_name,
        kind="cpu" if device_name == INTERPRETER else "gpu",
        os=_operating_system(),
        python=platform.python_version(),
        versions={"sphinx-gallery": _version("sphinx-gallery")},
        commit=commit,
    )
    software: dict[str, Any] = {
        "triton": _version("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm"),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
        "matplotlib": _version("matplotlib"),
    }
    if device_name == INTERPRETER:
        return machine, software

    import torch

    properties = torch.cuda.get_device_properties(0)
    amd = torch.version.hip is not None
    software["torch"] = str(torch.__version__)  # with the toolkit it was built for
    software["toolkit"] = f"ROCm {torch.version.hip}" if amd else f"CUDA {torch.version.cuda}"
    facts = GpuFacts(
        compute_capability=(
            properties.gcnArchName.split(":")[0]
            if amd
            else f"{properties.major}.{properties.minor}"
        ),
        memory=properties.total_memory,
        multiprocessors=properties.multi_processor_count,
        driver=_driver(),
    )
    return msgspec.structs.replace(machine, gpu=facts), software


def gpu_state(own_processes: int = 0) -> GpuState | None:
    """The state of the GPU that this process was leased; None where the library cannot tell.

    *own_processes* is how many of the processes on the GPU belong to the recorder. (Their ids
    cannot be compared: in a container they are other ones.)
    """
    try:
        with _nvml() as nvml:
            gpu = _leased_gpu(nvml)

            def ask(question: Callable[..., Any], *what: Any) -> Any:
                try:
                    return question(gpu, *what)
                except nvml.NVMLError:  # this GPU does not tell, or not in this container
                    return None

            power = ask(nvml.nvmlDeviceGetPowerUsage)
            processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses)
            return GpuState(
                sm_clock=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
                memory_clock=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
                temperature=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
                power=None if power is None else round(power / 1000),
                throttling=_names_of(ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons), nvml),
                other_processes=(
                    None if processes is None else max(0, len(processes) - own_processes)
                ),
            )
    except Exception:  # there is no such library, or no driver that it works with
        return None


def commit_of(*folders: Path) -> str | None:
    """The commit that *folders* are at, with ``-dirty`` where files in them differ.

    None outside git.
    """

    def git(folder: Path, *arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", folder, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        commit = git(folders[0], "rev-parse", "HEAD")
        dirty = any(git(folder, "status", "--porcelain", "--", ".") for folder in folders)
        return commit + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _operating_system() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError, AttributeError):
        name = platform.system()
    return f"{name}, {platform.system()} {platform.release()}, {platform.machine()}"


def _version(*distributions: str) -> str:
    for name in distributions:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "not installed"


def _installed(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def _may_have_gpu() -> bool:
    """Whether there is a driver, so that importing torch to ask it is worth the seconds."""
    return any(Path(p).exists() for p in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


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


def _gpus_by_nvml() -> list[Gpu]:
    with _nvml() as nvml:
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            # The library counts GPUs by their bus; CUDA does so only when told.
            visible = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(index)}
            found.append(_described(nvml, nvml.nvmlDeviceGetHandleByIndex(index), visible))
        return found


def _described(nvml: Any, gpu: Any, visible: dict[str, str]) -> Gpu:
    with contextlib.suppress(nvml.NVMLError_NotSupported):
        if nvml.nvmlDeviceGetMigMode(gpu)[0]:
            raise RuntimeError("a partitioned GPU: only torch knows its parts")
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(gpu)
    return Gpu(
        name=nvml.nvmlDeviceGetName(gpu),
        identity=nvml.nvmlDeviceGetUUID(gpu),
        visible=visible,
        memory=nvml.nvmlDeviceGetMemoryInfo(gpu).total,
        compute_capability=f"{major}.{minor}",
    )


def _leased_gpu(nvml: Any) -> Any:
    """The GPU that ``CUDA_VISIBLE_DEVICES`` names, by number or by identity."""
    name = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name)


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


# --- asking torch, in a process of its own ----------------------------------------------------


def _gpus_by_torch() -> list[Gpu]:
    import torch

    amd = torch.version.hip is not None
    variable = "HIP_VISIBLE_DEVICES" if amd else "CUDA_VISIBLE_DEVICES"
    shown = [name for name in os.environ.get(variable, "").split(",") if name]
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        name = shown[index] if index < len(shown) else str(index)
        found.append(
            Gpu(
                name=properties.name,
                identity=str(getattr(properties, "uuid", name)),
                visible={variable: name},
                memory=properties.total_memory,
                compute_capability=None if amd else f"{properties.major}.{properties.minor}",
            )
        )
    return found


if __name__ == "__main__":
    print(json.dumps(msgspec.to_builtins(_gpus_by_torch())))
