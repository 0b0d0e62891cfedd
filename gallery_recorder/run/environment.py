"""Which variables a script sees, and which of them its recording keeps.

What a variable can change is either made the same everywhere, taken away, or written down beside
the results that it may have changed. What may be a secret is never handed on, since a script could
print it, and a recording is published.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from gallery_recorder.project.galleries import python_path
from gallery_recorder.run.gpus import VISIBLE_VARIABLES
from gallery_recorder.run.keeper import MARK
from gallery_recorder.run.protocol import Run
from gallery_recorder.run.workspace import Workspace

#: Kept in the provenance: these choose among devices, kernels, numbers and allocators.
_KEPT = re.compile(
    r"(CUDA|CUBLAS|CUDNN|NVIDIA|NVRTC|NCCL|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|HIP|HSA|ROCM|ROCR|ROCBLAS"
    r"|HIPBLASLT|MIOPEN|AMD|AMDGPU|GPU|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|VECLIB|ACCELERATE|LD"
    r"|MALLOC|JEMALLOC|GLIBC|XLA|JAX|LLVM|PTXAS|NPY|NUMBA|CUPY|ATEN|C10|DNNL|ONEDNN|NVTE)_.*"
    r"|PYTHON(MALLOC|INTMAXSTRDIGITS|_JIT|_GIL)"
)

#: Taken away: they change what Python executes, prints or checks, whatever the script; or are
#: orders to a container that has long been started, and the name of its image.
_REMOVED = re.compile(
    r"PYTHON(?!HOME$|USERBASE$|NOUSERSITE$|MALLOC$|INTMAXSTRDIGITS$|_JIT$|_GIL$|PLATLIBDIR$)\w+"
    r"|COV_\w+|COVERAGE_\w+|PYTEST_\w+|MPLBACKEND|MATPLOTLIBRC|FORCE_COLOR|CLICOLOR\w*|LINES|TERM"
    r"|NVIDIA_(REQUIRE_\w+|VISIBLE_DEVICES|DRIVER_CAPABILITIES|PRODUCT_NAME)"
)

_SECRET = re.compile(
    r"(^|_)(\w*TOKEN|\w*SECRET|\w*PASSWORD|\w*PASSWD|\w*CREDENTIALS?|(API|ACCESS|AUTH|PRIVATE)_?KEY"
    r"|KEY|COOKIE|PAT|DSN)(_|$)",
    re.IGNORECASE,
)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """What a script's process sees of the recorder's own *environment*."""
    return {
        name: value
        for name, value in environment.items()
        if not _REMOVED.fullmatch(name) and not _SECRET.search(name)
    }


def kept(environment: Mapping[str, str], patterns: Iterable[str] = ()) -> dict[str, str]:
    """What of a process's *environment* may have changed its results or times, or fits *patterns*.

    Which GPU of its machine it was shown changes nothing.
    """
    return {
        name: value
        for name, value in sorted(environment.items())
        if (_KEPT.fullmatch(name) or any(fnmatchcase(name, pattern) for pattern in patterns))
        and name not in {*VISIBLE_VARIABLES, "CUDA_DEVICE_ORDER"}
        and not _SECRET.search(name)
    }


def made_for(run: Run, workspace: Workspace) -> dict[str, str]:
    """The variables of the process: those that are there, less what would change the result."""
    chosen = run.settings.environment
    removed = {name for variables in chosen.values() for name in variables}
    environment = {n: v for n, v in inherited(os.environ).items() if n not in removed}
    environment |= {
        MARK: str(workspace.folder),
        "PYTHONPATH": python_path(),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",  # of C code as well: its output comes in order, crash or not
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "TMPDIR": str(workspace.tmp),
    }
    environment |= run.visible if run.kind == "gpu" else dict.fromkeys(VISIBLE_VARIABLES, "")
    return environment | chosen[run.kind]
