"""Records of one matrix → the `Summary` behind its reports: one row per scale, each figure with its unit and interval. Pure.

Repeats of a scale are pooled: samples of all ÷ seconds of all, never a mean of their rates; intervals are over the repeats. Each repeat of
a run without windows, such as a bandwidth test, moves the same amount: it counts as one unit in its time.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import Field, model_validator

from runner.analysis.grading import metrics
from runner.analysis.grading.metrics import GlobalWindows
from runner.analysis.telemetry.summary import pool
from runner.core.frozen import CachedByIdentity, Frozen
from runner.core.measurement import (
    AccuracyFigures,
    BatchUsed,
    EpochFigures,
    GenerationFigures,
    Interval,
    LatencyFigures,
    Measurement,
    Percentiles,
    StepParts,
    utilisation_percent,
)
from runner.core.record import RunRecord
from runner.core.telemetry import Telemetry
from runner.core.trial import AnyTrial, ExternalTrial, Trial, devices_in_words
from runner.core.units import counted
from runner.core.workload import shown_settings

DEGRADED_BASELINE: Final = "speedup and efficiency are over a baseline that is degraded"
Status = Literal["valid", "degraded", "invalid", "failed"]
Figures = TypeVar("Figures", bound=Frozen)


class Answers(Frozen):
    """Inference on one device: medians of the repeats, and the quality of the answers."""

    latency: LatencyFigures | None  # of a batch alone on the device
    in_flight: int  # concurrent batches while throughput was measured
    batch: BatchUsed | None  # the smallest of the repeats
    accuracy: AccuracyFigures | None  # None if the samples have no labels
    generation: tuple[GenerationFigures, ...] = ()  # of a language model, by batch


class Row(Frozen):
    """One scale of a matrix, pooled over all its repeats; each repeat is a newly started process, and intervals are over the repeats."""

    scale: int
    device: str  # "gpu" or "cpu worker"
    cores: int | None = None  # per CPU worker
    throughput: float | None = None  # of all devices, in `unit`
    throughput_ci95: Interval | None = None
    unit: str = "images/s"
    training_time_s: float | None = None  # of the measured windows without pauses, median of the repeats
    speedup: float | None = None  # relative to one device
    speedup_ci95: Interval | None = None
    efficiency: float | None = None
    efficiency_ci95: Interval | None = None
    withheld: str | None = None  # why there is no speedup despite a baseline
    repeats: int
    lost: tuple[str, ...] = ()  # why each further repeat can't be used
    parts: StepParts | None = None  # mean of the repeats
    mfu_percent: float | None = None  # model FLOP/s over the devices' dense peak; None if above 100 (`above_peak`)
    above_peak: bool = False
    telemetry: Telemetry | None = None
    answers: Answers | None = None
    epochs: tuple[EpochFigures, ...] = ()  # each the median of the repeats
    status: Status
    reasons: tuple[str, ...] = ()
    records: tuple[RunRecord, ...] = Field(default=(), repr=False)  # of the usable runs

    @model_validator(mode="after")
    def _unusable_rows_carry_no_figures(self) -> Row:
        rates = (self.throughput, self.speedup, self.efficiency, self.mfu_percent)
        figures = (*rates, self.training_time_s, self.parts, self.telemetry, self.answers, self.epochs or None)
        if not self.usable and any(figure is not None for figure in figures):
            raise ValueError(f"a row that is {self.status} may carry no figures")
        return self

    @property
    def usable(self) -> bool:
        """Whether the figures may be shown: valid, or degraded and marked so."""
        return self.status in ("valid", "degraded")

    @property
    def verdict(self) -> str:
        """Its status and the reasons: `degraded: it never settled`."""
        return ": ".join(filter(None, (self.status, "; ".join(self.reasons))))

    @property
    def superlinear(self) -> bool:
        """Whether n devices were more than n times as fast as one."""
        return self.speedup is not None and self.speedup > self.scale

    @property
    def devices(self) -> str:
        """The scale in words: "1 GPU", "2 workers × 1 core"."""
        return devices_in_words("gpu" if self.device == "gpu" else "cpu", self.scale, cores=self.cores)

    @property
    def device_name(self) -> str:
        """One device in words: "GPU", "CPU worker"."""
        return self.device.replace("gpu", "GPU").replace("cpu", "CPU")


class Summary(Frozen):
    """A matrix of runs that differ only in scale, and what they ran on."""

    title: str
    rows: tuple[Row, ...]
    image_reference: str  # the locked requirements if no container was used
    engine: str
    engine_reason: str | None  # why this engine was chosen, if it is not the first choice
    machine: str
    setting: str
    wires: str | None = None  # wires between the nodes, and whether they were real; None with one node
    peak: str | None = None  # the peak that utilisation refers to, at the smallest scale that has one
    notes: tuple[str, ...] = ()
    date: str  # of the first run (UTC), ISO 8601
    record_dirs: tuple[Path, ...]

    @property
    def rate_unit(self) -> str:
        """The unit of throughput, "images/s"; a matrix has one."""
        return " / ".join(sorted({row.unit for row in self.rows}))

    @property
    def trains(self) -> bool:
        """False for inference, which runs on one device each, so that nothing scales."""
        return not any(row.answers for row in self.rows)

    @property
    def ran_on(self) -> str:
        """Machine, image, engine and day in one line."""
        return f"{self.machine} · {self.image_reference} · engine {self.engine} · {self.date}"


COSTLY: Final = 1.5
"""Multiple of the exchange's time alone; if a step grows by more, something other than the wires costs time."""
NOTICED: Final = 0.01
"""Share of a step below which no cause is sought."""


