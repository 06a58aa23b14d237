"""Prevents: means of layers that do not add up to Caffe's, rows outside their iteration or in another order than Caffe's, a time of day
converted to the wrong day or clock, a pass without evidence in the log, figures of iterations that were not requested."""

import io
import json
import time

import profile_caffe
import pytest
from events import Events

# As written by `caffe time` of Caffe 1.0, with other times.
TIMED = """\
I1121 14:34:29.045996     1 caffe.cpp:343] Use CPU.
I1121 14:34:29.076634     1 caffe.cpp:351] Performing Forward
I1121 14:34:29.094694     1 caffe.cpp:356] Initial loss: 2.37686
I1121 14:34:29.095082     1 caffe.cpp:357] Performing Backward
I1121 14:34:29.164649     1 caffe.cpp:365] *** Benchmark begins ***
I1121 14:34:29.200000     1 caffe.cpp:366] Testing for 2 iterations.
I1121 14:34:29.230000     1 caffe.cpp:394] Iteration: 1 forward-backward time: 30 ms.
I1121 14:34:29.240000     1 caffe.cpp:394] Iteration: 2 forward-backward time: 10 ms.
I1121 14:34:29.440605     1 caffe.cpp:397] Average time per layer:
I1121 14:34:29.440978     1 caffe.cpp:400] convolution1\tforward: 8.5 ms.
I1121 14:34:29.440978     1 caffe.cpp:403] convolution1\tbackward: 6.5 ms.
I1121 14:34:29.440989     1 caffe.cpp:400] label_dummydata1_0_split\tforward: 0.0012 ms.
I1121 14:34:29.440989     1 caffe.cpp:403] label_dummydata1_0_split\tbackward: 0.0008 ms.
I1121 14:34:29.441000     1 caffe.cpp:400]   pooling1\tforward: 2.5 ms.
I1121 14:34:29.441001     1 caffe.cpp:403]   pooling1\tbackward: 1.5 ms.
I1121 14:34:29.441279     1 caffe.cpp:408] Average Forward pass: 11.1 ms.
I1121 14:34:29.441318     1 caffe.cpp:410] Average Backward pass: 8.1 ms.
"""
TRAINED = """\
I1121 10:00:00.000000     1 caffe.cpp:250] Starting Optimization
I1121 10:00:01.000000     1 solver.cpp:239] Iteration 0 (0 iter/s, 0.0s/1 iters), loss = 2.5
I1121 10:00:01.000100     1 sgd_solver.cpp:112] Iteration 0, lr = 0.001
I1121 10:00:02.000000     1 solver.cpp:239] Iteration 1 (1 iter/s, 1s/1 iters), loss = 2.4
I1121 10:00:03.010000     1 solver.cpp:239] Iteration 2 (1 iter/s, 1s/1 iters), loss = nan
I1121 10:00:03.510000     1 solver.cpp:239] Iteration 3 (2 iter/s, 0.5s/1 iters), loss = 2.2
I1121 10:00:03.910000     1 solver.cpp:239] Iteration 4 (2.5 iter/s, 0.4s/1 iters), loss = 2.1
I1121 10:00:04.510000     1 solver.cpp:239] Iteration 5 (2.5 iter/s, 0.4s/1 iters), loss = 2.0
"""
KINDS = {"convolution1": "Convolution", "pooling1": "Pooling"}


class Process:
    """A Caffe that has written its log and exited."""

    pid = "self"

    def __init__(self, log, code=0):
        self.stderr, self.code = io.BytesIO(log.encode()), code

    def wait(self):
        return self.code


class Arguments:
    profile_iterations, profile_after, warmup, window = 2, None, 2, 1


@pytest.fixture
def recorded():
    """Events that write to a list, and that list as parsed."""
    stream = io.StringIO()

    def found():
        return [json.loads(line.split(":: ", 1)[1]) for line in stream.getvalue().splitlines()]

    return Events(0, stream), found


