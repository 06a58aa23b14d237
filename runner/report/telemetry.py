"""Telemetry of devices and hosts during a matrix, as tables: the same cells on a terminal and in Markdown.

A table without any known value is left out; the notes below the tables say why a value is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from runner.analysis.summarize import Row, Summary
from runner.core.telemetry import GpuTelemetry, HostTelemetry, Range, Telemetry
from runner.core.units import ABSENT, figure
from runner.report.table import Table

Subject = TypeVar("Subject", "Telemetry", "GpuTelemetry", "HostTelemetry")
Part = TypeVar("Part", "GpuTelemetry", "HostTelemetry")

MEGA: Final = 1_000_000
# Numbers from here on are printed without decimals.
_WHOLE_FROM: Final = 100
_GA100: Final = re.compile(r"\b(A100X?|A800|A30X?)\b")
"""GPUs of Ampere whose power readings are instantaneous all the same: NVML's nvmlDeviceGetPowerUsage."""
LEGEND: Final = (
    "over the measured windows of all repeats: mean over time (smallest{dash}largest sample); power: energy ÷ time, in the line of all "
    "devices theirs together; idle: the lowest mean of a second before the job; energy of all repeats together; held down: why the driver kept clocks low, and for what share of the time"
).format(dash="\N{EN DASH}")


def tables(summary: Summary) -> tuple[Table, ...]:
    """All devices together by scale, then each GPU, its clocks, its pipes, and each host; columns without a known value are left out."""
    watched = [(row, row.telemetry) for row in summary.rows if row.telemetry]
    gpus = list(_labelled(watched, lambda one: one.gpus, lambda gpu: f"GPU {gpu.index}"))
    found = (
        _table(_totals(summary), [(row.devices, telemetry) for row, telemetry in watched]),
        _table(_GPU, gpus),
        _table(_CLOCKS, gpus),
        _table(_PIPES, gpus),
        _table(_HOST, list(_labelled(watched, lambda one: one.hosts, lambda _: "host"))),
    )
    return tuple(table for table in found if table)


def notes(summary: Summary) -> tuple[str, ...]:
    """Caveats: which power readings lag, and why values are unknown."""
    return (*_lag_note(summary), *_unavailable(summary))


def _lag_note(summary: Summary) -> Iterator[str]:
    """A note that names the GPUs whose NVML power readings are not instantaneous."""
    named = {
        f"GPU {gpu.index}": None
        for row in summary.rows
        for gpu in (row.telemetry.gpus if row.telemetry else ())
        if gpu.power_w and gpu.power_reading != "instant" and not _GA100.search(gpu.name)
    }
    if named:
        yield (
            f"samples of the power of {', '.join(named)} by nvmlDeviceGetPowerUsage: on Ampere and later each is the mean of the second before "
            "it, so that the first are of what was before the span; energy is by a counter that is read twice a second, at each end of the "
            "span off by as much as an eighth of a second of the change in power there"
        )


def _unavailable(summary: Summary) -> tuple[str, ...]:
    """One line per reason and set of missing fields, with the devices that lack them."""
    fields: dict[tuple[str, str], dict[str, None]] = {}
    for row in summary.rows:
        for entry in row.telemetry.missing if row.telemetry else ():
            fields.setdefault((entry.reason, entry.device), {}).update(dict.fromkeys(entry.fields))
    devices: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (reason, device), names in fields.items():
        devices.setdefault((reason, tuple(names)), []).append(_device_name(device))
    return tuple(
        f"{', '.join(names)} of {', '.join(own)} unavailable: {reason}"
        if names
        else f"{', '.join(own)} unavailable: {reason}"
        for (reason, names), own in devices.items()
    )


def _totals(summary: Summary) -> dict[str, Callable[[Telemetry], str]]:
    return {
        "utilisation (%)": lambda telemetry: _number(telemetry.utilisation_percent),
        "power (W)": lambda telemetry: _number(telemetry.power_w),
        "energy (J)": lambda telemetry: figure(telemetry.energy_j),
        f"{summary.rate_unit.removesuffix('/s')}/J": lambda telemetry: figure(telemetry.samples_per_joule),
    }


