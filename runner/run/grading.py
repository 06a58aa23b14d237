"""The files of a run → its figures and validity. Pure, so that regrading reproduces them.

An external program is judged by what a log can show: that it exited 0, reported times, and has finite losses. No log shows how many samples it
should have processed, whether its ranks hold the same model, or over which wire they communicated, so nothing is claimed about these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from runner.analysis.grading import measure
from runner.analysis.grading.grade import Graded, grade, scaling, telemetry_of
from runner.analysis.grading.validity import degraded, finite_losses, telemetry_doubts, unsettled
from runner.core.events import Event, RunStop
from runner.core.measurement import Measurement, Throughput
from runner.core.provenance import Provenance
from runner.core.record import EngineDetails, ImageUsed, Outcome, RunPlan, RunRecord, Validity
from runner.core.telemetry import Samples
from runner.core.transport import Evidence, Transport
from runner.core.trial import ExternalTrial, devices_in_words
from runner.core.workload import Workload
from runner.run.dialects import UNITS
from runner.run.dialects.nccl_tests import bus_bandwidth


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """The files of a run. The trial in `plan` has the length that was run; `workload` is None for an external program, `samples` or `kernels` if missing."""

    plan: RunPlan
    outcome: Outcome
    events: Sequence[Event]
    provenance: Provenance
    workload: Workload | None
    samples: Samples | None
    kernels: Samples | None


def record_of(
    run: RunFiles,
    *,
    matrix_id: str,
    engine: str,
    engine_details: EngineDetails,
    image: ImageUsed,
    baseline: RunRecord | None,
) -> RunRecord:
    """Make the record of a finished run; its speedup is relative to `baseline`."""
    graded = grade_run(run)
    return RunRecord(
        run_id=run.plan.run_id,
        matrix_id=matrix_id,
        trial=run.plan.trial,
        engine=engine,
        engine_details=engine_details,
        image=image,
        provenance=run.provenance,
        scaling=scaling(run.plan.trial, run.plan.run_id, graded, baseline),
        **vars(graded),
    )


def grade_run(run: RunFiles) -> Graded:
    """Compute the figures of one run and judge whether they may be used."""
    trial, plan, workload = run.plan.trial, run.plan, run.workload
    if isinstance(trial, ExternalTrial):
        return grade_external(
            trial, outcome=run.outcome, events=run.events, samples=run.samples, monitors=plan.monitors
        )
    if workload is None:
        raise TypeError(f"{trial.workload} is not handed over")
    kernels = None
    if run.kernels is not None:
        import pandas as pd  # noqa: PLC0415 - takes half a second and 40 MB, and only a profiling pass needs it

        kernels = pd.DataFrame(run.kernels)
    return grade(
        trial=trial,
        outcome=run.outcome,
        events=run.events,
        provenance=run.provenance,
        workload=workload,
        samples=run.samples,
        monitors=plan.monitors,
        kernels=kernels,
        containers=plan.containers,
    )


def grade_external(
    trial: ExternalTrial,
    *,
    outcome: Outcome,
    events: Sequence[Event],
    samples: Samples | None = None,
    monitors: Mapping[str, str] = MappingProxyType({}),
) -> Graded:
    """Compute the figures in the log of an external program, and judge whether they may be used."""
    unit = f"{trial.pattern.unit}/s" if trial.pattern else UNITS.get(trial.dialect, "samples/s")
    measurement = measure.measure(events, started=outcome.started, unit=unit)
    if trial.dialect == "nccl-tests":
        bandwidth = bus_bandwidth(events)
        found = Throughput(value=bandwidth, ci95=None, unit=unit) if bandwidth else None
        measurement = measurement.model_copy(update={"throughput": found})
    watched = telemetry_of(
        samples, events, monitors=monitors, outcome=outcome, measurement=measurement, device=trial.device
    )
    return Graded(
        outcome=outcome.model_copy(update={"phases_s": {**outcome.phases_s, **measure.phases(events)}}),
        measurement=measurement,
        transport=Transport(
            requested="auto",
            used="none" if trial.world_size == 1 else "unknown",
            evidence=Evidence(traffic=(), nccl_lines=()),
        ),
        validity=degraded(judge(outcome, measurement), (*_unseen_devices(trial, events), *telemetry_doubts(watched))),
        telemetry=watched,
    )


def _unseen_devices(trial: ExternalTrial, events: Sequence[Event]) -> tuple[str, ...]:
    """Warn if the log does not show as many devices as requested: a program that ignores the number would still be credited with a speedup."""
    stops = [event for event in events if isinstance(event, RunStop)]
    shown = max([len({stop.rank for stop in stops}), *(stop.devices or 0 for stop in stops)])
    if trial.world_size in (1, shown) or shown > trial.world_size:
        return ()
    devices = devices_in_words(trial.device, trial.world_size, cores=None)
    return (f"nothing in the log shows that {devices} ran; let it say so (`devices` or `rank` in --pattern)",)


def judge(outcome: Outcome, measurement: Measurement) -> Validity:
    """Judge a run by what its log can show: any defect makes it invalid; an unsettled rate alone makes it degraded."""
    against = outcome.against
    if not against and measurement.throughput is None:
        against = ("the log tells how long nothing took",)
    if not against and not finite_losses(measurement):
        against = ("a loss in the log is not finite; a smaller learning rate may train",)
    if against:
        return Validity(status="invalid", reasons=against)
    doubts = unsettled(measurement)
    return Validity(status="degraded" if doubts else "valid", reasons=tuple(doubts))
