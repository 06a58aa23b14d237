"""Events of one run → its `Measurement`. Pure; the definitions of the figures are in `metrics`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runner.analysis.grading import attribution, metrics
from runner.core.events import (
    Accuracy,
    Backward,
    Data,
    Epoch,
    Event,
    FirstStep,
    InputAlone,
    Latency,
    Phase,
    RunStart,
    RunStop,
    Steps,
    WarmupEnd,
    Window,
)
from runner.core.events import BatchUsed as BatchEvent
from runner.core.measurement import AccuracyFigures, BatchUsed, EpochFigures, LatencyFigures, Measurement, Throughput
from runner.core.measurement import Backward as BackwardFigures
from runner.core.request import Mode

# Phases of the probes (`workloads/probe.py`), which are no part of the job and no part of the figures for it.
WIRES, PEAK, PASSES = "probe_wires", "probe_peak", "probe_compute"
# Phases after all that is measured, in which the input, or a batch of inference, is timed by itself.
INPUT, LONE = "input_alone", "latency"


def measure(events: Sequence[Event], *, started: float, unit: str, mode: Mode = "train") -> Measurement:
    """Compute every figure of a run in `unit`, e.g. `images/s`.

    `started` is the runner's monotonic clock in seconds when it began to create the first container.
    """
    windows = whole_windows(events)
    joined = metrics.global_windows(windows)
    steady = metrics.steadiness(joined) if joined else None
    starts = [event for event in events if isinstance(event, RunStart)]
    gradient_bytes = starts[0].gradient_bytes if starts else None
    throughput = step_parts = None
    if joined and steady:
        kept = joined.since(steady.first_window)
        throughput = Throughput(value=kept.rate, ci95=None, unit=unit)
        step_parts = attribution.step_parts(
            events, first_window=steady.first_window, seconds=float(kept.seconds.sum()), gradient_bytes=gradient_bytes
        )
    longest = _longest(events)
    first_step = max((event.received for event in events if isinstance(event, FirstStep)), default=None)
    stops = sorted((event for event in events if isinstance(event, RunStop)), key=lambda stop: stop.rank)
    data = [event for event in events if isinstance(event, Data)]
    alone = [event.samples / event.seconds for event in events if isinstance(event, InputAlone)]
    batches = [event for event in events if isinstance(event, BatchEvent)]
    passed = next((event for event in events if isinstance(event, Backward)), None)
    in_flight = in_flight_of(events)
    decoded = [event.decoded for event in data if event.decoded is not None]
    probes_s = longest.get(WIRES, 0.0) + longest.get(PEAK, 0.0)
    return Measurement(
        throughput=throughput,
        training_time_s=float(joined.seconds.sum()) if joined else None,
        first_step_s=None if first_step is None else first_step - started - probes_s,
        step_time_s=metrics.step_times(windows, method="latency" if mode == "infer" and in_flight == 1 else "step"),
        samples=sum(window.samples for window in windows),
        iterations=min((stop.iterations for stop in stops), default=0),
        steady=steady,
        windows=tuple(metrics.raw(w) for w in sorted(windows, key=lambda w: (w.rank, w.index))),
        losses=metrics.losses(events),
        evaluations=metrics.evaluations(events),
        parameter_norms={str(stop.rank): stop.parameter_norm for stop in stops},
        parameters=starts[0].parameters if starts else None,
        images_decoded=sum(decoded) if decoded else None,
        images_skipped=tuple(sorted({name for event in data for name in event.skipped})),
        gradient_bytes=gradient_bytes,
        probe=attribution.exchanges(events),
        step_parts=step_parts,
        backward=BackwardFigures.model_validate(passed, from_attributes=True) if passed else None,
        used=metrics.used(events),
        epochs=epochs(events),
        accuracy=accuracy(events),
        batch=BatchUsed.model_validate(batches[0], from_attributes=True) if batches else None,
        latency=latency(events) if mode == "infer" else None,
        in_flight=in_flight,
        input_alone_per_s=math.fsum(alone) if alone else None,
        compiled=metrics.compiled(events),
    )


def whole_windows(events: Sequence[Event]) -> list[Window]:
    """The windows of all ranks, each with the times of its steps, wherever those were told."""
    steps: dict[tuple[int, int], list[float]] = {}
    for event in events:
        if isinstance(event, Steps):
            steps.setdefault((event.rank, event.window), []).extend(event.seconds)
    return [
        event.model_copy(update={"step_seconds": tuple(steps[event.rank, event.index])})
        if (event.rank, event.index) in steps
        else event
        for event in events
        if isinstance(event, Window)
    ]


def _longest(events: Sequence[Event]) -> dict[str, float]:
    """Seconds of the slowest rank in each phase that the programs named."""
    found: dict[str, float] = {}
    for event in events:
        if isinstance(event, Phase):
            found[event.name] = max(event.seconds, found.get(event.name, 0.0))
    return found


def phases(events: Sequence[Event]) -> dict[str, float]:
    """Seconds of each phase that the programs saw, the slowest rank's: what they named, then `warmup` and `measure`."""
    found = _longest(events)
    first = {event.rank: event.t for event in events if isinstance(event, FirstStep)}
    warm = {event.rank: event.t for event in events if isinstance(event, WarmupEnd)}
    stop = {event.rank: event.t for event in events if isinstance(event, RunStop)}
    if ranks := warm.keys() & first.keys():
        found["warmup"] = max(warm[rank] - first[rank] for rank in ranks) - found.get(PASSES, 0.0)
    if ranks := stop.keys() & warm.keys():
        after = found.get(INPUT, 0.0) + found.get(LONE, 0.0)
        found["measure"] = max(stop[rank] - warm[rank] for rank in ranks) - after
    return found


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
                train_loss=_sum([event.train_loss for event in own], len(own)),
                val_loss=_sum([event.validation.loss_sum for event in own], samples),
                accuracy_percent=100 * sum(event.validation.correct for event in own) / samples if samples else 0.0,
                validation_samples=samples,
                seconds=seconds,
                elapsed_s=seconds + (found[-1].elapsed_s if found else 0.0),
            )
        )
    return tuple(found)


def _sum(values: Sequence[float | None], over: int) -> float | None:
    """Sum of the values over a number; None where one of them is not finite, or there is nothing to divide by."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / over if len(known) == len(values) and over else None


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


def in_flight_of(events: Sequence[Event]) -> int:
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
