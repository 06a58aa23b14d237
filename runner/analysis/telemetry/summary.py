"""Samples of all nodes → `Telemetry`: which devices there are, why something of them is missing, and what all of them come to; several repeats as one."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from runner.analysis.telemetry.device import PIPES, Device, gpu_figures, host_figures
from runner.analysis.telemetry.series import stretches
from runner.core.events import Event, MonitorStart, MonitorStop, Trouble
from runner.core.telemetry import GpuTelemetry, HostTelemetry, Missing, NodeSpans, Range, Telemetry, over_time

if TYPE_CHECKING:
    import pandas as pd

HOST: Final = "host"
OF_PSUTIL: Final = (
    *("core_percent", "memory_mib", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes"),
    "clock_mhz",
)
Part = TypeVar("Part", GpuTelemetry, HostTelemetry)

ADDED: Final = frozenset(
    {"measured_s", "energy_j", "integrated_power_j", "ecc_corrected", "ecc_uncorrected"}
    | {"pcie_rx_bytes", "pcie_tx_bytes", "nvlink_rx_bytes", "nvlink_tx_bytes"}
    | {"disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes"}
)
COMPLETE: Final = ADDED | {"power_w"}
EXTREME: Final = {"idle_power_w": min, "temperature_rise_c": max, "sampler_percent": max}


def summarize(
    frame: pd.DataFrame | None,
    events: Sequence[Event],
    *,
    spans: Sequence[NodeSpans],
    monitors: Mapping[str, str],
    samples: float,
    seconds: float,
    device: Literal["cpu", "gpu"],
    own: Collection[str] = (),
) -> Telemetry | None:
    """Compute every figure of the measured spans; None where nothing was measured, or nobody was to look.

    Args:
        frame: table `telemetry`, with all columns of the contract and `node`, rows in the order in which they came; None for no table.
        events: all events of the run.
        spans: when each node was measured (`node_spans`).
        monitors: by the sampler's container, its node.
        samples: what throughput counts of all ranks in the windows that count.
        seconds: of those windows.
        device: what trained, and so whose energy counts.
        own: what the kernel tells the job's containers by (`Outcome.containers`): processes of others are foreign.
    """
    if not spans:
        return None
    nodes = [
        _of_node(frame, [event for event in events if monitors.get(event.container) == span.node], span, own)
        for span in spans
    ]
    gpus = tuple(gpu for node in nodes for gpu in node.gpus)
    hosts = tuple(host for node in nodes for host in node.hosts)
    energies = [one.energy_j for one in (gpus if device == "gpu" else hosts)]
    known = [energy for energy in energies if energy is not None]
    complete = bool(known) and len(known) == len(energies) and all(node.complete for node in nodes)
    energy = math.fsum(known) if complete else None
    return Telemetry(
        hz=min((node.hz for node in nodes if node.hz is not None), default=None),
        device=device,
        spans=tuple(spans),
        samples=samples,
        seconds=seconds,
        gpus=gpus,
        hosts=hosts,
        energy_j=energy,
        samples_per_joule=samples / energy if energy else None,
        missing=tuple(entry for node in nodes for entry in node.missing),
    )


@dataclass(frozen=True)
class _Node:
    """The figures of one node's devices; `complete` where every device that its sampler was to look at has figures."""

    hz: float | None
    gpus: Sequence[GpuTelemetry]
    hosts: Sequence[HostTelemetry]
    missing: Sequence[Missing]
    complete: bool


