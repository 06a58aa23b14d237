"""Figures of the page, from the inputs of the other reports: the same values, laid out along an axis, per row or over time.

Only usable rows become points; the notes name the others, because a curve that ends silently looks as if nobody had measured further. Time
is each node's own, counted from the start of its measured windows, so that nodes whose clocks differ are drawn on top of each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console

from runner.analysis.comparisons.grouping import TrainingComparison
from runner.analysis.comparisons.sweeps import Networks
from runner.analysis.comparisons.transports import ComparedRow, Comparison
from runner.analysis.summarize import Row, Summary
from runner.analysis.telemetry.device import GAP_PERIODS, rows_of, stretches
from runner.core import units
from runner.core.errors import RequestError
from runner.core.measurement import EpochFigures, Interval
from runner.core.profile import Profile
from runner.core.record import RunRecord
from runner.core.telemetry import Samples, Telemetry
from runner.report.matrix import unequal_work
from runner.report.page.model import Figure, Series, error_bars, series_of, value_at
from runner.report.profile import spelt, work_name
from runner.results.store import read_table

Runs = Mapping[int, tuple[str, ...]]  # by scale: the ids of a row's runs


def scaling(summary: Summary, *, name: str, runs: Runs) -> tuple[Figure, ...]:
    """Throughput, training time, and speedup against the ideal of one matrix; empty if fewer than two scales have a throughput."""
    rows = [row for row in summary.rows if row.usable and row.throughput is not None]
    if len(rows) < 2:  # noqa: PLR2004 - one figure is no curve
        return ()
    bars: dict[str, Any] = {"shape": "bars", "x": "devices", "notes": left_out(summary.rows)}
    rates = of_rows(rows, runs, "throughput")
    times = of_rows(rows, runs, "training_time_s")
    speedups = of_rows(rows, runs, "speedup", by_scale=True)
    unit, time = f"throughput ({summary.rate_unit})", "training time (s), median of the repeats"
    found = (
        Figure(
            name=f"{name}-throughput",
            title=f"Throughput, {summary.title}",
            y=unit,
            series=(rates,),
            interval=error_bars(rates),
            **bars,
        ),
        Figure(
            name=f"{name}-training-time",
            title=f"Training time, {summary.title}",
            y=time,
            series=(times,),
            **bars | {"notes": (*bars["notes"], *unequal_work((row.devices, row) for row in rows))},
        ),
        Figure(
            name=f"{name}-speedup",
            title=f"Speedup, {summary.title}",
            x="devices",
            y="speedup over one device",
            log=any(row.scale > LINEAR_UP_TO for row in rows if row.speedup is not None),
            series=(speedups, Series(name="ideal", kind="ideal", x=speedups.x, y=speedups.x)),
            interval=error_bars(speedups),
            notes=left_out(summary.rows),
        ),
    )
    return tuple(figure for figure in found if len(figure.series[0].x) > 1)


LINEAR_UP_TO: Final = 8  # largest scale drawn on linear axes; beyond it powers of two would crowd near the origin


def scaling_panels(summary: Summary) -> tuple[Figure, ...]:
    """Throughput against the ideal line, and efficiency; empty if fewer than two scales have a throughput."""
    rows = sorted((row for row in summary.rows if row.usable and row.throughput is not None), key=lambda row: row.scale)
    if len(rows) < 2:  # noqa: PLR2004 - a single point is in the table
        return ()
    most = rows[-1].scale
    ideal = [
        Series(name="ideal: n times one device", kind="ideal", x=(1.0, float(most)), y=(base, base * most))
        for base in (row.throughput for row in rows if row.scale == 1)
        if base is not None
    ]

    def panel(name: str, y: str, measured: Series, *more: Series) -> Figure:
        # Labels have only the digits that the interval supports.
        labels = tuple(value_at(measured, at).split(" ±")[0] for at in range(len(measured.x)))
        return Figure(
            name=name,
            title=y,
            x=f"{rows[0].device_name}s",
            y=y,
            log=most > LINEAR_UP_TO,
            percent=name == "efficiency",
            series=(measured.model_copy(update={"labels": labels}), *more),
            interval=units.INTERVAL if measured.low else "",
            notes=left_out(summary.rows),
        )

    return (
        panel(
            "throughput", f"throughput ({summary.rate_unit})", of_rows(rows, {}, "throughput", by_scale=True), *ideal
        ),
        panel("efficiency", "efficiency (%)", of_rows(rows, {}, "efficiency", by_scale=True, times=100)),
    )


def of_rows(rows: Sequence[Row], runs: Runs, field: str, *, by_scale: bool = False, times: float = 1) -> Series:
    """A field of the rows that have it, with its interval; x is the scale as a number, or the devices in words."""

    def interval(row: Row) -> Interval | None:
        ends: Interval | None = getattr(row, f"{field}_ci95", None)
        return ends and ends.scaled(times)

    return series_of(
        [row for row in rows if getattr(row, field) is not None],
        x=lambda row: float(row.scale) if by_scale else row.devices,
        y=lambda row: times * getattr(row, field),
        interval=interval,
        degraded=lambda row: row.status == "degraded",
        runs=lambda row: runs.get(row.scale, ()),
    )


def left_out(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note for each row that is not drawn."""
    return tuple(f"not drawn: {row.devices} {row.status} ({'; '.join(row.reasons)})" for row in rows if not row.usable)


