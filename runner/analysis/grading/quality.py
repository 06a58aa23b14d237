"""Events → how well a model does: the curve of a training that is watched to converge; what predictions are worth, and take. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from runner.analysis.grading import metrics
from runner.core.events import Event
from runner.core.events.quality import Accuracy, Epoch, Latency
from runner.core.events.training import BatchUsed as BatchEvent
from runner.core.events.training import Window
from runner.core.measurement import AccuracyFigures, BatchUsed, EpochFigures, LatencyFigures


def epochs(events: Sequence[Event]) -> tuple[EpochFigures, ...]:
    """The curve of a run, over its ranks; an epoch that a rank did not end is not there."""
    by_epoch: dict[int, list[Epoch]] = {}
    for event in events:
        if isinstance(event, Epoch):
            by_epoch.setdefault(event.epoch, []).append(event)
    ranks = max(map(len, by_epoch.values()), default=0)
    found: list[EpochFigures] = []
    for epoch, own in sorted(by_epoch.items()):
        if len(own) < ranks:
            break
        samples = sum(event.validation.samples for event in own)
        seconds = max(event.seconds for event in own)
        found.append(
            EpochFigures(
                epoch=epoch,
                iterations=own[0].iterations,
                train_loss=_mean([event.train_loss for event in own]),
                val_loss=_sum_over([event.validation.loss_sum for event in own], samples),
                accuracy_percent=100 * sum(event.validation.correct for event in own) / samples if samples else 0.0,
                validation_samples=samples,
                seconds=seconds,
                elapsed_s=seconds + (found[-1].elapsed_s if found else 0.0),
            )
        )
    return tuple(found)


def _finite(values: Sequence[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return known if len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = _finite(values)
    return fmean(known) if known else None


def _sum_over(values: Sequence[float | None], samples: int) -> float | None:
    known = _finite(values)
    return math.fsum(known) / samples if known and samples else None


def accuracy(events: Sequence[Event]) -> AccuracyFigures | None:
    """What inference was worth; None where it had no labelled samples."""
    told = next((event for event in events if isinstance(event, Accuracy)), None)
    if told is None or not told.samples:
        return None
    return AccuracyFigures(
        precision=told.precision,
        samples=told.samples,
        percent=100 * told.correct / told.samples,
        reference=told.reference,
        reference_percent=100 * told.reference_correct / told.samples,
        agree_percent=100 * told.agree / told.samples,
        fit_iterations=told.fit_iterations,
    )


def batch(events: Sequence[Event]) -> BatchUsed | None:
    """The batch that inference ran with; None of a training."""
    told = next((event for event in events if isinstance(event, BatchEvent)), None)
    return BatchUsed(asked=told.asked, used=told.used, reason=told.reason) if told else None


def in_flight(events: Sequence[Event]) -> int:
    """How many batches of inference were under way at once; 1 where the program does not say, as programs did that waited for each."""
    return next((event.in_flight for event in events if isinstance(event, Latency)), 1)


def latency(events: Sequence[Event]) -> LatencyFigures | None:
    """How long a batch of inference takes by itself; None where no batch was answered.

    Programs that waited for each batch did not say it apart: the steps of their windows are the latencies.
    """
    told = next((event for event in events if isinstance(event, Latency)), None)
    if told:
        without = metrics.percentiles(told.without_transfer) if told.without_transfer else None
        return LatencyFigures(with_transfer=metrics.percentiles(told.with_transfer), without_transfer=without)
    steps = [step for event in events if isinstance(event, Window) for step in event.step_seconds or ()]
    return LatencyFigures(with_transfer=metrics.percentiles(steps), without_transfer=None) if steps else None
