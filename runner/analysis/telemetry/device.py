"""Samples of one device of one node → its figures over a span; a missing figure keeps its reason.

There are three kinds of quantity:

- a *gauge* is an instantaneous value (power, temperature): linear between samples;
- a *mean* covers the time since the previous sample (pipe utilisation): constant between samples;
- a *counter* is a running total (joules, bytes): its increase, interpolated at the span's edges linearly or by a gauge of its rate.

Time without samples is never filled: a mean is over the rest, a sum is None, and `reason` names the gap.
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

# Samples more periods apart than this leave a gap. A busy host delays a sampler by a few; a lost device stops for good.
GAP_PERIODS: Final = 5
SECOND: Final = 1.0
# Tolerance for rounding when a span counts as fully covered, as a share of it.
ROUNDING: Final = 1e-6
NO_SAMPLE: Final = "no sample in the measured span"
RESET: Final = "the counter fell in the measured span: it began anew"


def rows_of(samples: Samples, node: str, device: str) -> npt.NDArray[np.bool_]:
    """Mask of a device's rows."""
    own: npt.NDArray[np.bool_] = (samples["node"] == node) & (samples["device"] == device)
    return own


@dataclass(frozen=True)
class Found(Generic[Value]):
    """A figure, and why it is None or covers only part of the span; value and reason are never both None."""

    value: Value | None
    reason: str | None = None


@dataclass(frozen=True)
class Series:
    """Samples of one quantity of one device, in order of arrival."""

    t: Floats  # (samples,) seconds of the node's monotonic clock
    values: Floats  # (samples,) NaN if the device gave no value
    period_s: float  # nominal sampling period

    def gauge(self, span: Span) -> Found[Range]:
        """Minimum, time-weighted mean and maximum of a gauge over the sampled part of the span; `reason` names the rest."""
        segments = self._segments(span)
        if segments.value is None:
            return Found(None, segments.reason)
        ends, covered, area = segments.value
        return Found(_range(ends, area / covered), segments.reason)

    def integral(self, span: Span) -> Found[float]:
        """Integral of a gauge over the whole span; None if the span has a gap."""
        segments = self._segments(span)
        return Found(segments.value[2]) if segments.value and not segments.reason else Found(None, segments.reason)

    def mean(self, span: Span) -> Found[Range]:
        """Like `gauge`, for samples that are means since the previous one; a sample counts if its interval's midpoint lies in the span."""
        if wrong := self._clock_error(span):
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
        return Found(_range(levels[counts], avg), _gap(float(overlap[known].sum()), span))

    def increase(self, span: Span, *, rate: Series | None = None) -> Found[float]:
        """Increase of a counter; None if it fell, the clock went back, or an edge of the span lies in a gap.

        The increase between the readings around an edge is split in proportion to `rate`, a more finely sampled gauge of the counter's
        rate.
        """
        if wrong := self._clock_error(span):
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
                float(values[after - 1] + _share_of_increase(between, edge, rate) * (values[after] - values[after - 1]))
            )
        touched = values[np.searchsorted(t, span.start, side="right") - 1 : np.searchsorted(t, span.end) + 1]
        if (np.diff(touched) < 0).any():
            return Found(None, RESET)
        start, end = readings
        return Found(end - start)

    def rates(self) -> Series:
        """Rate of increase of a counter, per second, as a series of means."""
        t, values = self._known()
        steps = np.diff(t)
        rise = np.divide(np.diff(values), steps, out=np.full(len(steps), np.nan), where=steps > 0)
        # Across a reset of the counter, the rate is unknown.
        rise[rise < 0] = np.nan
        return Series(t, np.concatenate([[np.nan], rise]), self.period_s) if len(t) else self

    def rare_events(self, span: Span) -> Found[float]:
        """Increase of a rare-event counter between the readings just outside the span, or the outermost available; None if it fell."""
        if wrong := self._clock_error(span):
            return Found(None, wrong)
        t, values = self._known()
        first = max(0, int(np.searchsorted(t, span.start, side="right")) - 1)
        last = min(int(np.searchsorted(t, span.end)), len(t) - 1)
        if last <= first:
            return Found(None, NO_SAMPLE)
        if (np.diff(values[first : last + 1]) < 0).any():
            return Found(None, RESET)
        return Found(float(values[last] - values[first]))

    def seconds_held(self, span: Span) -> Floats:
        """(samples,) seconds of the span in which each sample was the newest; 0 for a sample without a value and within gaps."""
        known = np.flatnonzero(np.isfinite(self.values))
        seconds = np.zeros(len(self.t))
        starts, ends = self.t[known[:-1]], self.t[known[1:]]
        overlap = np.clip(np.minimum(ends, span.end) - np.maximum(starts, span.start), 0, None)
        seconds[known[:-1]] = np.where(ends - starts <= GAP_PERIODS * self.period_s, overlap, 0)
        return seconds

    def lowest(self, span: Span, amount: Callable[[Span], Found[float]]) -> Found[float]:
        """The lowest `amount` (`integral` or `increase`) in one second of the span that begins or ends at a sample or the span's edge."""
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

    def _clock_error(self, span: Span) -> str | None:
        """Say by how much the clock went back between the samples that the span needs; None if it never did."""
        inside = np.flatnonzero((self.t >= span.start) & (self.t <= span.end))
        if not len(inside):
            return None
        steps = np.diff(self.t[max(0, inside[0] - 1) : inside[-1] + 2])
        if len(steps) and steps.min() < 0:
            return f"the sampler's clock went back by {-steps.min():.3g} s in the measured span"
        return None

    def _segments(self, span: Span) -> Found[tuple[Floats, float, float]]:
        """The line segments between samples within a span, cut at its edges.

        Returns the values at their ends (2 × segments,), their total duration, and the trapezoidal integral of value × seconds.
        """
        if wrong := self._clock_error(span):
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
        return Found((np.concatenate([at_low, at_high]), covered, area), _gap(covered, span))


