"""Prevents: a window whose edge drains the GPU, or is timed by the host while the device lags behind; overlapping windows and gaps."""

import contextlib
import importlib
import sys
from types import SimpleNamespace

import pytest


@pytest.fixture
def made(monkeypatch):
    """A `CudaClock` on a device whose events are half a second apart, and the calls that it made."""
    said = []

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            self.at = sum(word == "record" for word in said) / 2
            said.append("record")

        def synchronize(self):
            said.append(f"wait for {self.at}")

        def elapsed_time(self, other):
            return 1e3 * (other.at - self.at)

    def stream(one):
        said.append(f"on {one}")
        return contextlib.nullcontext()

    cuda = SimpleNamespace(Event=Event, Stream=lambda: "copies", stream=stream)
    kept = SimpleNamespace(tolist=lambda: [3.0, 2.0])
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, stack=lambda _losses: kept))
    monkeypatch.delitem(sys.modules, "with_pytorch.clock", raising=False)
    clock = importlib.import_module("with_pytorch.clock")
    monkeypatch.setattr(clock.time, "monotonic", lambda: 100.0)
    yield clock.CudaClock(), said
    sys.modules.pop("with_pytorch.clock", None)


def window(clock):
    return clock.edge([clock.mark() for _ in range(3)], ["a loss", "a loss"])


def test_windows_are_contiguous_on_the_devices_clock_and_only_reading_them_waits(made):
    clock, said = made
    assert clock.start() == 100.0
    assert said == ["record", "wait for 0.0"]
    first, second = window(clock), window(clock)
    assert said[2:] == ["record"] * 8, "a window waited for the device"
    # Four events per window; the last is its edge.
    assert first() == (102.0, [3.0, 2.0], [0.5, 0.5])
    assert second() == (104.0, [3.0, 2.0], [0.5, 0.5])
    assert said[10:] == ["wait for 2.0", "on copies", "wait for 4.0", "on copies"]
    assert clock.start() == 100.0, "the clock starts again after a validation"
