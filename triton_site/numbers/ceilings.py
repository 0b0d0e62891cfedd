"""Physical ceilings of devices: a rate above them comes from a broken timer.

The numbers are the makers' own, for dense products. The ceiling of a rate in bytes is the bandwidth
of the device's memory, because every timed call begins with a cold cache. Cross-entropy's rates
count three transfers, as PyTorch needs them, where two can suffice. The ceiling of a rate of
arithmetic is that of 8 bits in a file with ``fp8`` in its name, and else that of 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gallery_recorder.store import benchmarks

#: A measured rate may exceed a ceiling by rounding and by clocks above the nominal ones.
TOLERANCE = 1.02


@dataclass(frozen=True)
class Ceiling:
    """GB/s of the memory, TFLOPS of dense products in 16 and in 8 bits, and the source."""

    memory: float
    sixteen_bits: float
    eight_bits: float
    source: str


_NVIDIA = "https://www.nvidia.com/en-us/data-center"

#: By the beginning of a device's name; the longest that fits counts.
CEILINGS = {
    "NVIDIA H200": Ceiling(4800, 989.5, 1979, f"{_NVIDIA}/h200/"),
    "NVIDIA H100": Ceiling(3350, 989.5, 1979, f"{_NVIDIA}/h100/"),
    "NVIDIA H100 PCIe": Ceiling(2000, 756.5, 1513, f"{_NVIDIA}/h100/"),
    "NVIDIA H100 NVL": Ceiling(3900, 835.5, 1671, f"{_NVIDIA}/h100/"),
    "NVIDIA GH200": Ceiling(4900, 989.5, 1979, f"{_NVIDIA}/grace-hopper-superchip/"),
    "NVIDIA B200": Ceiling(8000, 2250, 4500, f"{_NVIDIA}/dgx-b200/"),
    "NVIDIA A100": Ceiling(2039, 312, 624, f"{_NVIDIA}/a100/"),
    "NVIDIA L40S": Ceiling(864, 362, 733, f"{_NVIDIA}/l40s/"),
    "NVIDIA GeForce RTX 4090": Ceiling(
        1008, 330.3, 660.6, "https://www.nvidia.com/en-us/geforce/graphics-cards/40-series/"
    ),
    "AMD Instinct MI300X": Ceiling(
        5300, 1307.4, 2614.9, "https://www.amd.com/en/products/accelerators/instinct/mi300.html"
    ),
}

_TERA = {"GFLOPS": 1e-3, "TFLOPS": 1.0, "TFLOP/s": 1.0}
_GIGA = {"GB/s": 1.0, "TB/s": 1e3}


def ceiling_of(device: str) -> Ceiling | None:
    """The ceiling of *device*; None for one that is not in the table."""
    names = [name for name in CEILINGS if device.startswith(name)]
    return CEILINGS[max(names, key=len)] if names else None


def impossible(path: Path, device: str) -> list[str]:
    """The rates in the benchmark *path* that *device* cannot reach, a sentence each.

    Raises:
        BenchmarkError: the file cannot be read as a benchmark.
    """
    ceiling = ceiling_of(device)
    return [
        f"{path}: {provider} has {rate.median:.4g} {rate.unit} at {size}, but {device} cannot do "
        f"more than {limit:.4g} ({ceiling.source}); the timer or the count of bytes or operations "
        "is wrong"
        for provider, sizes in benchmarks.read(path).items()
        for size, rate in sizes.items()
        if ceiling and (limit := _limit(rate.unit, path.name, ceiling))
        if rate.median > TOLERANCE * limit
    ]


def _limit(unit: str, name: str, ceiling: Ceiling) -> float | None:
    if unit in _GIGA:
        counted = 1.5 if name.startswith("cross-entropy") else 1.0
        return counted * ceiling.memory / _GIGA[unit]
    if unit in _TERA:
        return (ceiling.eight_bits if "fp8" in name else ceiling.sixteen_bits) / _TERA[unit]
    return None