def test_layers_of_caffe_time_become_rows_that_add_up_to_its_means(recorded, capfd):
    events, found = recorded
    assert profile_caffe.time_layers(Process(TIMED), Arguments, events, kinds=KINDS) == (0, 3)
    assert capfd.readouterr().err == TIMED
    phase, loss, first_step, start, stop, rows = found()
    assert (phase["event"], loss["values"], first_step["event"]) == ("phase", [2.37686], "first_step")
    assert (start["source"], start["iteration"], start["steady"]) == ("caffe time", 1, False)
    assert stop["step_seconds"] == pytest.approx([0.03, 0.01], abs=1e-6)
    columns = rows["columns"]
    forward = ["Convolution forward", "Split forward", "Pooling forward"]
    backward = ["Pooling backward", "Split backward", "Convolution backward"]
    assert columns["name"] == 2 * (forward + backward)
    mean = {"Convolution forward": 8.5, "Pooling backward": 1.5, "Split forward": 0.0012}
    for name, milliseconds in mean.items():
        durations = [d for d, n in zip(columns["duration"], columns["name"], strict=True) if n == name]
        assert sum(durations) == pytest.approx(2 * milliseconds / 1e3)
        assert durations[0] / durations[1] == pytest.approx(3, rel=0.02)  # in proportion to their iterations
    ends = [start + duration for start, duration in zip(columns["start"], columns["duration"], strict=True)]
    assert columns["start"][1:6] == pytest.approx(ends[:5])  # one after the other
    assert columns["start"][6] - columns["start"][0] == pytest.approx(0.03, abs=1e-6)
    assert ends[5] < columns["start"][6]


@pytest.mark.parametrize(
    ("log", "code", "expected"),
    [
        (TIMED.replace("Iteration: 2 ", "Iterati"), 0, 1),
        (TIMED.partition("Average time")[0], 0, 1),
        (TIMED, 134, 134),
        (TIMED.replace("pooling1\tbackward", "pooling1"), 0, 1),
    ],
)
def test_an_incomplete_log_is_no_pass(recorded, log, code, expected):
    events, found = recorded
    assert profile_caffe.time_layers(Process(log, code), Arguments, events, kinds=KINDS) == (expected, 0)
    assert "profile_stop" not in [event.get("event") for event in found()]


def test_memory_is_that_of_the_process_and_steps_are_those_after_the_start(recorded):
    events, found = recorded
    assert profile_caffe.watch_memory(Process(TRAINED), Arguments, events) == (0, 4)
    told = found()
    assert [event["event"] for event in told] == [
        *("phase", "memory", "first_step", "profile_start", "profile_stop", "memory", "loss")
    ]
    _, model, _, start, stop, step, loss = told
    assert (model["phase"], step["phase"]) == ("model", "step")
    assert all(event["device"] == "host" and event["allocated_bytes"] > 1_000_000 for event in (model, step))
    assert start["iteration"] == 2
    assert start["plain_step_seconds"] == pytest.approx([1.0, 1.01], abs=1e-6)
    assert start["steady"] is True  # within 5 %
    assert stop["step_seconds"] == pytest.approx([0.5, 0.4], abs=1e-6)
    assert loss["values"] == [2.5, 2.4, None, 2.2, 2.1]


def test_a_training_that_ends_early_is_no_pass(recorded):
    events, _ = recorded
    cut = TRAINED[: TRAINED.index("Iteration 4")]
    assert profile_caffe.watch_memory(Process(cut), Arguments, events) == (1, 0)


@pytest.mark.parametrize(
    ("now", "line", "ago"),
    [
        ((2026, 11, 21, 14, 34, 30), b"I1121 14:34:29.250000     1 caffe.cpp:1] x", 0.75),
        # On either side of midnight.
        ((2026, 11, 22, 0, 0, 1), b"I1121 23:59:59.500000     1 caffe.cpp:1] x", 1.5),
        ((2026, 11, 21, 23, 59, 59), b"I1122 00:00:00.500000     1 caffe.cpp:1] x", -1.5),
    ],
)
def test_a_timestamp_is_converted_to_the_monotonic_clock(monkeypatch, now, line, ago):
    monkeypatch.setattr(time, "time", lambda: time.mktime((*now, 0, 0, -1)))
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    assert profile_caffe.Stamps().moment(line) == pytest.approx(1000 - ago, abs=1e-6)