def transports(
    comparison: Comparison, *, name: str, runs: Mapping[tuple[str, int], tuple[str, ...]]
) -> tuple[Figure, ...]:
    """Throughput, training time and bytes per step of each transport.

    Args:
        comparison: at least two transports.
        name: prefix of the figures' names.
        runs: ids of the runs, by transport and scale.
    """
    usable = [row for row in comparison.rows if row.row.usable and row.row.throughput is not None]
    if not usable:
        return ()
    notes = tuple(
        f"not drawn: {row.transport}, {row.row.devices} {row.row.status} ({'; '.join(row.row.reasons)})"
        for row in comparison.rows
        if not row.row.usable
    )

    def lying(key: str, what: str, y: str, *series: Series, **more: Any) -> Figure:
        title = f"{what}, {comparison.title}"
        return Figure(name=f"{name}-{key}", title=title, shape="lying", x="transport", y=y, series=series, **more)

    def of(rows: Sequence[ComparedRow], value: Callable[[ComparedRow], float | None], **more: Any) -> Series:
        return series_of(
            [row for row in rows if value(row) is not None],
            x=lambda row: f"{row.transport}, {row.row.devices}",
            y=value,
            runs=lambda row: runs.get((row.transport, row.row.scale), ()),
            **more,
        )

    degraded: dict[str, Any] = {"degraded": lambda row: row.row.status == "degraded"}
    ends: dict[str, Any] = {"interval": lambda row: row.row.throughput_ci95}
    rates = of(usable, lambda row: row.row.throughput, label=_rate_and_ratio, **degraded, **ends)
    times = of(usable, lambda row: row.row.training_time_s, **degraded)
    work = unequal_work((f"{row.transport}, {row.row.devices}", row.row) for row in usable)
    sent = of(usable, lambda row: _megabytes(row.sent_bytes), label=_sent_and_rate, name="sent")
    needed = [
        Series(name=f"what {words}", kind="ideal", x=sent.x, y=tuple(map(_megabytes, values)))
        for words, values in _reference_bytes([row for row in usable if row.sent_bytes is not None]).items()
    ]
    every = (
        lying(
            *("throughput", "Throughput", f"throughput ({comparison.unit})", rates),
            interval=error_bars(rates),
            notes=notes,
        ),
        lying("training-time", "Training time", "training time (s)", times, notes=(*notes, *work)),
        lying("bytes", "Bytes a step", "sent in a step (MB), by a GPU or a node", sent, *needed),
    )
    return tuple(figure for figure in every if figure.series[0].x)


def _megabytes(size: float | None) -> float | None:
    return None if size is None else size / 1e6


