"""Events and samples of all nodes → `Telemetry`; the telemetry of several repeats pooled into one.

Finds when each node was measured, on the node's clock, the figures of its devices, their totals, and why figures are missing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, TypeVar

from runner.analysis.grading.metrics import common_windows
from runner.analysis.telemetry.device import PIPES, SECOND, Device, gpu_figures, host_figures, stretches
from runner.core.events import (
    PAUSE_S,
    Event,
    MonitorStart,
    MonitorStop,
    Net,
    Phase,
    ProfileStart,
    ProfileStop,
    Trouble,
    Window,
)
from runner.core.telemetry import (
    GpuTelemetry,
    HostTelemetry,
    Missing,
    NodeSpans,
    Range,
    Samples,
    Span,
    Telemetry,
    over_time,
)
from runner.core.trial import Trial

HOST: Final = "host"
PSUTIL_COLUMNS: Final = (
    *("core_percent", "memory_mib", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes"),
    "clock_mhz",
)
Part = TypeVar("Part", GpuTelemetry, HostTelemetry)

SUMMED: Final = frozenset(
    {"measured_s", "energy_j", "integrated_power_j", "ecc_corrected", "ecc_uncorrected"}
    | {"pcie_rx_bytes", "pcie_tx_bytes", "nvlink_rx_bytes", "nvlink_tx_bytes"}
    | {"disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes"}
)
NEEDS_ALL: Final = SUMMED | {"power_w"}
EXTREMES: Final = {"idle_power_w": min, "temperature_rise_c": max, "sampler_percent": max}


def run_telemetry(
    frame: Samples | None,
    events: Sequence[Event],
    *,
    spans: Sequence[NodeSpans],
    monitors: Mapping[str, str],
    samples: float,
    seconds: float,
    device: Literal["cpu", "gpu"],
    own: Collection[str] = (),
) -> Telemetry | None:
    """Compute every figure of a run over its measured spans; None if nothing was measured or telemetry was off.

    Args:
        frame: table `telemetry`: all columns of the contract plus `node`, rows in order of arrival; None without a table.
        events: all events of the run.
        spans: when each node was measured (`node_spans`).
        monitors: node of each sampler, by the sampler's container.
        samples: processed by all ranks in the counted windows, in the unit of the throughput.
        seconds: duration of those windows.
        device: the kind of device that trained: its energy is the run's.
        own: identifiers of the job's containers as the kernel shows them (`Outcome.containers`); any other process on a GPU is foreign.
    """
    if not spans:
        return None
    nodes = [
        _node_telemetry(frame, [event for event in events if monitors.get(event.container) == span.node], span, own)
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
    """The figures of one node's devices; `complete` if every device that its sampler was to watch has figures."""

    hz: float | None
    gpus: Sequence[GpuTelemetry]
    hosts: Sequence[HostTelemetry]
    missing: Sequence[Missing]
    complete: bool


