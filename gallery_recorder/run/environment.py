"""Which variables a script sees, and which of them its recording keeps.

What a variable can change is either made the same everywhere, taken away, or written down beside
the results that it may have changed. What may be a secret is never handed on, since a script could
print it, and a recording is published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Kept in the provenance: these choose among devices, kernels, numbers and allocators.
_KEPT = re.compile(
    r"(CUDA|CUBLAS|CUDNN|NVIDIA|NVRTC|NCCL|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|HIP|HSA|ROCM|ROCR|ROCBLAS"
    r"|HIPBLASLT|MIOPEN|AMD|AMDGPU|GPU|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|VECLIB|ACCELERATE|LD"
    r"|MALLOC|JEMALLOC|GLIBC|XLA|JAX|LLVM|PTXAS|NPY|NUMBA|CUPY)_.*"
    r"|PYTHON(MALLOC|INTMAXSTRDIGITS|_JIT|_GIL)"
)

#: Taken away: they change what Python executes, prints or checks, whatever the script.
_REMOVED = re.compile(
    r"PYTHON(?!HOME$|USERBASE$|NOUSERSITE$|MALLOC$|INTMAXSTRDIGITS$|_JIT$|_GIL$|PLATLIBDIR$)\w+"
    r"|COV_\w+|COVERAGE_\w+|PYTEST_\w+|MPLBACKEND|MATPLOTLIBRC|FORCE_COLOR|CLICOLOR\w*|LINES|TERM"
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


def kept(environment: Mapping[str, str], more: tuple[str, ...] = ()) -> dict[str, str]:
    """What of a process's *environment* may have changed its results or times; *more* are names."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if (_KEPT.fullmatch(name) or name in more) and not _SECRET.search(name)
    }