# Columns of one device.
_GPU: Final[dict[str, Callable[[GpuTelemetry], str]]] = {
    "utilisation (%)": lambda gpu: _range(gpu.utilisation),
    "power (W)": lambda gpu: _range(gpu.power_w),
    "temperature (°C)": lambda gpu: _range(gpu.temperature_c),
    "memory (MiB)": lambda gpu: _range(gpu.memory_mib),
    "idle (W)": lambda gpu: _number(gpu.idle_power_w),
    "energy (J)": lambda gpu: figure(gpu.energy_j),
}
_CLOCKS: Final[dict[str, Callable[[GpuTelemetry], str]]] = {
    "SM clock (MHz)": lambda gpu: _range(gpu.sm_clock_mhz),
    "memory clock (MHz)": lambda gpu: _range(gpu.memory_clock_mhz),
    "limit (W)": lambda gpu: _number(gpu.power_limit_w),
    "held down (%)": lambda gpu: _reasons(gpu.slowdown_percent),
}
_PIPES: Final[dict[str, Callable[[GpuTelemetry], str]]] = {
    "SM active (%)": lambda gpu: _mean(gpu.sm_active_percent),
    "occupancy (%)": lambda gpu: _mean(gpu.sm_occupancy_percent),
    "FP32 (%)": lambda gpu: _mean(gpu.fp32_utilisation),
    "tensor (%)": lambda gpu: _mean(gpu.tensor_percent),
    "FP16 (%)": lambda gpu: _mean(gpu.fp16_percent),
    "FP64 (%)": lambda gpu: _mean(gpu.fp64_percent),
    "DRAM (%)": lambda gpu: _mean(gpu.dram_percent),
    "by": lambda gpu: (gpu.counters or ABSENT).upper(),
}
_HOST: Final[dict[str, Callable[[HostTelemetry], str]]] = {
    "CPUs (%)": lambda host: _range(host.cpu_percent),
    "busiest (%)": lambda host: _number(max(host.core_percent) if host.core_percent else None),
    "memory (MiB)": lambda host: _range(host.memory_mib),
    "received (MB)": lambda host: figure(None if host.net_rx_bytes is None else host.net_rx_bytes / MEGA),
    "sent (MB)": lambda host: figure(None if host.net_tx_bytes is None else host.net_tx_bytes / MEGA),
    "clock (MHz)": lambda host: _mean(host.clock_mhz),
    "power (W)": lambda host: _mean(host.power_w),
    "idle (W)": lambda host: _number(host.idle_power_w),
}


def _table(columns: dict[str, Callable[[Subject], str]], subjects: Sequence[tuple[str, Subject]]) -> Table | None:
    """Lay out the columns in which any subject has a value; None if there is none."""

    def of(cell: Callable[[Subject], str]) -> Callable[[tuple[str, Subject]], str]:
        return lambda one: cell(one[1])

    named = {"devices": lambda one: one[0], **{header: of(cell) for header, cell in columns.items()}}
    found = Table.without_empty_columns(subjects, named, title="Telemetry by devices", legend=LEGEND)
    return found if len(found.columns) > 1 else None


def _labelled(
    watched: Sequence[tuple[Row, Telemetry]], parts: Callable[[Telemetry], Sequence[Part]], name: Callable[[Part], str]
) -> Iterator[tuple[str, Part]]:
    """Each part with its name, prefixed by its scale and its node if there are several of these."""
    for row, telemetry in watched:
        several = len({one.node for one in parts(telemetry)}) > 1
        for part in parts(telemetry):
            words = f"{part.node} {name(part)}" if several else name(part)
            yield (f"{row.devices}: {words}" if len(watched) > 1 else words), part


def _device_name(device: str) -> str:
    """``gpu0`` as ``GPU 0``; ``gpu``, which means all GPUs of a node, as ``GPUs``."""
    return device if not device.startswith("gpu") else f"GPU {device[3:]}" if device != "gpu" else "GPUs"


def _reasons(shares: dict[str, float] | None) -> str:
    """``power cap 94``, or ``nothing``."""
    if shares is None:
        return ABSENT
    return ", ".join(f"{reason} {_number(percent)}" for reason, percent in shares.items()) or "nothing"


def _range(value: Range | None) -> str:
    """``79 (48–92)``: mean and range; the mean alone if all three print alike."""
    if value is None:
        return ABSENT
    low, mean, high = (_number(one) for one in (value.min, value.avg, value.max))
    return mean if low == mean == high else f"{mean} ({low}\N{EN DASH}{high})"


def _mean(value: Range | None) -> str:
    return _number(value.avg if value else None)


def _number(value: float | None) -> str:
    """Three significant digits, or all digits before the decimal point."""
    if value is None:
        return ABSENT
    return f"{value:,.0f}" if round(abs(value), 1) >= _WHOLE_FROM else f"{value:.3g}"
