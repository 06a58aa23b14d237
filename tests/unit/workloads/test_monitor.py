"""Prevents: a sampler that outlives its runner, one that exits early, a burst of samples after a suspension, samples
in phase with the training step, a failing part that affects others, syntax that an old image's Python does not parse."""

import random
import statistics
import subprocess
import time
from types import SimpleNamespace

import monitor
import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_sampler import Device, Lost, Missing, Part, Sampler, next_sample
from sampled import MONITOR

LEASE = MONITOR.with_name("lease.py")
LEASE_ENDED = 143


@pytest.mark.parametrize("end", ["close", "terminate"])
def test_a_sampler_reports_its_start_and_its_stop(sampled, end):
    sampler = sampled("--gpus=", "--hz=50")
    sampler.rows_of("host", 1)
    assert getattr(sampler, end)() == 0
    (start,), (stop,) = sampler.events("monitor_start"), sampler.events("monitor_stop")
    assert (sampler.read[0], sampler.read[-1]) == (start, stop)
    assert (start.node, start.hz) == ("here", 50.0)
    assert stop.samples == len(sampler.rows_of("host", 1))
    assert stop.cpu_s > 0
    assert stop.seconds <= stop.t - start.t


def test_the_rows_of_one_second_are_one_line(sampled):
    sampler = sampled("--gpus=", "--hz=10")
    sampler.wait_for(lambda: len(sampler.read) >= 4)
    lines = [line.columns for line in sampler.read if not hasattr(line, "event")]
    # Whole seconds after the start, at ten a second; on a busy machine some may be late.
    assert all(2 <= len(line["t"]) <= 12 for line in lines[:2])
    assert lines[0]["t"] == sorted(lines[0]["t"])


def test_a_character_device_as_input_does_not_stop_the_sampler(sampled):
    """Under the lease a program's input is /dev/null: at its end from the start."""
    sampler = sampled("--gpus=", "--hz=50", stdin=subprocess.DEVNULL)
    sampler.rows_of("host", 60)
    assert sampler.terminate() == 0


def test_under_the_lease_the_sampler_writes_its_last_event(sampled):
    sampler = sampled("--gpus=", "--hz=50", command=[str(LEASE)])
    sampler.rows_of("host", 1)
    assert sampler.close() == LEASE_ENDED
    assert sampler.events("monitor_stop")


