"""Time a kernel of yours with every setting, on two releases of Triton, and compare.

    python sweep_settings.py kernel.py one.csv           # in the environment with one release
    python sweep_settings.py kernel.py two.csv           # in the environment with the other one
    python sweep_settings.py --compare one.csv two.csv

``kernel.py`` defines ``SETTINGS``, such as ``{"BLOCK": [512, 1024], "num_warps": [4, 8]}``, and
``call(**settings)``, which launches the kernel once and may return what the launch returns. It may
define ``check()``, which raises where the last result is wrong. Settings that fail are written with
their error. The comparison names the best settings of each release, and what each costs on the
other one. Exit status: 0; 1 if the best of the first release loses five percent or more on the
second one; 2 for wrong usage.
"""

import csv
import importlib.util
import itertools
import sys
from pathlib import Path

COLUMNS = ["release", "gpu", "settings", "ms", "registers", "spills", "shared", "error"]
LOSS = 1.05


def load(path):
    """Return the module in the file *path*, which has SETTINGS and call."""
    if Path(path).suffix == ".ipynb":
        raise UsageError(f"{path} is a notebook: save the cells of the kernel as a .py file")
    spec = importlib.util.spec_from_file_location("swept", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["swept"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} cannot be executed: {type(error).__name__}: {error}") from error
    for name in ("SETTINGS", "call"):
        if not hasattr(module, name):
            raise UsageError(f"{path} does not define {name}")
    return module


def sweep(module):
    """Yield a row of COLUMNS for each combination of the module's SETTINGS."""
    import torch
    import triton

    if not torch.accelerator.is_available():
        raise UsageError("PyTorch finds no GPU here, and a sweep measures times on one")
    gpu = torch.get_device_module().get_device_name()
    for values in itertools.product(*module.SETTINGS.values()):
        settings = dict(zip(module.SETTINGS, values, strict=True))
        row = {"release": triton.__version__, "gpu": gpu, "settings": words(settings)}
        try:
            compiled = module.call(**settings)
            if hasattr(module, "check"):
                module.check()
            row["ms"] = triton.testing.do_bench(
                lambda s=settings: module.call(**s), return_mode="median"
            )
            row["registers"] = getattr(compiled, "n_regs", "")
            row["spills"] = getattr(compiled, "n_spills", "")
            row["shared"] = getattr(getattr(compiled, "metadata", None), "shared", "")
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        print(row["settings"], row.get("error") or f"{row['ms']:.4f} ms", sep=": ", flush=True)
        yield row


def words(settings):
    """Return settings as a text."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


class UsageError(Exception):
    """A file or a GPU is not there, or a file is not what it should be: one line says so."""


def read(path):
    """Return ``release on GPU``, and {settings: row} of those that ran."""
    try:
        with open(path, newline="") as file:
            table = csv.DictReader(file)
            rows = list(table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        text = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {text}") from error
    missing = [name for name in COLUMNS[:4] if name not in (table.fieldnames or [])]
    if missing:
        raise UsageError(f"{path} is no table of this script: it has no column {missing[0]}")
    if not rows:
        raise UsageError(f"{path} has no rows")
    ran = {row["settings"]: row for row in rows if row["ms"]}
    if not ran:
        raise UsageError(f"{path}: no setting ran")
    for row in ran.values():
        if not is_number(row["ms"]):
            raise UsageError(f"{path}: {row['ms']!r} is no time in milliseconds")
    return f"{rows[0]['release']} on {rows[0]['gpu']}", ran


def is_number(text):
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def compare(one, other):
    """Print what the best settings of each file cost on the other; return the first one's loss."""
    (name, first), (other_name, second) = read(one), read(other)
    losses = []
    for here, there, mine, theirs in (
        (name, other_name, first, second),
        (other_name, name, second, first),
    ):
        best = min(mine, key=lambda settings: float(mine[settings]["ms"]))
        print(f"best with {here}: {best}, {float(mine[best]['ms']):.4f} ms{made(mine[best])}")
        if best not in theirs:
            print(f"  with {there} it does not run")
            losses.append(float("inf"))
            continue
        fastest = min(float(row["ms"]) for row in theirs.values())
        losses.append(float(theirs[best]["ms"]) / fastest)
        print(
            f"  with {there} it takes {float(theirs[best]['ms']):.4f} ms{made(theirs[best])}, "
            f"{losses[-1]:.2f} times the best there"
        )
    return losses[0]


def made(row):
    """Return what the compiler made, in words."""
    parts = [f"{row[name]} {name}" for name in COLUMNS[4:7] if row.get(name)]
    return f" ({', '.join(parts)})" if parts else ""


def main(arguments):
    """Sweep or compare; return the exit status."""
    try:
        if len(arguments) == 3 and arguments[0] == "--compare":
            return int(compare(*arguments[1:]) >= LOSS)
        if len(arguments) != 2 or arguments[0].startswith("-"):
            print(__doc__, file=sys.stderr)
            return 2
        return write_sweep(*arguments)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


def write_sweep(kernel, target):
    """Time the kernel in the file *kernel* with all settings, and write the rows to *target*."""
    if not Path(kernel).is_file():
        raise UsageError(f"there is no file {kernel}")
    rows = sweep(load(kernel))
    first = next(rows, None)  # before the file is touched: there may be no GPU
    if first is None:
        raise UsageError(f"{kernel}: SETTINGS has no combination")
    with open(target, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerow(first)
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
