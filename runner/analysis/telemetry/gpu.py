"""The figures of one GPU."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Final

import numpy as np

from runner.analysis.telemetry.device import PIPES, Device, whole
from runner.analysis.telemetry.series import NO_SAMPLE
from runner.core.events.monitor import MonitoredGpu
from runner.core.node import SLOWDOWNS
from runner.core.record import SESSION
from runner.core.telemetry import EnergyMethod, ForeignProcess, GpuTelemetry, Span

# Processes are asked for once a second: the last answer before the span still holds in it.
PROCESSES_EVERY_S: Final = 1.0


def gpu_figures(device: Device, gpu: MonitoredGpu, *, idle: Span | None, own: Collection[str]) -> GpuTelemetry:
    """Every figure of one GPU; what can't be had is left in `device.missing`.

    Args:
        device: the GPU's samples.
        gpu: what the sampler said of it.
        idle: when nothing ran; None where there was no such time.
        own: what the kernel tells the job's containers by (`Outcome.containers`).
    """
    measured = device.measured
    # The counter is read twice a second, and a run's power may be several times that of the moment before it.
    power = device.series("power_w") if gpu.power_reading == "instant" else None
    counted = integrated = None
    if device.long_enough("energy_j", "power_w"):
        counted = device.ask("energy_j", lambda series: measured.total(partial(series.risen, rate=power)))
        integrated = device.ask("power_w", lambda series: measured.total(series.integral))
    energy = integrated if counted is None else counted
    method: EnergyMethod | None = None
    if counted is not None:
        method = "energy counter"
    elif integrated is not None:
        method = "integrated power"
    whole_span = measured.whole
    quarter = whole_span.seconds / 4
    temperature = device.series("temperature_c")
    first = temperature.gauge(Span(start=whole_span.start, end=whole_span.start + quarter)).value
    last = temperature.gauge(Span(start=whole_span.end - quarter, end=whole_span.end)).value
    pipes = {name: device.mean(name) for name in PIPES}
    return GpuTelemetry(
        node=device.node,
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        measured_s=measured.seconds,
        power_limit_w=gpu.power_limit_w,
        default_power_limit_w=gpu.default_power_limit_w,
        counters=gpu.counters,
        power_reading=gpu.power_reading,
        utilisation=device.gauge("utilisation_percent"),
        fp32_utilisation=pipes.pop("fp32_percent"),
        power_w=device.power(energy, device.gauge("power_w")),
        temperature_c=device.gauge("temperature_c"),
        memory_mib=device.gauge("memory_mib"),
        memory_utilisation_percent=device.gauge("memory_utilisation_percent"),
        **pipes,
        sm_clock_mhz=device.gauge("sm_clock_mhz"),
        memory_clock_mhz=device.gauge("memory_clock_mhz"),
        temperature_rise_c=last.avg - first.avg if first and last else None,
        energy_j=energy,
        energy_method=method,
        integrated_power_j=integrated,
        idle_power_w=device.ask("power_w", lambda series: series.lowest_second(idle)) if idle else None,
        pcie_rx_bytes=_traffic(device, "pcie_rx"),
        pcie_tx_bytes=_traffic(device, "pcie_tx"),
        nvlink_rx_bytes=_traffic(device, "nvlink_rx"),
        nvlink_tx_bytes=_traffic(device, "nvlink_tx"),
        slowdown_percent=_slowdowns(device),
        ecc_corrected=whole(device.ask("ecc_corrected", lambda series: series.growth(whole_span))),
        ecc_uncorrected=whole(device.ask("ecc_uncorrected", lambda series: series.growth(whole_span))),
        foreign=_foreign(device, own),
    )


def _traffic(device: Device, wire: str) -> int | None:
    """Bytes in the span by the wire's counter, or where there is none by its rate."""
    counted = device.measured.total(device.series(f"{wire}_bytes").risen)
    if counted.value is None:
        rate = device.measured.overall(device.series(f"{wire}_rate").mean)
        if rate.value is not None and rate.why is None:
            return round(rate.value.avg * device.measured.seconds)
    return device.risen(f"{wire}_bytes")


def _slowdowns(device: Device) -> dict[str, float] | None:
    """By reason, the share of the span (percent) in which it held the clocks down: a sample's reasons hold until the next one."""
    series = device.series("slowdown_bits")
    # The same checks as of a gauge: time that goes back, and holes.
    if device.answer("slowdown_bits", series, lambda own: device.measured.overall(own.gauge)) is None:
        return None
    held = device.measured.held(series)
    bits = np.nan_to_num(series.values).astype(np.int64)
    shares = {name: 100 * float(held[(bits & bit) != 0].sum() / held.sum()) for bit, name in SLOWDOWNS.items()}
    return {name: share for name, share in shares.items() if share > 0}


def _foreign(device: Device, own: Collection[str]) -> tuple[ForeignProcess, ...] | None:
    """Processes on the GPU within the span that belong to none of the job's containers."""
    measured = device.measured.whole
    inside = (device.t >= measured.start - PROCESSES_EVERY_S) & (device.t <= measured.end)
    lists = [one for one, counts in zip(device.lists("processes"), inside, strict=True) if counts and one is not None]
    if not lists:
        device.lack("processes", NO_SAMPLE)
        return None
    if not own:
        device.lack("processes", "which containers were the job's own is not on file")
        return None
    seen = {process["pid"]: process for one in lists for process in one}
    unknown = [pid for pid, process in seen.items() if not process.get("cgroup") and process.get("session") is None]
    if unknown:
        device.lack("processes", f"whose processes {', '.join(map(str, unknown))} are is not visible to the sampler")
    return tuple(
        ForeignProcess(pid=int(pid), memory_mib=process.get("memory_mib"))
        for pid, process in sorted(seen.items())
        if pid not in unknown and not _is_own(process, own)
    )


def _is_own(process: dict[str, Any], own: Collection[str]) -> bool:
    """Whether one of the job's containers holds a process; without a container engine, one of its sessions.

    Engines name a container's control group by its id: /docker/ID, docker-ID.scope, libpod-ID.scope.
    """
    cgroup = process.get("cgroup") or ""
    return f"{SESSION}{process.get('session')}" in own or any(
        one in cgroup for one in own if not one.startswith(SESSION)
    )
