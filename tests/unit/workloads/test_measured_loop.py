"""Prevents: a device drained between window edges, gaps or overlaps between windows, samples or losses lost, counted
twice or numbered wrongly, a first step announced before it is done, a wait for input that is missed or counted twice, counters
read while another rank is still working, a probe without a request; an epoch validated early, late or twice, validation
inside a window, iterations that validation costs or adds, an epoch's mean of another epoch's losses."""

import argparse
import contextlib
import io
import itertools
import math
import types

import arguments
import events
import loop
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.analysis.grading.measure import measure, whole_windows
from runner.core.events import parse


class Recorder:
    """A training program that only records the loop's calls; its losses are its step numbers."""

    def __init__(self):
        self.args = types.SimpleNamespace(loader_workers=2)
        self.calls = []
        self.steps = 0
        self.batches = loop.Batches(iter(range(1000)))

    def step(self):
        assert next(self.batches) == self.steps
        self.calls.append("step")
        self.steps += 1
        return self.steps - 1

    def synchronize(self):
        self.calls.append("synchronize")

    def barrier(self):
        self.calls.append("barrier")

    def read(self, losses):
        assert self.calls[-1] == "synchronize", "losses were read while the device was still at work"
        return [float(loss) for loss in losses]

    def evaluate(self):
        self.calls.append("evaluate")
        return [float(self.steps)]

    def exchange(self, elements):
        self.calls.append(f"exchange {elements}")

    def alone(self):
        self.calls.append("alone")
        return lambda: self.calls.append("pass")

    lag = 0

    def start(self):
        self.synchronize()
        return loop.time.monotonic()

    def window(self, iterations):
        losses = [self.step() for _ in range(iterations)]
        self.synchronize()
        done = loop.time.monotonic(), self.read(losses), [0.5] * iterations
        return lambda: done

    def slowest(self, seconds):
        return seconds

    @property
    def ranks(self):
        return self


class Noting(Recorder):
    """One whose device records timestamps: half a second per step, starting at 100."""

    lag = 1

    def start(self):
        return 100 + self.steps / 2

    def window(self, iterations):
        losses = [float(self.step()) for _ in range(iterations)]
        ended = self.steps
        self.calls.append("edge")

        def done():
            self.calls.append(f"wait for {ended}")
            return 100 + ended / 2, losses, [0.5] * iterations

        return done


