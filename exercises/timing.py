"""The time of an answer on a GPU, beside that of our solution and of PyTorch."""

import importlib.util
import pkgutil
import sys
import tempfile
from pathlib import Path

from exercises.compare import shown
from exercises.table import EXERCISES


def solution(name):
    """Our function for an exercise; None if there is none beside this module.

    ``exercise.pyz`` has the solutions in its folder ``exercises/solutions``.
    """
    try:
        text = pkgutil.get_data("exercises", f"solutions/{name}.py")
    except OSError:
        return None
    # Triton reads the source of a kernel in its file, so the solution needs one.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"solution_{name.replace('-', '_')}.py")
        path.write_bytes(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return getattr(module, EXERCISES[name].name)


def compare_speed(name, module):
    """Print how long an answer takes for large arguments, beside our solution and PyTorch."""
    import torch
    from triton.testing import do_bench

    exercise = EXERCISES[name]
    if exercise.large is None:
        return
    torch.use_deterministic_algorithms(False)  # else new memory is filled, which takes time
    arguments = exercise.large(torch.accelerator.current_accelerator())
    calls = {
        "yours": getattr(module, exercise.name),
        "ours": solution(name),
        "PyTorch": exercise.pytorch,
    }
    times = {}
    for who, call in calls.items():
        if call is not None:
            times[who] = do_bench(lambda c=call: exercise.use(c, arguments), return_mode="median")
    shapes = ", ".join(shown(value) for value in arguments)
    text = ", ".join(f"{who} {ms:.4f} ms" for who, ms in times.items())
    print(f"On {torch.get_device_module().get_device_name()}, for {shapes}: {text}.")