def summarize(records: Sequence[tuple[Path, RunRecord]]) -> Summary:
    """Pool the repeats of each scale; the one-device row is the baseline of the others.

    Args:
        records: run directories and records that differ only in scale and repeat; at least one.
    """
    first = records[0][1]
    scales = sorted({record.trial.world_size for _, record in records})
    by_scale = {scale: [record for _, record in records if record.trial.world_size == scale] for scale in scales}
    units = (record.measurement.throughput.unit for _, record in records if record.measurement.throughput)
    unit = next(units, "samples/s")
    rows = tuple(_row(scale, own, by_scale.get(1, []), unit=unit) for scale, own in by_scale.items())
    title, setting = _title_and_setting(first, by_scale[scales[-1]][0].trial)
    flops = (flop for own in by_scale.values() for record in own if (flop := record.measurement.flop))
    return Summary(
        title=title,
        rows=rows,
        image_reference=first.image.reference,
        engine=first.engine,
        engine_reason=first.engine_details.reason,
        machine=machine(first),
        setting=setting,
        wires=_wires(by_scale),
        peak=next((flop.peak_source for flop in flops if flop.peak_tflops is not None), None),
        notes=tuple(_notes(first.trial, rows, by_scale)),
        date=first.provenance.recorded_at.date().isoformat(),
        record_dirs=tuple(path for path, _ in records),
    )


def version_of(record: RunRecord) -> str:
    """The image's framework version, `2.13.0-cpu`, unless the program reports another than 2.13.0; empty for external commands."""
    requested = record.trial.version if isinstance(record.trial, Trial) else ""
    reported = record.provenance.framework_version
    return requested if reported is None or reported.startswith(requested.partition("-")[0]) else reported


def model_in_words(trial: Trial) -> str:
    """Model, image size and settings of a training: `resnet50 224×224`, `llama-1b, sequence-length 2048`."""
    size = f" {trial.image_size}×{trial.image_size}" if trial.image_size else ""
    settings = shown_settings(trial.settings, model=trial.model, mode=trial.mode)
    return ", ".join((f"{trial.model}{size}", *(f"{name} {value}" for name, value in settings.items())))


def mode_in_words(record: RunRecord) -> str:
    """The mode of a program of the suite, for inference with its batches in flight: rates with one and with several never mix."""
    assert isinstance(record.trial, Trial)  # noqa: S101 - external trials have no mode
    if record.trial.mode != "infer":
        return record.trial.mode
    count = record.measurement.in_flight
    return f"infer, {'one batch at a time' if count == 1 else f'{count} batches in flight'}"