class Calls(io.StringIO):
    """A stream that records, among a program's calls, when counters were read."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def write(self, text):
        if '"event":"net"' in text:
            self.calls.append("counters")
        return super().write(text)


def run(iterations, warmup, window, probe=(), of=Recorder, **more):
    training = of()
    stream = Calls(training.calls)
    emitter = events.Events(rank=0, stream=stream)
    loop.measure(
        training, emitter, iterations=iterations, warmup=warmup, window=window, samples=32, probe=probe, **more
    )
    lines = stream.getvalue().splitlines()
    return training, [parse.parse_line(line, received=0.0, container="c") for line in lines]


def test_the_device_is_synchronized_only_after_the_first_step_after_warm_up_and_at_edges():
    training, _ = run(iterations=5, warmup=3, window=2)
    assert training.calls == [
        *[
            "step",
            "synchronize",
            "step",
            "step",
            "synchronize",
            "evaluate",
            "barrier",
            "counters",
            "barrier",
            "synchronize",
        ],
        *["step", "step", "synchronize", "step", "step", "synchronize", "step", "synchronize"],
        *["barrier", "counters", "evaluate"],
    ]


def test_a_device_with_timestamps_always_has_a_window_enqueued():
    """Closing a window drained the device: efficiencies depended on the iterations per window."""
    training, found = run(iterations=5, warmup=1, window=2, of=Noting)
    assert training.calls[-14:] == [
        *["step", "step", "edge"],
        *["step", "step", "edge", "wait for 3"],  # the loop waits for the first window once the second is enqueued
        *["step", "edge", "wait for 5", "wait for 6"],
        *["barrier", "counters", "evaluate"],
    ]
    windows = [(w.start, w.iterations, w.seconds) for w in found if w.event == "window"]
    assert windows == [(100.5, 2, 1.0), (101.5, 2, 1.0), (102.5, 1, 0.5)]
    losses = [value for event in found if event.event == "loss" for value in event.values]
    assert losses == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("step_seconds", "seconds", "window", "iterations", "chosen"),
    [
        (0.05, 30, 0, 600, 40),  # 15 windows of 2 s
        (0.5, 12, 0, 24, 3),  # at least 1.2 s: 8 windows of 3 steps of half a second
        (0.05, 30, 25, 600, 25),  # windows of the baseline
        (3.0, 30, 25, 40, 8),  # over a slow wire: 5 windows of 25 would take 375 s; of 8 they take 120
        (20.0, 12, 0, 5, 1),
    ],
)
def test_a_run_takes_the_requested_seconds(step_seconds, seconds, window, iterations, chosen):
    assert loop.pace(step_seconds, seconds=seconds, window=window) == (iterations, chosen)


def test_without_iterations_the_slowest_rank_of_the_warm_up_sets_them(monkeypatch):
    class Slow(Recorder):
        def slowest(self, seconds):
            assert seconds == 0.25  # the last two of the warm-up took half a second
            return 0.5

    training = Slow()
    monkeypatch.setattr(loop.time, "monotonic", lambda: 100 + training.steps / 4)
    stream = io.StringIO()
    emitter = events.Events(rank=0, stream=stream)
    done = loop.measure(training, emitter, iterations=0, seconds=12, warmup=4, window=0, samples=32)
    found = [parse.parse_line(line, received=0.0, container="c") for line in stream.getvalue().splitlines()]
    (pace,) = (event for event in found if event.event == "pace")
    assert (pace.iterations, pace.window, done, training.steps) == (24, 3, 24, 28)
    assert [event.iterations for event in found if event.event == "window"] == [3] * 8


@pytest.mark.parametrize(("warmup", "slowest_rank"), [(1, 1.0), (4, None)])
def test_an_unknown_rate_is_refused(monkeypatch, capsys, warmup, slowest_rank):
    monkeypatch.setattr(Recorder, "slowest", lambda _self, _seconds: slowest_rank)
    with pytest.raises(SystemExit) as ended:
        run(0, warmup, 0, seconds=12)
    assert ended.value.code == 2
    assert "give --iterations" in capsys.readouterr().err


def test_wires_are_timed_before_the_first_step_and_passes_after_the_last_evaluation():
    training, _ = run(iterations=2, warmup=1, window=2, probe=(16,))
    assert training.calls[:3] == ["exchange 4", "step", "synchronize"]
    assert training.calls[-11:] == [
        *["evaluate", "alone", "pass", "synchronize", "barrier"],
        *["pass", "synchronize"] * 3,
    ]


class Prepared:
    """Batches of which two are prefetched; each takes a quarter of a second on its own clock."""

    ahead = 2

    def __init__(self):
        self.now, self.given = 100.0, 0

    def __next__(self):
        self.now += 0.25
        self.given += 1


def input_alone(monkeypatch, source, *, workers, samples):
    """(training, events) after the input was timed alone on the source's clock."""
    training, stream = Recorder(), io.StringIO()
    training.args.loader_workers, training.batches = workers, loop.Batches(source)
    monkeypatch.setattr(loop.time, "monotonic", lambda: source.now)
    loop.input_alone(training, events.Events(rank=0, stream=stream), samples=samples)
    return training, [parse.parse_line(line, received=0.0, container="c") for line in stream.getvalue().splitlines()]


def test_input_alone_is_timed_without_prefetched_batches(monkeypatch):
    """Eight batches of a quarter of a second fill two seconds; with the two prefetched ones they would seem faster than they are."""
    source = Prepared()
    training, (alone, phase) = input_alone(monkeypatch, source, workers=2, samples=16)
    assert source.given == 10
    assert training.calls == ["barrier", "synchronize"]
    assert (alone.event, alone.batches, alone.samples, alone.seconds) == ("input_alone", 8, 128, 2.0)
    assert (phase.name, phase.seconds) == ("input_alone", 2.5)


class Burst:
    """Eight workers deliver a batch each every 1.7 s, all at once; the first 16 batches are prefetched."""

    ahead = 16

    def __init__(self):
        self.now, self.given = 100.0, 0

    def __next__(self):
        self.given += 1
        self.now = max(self.now, 100.0 + 1.7 * math.ceil((self.given - self.ahead) / 8))


