"""A reproduction as a block of the page: the source's figures redrawn with the measured points, the verdicts, and what did not run.

The axis of a figure is the number that varies in most of its curves (devices, batch, epochs).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from runner.analysis.comparisons.grouping import LONGEST
from runner.core.measurement import Interval
from runner.experiments.studies.model import Observation, Reproduction
from runner.experiments.studies.tables import outcome_text, page_tables, place
from runner.report.page.model import Block, Figure, Series, anchor, error_bars, series_of
from runner.results.published.findings import Steady

AXES: Final = {
    "iterations": "iterations",
    "epoch": "epochs",
    "gpus": "devices",
    "batch_per_gpu": "batch of a device",
    "batch": "batch",
    "global_batch": "batch of all devices",
    "gpu_index": "number of the device",
}
"""Numeric conditions that can be an axis, with its label; the first is preferred in a tie."""
LEGEND_ORDER: Final = (
    *("framework", "build", "model", "variant", "mode", "device", "gpu", "network", "gpus", "batch_per_gpu", "batch"),
    *("global_batch", "precision", "strategy", "technique", "case", "state", "name", "epoch", "iterations"),
    *("gpu_index", "system", "run"),
)
"""Conditions that tell curves apart, in the order of the legend; figures that differ only in other conditions share a curve."""
BATCH_CONDITIONS: Final = ("global_batch", "batch_per_gpu", "batch")
"""Conditions that may vary with the number of devices along one curve."""
SCALING_METRICS: Final = frozenset({"speedup", "scaling_efficiency"})
"""Quantities that are drawn against the number of devices only."""
PRINTED_SETTINGS: Final = frozenset(
    {"samples_per_run", "training_images", "validation_images", "image_size", "classes", "training_epochs"}
)
"""Settings that a source prints and nobody measures."""
MOST_CURVES: Final = 8
"""With more curves than this, each model has a figure of its own."""
ABBREVIATED: Final = frozenset({"api", "fp32", "fp64", "gpu", "nccl"})
NEED_NAME: Final = frozenset({*AXES, "run"})
"""Conditions whose value says nothing without their name."""


@dataclass(frozen=True)
class Point:
    """One figure, published or measured, with its conditions."""

    where: Mapping[str, Hashable]
    value: float
    published: bool
    ci95: Interval | None = None
    runs: tuple[str, ...] = ()
    degraded: bool = False


def block(reproduction: Reproduction, *, stem: str) -> Block:
    """Build the block of a study as reproduced on one machine; `stem` begins the names of its figures."""
    ran = sum(cell.status == "ran" for cell in reproduction.cells)
    return Block(
        anchor=anchor("study", stem),
        title=f"{reproduction.study}: {reproduction.title}",
        lead=f"{ran} of {len(reproduction.cells)} cells ran; {outcome_text(reproduction)}",
        lines=(
            f"{place(reproduction.machine, reproduction.scale, reproduction.cells)}, {reproduction.made_at:%Y-%m-%d}",
            "published values are those of the source's hardware; on other hardware only shapes are compared",
        ),
        figures=figures(reproduction, stem=stem),
        tables=page_tables(reproduction),
        notes=reproduction.notes,
        runs=tuple(dict.fromkeys(run for one in reproduction.observations for run in one.runs)),
        stem=stem,
    )


def figures(reproduction: Reproduction, *, stem: str) -> tuple[Figure, ...]:
    """Draw every quantity that the source prints or concludes something about, with published and measured points on one axis."""
    shown = {one.metric for one in reproduction.comparisons}
    claims = [part for one in reproduction.judgements for part in one.finding.parts]
    shown |= {part.metric for part in claims}
    steady = {part.metric for part in claims if isinstance(part, Steady)}
    groups: dict[tuple[str, ...], list[Point]] = {}
    for (metric, unit), point in _points(reproduction):
        # Curves over time or epochs, and shares of kernels, are drawn apart from figures of whole runs.
        separating = tuple(name for name in ("iterations", "epoch", "name") if name in point.where)
        if metric in shown - PRINTED_SETTINGS and ("iterations" not in separating or metric in steady):
            groups.setdefault((metric, unit, *separating), []).append(point)
    found: list[Figure] = []
    for (metric, unit, *parts), points in groups.items():
        found += _figures_of_metric(metric, unit, points, stem="-".join((stem, *(["by", *parts] if parts else []))))
    return tuple(found)


def _points(reproduction: Reproduction) -> Iterable[tuple[tuple[str, str], Point]]:
    for compared in reproduction.comparisons:
        if compared.published is not None:
            where = _legend_conditions(compared.conditions.stated)
            yield (compared.metric, compared.unit), Point(where, float(compared.published), published=True)
    for one in _observed(reproduction):
        more = {"case": one.case, "epoch": one.epoch, "name": one.name, "iterations": one.iterations}
        more["state"] = "idle" if one.state == "idle" else None
        known = {name: value for name, value in more.items() if value is not None}
        where = _legend_conditions({**one.where.stated, **known})
        degraded = one.degraded > 0
        point = Point(where, one.value, published=False, ci95=one.ci95, runs=one.runs, degraded=degraded)
        yield (one.metric, one.unit), point


def _observed(reproduction: Reproduction) -> Iterable[Observation]:
    """Yield all observations, then those made for a comparison only: a ratio has no observation of its own."""
    known = list(reproduction.observations)
    yield from known
    for compared in reproduction.comparisons:
        made = compared.measured
        if made and (made.metric, made.unit) == (compared.metric, compared.unit) and made not in known:
            known.append(made)
            yield made


def _legend_conditions(stated: Mapping[str, Hashable]) -> dict[str, Hashable]:
    return {name: stated[name] for name in LEGEND_ORDER if name in stated}


def _metric_text(metric: str) -> str:
    """Write a metric as people do: `FP32 utilisation`."""
    return " ".join(word.upper() if word in ABBREVIATED else word for word in metric.split("_"))


def _figures_of_metric(metric: str, unit: str, points: Sequence[Point], *, stem: str) -> list[Figure]:
    """Draw one quantity, in a figure per model if there are too many curves for one."""
    if len({point.where.get("gpu") for point in points} - {None}) < 2:  # noqa: PLR2004 - a single GPU tells nothing apart
        points = [replace(point, where={k: v for k, v in point.where.items() if k != "gpu"}) for point in points]
    axis = "gpus" if metric in SCALING_METRICS else _axis(points)
    models = list(dict.fromkeys(point.where.get("model") for point in points))
    split = len(_curves(points, axis)) > MOST_CURVES and len(models) > 1
    found = []
    for model in models if split else [None]:
        own = [point for point in points if not split or point.where.get("model") == model]
        quantity = _metric_text(metric)
        of = f", {model}" if split and model else ""
        name = anchor(stem, metric, unit if unit not in {"%", "x"} else "", str(model) if split else "")[:LONGEST]
        y = quantity if unit in {"unstated", "x"} else f"{quantity} ({unit})"
        title = f"{quantity[0].upper()}{quantity[1:]}{of}"
        drawn = _lines(own, axis, name=name, title=title, y=y, metric=metric) if axis else _bars(own, name, title, y)
        if sum(len(one.x) for one in drawn.series if one.kind != "ideal") > 1:
            found.append(drawn)
    return found


def _axis(points: Sequence[Point]) -> str | None:
    """Return the number along which most figures form curves of two or more points; None if no number does."""
    on: dict[str, tuple[int, int]] = {}
    for axis in AXES:
        curves = _curves(points, axis).values()
        joined = sum(len(own) for own in curves if len({point.where[axis] for point in own}) > 1)
        on[axis] = (joined, -len(curves))  # of two that join as many, the one with fewer curves
    best = max(on, key=lambda axis: on[axis])
    return best if on[best][0] else None


def _curves(points: Sequence[Point], axis: str | None) -> dict[tuple[object, ...], list[Point]]:
    """Group points that differ along the axis only; along the number of devices the batch may vary too, if each number has just one."""
    on_axis = [point for point in points if axis is None or isinstance(point.where.get(axis), (int, float))]
    dropped = {axis or ""}
    for name in BATCH_CONDITIONS if axis == "gpus" else ():
        if _one_batch_per_scale(on_axis, dropped | {name}):
            dropped.add(name)
    found: dict[tuple[object, ...], list[Point]] = {}
    for point in on_axis:
        found.setdefault((point.published, *_conditions_except(point, dropped)), []).append(point)
    return found


def _one_batch_per_scale(points: Sequence[Point], dropped: set[str]) -> bool:
    """Whether each curve has a single batch at each number of devices once these conditions are dropped."""
    batches: dict[tuple[object, ...], set[tuple[Hashable, ...]]] = {}
    for point in points:
        place = (point.published, point.where["gpus"], *_conditions_except(point, dropped))
        if batch := tuple(point.where[name] for name in BATCH_CONDITIONS if name in point.where):
            batches.setdefault(place, set()).add(batch)
    return all(len(own) == 1 for own in batches.values())


def _conditions_except(point: Point, dropped: set[str]) -> tuple[tuple[str, Hashable], ...]:
    return tuple((name, value) for name, value in point.where.items() if name not in dropped)


def _lines(points: Sequence[Point], axis: str, *, name: str, title: str, y: str, metric: str) -> Figure:
    curves = _curves(points, axis)
    series = []
    for (published, *rest), own in curves.items():
        if metric in SCALING_METRICS and len(own) == 1 and own[0].where[axis] == 1:
            continue  # a baseline alone is no curve
        ordered = sorted(own, key=lambda point: _number(point.where[axis]))
        label = _label(dict(rest), [dict(other) for kind, *other in curves if kind == published])  # type: ignore[arg-type]
        series.append(_series(ordered, label, lambda point: _number(point.where[axis])))
    places = sorted({place for one in series for place in one.x if isinstance(place, float)})
    unplaced = sum(axis not in point.where for point in points if point.published)
    if metric == "speedup" and axis == "gpus" and places:
        scales = tuple(place for place in places if place)  # 0 devices mean a CPU
        series.append(Series(name="ideal", kind="ideal", x=scales, y=scales))
    return Figure(
        name=name,
        title=title,
        x=AXES[axis],
        y=y,
        log=len(places) > 1 and places[0] > 0 and places[-1] / places[0] > 8,  # noqa: PLR2004 - as in a matrix' PNG
        series=tuple(series),
        interval=error_bars(*series),
        notes=(f"{unplaced} published figures without {AXES[axis]} are in the table alone",) if unplaced else (),
    )


def _bars(points: Sequence[Point], name: str, title: str, y: str) -> Figure:
    every = [point.where for point in points]
    series = []
    for label in ("published", "measured"):
        own = [point for point in points if point.published is (label == "published")]
        if own:
            series.append(_series(own, label, lambda point: _label(point.where, every)))
    return Figure(
        name=name,
        title=title,
        shape="lying",
        x="configuration",
        y=y,
        series=tuple(series),
        interval=error_bars(*series),
    )


def _series(points: Sequence[Point], label: str, place: Callable[[Point], float | str]) -> Series:
    """Draw points that are all published, or all measured, at their places along the axis."""
    published = points[0].published
    return series_of(
        points,
        x=place,
        y=lambda point: point.value,
        interval=lambda point: point.ci95,
        degraded=lambda point: point.degraded,
        runs=None if published else lambda point: point.runs,
        name=label,
        kind="published" if published else "measured",
    )


def _label(own: Mapping[str, Hashable], every: Sequence[Mapping[str, Hashable]]) -> str:
    """Label a curve or a bar with just the conditions that tell it from the others."""
    rest, parts = [other for other in every if other != own], []
    for name in LEGEND_ORDER:
        left = [other for other in rest if other.get(name) == own.get(name)]
        if len(left) < len(rest) and name in own:
            parts.append(f"{name.replace('_', ' ')} {own[name]}" if name in NEED_NAME else str(own[name]))
            rest = left
    return ", ".join(parts) or "all runs"


def _number(value: Hashable) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
