"""The figures of one node's host."""

from __future__ import annotations

import numpy as np

from runner.analysis.telemetry.device import Device
from runner.core.events.monitor import MonitorStart, MonitorStop
from runner.core.telemetry import HostTelemetry, Range, Span


def host_figures(
    device: Device, sampler: MonitorStart, stop: MonitorStop | None, *, idle: Span | None
) -> HostTelemetry:
    """Every figure of a host; what can't be had is left in `device.missing`.

    Args:
        device: the host's samples.
        sampler: what its sampler said when it began.
        stop: what it said at its end; None when it did not get that far.
        idle: when nothing ran; None where there was no such time.
    """
    measured = device.measured
    cpu, cores = _cores(device)
    counter = device.series("energy_j")
    rates = energy = None
    if device.long_enough("energy_j"):
        rates = device.answer("energy_j", counter.rates(), lambda series: measured.overall(series.mean))
        energy = device.ask("energy_j", lambda series: measured.total(series.risen))
    if stop is None:
        device.lack("cpu_s", "the sampler did not get to tell what it used")
    return HostTelemetry(
        node=device.node,
        measured_s=measured.seconds,
        cores=sampler.cores,
        cpu_percent=cpu,
        core_percent=cores,
        memory_mib=device.gauge("memory_mib"),
        disk_read_bytes=device.risen("disk_read_bytes"),
        disk_write_bytes=device.risen("disk_write_bytes"),
        net_rx_bytes=device.risen("net_rx_bytes"),
        net_tx_bytes=device.risen("net_tx_bytes"),
        clock_mhz=device.gauge("clock_mhz"),
        power_w=device.power(energy, rates),
        energy_j=energy,
        idle_power_w=device.ask("energy_j", lambda series: series.lowest_rise(idle)) if idle else None,
        sampler_percent=_used(sampler, stop),
    )


def _cores(device: Device) -> tuple[Range | None, tuple[float, ...] | None]:
    """Range of the mean of all CPUs, and the mean over time of each."""
    lists = device.lists("core_percent")
    count = max((len(one) for one in lists if one is not None), default=0)
    # A CPU that goes off line leaves no way to tell whose the other figures are: such rows say nothing.
    table = np.full((len(lists), max(count, 1)), np.nan)
    for row, one in zip(table, lists, strict=True):
        if one is not None and len(one) == count:
            row[:] = one
    together = device.answer(
        "core_percent", device.series_of(table.mean(axis=1)), lambda all_: device.measured.overall(all_.mean)
    )
    each = [device.measured.overall(device.series_of(column).mean).value for column in table.T]
    known = tuple(one.avg for one in each if one is not None)
    return together, known if len(known) == count and known else None


def _used(sampler: MonitorStart, stop: MonitorStop | None) -> float | None:
    """What the sampler used of all CPUs of its node, in percent; None where it did not tell, or not of how many."""
    if stop is None or not sampler.cores or stop.seconds <= 0:
        return None
    return 100 * stop.cpu_s / stop.seconds / sampler.cores
