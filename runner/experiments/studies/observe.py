"""Everything that the cells of a study measured, or that its source printed, as observations of published metrics. Pure.

Repeats are pooled: samples of all ÷ seconds of all, with an interval over runs; or, for quantities with one number per run, the mean with
Student's interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from runner.experiments.studies.evidence import (
    BY_DEFINITION,
    Evidence,
    amount,
    best_matches,
    condition,
    derived_from,
    in_unit,
    mode,
    varying_with,
)
from runner.experiments.studies.measured import measured
from runner.experiments.studies.model import CellRun, Machine, Missing, Observation
from runner.experiments.studies.noise import Amount, ratio
from runner.experiments.studies.study import NOT_STATED
from runner.results.published.derive import number
from runner.results.published.model import Conditions, Figure, Published, Runs


def observed(
    found: Sequence[CellRun], *, published: Published, machine: Machine
) -> tuple[tuple[Observation, ...], tuple[Missing, ...]]:
    """Return all observations of the cells, and the missing quantities with the reasons."""
    observations: list[Observation] = []
    missing: list[Missing] = []
    backward_separate = any(run.cell.where.technique == "backward" for run in found)
    for run in found:
        if run.runs:
            cell = measured(run, machine=machine, backward_separate=backward_separate)
            observations += cell.observations
            missing += cell.missing
    return (*observations, *derived(observations, published)), tuple(missing)


STEADY_SHARE: Final = "steady_time_share"


def derived(observations: Sequence[Observation], published: Published) -> Iterator[Observation]:
    """Derive quantities that follow from others: speedup, efficiency, the time of a full training and, for a finding about it, the steady share."""
    whole = [one for one in observations if one.iterations is None]
    rates = [one for one in whole if one.metric == "throughput"]
    yield from _scaling(rates)
    yield from _full_training(rates, published)
    if any(part.metric == STEADY_SHARE for finding in published.findings for part in finding.parts):
        yield from _steady_share(whole)


def _scaling(rates: Sequence[Observation]) -> Iterator[Observation]:
    """Derive speedup over the one-device cell that differs in scale only, and its percentage of linear scaling; never clamped."""
    singles = [one for one in rates if condition(one, "gpus") == 1]
    for one in rates:
        gpus = one.where.gpus
        base = best_matches(one, singles, may_differ=varying_with({"gpus"})) if gpus else ()
        if not gpus or not base:
            continue
        made = Amount(1.0, exact=True) if gpus == 1 else ratio(amount(one), amount(base[0]))
        if made is not None:
            method = BY_DEFINITION if gpus == 1 else f"against {base[0].where.gpus} device"
            yield derived_from(one, base[0], metric="speedup", unit="x", figure=made, method=method)
            share = made.scaled(100 / gpus)
            yield derived_from(one, base[0], metric="scaling_efficiency", unit="%", figure=share, method=method)


def _steady_share(whole: Sequence[Observation]) -> Iterator[Observation]:
    """Derive the share of the training time that a run's samples take at its own throughput; the rest is start-up and input.

    A time of the same iterations as the throughput, as of the suite's runs unless `whole_time`, says nothing: its share is 100 %.
    """
    for one in whole:
        if one.metric != "training_time" or (one.repeats and one.method is None):
            continue
        samples, rates = (
            best_matches(one, [other for other in whole if other.metric == metric], may_differ=frozenset())
            for metric in ("samples_per_run", "throughput")
        )
        if len(samples) == len(rates) == 1:
            needed = ratio(amount(samples[0]), amount(rates[0]))
            share = ratio(needed, in_unit(one, "s")) if needed else None
            if share:
                yield derived_from(one, samples[0], rates[0], metric=STEADY_SHARE, unit="%", figure=share.scaled(100))


def _full_training(rates: Sequence[Observation], published: Published) -> Iterator[Observation]:
    """Extrapolate the source's epochs over its training images, at the rate of the fastest cell on one node, for GPUs and for CPUs."""
    settings = {figure.metric: float(number(figure)) for figure in published.figures if figure.kind == "setting"}
    epochs, images = settings.get("full_training_epochs"), settings.get("training_images")
    if not epochs or not images:
        return
    for on_cpu in (False, True):
        own = [one for one in rates if (condition(one, "device") == "cpu") is on_cpu and _is_like_the_source(one)]
        best = max(own, key=lambda one: one.value, default=None)
        seconds = ratio(Amount(epochs * images, exact=True), amount(best)) if best else None
        if best and seconds:
            method = (
                f"extrapolated: {epochs:g} epochs of {images:,.0f} images at the rate of the fastest cell on one node"
            )
            yield derived_from(best, metric="full_training_time", unit="s", figure=seconds, method=method)


def _is_like_the_source(one: Observation) -> bool:
    """Whether a run on one node was of the source's network and image size; the rate on smaller images says nothing about a full training."""
    return (one.where.nodes or 1) == 1 and not {"image_size", "model"} & set(one.altered)


_MEASURED = frozenset({"reported", "logged", "derived"})
_SINGLE_VALUED = ("framework", "build", "version", "mode", "precision")


def printed(published: Published) -> Evidence:
    """Return everything that a source printed as exact values, with all that is derived from it."""
    exact = (one for one in published.figures if isinstance(one.value, Decimal) and one.bound is None)
    own = [observation_of(figure) for figure in exact if is_measured(figure)]
    own += [
        one.model_copy(update={"metric": "power_avg", "state": "idle"}) for one in own if one.metric == "power_idle"
    ]
    own += _samples(published)
    return Evidence(
        published=published,
        observations=(*own, *derived(own, published)),
        device="gpu",
        device_name="the source's own figures",
    )


def is_measured(figure: Figure) -> bool:
    """Whether a figure was measured; specifications, settings and quotations were not."""
    return figure.kind in _MEASURED


def observation_of(figure: Figure) -> Observation:
    """Convert a printed figure to an observation; its value is 0 if the source printed several."""
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
