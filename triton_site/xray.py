"""X-ray, the probe: what the compiler made of each kernel that a script runs.

Triton calls a hook after each compilation. For each compiled kernel the probe notes registers,
spills, shared memory, warps, stages, occupancy and instructions; for each kernel function it keeps
the intermediate code of one variant: TTGIR and PTX, or AMDGCN. This is the variant that a cell asks
for (:mod:`triton_site.launches`), or else the :func:`typical` one. The facts are in the recording,
the code is beside it in :data:`FILE_NAME`.

The probe never ends a script: what it cannot read, it leaves out.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gallery_recorder.api import recording, seam
from triton_site import launches, xray_data
from triton_site.xray_data import FILE_NAME, MAX_CODE

#: Characters of the intermediate code of all kernels of a script; longer code is cut.
MAX_ALL = 2_500_000

#: What each instruction of PTX says about a kernel, by the beginning of its name.
INSTRUCTIONS = {
    "wgmma.mma_async": "tensor cores, a group of four warps at a time (wgmma)",
    "tcgen05.mma": "tensor cores, with a memory of their own (tcgen05)",
    "mma.sync": "tensor cores, a warp at a time (mma)",
    "cp.async.bulk": "whole tiles by descriptor (TMA)",
    "cp.async.c": "asynchronous copies to shared memory (cp.async)",
    "ld.global": "loads from global memory",
    "st.global": "stores to global memory",
    "ld.shared": "loads from shared memory",
    "ldmatrix": "loads of tiles from shared memory (ldmatrix)",
    "st.shared": "stores to shared memory",
    "shfl.sync": "exchanges between threads of a warp",
    "bar.sync": "barriers for all warps of a program",
    "atom.": "atomic operations",
    "red.": "atomic operations without a result",
    "ld.local": "reloads of spilled registers",
    "ex2.": "exponentials",
}


#: Programs on a multiprocessor at most, by compute capability; PyTorch does not know them.
_MOST_PROGRAMS = {(7, 0): 32, (8, 0): 32, (8, 6): 16, (8, 9): 24, (9, 0): 32, (10, 0): 32}


class kernels:  # noqa: N801 - its name is the name in the recordings
    """Facts about every kernel that the script compiled, and the code of one of each name."""

    def __init__(self) -> None:
        self._compiled: list[Any] = []  # (function, compiled kernel), not noted yet
        self._facts: list[dict[str, Any]] = []
        self._kernels: list[Any] = []  # that they are about
        self._numbers: dict[int, int] = {}  # of the facts, by the driver's handle of the kernel
        self._code: dict[str, dict[str, Any]] = {}
        self._wanted: dict[str, str] = {}  # by this cell: the shape of each kernel
        self._last = launches.LastLaunches()
        self._launched: dict[str, dict[str, Any]] = {}
        self._hooked = False

    def before_block(self, code: str = "") -> None:
        """Hook into Triton as soon as the script has imported it; look at launches if asked to."""
        self._hook()
        self._wanted = launches.wanted(seam.settings_in(code).get("xray"))
        if self._wanted and self._hooked:
            self._last.watch()

    def after_block(self) -> None:
        """Note the kernels that the block launched for the first time."""
        self._last.stop()
        self._hook()
        # A kernel that was compiled ahead is launched later: only then are its registers known.
        launched: list[Any] = []
        waiting: list[Any] = []
        for made in self._compiled:
            (waiting if getattr(made[1], "n_regs", None) is None else launched).append(made)
        self._compiled = waiting
        before = len(self._facts)
        for function, kernel in launched:
            with contextlib.suppress(Exception):
                facts = facts_of(function, kernel, _device_limits())
                if facts not in self._facts:
                    self._facts.append(facts)
                    self._kernels.append(kernel)
                self._numbers[getattr(kernel, "function", id(kernel))] = self._facts.index(facts)
        self._note_last()
        with contextlib.suppress(Exception):
            changed = [facts["name"] for facts in self._facts[before:]] + list(self._wanted)
            for name in dict.fromkeys(changed):
                if variants := [facts for facts in self._facts if facts["name"] == name]:
                    self._keep_code(name, typical(variants))
            if changed:
                save(Path(FILE_NAME), self._code)

    def _note_last(self) -> None:
        """Note the variant that the block launched last, of each kernel that it names."""
        for name, shape in self._wanted.items():
            own = {h: n for h, n in self._numbers.items() if self._facts[n]["name"] == name}
            last = self._last.last_of(own)
            self._launched[name] = {"shape": shape, "kernel": None if last is None else own[last]}

    def _keep_code(self, name: str, facts: dict[str, Any]) -> None:
        number = self._launched.get(name, {}).get("kernel")
        if number is None:
            number = self._facts.index(facts)
        self._code[name] = {"facts": self._facts[number]} | code_of(self._kernels[number])

    def provenance(self) -> dict[str, Any]:
        """The facts, in the order of compilation, and the last launches that cells ask for."""
        found: dict[str, Any] = {"kernels": self._facts}
        return found | ({"launched": self._launched} if self._launched else {})

    @staticmethod
    def check(folder: Path, made: Any) -> None:
        """Raise ReadingError if facts or code of the recording *made* in *folder* are damaged."""
        xray_data.read(recording.files_of(folder, made), made.probes)

    def _hook(self) -> None:
        knobs = sys.modules.get("triton.knobs")
        if self._hooked or knobs is None or not hasattr(knobs.runtime, "jit_post_compile_hook"):
            return
        self._hooked = True
        before = knobs.runtime.jit_post_compile_hook

        def compiled(**told: Any) -> Any:
            with contextlib.suppress(Exception):
                function = told["fn"].jit_function
                device = told["compile"]["device"]
                kernel = function.device_caches[device][0][told["key"]]
                self._compiled.append((function, kernel))
            return before(**told) if before else None

        knobs.runtime.jit_post_compile_hook = compiled
        _accept_functions(sys.modules.get("triton.runtime.jit"))


def configuration(constants: dict[str, Any], warps: int, stages: int | None) -> str:
    """What the author of a launch chooses, as a text to compare.

    Arguments that are None or 1 are compiled in, too, but are nobody's choice.
    """
    chosen = {name: value for name, value in constants.items() if value not in (None, 1)}
    return f"{chosen} {warps} {stages}"


def typical(variants: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of the facts of a kernel's *variants* the first with the most frequent configuration.

    Triton compiles a configuration again for each kind of arguments, so the one that a script uses
    most has the most variants. Counting launches would slow them down.
    """
    keys = [configuration(f["constants"], f["warps"], f["stages"]) for f in variants]
    return variants[keys.index(Counter(keys).most_common(1)[0][0])]