def _title_and_setting(record: RunRecord, largest: AnyTrial) -> tuple[str, str]:
    """Title and one-line setting of a matrix, from its first record and a trial of its largest scale."""
    trial = record.trial
    if isinstance(trial, ExternalTrial):
        size, of = trial.batch_per_device or 0, "per device"
        if trial.scaling == "strong":
            size, of = size * trial.world_size, "of all devices"
        batch = f", batch {size} {of} (as asked)" if size else ""
        read = "log read by a pattern" if trial.pattern else f"dialect {trial.dialect}"
        warmup = f", without the first {trial.warmup} iterations" if trial.warmup else ""
        return trial.name, f"{read}{batch}{warmup}"
    batch = f"batch {trial.batch_per_device} per device"
    if trial.scaling == "strong":
        batch = f"batch {trial.global_batch} in all"
    way = f", {largest.way}" if isinstance(largest, Trial) and largest.world_size > 1 else ""
    used = {name: None for one in (trial, largest) if isinstance(one, Trial) for name in one.techniques}
    faster = f", with {', '.join(used)}" if used else ""
    return (
        f"{trial.framework} {version_of(record)}: {trial.model} {mode_in_words(record)}",
        f"{model_in_words(trial)}, {batch}, {trial.precision}, {trial.scaling} scaling{way}{faster}",
    )


def _wires(by_scale: Mapping[int, Sequence[RunRecord]]) -> str | None:
    """The wires between nodes at each scale with several nodes, as the evidence names them, with what is emulated."""
    found: dict[str, list[str]] = {}
    for scale, records in by_scale.items():
        trial = records[0].trial
        if isinstance(trial, Trial) and len(trial.placement) > 1:
            over = " or ".join(dict.fromkeys(map(between, records)))
            found.setdefault(f"{len(trial.placement)} nodes over {over}", []).append(str(scale))
    if len(by_scale) == 1:
        return next(iter(found), None)
    return "; ".join(f"{', '.join(scales)} on {words}" for words, scales in found.items()) or None


def between(record: RunRecord) -> str:
    """The wires of one run: `ethernet eth0, emulated 1gbit`."""
    transport, trial = record.transport, record.trial
    names = ", ".join(transport.hcas) or transport.interface
    words = [f"{transport.used} {names}" if names else transport.used]
    link = trial.link.label if isinstance(trial, Trial) and trial.link else ""
    words += [extra for extra in (transport.emulated, link) if extra]
    return ", ".join(dict.fromkeys(words))


def _notes(trial: AnyTrial, rows: Sequence[Row], by_scale: Mapping[int, Sequence[RunRecord]]) -> Iterator[str]:
    """Yield what the figures of the rows alone would hide."""
    for row in rows:
        if isinstance(trial, ExternalTrial):
            # External commands name their devices, so one device is another command.
            if row.scale > 1 and row.usable and row.speedup is None:
                yield f"{row.devices}: no baseline, this command has no run on one device on file"
            continue
        states = [state for record in by_scale[row.scale] if row.usable and (state := record.measurement.steady)]
        seconds = sum(state.left_out_s for state in states)
        if seconds and all(state.kept_s is not None for state in states):
            total = seconds + sum(state.kept_s or 0.0 for state in states)
            yield f"{row.devices}: the first {seconds:.3g} of {total:.3g} measured seconds are left out as a transient"
        if row.withheld:
            yield f"{row.devices}: speedup and efficiency are {row.withheld}"
        if (
            row.scale > 1
            and row.speedup is not None
            and (other := _differing(by_scale[row.scale], by_scale.get(1, ())))
        ):
            yield f"{row.devices}: the runs on one device had another {' and '.join(other)}"
        if row.parts and row.parts.inseparable:
            yield f"{row.devices}: the parts of a step can't be told apart: {row.parts.inseparable}"
    if isinstance(trial, Trial) and trial.scaling == "weak":
        yield from _costly_exchanges(rows)
    if isinstance(trial, Trial) and trial.epoch_iterations:
        yield (
            f"warm-up trains too: its {counted(trial.warmup, 'iteration')} before the first epoch, of {trial.epoch_iterations:,}, "
            "are in the accuracies and not in the times"
        )


