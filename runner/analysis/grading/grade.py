"""Raw events and facts of a run → figures, validity and scaling. Pure, so that `dlscale regrade` gives the same digits again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from runner.analysis.flop.figures import flop_figures
from runner.analysis.grading import measure, metrics
from runner.analysis.grading.sanity import check_losses
from runner.analysis.interconnect import causes
from runner.analysis.interconnect import transport as transport_module
from runner.analysis.profile import analyse
from runner.analysis.profile.counted import attributed, stretches
from runner.analysis.profile.judge import doubts as pass_doubts
from runner.analysis.profile.judge import faults as pass_faults
from runner.analysis.telemetry.doubts import doubts as telemetry_doubts
from runner.analysis.telemetry.doubts import taken_cores
from runner.analysis.telemetry.spans import node_spans
from runner.analysis.telemetry.summary import summarize
from runner.core.container_spec import ContainerSpec
from runner.core.events import Event
from runner.core.measurement import Measurement
from runner.core.profile import Profile
from runner.core.provenance import Provenance
from runner.core.record import Outcome, Ratio, RunRecord, ScalingFigures, Validity
from runner.core.request import Device
from runner.core.telemetry import Telemetry
from runner.core.transport import PcieTraffic, Transport
from runner.core.trial import AnyTrial, ForeignTrial, Trial
from runner.core.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

# Ranks that train one model hold the same weights up to the order of their sums.
NORM_TOLERANCE: Final = 1e-5
# Their losses on one batch differ by what the precision loses in other orders of summation: fp32 and tf32, and half precision.
LOSS_TOLERANCE: Final = {"fp32": 1e-3, "tf32": 1e-3, "fp16": 1e-2, "bf16": 1e-2}


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

    Args:
        trial: what ran.
        outcome: how it ended.
        events: all that its ranks and samplers said.
        provenance: the machines that it ran on.
        workload: what it trained.
        samples: its table `telemetry`; None where nobody looked on.
        monitors: by the sampler's container, its node.
        kernels: its table `kernels`, of a pass under a profiler; None where there is none.
        containers: that were planned; without them nobody knows which cores were its own.
    """
    measurement = measure.measure(events, started=outcome.started, unit=f"{workload.unit}/s", mode=trial.mode)
    with_phases = outcome.model_copy(update={"phases_s": {**outcome.phases_s, **measure.phases(events)}})
    counted = stretches(trial, events)
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
        validity = judge_pass(trial, outcome, events, kernels)
    else:
        validity = judge(trial, outcome, measurement, transport, workload)
        validity = _degraded(validity, _taken(trial, measurement, watched, containers))
    return Graded(
        outcome=with_phases,
        measurement=measurement,
        transport=transport,
        validity=with_doubts(validity, watched, shared=trial.concurrent is not None and trial.concurrent.shared),
        telemetry=watched,
        profile=attributed(trial, analyse(kernels, events)) if trial.profile else None,
    )


def _pcie(watched: Telemetry | None, training_time_s: float | None) -> list[PcieTraffic]:
    """What samplers saw of the GPUs' PCIe, and of how much of the measured time."""
    return [
        PcieTraffic(
            gpu=gpu.uuid,
            rx_bytes=gpu.pcie_rx_bytes,
            tx_bytes=gpu.pcie_tx_bytes,
            share=min(1.0, gpu.measured_s / training_time_s),
        )
        for gpu in (watched.gpus if watched and training_time_s else ())
        if gpu.pcie_rx_bytes is not None and gpu.pcie_tx_bytes is not None and training_time_s
    ]


def judge_pass(trial: Trial, outcome: Outcome, events: Sequence[Event], kernels: pd.DataFrame | None) -> Validity:
    """Hold a pass under a profiler against its own checks, which ask for no throughput, no scaling and no wire."""
    if against := outcome.against or pass_faults(trial, events, kernels):
        return Validity(status="invalid", reasons=tuple(against))
    found = _crowded(trial) + pass_doubts(trial, events, kernels)
    return Validity(status="degraded" if found else "valid", reasons=tuple(found))


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
    if measurement.steady is None:
        return None
    first = measurement.steady.first_window
    spans = node_spans(events, monitors=monitors, first_window=first, started=outcome.started)
    counted = metrics.counted(measurement.windows, measurement.steady)
    if counted is None:
        return None
    return summarize(
        samples,
        events,
        spans=spans,
        monitors=monitors,
        samples=float(counted.samples.sum()),
        seconds=float(counted.seconds.sum()),
        device=device,
        own=outcome.containers.values(),
    )


