"""Events of one run → its `Measurement`, and where the time of a step went. Pure; the definitions of the figures are in `metrics`.

A step of a synchronous job ends when its slowest rank has computed and all gradients have been exchanged. A rank's computation without any
exchange is timed in separate passes (event `compute`), and so is the exchange alone (event `bandwidth`). If a step is shorter than those
passes of computation, or longer by no more than their spread, the exchange's share of it can't be determined.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

import numpy as np

from runner.analysis.grading import metrics
from runner.analysis.grading.metrics import common_windows
from runner.core.events import (
    COLLECTIVES,
    Accuracy,
    Backward,
    Bandwidth,
    CacheCheck,
    Compute,
    Data,
    Epoch,
    Event,
    FirstStep,
    Generation,
    InputAlone,
    Latency,
    NoCollectives,
    Phase,
    RunStart,
    RunStop,
    Steps,
    WarmupEnd,
    Window,
)
from runner.core.events import BatchUsed as BatchEvent
from runner.core.measurement import (
    AccuracyFigures,
    BatchUsed,
    EpochFigures,
    Exchange,
    GenerationFigures,
    LatencyFigures,
    Measurement,
    StepParts,
    Throughput,
)
from runner.core.measurement import Backward as BackwardFigures
from runner.core.request import Device, Mode

# Phases of the probes (`workloads/probe.py`), which belong neither to the job nor to its figures.
WIRES, PEAK, PASSES = ("probe_wires", "probe_collectives"), "probe_peak", "probe_compute"
# Phases after the measured windows that time the input, one batch of inference, or generation at each batch size, alone.
ALONE = ("input_alone", "latency", "generation")
LEAST_ROUNDS = 2


def measure(
    events: Sequence[Event],
    *,
    started: float,
    unit: str,
    mode: Mode = "train",
    device: Device = "cpu",
    loader_workers: int = 0,
) -> Measurement:
    """Compute every figure of a run except `flop`; throughput is in `unit`, e.g. `images/s`.

    `started` is the runner's monotonic clock in seconds when it began to create the first container. The input's rate alone is unknown if
    `loader_workers`, which deliver a batch each at about the same time, delivered fewer than `LEAST_ROUNDS` each.
    """
    windows = whole_windows(events)
    joined = metrics.global_windows(windows)
    steady = metrics.steadiness(joined) if joined else None
    starts = [event for event in events if isinstance(event, RunStart)]
    gradient_bytes = starts[0].gradient_bytes if starts else None
    throughput = parts = None
    if joined and steady:
        kept = joined.since(steady.first_window)
        throughput = Throughput(value=kept.rate, ci95=None, unit=unit)
        parts = step_parts(
            events,
            first_window=steady.first_window,
            seconds=float(kept.seconds.sum()),
            gradient_bytes=gradient_bytes,
            at_another_clock=device == "gpu" and passes_came_first(events),
        )
    phase_s = _phase_seconds(events)
    first_step = max((event.received for event in events if isinstance(event, FirstStep)), default=None)
    stops = sorted((event for event in events if isinstance(event, RunStop)), key=lambda stop: stop.rank)
    data = [event for event in events if isinstance(event, Data)]
    inputs = [event for event in events if isinstance(event, InputAlone)]
    timed = inputs and min(event.batches for event in inputs) >= LEAST_ROUNDS * loader_workers
    batches = [event for event in events if isinstance(event, BatchEvent)]
    backward = next((event for event in events if isinstance(event, Backward)), None)
    # 1 if unreported: older programs waited for each batch.
    in_flight = next((event.in_flight for event in events if isinstance(event, Latency)), 1)
    decoded = [event.decoded for event in data if event.decoded is not None]
    probes_s = math.fsum(phase_s.get(name, 0.0) for name in (*WIRES, PEAK))
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
        state_bytes={str(stop.rank): stop.state_bytes for stop in stops if stop.state_bytes is not None},
        parameters=starts[0].parameters if starts else None,
        images_decoded=sum(decoded) if decoded else None,
        images_skipped=tuple(sorted({name for event in data for name in event.skipped})),
        gradient_bytes=gradient_bytes,
        probe=exchanges(events),
        collectives=collectives(events),
        no_collectives=next((_missing_operations(event) for event in events if isinstance(event, NoCollectives)), None),
        step_parts=parts,
        backward=BackwardFigures.model_validate(backward, from_attributes=True) if backward else None,
        used=metrics.used(events),
        epochs=epochs(events),
        accuracy=accuracy(events),
        batch=BatchUsed.model_validate(batches[0], from_attributes=True) if batches else None,
        latency=latency(events) if mode == "infer" else None,
        generation=generation(events),
        cache_difference=next((event.difference for event in events if isinstance(event, CacheCheck)), None),
        in_flight=in_flight,
        input_alone_per_s=math.fsum(event.samples / event.seconds for event in inputs) if timed else None,
        compiled=metrics.compiled(events),
        effects=metrics.effects(events),
    )


def whole_windows(events: Sequence[Event]) -> list[Window]:
    """The windows of all ranks, each with its step times if they were reported."""
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


def _phase_seconds(events: Sequence[Event]) -> dict[str, float]:
    """Seconds of each phase that the programs named, on the slowest rank."""
    found: dict[str, float] = {}
    for event in events:
        if isinstance(event, Phase):
            found[event.name] = max(event.seconds, found.get(event.name, 0.0))
    return found


def phases(events: Sequence[Event]) -> dict[str, float]:
    """Seconds of each phase on the slowest rank: those that the programs named, then `warmup` and `measure`."""
    found = _phase_seconds(events)
    first = {event.rank: event.t for event in events if isinstance(event, FirstStep)}
    warm = {event.rank: event.t for event in events if isinstance(event, WarmupEnd)}
    stop = {event.rank: event.t for event in events if isinstance(event, RunStop)}
    in_warmup = passes_came_first(events)
    passes_s = found.get(PASSES, 0.0)
    if ranks := warm.keys() & first.keys():
        found["warmup"] = max(warm[rank] - first[rank] for rank in ranks) - (passes_s if in_warmup else 0.0)
    if ranks := stop.keys() & warm.keys():
        after = sum(found.get(name, 0.0) for name in ALONE) + (0.0 if in_warmup else passes_s)
        found["measure"] = max(stop[rank] - warm[rank] for rank in ranks) - after
    return found


def passes_came_first(events: Sequence[Event]) -> bool:
    """Whether passes without an exchange were timed before the first window, as in older records; now they follow the last step."""
    warm = {event.rank: event.t for event in events if isinstance(event, WarmupEnd)}
    passes = next((event for event in events if isinstance(event, Phase) and event.name == PASSES), None)
    return passes is not None and passes.t <= warm.get(passes.rank, 0.0)


def epochs(events: Sequence[Event]) -> tuple[EpochFigures, ...]:
    """The convergence curve over all ranks; it ends before an epoch that a rank did not complete."""
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
    """Sum of the values ÷ `over`; None if a value is not finite, or `over` is 0."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / over if len(known) == len(values) and over else None