def _differing(records: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> list[str]:
    """What a baseline on file does not share with the runs that it is compared with: host, driver, kernel or GPU."""

    def gpus(records: Sequence[RunRecord]) -> set[str]:
        return {gpu.uuid for record in records if record.telemetry for gpu in record.telemetry.gpus}

    facts = {
        "host": lambda one: one.provenance.host.hostname,
        "driver": lambda one: one.provenance.driver,
        "kernel": lambda one: one.provenance.host.kernel,
    }
    found = [name for name, of in facts.items() if not set(map(of, baseline)) <= set(map(of, records))]
    ours, theirs = gpus(records), gpus(baseline)
    return [*found, *(["GPU"] if ours and not theirs <= ours else [])]


def _costly_exchanges(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a note for each scale whose step grows far more than its exchange takes alone: there the wires are not the limit."""
    one = next((row.parts for row in rows if row.scale == 1 and row.parts), None)
    if one is None:
        return
    for row in rows:
        parts = row.parts
        if row.scale == 1 or parts is None or not parts.exchange_alone_s:
            continue
        added_s = parts.step_s - (parts.input_s or 0.0) - (one.step_s - (one.input_s or 0.0))
        if added_s > COSTLY * parts.exchange_alone_s and added_s > NOTICED * parts.step_s:
            yield (
                f"{row.devices}: a step takes {1e3 * added_s:.2f} ms longer than on one device, the exchange by itself "
                f"{1e3 * parts.exchange_alone_s:.2f} ms: the wires are not the limit"
            )


def _row(scale: int, records: Sequence[RunRecord], baseline: Sequence[RunRecord], *, unit: str) -> Row:
    """One scale over its repeats; without a usable repeat, the row has reasons and no figures.

    A degraded baseline degrades the row.
    """
    trial = records[0].trial
    usable = [record for record in records if record.validity.status != "invalid"]
    runs = usable_windows(usable)
    reasons = tuple(dict.fromkeys(reason for record in records for reason in record.validity.reasons))
    device, cores = "gpu" if trial.device == "gpu" else "cpu worker", trial.cpus_per_worker
    if not runs:
        status: Status = "failed" if all(record.outcome.status != "ok" for record in records) else "invalid"
        return Row(scale=scale, device=device, cores=cores, unit=unit, repeats=0, status=status, reasons=reasons)
    base = usable_windows(baseline)
    if scale > 1 and base and not _all_valid(baseline):
        reasons += (DEGRADED_BASELINE,)
    rate = metrics.pooled_rate(runs)
    withheld = metrics.incomparable(runs, base, scale=scale) if base and device == "gpu" and scale > 1 else None
    if withheld:
        base = []
    speedup = rate / metrics.pooled_rate(base) if base else None
    speedup_ci95 = metrics.ratio_interval(runs, base) if base and scale > 1 else None
    mfu, above_peak = _mfu(usable, rate)
    times = [record.measurement.training_time_s for record in usable if record.measurement.training_time_s is not None]
    return Row(
        scale=scale,
        device=device,
        cores=cores,
        throughput=rate,
        throughput_ci95=metrics.rate_interval(runs),
        unit=unit,
        training_time_s=statistics.median(times) if times else None,
        speedup=speedup,
        speedup_ci95=speedup_ci95,
        efficiency=speedup / scale if speedup is not None else None,
        efficiency_ci95=speedup_ci95.scaled(1 / scale) if speedup_ci95 else None,
        withheld=withheld,
        repeats=len(runs),
        lost=tuple("; ".join(one.validity.reasons) for one in records if one.validity.status == "invalid"),
        parts=_parts(usable),
        mfu_percent=mfu,
        above_peak=above_peak,
        telemetry=pool([record.telemetry for record in usable]),
        answers=_answers(usable),
        epochs=_epochs(usable),
        status="valid" if _all_valid(records) and not reasons else "degraded",
        reasons=reasons,
        records=tuple(usable),
    )


def _all_valid(records: Sequence[RunRecord]) -> bool:
    return all(record.validity.status == "valid" for record in records)


def _parts(records: Sequence[RunRecord]) -> StepParts | None:
    """The parts of a step, as means of the repeats: they add up like the parts of each repeat.

    They are None if a repeat lacks them: the repeats whose communication shows are those in which it took longest.
    """
    recorded = [record.measurement.step_parts for record in records if record.measurement.step_parts]
    if not recorded:
        return None
    if lost := [parts for parts in recorded if parts.inseparable is not None]:
        some = f"in {len(lost)} of {len(recorded)} runs, " if len(lost) < len(recorded) else ""
        step_s = statistics.fmean(parts.step_s for parts in recorded)
        return lost[0].model_copy(update={"step_s": step_s, "inseparable": f"{some}{lost[0].inseparable}"})
    names = [name for name in StepParts.model_fields if name != "inseparable"]
    known = {name: [value for parts in recorded if (value := getattr(parts, name)) is not None] for name in names}
    return StepParts.model_validate({name: statistics.fmean(own) for name, own in known.items() if own})


def _answers(records: Sequence[RunRecord]) -> Answers | None:
    measurements = [one.measurement for one in records if isinstance(one.trial, Trial) and one.trial.mode == "infer"]
    if not measurements:
        return None
    latencies = [found for measured in measurements if (found := latency(measured))]
    # Repeats differ in accuracy if a framework's summation order varies: take the median one, of two the lower.
    accuracies = sorted((found.accuracy for found in measurements if found.accuracy), key=lambda one: one.percent)
    return Answers(
        latency=_medians(latencies) if latencies else None,
        in_flight=min(found.in_flight for found in measurements),
        batch=min((found.batch for found in measurements if found.batch), key=lambda one: one.used, default=None),
        accuracy=accuracies[(len(accuracies) - 1) // 2] if accuracies else None,
        generation=tuple(map(_medians, zip(*(found.generation for found in measurements), strict=False))),
    )


def latency(measured: Measurement) -> LatencyFigures | None:
    """Latency of a lone batch of inference; older records lack it, and their step times are the latencies."""
    steps = measured.step_time_s
    if measured.latency or steps is None or steps.method != "latency":
        return measured.latency
    known = Percentiles.known(steps.p50, steps.p90, steps.p99, repeats=measured.iterations)
    return LatencyFigures(with_transfer=known, without_transfer=None)


def _epochs(records: Sequence[RunRecord]) -> tuple[EpochFigures, ...]:
    """The convergence of a training: each epoch that all repeats have."""
    curves = [record.measurement.epochs for record in records if record.measurement.epochs]
    return tuple(map(_medians, zip(*curves, strict=False)))


def _medians(repeats: Sequence[Figures]) -> Figures:
    """Median of each float over the repeats (None if one lacks it), the first repeat's other values; numbers of timings are summed."""

    def of(name: str) -> Any:
        values = [getattr(one, name) for one in repeats]
        if None in values:
            return None
        if isinstance(values[0], Percentiles):
            return _medians(values).model_copy(update={"repeats": sum(one.repeats for one in values)})
        return statistics.median(values) if isinstance(values[0], float) else values[0]

    return repeats[0].model_copy(update={name: of(name) for name in type(repeats[0]).model_fields})


def _mfu(records: Sequence[RunRecord], rate: float) -> tuple[float | None, bool]:
    """Model FLOP utilisation at the pooled rate and the repeats' median peak, and whether it is withheld as above the peak."""
    flops = [flop for record in records if (flop := record.measurement.flop)]
    peaks = [flop.peak_tflops for flop in flops if flop.peak_tflops is not None]
    if not peaks:
        return None, False
    per_sample = flops[0].forward_flop_per_sample + flops[0].backward_flop_per_sample
    return utilisation_percent(rate * per_sample / 1e12, statistics.median(peaks))


def usable_windows(records: Sequence[RunRecord]) -> list[GlobalWindows]:
    """The steady windows of every usable record."""
    usable = [record.measurement for record in records if record.validity.status != "invalid"]
    return [windows for measurement in usable if (windows := _windows(measurement)) is not None]


@CachedByIdentity
def _windows(measurement: Measurement) -> GlobalWindows | None:
    """The steady windows of a run; one window of one unit if the program reports only a rate."""
    if measurement.steady:
        return metrics.counted(measurement.windows, measurement.steady)
    if measurement.throughput:
        return GlobalWindows.of_rate(measurement.throughput.value)
    return None


def device_name(record: RunRecord) -> str:
    """The devices of a run on all its nodes: `NVIDIA H200`, or the processor."""
    nodes = record.provenance.nodes or (record.provenance,)
    if record.trial.device == "gpu":
        names = {gpu.name for node in nodes for gpu in node.gpus}
    else:
        names = {node.host.cpu_model for node in nodes if node.host.cpu_model}
    return " and ".join(sorted(names)) or f"unknown {record.trial.device}"


def machine(record: RunRecord) -> str:
    """A run's devices in one line: the GPU, or the processor with its usable cores.

    The number of visible GPUs is not included: a training on one is the same next to seven others. Nor are memory and form factor, except
    that drivers include them in the name of a GPU sold in several variants.
    """
    if record.trial.device == "gpu":
        return device_name(record)
    host = record.provenance.host
    return (
        f"{host.cpu_model or 'unknown processor'}, {host.usable_threads} core{'' if host.usable_threads == 1 else 's'}"
    )
