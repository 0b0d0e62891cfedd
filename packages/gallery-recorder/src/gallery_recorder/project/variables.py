"""Environment variables: which an example gets, and which are inputs of its recording."""

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from gallery_recorder.project.settings import Settings

#: The variables that limit which GPUs a process sees.
VISIBLE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
#: Different in each run.
_OWN = {*VISIBLE_VARIABLES, "CUDA_DEVICE_ORDER", "PYTHONPATH", "TMPDIR"}

#: Removed: settings of Python, test tools, terminals and containers.
REMOVED = re.compile(
    r"PYTHON(?!HOME$|USERBASE$|NOUSERSITE$|MALLOC$|INTMAXSTRDIGITS$|_JIT$|_GIL$|PLATLIBDIR$)\w+"
    r"|COV_\w+|COVERAGE_\w+|PYTEST_\w+|MPLBACKEND|MATPLOTLIBRC|FORCE_COLOR|CLICOLOR\w*|LINES|TERM"
    r"|NVIDIA_(REQUIRE_\w+|VISIBLE_DEVICES|DRIVER_CAPABILITIES|PRODUCT_NAME)"
)

#: Names of secrets: ``DB_PASS`` and ``MYSQL_PWD``, not ``LLVM_PASS_PLUGIN_PATH`` and ``PWD``.
SECRET = re.compile(
    r"(^|_)(\w*(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|COOKIE|JWT)S?|CREDS|PATS?|DSN"
    r"|(API|ACCESS|AUTH|PRIVATE|SECRET|SIGNING|ENCRYPTION)?KEYS?)(_|$)"
    r"|(^|_)(DB|SSH)?PASS$|_PWD$|_AUTH$",
    re.IGNORECASE,
)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the recorder's *environment* that examples get."""
    return {
        name: value
        for name, value in environment.items()
        if not REMOVED.fullmatch(name) and not SECRET.search(name)
    }


#: Set for every example, and for conf.py.
FIXED = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "PYTHONUNBUFFERED": "1",  # keeps output in order with that of C code, even in a crash
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "COLUMNS": "80",
    "NO_COLOR": "1",
}


def named_in(refresh: Iterable[str]) -> list[str]:
    """The variables in ``gallery_refresh``, written as ``"$NAME"``."""
    return [name[1:] for name in refresh if name.startswith("$")]


def inputs(values: Mapping[str, str], said: Settings) -> dict[str, str | None]:
    """The variables that are inputs, of an example's *values*; None for one that is not set."""
    found: dict[str, str | None] = dict.fromkeys(named_in(said.refresh))
    for name, value in values.items():
        is_named = any(fnmatchcase(name, pattern) for pattern in said.variables)
        if is_named and name not in _OWN and not SECRET.search(name):
            found[name] = value
    return dict(sorted(found.items()))


def of_example_here(said: Settings, kind: str) -> dict[str, str]:
    """The variables that an example on a *kind* of device would get on this machine."""
    chosen = {name for names in said.environment.values() for name in names}
    found = {name: v for name, v in inherited(os.environ).items() if name not in chosen}
    own: dict[str, str] = {**said.environment}.get(kind, {})  # type: ignore[call-overload]
    return found | FIXED | own
