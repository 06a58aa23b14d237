"""Records of one matrix → the `Summary` that reports are made from. Pure.

Repeats of a scale are pooled: samples of all ÷ seconds of all, never a mean of their rates; intervals come from the two-level bootstrap.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from runner import metrics
from runner.metrics import GlobalWindows
from runner.report.summary import Row, Summary
from runner.results import RunRecord


def summarize(records: Sequence[tuple[Path, RunRecord]]) -> Summary:
    """Pool the repeats of each scale; the one-device rows are the baseline of the others.

    Args:
        records: run directories and records that differ in scale and repeat only; at least one.
    """
    first = records[0][1]
    scales = sorted({record.trial.world_size for _, record in records})
    by_scale = {scale: [record for _, record in records if record.trial.world_size == scale] for scale in scales}
    base = _usable_windows(by_scale.get(1, []))
    trial = first.trial
    size = trial.image_shape[1]
    return Summary(
        title=f"{trial.framework} {trial.version}: {trial.model} {trial.mode}",
        rows=tuple(_row(scale, by_scale[scale], base) for scale in scales),
        image_reference=first.image.reference,
        engine=first.engine,
        engine_reason=first.engine_details.reason,
        machine=_machine(first),
        model=f"{trial.model} {size}×{size}",
        batch_per_device=trial.batch_per_device,
        scaling_mode=trial.scaling,
        precision=trial.precision,
        date=first.provenance.recorded_at.date().isoformat(),
        record_dirs=tuple(path for path, _ in records),
    )


def _row(scale: int, records: Sequence[RunRecord], base: Sequence[GlobalWindows]) -> Row:
    """One scale over its repeats; without a usable one, the row says why and shows no figure."""
    usable = [record for record in records if record.validity.status != "invalid"]
    runs = _usable_windows(usable)
    reasons = tuple(dict.fromkeys(reason for record in records for reason in record.validity.reasons))
    device = "gpu" if records[0].trial.device == "gpu" else "cpu worker"
    if not runs:
        failed = all(record.outcome.status != "ok" for record in records)
        return Row(scale=scale, device=device, repeats=0, status="failed" if failed else "invalid", reasons=reasons)
    rate = metrics.pooled_rate(runs)
    speedup = rate / metrics.pooled_rate(base) if base else None
    speedup_ci95 = metrics.ratio_interval(runs, base) if base and scale > 1 else None
    clean = len(usable) == len(records) and all(record.validity.status == "valid" for record in usable)
    times = [record.measurement.training_time_s for record in usable if record.measurement.training_time_s is not None]
    unit = next(record.measurement.throughput.unit for record in usable if record.measurement.throughput)
    return Row(
        scale=scale,
        device=device,
        throughput=rate,
        throughput_ci95=metrics.interval(metrics.rate_distribution(runs, seed=1)),
        unit=unit,
        training_time_s=statistics.median(times),
        speedup=speedup,
        speedup_ci95=speedup_ci95,
        efficiency=speedup / scale if speedup is not None else None,
        efficiency_ci95=speedup_ci95.scaled(1 / scale) if speedup_ci95 else None,
        repeats=len(runs),
        status="valid" if clean else "degraded",
        reasons=reasons,
    )


def _usable_windows(records: Sequence[RunRecord]) -> list[GlobalWindows]:
    """The steady windows of every record that may be used."""
    found = []
    for record in records:
        if record.validity.status != "invalid" and record.measurement.steady:
            windows = metrics.counted(record.measurement.windows, record.measurement.steady)
            if windows is not None:
                found.append(windows)
    return found


def _machine(record: RunRecord) -> str:
    """The processor or the GPUs in one line."""
    host = record.provenance.host
    if record.trial.device == "gpu" and record.provenance.gpus:
        gpus = record.provenance.gpus
        return f"{len(gpus)} × {gpus[0].name}"
    return f"{host.cpu_model or 'unknown processor'}, {host.usable_threads} cores"
