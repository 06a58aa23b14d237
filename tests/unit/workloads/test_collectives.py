"""Prevents: wrong or misplaced data that counts as a fast wire, a wrong result that only ranks other than rank 0 see,
minutes spent on a slow wire, a bus bandwidth that is not comparable, channels of the probe in the evidence of the transport."""

import contextlib
import functools
import io

import collectives
import events
import numpy as np
import pytest

from runner.core.events import COLLECTIVES, parse


def exchanged(operation, sent):
    """The result of a correct library on each device, from what all send."""
    n = len(sent)
    if operation == "all_gather":
        return [np.concatenate(sent)] * n
    if operation == "reduce_scatter":
        return np.split(sum(sent), n)
    return [np.concatenate([np.split(one, n)[number] for one in sent]) for number in range(n)]


class Exchange:
    """One device of `devices`; `spoil` alters its result. Each run takes half a second of the training's clock."""

    def __init__(self, operation, training, elements):
        self.operation, self.training, self.number, self.devices = operation, training, training.number, 4
        self.share = elements // self.devices

    def fill(self):
        pass

    def run(self):
        self.training.now += 0.5

    def results(self):
        sent = [collectives.payload(self.operation, number, self.devices, self.share) for number in range(self.devices)]
        return [self.training.spoil(exchanged(self.operation, sent)[self.number])]


class Training:
    """`worst` is the maximum over the other ranks."""

    def __init__(self, *, number=0, spoil=lambda result: result, offered=COLLECTIVES, worst=0.0):
        self.number, self.spoil, self.offered, self.worst, self.now = number, spoil, offered, worst, 0.0
        self.ranks = self

    @contextlib.contextmanager
    def collectives(self):
        missing = None if self.offered else "it only pushes and pulls"
        yield {name: functools.partial(Exchange, name, self) for name in self.offered}, missing

    def slowest(self, seconds):
        return max(seconds, self.worst)

    def synchronize(self):
        pass

    def barrier(self):
        pass


def emitted(monkeypatch, training, took, *, rank=0):
    monkeypatch.setattr("time.monotonic", lambda: training.now)
    stream = io.StringIO()
    collectives.collectives(training, events.Events(rank=rank, stream=stream), timings=took)
    return [parse.parse_line(line, received=0.0, container="c") for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("operation", COLLECTIVES)
@pytest.mark.parametrize("number", range(4))
def test_expected_results_are_those_of_a_correct_library(operation, number):
    sent = [collectives.payload(operation, other, 4, 16) for other in range(4)]
    got = exchanged(operation, sent)
    assert np.array_equal(collectives.expected_result(operation, number, 4, 16), got[number])
    # Except for an all-gather, no two devices expect the same: a misplaced result is detected.
    same = [other for other in range(4) if np.array_equal(got[other], got[number])]
    assert same == (list(range(4)) if operation == "all_gather" else [number])


def test_expected_results_as_computed_by_hand():
    """Two devices, shares of two elements: device 0 sends 0 1 | 1 2 for the reduce-scatter, device 1 sends 1 2 | 2 3; the sums are 1 3 | 3 5."""
    assert collectives.expected_result("all_gather", 1, 2, 2).tolist() == [0, 1, 1, 2]
    assert collectives.expected_result("reduce_scatter", 0, 2, 2).tolist() == [1, 3]
    assert collectives.expected_result("reduce_scatter", 1, 2, 2).tolist() == [3, 5]
    # Device 0 sends 0 1 | 1 2, device 1 sends 2 3 | 3 4.
    assert collectives.expected_result("all_to_all", 0, 2, 2).tolist() == [0, 1, 2, 3]
    assert collectives.expected_result("all_to_all", 1, 2, 2).tolist() == [1, 2, 3, 4]


def test_bandwidths_as_computed_by_hand(monkeypatch):
    """1e6 bytes in half a second are 2e-3 GB/s; of four devices three quarters of that leave each, in all three operations."""
    *found, phase = emitted(monkeypatch, Training(), {1_000_000: 0.1})
    assert [event.operation for event in found] == list(COLLECTIVES)
    for event in found:
        assert (event.size_bytes, event.elements, event.wrong) == (1_000_000, 250_000, 0)
        assert event.seconds == (0.5, 0.5, 0.5)
        assert (event.algbw_gb_s, event.busbw_gb_s) == (pytest.approx(0.002), pytest.approx(0.0015))
    assert (phase.name, phase.seconds) == ("probe_collectives", 6.0)


def test_bytes_are_those_of_whole_shares(monkeypatch):
    (event, _) = emitted(monkeypatch, Training(offered=("all_gather",)), {4 * 1023: 0.1})
    assert (event.elements, event.size_bytes) == (1020, 4080)


@pytest.mark.parametrize("operation", COLLECTIVES)
@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (np.zeros_like, None),
        (lambda result: np.roll(result, 1), None),
        (lambda result: result[::-1], None),
        (lambda result: np.where(np.arange(result.size) == 5, np.nan, result), 1),
        (lambda result: result[:-1], None),
    ],
)
def test_wrong_elements_are_counted(monkeypatch, operation, spoil, wrong):
    (found, _) = emitted(monkeypatch, Training(number=1, spoil=spoil, offered=(operation,)), {1024: 0.1})
    assert found.wrong == wrong if wrong else found.wrong > 10


def test_rank_0_reports_a_wrong_result_of_another_rank(monkeypatch):
    training = Training(offered=("reduce_scatter",))
    training.slowest = lambda found: max(found, 7.0) if isinstance(found, float) and found != 0.1 else found
    (found, _) = emitted(monkeypatch, training, {1024: 0.1})
    assert found.wrong == 7


def test_sizes_that_are_slow_on_any_rank_are_skipped(monkeypatch):
    *found, _ = emitted(monkeypatch, Training(), {1024: 0.1, 4096: 0.26})
    assert {event.size_bytes for event in found} == {1024}
    assert [event.event for event in emitted(monkeypatch, Training(worst=0.3), {1024: 0.1})] == ["phase"]


def test_missing_operations_are_reported_once(monkeypatch):
    told, _ = emitted(monkeypatch, Training(offered=()), {1024: 0.1})
    assert (told.operations, told.reason) == (COLLECTIVES, "it only pushes and pulls")
    assert [event.event for event in emitted(monkeypatch, Training(offered=()), {1024: 0.1}, rank=1)] == ["phase"]
    assert emitted(monkeypatch, Training(), {}) == []  # one device


def test_channels_that_only_the_probe_uses_are_no_evidence(monkeypatch, tmp_path):
    log, stream = tmp_path / "nccl", io.StringIO()
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(log))
    emitter = events.Events(rank=0, stream=stream)
    log.write_text("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n")
    with emitter.without_nccl_log(), log.open("a") as file:
        file.write("Channel 00 : 0[0] -> 3[3] via SHM/direct/direct\n")
    with log.open("a") as file:
        file.write("Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM\n")
    emitter.nccl()
    event = parse.parse_line(stream.getvalue(), received=0.0, container="c")
    assert [line.split(" : ")[0] for line in event.lines] == ["Channel 00/0", "Channel 01/0"]