def _rate_and_ratio(row: ComparedRow) -> str:
    ends = row.row.throughput_ci95
    words = [units.figure(row.row.throughput, units.half_width(ends)).split(" ±")[0]]
    words += [] if row.ratio is None else [f" (×{units.figure(row.ratio, units.half_width(row.ratio_ci95))})"]
    words += [] if ends else [f", {units.counted(row.row.repeats)}"]
    return "".join((*words, ", not the limit" if row.not_the_limit else ""))


def _sent_and_rate(row: ComparedRow) -> str:
    rate = "" if row.reached_gbit is None else f" ({units.figure(row.reached_gbit)} Gbit/s)"
    return units.figure(_megabytes(row.sent_bytes)) + rate


def _reference_bytes(rows: Sequence[ComparedRow]) -> dict[str, tuple[float | None, ...]]:
    """Bytes that the algorithm makes a node send, per label; both bounds if it can be a tree or a ring."""
    if all(len(row.needed_bytes) < 2 for row in rows):  # noqa: PLR2004
        return {"the algorithm needs": tuple(row.expected_bytes for row in rows)}
    return {
        "a tree between nodes needs": tuple(row.least_bytes for row in rows),
        "a ring over all ranks needs": tuple(row.expected_bytes for row in rows),
    }


def efficiency_by_network(found: Networks) -> tuple[Figure, ...]:
    """Efficiency of each network against the number of devices; empty unless a network has it at two scales."""
    series = []
    for network in found.networks:
        runs = {row.scale: own for row, own in zip(network.rows, network.runs, strict=True)}
        points = of_rows(network.rows, runs, "efficiency", by_scale=True, times=100)
        if len(points.x) > 1:
            series.append(points.model_copy(update={"name": f"{network.label}, batch {network.batch:,}"}))
    if not series:
        return ()
    return (
        Figure(
            name=f"{found.name}-efficiency",
            title=f"Efficiency, {found.title}",
            x="devices",
            y="efficiency (%)",
            log=True,
            series=tuple(series),
            interval=error_bars(*series),
        ),
    )


def throughput_by(
    axis: str, found: TrainingComparison, *, ideal: Callable[[Any], tuple[Series, ...]] = lambda _: ()
) -> tuple[Figure, ...]:
    """Throughput of labelled rows, with the reference series that `ideal` makes of them; empty unless at least two rows are usable."""
    rows = [one for one in found.rows if one.row.usable and one.row.throughput is not None]
    if len(rows) < 2:  # noqa: PLR2004
        return ()
    trained = series_of(
        rows,
        x=lambda one: one.label,
        y=lambda one: one.row.throughput,
        interval=lambda one: one.row.throughput_ci95,
        degraded=lambda one: one.row.status == "degraded",
        runs=lambda one: one.runs,
        name="trained",
    )
    return (
        Figure(
            name=f"{found.name}-throughput",
            title=f"Throughput by {axis}, {found.title}",
            shape="lying",
            x=axis,
            y=f"throughput ({found.unit})",
            series=(trained, *ideal(rows)),
            interval=error_bars(trained),
            notes=tuple(f"not drawn: {one.label} {one.row.status}" for one in found.rows if one not in rows),
        ),
    )


MOST_BARS: Final = 14  # categories with a bar of their own; the rest share one


def time_shares(
    profile: Profile, *, name: str, title: str, run: str = "", degraded: bool = False
) -> tuple[Figure, ...]:
    """Time by category in a pass under a profiler; empty if the pass saw no work."""
    bars = [(spelt(one.category), one.share_percent) for one in profile.categories[:MOST_BARS]]
    if others := profile.categories[MOST_BARS:]:
        bars.append((f"{len(others)} others", math.fsum(one.share_percent for one in others)))
    if not bars:
        return ()
    series = Series(
        name="share",
        x=tuple(category for category, _ in bars),
        y=tuple(share for _, share in bars),
        degraded=(degraded,) * len(bars),
        runs=((run,),) * len(bars) if run else (),
        labels=tuple(f"{share:.1f} %" for _, share in bars),
    )
    return (
        Figure(
            name=name,
            title=f"Time by category, {title}",
            shape="lying",
            x="category",
            y=f"share of the time of all {work_name(profile)} (%)",
            series=(series,),
        ),
    )


