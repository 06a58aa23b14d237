"""Raw events and facts of a run → figures, validity and scaling, and what its raw files have lost since. Pure.

`dlscale regrade` reproduces the same digits. Raw files are checked by counts of what a record keeps of them unchanged: files that yield
less have lost data since the run. Computed figures are not counted, as another version of the suite may compute fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from runner.analysis.flop.figures import flop_figures
from runner.analysis.grading import measure, metrics, validity
from runner.analysis.interconnect import transport as transport_module
from runner.analysis.telemetry.device import GAP_PERIODS, rows_of
from runner.analysis.telemetry.summary import node_spans, pass_windows, run_telemetry
from runner.core.container_spec import ContainerSpec
from runner.core.events import Event
from runner.core.measurement import Measurement
from runner.core.profile import Profile
from runner.core.provenance import Provenance
from runner.core.record import EVENTS, Outcome, Ratio, RunRecord, ScalingFigures, Validity
from runner.core.request import Device
from runner.core.telemetry import Samples, Telemetry
from runner.core.transport import PcieTraffic, Transport
from runner.core.trial import AnyTrial, ExternalTrial, Trial
from runner.core.workload import Workload

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Graded:
    """The figures and verdict of one run."""

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
    samples: Samples | None = None,
    monitors: Mapping[str, str] = MappingProxyType({}),
    kernels: pd.DataFrame | None = None,
    containers: Sequence[ContainerSpec] = (),
) -> Graded:
    """Compute the figures of one run and judge whether they may be used.

    `samples` is its table `telemetry`, None without samplers; `kernels` is the table of a profiling pass; `monitors` maps each sampler's
    container to its node; `containers` are the planned ones, without which the job's own cores are unknown.
    """
    measurement = measure.measure(
        events,
        started=outcome.started,
        unit=f"{workload.unit}/s",
        mode=trial.mode,
        device=trial.device,
        loader_workers=0 if isinstance(trial, ExternalTrial) else trial.loader_workers,
    )
    counted = pass_windows(trial, events)
    watched = telemetry_of(
        samples,
        [*events, *counted],
        monitors=monitors,
        outcome=outcome,
        measurement=measure.measure(counted, started=outcome.started, unit="") if trial.profile else measurement,
        device=trial.device,
    )
    transport = transport_module.judge(
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
    doubts = validity.telemetry_doubts(watched, shared=trial.concurrent is not None and trial.concurrent.shared)
    if trial.profile:
        found = validity.judge_pass(trial, outcome, events, kernels)
    else:
        found = validity.judge(trial, outcome, measurement, transport, workload)
        taken = validity.cpu_time_taken_from_job(trial, measurement, watched, containers)
        doubts = (*taken, *validity.unsampled_pods(containers), *doubts)
    return Graded(
        outcome=outcome.model_copy(update={"phases_s": {**outcome.phases_s, **measure.phases(events)}}),
        measurement=measurement,
        transport=transport,
        validity=validity.degraded(found, doubts),
        telemetry=watched,
        profile=_profile(trial, events, kernels) if trial.profile else None,
    )


def _profile(trial: Trial, events: Sequence[Event], kernels: pd.DataFrame | None) -> Profile | None:
    """The profile of a pass. Whether Nsight Compute was the profiler is taken from the trial, as the profiled program can't tell."""
    from runner.analysis.profile.figures import analyse  # noqa: PLC0415 - importing pandas takes half a second, and reading records needs none

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