def accuracy(events: Sequence[Event]) -> AccuracyFigures | None:
    """Accuracy of inference; None without labelled samples."""
    reported = next((event for event in events if isinstance(event, Accuracy)), None)
    if reported is None or not reported.samples:
        return None
    return AccuracyFigures(
        precision=reported.precision,
        samples=reported.samples,
        percent=100 * reported.correct / reported.samples,
        reference=reported.reference,
        reference_percent=100 * reported.reference_correct / reported.samples,
        agree_percent=100 * reported.agree / reported.samples,
        fit_iterations=reported.fit_iterations,
    )


def latency(events: Sequence[Event]) -> LatencyFigures | None:
    """Latency of a lone batch of inference; None if no batch was answered.

    Programs that waited for each batch did not report it separately: the steps of their windows are the latencies.
    """
    reported = next((event for event in events if isinstance(event, Latency)), None)
    if reported:
        without = metrics.percentiles(reported.without_transfer) if reported.without_transfer else None
        return LatencyFigures(with_transfer=metrics.percentiles(reported.with_transfer), without_transfer=without)
    steps = [step for event in events if isinstance(event, Window) for step in event.step_seconds or ()]
    return LatencyFigures(with_transfer=metrics.percentiles(steps), without_transfer=None) if steps else None


def generation(events: Sequence[Event]) -> tuple[GenerationFigures, ...]:
    """How fast a language model answered prompts, by batch; rates are tokens ÷ seconds of all repeats."""
    generations = [event for event in events if isinstance(event, Generation)]
    found = []
    for batch in sorted({event.batch for event in generations}):
        own = [event for event in generations if event.batch == batch]
        first = [event.first_token_s for event in own if event.first_token_s is not None]
        steps = [step for event in own for step in event.step_s]
        found.append(
            GenerationFigures(
                batch=batch,
                prompt_tokens=own[0].prompt_tokens,
                new_tokens=own[0].new_tokens,
                first_token=metrics.percentiles(first),
                step=metrics.percentiles(steps) if steps else None,
                prefill_tokens_per_s=batch * own[0].prompt_tokens * len(first) / math.fsum(first),
                decode_tokens_per_s=batch * len(steps) / math.fsum(steps) if steps else None,
            )
        )
    return tuple(found)


def exchanges(events: Sequence[Event]) -> tuple[Exchange, ...]:
    """The gradient-exchange probe of a training program, by size; benchmark logs yield none, as they time no single exchange."""
    return tuple(sorted(_timed(events, collective=False), key=lambda exchange: exchange.size_bytes))


def collectives(events: Sequence[Event]) -> tuple[Exchange, ...]:
    """What the same probe timed besides the gradient exchange, by operation and size."""
    return tuple(
        sorted(_timed(events, collective=True), key=lambda one: (COLLECTIVES.index(one.operation), one.size_bytes))
    )


def _missing_operations(event: NoCollectives) -> str:
    return f"{', '.join(name.replace('_', '-') for name in event.operations)}: {event.reason}"