def _share_of_increase(span: Span, until: float, rate: Series | None) -> float:
    """The part of a span's increase that falls before `until`: in proportion to `rate`, else linear in time."""
    if rate and (whole := rate.integral(span).value):
        return (rate.integral(Span(start=span.start, end=until)).value or 0.0) / whole
    return (until - span.start) / span.seconds


def _range(values: Floats, avg: float) -> Range:
    """Minimum, mean and maximum of values; clamps a mean that rounding moved outside."""
    low, high = float(values.min()), float(values.max())
    return Range(min=low, avg=min(max(avg, low), high), max=high)


def _gap(covered: float, span: Span) -> str | None:
    gap = span.seconds - covered
    if gap <= ROUNDING * span.seconds:
        return None
    return f"no samples for {gap:.3g} s of the measured {span.seconds:.3g} s"


@dataclass(frozen=True)
class Stretches:
    """When a node was measured: `whole` from the first counted window's start to the last one's end, `spans` without the pauses."""

    whole: Span
    spans: tuple[Span, ...]

    @property
    def seconds(self) -> float:
        """Total duration without pauses."""
        return math.fsum(span.seconds for span in self.spans)

    def overall(self, evaluate: Callable[[Span], Found[Range]]) -> Found[Range]:
        """Range over all stretches by `Series.gauge` or `Series.mean`; the mean is weighted by the seconds of those that have samples."""
        found = [evaluate(span) for span in self.spans]
        if len(found) == 1:
            return found[0]
        known = [(one.value, span.seconds) for one, span in zip(found, self.spans, strict=True) if one.value]
        if not known:
            return found[0]
        ranges, seconds = zip(*known, strict=True)
        lost = self.seconds - math.fsum(seconds)
        gap = f"no samples for {lost:.3g} s of the measured {self.seconds:.3g} s"
        return Found(
            Range(
                min=min(one.min for one in ranges),
                avg=over_time([one.avg for one in ranges], seconds),
                max=max(one.max for one in ranges),
            ),
            gap if len(known) < len(found) else _first_reason(found),
        )

    def total(self, evaluate: Callable[[Span], Found[float]]) -> Found[float]:
        """Sum over all stretches by `Series.integral` or `Series.increase`; None unless every stretch has a value."""
        found = [evaluate(span) for span in self.spans]
        values = [one.value for one in found if one.value is not None]
        return Found(math.fsum(values)) if len(values) == len(found) else Found(None, _first_reason(found))

    def seconds_held(self, series: Series) -> Floats:
        """`Series.seconds_held` over all stretches."""
        seconds: Floats = np.sum([series.seconds_held(span) for span in self.spans], axis=0)
        return seconds


