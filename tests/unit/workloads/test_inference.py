"""Prevents: the throughput of the host, which waits for each batch while the device idles; windows whose edges drain the device; answers out of
order; a latency without its answer, or of a batch that shared the device; samples lost or answered twice if the batch is smaller than
requested, a batch that kills the process or is needlessly small, accuracy of other samples than were predicted, a reference that is not the
network before its conversion, synthetic samples with an accuracy."""

import argparse
import io
import itertools
import json
from types import SimpleNamespace

import events
import inference
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.events import parse


class Made(inference.OneByOne):
    """A network that predicts the number in a sample; after its conversion it is wrong about 3, and memory holds `room` samples at a time."""

    def __init__(self, samples=(0, 1, 2, 3, 4), labels=None, *, room=1000, overcommits=False):
        self.samples, self.labels = np.array(samples), labels
        self.room, self.overcommits = room, overcommits
        self.converted, self.fitted, self.seen, self.most = False, 0, [], None

    def library(self, most):
        self.most = most
        return self.samples[:most], self.labels

    def fit(self, iterations):
        assert not self.converted
        self.fitted = iterations

    def convert(self):
        self.converted = True

    def predict(self, samples):
        if len(samples) > self.room:
            raise inference.OutOfMemoryError
        self.seen.append(samples.tolist())
        return np.where(samples == 3, 9, samples) if self.converted else samples

    def free_bytes(self):
        return 3 * 2**29


