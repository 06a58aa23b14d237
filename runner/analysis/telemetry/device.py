"""The samples of one device of one node → its figures over a span; each that can't be had is kept with its reason.

By what a sample says, there are three kinds of quantity:

- a *gauge* says what was at that moment (power, temperature): straight lines between samples;
- a *mean* says what was since the sample before (utilisation of pipes): one level between samples;
- a *counter* says how much there has been (joules, bytes): its rise, on straight lines where the span's edges lie between samples, or
  as a gauge of its rate has it.

Nothing is said about time without samples: a mean is that of the rest, a sum is none, and `why` names the hole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from runner.core.events import MonitoredGpu, MonitorStart, MonitorStop
from runner.core.node import SLOWDOWNS
from runner.core.record import SESSION
from runner.core.telemetry import (
    EnergyMethod,
    ForeignProcess,
    GpuTelemetry,
    HostTelemetry,
    Missing,
    NodeSpans,
    Range,
    Samples,
    Span,
    over_time,
)

Floats = npt.NDArray[np.float64]
Value = TypeVar("Value")

# Samples further apart than so many periods leave a hole. A busy host delays a sampler by a few; a lost device leaves out all.
GAP_PERIODS: Final = 5
SECOND: Final = 1.0
# What rounding leaves of a span that is covered wholly, as a share of it.
ROUNDING: Final = 1e-6
NO_SAMPLE: Final = "no sample in the measured span"
RESET: Final = "the counter fell in the measured span: it began anew"


def rows_of(samples: Samples, node: str, device: str) -> npt.NDArray[np.bool_]:
    """Which rows are a device's."""
    own: npt.NDArray[np.bool_] = (samples["node"] == node) & (samples["device"] == device)
    return own


@dataclass(frozen=True)
class Found(Generic[Value]):
    """A figure, and why it is none or only of part of the span; both None never come together."""

    value: Value | None
    why: str | None = None


