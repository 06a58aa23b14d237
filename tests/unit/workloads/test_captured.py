"""Prevents: a finished job that never exits, as its ranks wait for a graph that still holds their NCCL operations."""

import importlib
import sys
from types import SimpleNamespace

import pytest


@pytest.fixture
def captured(monkeypatch):
    """The module with a stand-in for CUDA that records calls."""
    calls = []

    class Graph:
        def replay(self):
            calls.append("replay")

        def reset(self):
            calls.append("reset")

    class Recording:
        def __enter__(self):
            calls.append("record")

        def __exit__(self, *ended):
            pass

    cuda = SimpleNamespace(
        CUDAGraph=Graph,
        graph=lambda graph, **_: Recording(),
        synchronize=lambda: calls.append("synchronize"),
        current_stream=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.delitem(sys.modules, "with_pytorch.captured", raising=False)
    yield importlib.import_module("with_pytorch.captured"), calls
    sys.modules.pop("with_pytorch.captured", None)


class Tensor:
    def __init__(self, value):
        self.value = value

    def copy_(self, other, *, non_blocking):
        assert non_blocking
        self.value = other.value

    def clone(self):
        return self.value


def test_steps_run_eagerly_first_and_are_then_captured_once(captured):
    module, calls = captured
    batches, seen = [Tensor(number) for number in range(4)], []

    def step(batch):
        seen.append(batch[0].value)
        return Tensor("loss")

    steps = module.Captured(step, eager_steps=2)
    losses = [steps((batch,)) for batch in batches]
    assert seen == [0, 1, 2]  # the third during the capture
    assert calls == ["synchronize", "record", "replay", "replay"]
    assert losses[2:] == ["loss", "loss"]
    assert batches[2].value == 3  # the graph reads the batch of its capture


def test_the_graph_is_reset_after_its_work_is_done(captured):
    module, calls = captured
    steps = module.Captured(lambda batch: Tensor("loss"), eager_steps=0)
    steps((Tensor(0),))
    steps.end()
    assert calls[-2:] == ["synchronize", "reset"]


def test_a_training_that_ends_before_the_capture_has_no_graph_to_reset(captured):
    module, calls = captured
    steps = module.Captured(lambda batch: Tensor("loss"), eager_steps=3)
    steps((Tensor(0),))
    steps.end()
    assert not calls
