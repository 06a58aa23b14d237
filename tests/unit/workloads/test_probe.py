"""Prevents: damaged or lost data that counts as a fast wire, a mean instead of a median, a rank that leaves the common sequence, warm-up in a
figure, a peak of too small matrices, a slower precision or a GPU, an incomparable bus bandwidth, NumPy's threads sized before the pinning."""

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import events
import numpy as np
import probe
import pytest

from runner.analysis.grading.measure import exchanges
from runner.core.events import parse

WORKLOADS = Path(__file__).parents[3] / "workloads"


class Exchange:
    """An exchange among `devices` ranks; `spoil` alters the result."""

    def __init__(self, training, elements, *, operation, devices):
        self.training, self.elements = training, elements
        self.operation, self.devices = operation, devices

    def fill(self):
        self.training.calls.append("fill")

    def run(self):
        self.training.calls.append("run")

    def results(self):
        return [self.training.spoil(sum(probe.part(number, self.elements) for number in range(self.devices)))]


class Training:
    """Records the probe's calls; each exchange or pass takes the next of `durations` on its own clock."""

    def __init__(self, durations, *, operation="all_reduce", devices=4, spoil=lambda result: result):
        self.calls, self.durations, self.now = [], iter(durations), 0.0
        self.operation, self.devices, self.spoil = operation, devices, spoil

    def exchange(self, elements):
        if self.devices == 1:
            return None
        return Exchange(self, elements, operation=self.operation, devices=self.devices)

    def alone(self):
        return lambda: self.calls.append("run")

    def synchronize(self):
        if self.calls[-1] == "run":
            self.now += next(self.durations)
        self.calls.append("synchronize")

    def barrier(self):
        self.calls.append("barrier")
        self.now += 100.0  # however long the other ranks take to arrive


def emitted(monkeypatch, training, act, *, rank=0):
    monkeypatch.setattr(probe.time, "monotonic", lambda: training.now)
    stream = io.StringIO()
    act(training, events.Events(rank=rank, stream=stream))
    return [parse.parse_line(line, received=0.0, container="c") for line in stream.getvalue().splitlines()]


def wires(*sizes):
    return lambda training, emitter: probe.wires(training, emitter, sizes=sizes)


def test_an_exchange_takes_the_median_of_three_after_an_untimed_one(monkeypatch):
    found = emitted(monkeypatch, Training([9.0, 0.5, 0.25, 0.125]), wires(1_000_000))
    assert [event.event for event in found] == ["bandwidth", "phase"]
    assert found[0].seconds == (0.5, 0.25, 0.125)
    assert found[0].time_us == 250_000
    assert (found[0].size_bytes, found[0].elements, found[0].wrong) == (1_000_000, 250_000, 0)
    assert found[0].algbw_gb_s == 0.004
    assert found[0].busbw_gb_s == 0.006  # 4 devices: 2 x 3 / 4
    assert (found[1].name, found[1].rank) == ("probe_wires", 0)


def test_all_ranks_run_the_same_sequence_and_only_rank_0_reports(monkeypatch):
    first, second = Training([1.0] * 8), Training([0.1, 7.0, 0.01, 3.0] * 2)
    heard = emitted(monkeypatch, first, wires(64, 128))
    silent = emitted(monkeypatch, second, wires(64, 128), rank=1)
    assert first.calls == second.calls == ["fill", "synchronize", "barrier", "run", "synchronize"] * 8
    assert [event.event for event in heard] == ["bandwidth", "bandwidth", "phase"]
    assert [event.event for event in silent] == ["phase"]


def test_a_single_device_exchanges_nothing(monkeypatch):
    assert emitted(monkeypatch, Training([], devices=1), wires(64)) == []


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (lambda result: result, 0),
        (lambda result: np.roll(result, 1), 32),  # complete, but every element is misplaced
        (np.zeros_like, 32),
        (lambda result: np.where(np.arange(32) == 5, np.nan, result), 1),
        (lambda result: result / 4, 32),  # averaged
        (lambda result: np.concatenate([result[:30], probe.part(0, 32)[30:]]), 2),  # the end did not arrive
    ],
)
def test_wrong_elements_of_the_sum_are_counted(monkeypatch, spoil, wrong):
    (found, _) = emitted(monkeypatch, Training([1.0] * 4, spoil=spoil), wires(128))
    assert found.wrong == wrong


def test_a_wrong_sum_on_another_rank_is_reported_with_rank_0s_time(monkeypatch):
    right = emitted(monkeypatch, Training([1.0] * 4), wires(128))
    wrong = emitted(monkeypatch, Training([3.0] * 4, spoil=np.zeros_like), wires(128), rank=1)
    assert [event.event for event in wrong] == ["bandwidth", "phase"]
    (exchange,) = exchanges([*wrong, *right])
    assert (exchange.wrong, exchange.seconds) == (32, 1.0)