@dataclass(frozen=True)
class Series:
    """Samples of one quantity of one device, in the order in which they came."""

    t: Floats  # (samples,) seconds of the node's monotonic clock
    values: Floats  # (samples,) NaN where the device did not say
    period_s: float  # between samples, as they were asked for

    def gauge(self, span: Span) -> Found[Range]:
        """Smallest, time-weighted mean and largest value of a gauge; of the time that has samples, `why` tells of the rest."""
        lines = self._lines(span)
        if lines.value is None:
            return Found(None, lines.why)
        ends, covered, area = lines.value
        return Found(_range(ends, area / covered), lines.why)

    def integral(self, span: Span) -> Found[float]:
        """A gauge × time over the whole span; none where there is a hole in it."""
        lines = self._lines(span)
        return Found(lines.value[2]) if lines.value and not lines.why else Found(None, lines.why)

    def mean(self, span: Span) -> Found[Range]:
        """The same as `gauge` for samples that are means since the one before; those count whose middle lies in the span."""
        if wrong := self._clock(span):
            return Found(None, wrong)
        t, values = self._known()
        starts, ends, levels = t[:-1], t[1:], values[1:]
        overlap = np.clip(np.minimum(ends, span.end) - np.maximum(starts, span.start), 0, None)
        known = (overlap > 0) & (ends - starts <= GAP_PERIODS * self.period_s)
        middle = (starts + ends) / 2
        counts = known & (middle >= span.start) & (middle <= span.end)
        if not counts.any():
            return Found(None, NO_SAMPLE)
        avg = float((overlap * levels)[counts].sum() / overlap[counts].sum())
        return Found(_range(levels[counts], avg), _hole(float(overlap[known].sum()), span))

    def risen(self, span: Span, *, rate: Series | None = None) -> Found[float]:
        """How much a counter rose; none where it fell, or where an edge of the span lies in a hole.

        Where an edge lies between two readings, the rise between them is shared out as `rate` has it, a gauge of it sampled more often.
        """
        if wrong := self._clock(span):
            return Found(None, wrong)
        t, values = self._known()
        readings = []
        for edge, name in ((span.start, "start"), (span.end, "end")):
            after = int(np.searchsorted(t, edge))
            if after < len(t) and t[after] == edge:
                readings.append(float(values[after]))
                continue
            if after in (0, len(t)) or t[after] - t[after - 1] > GAP_PERIODS * self.period_s:
                return Found(None, f"no reading of the counter at the {name} of the measured span")
            between = Span(start=t[after - 1], end=t[after])
            readings.append(
                float(values[after - 1] + _share(between, edge, rate) * (values[after] - values[after - 1]))
            )
        touched = values[np.searchsorted(t, span.start, side="right") - 1 : np.searchsorted(t, span.end) + 1]
        if (np.diff(touched) < 0).any():
            return Found(None, RESET)
        start, end = readings
        return Found(end - start)

    def rates(self) -> Series:
        """Of a counter, its rise a second as a series of means."""
        t, values = self._known()
        steps = np.diff(t)
        rise = np.divide(np.diff(values), steps, out=np.full(len(steps), np.nan), where=steps > 0)
        # A counter that began anew says nothing of that step.
        rise[rise < 0] = np.nan
        return Series(t, np.concatenate([[np.nan], rise]), self.period_s) if len(t) else self

    def growth(self, span: Span) -> Found[float]:
        """How much a counter of rare events rose from the last reading before the span to the first after it, or the nearest there are."""
        if wrong := self._clock(span):
            return Found(None, wrong)
        t, values = self._known()
        first = max(0, int(np.searchsorted(t, span.start, side="right")) - 1)
        last = min(int(np.searchsorted(t, span.end)), len(t) - 1)
        if last <= first:
            return Found(None, NO_SAMPLE)
        if (np.diff(values[first : last + 1]) < 0).any():
            return Found(None, RESET)
        return Found(float(values[last] - values[first]))

    def held(self, span: Span) -> Floats:
        """(samples,) seconds of the span in which each sample was the newest; 0 where the device did not say, none in holes."""
        known = np.flatnonzero(np.isfinite(self.values))
        seconds = np.zeros(len(self.t))
        starts, ends = self.t[known[:-1]], self.t[known[1:]]
        overlap = np.clip(np.minimum(ends, span.end) - np.maximum(starts, span.start), 0, None)
        seconds[known[:-1]] = np.where(ends - starts <= GAP_PERIODS * self.period_s, overlap, 0)
        return seconds

    def lowest(self, span: Span, amount: Callable[[Span], Found[float]]) -> Found[float]:
        """The lowest `integral` or rise (`risen`) in a second of the span that begins or ends at a sample."""
        if span.seconds < SECOND:
            return Found(
                None, f"{span.seconds:.3g} s before the job are too short to measure idle power; 1 s is needed"
            )
        t, _ = self._known()
        begins = np.concatenate([t, t - SECOND, [span.start, span.end - SECOND]])
        begins = np.unique(begins[(begins >= span.start) & (begins + SECOND <= span.end)])
        seconds = (amount(Span(start=at, end=at + SECOND)).value for at in begins.tolist())
        found = [one / SECOND for one in seconds if one is not None]
        return Found(min(found)) if found else Found(None, "no second before the job has samples throughout")

    def _known(self) -> tuple[Floats, Floats]:
        known = np.isfinite(self.values)
        return self.t[known], self.values[known]

    def _clock(self, span: Span) -> str | None:
        """Whether time went backwards between the samples that the span needs."""
        inside = np.flatnonzero((self.t >= span.start) & (self.t <= span.end))
        if not len(inside):
            return None
        steps = np.diff(self.t[max(0, inside[0] - 1) : inside[-1] + 2])
        if len(steps) and steps.min() < 0:
            return f"the sampler's clock went back by {-steps.min():.3g} s in the measured span"
        return None

    def _lines(self, span: Span) -> Found[tuple[Floats, float, float]]:
        """The straight lines between samples that lie in a span, cut at its edges.

        The quantity at their ends, (2 × lines,); how long they are together; quantity × seconds under them, by the trapezoidal rule.
        """
        if wrong := self._clock(span):
            return Found(None, wrong)
        t, values = self._known()
        steps = np.diff(t)
        low, high = np.maximum(t[:-1], span.start), np.minimum(t[1:], span.end)
        kept = (high > low) & (steps <= GAP_PERIODS * self.period_s)
        slope = np.divide(np.diff(values), steps, out=np.zeros_like(steps), where=steps > 0)[kept]
        begin, first = t[:-1][kept], values[:-1][kept]
        low, high = low[kept], high[kept]
        seconds, at_low, at_high = high - low, first + slope * (low - begin), first + slope * (high - begin)
        covered = float(seconds.sum())
        if covered == 0:
            return Found(None, NO_SAMPLE)
        area = float((seconds * (at_low + at_high) / 2).sum())
        return Found((np.concatenate([at_low, at_high]), covered, area), _hole(covered, span))


