"""The timing loop, on a GPU that is slower or faster than Python."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

READING = 1.0


class Queue:
    """A GPU: it does what is queued, one after the other, while Python goes on."""

    def __init__(self) -> None:
        self.python = 0.0  # what time it is
        self.done = 0.0  # when the GPU will have done all that is queued
        self.reads = 0

    def put(self, seconds: float) -> None:
        self.done = max(self.python, self.done) + seconds

    def read(self) -> None:
        self.reads += 1
        self.put(READING)

    def synchronize(self) -> None:
        self.python = max(self.python, self.done)

    def Event(self, enable_timing: bool) -> SimpleNamespace:  # noqa: N802, as PyTorch names it
        assert enable_timing
        event = SimpleNamespace()
        event.record = lambda: setattr(event, "at", max(self.python, self.done))
        event.query = lambda: event.at <= self.python
        event.elapsed_time = lambda end: end.at - event.at
        return event


@pytest.fixture
def gpu() -> Queue:
    return Queue()


@pytest.fixture
def measure(tutorial, gpu, monkeypatch) -> Callable[..., Any]:
    measure = tutorial("01-vector-add")["measure"]
    torch_of_the_gpu = SimpleNamespace(
        zeros=lambda *_, **__: SimpleNamespace(amax=gpu.read),
        get_device_module=lambda _: gpu,
        int32=torch.int32,
        tensor=torch.tensor,
    )
    monkeypatch.setitem(measure.__globals__, "torch", torch_of_the_gpu)
    return measure


def call(gpu: Queue, python: float, kernel: float) -> Callable[[], None]:
    def launch() -> None:
        gpu.python += python
        gpu.put(kernel)

    return launch


def test_reading_hides_what_python_needs(gpu, measure):
    ms = measure({"call": call(gpu, python=1.5, kernel=0.25)}, rounds=3)
    assert ms["call"].tolist() == [0.25] * 3
    assert gpu.reads == 2 * 3


def test_a_call_that_python_queues_too_late_is_made_again_behind_more(gpu, measure):
    calls = {"slow": call(gpu, python=5.0, kernel=0.25), "fast": call(gpu, 0.5, 0.125)}
    ms = measure(calls, rounds=4)
    assert ms["slow"].tolist() == [0.25] * 4  # 5.25 of Python's otherwise
    assert ms["fast"].tolist() == [0.125] * 4


def test_one_late_call_among_others_is_not_counted(gpu, measure):
    launches = iter([0.5, 0.5, 100.0, 0.5, 0.5, 0.5])  # the first compiles

    def launch() -> None:
        gpu.python += next(launches)
        gpu.put(0.25)

    assert measure({"call": launch}, rounds=4)["call"].tolist() == [0.25] * 4


def test_a_call_that_waits_for_the_gpu_is_taken_as_it_is(gpu, measure):
    def launch() -> None:
        gpu.put(0.25)
        gpu.synchronize()
        gpu.python += 0.5
        gpu.put(0.25)

    assert measure({"call": launch}, rounds=2)["call"].tolist() == [1.0] * 2
