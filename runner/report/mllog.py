"""A run as MLPerf's `:::MLLOG` lines, the field's format for training logs. Pure: a record and its events → text.

Keys are used only with their MLPerf meaning (https://github.com/mlcommons/training_policies, training_rules.adoc):

    init_start, init_stop    from the first container to the end of warm-up
    run_start, run_stop      the measured iterations; status is `success` unless the run failed or is invalid
    train_samples            of the data set; absent for synthetic data
    epoch_start, epoch_stop  in training to convergence: an epoch's training, without the validation between eval_start and eval_stop
    eval_accuracy            the share, 0 to 1, of validation samples that were classified correctly
    tracked_stats            samples a second of each window, and of the steady state at the end; absent if the run is invalid

Names are those of `mlperf_logging/mllog/constants.py`; `tracked_stats` is NVIDIA's (`mlperf-common`), from which the field reads
throughput. No key names a submitter or benchmark (`submission_*`): a run of this suite is not a submission.

Times are those of the machine that ran `dlscale`: the time when it collected the machine's facts, right before the run, plus the seconds
since then on its monotonic clock. Differences are exact; absolute times are within the seconds for which idle power was measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.analysis.grading import metrics
from runner.core.events import Epoch, Event, WarmupEnd, Window
from runner.core.record import RunRecord
from runner.core.trial import Trial


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the log; `at` is in seconds on the runner's monotonic clock, `value` any JSON."""

    at: float
    kind: str
    key: str
    value: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def fields(self, clock: _Clock) -> dict[str, Any]:
        """The JSON object, with the keys in the order of MLPerf's own logger."""
        return {
            "namespace": "",
            "time_ms": round(1000 * (clock.epoch_s + self.at)),
            "event_type": self.kind,
            "key": self.key,
            "value": self.value,
            "metadata": dict(self.metadata),
        }


def mllog(record: RunRecord, events: Sequence[Event]) -> str | None:
    """The log of a run, in chronological order; None if it has no measured window.

    Args:
        record: of a measured training; passes under a profiler and inference have no such log.
        events: the raw events of all its ranks.
    """
    windows = [event for event in events if isinstance(event, Window)]
    if not windows:
        return None
    clock = _Clock.of(record, events)
    # Sorting is stable: lines with equal times keep their order.
    parts = (
        _settings(record),
        _begin(record, events, windows, clock),
        _rates(record, windows, clock),
        _epochs(record, events, clock),
        _end(record, events, windows, clock),
    )
    lines = sorted((line for part in parts for line in part), key=lambda line: line.at)
    return "".join(f":::MLLOG {json.dumps(line.fields(clock))}\n" for line in lines)


@dataclass(frozen=True)
class _Clock:
    """Maps every rank's clock to the runner's, and the runner's to calendar time.

    Attributes:
        ahead: by rank, seconds to add to its clock, assuming that its fastest line was received without delay.
        epoch_s: the runner's monotonic zero in seconds since 1970.
    """

    ahead: Mapping[int, float]
    epoch_s: float

    @classmethod
    def of(cls, record: RunRecord, events: Sequence[Event]) -> _Clock:
        ahead: dict[int, float] = {}
        # Samplers report rank 0 as well, with the clocks of other hosts.
        homes = {event.rank: event.container for event in events if isinstance(event, Window)}
        for event in events:
            if event.container != homes.get(event.rank):
                continue
            late = event.received - event.t
            ahead[event.rank] = min(late, ahead.get(event.rank, late))
        return cls(ahead=ahead, epoch_s=record.provenance.recorded_at.timestamp() - record.outcome.started)

    def of_rank(self, rank: int, t: float) -> float:
        return t + self.ahead[rank]


def _settings(record: RunRecord) -> Iterator[Line]:
    """The settings of the run, known from the start."""
    trial, at = record.trial, record.outcome.started
    if not isinstance(trial, Trial):
        return
    found = {
        "seed": trial.seed,
        "global_batch_size": trial.global_batch,
        "opt_base_learning_rate": trial.learning_rate,
        "opt_weight_decay": trial.weight_decay,
    }
    if trial.dataset:
        held_back = trial.dataset.validation_images if trial.mode == "converge" else 0
        found |= {"train_samples": trial.dataset.images - held_back, "eval_samples": held_back or None}
    for key, value in found.items():
        if value is not None:
            yield Line(at=at, kind="POINT_IN_TIME", key=key, value=value)


def _begin(record: RunRecord, events: Sequence[Event], windows: Sequence[Window], clock: _Clock) -> Iterator[Line]:
    """From the first container to the end of warm-up, and the first measured iteration."""
    begin = min(clock.of_rank(window.rank, window.start) for window in windows)
    warm = [event for event in events if isinstance(event, WarmupEnd)]
    ready = min(begin, max((clock.of_rank(event.rank, event.t) for event in warm), default=begin))
    warmup = {"warmup_iterations": warm[0].iterations} if warm else {}
    yield Line(at=record.outcome.started, kind="INTERVAL_START", key="init_start")
    yield Line(at=ready, kind="INTERVAL_END", key="init_stop", metadata=warmup)
    yield Line(at=begin, kind="INTERVAL_START", key="run_start", metadata=_description(record))