def test_parts_add_up_as_computed_by_hand():
    # Elements 0 and 9 of three devices: (0 + 0) + (0 + 1) + (0 + 2) = 3, and (1 + 0) + (1 + 1) + (1 + 2) = 6.
    parts = [probe.part(number, 10) for number in range(3)]
    assert {one.dtype for one in parts} == {np.dtype("float32")}
    assert (sum(parts)[0], sum(parts)[9]) == (3.0, 6.0)
    assert probe.wrong_elements([sum(parts)], 3) == 0


@pytest.mark.parametrize(
    ("operation", "devices", "factor"), [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("push_pull", 8, 1.0)]
)
def test_bus_bandwidth_is_what_leaves_a_device(operation, devices, factor):
    assert probe.bus_factor(operation, devices) == factor


def test_passes_are_timed_one_by_one_after_all_ranks_have_warmed_up(monkeypatch):
    training = Training([8.0, 0.5, 0.75, 0.25])
    compute, phase = emitted(monkeypatch, training, probe.compute, rank=2)
    assert training.calls == ["run", "synchronize", "barrier"] + ["run", "synchronize"] * 3
    assert (compute.rank, compute.seconds) == (2, (0.5, 0.75, 0.25))
    assert (phase.name, phase.seconds) == ("probe_compute", 109.5)


def test_passes_unlike_those_of_a_step_are_not_reported(monkeypatch):
    training = Training([])
    training.alone = lambda: None
    assert emitted(monkeypatch, training, probe.compute) == []


class Cores(Training):
    """A training on CPUs that multiplies at `rates` FLOP/s by precision; the first product of each size takes 0.1 s more.

    `shares` maps numbers of rows to the share of the rate that such matrices reach, if it is not all.
    """

    def __init__(self, rates, *, precision="fp32", device="cpu", count=1, shares=None):
        super().__init__([])
        self.args = SimpleNamespace(device=device, precision=precision)
        self.rates, self.count, self.shares, self.sizes = rates, count, shares or {}, []

    def product(self, size, precision):
        self.sizes.append((precision, size))
        self.fresh = True

        def run():
            share = self.shares.get(size, 1.0)
            self.now += 2 * size**3 * self.count / (share * self.rates[precision]) + self.fresh * 0.1
            self.fresh = False
            self.calls.append("product")

        return run, self.count, "mm"


def test_the_peak_is_that_of_the_fastest_matrix_size(monkeypatch):
    """At half of 2e11 FLOP/s, 512 rows take 2.7 ms and 1,024 take 21 ms; 2,048 take 86 ms at the full rate, and twice as many too long."""
    training = Cores({"fp32": 2e11}, shares={512: 0.5, 1024: 0.5})
    found, phase = emitted(monkeypatch, training, probe.peak, rank=1)
    assert training.calls[0] == "barrier"
    assert training.sizes == [("fp32", 512), ("fp32", 1024), ("fp32", 2048)]
    assert found.flop_per_s == pytest.approx(2e11)
    assert (found.rank, found.precision, found.library) == (1, "fp32", "mm in fp32")
    assert found.cores == len(os.sched_getaffinity(0))
    # 100 s until all had met; per size 0.25 s, the excess of the last product, and an untimed product.
    assert (phase.name, phase.seconds) == ("probe_peak", pytest.approx(101.2, abs=0.15))


def test_few_cores_are_fastest_with_small_matrices(monkeypatch):
    """Products of 2,048 rows, the last size timed, were a tenth slower than those of 512 on two cores."""
    training = Cores({"fp32": 2e11}, shares={2048: 0.9})
    found, _ = emitted(monkeypatch, training, probe.peak)
    assert training.sizes[-1] == ("fp32", 2048)
    assert found.flop_per_s == pytest.approx(2e11)


def test_products_on_several_devices_of_a_process_add_up(monkeypatch):
    found, _ = emitted(monkeypatch, Cores({"fp32": 2e11}, count=2), probe.peak)
    assert found.flop_per_s == pytest.approx(2e11)


@pytest.mark.parametrize(("bf16", "peak", "library"), [(1e12, 1e12, "mm in bf16"), (1e9, 2e11, "mm in fp32")])
def test_cores_that_are_slower_in_bf16_have_the_peak_of_fp32(monkeypatch, bf16, peak, library):
    training = Cores({"fp32": 2e11, "bf16": bf16}, precision="bf16")
    found, _ = emitted(monkeypatch, training, probe.peak)
    assert (found.precision, found.flop_per_s, found.library) == ("bf16", pytest.approx(peak), library)


def test_a_gpu_and_a_program_without_products_have_no_measured_peak(monkeypatch):
    assert emitted(monkeypatch, Cores({"fp32": 1e12}, device="gpu"), probe.peak) == []
    assert emitted(monkeypatch, Training([]), probe.peak) == []


def test_numpy_is_imported_after_the_pinning():
    code = "import sys; sys.path.insert(0, sys.argv[1]); import loop, events; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(WORKLOADS)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