def _node_telemetry(frame: Samples | None, events: Sequence[Event], span: NodeSpans, own: Collection[str]) -> _Node:
    sampler = next((event for event in events if isinstance(event, MonitorStart)), None)
    stop = next((event for event in events if isinstance(event, MonitorStop)), None)
    troubles = [event for event in events if isinstance(event, Trouble)]
    # A Trouble without fields is the runner's own: it lost contact with the sampler.
    sampler_lost = next((event.reason for event in troubles if not event.fields), None)
    if sampler is None or frame is None:
        why = sampler_lost or "its sampler told nothing"
        none = [Missing(node=span.node, device=name, fields=(), reason=why) for name in ("gpu", HOST)]
        return _Node(sampler.hz if sampler else None, [], [], none, complete=False)

    def device(name: str, reasons: Mapping[str, str]) -> Device:
        own_troubles = [event for event in troubles if event.device == name and event.t <= span.measured.end]
        return Device(
            frame,
            node=span.node,
            device=name,
            hz=sampler.hz,
            measured=stretches(span),
            reasons={**reasons, **{field: event.reason for event in own_troubles for field in event.fields}},
            sampler_lost=sampler_lost,
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
    host_reasons = _reasons(PSUTIL_COLUMNS, sampler.sources.get("psutil")) | _reasons(
        ["energy_j"], sampler.sources.get("rapl")
    )
    of_host = device(HOST, host_reasons)
    hosts = [host_figures(of_host, sampler, stop, idle=span.idle)]
    sampled = {HOST, *(f"gpu{gpu.index}" for gpu in sampler.gpus)}
    unsampled = [
        Missing(node=span.node, device=trouble.device, fields=trouble.fields, reason=trouble.reason)
        for trouble in troubles
        if trouble.device not in sampled
    ]
    return _Node(sampler.hz, gpus, hosts, [*missing, *of_host.missing, *unsampled], complete=not unsampled)


def _reasons(columns: Collection[str], why: str | None) -> dict[str, str]:
    """Map each column to the same reason; empty if there is none."""
    return dict.fromkeys(columns, why) if why else {}


def pool(repeats: Sequence[Telemetry | None]) -> Telemetry | None:
    """Pool the telemetry of repeats; None if no repeat has any.

    Means and extremes are over the repeats that have them. A device's sums and power are None unless all repeats that report it have them;
    the total energy is None unless all repeats have it. Facts (name, limits) are the first repeat's. `spans` stays in the records.
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
        gpus=tuple(_pooled(repeats) for repeats in gpus.values()),
        hosts=tuple(_pooled(repeats) for repeats in hosts.values()),
        energy_j=energy,
        samples_per_joule=samples / energy if energy else None,
        missing=tuple(dict.fromkeys(entry for run in runs for entry in run.missing)),
    )


def _pooled(repeats: Sequence[Part]) -> Part:
    """Pool one device over its repeats."""
    first = repeats[0]
    return first.model_copy(update={name: _pooled_figure(name, repeats) for name in type(first).model_fields})


def _pooled_figure(name: str, repeats: Sequence[GpuTelemetry | HostTelemetry]) -> Any:
    """Pool one figure of a device over its repeats, by the kind of figure."""
    known = [(value, one.measured_s) for one in repeats if (value := getattr(one, name)) is not None]
    if not known or (name in NEEDS_ALL and len(known) < len(repeats)):
        return None
    values, seconds = zip(*known, strict=True)
    if name in SUMMED:
        return math.fsum(values) if isinstance(values[0], float) else sum(values)
    return EXTREMES[name](values) if name in EXTREMES else _pooled_values(name, values, seconds)


def _pooled_values(name: str, values: Sequence[Any], seconds: Sequence[float]) -> Any:
    """Pool known values: extremes over all, means weighted by seconds, lists merged; of a fact, the first."""
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


def node_spans(
    events: Sequence[Event], *, monitors: Mapping[str, str], first_window: int, started: float
) -> tuple[NodeSpans, ...]:
    """Find when each node was measured and when it was idle before the job, sorted by node; empty without samplers or counted windows.

    Args:
        events: all events of all ranks and samplers.
        monitors: node of each sampler, by the sampler's container. A single sampler watches all ranks: there is one node, or all are emulated.
        first_window: index of the first counted window (`Steadiness.first_window`).
        started: the runner's monotonic clock in seconds when it began to create the first container of the job.
    """
    ranks = common_windows([event for event in events if isinstance(event, Window)])
    if not monitors or not any(windows[first_window:] for windows in ranks.values()):
        return ()
    imported = {event.rank: event.t for event in events if isinstance(event, Phase) and event.name == "import"}
    node_of = {event.rank: event.node for event in events if isinstance(event, Net) and event.node}
    first = next(iter(monitors.values()))
    counted: dict[str, list[Window]] = {}
    imported_at: dict[str, list[float]] = {}
    for rank, windows in ranks.items():
        node = first if len(monitors) == 1 else node_of.get(rank, first)
        counted.setdefault(node, []).extend(windows[first_window:])
        imported_at.setdefault(node, []).append(imported.get(rank, -math.inf))
    samplers = {event.node: event for event in events if isinstance(event, MonitorStart)}
    found = []
    for node, windows in sorted(counted.items()):
        sampler = samplers.get(node)
        # The sampler's first line relates the two clocks. The runner reads it a moment after it was written, so the start of the job comes
        # out too early by that moment, never too late.
        idle = _idle_until(sampler, started - (sampler.received - sampler.t) if sampler else started)
        # No program of the suite uses a GPU before a rank has imported its framework.
        gpus_idle = None if idle and idle.seconds >= SECOND else _idle_until(sampler, min(imported_at[node]))
        found.append(
            NodeSpans(
                node=node,
                measured=Span(start=min(w.start for w in windows), end=max(w.start + w.seconds for w in windows)),
                idle=idle,
                gpus_idle=gpus_idle,
                pauses=tuple(_pauses(windows)),
            )
        )
    return tuple(found)


def _pauses(windows: Sequence[Window]) -> Iterator[Span]:
    """Yield the pauses of more than `PAUSE_S` between windows: from the slowest rank's end to the first rank's next start."""
    starts: dict[int, float] = {}
    ends: dict[int, float] = {}
    for window in windows:
        starts[window.index] = min(window.start, starts.get(window.index, math.inf))
        ends[window.index] = max(window.start + window.seconds, ends.get(window.index, -math.inf))
    for before, after in pairwise(sorted(starts)):
        if starts[after] - ends[before] > PAUSE_S:
            yield Span(start=ends[before], end=starts[after])


def _idle_until(sampler: MonitorStart | None, end: float) -> Span | None:
    """Return the span from the sampler's start to `end` on the node's clock; None if it started later, or is unknown."""
    return Span(start=sampler.t, end=end) if sampler and end > sampler.t else None


def pass_windows(trial: Trial, events: Sequence[Event]) -> tuple[Window, ...]:
    """One window per rank of a pass of kind `metrics` whose counters the sampler reads; empty unless every rank finished.

    Other passes yield none: the profiler's own work and replayed kernels would distort the telemetry.
    """
    counting = trial.profile.counting if trial.profile else None
    starts = {event.rank: event.t for event in events if isinstance(event, ProfileStart)}
    stops = {event.rank: event for event in events if isinstance(event, ProfileStop)}
    if counting is None or counting.source == "ncu" or len(stops) != trial.processes:
        return ()
    return tuple(
        Window(
            **stop.model_dump(include={"rank", "t", "received", "container", "iterations"}),
            event="window",
            index=0,
            start=starts[rank],
            samples=stop.iterations * trial.global_batch // trial.processes,
            seconds=stop.t - starts[rank],
        )
        for rank, stop in sorted(stops.items())
    )