def with_doubts(validity: Validity, watched: Telemetry | None, *, shared: bool = False) -> Validity:
    """Degrade a run by what the machines did meanwhile; one that is invalid stays what it is.

    With `shared` it was to share its devices, so that others on them are no reason.
    """
    return _degraded(validity, telemetry_doubts(watched, shared=shared) if watched else ())


def _degraded(validity: Validity, found: Sequence[str]) -> Validity:
    if validity.status == "invalid" or not found:
        return validity
    return Validity(status="degraded", reasons=(*validity.reasons, *found))


def _taken(
    trial: Trial, measurement: Measurement, watched: Telemetry | None, containers: Sequence[ContainerSpec]
) -> tuple[str, ...]:
    """What others took of the cores that a job on one machine's CPUs had for itself, where every container of it told what it used.

    Between nodes, even emulated ones, the kernel carries packages on whichever core it is: that is the job's, and in no container's figure.
    """
    if watched is None or trial.device != "cpu" or trial.nodes > 1 or (trial.concurrent and trial.concurrent.shared):
        return ()
    own = [spec for spec in containers if spec.role != "monitor"]
    used = [measurement.used[spec.name].cpu_s for spec in own if spec.name in measurement.used]
    known = [seconds for seconds in used if seconds is not None]
    if len(known) < len(own):
        return ()
    return taken_cores(watched, cores={core for spec in own for core in spec.cpus}, used_s=math.fsum(known))


def judge(
    trial: Trial, outcome: Outcome, measurement: Measurement, transport: Transport, workload: Workload
) -> Validity:
    """Hold a run against every check; one reason makes it invalid, or degraded when it is only in doubt."""
    against = [*outcome.against]
    if not against:
        against += _missing(trial, measurement)
        against += _diverged(trial, measurement)
        against += _bad_quality(trial, measurement, workload)
        against += _wrong_sums(measurement)
        if wrong := causes.mismatch(transport, trial):
            against.append(wrong)
    if against:
        return Validity(status="invalid", reasons=tuple(against))
    doubts = _doubts(trial, measurement)
    return Validity(status="degraded" if doubts else "valid", reasons=tuple(doubts))


def _doubts(trial: Trial, measurement: Measurement) -> list[str]:
    """What makes figures less than they seem, and not wrong."""
    found = _crowded(trial)
    found += unsettled(measurement)
    if measurement.batch and measurement.batch.used != measurement.batch.asked:
        found.append(f"batch {measurement.batch.used} instead of {measurement.batch.asked}: {measurement.batch.reason}")
    return found


def _crowded(trial: Trial) -> list[str]:
    """That workers had no cores of their own."""
    return [f"{trial.world_size} CPU workers shared cores (--oversubscribe)"] if trial.oversubscribed else []


def unsettled(measurement: Measurement) -> list[str]:
    """Say that a rate drifted all the time, or that there is too little of it to tell."""
    steady = measurement.steady
    joined = metrics.global_windows(measurement.windows)
    if steady is None or joined is None or steady.steady:
        return []
    count = len(joined.samples)
    if count < metrics.MIN_STEADY_WINDOWS:
        timed = f"{count} window{' was' if count == 1 else 's were'} timed"
        return [f"{timed}; whether the rate settled takes {metrics.MIN_STEADY_WINDOWS}"]
    return [f"the rate never settled: the later half is {steady.drift:+.1%} off the earlier"]


def _missing(trial: Trial, measurement: Measurement) -> list[str]:
    """Ranks or samples that the figures lack."""
    found = []
    ranks = len(measurement.parameter_norms)
    if ranks != trial.processes:
        found.append(f"{ranks} of {trial.processes} ranks reported their end")
    expected = trial.iterations * trial.global_batch
    if measurement.samples != expected:
        found.append(
            f"{measurement.samples} samples counted, {trial.iterations} iterations of {trial.global_batch} make {expected}"
        )
    return found