def telemetry_of(
    samples: Samples | None,
    events: Sequence[Event],
    *,
    monitors: Mapping[str, str],
    outcome: Outcome,
    measurement: Measurement,
    device: Device,
) -> Telemetry | None:
    """What the machines did in the counted windows; None without samplers or counted windows."""
    steady = measurement.steady
    counted = metrics.counted(measurement.windows, steady) if steady else None
    if steady is None or counted is None:
        return None
    return run_telemetry(
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
    """Speedup and efficiency of one run over its baseline, never clamped, and without an interval, which takes several runs.

    Both are None for an invalid or concurrent run, without a usable baseline, and if the two are incomparable (`withheld`).
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


_EVENT_FIELDS: Final = (
    *("windows", "losses", "evaluations", "parameter_norms", "used", "probe", "epochs", "accuracy", "batch", "latency"),
    "collectives",
    *("first_step_s", "parameters", "gradient_bytes", "images_decoded", "compiled"),
    "effects",
)
# Figures that older versions computed for spans too short for them.
_LONG_SPANS_ONLY: Final = frozenset(
    {"power_w", "energy_j", "energy_method", "integrated_power_j"}
    | {"utilisation", "utilisation_percent", "memory_utilisation_percent"}
)
_KERNELS: Final = "its table kernels"
_TELEMETRY: Final = "its table telemetry"


def lost_file(old: RunRecord, new: RunRecord, samples: Samples | None) -> str | None:
    """Name the raw file that no longer yields what a record was made from; None if all do.

    `new` is the record as its raw files yield it now, `samples` the table `telemetry` as it is now.
    """
    now = dict(_counts(new))
    for (file, field), then in _counts(old):
        if now[file, field] < then:
            return f"{file} no longer holds what the record was made from ({field}: {now[file, field]} of {then})"
    fewer = _known_figures(new.telemetry) < _known_figures(old.telemetry)
    if old.telemetry and fewer and _has_gaps(old.telemetry, samples):
        return (
            f"{_TELEMETRY} no longer holds what the record was made from (telemetry: samples of the time that it is of)"
        )
    return None


def _counts(record: RunRecord) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield ((raw file, field), count) of what a record holds."""
    for name in _EVENT_FIELDS:
        yield (EVENTS, f"measurement.{name}"), _count(getattr(record.measurement, name))
    profile, telemetry = record.profile, record.telemetry
    yield (EVENTS, "profile"), _count(profile)
    yield (EVENTS, "profile.steps"), _count(profile and profile.steps)
    yield (EVENTS, "profile.memory"), _count(profile and profile.memory)
    yield (EVENTS, "profile.flop"), _count(profile and profile.flop)
    yield (_KERNELS, "profile.categories"), sum(one.count for one in profile.categories) if profile else 0
    yield (_KERNELS, "profile.calls"), sum(one.count for one in profile.calls) if profile else 0
    gpus, hosts = (telemetry.gpus, telemetry.hosts) if telemetry else ((), ())
    yield (_TELEMETRY, "telemetry.gpus"), len(gpus)
    yield (_TELEMETRY, "telemetry.hosts"), len(hosts)
    yield (EVENTS, "telemetry.hosts.sampler_percent"), sum(_count(host.sampler_percent) for host in hosts)


def _count(value: Any) -> int:
    """The length of a list, or of all lists of a mapping, where any other value counts as one; else 1 for a value and 0 for None."""
    if isinstance(value, Mapping):
        return sum(len(one) if isinstance(one, tuple) else 1 for one in value.values())
    return len(value) if isinstance(value, tuple) else int(value is not None)


def _known_figures(telemetry: Telemetry | None) -> int:
    """The number of figures of all devices, less those that are missing or cover only part of the time."""
    if telemetry is None:
        return 0
    known = [name for device in (*telemetry.gpus, *telemetry.hosts) for name, value in device if value is not None]
    lacking = [field for entry in telemetry.missing for field in entry.fields]
    return sum(name not in _LONG_SPANS_ONLY for name in known) - sum(name not in _LONG_SPANS_ONLY for name in lacking)


def _has_gaps(telemetry: Telemetry, samples: Samples | None) -> bool:
    """Whether a device of a record lacks samples in part of the time that its figures cover."""
    if samples is None or not telemetry.hz:
        return True
    devices = [(gpu.node, f"gpu{gpu.index}") for gpu in telemetry.gpus]
    devices += [(host.node, "host") for host in telemetry.hosts]
    for node in telemetry.spans:
        for device in (name for where, name in devices if where == node.node):
            t = np.sort(np.asarray(samples["t"][rows_of(samples, node.node, device)], dtype=np.float64))
            for span in filter(None, (node.idle, node.gpus_idle, node.measured)):
                near = t[max(0, np.searchsorted(t, span.start, side="right") - 1) : np.searchsorted(t, span.end) + 1]
                if len(near) == 0 or near[0] > span.start or near[-1] < span.end:
                    return True
                if np.diff(near).max(initial=0) > GAP_PERIODS / telemetry.hz:
                    return True
    return False
