"""Figures over time: what devices did over a run, and how a training converged over its epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from runner.report import series_over_time
from runner.report.page.model import Figure, Series

if TYPE_CHECKING:
    from runner.core.measurement import EpochFigures
    from runner.core.record import RunRecord
    from runner.report.publish import Watched

POINTS: Final = 300
"""Points of a curve over time; more are not told apart on a screen."""
CURVES: Final = 16
"""Devices whose curves are drawn; the CSV of telemetry has all."""


def over_time(seen: Watched, *, name: str, title: str, points: int = POINTS) -> tuple[Figure, ...]:
    """Power and utilisation over the time of one run, a curve a device."""
    found = []
    for label, drawn in series_over_time.curves(seen.frame, seen.telemetry).items() if seen.telemetry.spans else ():
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
                shade=series_over_time.shade(seen.telemetry),
                series=tuple(series),
                notes=tuple(notes),
            )
        )
    return tuple(found)


def thinned(
    seconds: series_over_time.Floats, values: series_over_time.Floats, *, points: int = POINTS
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

    def curve(record: RunRecord, of: str, value: Callable[[EpochFigures], float | None]) -> Series:
        epochs = record.measurement.epochs
        trial = record.trial
        who = f"{trial.world_size} device{'s' if trial.world_size > 1 else ''}, repeat {trial.repeat}"
        return Series(
            name=", ".join(word for word in (who if several else "", of) if word),
            x=tuple(float(epoch.epoch) for epoch in epochs),
            y=tuple(value(epoch) for epoch in epochs),
            runs=((record.run_id,),) * len(epochs),
        )

    accuracy = tuple(
        curve(one, "" if several else "validation", lambda epoch: epoch.accuracy_percent) for one in watched
    )
    losses = tuple(
        series
        for one in watched
        for series in (
            curve(one, "training", lambda epoch: epoch.train_loss),
            curve(one, "validation", lambda epoch: epoch.val_loss),
        )
    )
    return (
        Figure(
            name=f"{name}-accuracy",
            title=f"Accuracy, {title}",
            x="epochs",
            y="accuracy (%)",
            percent=True,
            series=accuracy,
        ),
        Figure(name=f"{name}-loss", title=f"Loss, {title}", x="epochs", y="loss (nats)", series=losses),
    )