def _diverged(trial: Trial, measurement: Measurement) -> list[str]:
    """Synchronous ranks that do not hold one model: their gradients were not averaged."""
    norms = [norm for norm in measurement.parameter_norms.values() if norm is not None and math.isfinite(norm)]
    if len(norms) < len(measurement.parameter_norms) and trial.dialect is None:
        return ["the weights are not finite at the end"]
    if trial.kvstore == "dist_async":  # each worker goes on with the weights that it finds
        return []
    if norms and max(norms) - min(norms) > NORM_TOLERANCE * max(norms):
        return [
            f"the ranks hold different weights (norms {min(norms):.6g} to {max(norms):.6g}): gradients were not averaged"
        ]
    for iteration, losses in _shared_losses(measurement).items():
        if max(losses) - min(losses) > LOSS_TOLERANCE[trial.precision] * max(map(abs, losses)):
            spread = f"{min(losses):.6g} to {max(losses):.6g}"
            return [
                f"after {iteration} iterations the devices' losses on one batch are {spread}: gradients were not averaged"
            ]
    return []


def _wrong_sums(measurement: Measurement) -> list[str]:
    """Exchanges of the probe whose result was not the sum of what the ranks gave."""
    return [
        f"{exchange.wrong} elements of an exchange of {exchange.size_bytes} bytes came out wrong before the first step: the wires or the "
        "library that drives them lose data"
        for exchange in measurement.probe
        if exchange.wrong
    ]


def _shared_losses(measurement: Measurement) -> dict[int, list[float]]:
    """By iteration, the loss of every device of every rank on the batch that all share."""
    found: dict[int, list[float]] = {}
    for evaluations in measurement.evaluations.values():
        for evaluation in evaluations:
            found.setdefault(evaluation.iteration, []).extend(loss for loss in evaluation.losses if loss is not None)
    return {iteration: losses for iteration, losses in found.items() if losses}


def _bad_losses(trial: Trial, measurement: Measurement, workload: Workload) -> list[str]:
    """Losses that are missing, not finite, or outside the workload's sanity band."""
    curves = list(measurement.losses.values())
    steps = min((len(curve) for curve in curves), default=0)
    if steps < trial.warmup + trial.iterations:
        return [f"losses of {steps} of {trial.warmup + trial.iterations} iterations were reported"]
    mean: list[float] = []
    for step in range(steps):
        values = [value for curve in curves if (value := curve[step]) is not None]
        if len(values) < len(curves) or not all(math.isfinite(value) for value in values):
            return [f"the loss is not finite at iteration {step}; a smaller learning rate may train"]
        mean.append(math.fsum(values) / len(values))
    if workload.sanity is None or trial.num_classes is None:
        return []
    return check_losses(mean, data=trial.data, num_classes=trial.num_classes, band=workload.sanity)


def _broken_losses(trial: Trial, measurement: Measurement) -> list[str]:
    """Losses of a log, which has those that the framework shows; the sanity band wants all of them."""
    if not any(measurement.losses.values()):
        return [f"the {trial.dialect} log shows no loss"]
    return [] if finite_losses(measurement) else ["a loss in the log is not finite"]


def _bad_quality(trial: Trial, measurement: Measurement, workload: Workload) -> list[str]:
    """What is wrong with the losses, as far as the program has any, and with the epochs that were asked for."""
    if trial.mode == "infer":
        return []
    if trial.dialect:
        return _broken_losses(trial, measurement)
    found = _bad_losses(trial, measurement, workload)
    if trial.epoch_iterations:
        asked = trial.iterations // trial.epoch_iterations
        if len(measurement.epochs) != asked:
            found.append(f"{len(measurement.epochs)} of {asked} epochs were validated")
    return found


def finite_losses(measurement: Measurement) -> bool:
    """Whether every loss that was told is a number."""
    return all(loss is not None and math.isfinite(loss) for curve in measurement.losses.values() for loss in curve)


def scaling(trial: AnyTrial, run_id: str, graded: Graded, baseline: RunRecord | None) -> ScalingFigures:
    """Speedup and efficiency of one run against its baseline's, never clamped and without an interval, which takes several runs.

    None for a run that may not be used.
    """
    measurement = graded.measurement
    nothing = ScalingFigures(baseline_run_id=None, speedup=None, efficiency=None, superlinear=False)
    alone = isinstance(trial, ForeignTrial) or trial.concurrent is None
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