def _accept_functions(jit: Any) -> None:
    """Let Triton 3.6 compile a kernel with a function among its constants while a hook is set.

    It writes all constants as JSON for the hook, and a function would end the script.
    """
    written = getattr(jit, "serialize_specialization_data", None)
    if written is None:
        return

    def serialize(*args: Any) -> str:
        try:
            return str(written(*args))
        except TypeError:
            return ""

    jit.serialize_specialization_data = serialize


def facts_of(function: Any, kernel: Any, limits: dict[str, int]) -> dict[str, Any]:
    """The facts of a compiled *kernel* of the jit-compiled *function*, as JSON can hold them."""
    metadata = kernel.metadata
    constants = {}
    for place, value in kernel.src.constants.items():
        index = place[0] if isinstance(place, tuple) else place
        name = function.arg_names[index] if isinstance(index, int) else str(index)
        if isinstance(value, int | float | str | None) and len(str(value)) < 40:
            constants[name] = value
    return {
        "name": function.__name__,
        "line": function.starting_line_number,
        "constants": constants,
        "warps": metadata.num_warps,
        "stages": getattr(metadata, "num_stages", None),
        "registers": kernel.n_regs,
        "spills": kernel.n_spills,
        "shared": metadata.shared,
        "bytes": len(kernel.asm.get("cubin") or kernel.asm.get("hsaco") or b""),
        "occupancy": occupancy(kernel.n_regs, metadata.shared, metadata.num_warps, limits),
        "instructions": instructions(kernel.asm.get("ptx", "")),
    }