def _end(record: RunRecord, events: Sequence[Event], windows: Sequence[Window], clock: _Clock) -> Iterator[Line]:
    """The end of the last measured iteration of any rank, or of the last validation."""
    trained = [clock.of_rank(window.rank, window.start + window.seconds) for window in windows]
    validated = [clock.of_rank(event.rank, event.t) for event in events if isinstance(event, Epoch)]
    usable = record.outcome.status == "ok" and record.validity.status != "invalid"
    yield Line(
        at=max(trained + validated),
        kind="INTERVAL_END",
        key="run_stop",
        metadata={
            "status": "success" if usable else "aborted",
            "validity": record.validity.status,
            "reasons": list(record.validity.reasons),
        },
    )


def _description(record: RunRecord) -> dict[str, Any]:
    """Facts that the standard has no key for and readers ask for first."""
    trial = record.trial
    common = {
        "run_id": record.run_id,
        "devices": trial.world_size,
        "device": trial.device,
        "image": record.image.reference,
    }
    if not isinstance(trial, Trial):
        return common
    return {
        **common,
        "framework": trial.framework,
        "framework_version": record.provenance.framework_version or trial.version,
        "model": trial.model,
        "precision": trial.precision,
        "strategy": trial.way,
        "data": trial.data,
    }


def _rates(record: RunRecord, windows: Sequence[Window], clock: _Clock) -> Iterator[Line]:
    """Throughput of each window over all ranks, and of the steady state; empty for an invalid run, or one without a steady state."""
    joined = metrics.global_windows(windows)
    throughput, steady = record.measurement.throughput, record.measurement.steady
    if joined is None or throughput is None or steady is None or record.validity.status == "invalid":
        return
    first = [window for window in windows if window.rank == windows[0].rank]
    step = 0
    # A window ends when its slowest rank ends it.
    ends: dict[int, float] = {}
    for window in windows:
        ends[window.index] = max(ends.get(window.index, 0.0), clock.of_rank(window.rank, window.start + window.seconds))
    rates = joined.samples / joined.seconds
    for window, rate in zip(sorted(first, key=lambda window: window.index), rates, strict=False):
        step += window.iterations
        yield Line(
            at=ends[window.index],
            kind="POINT_IN_TIME",
            key="tracked_stats",
            value={"throughput": float(rate)},
            metadata={"step": step, "unit": throughput.unit, "steady": window.index >= steady.first_window},
        )
    yield Line(
        at=max(ends.values()),
        kind="POINT_IN_TIME",
        key="tracked_stats",
        value={"steady_throughput": throughput.value},
        metadata={"step": step, "unit": throughput.unit},
    )


def _epochs(record: RunRecord, events: Sequence[Event], clock: _Clock) -> Iterator[Line]:
    """Each epoch that all ranks finished: its training, then its validation."""
    windows: Sequence[Window] = sorted(
        (event for event in events if isinstance(event, Window) and event.rank == 0), key=lambda window: window.index
    )
    for epoch in record.measurement.epochs:
        number = {"epoch_num": epoch.epoch}
        own, windows = _of_epoch(windows, epoch.iterations)
        validations = [event for event in events if isinstance(event, Epoch) and event.epoch == epoch.epoch]
        begin = clock.of_rank(0, own[0].start)
        trained = clock.of_rank(0, own[-1].start + own[-1].seconds)
        validated = max(trained, *(clock.of_rank(event.rank, event.t) for event in validations))
        yield Line(at=begin, kind="INTERVAL_START", key="epoch_start", metadata=number)
        yield Line(at=trained, kind="INTERVAL_END", key="epoch_stop", metadata=number)
        yield Line(at=trained, kind="INTERVAL_START", key="eval_start", metadata=number)
        yield Line(
            at=validated,
            kind="POINT_IN_TIME",
            key="eval_accuracy",
            value=epoch.accuracy_percent / 100,
            metadata={**number, "train_loss": epoch.train_loss, "val_loss": epoch.val_loss},
        )
        yield Line(at=validated, kind="INTERVAL_END", key="eval_stop", metadata=number)


def _of_epoch(windows: Sequence[Window], iterations: int) -> tuple[Sequence[Window], Sequence[Window]]:
    """Split off the windows of an epoch; no window crosses the end of an epoch."""
    count = 0
    for place, window in enumerate(windows, start=1):
        count += window.iterations
        if count >= iterations:
            return windows[:place], windows[place:]
    return windows, ()
