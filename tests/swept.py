"""Made-up records that differ in batch: measured runs with telemetry, and profiling passes, in memory and on disk."""

from datetime import datetime, timezone
from pathlib import Path

import examples
import passes
from monitored import beats, frame, gpu, rows, spans, started, stopped
from profile_rows import BN, GEMM, kernel, table
from records import provenance, record

from runner.analysis.telemetry.summary import run_telemetry
from runner.core.measurement import FlopFigures
from runner.core.node import Gpu
from runner.core.record import EVENTS, RunPlan
from runner.results.store import RunWriter

MONITORS = {"dlscale-x-monitor0": "here"}
ON_GPU = {
    "device": "gpu",
    "framework": "pytorch",
    "version": "2.15.0",
    "model": "resnet50",
    "image_shape": (3, 224, 224),
}
ON_GPU |= {"cpus_per_worker": None}
H200 = Gpu(
    index=0,
    uuid="GPU-0",
    name="NVIDIA H200",
    memory_mib=143771,
    compute_capability="9.0",
    nvlinks=18,
)


def trial(batch, precision="fp32", **changes):
    fields = ON_GPU | {"batch_per_device": batch, "global_batch": batch, "precision": precision}
    return examples.trial(**(fields | changes))


def samples(*, utilisation=90.0, active=50.0, power=600.0, devices=1):
    """Table `telemetry` of 16 s with constant figures; the measured windows are from 10 s to 14 s."""
    figures = {"utilisation_percent": utilisation, "sm_active_percent": active, "fp32_percent": active / 2}
    figures |= {"tensor_percent": active / 5, "power_w": lambda t: 75.0 if t < 5 else power}
    figures |= {"energy_j": lambda t: 75 * t if t < 5 else 375 + power * (t - 5)}
    host = rows(beats(0, 16), device="host", core_percent=[[20.0]] * len(beats(0, 16)))
    return frame(*(rows(beats(0, 16), device=f"gpu{index}", **figures) for index in range(devices)), host)


def watched(table_of_samples, *, trained, devices=1):
    said = [started(*(gpu(index) for index in range(devices))), stopped()]
    return run_telemetry(
        table_of_samples,
        said,
        spans=[spans()],
        monitors=MONITORS,
        samples=trained,
        seconds=4.0,
        device="gpu",
        own=("a" * 64,),
    )


def measured(batch, rate, *, precision="fp32", run_id=None, matrix="m", status="valid", second=0, **changes):
    """A run of `rate` images/s on one H200 with 4 s of telemetry; changes with parameter names of `samples` apply to the telemetry."""
    seen = {name: changes.pop(name) for name in ("utilisation", "active", "power") if name in changes}
    one = trial(batch, precision, **changes)
    found = record(run_id=run_id or f"{matrix}-{precision}-{batch}", trial=one, status=status, seconds=batch / rate)
    flop = FlopFigures(
        forward_flop_per_sample=8e9,
        backward_flop_per_sample=16e9,
        method="made up",
        achieved_tflops=None,
        peak_tflops=67.0 if precision == "fp32" else 989.0,
        peak_source="made up",
        mfu_percent=None,
        roofline_source="made up",
    )
    when = datetime(2026, 1, 1, second=second, tzinfo=timezone.utc)
    changed = {"matrix_id": matrix, "measurement": found.measurement.model_copy(update={"flop": flop})}
    changed |= {"telemetry": watched(samples(**seen), trained=round(4 * rate))}
    changed |= {"provenance": provenance(gpus=(H200,), recorded_at=when)}
    return Path(found.run_id), found.model_copy(update=changed)


def traced(batch, *busy_s, precision="fp32", run_id=None, matrix="m", second=0, kind="kernels", **changes):
    """A pass of 5 steps of 0.1 s, whose kernels, by name, are busy for `busy_s` seconds, one after the other."""
    one = passes.trial(kind, ranks=1, **(ON_GPU | {"batch_per_device": batch, "precision": precision} | changes))
    begin, kernels = 0.0, []
    for seconds, name in zip(busy_s, (GEMM, BN), strict=False):
        kernels.append(kernel(begin, begin + seconds, name))
        begin += seconds
    found = passes.record_of(
        one, frame=table(*kernels), run_id=run_id or f"{matrix}-{precision}-{batch}-profile-{kind}"
    )
    when = datetime(2026, 1, 1, minute=1, second=second, tzinfo=timezone.utc)
    changed = {"matrix_id": matrix, "provenance": provenance(gpus=(H200,), recorded_at=when)}
    return Path(found.run_id), found.model_copy(update=changed)


def leave(out, run, *, table_of_samples=None):
    """Leave a run directory like `bench`, with the given telemetry."""
    name, found = run
    writer = RunWriter(out / name)
    plan = RunPlan(run_id=found.run_id, trial=found.trial, containers=(), command_lines=())
    writer.create(plan)
    (out / name / EVENTS).touch()
    writer.finish(found)
    if table_of_samples is not None:
        table_of_samples.to_parquet(out / name / "telemetry.parquet")
    return out / name