def _share(span: Span, until: float, rate: Series | None) -> float:
    """The part of what a span brought that it had brought by a moment: as a gauge of the rate has it, evenly where there is none."""
    if rate and (whole := rate.integral(span).value):
        return (rate.integral(Span(start=span.start, end=until)).value or 0.0) / whole
    return (until - span.start) / span.seconds


def _range(values: Floats, avg: float) -> Range:
    """The range of values; a mean that rounding carried beyond them is put back."""
    low, high = float(values.min()), float(values.max())
    return Range(min=low, avg=min(max(avg, low), high), max=high)


def _hole(covered: float, span: Span) -> str | None:
    hole = span.seconds - covered
    if hole <= ROUNDING * span.seconds:
        return None
    return f"no samples for {hole:.3g} s of the measured {span.seconds:.3g} s"


@dataclass(frozen=True)
class Stretches:
    """When a node's figures were measured: from the first counted window to the end of the last, and what is left of that without the pauses."""

    whole: Span
    spans: tuple[Span, ...]

    @property
    def seconds(self) -> float:
        """How long they are together."""
        return math.fsum(span.seconds for span in self.spans)

    def overall(self, ask: Callable[[Span], Found[Range]]) -> Found[Range]:
        """The range over all stretches, of `Series.gauge` or `Series.mean`: the mean by their seconds, of those that have samples."""
        found = [ask(span) for span in self.spans]
        if len(found) == 1:
            return found[0]
        known = [(one.value, span.seconds) for one, span in zip(found, self.spans, strict=True) if one.value]
        if not known:
            return found[0]
        ranges, seconds = zip(*known, strict=True)
        lost = self.seconds - math.fsum(seconds)
        hole = f"no samples for {lost:.3g} s of the measured {self.seconds:.3g} s"
        return Found(
            Range(
                min=min(one.min for one in ranges),
                avg=over_time([one.avg for one in ranges], seconds),
                max=max(one.max for one in ranges),
            ),
            hole if len(known) < len(found) else _first(found),
        )

    def total(self, ask: Callable[[Span], Found[float]]) -> Found[float]:
        """The sum over all stretches, of `Series.integral` or `Series.risen`; none unless each has one."""
        found = [ask(span) for span in self.spans]
        values = [one.value for one in found if one.value is not None]
        return Found(math.fsum(values)) if len(values) == len(found) else Found(None, _first(found))

    def held(self, series: Series) -> Floats:
        """`Series.held` over all stretches."""
        seconds: Floats = np.sum([series.held(span) for span in self.spans], axis=0)
        return seconds


def stretches(node: NodeSpans) -> Stretches:
    """Cut the pauses out of a node's measured span."""
    edges = [node.measured.start]
    for pause in node.pauses:
        edges += [pause.start, pause.end]
    edges.append(node.measured.end)
    spans = tuple(Span(start=start, end=end) for start, end in zip(edges[::2], edges[1::2], strict=True))
    return Stretches(whole=node.measured, spans=spans)


def _first(found: list[Found[Range]] | list[Found[float]]) -> str | None:
    return next((one.why for one in found if one.why), None)


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
        frame: Samples,
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
        self._frame, self._own = frame, rows_of(frame, node, device)
        self.t: Floats = np.asarray(frame["t"][self._own], dtype=np.float64)
        self._period_s = 1 / hz
        self._told = told
        self._fell_silent = fell_silent
        self._lacking: dict[str, list[str]] = {}

    def lists(self, column: str) -> list[list[Any] | npt.NDArray[Any] | None]:
        """Lists of a column that holds lists, one a row; None where there is none. Parquet gives them back as arrays."""
        return [cell if isinstance(cell, list | np.ndarray) else None for cell in self._frame[column][self._own]]

    def series(self, column: str) -> Series:
        """A column of numbers as a series."""
        values = np.asarray(self._frame[column][self._own], dtype=np.float64)
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
