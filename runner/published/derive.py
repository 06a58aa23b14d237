"""Speedups and efficiencies, computed again from a source's own throughputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

from runner.published.model import Conditions, Figure, Published

Scaling = Literal["weak", "strong", "unstated"]

# What may differ between two runs of one curve besides the number of devices.
_GROWS: Final = frozenset({"gpus", "nodes", "global_batch", "batch_per_gpu", "system", "network", "note", "run"})


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A throughput against that of the fewest devices under otherwise the same conditions.

    Attributes:
        figure: the throughput.
        baseline: that of the fewest devices.
        speedup: figure ÷ baseline.
        efficiency_percent: of the ideal, which is as many times the speed as there are times the devices; never clamped.
        scaling: weak: the batch of a device stays; strong: the global batch does; unstated: the source does not say.
    """

    figure: Figure
    baseline: Figure
    speedup: float
    efficiency_percent: float
    scaling: Scaling


def scaled(published: Published) -> tuple[Scaled, ...]:
    """Speedup and efficiency of every throughput of a source that has one on fewer devices beside it."""
    rates = [figure for figure in published.figures if _is_rate(figure)]
    groups: dict[Hashable, list[Figure]] = defaultdict(list)
    for figure in rates:
        for key in _curves(figure.conditions):
            groups[figure.metric, key].append(figure)
    found = []
    for figure in rates:
        for scaling, key in zip(("weak", "strong"), _curves(figure.conditions), strict=False):
            group = groups[figure.metric, key]
            baseline = min(group, key=devices)
            if devices(baseline) < max(map(devices, group)):
                found.append(_against(baseline, figure, scaling=scaling if _batch_is_known(figure) else "unstated"))
                break
    return tuple(found)


def number(figure: Figure) -> Decimal:
    """The one value of a figure.

    Raises:
        TypeError: it has several.
    """
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


def _batch_is_known(figure: Figure) -> bool:
    return figure.conditions.batch_per_gpu is not None or figure.conditions.global_batch is not None


def _curves(conditions: Conditions) -> tuple[Hashable, ...]:
    """What the runs of one curve have in common, first if the batch of a device stays, then if that of all does."""
    same = {name: value for name, value in conditions.stated.items() if name not in _GROWS}
    rest = tuple(sorted((name, str(value)) for name, value in same.items()))
    if conditions.batch_per_gpu is not None:
        return ((rest, "a device", Fraction(conditions.batch_per_gpu)),)
    if conditions.global_batch is not None:
        per_device = Fraction(conditions.global_batch, conditions.gpus or 1)
        return ((rest, "a device", per_device), (rest, "all", conditions.global_batch))
    return ((rest, "unstated"),)


def _against(baseline: Figure, figure: Figure, *, scaling: str) -> Scaled:
    times = Fraction(devices(figure), devices(baseline))
    ratio = Fraction(number(figure)) / Fraction(number(baseline))
    speedup = ratio * times if figure.metric == "throughput_per_gpu" else ratio
    kind: Scaling = "weak" if scaling == "weak" else "strong" if scaling == "strong" else "unstated"
    return Scaled(
        figure=figure,
        baseline=baseline,
        speedup=float(speedup),
        efficiency_percent=float(100 * speedup / times),
        scaling=kind,
    )