@dataclass(frozen=True)
class Watched:
    """A sampler's view of one run: its table `telemetry`, and the figures derived from it."""

    record: RunRecord
    telemetry: Telemetry
    frame: Samples


def watched(runs: Sequence[tuple[Path, RunRecord]], *, console: Console) -> Watched | None:
    """The first usable run with telemetry at the largest scale that has any; None if there is none, or its table can't be read."""
    seen = [(path, record, record.telemetry) for path, record in runs if record.telemetry]
    usable = [one for one in seen if one[1].validity.status != "invalid"]
    if not usable:
        return None
    path, record, telemetry = max(usable, key=lambda one: one[1].trial.world_size)
    try:
        frame = read_table(path, "telemetry")
    except RequestError as error:  # the tables are useful without it
        console.print(f"not drawn: {error}", style="yellow", markup=False)
        return None
    return None if frame is None else Watched(record, telemetry, frame)


MOST_POINTS: Final = 300  # points of a curve over time; a screen shows no more
MOST_CURVES: Final = 16  # devices whose curves are drawn; the CSV of telemetry has all
Floats = npt.NDArray[np.float64]


def over_time(seen: Watched, *, name: str, title: str, points: int = MOST_POINTS) -> tuple[Figure, ...]:
    """Power and utilisation over the time of one run, one curve per device."""
    if not seen.telemetry.spans:
        return ()
    # The measured windows of the slowest node.
    slowest = stretches(max(seen.telemetry.spans, key=lambda span: span.measured.seconds))
    shade = tuple((span.start - slowest.whole.start, span.end - slowest.whole.start) for span in slowest.spans)
    found = []
    for label, drawn in _measured_curves(seen.frame, seen.telemetry).items():
        if not drawn:
            continue
        series, most = [], 1
        for curve in drawn[:MOST_CURVES]:
            seconds, values, each = downsampled(curve.seconds, curve.values, points=points)
            most = max(most, each)
            series.append(Series(name=curve.name, x=seconds, y=values, runs=((seen.record.run_id,),) * len(seconds)))
        notes = [f"of run {seen.record.run_id}"]
        if most > 1:
            notes.append(f"each point is the mean of up to {most} samples")
        if len(drawn) > MOST_CURVES:
            notes.append(f"drawn are {MOST_CURVES} of {len(drawn)} devices")
        quantity = label.partition(" (")[0]
        found.append(
            Figure(
                name=f"{name}-{quantity.lower()}-over-time",
                title=f"{quantity[0].upper()}{quantity[1:]} over time, {title}",
                x="seconds since the measured windows began",
                y=label,
                percent=label.endswith("(%)"),
                shade=shade,
                series=tuple(series),
                notes=tuple(notes),
            )
        )
    return tuple(found)


def downsampled(
    seconds: Floats, values: Floats, *, points: int = MOST_POINTS
) -> tuple[tuple[float, ...], tuple[float | None, ...], int]:
    """At most `points` means, each of up to n neighbours, and n; gaps (at the time of the point before) are kept in addition."""
    each = max(1, math.ceil(len(values) / points))
    times: list[float] = []
    found: list[float | None] = []
    padded = (np.append(column, np.full(-len(column) % each, np.nan)).reshape(-1, each) for column in (seconds, values))
    # Nearly all groups have no gap; these need no call of their own.
    for at, (when, mean) in enumerate(zip(*(column.mean(axis=1).tolist() for column in padded), strict=True)):
        own = slice(at * each, (at + 1) * each)
        known = None if math.isfinite(mean) else np.isfinite(values[own])
        if known is None:
            times.append(when)
            found.append(mean)
        elif known.any():
            times.append(float(seconds[own][known].mean()))
            found.append(float(values[own][known].mean()))
        if known is not None and not known.all() and times:
            times.append(times[-1])
            found.append(None)
    return tuple(times), tuple(found), each