def stretches(node: NodeSpans) -> Stretches:
    """Cut the pauses out of a node's measured span."""
    edges = [node.measured.start]
    for pause in node.pauses:
        edges += [pause.start, pause.end]
    edges.append(node.measured.end)
    spans = tuple(Span(start=start, end=end) for start, end in zip(edges[::2], edges[1::2], strict=True))
    return Stretches(whole=node.measured, spans=spans)


def _first_reason(found: list[Found[Range]] | list[Found[float]]) -> str | None:
    return next((one.reason for one in found if one.reason), None)


# From GPM or DCGM; each is a mean since the previous sample.
PIPES: Final = (
    *("fp32_percent", "sm_active_percent", "sm_occupancy_percent", "tensor_percent", "fp16_percent", "fp64_percent"),
    "dram_percent",
)
_WIRES: Final = ("pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx")
_HOST_COUNTERS: Final = ("disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")
NO_VALUES: Final = "the sampler told nothing of it"
# Sampling period in seconds of columns that are sampled less often (`workloads/monitor_nvml.py`, `monitor_host.py`).
PERIODS_S: Final = (
    dict.fromkeys(("clock_mhz", "ecc_corrected", "ecc_uncorrected"), 1.0)
    | dict.fromkeys(("energy_j", *_HOST_COUNTERS), 0.5)
    | dict.fromkeys((*PIPES, *(f"{wire}_rate" for wire in _WIRES)), 0.1)
)
# Shortest span in seconds for energy, power and utilisation: power sensors lag by up to a second, counters are read twice a second, and NVML's
# utilisation is a mean over the fifth of a second before (H200), at first one from before the span.
SHORTEST_SPAN_S: Final = 2.0
# Processes are listed once a second, so the last list before the span still applies within it.
PROCESSES_EVERY_S: Final = 1.0


