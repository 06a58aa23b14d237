"""Raw events and facts of a run → figures, validity and scaling. Pure, so that `dlscale regrade` gives the same digits again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from runner.analysis.flop.figures import flop_figures
from runner.analysis.grading import measure, metrics, validity
from runner.analysis.interconnect import transport as transport_module
from runner.analysis.telemetry.summary import node_spans, pass_windows, summarize
from runner.core.container_spec import ContainerSpec
from runner.core.events import Event
from runner.core.measurement import Measurement
from runner.core.profile import Profile
from runner.core.provenance import Provenance
from runner.core.record import Outcome, Ratio, RunRecord, ScalingFigures, Validity
from runner.core.request import Device
from runner.core.telemetry import Telemetry
from runner.core.transport import PcieTraffic, Transport
from runner.core.trial import AnyTrial, ExternalTrial, Trial
from runner.core.workload import Workload

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Graded:
    """What the events of one run come to."""

    outcome: Outcome
    measurement: Measurement
    transport: Transport
    validity: Validity
    telemetry: Telemetry | None = None
    profile: Profile | None = None


def grade(
    *,
    trial: Trial,
    outcome: Outcome,
    events: Sequence[Event],
    provenance: Provenance,
    workload: Workload,
    samples: pd.DataFrame | None = None,
    monitors: Mapping[str, str] = MappingProxyType({}),
    kernels: pd.DataFrame | None = None,
    containers: Sequence[ContainerSpec] = (),
) -> Graded:
    """Compute the figures of one run and judge whether they may be used.

    `samples` is its table `telemetry`, None where nobody looked on; `kernels` its table of a pass under a profiler; `monitors` are nodes by
    the sampler's container; `containers` were planned, and without them nobody knows which cores were its own.
    """
    measurement = measure.measure(events, started=outcome.started, unit=f"{workload.unit}/s", mode=trial.mode)
    counted = pass_windows(trial, events)
    watched = watch(
        samples,
        [*events, *counted],
        monitors=monitors,
        outcome=outcome,
        measurement=measure.measure(counted, started=outcome.started, unit="") if trial.profile else measurement,
        device=trial.device,
    )
    transport = transport_module.used(
        trial,
        provenance.gpus,
        events,
        nics={node.name: node.nics for node in provenance.nodes},
        one_machine=provenance.one_machine,
        pcie=() if trial.profile else _pcie(watched, measurement.training_time_s),
    )
    rate = measurement.throughput.value if measurement.throughput else None
    flop = flop_figures(trial=trial, events=events, throughput=rate, telemetry=watched)
    measurement = measurement.model_copy(update={"flop": flop})
    if trial.profile:
        found = validity.judge_pass(trial, outcome, events, kernels)
    else:
        found = validity.judge(trial, outcome, measurement, transport, workload)
        found = validity.degraded(found, validity.taken_from_the_job(trial, measurement, watched, containers))
    shared = trial.concurrent is not None and trial.concurrent.shared
    return Graded(
        outcome=outcome.model_copy(update={"phases_s": {**outcome.phases_s, **measure.phases(events)}}),
        measurement=measurement,
        transport=transport,
        validity=validity.with_doubts(found, watched, shared=shared),
        telemetry=watched,
        profile=_profile(trial, events, kernels) if trial.profile else None,
    )


def _profile(trial: Trial, events: Sequence[Event], kernels: pd.DataFrame | None) -> Profile | None:
    """What a pass found; its source is Nsight Compute where that told, as the program within only knows that somebody may be looking."""
    from runner.analysis.profile.figures import analyse  # noqa: PLC0415  (pandas takes half a second; who only reads records needs none)

    found = analyse(kernels, events)
    by_ncu = trial.profile is not None and trial.profile.ncu is not None
    return found.model_copy(update={"source": "ncu"}) if found and by_ncu else found


def _pcie(watched: Telemetry | None, training_time_s: float | None) -> list[PcieTraffic]:
    if watched is None or not training_time_s:
        return []
    return [
        PcieTraffic(
            gpu=gpu.uuid,
            rx_bytes=gpu.pcie_rx_bytes,
            tx_bytes=gpu.pcie_tx_bytes,
            share=min(1.0, gpu.measured_s / training_time_s),
        )
        for gpu in watched.gpus
        if gpu.pcie_rx_bytes is not None and gpu.pcie_tx_bytes is not None
    ]


def watch(
    samples: pd.DataFrame | None,
    events: Sequence[Event],
    *,
    monitors: Mapping[str, str],
    outcome: Outcome,
    measurement: Measurement,
    device: Device,
) -> Telemetry | None:
    """What the machines did in the windows that count; None where nobody was to look on, or no window counts."""
    steady = measurement.steady
    counted = metrics.counted(measurement.windows, steady) if steady else None
    if steady is None or counted is None:
        return None
    return summarize(
        samples,
        events,
        spans=node_spans(events, monitors=monitors, first_window=steady.first_window, started=outcome.started),
        monitors=monitors,
        samples=float(counted.samples.sum()),
        seconds=float(counted.seconds.sum()),
        device=device,
        own=outcome.containers.values(),
    )


def scaling(trial: AnyTrial, run_id: str, graded: Graded, baseline: RunRecord | None) -> ScalingFigures:
    """Speedup and efficiency of one run against its baseline's, never clamped and without an interval, which takes several runs.

    None for a run that may not be used.
    """
    measurement = graded.measurement
    nothing = ScalingFigures(baseline_run_id=None, speedup=None, efficiency=None, superlinear=False)
    alone = isinstance(trial, ExternalTrial) or trial.concurrent is None
    if graded.validity.status == "invalid" or measurement.steady is None or not alone:
        return nothing
    if trial.world_size == 1:
        one = Ratio(value=1.0, ci95=None)
        return ScalingFigures(baseline_run_id=run_id, speedup=one, efficiency=one, superlinear=False)
    if baseline is None or baseline.measurement.steady is None:
        return nothing
    ours = metrics.counted(measurement.windows, measurement.steady)
    theirs = metrics.counted(baseline.measurement.windows, baseline.measurement.steady)
    if ours is None or theirs is None:
        return nothing
    if trial.device == "gpu" and (why := metrics.incomparable([ours], [theirs], scale=trial.world_size)):
        return nothing.model_copy(update={"baseline_run_id": baseline.run_id, "withheld": why})
    value = ours.rate / theirs.rate
    return ScalingFigures(
        baseline_run_id=baseline.run_id,
        speedup=Ratio(value=value, ci95=None),
        efficiency=Ratio(value=value / trial.world_size, ci95=None),
        superlinear=value > trial.world_size,
    )
