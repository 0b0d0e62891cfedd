"""Run the kernels in Triton's interpreter, unless there is a GPU; fill new memory with NaN."""

import os
from collections.abc import Iterator

import pytest
import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported


@pytest.fixture(autouse=True)
def reproducible() -> Iterator[None]:
    """Draw the same random numbers, whichever tests ran before; fill new memory with NaN."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def device(request) -> Iterator[torch.device]:
    """The GPU of a test marked *gpu*, otherwise the device where the kernels run here."""
    if not ON_GPU:
        if request.node.get_closest_marker("gpu"):
            pytest.skip("there is no GPU; in the interpreter these sizes would take hours")
        yield torch.device("cpu")
        return
    device = torch.accelerator.current_accelerator()
    block = torch.full((2**28,), torch.nan, device=device)  # memory that PyTorch hands out next
    del block
    yield torch.device(device.type, 0)
    torch.accelerator.synchronize()
    torch.cuda.empty_cache()