@pytest.mark.parametrize("hz", ["0", "-1", "fast", "nan"])
def test_a_rate_that_is_not_positive_is_refused(hz):
    done = subprocess.run(
        ["python3", str(MONITOR), "--node=here", f"--hz={hz}"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--hz" in done.stderr


@given(due=st.floats(0, 1e6), interval=st.floats(0.01, 10), late=st.floats(0, 1e5))
def test_samples_missed_during_a_suspension_are_not_made_up_for(due, interval, late):
    now = due + late
    beat = next_sample(due, interval, now)
    assert now < beat <= now + interval


def test_a_sample_that_is_early_or_slightly_late_shifts_no_later_one():
    assert next_sample(10.0, 0.5, 9.9) == 10.5
    assert next_sample(10.0, 0.5, 10.0) == 10.5
    assert next_sample(10.0, 0.5, 10.2) == 10.5
    assert next_sample(10.0, 0.5, 13.1) == 13.6


@pytest.mark.parametrize("step_s", [0.05, 0.1, 0.025])
def test_samples_hit_every_phase_of_a_repeating_step(monkeypatch, step_s):
    """Half of the step takes 300 W, the other half 900: samples at even intervals would see only one of them."""
    clock = SimpleNamespace(now=0.0)
    made_up = SimpleNamespace(
        monotonic=lambda: clock.now, sleep=lambda seconds: setattr(clock, "now", clock.now + seconds)
    )
    monkeypatch.setattr("monitor_sampler.time", made_up)
    random.seed(1)

    def power():
        sampler.stopping = clock.now > 400
        return [300 if clock.now % step_s < step_s / 2 else 900]

    sampler = Sampler(Device("gpu", [Part(["power_w"], power)]), hz=10)
    sampler.run()
    watts = [values["power_w"] for _, values in sampler.rows]
    assert len(watts) == pytest.approx(4000, rel=0.01)
    assert statistics.mean(watts) == pytest.approx(600, rel=0.03)


def run_for(sampler, rows):
    sampler.start()
    deadline = time.monotonic() + 30
    while len(sampler.rows) < rows and sampler.is_alive() and time.monotonic() < deadline:
        time.sleep(0.005)
    sampler.stopping = True
    sampler.join(30)
    assert not sampler.is_alive()


def failing(*errors):
    left = list(errors)

    def read():
        if left:
            raise left.pop(0)
        return [1]

    return read


def test_a_part_that_fails_is_retried_and_harms_no_other():
    parts = [Part(["a"], failing(RuntimeError("odd"), ZeroDivisionError())), Part(["b", "c"], lambda: [2, 3])]
    sampler = Sampler(Device("it", parts), hz=200)
    run_for(sampler, 4)
    values = [row for _, row in sampler.rows][:4]
    assert values == [{"b": 2, "c": 3}] * 2 + [{"a": 1, "b": 2, "c": 3}] * 2
    assert list(sampler.troubles) == [(["a"], "odd"), (["a"], "ZeroDivisionError()")]


def test_slow_parts_are_read_once_more_at_the_end():
    """Otherwise the increase of a counter in a run of less than a second would be unknown."""
    counts = iter(range(1000))
    parts = [Part(["count"], lambda: [next(counts)], every_s=3600.0), Part(["gauge"], lambda: [7])]
    sampler = Sampler(Device("it", parts), hz=200)
    run_for(sampler, 3)
    first, *between, last = [row for _, row in sampler.rows]
    assert first == {"count": 0, "gauge": 7}
    assert all(row == {"gauge": 7} for row in between)
    assert last == {"count": 1}


def test_a_lost_part_is_not_read_again():
    sampler = Sampler(Device("it", [Part(["a"], failing(Lost("gone"))), Part(["b"], lambda: [2])]), hz=200)
    run_for(sampler, 3)
    assert all(row == {"b": 2} for _, row in sampler.rows)
    assert list(sampler.troubles) == [(["a"], "gone")]


def test_a_flapping_value_is_one_trouble():
    readings = iter(range(1000))
    flicker = Part(["a"], lambda: [Missing("now and then") if next(readings) % 2 else 1])
    sampler = Sampler(Device("it", [flicker]), hz=200)
    run_for(sampler, 8)
    assert list(sampler.troubles) == [(["a"], "now and then")]
    assert [row for _, row in sampler.rows][:4] == [{"a": 1}, {}, {"a": 1}, {}]


class Recorded:
    """Records what is emitted."""

    def __init__(self):
        self.events_seen = []

    def emit(self, event, **fields):
        self.events_seen.append((event, fields))

    def rows(self, table, columns):
        self.events_seen.append((table, columns))


def test_a_stalled_call_is_reported_once():
    sampler = Sampler(Device("it", [Part(["a"], lambda: [1])]), hz=1)
    recorded = Recorded()
    writer = monitor.Writer(recorded, [sampler])
    trouble = ("trouble", {"device": "it", "fields": ["a"], "reason": "the kernel did not answer for 2 s"})
    sampler.call_began = time.monotonic() - 1
    writer.flush()
    assert recorded.events_seen == []
    for begun in (100, 90):
        sampler.call_began = time.monotonic() - begun
        writer.flush()
        writer.flush()
    assert recorded.events_seen == [trouble, trouble]


def test_rows_of_all_devices_share_their_columns():
    one, other = (Sampler(Device(name, []), hz=1) for name in ("gpu0", "host"))
    one.rows.extend([(1.00004, {"power_w": 3}), (2.0, {})])
    other.rows.append((1.5, {"core_percent": [1.0]}))
    recorded = Recorded()
    monitor.Writer(recorded, [one, other]).flush()
    table = {
        "t": [1.0, 2.0, 1.5],
        "device": ["gpu0", "gpu0", "host"],
        "power_w": [3, None, None],
        "core_percent": [None, None, [1.0]],
    }
    assert recorded.events_seen == [("telemetry", table)]