def _of_node(frame: pd.DataFrame | None, said: Sequence[Event], span: NodeSpans, own: Collection[str]) -> _Node:
    """Look at every device of a node whose sampler `said` something."""
    sampler = next((event for event in said if isinstance(event, MonitorStart)), None)
    stop = next((event for event in said if isinstance(event, MonitorStop)), None)
    troubles = [event for event in said if isinstance(event, Trouble)]
    # What the runner says of a sampler that it can't hear any more is of no column.
    fell_silent = next((event.reason for event in troubles if not event.fields), None)
    if sampler is None or frame is None:
        why = fell_silent or "its sampler told nothing"
        none = [Missing(node=span.node, device=name, fields=(), reason=why) for name in ("gpu", HOST)]
        return _Node(sampler.hz if sampler else None, [], [], none, complete=False)

    def device(name: str, told: Mapping[str, str]) -> Device:
        of_it = [event for event in troubles if event.device == name and event.t <= span.measured.end]
        return Device(
            frame,
            node=span.node,
            device=name,
            hz=sampler.hz,
            measured=stretches(span),
            told={**told, **{field: event.reason for event in of_it for field in event.fields}},
            fell_silent=fell_silent,
        )

    missing = []
    if not sampler.gpus:
        why = sampler.sources.get("nvml") or "no NVIDIA device"
        missing.append(Missing(node=span.node, device="gpu", fields=(), reason=why))
    unread = "; ".join(dict.fromkeys(filter(None, map(sampler.sources.get, ("gpm", "dcgm")))))
    gpus = []
    for gpu in sampler.gpus:
        samples = device(f"gpu{gpu.index}", {} if gpu.counters is not None else _reasons(PIPES, unread))
        gpus.append(gpu_figures(samples, gpu, idle=span.gpus_idle or span.idle, own=own))
        missing += samples.missing
    told = _reasons(OF_PSUTIL, sampler.sources.get("psutil")) | _reasons(["energy_j"], sampler.sources.get("rapl"))
    of_host = device(HOST, told)
    hosts = [host_figures(of_host, sampler, stop, idle=span.idle)]
    seen = {HOST, *(f"gpu{gpu.index}" for gpu in sampler.gpus)}
    unseen = [
        Missing(node=span.node, device=trouble.device, fields=trouble.fields, reason=trouble.reason)
        for trouble in troubles
        if trouble.device not in seen
    ]
    return _Node(sampler.hz, gpus, hosts, [*missing, *of_host.missing, *unseen], complete=not unseen)


def _reasons(columns: Collection[str], why: str | None) -> dict[str, str]:
    """One reason for several columns; none without one."""
    return dict.fromkeys(columns, why) if why else {}


def pool(repeats: Sequence[Telemetry | None]) -> Telemetry | None:
    """Join the telemetry of repeats; None where nobody looked on at any of them.

    A mean or an extreme is that of the repeats which have it; a sum is none unless all have it, and so is power, which is made of two. Facts
    (name, limits) are those of the first repeat that a device was in. `spans` stay away: each repeat's are in its own record.
    """
    runs = [run for run in repeats if run]
    if not runs:
        return None
    energies = [run.energy_j for run in runs if run.energy_j is not None]
    energy = math.fsum(energies) if len(energies) == len(repeats) else None
    seconds = [run.seconds for run in runs if run.seconds is not None]
    samples = math.fsum(run.samples for run in runs)
    gpus: dict[Hashable, list[GpuTelemetry]] = {}
    hosts: dict[Hashable, list[HostTelemetry]] = {}
    for run in runs:
        for gpu in run.gpus:
            gpus.setdefault((gpu.node, gpu.index), []).append(gpu)
        for host in run.hosts:
            hosts.setdefault(host.node, []).append(host)
    return Telemetry(
        hz=min((run.hz for run in runs if run.hz is not None), default=None),
        device=runs[0].device,
        spans=(),
        samples=samples,
        seconds=math.fsum(seconds) if len(seconds) == len(runs) else None,
        gpus=tuple(_joined(repeats) for repeats in gpus.values()),
        hosts=tuple(_joined(repeats) for repeats in hosts.values()),
        energy_j=energy,
        samples_per_joule=samples / energy if energy else None,
        missing=tuple(dict.fromkeys(entry for run in runs for entry in run.missing)),
    )


def _joined(repeats: Sequence[Part]) -> Part:
    """One device over its repeats."""
    first = repeats[0]
    return first.model_copy(update={name: _figure(name, repeats) for name in type(first).model_fields})


def _figure(name: str, repeats: Sequence[GpuTelemetry | HostTelemetry]) -> Any:
    """One figure over the repeats of a device, by what kind of figure it is."""
    known = [(value, one.measured_s) for one in repeats if (value := getattr(one, name)) is not None]
    if not known or (name in COMPLETE and len(known) < len(repeats)):
        return None
    values, seconds = zip(*known, strict=True)
    if name in ADDED:
        return math.fsum(values) if isinstance(values[0], float) else sum(values)
    return EXTREME[name](values) if name in EXTREME else _joint(name, values, seconds)


def _joint(name: str, values: Sequence[Any], seconds: Sequence[float]) -> Any:
    """Of the repeats that have a figure: ranges over all, means by their seconds, lists joined; of a fact the first."""
    match values[0]:
        case Range():
            low, high = min(one.min for one in values), max(one.max for one in values)
            return Range(min=low, avg=over_time([one.avg for one in values], seconds), max=high)
        case dict():  # shares of the span by reason
            names = dict.fromkeys(reason for one in values for reason in one)
            return {reason: over_time([one.get(reason, 0.0) for one in values], seconds) for reason in names}
        case tuple() if name == "core_percent":
            return tuple(over_time(cores, seconds) for cores in zip(*values, strict=False))
        case tuple():  # foreign processes
            return tuple(dict.fromkeys(process for one in values for process in one))
        case fact:
            return fact