class Clock:
    """A clock that advances only on request."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(inference.time, "monotonic", lambda: self.now)

    def to(self, moment):
        self.now = max(self.now, moment)
        return self.now


class Device(Made):
    """A GPU that receives a batch in 1 s and answers it in 2, each strictly in order; the host submits one in 0.25 s.

    So it can do a batch per 2 s, and an isolated one has a latency of 3.25 s. Batches for which `slow` is true take 8 s.
    """

    in_flight = 3

    def __init__(self, clock, *samples, slow=lambda batch: False, **more):
        super().__init__(*samples, **more)
        self.clock, self.slow = clock, slow
        self.brought = self.answered = 0.0
        self.under_way, self.waits, self.laid_out = 0, [], None

    def lay_out(self, samples):
        self.laid_out = samples
        return samples

    def place(self, samples):
        return samples

    def run(self, placed):
        self.clock.to(self.clock.now + 2)

    def submit(self, samples):
        classes = self.predict(samples)
        self.under_way += 1
        assert self.under_way <= self.in_flight
        self.brought = max(self.brought, self.clock.to(self.clock.now + 0.25)) + 1
        self.answered = max(self.answered, self.brought) + (8 if self.slow(samples) else 2)
        return classes, self.answered

    def collect(self, ticket):
        self.waits.append(self.under_way)
        self.under_way -= 1
        self.clock.to(ticket[1])
        return ticket


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def args(**more):
    asked = {
        "batch": 2,
        "iterations": 4,
        "measure_seconds": 0.0,
        "warmup": 1,
        "window": 3,
        "precision": "fp16",
        "data": "/d",
        "fit": 0,
        "devices": 1,
    }
    return argparse.Namespace(**{**asked, **more})


def infer(predictor, **more):
    stream = io.StringIO()
    done = inference.infer(predictor, events.Events(rank=0, stream=stream), args(**more))
    return done, [parse.parse_line(line, received=0.0, container="c") for line in stream.getvalue().splitlines()]


def of(found, name):
    return [event for event in found if event.event == name]


def test_events_come_in_the_order_of_the_contract():
    _, found = infer(Made(labels=np.array([0, 1, 2, 3, 4])))
    assert [event.event for event in found if event.event != "phase"] == [
        *(
            "batch",
            "first_step",
            "net",
            "usage",
            "warmup_end",
            "window",
            "window",
            "net",
            "usage",
            "latency",
            "accuracy",
        ),
    ]
    assert [event.name for event in of(found, "phase")] == ["data", "convert", "batch", "latency"]


def test_synthetic_samples_have_no_accuracy_and_are_not_learned_from(capsys):
    made = Made()
    _, found = infer(made, data="synthetic")
    assert not of(found, "accuracy")
    assert made.most == 2  # no more distinct samples than a batch has
    with pytest.raises(SystemExit):
        inference.check(args(data="synthetic", fit=3))
    assert "give a folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        inference.check(args(devices=2))
    inference.check(args(fit=3))


def test_accuracy_is_relative_to_labels_and_to_the_network_before_its_conversion():
    # It predicts 0 1 2 3 4 before and 0 1 2 9 4 after; the labels are 0 1 0 3 9.
    made = Made(labels=np.array([0, 1, 0, 3, 9]))
    _, found = infer(made, fit=30)
    (accuracy,) = of(found, "accuracy")
    assert made.fitted == accuracy.fit_iterations == 30
    assert (accuracy.precision, accuracy.reference, accuracy.samples) == ("fp16", "fp32", 5)
    assert accuracy.reference_correct == 3
    assert accuracy.correct == 2
    assert accuracy.agree == 4


def test_batches_cycle_through_the_library():
    made = Made(labels=np.array([0, 1, 2, 3, 4]))
    infer(made, iterations=4, batch=2)
    served = made.seen[2:-1]  # before: the reference and the trial batch; after: the accuracy
    # The first two are the warm-up's: the second has the size of the last measured one. Four of five samples make whole batches.
    assert served == [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1], [2, 3]]


def test_synthetic_batches_are_the_same_each_time_though_the_library_is_smaller():
    made = Made(samples=(5, 6, 7))
    infer(made, data="synthetic", batch=4, iterations=2)
    assert made.seen == [[5, 6, 7, 5]] * 5


def test_windows_count_the_workloads_unit_if_it_is_not_the_sample():
    made = Made()
    made.units, told = 7, []
    made.emit_extra = lambda _events, samples: told.append(samples.tolist())
    _, found = infer(made, data="synthetic", batch=2, iterations=4, window=3)
    assert [(window.samples, window.units) for window in of(found, "window")] == [(6, 42), (2, 14)]
    assert told == [[0, 1]]
    _, found = infer(Made(), data="synthetic")
    assert {window.units for window in of(found, "window")} == {None}


def test_real_batches_longer_than_the_library_wrap_around():
    made = Made(samples=(5, 6, 7), labels=np.array([5, 6, 7]))
    infer(made, batch=4, iterations=2)
    assert made.seen[2:-1] == [[5, 6, 7, 5]] * 4


def test_a_smaller_batch_serves_exactly_the_requested_samples():
    made = Made(room=3)
    (batches, samples), found = infer(made, data="synthetic", batch=5, iterations=2, window=3)
    assert (batches, samples) == (4, 10)
    (batch,) = of(found, "batch")
    assert (batch.asked, batch.used) == (5, 3)
    assert batch.reason == "5 samples do not fit into the memory of the device, which had 1.5 GiB free"
    assert [(w.iterations, w.samples) for w in of(found, "window")] == [(3, 9), (1, 1)]


def test_a_batch_that_fits_needs_no_reason():
    _, found = infer(Made())
    (batch,) = of(found, "batch")
    assert (batch.asked, batch.used, batch.reason) == (2, 2, None)


def test_a_device_without_memory_for_one_sample_is_refused(capsys):
    with pytest.raises(SystemExit):
        infer(Made(room=0), data="synthetic")
    assert "smaller network or smaller images" in capsys.readouterr().err


@given(room=st.integers(1, 12000), asked=st.integers(1, 12000))
def test_the_largest_batch_is_found_to_two_percent(room, asked):
    library = inference.Library(np.zeros(1), None)
    used, reason = inference.fitting(Made(room=room), library, asked)
    assert used <= min(room, asked)
    assert used >= min(room, asked) * 0.97 - 1
    assert (reason is None) == (used == asked)


@given(
    batch=st.integers(1, 9),
    iterations=st.integers(1, 9),
    room=st.integers(1, 9),
    warmup=st.integers(1, 3),
    window=st.integers(1, 5),
)
def test_every_sample_is_answered_once(batch, iterations, room, warmup, window):
    made = Made(room=room)
    shape = {"batch": batch, "iterations": iterations, "warmup": warmup, "window": window}
    (batches, samples), found = infer(made, data="synthetic", **shape)
    windows = of(found, "window")
    assert samples == sum(w.samples for w in windows) == batch * iterations
    assert batches == sum(w.iterations for w in windows)
    assert all(len(w.step_seconds) == w.iterations for w in windows)
    sizes = [len(batch) for batch in made.seen[-batches:]]
    assert sum(sizes) == samples
    assert len(set(sizes[:-1])) <= 1


def test_each_window_starts_where_the_previous_one_ended():
    _, found = infer(Made(), iterations=7, window=2)
    for before, after in itertools.pairwise(of(found, "window")):
        assert after.start == pytest.approx(before.start + before.seconds, abs=1e-9)


def test_a_latency_lasts_from_the_samples_on_the_host_to_the_answer(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(inference.time, "monotonic", lambda: float(next(clock)))  # each reading is a second later
    made = Made()
    made.predict = lambda samples, predict=made.predict: (next(clock), predict(samples))[1]
    _, found = infer(made)
    # Two consecutive readings, and a second for the prediction.
    assert [step for window in of(found, "window") for step in window.step_seconds] == [2.0] * 4


def test_with_one_batch_in_flight_latencies_are_those_of_the_windows():
    """Only whole batches: a smaller one is answered sooner."""
    _, found = infer(Made(room=3), data="synthetic", batch=5, iterations=2, window=3)
    (latency,) = of(found, "latency")
    windows = of(found, "window")
    assert (latency.in_flight, latency.batch, latency.without_transfer) == (1, 3, None)
    assert latency.with_transfer == windows[0].step_seconds
    assert windows[1].samples == 1


def test_several_batches_keep_a_device_busy(clock):
    """Submitted one by one, they would take 3.25 s each."""
    made = Device(clock)
    (batches, samples), found = infer(made, data="synthetic", iterations=6, window=2)
    windows = of(found, "window")
    assert (batches, samples) == (6, 12)
    assert [(w.iterations, w.samples, w.seconds) for w in windows] == [(2, 4, 4.0)] * 3
    assert [w.step_seconds for w in windows] == [(2.0, 2.0)] * 3
    assert all(w.input_seconds is None for w in windows)


def test_the_device_is_not_drained_at_an_edge(clock):
    """Windows that waited for everything submitted drained the device at every edge, including the last."""
    made = Device(clock)
    made.lay_out = lambda samples: (made.waits.clear(), samples)[1]
    infer(made, data="synthetic", iterations=4, window=2)
    # Warm-up: an isolated one, and one of the size of the last. Then 3 that fill the device, 4 measured, 2 that follow; the latency's
    # batches are isolated.
    assert made.waits[:11] == [1, 1] + [3] * 7 + [2, 1]
    assert set(made.waits[11:]) == {1}


def test_a_window_ends_with_its_own_last_batch(clock):
    """A slow batch belongs to its own window, although it was submitted during the previous one."""
    made = Device(
        clock, np.arange(40), labels=np.arange(40), slow=lambda batch: made.laid_out is not None and batch[0] == 14
    )
    _, found = infer(made, iterations=6, window=2)
    # The warm-up's are 0 and 2, those that fill the device 4, 6 and 8; measured are 10 and 12, 14 and 16, 18 and 20.
    assert [w.seconds for w in of(found, "window")] == [4.0, 10.0, 4.0]


def test_answers_are_in_the_order_of_their_batches(clock):
    made = Device(clock)
    batches = [np.array([number, number + 100]) for number in range(7)]
    seen = list(inference.pipelined(made, batches))
    assert [classes.tolist() for classes, *_ in seen] == [[number, number + 100] for number in range(7)]
    assert [answered for *_, answered in seen] == [3.25 + 2 * number for number in range(7)]
    assert made.under_way == 0


def test_a_batch_answered_before_an_earlier_one_counts_with_it():
    class Hasty(Made):
        in_flight = 2

        def submit(self, samples):
            return samples

        def collect(self, ticket):
            return ticket, {0: 5.0, 1: 4.0, 2: 6.0}[ticket[0]]

    assert [answered for *_, answered in inference.pipelined(Hasty(), [[0], [1], [2]])] == [5.0, 5.0, 6.0]


def test_an_isolated_batch_is_timed_with_and_without_its_transfer(clock):
    _, found = infer(Device(clock), data="synthetic")
    (latency,) = of(found, "latency")
    assert (latency.in_flight, latency.batch) == (3, 2)
    # One of each takes more than 4 s.
    assert (latency.with_transfer, latency.without_transfer) == ((3.25,), (2.0,))


@pytest.mark.parametrize(("each", "times"), [(0.25, 8), (0.001, 1000), (5.0, 1)])
def test_a_latency_is_repeated_a_thousand_times_or_for_two_seconds(clock, each, times):
    (seconds,) = inference.timed(lambda: clock.to(clock.now + each))
    assert seconds == pytest.approx([each] * times)


def test_two_calls_are_timed_in_turns(clock):
    """In one block after another, a clock that falls made a batch in device memory slower than with its transfer."""
    called = []
    first, second = inference.timed(
        lambda: (called.append(1), clock.to(clock.now + 1.5)), lambda: (called.append(2), clock.to(clock.now + 0.5))
    )
    assert (called, first, second) == ([1, 2, 1, 2], [1.5, 1.5], [0.5, 0.5])


def test_iterations_follow_the_rate(clock):
    """A batch of 2 takes the device 2 s: windows of one batch, as that exceeds their minimum, 20 of them in 40 s."""
    made = Device(clock)
    (batches, samples), found = infer(made, data="synthetic", iterations=0, measure_seconds=40.0, window=0)
    (pace,) = of(found, "pace")
    assert (pace.iterations, pace.window) == inference.pace(2.0, seconds=40.0, window=0)
    assert pace.iterations * 2.0 >= 40
    assert (batches, samples) == (pace.iterations, 2 * pace.iterations)
    assert [w.seconds for w in of(found, "window")] == [2.0 * pace.window] * (pace.iterations // pace.window)
    with pytest.raises(SystemExit):
        inference.check(args(iterations=0))


def test_iterations_of_a_smaller_batch_are_paced_in_requested_batches(clock):
    made = Device(clock, room=3)
    (batches, samples), found = infer(made, data="synthetic", batch=5, iterations=0, measure_seconds=60.0, window=0)
    (pace,) = of(found, "pace")
    assert samples == 5 * pace.iterations == sum(w.samples for w in of(found, "window"))
    assert batches == -(-samples // 3)


def test_memory_has_to_hold_all_batches_in_flight(clock):
    """A batch that fits alone ended the run when a second one was copied to the device."""

    class Full(Device):
        def submit(self, samples):
            if (self.under_way + 1) * len(samples) > self.room:
                self.under_way = 0  # batches in flight belong to a failed attempt
                raise inference.OutOfMemoryError
            return super().submit(samples)

    _, found = infer(Full(clock, room=9), data="synthetic", batch=8, iterations=2)
    (batch,) = of(found, "batch")
    assert batch.used == 3


class Host(Made):
    """A process on a host: 100 bytes, and 10 per sample while it predicts."""

    def __init__(self, **more):
        super().__init__(overcommits=True, **more)
        self.peak = 100

    def predict(self, samples):
        self.peak = max(self.peak, 100 + 10 * len(samples))
        return super().predict(samples)

    def memory(self):
        peak, self.peak = self.peak, 100
        return [{"peak_bytes": peak}]


@pytest.fixture
def host(monkeypatch):
    def make(free, *, samples=1000, told=True):
        made = Host(samples=np.zeros(samples, np.int8))
        monkeypatch.setattr(inference, "host_memory", made.memory if told else lambda: [{"peak_bytes": None}])
        monkeypatch.setattr(inference, "free_bytes", lambda: free)
        return made, inference.Library(made.samples, None)

    return make


def test_on_a_host_the_batch_is_extrapolated_from_smaller_ones(host):
    made, library = host(free=5000)
    # 10 bytes per sample, 80 % of 5,000 bytes: 400 samples.
    assert inference.fitting(made, library, 400) == (400, None)
    used, reason = inference.fitting(made, library, 500)
    assert used == 400
    assert reason == "500 samples take 0.0 GiB, the host has 0.0 GiB free"
    assert max(map(len, made.seen)) == 32, "what might not fit was tried"


def test_a_batch_longer_than_the_library_is_a_copy_that_takes_memory(host):
    made, library = host(free=5000, samples=100)
    # 11 bytes per sample: 4,000 / 11.
    assert inference.fitting(made, library, 500)[0] == 363


def test_small_batches_are_assumed_to_fit_and_so_are_all_if_the_kernel_reports_no_peak(host, capsys):
    made, library = host(free=10)
    assert inference.fitting(made, library, 32) == (32, None)
    made, library = host(free=10, told=False)
    assert inference.fitting(made, library, 500) == (500, None)
    assert "may not fit" in capsys.readouterr().err


def test_gibibytes_have_one_decimal():
    assert inference.gib(25 * 2**30) == "25.0 GiB"
    assert inference.gib(int(61.24 * 2**30)) == "61.2 GiB"


@pytest.mark.parametrize("flop", [{"forward": 7, "backward": 14}, None])
def test_run_start_has_the_flop_of_the_forward_pass_only(monkeypatch, capsys, flop):
    monkeypatch.setattr(inference, "infer", lambda *_: (3, 24))
    predictor = SimpleNamespace(parameters=5, flop_per_sample=flop, parameter_norm=lambda: 2.0)
    asked = args(batch=8, iterations=3, warmup=1, seed=1, image_size=32, num_classes=10, data="synthetic")
    inference.report(lambda: predictor, asked, environment={}, imported=0.0)
    events = [json.loads(line.partition(" ")[2]) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["phase", "env", "phase", "run_start", "run_stop"]
    start, stop = events[3:]
    assert start["flop_per_sample"] == (flop and {"forward": 7, "backward": 0})
    assert (start["batch_per_device"], start["world_size"], start["num_classes"]) == (8, 1, 10)
    assert (stop["iterations"], stop["samples"], stop["parameter_norm"]) == (3, 24, 2.0)
