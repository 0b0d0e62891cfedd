"""What no kernel can exceed: rates above a device's physical ceiling are a broken timer's.

The numbers are the makers' own, for dense products. A rate of memory is held against the bandwidth
of the device's memory, since every timed call begins with a cold cache; a rate of arithmetic, in a
file with ``fp8`` in its name, against that of 8 bits, and else against that of 16.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

#: A measured rate may exceed a ceiling by rounding and by clocks above the nominal ones.
TOLERANCE = 1.02


@dataclass(frozen=True)
class Ceiling:
    """GB/s of the memory; TFLOPS of dense products in 16 and in 8 bits; where that is said."""

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
    "NVIDIA A10": Ceiling(600, 125, 250, f"{_NVIDIA}/products/a10-gpu/"),
    "NVIDIA L40S": Ceiling(864, 362, 733, f"{_NVIDIA}/l40s/"),
    "NVIDIA L4": Ceiling(300, 121, 242.5, f"{_NVIDIA}/l4/"),
    "Tesla T4": Ceiling(320, 65, 130, f"{_NVIDIA}/tesla-t4/"),
    "NVIDIA GeForce RTX 4090": Ceiling(
        1008, 330.3, 660.6, "https://www.nvidia.com/en-us/geforce/graphics-cards/40-series/"
    ),
    "AMD Instinct MI300X": Ceiling(
        5300, 1307.4, 2614.9, "https://www.amd.com/en/products/accelerators/instinct/mi300.html"
    ),
    "AMD Instinct MI250X": Ceiling(
        3277, 383, 383, "https://www.amd.com/en/products/accelerators/instinct/mi200.html"
    ),
}

_TERA = {"GFLOPS": 1e-3, "TFLOPS": 1.0, "TFLOP/s": 1.0}
_GIGA = {"GB/s": 1.0, "TB/s": 1e3}


def ceiling_of(device: str) -> Ceiling | None:
    """The ceiling of *device*; None for one that is not in the table."""
    names = [name for name in CEILINGS if device.startswith(name)]
    return CEILINGS[max(names, key=len)] if names else None


def impossible(path: Path, device: str) -> list[str]:
    """What in the benchmark *path* cannot have been measured on *device*, one sentence each."""
    ceiling = ceiling_of(device)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"provider", "unit", "median"} <= rows[0].keys():
        return []
    found = []
    for number, row in enumerate(rows, 2):
        limit = _limit(row["unit"], path.name, ceiling)
        rate = float(row["median"])
        if not math.isfinite(rate) or rate <= 0:
            found.append(f"{path}:{number}: {row['provider']} has {row['median']} {row['unit']}")
        elif limit is not None and rate > TOLERANCE * limit:
            found.append(
                f"{path}:{number}: {row['provider']} has {rate:.4g} {row['unit']}, but {device} "
                f"cannot do more than {limit:.4g} ({ceiling.source if ceiling else ''}); the timer "
                "or the count of bytes or operations is wrong"
            )
    return found


def _limit(unit: str, name: str, ceiling: Ceiling | None) -> float | None:
    if ceiling is None:
        return None
    if unit in _GIGA:
        return ceiling.memory / _GIGA[unit]
    if unit in _TERA:
        return (ceiling.eight_bits if "fp8" in name else ceiling.sixteen_bits) / _TERA[unit]
    return None
