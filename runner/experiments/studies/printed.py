"""A source's own figures as observations, so that its findings can be held against them as well. Pure.

What it prints of its run matrix counts as well: batch × iterations, or epochs × training images, are the samples of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from runner.experiments.studies.evidence import Scene
from runner.experiments.studies.matching import mode
from runner.experiments.studies.model import Observation
from runner.experiments.studies.observe.derived import derived
from runner.experiments.studies.study import NOT_STATED
from runner.results.published.derive import number
from runner.results.published.model import Conditions, Figure, Published
from runner.results.published.source import Runs

_MEASURED = frozenset({"reported", "logged", "derived"})
_SINGLE_VALUED = ("framework", "build", "version", "mode", "precision")


def printed(published: Published) -> Scene:
    """Everything that a source printed as exact values, with the speedups that follow from it."""
    own = [observation_of(figure) for figure in published.figures if _is_exact(figure)]
    own += [
        one.model_copy(update={"metric": "power_avg", "state": "idle"}) for one in own if one.metric == "power_idle"
    ]
    own += _samples(published)
    return Scene(
        published=published,
        observations=(*own, *derived(own, published)),
        device="gpu",
        device_name="the source's own figures",
    )


def is_measured(figure: Figure) -> bool:
    """Whether somebody measured it; specifications, settings and quotations are none."""
    return figure.kind in _MEASURED


def _is_exact(figure: Figure) -> bool:
    return is_measured(figure) and isinstance(figure.value, Decimal) and figure.bound is None


def observation_of(figure: Figure) -> Observation:
    """A printed figure as if it had been measured; of several values none, so 0."""
    on_cpu = figure.conditions.device == "cpu"
    return Observation(
        metric=figure.metric,
        unit=figure.unit,
        value=float(figure.value) if isinstance(figure.value, Decimal) else 0.0,
        where=figure.conditions,
        device="cpu" if on_cpu else "gpu",
        device_name=figure.conditions.gpu or figure.conditions.device or NOT_STATED,
        repeats=0,
        runs=(figure.id,),
    )


def _samples(published: Published) -> Iterator[Observation]:
    images = [number(figure) for figure in published.figures if figure.metric == "training_images"]
    for block in published.runs:
        for point in block.points:
            if point.iterations:
                samples = float(point.batch * point.iterations)
            elif block.epochs and images:
                samples = float(block.epochs * images[0])
            else:
                continue
            for model in block.models:
                yield Observation(
                    metric="samples_per_run",
                    unit="images",
                    value=samples,
                    where=_where(
                        block, model=model, gpus=point.gpus, nodes=point.nodes or next(iter(block.nodes), None)
                    ),
                    device="gpu",
                    device_name=NOT_STATED,
                    repeats=0,
                    runs=(),
                )


def _where(block: Runs, **own: object) -> Conditions:
    stated = {name: value for name in _SINGLE_VALUED if (value := getattr(block, name)) is not None}
    return Conditions.model_validate({**stated, "mode": mode(block.mode), **own})
