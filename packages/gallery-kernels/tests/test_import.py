"""What happens when the package is imported: nothing is asked of a device."""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"

PROGRAM = """
import sys, torch, triton
sys.path.insert(0, {source!r})

def refuse(*arguments, **settings):
    raise SystemExit("a device was asked at import")

for module in (torch.cuda, torch.accelerator):
    for name in ("current_device", "current_accelerator", "get_device_properties",
                 "get_device_capability", "is_available", "device_count"):
        if hasattr(module, name):
            setattr(module, name, refuse)
import gallery_kernels
"""


def test_no_device_is_asked_at_import():
    """Another device than the current one may get the tensors, and a fork would lose CUDA."""
    program = PROGRAM.format(source=str(SOURCE))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
