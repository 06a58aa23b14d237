"""A reproduction as a block of the page: the source's figures redrawn with the measured points beside them, verdicts, and what did not run.

Which quantity stands along the axis follows from the figures: the number that varies in most of their curves (devices, batch, epochs).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from runner.report.page.blocks import anchor
from runner.report.page.model import Block, Figure, Series
from runner.report.page.verdicts import tables

if TYPE_CHECKING:
    from runner.metrics import Interval
    from runner.published.model import Conditions
    from runner.studies.model import Reproduction

AXES: Final = {
    "epoch": "epochs",
    "gpus": "devices",
    "batch_per_gpu": "batch of a device",
    "batch": "batch",
    "global_batch": "batch of all devices",
    "image_size": "pixels",
    "gpu_index": "number of the device",
    "iterations": "iterations",
}
"""Conditions that are numbers, by preference, and what their axis is called."""
GROWS: Final = ("nodes", "global_batch", "batch_per_gpu", "batch")
"""Conditions that may go along with the number of devices within one curve."""
SILENT: Final = frozenset({"note", "version", "versus", "container", "where"})
"""Conditions that tell no two curves of a figure apart by themselves."""
CURVES: Final = 8
"""More curves than that are parted by network."""
NAMED: Final = frozenset({"framework", "model", "mode", "gpu", "network", "precision", "case", "state", "name"})
"""Conditions that speak for themselves in a legend."""


@dataclass(frozen=True)
class Point:
    """One figure, published or measured, with the conditions under which it was had."""

    where: Mapping[str, Hashable]
    value: float
    published: bool
    ci95: Interval | None = None
    runs: tuple[str, ...] = ()


def block(reproduction: Reproduction, *, stem: str) -> Block:
    """The block of a study.

    Args:
        reproduction: as it came out on one machine.
        stem: begins the names of its figures.
    """
    machine = reproduction.machine
    ran = [cell for cell in reproduction.cells if cell.status == "ran"]
    verdicts = [one.verdict for one in reproduction.comparisons if one.measured]
    holds = [one for one in reproduction.judgements if one.verdict == "holds"]
    lead = f"{len(ran)} of {len(reproduction.cells)} cells ran, {len(verdicts)} of {len(reproduction.comparisons)} figures measured, "
    lead += f"{len(holds)} of {len(reproduction.judgements)} findings hold"
    return Block(
        anchor=anchor("study", stem),
        title=f"{reproduction.study}: {reproduction.title}",
        lead=lead,
        lines=(
            f"on {machine.name}: {machine.device_name}, scale {reproduction.scale}, {reproduction.made_at:%Y-%m-%d}",
            "published values are those of the source's hardware; on other hardware only shapes are compared",
        ),
        figures=figures(reproduction, stem=stem),
        tables=tables(reproduction),
        notes=reproduction.notes,
        runs=tuple(dict.fromkeys(run for one in reproduction.observations for run in one.runs)),
    )


def figures(reproduction: Reproduction, *, stem: str) -> tuple[Figure, ...]:
    """Every quantity of the source, or measured for it, that has two values: published and measured points on one axis."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for key, point in _points(reproduction):
        groups.setdefault(key, []).append(point)
    found = []
    for (metric, unit), points in groups.items():
        if len(points) > 1:
            found += _of_metric(metric, unit, points, stem=stem)
    return tuple(found)


def _points(reproduction: Reproduction) -> Iterable[tuple[tuple[str, str], Point]]:
    for compared in reproduction.comparisons:
        if compared.published is not None:
            where = _stated(compared.conditions)
            yield (compared.metric, compared.unit), Point(where, float(compared.published), published=True)
    for seen in reproduction.observations:
        extra = {"case": seen.case, "state": seen.state, "epoch": seen.epoch, "name": seen.name}
        extra["iterations"] = seen.iterations
        known = {name: value for name, value in extra.items() if value is not None}
        where = {**_stated(seen.where), **known}
        yield (seen.metric, seen.unit), Point(where, seen.value, published=False, ci95=seen.ci95, runs=seen.runs)


def _stated(conditions: Conditions) -> dict[str, Hashable]:
    return {name: value for name, value in conditions.stated.items() if name not in SILENT}