class Device:
    """The rows of one device in table `telemetry`, evaluated by column; `missing` lists the unavailable figures.

    `measured` is when the node was measured; `t` (rows,) is in seconds of the node's clock.
    """

    def __init__(
        self,
        frame: Samples,
        *,
        node: str,
        device: str,
        hz: float,
        measured: Stretches,
        reasons: Mapping[str, str],
        sampler_lost: str | None = None,
    ) -> None:
        """Select the rows of one device (`gpu0`, ..., or `host`).

        `reasons` maps a column to the sampler's reason for having no values, or no more; `sampler_lost` is why the sampler stopped, which
        applies if no sample follows the span.
        """
        self.node, self.device, self.measured = node, device, measured
        self._frame, self._own = frame, rows_of(frame, node, device)
        self.t: Floats = np.asarray(frame["t"][self._own], dtype=np.float64)
        self._period_s = 1 / hz
        self._reasons = reasons
        self._sampler_lost = sampler_lost
        self._unavailable: dict[str, list[str]] = {}

    def lists(self, column: str) -> list[list[Any] | npt.NDArray[Any] | None]:
        """The lists of a list column, one per row; None if the cell holds none. Parquet returns them as arrays."""
        return [cell if isinstance(cell, list | np.ndarray) else None for cell in self._frame[column][self._own]]

    def series(self, column: str) -> Series:
        """A numeric column as a series."""
        values = np.asarray(self._frame[column][self._own], dtype=np.float64)
        return Series(self.t, values, max(self._period_s, PERIODS_S.get(column, 0)))

    def series_of(self, values: Floats) -> Series:
        """Values, one per row, as a series."""
        return Series(self.t, values, self._period_s)

    def evaluate(self, column: str, figure: Callable[[Series], Found[Value]]) -> Value | None:
        """Evaluate a column's series; record why if the result is None or covers only part of the span."""
        return self.evaluate_series(column, self.series(column), figure)

    def evaluate_series(self, column: str, series: Series, figure: Callable[[Series], Found[Value]]) -> Value | None:
        """Like `evaluate`, for a series derived from the column."""
        found = figure(series)
        if found.reason is not None:
            self.mark_missing(column, found.reason if np.isfinite(series.values).any() else NO_VALUES)
        return found.value

    def mark_missing(self, column: str, why: str) -> None:
        """Record why figures of a column are unavailable; the sampler's own reason takes precedence."""
        if self._sampler_lost and not (self.t > self.measured.whole.end).any():
            why = self._sampler_lost
        columns = self._unavailable.setdefault(self._reasons.get(column, why), [])
        if column not in columns:
            columns.append(column)

    def gauge(self, column: str) -> Range | None:
        """Range of a gauge over the measured span."""
        return self.evaluate(column, lambda series: self.measured.overall(series.gauge))

    def mean(self, column: str) -> Range | None:
        """Range over the measured span of samples that are means since the previous one."""
        return self.evaluate(column, lambda series: self.measured.overall(series.mean))

    def long_enough(self, *columns: str) -> bool:
        """Whether the measured span is long enough for energy, power and utilisation; if not, record that for the columns."""
        seconds = self.measured.seconds
        if seconds < SHORTEST_SPAN_S:
            for column in columns:
                self.mark_missing(
                    column, f"{seconds:.3g} s were measured; energy, power and utilisation take {SHORTEST_SPAN_S:g} s"
                )
        return seconds >= SHORTEST_SPAN_S

    def power(self, energy_j: float | None, samples: Range | None) -> Range | None:
        """Mean power from energy ÷ time, with the extremes of the samples, in watts; None unless both are known."""
        if energy_j is None or samples is None:
            return None
        return samples.model_copy(update={"avg": energy_j / self.measured.seconds})

    def increase(self, column: str) -> int | None:
        """Increase of a counter over the measured span, rounded to whole units."""
        return _rounded(self.evaluate(column, lambda series: self.measured.total(series.increase)))

    def rare_events(self, column: str) -> int | None:
        """Increase of a rare-event counter between the readings around the measured span."""
        return _rounded(self.evaluate(column, lambda series: series.rare_events(self.measured.whole)))

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The figures found unavailable so far, one entry per reason."""
        return tuple(
            Missing(node=self.node, device=self.device, fields=tuple(columns), reason=reason)
            for reason, columns in self._unavailable.items()
        )


def _rounded(value: float | None) -> int | None:
    """Round an interpolated count."""
    return None if value is None else round(value)


def gpu_figures(device: Device, gpu: MonitoredGpu, *, idle: Span | None, own: Collection[str]) -> GpuTelemetry:
    """Compute every figure of one GPU; `device.missing` lists the unavailable ones.

    `idle` is when nothing ran on it; `own` identifies the job's containers (`Outcome.containers`).
    """
    measured = device.measured
    # The counter is read twice a second, and power may rise severalfold between two readings.
    power = device.series("power_w") if gpu.power_reading == "instant" else None
    energy = integrated = None
    method: EnergyMethod = "energy counter"
    long = device.long_enough("energy_j", "power_w", "utilisation_percent", "memory_utilisation_percent")
    if long:
        energy = device.evaluate("energy_j", lambda series: measured.total(partial(series.increase, rate=power)))
        integrated = device.evaluate("power_w", lambda series: measured.total(series.integral))
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
        utilisation=device.gauge("utilisation_percent") if long else None,
        fp32_utilisation=pipes.pop("fp32_percent"),
        power_w=device.power(energy, device.gauge("power_w")),
        temperature_c=device.gauge("temperature_c"),
        memory_mib=device.gauge("memory_mib"),
        memory_utilisation_percent=device.gauge("memory_utilisation_percent") if long else None,
        **pipes,
        sm_clock_mhz=device.gauge("sm_clock_mhz"),
        memory_clock_mhz=device.gauge("memory_clock_mhz"),
        temperature_rise_c=last.avg - first.avg if first and last else None,
        energy_j=energy,
        energy_method=method if energy is not None else None,
        integrated_power_j=integrated,
        idle_power_w=device.evaluate("power_w", lambda series: series.lowest(idle, series.integral)) if idle else None,
        **{f"{wire}_bytes": _traffic(device, wire) for wire in _WIRES},
        slowdown_percent=_slowdowns(device),
        ecc_corrected=device.rare_events("ecc_corrected"),
        ecc_uncorrected=device.rare_events("ecc_uncorrected"),
        foreign=_foreign_processes(device, own),
    )


def _traffic(device: Device, wire: str) -> int | None:
    """Bytes in the span by the wire's counter, else by its rate if that was sampled throughout."""
    counted = device.measured.total(device.series(f"{wire}_bytes").increase)
    if counted.value is None:
        rate = device.measured.overall(device.series(f"{wire}_rate").mean)
        if rate.value is not None and rate.reason is None:
            return round(rate.value.avg * device.measured.seconds)
    return device.increase(f"{wire}_bytes")


