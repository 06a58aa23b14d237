"""Figures over time: what devices did over a run, and how a training converged over its epochs.

Time is each node's own, counted from the start of its measured windows, so that nodes with clocks of their own lie over each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from runner.analysis.telemetry.series import GAP_PERIODS, stretches
from runner.core.errors import RequestError
from runner.report.page.model import Figure, Series
from runner.results.store import read_table

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from rich.console import Console

    from runner.core.measurement import EpochFigures
    from runner.core.record import RunRecord
    from runner.core.telemetry import Telemetry


@dataclass(frozen=True)
class Watched:
    """What a sampler saw of one run: its table `telemetry`, and the figures that were made from it."""

    record: RunRecord
    telemetry: Telemetry
    frame: pd.DataFrame


def watched(runs: Sequence[tuple[Path, RunRecord]], *, console: Console) -> Watched | None:
    """The first usable run of the largest scale at which somebody looked on; None without any, or where its table can't be read."""
    seen = [(path, record, record.telemetry) for path, record in runs if record.telemetry]
    usable = [one for one in seen if one[1].validity.status != "invalid"]
    if not usable:
        return None
    path, record, telemetry = max(usable, key=lambda one: one[1].trial.world_size)
    try:
        frame = read_table(path, "telemetry")
    except RequestError as error:  # the tables are worth having without it
        console.print(f"not drawn: {error}", style="yellow", markup=False)
        return None
    return None if frame is None else Watched(record, telemetry, frame)


POINTS: Final = 300
"""Points of a curve over time; more are not told apart on a screen."""
CURVES: Final = 16
"""Devices whose curves are drawn; the CSV of telemetry has all."""
Floats = npt.NDArray[np.float64]


def over_time(seen: Watched, *, name: str, title: str, points: int = POINTS) -> tuple[Figure, ...]:
    """Power and utilisation over the time of one run, a curve a device."""
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
        for curve in drawn[:CURVES]:
            seconds, values, each = thinned(curve.seconds, curve.values, points=points)
            most = max(most, each)
            series.append(Series(name=curve.name, x=seconds, y=values, runs=((seen.record.run_id,),) * len(seconds)))
        notes = [f"of run {seen.record.run_id}"]
        if most > 1:
            notes.append(f"each point is the mean of up to {most} samples")
        if len(drawn) > CURVES:
            notes.append(f"drawn are {CURVES} of {len(drawn)} devices")
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


def thinned(
    seconds: Floats, values: Floats, *, points: int = POINTS
) -> tuple[tuple[float, ...], tuple[float | None, ...], int]:
    """At most so many points: means of as many neighbours each, and how many; a hole stays one (its time is that of the point before)."""
    each = max(1, math.ceil(len(values) / points))
    times: list[float] = []
    found: list[float | None] = []
    for start in range(0, len(values), each):
        part, when = values[start : start + each], seconds[start : start + each]
        known = np.isfinite(part)
        hole = not known.all()
        if known.any():
            times.append(float(when[known].mean()))
            found.append(float(part[known].mean()))
        if hole and times:
            times.append(times[-1])
            found.append(None)
    return tuple(times), tuple(found), each


def over_epochs(records: Sequence[RunRecord], *, name: str, title: str) -> tuple[Figure, ...]:
    """Accuracy and loss after each epoch, a curve a run; none where no run was watched to converge."""
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
    """One device's quantity: (samples,) seconds since the measured windows began, and its values; NaN where nobody knows."""

    name: str
    seconds: Floats
    values: Floats


def _measured_curves(frame: pd.DataFrame, telemetry: Telemetry) -> dict[str, list[Curve]]:
    """By quantity with its unit, a curve a device: of GPUs if GPUs trained, else of the hosts."""
    if telemetry.device == "gpu":
        gpus = [(gpu.node, f"gpu{gpu.index}", f"GPU {gpu.index}") for gpu in telemetry.gpus]
        return {
            "power (W)": _curves(frame, telemetry, gpus, "power_w"),
            "utilisation (%)": _curves(frame, telemetry, gpus, "utilisation_percent"),
        }
    hosts = [(host.node, "host", "host") for host in telemetry.hosts]
    mean = frame["core_percent"].map(lambda cell: np.nan if np.ndim(cell) == 0 else np.mean(cell))
    return {
        "power (W)": [_rate(curve) for curve in _curves(frame, telemetry, hosts, "energy_j")],
        "CPUs (%)": _curves(frame.assign(core_percent=mean), telemetry, hosts, "core_percent"),
    }


def _curves(frame: pd.DataFrame, telemetry: Telemetry, devices: list[tuple[str, str, str]], column: str) -> list[Curve]:
    """A column of some devices; those that have at least two samples of it."""
    found = []
    starts = {span.node: span.measured.start for span in telemetry.spans}
    for node, device, name in devices:
        rows = frame[(frame["node"] == node) & (frame["device"] == device)]
        values = rows[column].to_numpy(dtype=np.float64, na_value=np.nan)
        known = np.isfinite(values)
        if known.sum() > 1:
            words = f"{node} {name}" if len(starts) > 1 else name
            seconds = rows["t"].to_numpy(dtype=np.float64)[known] - starts[node]
            found.append(_broken(Curve(words, seconds, values[known]), telemetry.hz))
    return found


def _broken(curve: Curve, hz: float | None) -> Curve:
    """The curve without a line over holes in the samples, where nobody knows what was."""
    holes = 1 + np.flatnonzero(np.diff(curve.seconds) > GAP_PERIODS / (hz or 1))
    return Curve(curve.name, np.insert(curve.seconds, holes, np.nan), np.insert(curve.values, holes, np.nan))


def _rate(curve: Curve) -> Curve:
    """Of a counter, its rise a second between samples; nothing where it began anew."""
    steps, rise = np.diff(curve.seconds), np.diff(curve.values)
    rate = np.divide(rise, steps, out=np.full(len(steps), np.nan), where=(steps > 0) & (rise >= 0))
    return Curve(curve.name, curve.seconds[1:], rate)
