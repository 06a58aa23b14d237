"""The samples of one device of one node → its figures; each that can't be had is kept with its reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from runner.analysis.telemetry.series import NO_SAMPLE, Floats, Found, Series, Stretches
from runner.core.events import MonitoredGpu, MonitorStart, MonitorStop
from runner.core.node import SLOWDOWNS
from runner.core.record import SESSION
from runner.core.telemetry import EnergyMethod, ForeignProcess, GpuTelemetry, HostTelemetry, Missing, Range, Span

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

Value = TypeVar("Value")

# Of GPM or DCGM, all means since the sample before.
PIPES: Final = (
    *("fp32_percent", "sm_active_percent", "sm_occupancy_percent", "tensor_percent", "fp16_percent", "fp64_percent"),
    "dram_percent",
)
_WIRES: Final = ("pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx")
_OF_HOST: Final = ("disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")
NEVER: Final = "the sampler told nothing of it"
# Seconds between samples of what the sampler asks more seldom than all else (`workloads/monitor_nvml.py`, `monitor_host.py`).
SELDOM_S: Final = (
    dict.fromkeys(("clock_mhz", "ecc_corrected", "ecc_uncorrected"), 1.0)
    | dict.fromkeys(("energy_j", *_OF_HOST), 0.5)
    | dict.fromkeys((*PIPES, *(f"{wire}_rate" for wire in _WIRES)), 0.1)
)
# Seconds that energy and power take: sensors tell what was up to a second before, and counters are read twice a second.
SHORTEST_S: Final = 2.0
# Processes are asked for once a second: the last answer before the span still holds in it.
PROCESSES_EVERY_S: Final = 1.0


class Device:
    """One device's rows of table `telemetry`, asked column by column; `missing` is what could not be answered.

    `measured` is when figures were measured, `t` (rows,) seconds of the node's clock.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        *,
        node: str,
        device: str,
        hz: float,
        measured: Stretches,
        told: Mapping[str, str],
        fell_silent: str | None = None,
    ) -> None:
        """Take the rows of one device (`gpu0`, ..., or `host`) out of those of all.

        `told` is, by column, why the sampler says that it has none, or no more; `fell_silent` why it did not go on, which counts where there
        is no sample after the span.
        """
        self.node, self.device, self.measured = node, device, measured
        self._rows = frame[(frame["node"] == node) & (frame["device"] == device)]
        self.t: Floats = self._rows["t"].to_numpy(dtype=np.float64)
        self._period_s = 1 / hz
        self._told = told
        self._fell_silent = fell_silent
        self._lacking: dict[str, list[str]] = {}

    def lists(self, column: str) -> list[list[Any] | npt.NDArray[Any] | None]:
        """Lists of a column that holds lists, one a row; None where there is none. Parquet gives them back as arrays."""
        return [cell if isinstance(cell, list | np.ndarray) else None for cell in self._rows[column]]

    def series(self, column: str) -> Series:
        """A column of numbers as a series."""
        values = self._rows[column].to_numpy(dtype=np.float64, na_value=np.nan)
        return Series(self.t, values, max(self._period_s, SELDOM_S.get(column, 0)))

    def series_of(self, values: Floats) -> Series:
        """Numbers, one a row, as a series."""
        return Series(self.t, values, self._period_s)

    def ask(self, column: str, question: Callable[[Series], Found[Value]]) -> Value | None:
        """Put a question to a column's series, and keep why where the answer is none or not of the whole span."""
        return self.answer(column, self.series(column), question)

    def answer(self, column: str, series: Series, question: Callable[[Series], Found[Value]]) -> Value | None:
        """The same for a series that was made from the column."""
        found = question(series)
        if found.why is not None:
            self.lack(column, found.why if np.isfinite(series.values).any() else NEVER)
        return found.value

    def lack(self, column: str, why: str) -> None:
        """Keep that something of a column can't be had; what the sampler said of it goes before what was found."""
        if self._fell_silent and not (self.t > self.measured.whole.end).any():
            why = self._fell_silent
        columns = self._lacking.setdefault(self._told.get(column, why), [])
        if column not in columns:
            columns.append(column)

    def gauge(self, column: str) -> Range | None:
        """Range of a gauge over the measured span."""
        return self.ask(column, lambda series: self.measured.overall(series.gauge))

    def mean(self, column: str) -> Range | None:
        """Range of means since the row before over the measured span."""
        return self.ask(column, lambda series: self.measured.overall(series.mean))

    def long_enough(self, *columns: str) -> bool:
        """Whether the measured span is long enough for energy and power; keeps of these columns that it is not."""
        seconds = self.measured.seconds
        if seconds < SHORTEST_S:
            for column in columns:
                self.lack(column, f"{seconds:.3g} s were measured; energy and power take {SHORTEST_S:g} s")
        return seconds >= SHORTEST_S

    def power(self, energy_j: float | None, samples: Range | None) -> Range | None:
        """Energy ÷ time over the measured span, between the smallest and the largest of samples in watts; None without both."""
        if energy_j is None or samples is None:
            return None
        return samples.model_copy(update={"avg": energy_j / self.measured.seconds})

    def risen(self, column: str) -> int | None:
        """Whole units by which a counter rose in the measured span."""
        return _whole(self.ask(column, lambda series: self.measured.total(series.risen)))

    def grown(self, column: str) -> int | None:
        """The same of a counter of rare events, between the readings around the span."""
        return _whole(self.ask(column, lambda series: series.growth(self.measured.whole)))

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What could not be answered so far, one entry a reason."""
        return tuple(
            Missing(node=self.node, device=self.device, fields=tuple(columns), reason=reason)
            for reason, columns in self._lacking.items()
        )


def _whole(value: float | None) -> int | None:
    """A count that was read between two samples, rounded."""
    return None if value is None else round(value)


def gpu_figures(device: Device, gpu: MonitoredGpu, *, idle: Span | None, own: Collection[str]) -> GpuTelemetry:
    """Every figure of one GPU; what can't be had is left in `device.missing`.

    `idle` is when nothing ran, `own` what the kernel tells the job's containers by (`Outcome.containers`).
    """
    measured = device.measured
    # The counter is read twice a second, and a run's power may be several times that of the moment before it.
    power = device.series("power_w") if gpu.power_reading == "instant" else None
    energy = integrated = None
    method: EnergyMethod = "energy counter"
    if device.long_enough("energy_j", "power_w"):
        energy = device.ask("energy_j", lambda series: measured.total(partial(series.risen, rate=power)))
        integrated = device.ask("power_w", lambda series: measured.total(series.integral))
    if energy is None:
        energy, method = integrated, "integrated power"
    quarter = measured.whole.seconds / 4
    temperature = device.series("temperature_c")
    first = temperature.gauge(Span(start=measured.whole.start, end=measured.whole.start + quarter)).value
    last = temperature.gauge(Span(start=measured.whole.end - quarter, end=measured.whole.end)).value
    pipes = {name: device.mean(name) for name in PIPES}
    return GpuTelemetry(
        node=device.node,
        **gpu.model_dump(),
        measured_s=measured.seconds,
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
        energy_method=method if energy is not None else None,
        integrated_power_j=integrated,
        idle_power_w=device.ask("power_w", lambda series: series.lowest(idle, series.integral)) if idle else None,
        **{f"{wire}_bytes": _traffic(device, wire) for wire in _WIRES},
        slowdown_percent=_slowdowns(device),
        ecc_corrected=device.grown("ecc_corrected"),
        ecc_uncorrected=device.grown("ecc_uncorrected"),
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


def host_figures(
    device: Device, sampler: MonitorStart, stop: MonitorStop | None, *, idle: Span | None
) -> HostTelemetry:
    """Every figure of a host; what can't be had is left in `device.missing`.

    `stop` is None when the sampler did not get to its end, `idle` where there was no time in which nothing ran.
    """
    measured = device.measured
    cpu, cores = _cores(device)
    rates = energy = used = None
    if device.long_enough("energy_j"):
        per_second = device.series("energy_j").rates()
        rates = device.answer("energy_j", per_second, lambda series: measured.overall(series.mean))
        energy = device.ask("energy_j", lambda series: measured.total(series.risen))
    if stop is None:
        device.lack("cpu_s", "the sampler did not get to tell what it used")
    elif sampler.cores and stop.seconds > 0:
        used = 100 * stop.cpu_s / stop.seconds / sampler.cores
    return HostTelemetry(
        node=device.node,
        measured_s=measured.seconds,
        cores=sampler.cores,
        cpu_percent=cpu,
        core_percent=cores,
        memory_mib=device.gauge("memory_mib"),
        **{name: device.risen(name) for name in _OF_HOST},
        clock_mhz=device.gauge("clock_mhz"),
        power_w=device.power(energy, rates),
        energy_j=energy,
        idle_power_w=device.ask("energy_j", lambda series: series.lowest(idle, series.risen)) if idle else None,
        sampler_percent=used,
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
