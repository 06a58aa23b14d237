"""Speedups and efficiencies, computed again from a source's own throughputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

from runner.results.published.model import Figure, Published

Scaling = Literal["weak", "strong", "unstated"]

# What may differ between two runs of one curve besides the number of devices.
_GROWS: Final = frozenset({"gpus", "nodes", "global_batch", "batch_per_gpu", "network", "note", "run"})


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A throughput against that of the fewest devices under otherwise the same conditions.

    Efficiency is of the ideal, as many times the speed as there are times the devices; never clamped. `weak` keeps the batch of a device,
    `strong` the global one.
    """

    figure: Figure
    baseline: Figure
    speedup: float
    efficiency_percent: float
    scaling: Scaling


def scaled(published: Published) -> tuple[Scaled, ...]:
    """Speedup and efficiency of every throughput of a source that has one on fewer devices beside it."""
    families = {system.id: system.family or system.id for system in published.hardware.systems}
    curves = {figure.id: _curves(figure, families) for figure in published.figures if _is_rate(figure)}
    groups: dict[tuple[Scaling, Hashable], list[Figure]] = defaultdict(list)
    for figure in published.figures:
        for curve in curves.get(figure.id, ()):
            groups[curve].append(figure)
    found = []
    for figure in published.figures:
        for curve in curves.get(figure.id, ()):
            baseline = min(groups[curve], key=devices)
            if devices(baseline) < max(map(devices, groups[curve])):
                found.append(_against(baseline, figure, scaling=curve[0]))
                break
    return tuple(found)


def number(figure: Figure) -> Decimal:
    """The one value of a figure; a TypeError where it has several."""
    if not isinstance(figure.value, Decimal):
        raise TypeError(f"{figure.id} has several values")
    return figure.value


def _is_rate(figure: Figure) -> bool:
    known = figure.conditions.gpus is not None and figure.conditions.gpus > 0
    of_jobs = figure.metric == "throughput" or (figure.metric == "throughput_per_gpu" and figure.kind != "derived")
    return known and of_jobs and isinstance(figure.value, Decimal) and figure.bound is None


def devices(figure: Figure) -> int:
    """GPUs of all nodes; 0 for none, or where they are not stated."""
    return figure.conditions.gpus or 0


def _curves(figure: Figure, families: Mapping[str, str]) -> tuple[tuple[Scaling, Hashable], ...]:
    """What the runs of one curve have in common: first if the batch of a device stays, then if that of all does."""
    conditions = figure.conditions
    same = {name: value for name, value in conditions.stated.items() if name not in _GROWS}
    if conditions.system:
        same["system"] = families.get(conditions.system, conditions.system)
    rest = (figure.metric, *sorted((name, str(value)) for name, value in same.items()))
    if conditions.batch_per_gpu is not None:
        return (("weak", (rest, conditions.batch_per_gpu)),)
    if conditions.global_batch is not None:
        a_device = Fraction(conditions.global_batch, devices(figure))
        return ("weak", (rest, a_device)), ("strong", (rest, conditions.global_batch))
    return (("unstated", rest),)


def _against(baseline: Figure, figure: Figure, *, scaling: Scaling) -> Scaled:
    times = Fraction(devices(figure), devices(baseline))
    ratio = Fraction(number(figure)) / Fraction(number(baseline))
    speedup = ratio * times if figure.metric == "throughput_per_gpu" else ratio
    return Scaled(
        figure=figure,
        baseline=baseline,
        speedup=float(speedup),
        efficiency_percent=float(100 * speedup / times),
        scaling=scaling,
    )