def over_epochs(records: Sequence[RunRecord], *, name: str, title: str) -> tuple[Figure, ...]:
    """Accuracy and loss after each epoch, one curve per run; empty if no run trained to convergence."""
    watched = [one for one in records if one.measurement.epochs and one.validity.status != "invalid"]
    if not watched:
        return ()
    several = len(watched) > 1

    def curves(**by_word: Callable[[EpochFigures], float | None]) -> tuple[Series, ...]:
        found = []
        for record, (of, value) in itertools.product(watched, by_word.items()):
            epochs, trial = record.measurement.epochs, record.trial
            who = f"{trial.world_size} device{'s' if trial.world_size > 1 else ''}, repeat {trial.repeat}"
            found.append(
                Series(
                    name=", ".join([who] * several + [of] * (len(by_word) > 1 or not several)),
                    x=tuple(float(epoch.epoch) for epoch in epochs),
                    y=tuple(value(epoch) for epoch in epochs),
                    runs=((record.run_id,),) * len(epochs),
                )
            )
        return tuple(found)

    def drawn(what: str, y: str, series: tuple[Series, ...]) -> Figure:
        named = {"name": f"{name}-{what}", "title": f"{what.capitalize()}, {title}"}
        return Figure(**named, x="epochs", y=y, percent=y.endswith("(%)"), series=series)

    accuracy = curves(validation=lambda epoch: epoch.accuracy_percent)
    losses = curves(training=lambda epoch: epoch.train_loss, validation=lambda epoch: epoch.val_loss)
    return drawn("accuracy", "accuracy (%)", accuracy), drawn("loss", "loss (nats)", losses)


@dataclass(frozen=True)
class Curve:
    """A device's quantity: (samples,) seconds since the measured windows began, and values; NaN if unknown."""

    name: str
    seconds: Floats
    values: Floats


def _measured_curves(frame: Samples, telemetry: Telemetry) -> dict[str, list[Curve]]:
    """Curves per device, by quantity with its unit: of the GPUs if GPUs trained, else of the hosts."""
    if telemetry.device == "gpu":
        gpus = [(gpu.node, f"gpu{gpu.index}", f"GPU {gpu.index}") for gpu in telemetry.gpus]
        return {
            "power (W)": _curves(frame, telemetry, gpus, "power_w"),
            "utilisation (%)": _curves(frame, telemetry, gpus, "utilisation_percent"),
        }
    hosts = [(host.node, "host", "host") for host in telemetry.hosts]
    mean = np.array([np.nan if np.ndim(cell) == 0 else np.mean(cell) for cell in frame["core_percent"]])
    return {
        "power (W)": [_rate_of(curve) for curve in _curves(frame, telemetry, hosts, "energy_j")],
        "CPUs (%)": _curves({**frame, "core_percent": mean}, telemetry, hosts, "core_percent"),
    }


def _curves(frame: Samples, telemetry: Telemetry, devices: list[tuple[str, str, str]], column: str) -> list[Curve]:
    """A column's curve for each device that has at least two samples of it."""
    found = []
    starts = {span.node: span.measured.start for span in telemetry.spans}
    for node, device, name in devices:
        own = rows_of(frame, node, device)
        values = np.asarray(frame[column][own], dtype=np.float64)
        known = np.isfinite(values)
        if known.sum() > 1:
            words = f"{node} {name}" if len(starts) > 1 else name
            seconds = np.asarray(frame["t"][own], dtype=np.float64)[known] - starts[node]
            # Interrupt the line over gaps in the samples, where the values are unknown.
            holes = 1 + np.flatnonzero(np.diff(seconds) > GAP_PERIODS / (telemetry.hz or 1))
            found.append(Curve(words, np.insert(seconds, holes, np.nan), np.insert(values[known], holes, np.nan)))
    return found


def _rate_of(curve: Curve) -> Curve:
    """Rate per second of a counter between samples; NaN where the counter was reset."""
    steps, rise = np.diff(curve.seconds), np.diff(curve.values)
    rate = np.divide(rise, steps, out=np.full(len(steps), np.nan), where=(steps > 0) & (rise >= 0))
    return Curve(curve.name, curve.seconds[1:], rate)
