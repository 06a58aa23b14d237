"""Prevents: a profiler from outside that sees the start of one from inside, or nothing; a library by a name that the framework did not
load."""

import ctypes

import pytest
from cuda_profiler import Bracket, Clock


class Noted:
    source = "noted"
    whole = True

    def __init__(self, order):
        self.order = order

    def start(self):
        self.order.append("start")

    def stop(self):
        self.order.append("stop")

    def columns(self):
        return {"start": [1.0]}


@pytest.fixture
def order(monkeypatch):
    """The order in which things were called; CUDA's library is a stand-in."""
    called = []

    class Library:
        def __init__(self, name):
            assert name == "libcudart.so.12"

        def __getattr__(self, name):
            return lambda: called.append(name)

    monkeypatch.setattr(ctypes, "CDLL", Library)
    return called


def test_what_looks_from_outside_sees_what_is_profiled_and_not_how(order):
    bracket = Bracket("libcudart.so.12", Noted(order))
    bracket.start()
    bracket.stop()
    assert order == ["start", "cudaProfilerStart", "cudaProfilerStop", "stop"]
    assert bracket.source == "noted"
    assert bracket.columns() == {"start": [1.0]}


def test_without_another_profiler_the_calls_are_all_there_is(order):
    bracket = Bracket("libcudart.so.12")
    bracket.start()
    bracket.stop()
    assert order == ["cudaProfilerStart", "cudaProfilerStop"]
    assert bracket.source == "cuda profiler api"
    assert bracket.columns() is None


def test_a_clock_tells_what_it_reads():
    assert (Clock().source, Clock("/proc/self/status").source) == ("clock", "/proc/self/status")
    assert Clock().columns() is None
