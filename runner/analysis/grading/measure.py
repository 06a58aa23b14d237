"""Events of one run → its `Measurement`. Pure; the definitions of the figures are in `metrics`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runner.analysis.grading import attribution, metrics, quality
from runner.core.events import Event
from runner.core.events.training import Data, FirstStep, InputAlone, Phase, RunStart, RunStop, Steps, WarmupEnd, Window
from runner.core.measurement import Measurement, Throughput
from runner.core.request import Mode

# Phases of the probes (`workloads/probe.py`), which are no part of the job and no part of the figures for it.
WIRES, PEAK, PASSES = "probe_wires", "probe_peak", "probe_compute"
# Phases after all that is measured, in which the input, or a batch of inference, is timed by itself.
INPUT, LONE = "input_alone", "latency"


def measure(events: Sequence[Event], *, started: float, unit: str, mode: Mode = "train") -> Measurement:
    """Compute every figure of a run.

    Args:
        events: all events of all ranks.
        started: the runner's monotonic clock in seconds when it began to create the first container.
        unit: what is counted, e.g. `images/s`.
        mode: what the program did.
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
            events,
            first_window=steady.first_window,
            seconds=float(kept.seconds.sum()),
            gradient_bytes=gradient_bytes,
        )
    first_steps = [event.received for event in events if isinstance(event, FirstStep)]
    stops = [event for event in events if isinstance(event, RunStop)]
    data = [event for event in events if isinstance(event, Data)]
    alone = [event.samples / event.seconds for event in events if isinstance(event, InputAlone)]
    in_flight = quality.in_flight(events)
    decoded = [event.decoded for event in data if event.decoded is not None]
    return Measurement(
        throughput=throughput,
        training_time_s=float(joined.seconds.sum()) if joined else None,
        first_step_s=max(first_steps) - started - _longest(events, WIRES) - _longest(events, PEAK)
        if first_steps
        else None,
        step_time_s=metrics.step_times(windows, method="latency" if mode == "infer" and in_flight == 1 else "step"),
        samples=sum(window.samples for window in windows),
        iterations=min((stop.iterations for stop in stops), default=0),
        steady=steady,
        windows=tuple(metrics.raw(w) for w in sorted(windows, key=lambda w: (w.rank, w.index))),
        losses=metrics.losses(events),
        evaluations=metrics.evaluations(events),
        parameter_norms={str(stop.rank): stop.parameter_norm for stop in sorted(stops, key=lambda s: s.rank)},
        parameters=starts[0].parameters if starts else None,
        images_decoded=sum(decoded) if decoded else None,
        images_skipped=tuple(sorted({name for event in data for name in event.skipped})),
        gradient_bytes=gradient_bytes,
        probe=attribution.exchanges(events),
        step_parts=step_parts,
        used=metrics.used(events),
        epochs=quality.epochs(events),
        accuracy=quality.accuracy(events),
        batch=quality.batch(events),
        latency=quality.latency(events) if mode == "infer" else None,
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


def _longest(events: Sequence[Event], phase: str) -> float:
    """Seconds of the slowest rank in a phase; 0 where no rank had it."""
    return max((event.seconds for event in events if isinstance(event, Phase) and event.name == phase), default=0.0)


def phases(events: Sequence[Event]) -> dict[str, float]:
    """Seconds of each phase that the programs saw, the slowest rank's: what they named, then `warmup` and `measure`."""
    found: dict[str, float] = {}
    for event in events:
        if isinstance(event, Phase):
            found[event.name] = max(event.seconds, found.get(event.name, 0.0))
    first = {event.rank: event.t for event in events if isinstance(event, FirstStep)}
    warm = {event.rank: event.t for event in events if isinstance(event, WarmupEnd)}
    stop = {event.rank: event.t for event in events if isinstance(event, RunStop)}
    if warm.keys() & first.keys():
        found["warmup"] = max(warm[rank] - first[rank] for rank in warm.keys() & first.keys()) - _longest(
            events, PASSES
        )
    if stop.keys() & warm.keys():
        after = _longest(events, INPUT) + _longest(events, LONE)
        found["measure"] = max(stop[rank] - warm[rank] for rank in stop.keys() & warm.keys()) - after
    return found