def _slowdowns(device: Device) -> dict[str, float] | None:
    """Percent of the sampled time in which each reason held the clocks down: a sample's reasons hold until the next sample."""
    series = device.series("slowdown_bits")
    # Checked like a gauge, for a clock that went back and for gaps.
    if device.evaluate_series("slowdown_bits", series, lambda own: device.measured.overall(own.gauge)) is None:
        return None
    held = device.measured.seconds_held(series)
    bits = np.nan_to_num(series.values).astype(np.int64)
    shares = {name: 100 * float(held[(bits & bit) != 0].sum() / held.sum()) for bit, name in SLOWDOWNS.items()}
    return {name: share for name, share in shares.items() if share > 0}


def _foreign_processes(device: Device, own: Collection[str]) -> tuple[ForeignProcess, ...] | None:
    """The GPU's processes within the span that belong to none of the job's containers, without those of unknown owner; None if unknown."""
    measured = device.measured.whole
    inside = (device.t >= measured.start - PROCESSES_EVERY_S) & (device.t <= measured.end)
    lists = [one for one, counts in zip(device.lists("processes"), inside, strict=True) if counts and one is not None]
    if not lists:
        device.mark_missing("processes", NO_SAMPLE)
        return None
    if not own:
        device.mark_missing("processes", "which containers were the job's own is not on file")
        return None
    seen = {process["pid"]: process for one in lists for process in one}
    unknown = [pid for pid, process in seen.items() if not process.get("cgroup") and process.get("session") is None]
    if unknown:
        device.mark_missing(
            "processes", f"whose processes {', '.join(map(str, unknown))} are is not visible to the sampler"
        )
    return tuple(
        ForeignProcess(pid=int(pid), memory_mib=process.get("memory_mib"))
        for pid, process in sorted(seen.items())
        if pid not in unknown and not _is_own(process, own)
    )


def _is_own(process: dict[str, Any], own: Collection[str]) -> bool:
    """Whether a process belongs to one of the job's containers or, without a container engine, to one of its sessions.

    Engines name a container's control group by its id: /docker/ID, docker-ID.scope, libpod-ID.scope.
    """
    cgroup = process.get("cgroup") or ""
    return f"{SESSION}{process.get('session')}" in own or any(
        one in cgroup for one in own if not one.startswith(SESSION)
    )


def host_figures(
    device: Device, sampler: MonitorStart, stop: MonitorStop | None, *, idle: Span | None
) -> HostTelemetry:
    """Compute every figure of a host; `device.missing` lists the unavailable ones.

    `stop` is None if the sampler did not finish, `idle` if there was no time in which nothing ran.
    """
    measured = device.measured
    cpu, cores = _core_usage(device)
    rates = energy = used = None
    if device.long_enough("energy_j"):
        per_second = device.series("energy_j").rates()
        rates = device.evaluate_series("energy_j", per_second, lambda series: measured.overall(series.mean))
        energy = device.evaluate("energy_j", lambda series: measured.total(series.increase))
    if stop is None:
        device.mark_missing("cpu_s", "the sampler did not get to tell what it used")
    elif sampler.cores and stop.seconds > 0:
        used = 100 * stop.cpu_s / stop.seconds / sampler.cores
    return HostTelemetry(
        node=device.node,
        measured_s=measured.seconds,
        cores=sampler.cores,
        cpu_percent=cpu,
        core_percent=cores,
        memory_mib=device.gauge("memory_mib"),
        **{name: device.increase(name) for name in _HOST_COUNTERS},
        clock_mhz=device.gauge("clock_mhz"),
        power_w=device.power(energy, rates),
        energy_j=energy,
        idle_power_w=device.evaluate("energy_j", lambda series: series.lowest(idle, series.increase)) if idle else None,
        sampler_percent=used,
    )


def _core_usage(device: Device) -> tuple[Range | None, tuple[float, ...] | None]:
    """The range of the mean over all CPUs, and each CPU's mean over time."""
    lists = device.lists("core_percent")
    count = max((len(one) for one in lists if one is not None), default=0)
    # If a CPU goes offline, the remaining values can't be assigned to CPUs: such rows are dropped.
    table = np.full((len(lists), max(count, 1)), np.nan)
    for row, one in zip(table, lists, strict=True):
        if one is not None and len(one) == count:
            row[:] = one
    together = device.evaluate_series(
        "core_percent", device.series_of(table.mean(axis=1)), lambda all_: device.measured.overall(all_.mean)
    )
    each = [device.measured.overall(device.series_of(column).mean).value for column in table.T]
    known = tuple(one.avg for one in each if one is not None)
    return together, known if len(known) == count and known else None
