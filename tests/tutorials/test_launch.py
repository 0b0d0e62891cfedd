"""A launch that is kept must go on working, whatever Triton forgets."""

import gc
import runpy
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch

LAUNCH = Path(__file__).parents[2] / "tutorials/shared/launch.py"


def test_the_code_of_a_kept_launch_is_not_unloaded_with_the_kernel_that_triton_forgets(monkeypatch):
    unloaded, launched = [], []

    class Compiled:
        """What Triton returns: it unloads its code when nobody holds it."""

        function, packed_metadata = "code", ()
        run = staticmethod(lambda *arguments: launched.append(arguments))

        def __del__(self):
            unloaded.append(self.function)

    class Kernel:
        arg_names = ("x_ptr",)

        def __getitem__(self, grid):
            return lambda *arguments, **constants: Compiled()

    active = MagicMock(get_current_device=lambda: 0, get_current_stream=lambda device: 7)
    runtime = SimpleNamespace(driver=SimpleNamespace(active=active))
    hooks = SimpleNamespace(runtime=SimpleNamespace(launch_enter_hook=SimpleNamespace(calls=[])))
    names = runpy.run_path(str(LAUNCH))
    given = SimpleNamespace(runtime=runtime, knobs=hooks)
    monkeypatch.setitem(names["Launch"].__call__.__globals__, "triton", given)
    kept = names["Launch"](Kernel(), (1,), (), {})
    kept(torch.zeros(1))
    gc.collect()
    kept(torch.zeros(1))
    assert len(launched) == 1
    assert not unloaded
