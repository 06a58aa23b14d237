"""Quantities that take more than one cell, or more than was run: speedup, efficiency, the time of a full training. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from runner.experiments.studies.evidence import BY_DEFINITION, amount, behind
from runner.experiments.studies.matching import freed, partners, term
from runner.experiments.studies.model import Observation
from runner.experiments.studies.noise import Amount, ratio
from runner.results.published.derive import number
from runner.results.published.model import Published

_GROWS: Final = freed({"gpus"})


def derived(observations: Sequence[Observation], published: Published) -> Iterator[Observation]:
    """All of them."""
    rates = [one for one in observations if one.metric == "throughput" and one.iterations is None]
    yield from _scaling(rates)
    yield from _full_training(rates, published)


def _scaling(rates: Sequence[Observation]) -> Iterator[Observation]:
    """Speedup against the cell on one device that differs in scale only, and its share of the ideal; never clamped."""
    singles = [one for one in rates if term(one, "gpus") == 1]
    for one in rates:
        gpus = one.where.gpus
        base = partners(one, singles, free=_GROWS) if gpus else ()
        if not gpus or not base:
            continue
        made = Amount(1.0, exact=True) if gpus == 1 else ratio(amount(one), amount(base[0]))
        if made is None:
            continue
        method = BY_DEFINITION if gpus == 1 else f"against {base[0].where.gpus} device"
        for metric, unit, figure in (("speedup", "x", made), ("scaling_efficiency", "%", made.scaled(100 / gpus))):
            own = {
                "metric": metric,
                "unit": unit,
                "value": figure.value,
                "ci95": figure.ci95,
                "freedom": figure.freedom,
            }
            yield one.model_copy(update={**own, "method": method, **behind(one, base[0])})


def _full_training(rates: Sequence[Observation], published: Published) -> Iterator[Observation]:
    """The source's epochs over its own training images at the rate of the fastest cell on one node, for GPUs and for CPUs: extrapolated."""
    settings = {figure.metric: float(number(figure)) for figure in published.figures if figure.kind == "setting"}
    epochs, images = settings.get("full_training_epochs"), settings.get("training_images")
    if not epochs or not images:
        return
    for on_cpu in (False, True):
        own = [one for one in rates if (term(one, "device") == "cpu") is on_cpu and _is_like_the_source(one)]
        if own:
            best = max(own, key=lambda one: one.value)
            seconds = ratio(Amount(epochs * images, exact=True), amount(best))
            if seconds:
                method = f"extrapolated: {epochs:g} epochs of {images:,.0f} images at the rate of the fastest cell on one node"
                yield best.model_copy(
                    update={
                        "metric": "full_training_time",
                        "unit": "s",
                        "value": seconds.value,
                        "ci95": seconds.ci95,
                        "freedom": seconds.freedom,
                        "method": method,
                    }
                )


def _is_like_the_source(one: Observation) -> bool:
    """Whether a run on one node was of the source's network on images of its size; one on smaller images says nothing of its days."""
    return (one.where.nodes or 1) == 1 and not {"image_size", "model"} & set(one.altered)