def test_workers_that_deliver_in_bursts_are_timed_for_whole_rounds(monkeypatch):
    """The first batch after two seconds is the ninth, at 3.4 s: 43 % below the true rate."""
    _, (alone, _) = input_alone(monkeypatch, Burst(), workers=8, samples=256)
    assert (alone.batches, alone.samples) == (16, 4096)
    assert alone.seconds == pytest.approx(3.4)


def test_input_without_prefetching_is_not_timed_alone():
    training, stream = Recorder(), io.StringIO()
    loop.input_alone(training, events.Events(rank=0, stream=stream), samples=16)
    assert stream.getvalue() == ""


def test_a_wait_for_input_belongs_to_the_window_that_waited(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(clock)))  # each reading is a second later
    _, found = run(iterations=5, warmup=3, window=2)
    assert [event.input_seconds for event in found if event.event == "window"] == [2.0, 2.0, 1.0]


def test_events_come_in_the_order_of_the_contract():
    _, found = run(iterations=4, warmup=1, window=2)
    names = [event.event for event in found]
    assert names == [
        "first_step",
        "loss",
        "eval",
        *["net", "usage", "warmup_end", "window", "loss", "window", "loss", "net", "usage"],
        "eval",
    ]


def test_the_shared_batch_is_evaluated_before_and_after_the_measured_windows_and_never_between():
    _, found = run(iterations=6, warmup=2, window=3)
    assert [(event.iteration, event.losses) for event in found if event.event == "eval"] == [(2, (2.0,)), (8, (8.0,))]


def test_each_window_starts_where_the_previous_one_ended():
    _, found = run(iterations=6, warmup=1, window=2)
    windows = [event for event in found if event.event == "window"]
    for before, after in itertools.pairwise(windows):
        assert after.start == pytest.approx(before.start + before.seconds, abs=1e-9)


@given(iterations=st.integers(1, 40), warmup=st.integers(1, 5), window=st.integers(1, 50))
def test_every_iteration_is_counted_once(iterations, warmup, window):
    training, found = run(iterations, warmup, window)
    windows = [event for event in found if event.event == "window"]
    assert [w.index for w in windows] == list(range(len(windows)))
    assert sum(w.iterations for w in windows) == iterations
    assert sum(w.samples for w in windows) == 32 * iterations
    assert all(len(w.step_seconds) == w.iterations for w in windows)
    losses = {
        event.first_iteration + offset: value
        for event in found
        if event.event == "loss"
        for offset, value in enumerate(event.values)
    }
    assert losses == {number: float(number) for number in range(warmup + iterations)}
    assert training.steps == warmup + iterations


def test_no_line_is_longer_than_an_atomic_write():
    """Ranks that torchrun starts share a pipe: a line of 638 steps was interrupted by another rank's."""
    training, stream = Recorder(), io.StringIO()
    loop.measure(training, events.Events(rank=0, stream=stream), iterations=700, warmup=1, window=500, samples=32)
    assert max(len(line) + 1 for line in stream.getvalue().splitlines()) <= 4096
    found = [parse.parse_line(line, received=0.0, container="c") for line in stream.getvalue().splitlines()]
    windows = whole_windows(found)
    assert [len(window.step_seconds) for window in windows] == [500, 200]
    losses = [value for event in found if event.event == "loss" for value in event.values]
    assert losses == [float(number) for number in range(701)]


class Watched(Recorder):
    """A convergence run that records after how many steps it was validated."""

    def __init__(self):
        super().__init__()
        self.validated = []
        self.batches = loop.Batches(iter(range(1000)))

    def step(self):
        next(self.batches)
        self.calls.append("step")
        self.steps += 1
        return self.steps - 1

    def validate(self):
        next(self.batches)  # input of the validation belongs to no window
        self.calls.append("validate")
        self.validated.append(self.steps)
        return {"samples": 7, "loss_sum": 14.0 if self.steps < 6 else float("inf"), "correct": self.steps}


class WatchedNoting(Watched, Noting):
    """The same on a device that records timestamps."""


def run_epochs(iterations, epoch, *, warmup=1, window=2, of=Watched):
    training, stream = of(), io.StringIO()
    emitter = events.Events(rank=0, stream=stream)
    epochs = loop.Epochs(training, emitter, iterations=epoch)
    loop.measure(training, emitter, iterations=iterations, warmup=warmup, window=window, samples=4, epochs=epochs)
    return training, [parse.parse_line(line, received=0.0, container="c") for line in stream.getvalue().splitlines()]


