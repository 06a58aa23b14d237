"""Several repeats of one job as one: ranges over all of them, time-weighted means, energy and samples added up."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, Final, TypeVar

from runner.core.telemetry import GpuTelemetry, HostTelemetry, Range, Telemetry, over_time

Part = TypeVar("Part", GpuTelemetry, HostTelemetry)

ADDED: Final = frozenset(
    {"measured_s", "energy_j", "integrated_power_j", "ecc_corrected", "ecc_uncorrected"}
    | {"pcie_rx_bytes", "pcie_tx_bytes", "nvlink_rx_bytes", "nvlink_tx_bytes"}
    | {"disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes"}
)
COMPLETE: Final = ADDED | {"power_w"}
EXTREME: Final = {"idle_power_w": min, "temperature_rise_c": max, "sampler_percent": max}


def pool(repeats: Sequence[Telemetry | None]) -> Telemetry | None:
    """Join the telemetry of repeats; None where nobody looked on at any of them.

    A mean or an extreme is that of the repeats which have it; a sum is none unless all have it, and so is power, which is
    made of two. Facts (name, limits) are those of the
    first repeat that a device was in. `spans` stay away: each repeat's are in its own record.
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
    values = [value for one in repeats if (value := getattr(one, name)) is not None]
    if not values:
        return None
    if name in COMPLETE and len(values) < len(repeats):
        return None
    if name in ADDED:
        return math.fsum(values) if isinstance(values[0], float) else sum(values)
    if name in EXTREME:
        return EXTREME[name](values)
    return _joint(name, values, [one.measured_s for one in repeats if getattr(one, name) is not None])


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
