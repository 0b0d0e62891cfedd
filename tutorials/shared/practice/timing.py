"""The time of an answer on a GPU, beside that of our solution and of PyTorch."""

import base64
import json
import sys
import tempfile
import zlib
from pathlib import Path

from shared.practice.compare import shown
from shared.practice.exercises import EXERCISES

SOLUTIONS = ""  # in the assembled file: what our solutions consist of, compressed


def solution(name):
    """Our function for an exercise, or None."""
    texts = json.loads(zlib.decompress(base64.b85decode(SOLUTIONS))) if SOLUTIONS else {}
    if name not in texts:
        return None
    module = type(sys)(f"solution_{name.replace('-', '_')}")
    # Triton reads the source of a kernel in its file.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{module.__name__}.py")
        path.write_text(texts[name])
        sys.modules[module.__name__] = module
        exec(compile(texts[name], str(path), "exec"), vars(module))
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
