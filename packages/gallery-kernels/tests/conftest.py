"""Run the kernels in Triton's interpreter or, with ``-m gpu``, on a GPU."""

import os
from collections.abc import Iterator

import pytest
import torch


def pytest_configure(config: pytest.Config) -> None:
    """Decide where kernels run, before Triton is imported."""
    on_gpu = config.option.markexpr == "gpu"
    os.environ.setdefault("TRITON_INTERPRET", "0" if on_gpu else "1")


@pytest.fixture(autouse=True)
def reproducible() -> Iterator[None]:
    """Draw the same random numbers, whichever tests ran before; fill new memory with NaN."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["interpreter", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Where the tensors of a test lie: its kernels run in the interpreter, or on a GPU."""
    if request.param == "interpreter":
        yield torch.device("cpu")
        return
    yield from gpu_device()


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    """The GPU of a test that only a GPU can show."""
    yield from gpu_device()


def gpu_device() -> Iterator[torch.device]:
    """Give the GPU to a test. PyTorch hands out memory full of NaN next, so gaps show."""
    if not torch.accelerator.is_available():
        pytest.skip("there is no GPU")
    device = torch.device(torch.accelerator.current_accelerator().type, 0)
    block = torch.full((2**28,), torch.nan, device=device)
    del block
    yield device
    torch.accelerator.synchronize()
    torch.cuda.empty_cache()