def _of_metric(metric: str, unit: str, points: Sequence[Point], *, stem: str) -> list[Figure]:
    """The figure of one quantity; one for each network where the curves would be too many."""
    axis = _axis(points)
    models = list(dict.fromkeys(point.where.get("model") for point in points))
    parted = len(_curves(points, axis)) > CURVES and len(models) > 1
    found = []
    for model in models if parted else [None]:
        own = [point for point in points if not parted or point.where.get("model") == model]
        words = metric.replace("_", " ")
        of = f", {model}" if parted and model else ""
        name = anchor(stem, metric, unit if unit not in {"%", "x"} else "", str(model) if parted else "")
        y = words if unit in {"unstated", "x"} else f"{words} ({unit})"
        title = f"{words[0].upper()}{words[1:]}{of}, published and measured"
        drawn = _bars(own, name, title, y)
        if axis:
            drawn = _lines(own, axis, name=name, title=title, y=y, metric=metric)
        found.append(drawn)
    return found


def _axis(points: Sequence[Point]) -> str | None:
    """The number along which most figures stand in curves of two or more; None where none does."""
    on: dict[str, int] = {}
    for axis in AXES:
        curves = _curves(points, axis).values()
        on[axis] = sum(len(own) for own in curves if len({point.where[axis] for point in own}) > 1)
    best = max(on, key=lambda axis: on[axis])
    return best if on[best] else None


def _curves(points: Sequence[Point], axis: str | None) -> dict[tuple[object, ...], list[Point]]:
    """Points that differ along the axis alone; with the number of devices may go nodes and batch, where each has its own."""
    if axis is None:
        return {("all",): list(points)}
    placed = [point for point in points if isinstance(point.where.get(axis), (int, float))]
    dropped = {axis}
    for name in GROWS if axis == "gpus" else ():
        if _apart(placed, axis, dropped | {name}):
            dropped.add(name)
    found: dict[tuple[object, ...], list[Point]] = {}
    for point in placed:
        found.setdefault((point.published, *_rest(point, dropped)), []).append(point)
    return found


def _apart(points: Sequence[Point], axis: str, dropped: set[str]) -> bool:
    """Whether no two points of a curve stand at one place without these conditions."""
    places = [(point.published, point.where[axis], *_rest(point, dropped)) for point in points]
    return len(set(places)) == len(places)


def _rest(point: Point, dropped: set[str]) -> tuple[tuple[str, Hashable], ...]:
    return tuple(sorted((name, value) for name, value in point.where.items() if name not in dropped))


def _lines(points: Sequence[Point], axis: str, *, name: str, title: str, y: str, metric: str) -> Figure:
    curves = _curves(points, axis)
    series = []
    for (published, *rest), own in curves.items():
        ordered = sorted(own, key=lambda point: _number(point.where[axis]))
        label = _label(dict(rest), [dict(other) for _, *other in curves])  # type: ignore[arg-type]
        series.append(_series(ordered, label, bool(published), tuple(_number(one.where[axis]) for one in ordered)))
    places = sorted({place for one in series for place in one.x if isinstance(place, float)})
    if metric == "speedup" and axis == "gpus" and places:
        ends = (max(1.0, places[0]), places[-1])
        series.append(Series(name="ideal", kind="ideal", x=ends, y=ends))
    return Figure(
        name=name,
        title=title,
        x=AXES[axis],
        y=y,
        log=len(places) > 1 and places[0] > 0 and places[-1] / places[0] > 8,  # noqa: PLR2004 - as in a matrix' PNG
        series=tuple(series),
        interval="95 % interval of what was measured" if any(one.low for one in series) else "",
    )


def _bars(points: Sequence[Point], name: str, title: str, y: str) -> Figure:
    every = [point.where for point in points]
    series = []
    for published in (True, False):
        own = [point for point in points if point.published is published]
        if own:
            places = tuple(_label(point.where, every) for point in own)
            series.append(_series(own, "published" if published else "measured", published, places))
    said = "95 % interval of what was measured" if any(one.low for one in series) else ""
    return Figure(name=name, title=title, shape="lying", x="configuration", y=y, series=tuple(series), interval=said)


def _series(points: Sequence[Point], label: str, published: bool, places: tuple[float | str, ...]) -> Series:  # noqa: FBT001
    held = any(point.ci95 for point in points)
    return Series(
        name=label,
        kind="published" if published else "measured",
        x=places,
        y=tuple(point.value for point in points),
        low=tuple(point.ci95.low if point.ci95 else None for point in points) if held else (),
        high=tuple(point.ci95.high if point.ci95 else None for point in points) if held else (),
        runs=() if published else tuple(point.runs for point in points),
    )


def _label(own: Mapping[str, Hashable], every: Sequence[Mapping[str, Hashable]]) -> str:
    """What tells a curve, or a bar, from the others."""
    differ = [name for name in own if len({other.get(name) for other in every}) > 1]
    words = [str(own[name]) if name in NAMED else f"{name.replace('_', ' ')} {own[name]}" for name in differ]
    return ", ".join(words) or "all"


def _number(value: Hashable) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
