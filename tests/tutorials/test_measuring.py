"""The timing loop of the benchmarks, with a simulated GPU that is slower or faster than Python."""

from types import SimpleNamespace

import pytest
import torch


class Queue:
    """A GPU that executes queued work in order, while Python goes on."""

    def __init__(self):
        self.python = 0.0  # the time
        self.done = 0.0  # when the GPU will have finished all queued work

    def put(self, ms):
        self.done = max(self.python, self.done) + ms

    def synchronize(self):
        self.python = max(self.python, self.done)

    def Event(self, enable_timing):  # noqa: N802, as PyTorch names it
        event = SimpleNamespace()
        event.record = lambda: setattr(event, "at", max(self.python, self.done))
        event.query = lambda: event.at <= self.python
        event.elapsed_time = lambda end: end.at - event.at
        return event

    def call(self, python, kernel):
        """A call for which Python needs *python* ms, and the GPU *kernel* ms."""

        def launch():
            self.python += python
            self.put(kernel)

        return launch


@pytest.fixture
def gpu():
    return Queue()


@pytest.fixture
def measure(tutorial, gpu, monkeypatch):
    """The loop of the first tutorial, which all benchmarks share."""
    measure = tutorial("01-vector-add")["gpu_times"]
    simulated = SimpleNamespace(
        zeros=lambda *_, **__: SimpleNamespace(amax=lambda: gpu.put(1.0)),  # clears the cache
        get_device_module=lambda: gpu,
        accelerator=SimpleNamespace(current_accelerator=lambda: "simulated"),
        int32=torch.int32,
    )
    monkeypatch.setitem(measure.__globals__, "torch", simulated)
    return measure


@pytest.mark.parametrize("python", [0.1, 1.5, 5.0])
def test_the_time_on_the_gpu_excludes_the_time_in_python(gpu, measure, python):
    calls = {"slow": gpu.call(python, 0.25), "fast": gpu.call(0.5, 0.125)}
    ms = measure(calls, rounds=4)
    assert ms["slow"] == pytest.approx([0.25] * 4)
    assert ms["fast"] == pytest.approx([0.125] * 4)


def test_a_single_late_call_is_repeated(gpu, measure):
    calls = iter([gpu.call(python, 0.25) for python in (0.5, 0.5, 100.0, 0.5, 0.5, 0.5)])
    assert measure({"call": lambda: next(calls)()}, rounds=4)["call"] == pytest.approx([0.25] * 4)


def test_a_call_that_waits_for_the_gpu_is_refused(gpu, measure):
    """Its time would contain Python's."""

    def launch():
        gpu.put(0.25)
        gpu.synchronize()
        gpu.call(0.5, 0.25)()

    with pytest.raises(RuntimeError, match="call: the GPU waits for Python"):
        measure({"call": launch}, rounds=2)
