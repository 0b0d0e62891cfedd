"""The environment variables that an example gets, and those that its recording keeps.

A variable that can change results is set to the same value everywhere, removed, or recorded. A
variable that looks like a secret is neither passed on nor recorded, since recordings are published.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from gallery_recorder.project.variables import (
    FIXED,
    REMOVED,
    SECRET,
    VISIBLE_VARIABLES,
    inherited,
)
from gallery_recorder.run.protocol import Run
from gallery_recorder.run.workspace import Workspace

#: Recorded: variables that select devices, kernels, number formats and allocators.
_KEPT = re.compile(
    r"(CUDA|CUBLAS|CUDNN|NVIDIA|NVRTC|NCCL|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|HIP|HSA|ROCM|ROCR|ROCBLAS"
    r"|HIPBLASLT|MIOPEN|AMD|AMDGPU|GPU|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|LD"
    r"|MALLOC|JEMALLOC|GLIBC|XLA|JAX|LLVM|PTXAS|NPY|NUMBA|CUPY|ATEN|C10|DNNL|ONEDNN|NVTE)_.*"
    r"|PYTHON(MALLOC|INTMAXSTRDIGITS|_JIT|_GIL)"
)


def kept(environment: Mapping[str, str], patterns: Iterable[str] = ()) -> dict[str, str]:
    """The variables that may change results or times, and those that match *patterns*.

    Which of several equal GPUs is visible changes nothing, so these variables are left out.
    """
    return {
        name: value
        for name, value in sorted(environment.items())
        if (_KEPT.fullmatch(name) or any(fnmatchcase(name, pattern) for pattern in patterns))
        and name not in {*VISIBLE_VARIABLES, "CUDA_DEVICE_ORDER"}
        and not SECRET.search(name)
    }


#: The variable that numerical libraries read, if their own is not set, when they are loaded.
_THREADS = "OMP_NUM_THREADS"


def of_conf(threads: int | None = None) -> dict[str, str]:
    """The environment of the process that reads conf.py, which may need a secret.

    Examples get it, too. *threads* are those of numerical libraries, unless the variable is set.
    """
    kept = {n: v for n, v in os.environ.items() if not REMOVED.fullmatch(n)}
    if threads is not None:
        kept.setdefault(_THREADS, str(threads))
    return kept | FIXED | {"PYTHONPATH": _python_path()}


def enter(
    run: Run, workspace: Workspace, given: Mapping[str, str], changed: Mapping[str, str | None]
) -> None:
    """Replace this process's environment by the worker's.

    conf.py was read in the environment *given* and *changed* some variables.
    """
    chosen = run.settings.environment
    removed = {name for variables in chosen.values() for name in variables}
    made = {n: v for n, v in inherited(given).items() if n not in removed}
    made |= FIXED | {"PYTHONPATH": given["PYTHONPATH"], "TMPDIR": str(workspace.tmp)}
    made |= run.visible if run.kind == "gpu" else dict.fromkeys(VISIBLE_VARIABLES, "")
    made |= chosen.get(run.kind, {})
    os.environ.clear()
    os.environ.update({n: v for n, v in {**made, **changed}.items() if v is not None})
    tempfile.tempdir = None  # conf.py may have cached its own


def _python_path() -> str:
    """``PYTHONPATH`` for a process that imports the same packages as this one."""
    own = str(Path(__file__).resolve().parents[2])
    there = [str(Path(p or ".").resolve()) for p in sys.path if p in ("", os.getcwd())]
    there += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return os.pathsep.join(dict.fromkeys([*there, own]))