def of(found, name):
    return [event for event in found if event.event == name]


def test_epochs_of_three_after_a_warm_up_of_two():
    training, found = run_epochs(6, 3, warmup=2)
    assert training.validated == [5, 8]
    first, second = of(found, "epoch")
    assert (first.epoch, first.iterations, second.epoch, second.iterations) == (1, 3, 2, 3)
    assert first.train_loss == 3.0  # the losses 2, 3 and 4
    assert second.train_loss == 6.0
    assert (first.validation.samples, first.validation.loss_sum, first.validation.correct) == (7, 14.0, 5)
    assert second.validation.loss_sum is None  # JSON has no infinity


def test_a_window_ends_with_its_epoch_and_the_next_begins_after_the_validation():
    _, found = run_epochs(6, 3)
    windows = of(found, "window")
    assert [window.iterations for window in windows] == [2, 1, 2, 1]
    assert [window.index for window in windows] == [0, 1, 2, 3]
    epoch = of(found, "epoch")[0]
    assert windows[1].start + windows[1].seconds <= epoch.t <= windows[2].start
    assert epoch.seconds == windows[0].seconds + windows[1].seconds


def test_only_the_end_of_an_epoch_drains_a_device_that_records_timestamps():
    """Each window of a convergence run did: a short epoch has a window a step, and its rate was that of a device that waits for the host."""
    training, found = run_epochs(12, 6, of=WatchedNoting)
    waits = [call for call in training.calls if call in {"step", "validate"} or call.startswith("wait")]
    epoch = [*["step"] * 4, "wait for 3", "step", "step", "wait for 5", "wait for 7", "validate"]
    assert waits[1:11] == epoch  # after a step of warm-up
    assert [one.seconds for one in of(found, "epoch")] == [3.0, 3.0]
    assert [one.train_loss for one in of(found, "epoch")] == [3.5, 9.5]


def test_validation_is_not_part_of_the_training_time(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(clock)))  # each reading is a second later
    _, found = run_epochs(6, 3)
    windows = of(found, "window")
    assert windows[2].start > windows[1].start + windows[1].seconds
    measured = measure(found, started=0.0, unit="images/s", mode="converge")
    assert measured.training_time_s == sum(window.seconds for window in windows) == 8.0
    assert measured.throughput.value == 6 * 4 / 8.0


def test_all_ranks_have_validated_before_the_next_step():
    training, _ = run_epochs(4, 2)
    first = training.calls.index("validate")
    assert training.calls[first + 1 : first + 4] == ["barrier", "synchronize", "step"]


def test_a_wait_for_validation_images_belongs_to_no_window(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(clock)))  # each reading is a second later
    _, found = run_epochs(4, 2)
    assert [window.input_seconds for window in of(found, "window")] == [2.0, 2.0]


@given(epochs=st.integers(1, 6), length=st.integers(1, 9), warmup=st.integers(1, 3), window=st.integers(1, 12))
def test_every_iteration_is_in_one_window_and_one_epoch(epochs, length, warmup, window):
    training, found = run_epochs(epochs * length, length, warmup=warmup, window=window)
    assert training.steps == warmup + epochs * length
    assert sum(w.iterations for w in of(found, "window")) == epochs * length
    assert sum(w.samples for w in of(found, "window")) == 4 * epochs * length
    assert [e.epoch for e in of(found, "epoch")] == list(range(1, epochs + 1))
    assert training.validated == [warmup + length * number for number in range(1, epochs + 1)]
    losses = [value for event in of(found, "loss") for value in event.values]
    assert losses == [float(number) for number in range(warmup + epochs * length)]


@pytest.mark.parametrize(
    ("epoch_iterations", "iterations", "profile", "refused"),
    [(4, 10, None, True), (5, 10, "kernels", True), (None, 7, None, False), (5, 10, None, False)],
)
def test_partial_epochs_and_profiled_epochs_are_refused(epoch_iterations, iterations, profile, refused):
    args = argparse.Namespace(epoch_iterations=epoch_iterations, iterations=iterations, profile=profile)
    with pytest.raises(SystemExit, match="2") if refused else contextlib.nullcontext():
        arguments.check_epochs(args)


def test_a_sources_units_are_read_at_each_edge():
    """Seconds of audio: 1.5 in each batch; the warm-up's belong to no window."""

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