def _timed(events: Sequence[Event], *, collective: bool) -> list[Exchange]:
    """Exchanges as rank 0 timed them; `wrong` is the maximum over the ranks, of which others report only wrong results."""
    wrong: dict[tuple[str | None, int], int] = {}
    for event in events:
        if isinstance(event, Bandwidth) and event.rank:
            key = event.operation, event.size_bytes
            wrong[key] = max(wrong.get(key, 0), event.wrong or 0)
    return [
        Exchange(
            operation=event.operation or "unknown",
            size_bytes=event.size_bytes,
            seconds=statistics.median(event.seconds),
            algbw_gb_s=event.algbw_gb_s,
            busbw_gb_s=event.busbw_gb_s,
            wrong=max(event.wrong or 0, wrong.get((event.operation, event.size_bytes), 0)),
        )
        for event in events
        if isinstance(event, Bandwidth)
        and not event.rank
        and event.seconds
        and (event.operation in COLLECTIVES) == collective
    ]


def exchange_seconds(probe: Sequence[Exchange], size_bytes: int) -> float | None:
    """Seconds that an exchange of `size_bytes` takes alone; None without a probe.

    Linear between two timed sizes. Beyond the largest, its bandwidth applies; below the smallest, its time, which is latency.
    """
    if not probe:
        return None
    largest = probe[-1]
    if size_bytes > largest.size_bytes:
        return largest.seconds * size_bytes / largest.size_bytes
    sizes, seconds = [one.size_bytes for one in probe], [one.seconds for one in probe]
    return float(np.interp(size_bytes, sizes, seconds))


# Share of a step: a wait for input of at most this counts in full, however much of it compute hides.
NO_WAIT: Final = 0.01


def step_parts(
    events: Sequence[Event],
    *,
    first_window: int,
    seconds: float,
    gradient_bytes: int | None,
    at_another_clock: bool = False,
) -> StepParts | None:
    """Split the step time of the windows from `first_window` on, which took `seconds`; None if the program reported only windows.

    `gradient_bytes` is what a device contributes to the exchange of one step. Passes without an exchange that were timed `at_another_clock`
    separate nothing on several devices.
    """
    ranks = common_windows([event for event in events if isinstance(event, Window)])
    counted = [windows[first_window:] for windows in ranks.values()]
    steps = sum(window.iterations for window in counted[0]) if counted else 0
    passes = [event.seconds for event in events if isinstance(event, Compute)]
    probe = exchanges(events)
    # By window, the wait of each rank; the longest counts.
    waits = [[window.input_seconds for window in windows] for windows in zip(*counted, strict=True)]
    waits_known = steps > 0 and not any(None in own for own in waits)
    waited = math.fsum(max(filter(None, own), default=0.0) for own in waits) / steps if waits_known else None
    if not steps or (waited is None and not passes and not probe):
        return None
    alone = exchange_seconds(probe, gradient_bytes) if gradient_bytes is not None else None
    devices = next((event.world_size for event in events if isinstance(event, RunStart)), len(ranks))
    known = StepParts(step_s=seconds / steps, input_waited_s=waited, exchange_alone_s=alone)
    found = _one_device(known, passes) if devices == 1 else _several_devices(known, passes)
    if devices > 1 and at_another_clock and "inseparable" not in found:
        clock = "passes without any exchange were timed before the first window, when the GPUs ran at another clock"
        found = {"inseparable": clock}
    return known.model_copy(update=found)


Parts = dict[str, float | str | None]


def _one_device(known: StepParts, passes: Sequence[Sequence[float]]) -> Parts:
    """Without an exchange, whatever is not input is compute."""
    waited, step_s = known.input_waited_s, known.step_s
    if waited is None:
        return {"inseparable": "the program does not tell how long it waited for input"}
    if waited <= NO_WAIT * step_s:
        unhidden = min(waited, step_s)
    elif passes:
        unhidden = min(waited, max(0.0, step_s - statistics.median(passes[0])))
    else:
        return {"inseparable": "the loop waited for input while the device worked, and no pass was timed without input"}
    return {"input_s": unhidden, "compute_s": step_s - unhidden}


def _several_devices(known: StepParts, passes: Sequence[Sequence[float]]) -> Parts:
    """A step's time beyond the slowest rank's pass is input, then communication, if it exceeds the spread of the passes."""
    if known.input_waited_s is None or not passes:
        missing = "how long it waited for input" if passes else "how long a pass without any exchange takes"
        return {"inseparable": f"the program does not tell {missing}"}
    medians = [statistics.median(own) for own in passes]
    slowest = max(medians)
    mean = min(statistics.fmean(medians), slowest)  # rounding may lift the mean of equal numbers above them
    spread = max(max(own) - min(own) for own in passes)
    beyond = known.step_s - slowest
    if beyond <= spread:
        return {
            "inseparable": (
                f"a step takes {1e3 * known.step_s:.4g} ms, a pass without any exchange {1e3 * slowest:.4g} ms, give or take {float(f'{1e3 * spread:.2g}'):g}"
            )
        }
    unhidden = min(known.input_waited_s, beyond)
    return {
        "input_s": unhidden,
        "compute_s": mean,
        "stragglers_s": slowest - mean,
        "communication_s": beyond - unhidden,
    }