def instructions(ptx: str) -> dict[str, int]:
    """The number of each of :data:`INSTRUCTIONS` in the code *ptx*."""
    found = dict.fromkeys(INSTRUCTIONS, 0)
    for line in ptx.splitlines():
        words = line.split()
        if words and words[0].startswith("@"):
            words = words[1:]
        for name in INSTRUCTIONS if words else ():
            if words[0].startswith(name):
                found[name] += 1
                break
    return {name: count for name, count in found.items() if count}


def occupancy(
    registers: int, shared: int, warps: int, limits: dict[str, int]
) -> dict[str, Any] | None:
    """Programs that fit on a multiprocessor, and the resource that limits them.

    NVIDIA allocates the registers of a warp in units of 256, in the quarter of the multiprocessor
    that executes the warp, and 1 KiB of shared memory more than a program asks for. None where the
    limits of the GPU are unknown.
    """
    if not limits.get("warps"):
        return None
    room = {"warps": limits["warps"] // warps}
    if limits.get("programs"):
        room["programs"] = limits["programs"]
    if registers and limits.get("registers"):
        of_warp = -(-registers * 32 // 256) * 256
        room["registers"] = 4 * (limits["registers"] // of_warp // 4) // warps
    if shared and limits.get("shared"):
        room["shared memory"] = limits["shared"] // (shared + 1024)
    limit = min(room, key=lambda name: room[name])
    return {
        "programs": room[limit],
        "warps": room[limit] * warps,
        "of": limits["warps"],
        "limit": limit,
    }


def _device_limits() -> dict[str, int]:
    """The resources of a multiprocessor of an NVIDIA GPU; empty for other GPUs."""
    torch = sys.modules.get("torch")
    if torch is None or torch.version.hip or not torch.cuda.is_available():
        return {}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    generation = getattr(properties, "major", 0), getattr(properties, "minor", 0)
    return {
        "programs": _MOST_PROGRAMS.get(generation, 0),
        "warps": getattr(properties, "max_threads_per_multi_processor", 0) // 32,
        "registers": getattr(properties, "regs_per_multiprocessor", 0),
        "shared": getattr(properties, "shared_memory_per_multiprocessor", 0),
    }


def code_of(kernel: Any) -> dict[str, str]:
    """The stages of a compiled *kernel* that are available."""
    stages = {name: kernel.asm.get(name) for name in ("ttgir", "ptx", "amdgcn")}
    return {name: shortened(lean(text)) for name, text in stages.items() if text}


def lean(text: str) -> str:
    """Intermediate code without folders of the machine and tables for debuggers."""
    text = re.sub(r'"(?:[^"\n]*/)([^"/\n]+)"', r'"\1"', text)
    text = re.sub(r"^\s*\.section\s+\.debug_\w+\s*\{.*?^\s*\}\n?", "", text, flags=re.M | re.S)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def shortened(text: str) -> str:
    """*text*, or its beginning where it is longer than :data:`MAX_CODE`."""
    if len(text) <= MAX_CODE:
        return text
    return f"{text[:MAX_CODE].rpartition(chr(10))[0]}\n… {len(text)} characters in all\n"


def save(path: Path, code: dict[str, dict[str, Any]]) -> None:
    """Write *code* to *path*: the same code gives the same bytes on every machine."""
    kept, size = {}, 0
    for name, entry in reversed(code.items()):
        size += sum(len(text) for text in entry.values() if isinstance(text, str))
        kept[name] = entry if size <= MAX_ALL else {"facts": entry["facts"]}
    content = json.dumps(dict(reversed(kept.items())), ensure_ascii=False).encode()
    path.write_bytes(gzip.compress(content, 9, mtime=0))
