"""Telemetry of a cell's runs → utilisation, power and memory of its devices. Pure.

A GPU's figures are the driver's (`gpu_utilisation` is the share of time in which any kernel ran). Where CPUs stand for GPUs there are none:
what a CPU was busy for is another quantity. Power is that of the processors' packages there, if the machine tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from runner.core.telemetry import GpuTelemetry, HostTelemetry, Range, Telemetry
from runner.experiments.studies.model import Run
from runner.experiments.studies.observe.gather import NO_GPU, Gathered

_UTILISATION: Final = ("gpu_utilisation", "gpu_utilisation_min", "gpu_utilisation_avg", "gpu_utilisation_max")
_UNWATCHED: Final = "these runs were not watched (TELEMETRY_HZ=0)"
_POWER: Final = ("power_min", "power_avg", "power_max")

Device = GpuTelemetry | HostTelemetry


def devices(cell: Gathered) -> None:
    """Everything that telemetry has, over all repeats; of each GPU by itself where there are several."""
    told = [(one, telemetry) for one in cell.measured if (telemetry := one.record.telemetry)]
    if cell.on_cpu:
        cell.lack(NO_GPU, *_UTILISATION, "gpu_memory")
    elif told:
        _gpus(cell, told)
    else:
        cell.lack(_UNWATCHED, *_UTILISATION, "gpu_memory")
    if not told:
        cell.lack(_UNWATCHED, *_POWER, "power_idle")
        return
    runs = [one for one, _ in told]
    _power(cell, told)
    idle = [_idle(telemetry) for _, telemetry in told]
    known = [value for value in idle if value is not None]
    if known:
        cell.add_mean("power_idle", "W", known, runs)
        cell.add_mean("power_avg", "W", known, runs, state="idle")
    else:
        cell.lack(_why(told[0][1], "power_w"), "power_idle")


def _gpus(cell: Gathered, told: Sequence[tuple[Run, Telemetry]]) -> None:
    runs = [one for one, _ in told]
    spans = [[gpu.utilisation for gpu in telemetry.gpus] for _, telemetry in told]
    if not _ranges(cell, "gpu_utilisation", "%", spans, runs):
        cell.lack(_why(told[0][1], "utilisation"), *_UTILISATION)
    else:
        means = [fmean(one.avg for one in own if one) for own in spans]
        cell.add_mean("gpu_utilisation", "%", means, runs)
    peaks = [[gpu.memory_mib.max for gpu in telemetry.gpus if gpu.memory_mib] for _, telemetry in told]
    if all(peaks):
        cell.add_mean("gpu_memory", "MiB", [max(own) for own in peaks], runs, method="largest of the devices")
        _each(cell, told, lambda gpu: gpu.memory_mib.max if gpu.memory_mib else None, "gpu_memory", "MiB")
    else:
        cell.lack(_why(told[0][1], "memory_mib"), "gpu_memory")
    _each(cell, told, lambda gpu: gpu.utilisation.avg if gpu.utilisation else None, "gpu_utilisation_avg", "%")
    _each(cell, told, lambda gpu: gpu.utilisation.min if gpu.utilisation else None, "gpu_utilisation_min", "%")
    _each(cell, told, lambda gpu: gpu.utilisation.max if gpu.utilisation else None, "gpu_utilisation_max", "%")


def _power(cell: Gathered, told: Sequence[tuple[Run, Telemetry]]) -> None:
    runs = [one for one, _ in told]
    method = (
        "energy of the processors' packages (RAPL) ÷ time; extremes between samples"
        if told[0][1].device == "cpu"
        else "energy ÷ time; extremes of samples, as the driver tells them"
    )
    spans = [[one.power_w for one in telemetry.trained] for _, telemetry in told]
    if not _ranges(cell, "power", "W", spans, runs, method=method):
        cell.lack(_why(told[0][1], "power_w"), *_POWER)


def _ranges(
    cell: Gathered,
    stem: str,
    unit: str,
    spans: Sequence[Sequence[Range | None]],
    runs: Sequence[Run],
    *,
    method: str | None = None,
) -> bool:
    """Smallest, mean and largest of one device; over several the mean of means and the extremes of all. Whether every device has them."""
    known = [[one for one in own if one] for own in spans]
    if not all(own and len(own) == len(all_) for own, all_ in zip(known, spans, strict=True)):
        return False
    cell.add_mean(f"{stem}_min", unit, [min(one.min for one in own) for own in known], runs, method=method)
    cell.add_mean(f"{stem}_avg", unit, [fmean(one.avg for one in own) for own in known], runs, method=method)
    cell.add_mean(f"{stem}_max", unit, [max(one.max for one in own) for own in known], runs, method=method)
    return True


def _each(
    cell: Gathered,
    told: Sequence[tuple[Run, Telemetry]],
    figure: Callable[[GpuTelemetry], float | None],
    metric: str,
    unit: str,
) -> None:
    """A figure of each GPU, numbered from 1 in the order of nodes and devices, as `nvidia-smi` lists them."""
    count = min(len(telemetry.gpus) for _, telemetry in told)
    if count < 2:  # noqa: PLR2004 - one GPU is all of them
        return
    for place in range(count):
        values = [figure(telemetry.gpus[place]) for _, telemetry in told]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            cell.add_mean(metric, unit, known, [one for one, _ in told], gpu_index=place + 1)


def _idle(telemetry: Telemetry) -> float | None:
    """Mean idle power of a device; None unless each is known."""
    known = [one.idle_power_w for one in telemetry.trained if one.idle_power_w is not None]
    return fmean(known) if known and len(known) == len(telemetry.trained) else None


def _why(telemetry: Telemetry, field: str) -> str:
    """Why the devices that trained have no such figure."""
    for one in telemetry.trained:
        name = f"gpu{one.index}" if isinstance(one, GpuTelemetry) else "host"
        if reason := telemetry.why_missing(one.node, name, field):
            return reason
    return f"telemetry has no {field} of the devices"
