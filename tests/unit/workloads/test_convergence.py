"""Prevents: an epoch that is validated early, late or twice, validation inside a window, a window over the end of an epoch, iterations that a
validation costs or adds, an epoch's mean of another epoch's losses, epochs of another length than was asked for."""

import argparse
import ast
import io
from pathlib import Path

import convergence
import events
import loop
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.analysis.grading.measure import measure
from runner.core.events import parse


class Watched:
    """A training program whose losses are its step numbers, and which notes after how many steps it was validated."""

    def __init__(self):
        self.steps, self.validated, self.calls = 0, [], []
        self.batches = loop.Batches(iter(range(1000)))

    def step(self):
        next(self.batches)
        self.calls.append("step")
        self.steps += 1
        return self.steps - 1

    def validate(self):
        next(self.batches)  # what validation reads, by whatever way, is in no window
        self.calls.append("validate")
        self.validated.append(self.steps)
        return {"samples": 7, "loss_sum": 14.0 if self.steps < 6 else float("inf"), "correct": self.steps}

    def synchronize(self):
        pass

    def barrier(self):
        self.calls.append("barrier")

    def read(self, losses):
        return [float(loss) for loss in losses]

    def evaluate(self):
        return [0.0]

    lag = 0

    def start(self):
        return loop.time.monotonic()

    def window(self, iterations):
        losses = [float(self.step()) for _ in range(iterations)]
        done = loop.time.monotonic(), losses, None
        return lambda: done


def run(iterations, epoch, *, warmup=1, window=2):
    training, stream = Watched(), io.StringIO()
    emitter = events.Events(rank=0, stream=stream)
    epochs = convergence.Epochs(training, emitter, iterations=epoch)
    loop.measure(training, emitter, iterations=iterations, warmup=warmup, window=window, samples=4, epochs=epochs)
    return training, [parse.parse_line(line, received=0.0, container="c") for line in stream.getvalue().splitlines()]


def of(found, name):
    return [event for event in found if event.event == name]


def test_epochs_of_three_after_a_warm_up_of_two():
    training, found = run(6, 3, warmup=2)
    assert training.validated == [5, 8]
    first, second = of(found, "epoch")
    assert (first.epoch, first.iterations, second.epoch, second.iterations) == (1, 3, 2, 3)
    assert first.train_loss == 3.0  # the losses 2, 3 and 4
    assert second.train_loss == 6.0
    assert (first.validation.samples, first.validation.loss_sum, first.validation.correct) == (7, 14.0, 5)
    assert second.validation.loss_sum is None  # JSON has no infinity


def test_a_window_ends_with_its_epoch_and_the_next_begins_after_the_validation():
    _, found = run(6, 3)
    windows = of(found, "window")
    assert [window.iterations for window in windows] == [2, 1, 2, 1]
    assert [window.index for window in windows] == [0, 1, 2, 3]
    epoch = of(found, "epoch")[0]
    assert windows[1].start + windows[1].seconds <= epoch.t <= windows[2].start
    assert epoch.seconds == windows[0].seconds + windows[1].seconds


def test_a_validation_is_in_no_training_time(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(clock)))  # each look at it is a second later
    _, found = run(6, 3)
    windows = of(found, "window")
    assert windows[2].start > windows[1].start + windows[1].seconds
    measured = measure(found, started=0.0, unit="images/s", mode="converge")
    assert measured.training_time_s == sum(window.seconds for window in windows) == 8.0
    assert measured.throughput.value == 6 * 4 / 8.0


def test_all_ranks_have_validated_before_the_next_step():
    training, _ = run(4, 2)
    first = training.calls.index("validate")
    assert training.calls[first + 1 : first + 3] == ["barrier", "step"]


def test_a_wait_for_validation_images_is_in_no_window(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(clock)))  # each look at it is a second later
    _, found = run(4, 2)
    assert [window.input_seconds for window in of(found, "window")] == [2.0, 2.0]


@settings(deadline=None)
@given(epochs=st.integers(1, 6), length=st.integers(1, 9), warmup=st.integers(1, 3), window=st.integers(1, 12))
def test_every_iteration_is_in_one_window_and_one_epoch(epochs, length, warmup, window):
    training, found = run(epochs * length, length, warmup=warmup, window=window)
    assert training.steps == warmup + epochs * length
    assert sum(w.iterations for w in of(found, "window")) == epochs * length
    assert sum(w.samples for w in of(found, "window")) == 4 * epochs * length
    assert [e.epoch for e in of(found, "epoch")] == list(range(1, epochs + 1))
    assert training.validated == [warmup + length * number for number in range(1, epochs + 1)]
    losses = [value for event in of(found, "loss") for value in event.values]
    assert losses == [float(number) for number in range(warmup + epochs * length)]


@pytest.mark.parametrize(
    ("epoch_iterations", "iterations", "profile", "said"),
    [(4, 10, None, "no multiple of --epoch-iterations=4"), (5, 10, "kernels", "exclude each other")],
)
def test_what_does_not_go_is_refused(capsys, epoch_iterations, iterations, profile, said):
    args = argparse.Namespace(epoch_iterations=epoch_iterations, iterations=iterations, profile=profile)
    with pytest.raises(SystemExit, match="2"):
        convergence.check(args)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("epoch_iterations", "iterations"), [(None, 7), (5, 10)])
def test_what_goes_is_not(epoch_iterations, iterations):
    convergence.check(argparse.Namespace(epoch_iterations=epoch_iterations, iterations=iterations, profile=None))


def test_a_source_that_counts_its_unit_is_read_at_each_edge():
    """Seconds of audio: 1.5 in each batch; what warm-up heard is in no window."""

    class Audio:
        units = 0.0

        def __next__(self):
            self.units += 1.5

    training, stream = Watched(), io.StringIO()
    training.batches = loop.Batches(Audio())
    emitter = events.Events(rank=0, stream=stream)
    loop.measure(training, emitter, iterations=5, warmup=3, window=2, samples=4)
    found = [parse.parse_line(line, received=0.0, container="c") for line in stream.getvalue().splitlines()]
    assert [window.units for window in of(found, "window")] == [3.0, 3.0, 1.5]


@pytest.mark.parametrize("module", ["convergence", "inference"])
def test_the_syntax_is_that_of_the_oldest_images(module):
    source = Path(convergence.__file__).with_name(f"{module}.py").read_text()
    assert ast.parse(source, feature_version=(3, 6))
