"""Prevents: a profiler that sees warm-up, barriers or another region than the requested one; regions that cost a measured run anything
or whose times miss the device's work; a pass with a different number of steps on some rank; a peak of another
phase; losses lost or numbered wrongly; a table with rows outside the steps."""

import ctypes
import io
import itertools
import mmap
import subprocess
import sys
import types
from pathlib import Path

import events
import loop
import profiling
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.events import parse

REGIONS = ("input", "forward", "backward", "optimizer")


class Clock:
    """A clock that advances only with work."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(profiling.time, "monotonic", lambda: self.now)


class Tracer:
    """A profiler that records what a program did under it."""

    source = "made up"

    def __init__(self, training, rows, *, whole):
        self.training, self.rows, self.whole = training, rows, whole

    def start(self):
        self.training.calls.append("start")
        self.training.clock.now += 1.0

    def stop(self):
        self.training.calls.append("stop")
        self.training.clock.now += 1.0

    def columns(self):
        return self.rows


class Training:
    """A device: a step enqueues a second of work in each region, which runs at a synchronization."""

    def __init__(self, clock, *, rows=None, tells=True, seconds=None, whole=False):
        self.whole = whole
        self.clock, self.rows, self.tells, self.seconds = clock, rows, tells, seconds or itertools.repeat(1.0)
        self.calls, self.enqueued, self.steps = [], 0.0, 0
        self.regions = profiling.Regions()
        self.batches = loop.Batches(itertools.repeat(None))
        self.high = 0

    def step(self):
        self.calls.append("step")
        work = next(self.seconds)
        for number, name in enumerate(REGIONS):
            with self.regions(name):
                self.calls.append(name)
                self.enqueued += work
                self.high = max(self.high, 10 * number)
        self.steps += 1
        return self.steps - 1

    def synchronize(self):
        self.clock.now += self.enqueued
        self.enqueued = 0.0

    def barrier(self):
        self.synchronize()
        self.calls.append("barrier")
        self.clock.now += 5.0

    def read(self, losses):
        assert not self.enqueued, "losses were read while the device was still at work"
        return [float(loss) for loss in losses]

    def evaluate(self):
        return [float(self.steps)]

    def profiler(self, kind):
        assert kind
        return Tracer(self, self.rows, whole=self.whole)

    def memory(self):
        high, self.high = self.high, 0
        return [{"device": "gpu0", "allocated_bytes": self.steps, "reserved_bytes": None, "peak_bytes": high}]

    def flop_counts(self):
        return [{"source": "made up", "phase": "forward", "flop_per_sample": 2.0, "operators": {"conv": 2.0}}]

    def slowest(self, seconds):
        return seconds if self.tells else None

    @property
    def ranks(self):
        return self


def watched_regions(only):
    """Names of the regions of a step whose backward and optimizer lie within an update, if only `only` is watched."""
    clock = types.SimpleNamespace(enter=lambda: None, settle=lambda: None, leave=lambda _: None)
    regions = profiling.Regions()
    regions.watch(clock, only=only)
    with regions("forward"):
        pass
    with regions("update"):
        with regions("backward"):
            pass
        with regions("optimizer"):
            pass
    return [name for name, _, _ in regions.close()]


def test_an_update_is_one_region_if_requested_and_its_parts_otherwise():
    assert watched_regions("update") == ["update"]
    assert watched_regions("optimizer") == ["optimizer"]
    assert watched_regions(None) == ["forward", "backward", "optimizer"]


def run(training, **options):
    stream = io.StringIO()
    words = {"kind": "kernels", "after": None, "iterations": 3, "region": None, "window": 2, **options}
    done = profiling.profile(training, events.Events(rank=0, stream=stream), **words)
    assert done == training.steps
    assert training.regions("forward") is profiling.NO_REGION, "regions are still watched after the pass"
    return [parse.parse_line(line, received=0.0, container="c") for line in stream.getvalue().splitlines()]


def only(found, name):
    return [event for event in found if not isinstance(event, parse.Rows) and event.event == name]


@pytest.fixture
def training(monkeypatch):
    return Training(Clock(monkeypatch))


def test_an_unwatched_region_does_nothing():
    regions = profiling.Regions()
    assert regions("forward") is regions("backward") is profiling.NO_REGION
    with regions("forward"):
        pass
    assert regions.spans == []


def test_preemption_between_clock_readings_shifts_nothing(monkeypatch):
    """Of five readings only the third is not interrupted for 3 ms, before or after the real clock is read."""
    offset, now = 10**18, [0]
    steps = iter([0, 3_000_000, 100, 0, 100, 3_000_000, 0, 100, 100, 0, 3_000_000, 100, 0, 100, 3_000_000])

    def passed():
        now[0] += next(steps)
        return now[0]

    # Each reading takes monotonic, real, monotonic: the steps are relative to the previous reading.
    readings = itertools.cycle((0, offset, 0))
    monkeypatch.setattr(profiling.time, "monotonic_ns", lambda: passed() + next(readings))
    monkeypatch.setattr(profiling.time, "time_ns", lambda: passed() + next(readings))
    assert profiling.realtime_offset_ns() == offset


def test_the_profiler_sees_only_the_requested_steps(training):
    run(training)
    under = training.calls[training.calls.index("start") + 1 : training.calls.index("stop")]
    assert under == ["barrier", *["step", *REGIONS] * 3]


def test_one_step_two_equal_windows_and_five_plain_steps_come_first(training):
    (start,) = only(run(training), "profile_start")
    assert (start.iteration, start.steady, start.source, start.region) == (1 + 2 * 2 + 5, True, "made up", None)
    assert start.plain_step_seconds == (4.0,) * 5  # four regions of a second


def test_a_rate_that_never_settles_gets_ten_windows_and_is_reported_unsteady(monkeypatch):
    training = Training(Clock(monkeypatch), seconds=(1.1**step for step in itertools.count()))
    (start,) = only(run(training), "profile_start")
    assert (start.iteration, start.steady) == (1 + 10 * 2 + 5, False)


def test_windows_that_differ_by_five_percent_agree():
    assert profiling.agree([9.0, 1.0, 0.96])
    assert not profiling.agree([1.0, 0.94])
    assert not profiling.agree([1.0])


def test_ranks_that_cannot_agree_all_run_ten_windows(monkeypatch):
    training = Training(Clock(monkeypatch), tells=False)
    (start,) = only(run(training), "profile_start")
    assert (start.iteration, start.steady) == (1 + 10 * 2 + 5, True)


@pytest.mark.parametrize(
    ("after", "iteration", "steady"), [(1, 6, False), (9, 9, False), (10, 10, True), (13, 13, True)]
)
def test_it_begins_after_the_requested_steps_but_at_least_six(training, after, iteration, steady):
    (start,) = only(run(training, after=after), "profile_start")
    assert (start.iteration, start.steady) == (iteration, steady)


def test_profiled_steps_are_timed_with_the_device_synchronized(training):
    (stop,) = only(run(training), "profile_stop")
    assert (stop.iterations, stop.step_seconds) == (3, (4.0,) * 3)


def test_only_the_region_is_profiled_in_each_step(training):
    run(training, region="backward")
    first = training.calls.index("start")
    assert training.calls[first - 3 : first + 4] == [
        "step",
        "input",
        "forward",
        "start",
        "backward",
        "stop",
        "optimizer",
    ]
    assert training.calls.count("start") == training.calls.count("stop") == 3


def test_a_profiler_that_can_start_once_keeps_only_rows_that_begin_in_the_region(monkeypatch):
    training = Training(Clock(monkeypatch), rows=None, whole=True)
    found = run(training, region="backward", iterations=2)
    under = training.calls[training.calls.index("start") + 1 : training.calls.index("stop")]
    assert under == ["barrier", *["step", *REGIONS] * 2]
    assert "start" not in training.calls[training.calls.index("start") + 1 :]
    assert only(found, "profile_start")[0].region == "backward"


def test_work_of_a_gpu_belongs_to_the_region_of_its_call():
    rows = [
        ("call", "launch a", 1.5, 7),
        ("kernel", "a", 2.5, 7),  # called in the region, started after it
        ("call", "launch b", 0.5, 8),
        ("kernel", "b", 1.2, 8),  # started in the region, called before it
        ("kernel", "of nobody's call", 1.4, 9),
        ("op", "within", 1.1, None),
        ("op", "after", 2.1, None),
        ("region", "backward", 1.0, None),
    ]
    columns = dict(zip(("kind", "name", "start", "correlation"), map(list, zip(*rows, strict=True)), strict=True))
    kept = profiling.rows_in_spans(columns, [(1.0, 2.0)])
    assert kept["name"] == ["launch a", "a", "of nobody's call", "within", "backward"]
    assert len({len(values) for values in kept.values()}) == 1


def test_regions_include_the_work_enqueued_in_them(training):
    found = only(run(training, kind="region"), "regions")
    assert {event.name: event.seconds for event in found} == dict.fromkeys(REGIONS, (1.0,) * 3)


def test_a_single_region_is_timed(training):
    (event,) = only(run(training, kind="region", region="optimizer"), "regions")
    assert (event.name, event.seconds) == ("optimizer", (1.0,) * 3)


def test_two_passages_of_a_step_through_a_region_add_up():
    found = [("forward", 1.0, 2.0), ("backward", 2.0, 4.0), ("forward", 4.0, 4.5), ("forward", 11.0, 14.0)]
    assert profiling.seconds_by_step(found, "forward", [(1.0, 5.0), (11.0, 15.0)]) == [1.5, 3.0]


def test_each_phase_has_its_own_peak(training):
    found = only(run(training, kind="memory"), "memory")
    assert [(event.phase, event.peak_bytes) for event in found] == [
        ("model", 0),
        *[("input", 0), ("forward", 10), ("backward", 20), ("optimizer", 30)],
    ]
    assert {event.device for event in found} == {"gpu0"}
    assert found[1].allocated_bytes == training.steps - 1, "not the highest of all steps"


def test_other_kinds_have_neither_memory_nor_regions(training):
    found = run(training, kind="kernels")
    assert not only(found, "memory") + only(found, "regions")


def test_a_metrics_pass_is_long_enough_for_a_sampler(monkeypatch):
    monkeypatch.delenv("DLSCALE_COUNTERS", raising=False)
    seconds = itertools.repeat(0.0125)  # of each of the four regions: 60 steps of 0.05 s are 3 s
    (stop,) = only(run(Training(Clock(monkeypatch), seconds=seconds), kind="metrics"), "profile_stop")
    assert stop.iterations in {60, 61}  # rounding of a sum


@pytest.mark.parametrize(("tells", "counters"), [(True, "ncu"), (False, "")])
def test_a_metrics_pass_keeps_the_requested_steps_under_ncu_or_if_ranks_cannot_agree(monkeypatch, tells, counters):
    monkeypatch.setenv("DLSCALE_COUNTERS", counters)
    seconds = itertools.repeat(0.0125)
    (stop,) = only(run(Training(Clock(monkeypatch), tells=tells, seconds=seconds), kind="metrics"), "profile_stop")
    assert stop.iterations == 3


def test_a_calls_pass_keeps_all_rows_and_reports_no_plain_steps(monkeypatch):
    """Calls of the start-up precede all steps; a recorder that is always on leaves no unprofiled steps to compare with."""
    rows = {"kind": ["call"], "name": ["cuDeviceGetAttribute"], "device": [-1], "start": [0.5], "duration": [1e-6]}
    found = run(Training(Clock(monkeypatch), rows=rows, whole=True), kind="calls")
    (table,) = [one for one in found if isinstance(one, parse.Rows)]
    assert table.columns["name"] == ["cuDeviceGetAttribute"]
    assert only(found, "profile_start")[0].plain_step_seconds == ()


def test_rows_outside_the_steps_are_dropped_and_regions_are_rows(monkeypatch):
    clock = Clock(monkeypatch)
    # Steps of 4 s begin at 135, 139 and 143: six of them before, two barriers of 5 s, one start of 1 s.
    kernels = {"kind": ["kernel"] * 4, "name": list("abcd"), "device": [0] * 4, "duration": [0.5] * 4}
    training = Training(clock, rows={**kernels, "start": [134.9, 135.0, 146.5, 147.1]})
    found = [event for event in run(training, after=1) if isinstance(event, parse.Rows)]
    rows = [row for event in found for row in zip(*map(event.columns.get, ("kind", "name", "start")), strict=True)]
    assert rows[:2] == [("kernel", "b", 135.0), ("kernel", "c", 146.5)]
    # The device works during a synchronization, at the end of a step.
    assert rows[2:] == [("region", name, start) for start in (135.0, 139.0, 143.0) for name in REGIONS]


@given(after=st.none() | st.integers(1, 30), iterations=st.integers(1, 9), window=st.integers(1, 7))
def test_every_step_has_its_loss(after, iterations, window):
    with pytest.MonkeyPatch.context() as monkeypatch:
        training = Training(Clock(monkeypatch))
        found = run(training, after=after, iterations=iterations, window=window)
    losses = {
        event.first_iteration + offset: value
        for event in only(found, "loss")
        for offset, value in enumerate(event.values)
    }
    assert losses == {number: float(number) for number in range(training.steps)}
    assert [event.iteration for event in only(found, "eval")] == [training.steps]
    assert only(found, "profile_start")[0].iteration + iterations == training.steps


def test_events_come_in_the_order_of_the_contract(training):
    names = [event.event for event in run(training, kind="region", region="forward", after=1)]
    assert names == [
        *["loss", "first_step", "loss"],
        *["profile_start", "profile_stop", "loss", "regions", "flop_count", "eval"],
    ]


def test_the_peak_of_a_process_is_reset_at_each_reading(tmp_path):
    (tmp_path / "status").write_text("Name:\tpython3\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n")
    expected = {"device": "host", "allocated_bytes": 1 << 20, "reserved_bytes": None, "peak_bytes": 2 << 20}
    assert profiling.host_memory(tmp_path) == [expected]
    assert (tmp_path / "clear_refs").read_text() == "5"


def test_a_peak_that_cannot_be_reset_is_unknown(tmp_path):
    (tmp_path / "status").write_text("VmHWM:\t2048 kB\nVmRSS:\t1024 kB\n")
    (tmp_path / "clear_refs").mkdir()  # not writable
    assert profiling.host_memory(tmp_path)[0]["peak_bytes"] is None


def test_memory_of_this_process_grows_and_its_peak_is_reset():
    profiling.host_memory()
    before = profiling.host_memory()[0]
    block = mmap.mmap(-1, 64 << 20)  # not the allocator's, which may reuse memory
    for page in range(0, len(block), mmap.PAGESIZE):
        block[page] = 1  # a page that is never written is not resident
    during = profiling.host_memory()[0]
    assert during["peak_bytes"] >= during["allocated_bytes"] - (8 << 20)
    assert during["allocated_bytes"] > before["allocated_bytes"] + len(block) // 2
    block.close()
    after = profiling.host_memory()[0]
    assert after["allocated_bytes"] < during["allocated_bytes"] - (32 << 20)


def test_tensorflow_refuses_a_region_before_its_import():
    """A program refuses a pass that it cannot make, without TensorFlow, which is not installed here."""
    program = Path(profiling.__file__).parent / "imagenet_cnn/train_tensorflow.py"
    words = (
        "--model=lenet --image-size=32 --num-classes=10 --batch=8 --iterations=4 --warmup=1 --window=2 --precision=fp32 --device=cpu "
        "--devices=1 --strategy=single --data=synthetic --learning-rate=0.001 --momentum=0.9 --weight-decay=0 --seed=1 --threads=1 "
        "--cpus-per-worker=0 --loader-workers=1 --profile=kernels --profile-region=backward"
    )
    done = subprocess.run([sys.executable, program, *words.split()], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "ask for input" in done.stderr


@pytest.mark.parametrize("program", ["train_caffe", "train_mxnet"])
def test_a_model_that_a_framework_lacks_is_refused_in_one_line_before_its_import(program):
    """It ended with a traceback from the framework's list of layers."""
    words = (
        "--model=vit-ti16 --image-size=32 --num-classes=10 --batch=8 --iterations=4 --warmup=1 --window=2 --precision=fp32 --device=cpu "
        "--devices=1 --strategy=single --data=synthetic --learning-rate=0.001 --momentum=0.9 --weight-decay=0 --seed=1 --threads=1 "
        "--cpus-per-worker=0 --loader-workers=1"
    )
    path = Path(profiling.__file__).parent / f"imagenet_cnn/{program}.py"
    done = subprocess.run([sys.executable, path, *words.split()], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--model=vit-ti16 is not offered with" in done.stderr


def test_an_external_tool_sees_what_is_profiled_but_not_the_profiler(monkeypatch, training):
    """A library under another name than the loaded one would be a second copy, which no profiler watches."""

    class Library:
        def __init__(self, name):
            assert name == "libcudart.so.12"

        def __getattr__(self, name):
            return lambda: training.calls.append(name)

    monkeypatch.setattr(ctypes, "CDLL", Library)
    rows, options = {"start": [1.0]}, {"memory": profiling.Clock("memory"), "cuda": "libcudart.so.12"}
    kernels = profiling.tracer("kernels", kernels=lambda: Tracer(training, rows, whole=True), **options)
    metrics = profiling.tracer("metrics", kernels=None, **options)
    for bracket in (kernels, metrics):
        bracket.start()
        bracket.stop()
    cuda = ["cudaProfilerStart", "cudaProfilerStop"]
    assert training.calls == ["start", *cuda, "stop", *cuda]
    assert (kernels.source, kernels.whole, kernels.columns()) == ("made up", True, rows)
    assert (metrics.source, metrics.whole, metrics.columns()) == ("cuda profiler api", False, None)
    sources = [
        profiling.tracer(kind, kernels=None, **{**options, "cuda": None}).source
        for kind in ("memory", "region", "metrics")
    ]
    assert sources == ["memory", "clock", "clock"]
