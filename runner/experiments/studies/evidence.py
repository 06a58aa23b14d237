"""The evidence that predicates are tested on, the answers to them, and the choice of observations for selectors and curves. Pure.

Two observations are comparable if they agree in every condition that both state, except those that a predicate names and those that change
with them (`CHANGES_WITH`): another number of GPUs has another global batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from runner.core.measurement import FEWEST_RUNS
from runner.core.request import Device
from runner.experiments.studies.model import Cell, CellRun, Missing, Observation
from runner.experiments.studies.noise import Amount
from runner.results.published.findings import BYTES, METRICS, TIME, Axis, Selector
from runner.results.published.model import Conditions, Published

Value = str | int | float | bool | None

_SIZES: Final = frozenset({"batch", "batch_per_gpu", "global_batch"})
_OF_MODEL: Final = _SIZES | {"model", "variant", "image_size", "learning_rate", "epochs", "sequence_length"}

CHANGES_WITH: Final[Mapping[str, frozenset[str]]] = {
    "gpus": _SIZES | {"nodes", "system", "network", "strategy"},
    "nodes": _SIZES | {"gpus", "system", "network", "strategy"},
    "model": _OF_MODEL,
    "model_size": _OF_MODEL,
    "framework": _OF_MODEL | {"build", "version", "container", "strategy", "dataset", "network"},
    "build": frozenset({"version", "container", "strategy"}),
    "device": _SIZES | {"gpu", "gpus", "nodes", "system", "build", "version", "container", "strategy", "network"},
    "gpu": frozenset({"device", "system", "memory"}),
    "batch": _SIZES | {"learning_rate"},
    "batch_per_gpu": _SIZES,
    "precision": _SIZES,
    "mode": _SIZES | {"epochs", "data", "dataset"},
    "case": _SIZES | {"gpus"},
    "network": frozenset({"system", "strategy"}),
}
"""For each condition, all others that change with it."""

_NO_CONDITION: Final = frozenset({"versus", "note", "run", "container", "memory", "theory_tflops"})
CONDITIONS: Final = (
    *(name for name in Conditions.model_fields if name not in _NO_CONDITION),
    *("case", "state", "epoch", "name"),
)
"""All conditions in which two observations can agree."""

_RANKED: Final = ("framework", "model", "gpu", "device", "gpus", "nodes", "network", "batch", "case", "precision")
"""Conditions that a reader tells runs apart by, most important first."""

_REDUNDANT: Final = frozenset({"batch_per_gpu", "global_batch", "dataset"})

_NEED_NO_NAME: Final = frozenset(
    {"framework", "build", "model", "gpu", "device", "case", "mode", "precision", "network", "technique", "state"}
)
"""Conditions whose value is clear without their name."""

_MODES: Final = {"train": "training", "converge": "training", "infer": "inference"}


HasConditions = Observation | Cell
"""Anything with conditions; a cell lacks those that only its observations have, such as an epoch."""


def condition(one: HasConditions, name: str) -> Value:
    """Return a condition of an observation or a cell; None if it is not stated.

    A mode is reduced as by `mode`. A batch is the first stated of `batch`, `global_batch` and `batch_per_gpu`.
    """
    if name == "model_size":
        return one.where.model
    if name == "mode":
        return mode(one.where.mode)
    if name == "batch":
        sizes = (one.where.batch, one.where.global_batch, one.where.batch_per_gpu)
        return next((size for size in sizes if size is not None), None)
    if name in {"case", "state", "epoch", "name", "iterations"}:
        return cast("Value", getattr(one, name, None))
    return cast("Value", getattr(one.where, name, None))


def mode(text: str | None) -> str | None:
    """Reduce a mode to the part before its comma, in a source's words: ``mode("training, partial epoch")`` and ``mode("train")`` are ``"training"``."""
    if text is None:
        return None
    first = text.partition(",")[0].strip()
    return _MODES.get(first, first)


def selects(selector: Selector, one: HasConditions) -> bool:
    """Whether an observation or a cell meets every condition of a selector; one that states no build meets any build."""
    if (selector.state == "idle") != (condition(one, "state") == "idle"):
        return False
    if selector.epoch not in {None, condition(one, "epoch")}:
        return False
    for field, count in (("gpus", selector.gpus_above), ("nodes", selector.nodes_above)):
        value = condition(one, field)
        if count is not None and not (isinstance(value, int) and value > count):
            return False
    return all(_fits(one, name, allowed) for name, allowed in selector.stated.items())


def _fits(one: HasConditions, name: str, allowed: tuple[Value, ...]) -> bool:
    value = condition(one, name)
    if name == "build" and value is None:
        return True
    if name == "mode":
        return value in {mode(str(text)) for text in allowed}
    return value in allowed


def expand(selector: Selector) -> tuple[Selector, ...]:
    """Return a selector for each combination of allowed values."""
    stated = selector.stated
    single = [[(name, (value,)) for value in values] for name, values in stated.items()]
    return tuple(selector.model_copy(update=dict(combination)) for combination in itertools.product(*single))


def differing_conditions(lhs: Selector, rhs: Selector) -> frozenset[str]:
    """Return the conditions that two selectors name differently, and all that change with them."""
    left, right = _named_conditions(lhs), _named_conditions(rhs)
    named = {name for name in left.keys() | right.keys() if left.get(name) != right.get(name)}
    return varying_with(named)


def varying_with(named: Iterable[str]) -> frozenset[str]:
    """Return these conditions and all that change with them."""
    names = set(named)
    return frozenset(names.union(*(CHANGES_WITH.get(name, frozenset()) for name in names)))


def _named_conditions(selector: Selector) -> dict[str, object]:
    found: dict[str, object] = dict(selector.stated)
    for field, name in (("gpus_above", "gpus"), ("nodes_above", "nodes"), ("state", "state"), ("epoch", "epoch")):
        if (value := getattr(selector, field)) is not None:
            found[name] = value
    return found


def agreement(
    one: Observation, other: HasConditions, *, may_differ: frozenset[str], same: Sequence[str] = ()
) -> int | None:
    """Count the conditions in which two observations agree; None if they are not comparable.

    Conditions in `may_differ` may differ; those in `same` must be equal, or stated by neither.
    """
    if any(condition(one, name) != condition(other, name) for name in same):
        return None
    agreeing = 0
    for name in CONDITIONS:
        value, others = condition(one, name), condition(other, name)
        if value is None or others is None:
            continue
        if value == others:
            agreeing += 1
        elif name not in may_differ:
            return None
    return agreeing


def best_matches(
    one: Observation, among: Iterable[Observation], *, may_differ: frozenset[str], same: Sequence[str] = ()
) -> tuple[Observation, ...]:
    """Return the comparable observations that agree with `one` in the most conditions; several in a tie."""
    found = [(other, agreement(one, other, may_differ=may_differ, same=same)) for other in among]
    most = max((count for _, count in found if count is not None), default=0)
    return tuple(other for other, count in found if count == most)


def curves(observations: Sequence[Observation], axis: Axis) -> tuple[tuple[Observation, ...], ...]:
    """Group observations into curves, whose points differ along an axis and in what changes with it.

    The curves of several networks share the points that need no network. A level has one point: the source's own scale precedes an extra one,
    fewer nodes precede more.
    """
    varying = varying_with({axis})
    groups: dict[tuple[Value, ...], list[Observation]] = {}
    for one in observations:
        if condition(one, axis) is not None:
            fixed = tuple(condition(one, name) for name in CONDITIONS if name not in varying)
            groups.setdefault(fixed, []).append(one)
    return tuple(
        _one_per_level(curve, axis)
        for group in groups.values()
        for curve in (_by_network(group) if axis in {"gpus", "nodes"} else [group])
    )


def _by_network(group: Sequence[Observation]) -> list[list[Observation]]:
    networks = {one.where.network for one in group if (one.where.nodes or 1) > 1}
    if len(networks) <= 1:
        return [list(group)]
    shared = [one for one in group if (one.where.nodes or 1) == 1]
    return [
        [*shared, *(one for one in group if one not in shared and one.where.network == name)]
        for name in sorted(networks, key=str)
    ]


def _one_per_level(curve: Sequence[Observation], axis: Axis) -> tuple[Observation, ...]:
    best: dict[Value, Observation] = {}
    for one in sorted(curve, key=lambda one: (one.extra, one.where.nodes or 1)):
        best.setdefault(condition(one, axis), one)
    return tuple(best.values())


def selector_text(selector: Selector) -> str:
    """Describe a selector briefly: `vgg16, gpus 4`."""
    words = []
    for name, value in _named_conditions(selector).items():
        text = " or ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        above = getattr(selector, f"{name}_above", None) is not None
        words.append(text if name in _NEED_NO_NAME else f"{name} above {text}" if above else f"{name} {text}")
    return ", ".join(words)


def distinction(observations: Sequence[Observation], one: Observation, *, but: Iterable[str] = ()) -> str:
    """Describe how an observation differs from the others, by as few conditions as tell them all apart."""
    left_out = set(but)
    kept: list[str] = []
    distinct = 1
    for name in (*_RANKED, *(name for name in CONDITIONS if name not in _RANKED and name not in _REDUNDANT)):
        parts = len({tuple(condition(other, each) for each in (*kept, name)) for other in observations})
        if name not in left_out and parts > distinct:
            kept.append(name)
            distinct = parts
    values = {name: condition(one, name) for name in kept}
    return ", ".join(
        str(value) if isinstance(value, str) else f"{name} {value}"
        for name, value in values.items()
        if value is not None
    )


MOST_LISTED: Final = 6
"""Most cases that a sentence lists."""
BY_DEFINITION: Final = "by definition"
"""`method` of a figure that needs no measurement: the speedup of one device is 1."""
_COUNT: Final = "samples_per_run"
"""A quantity that is the same in every run."""
_FACTORS: Final = {
    **dict(zip(TIME, (1e-6, 1e-3, 1.0, 60.0, 3600.0, 86400.0, 604800.0), strict=True)),
    **dict(zip(BYTES, (1e6, 1e9, 2.0**20, 2.0**30), strict=True)),
}


@dataclass(frozen=True)
class Answer:
    """Whether a predicate, or one `case` of it, holds; None if its figures can't tell, or if there are none.

    `why` has the figures, or what is missing; `runs` are the ids behind them, empty without figures, and `doubts` say why these are inconclusive.
    """

    holds: bool | None
    why: str
    runs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    case: str = ""


def answer(holds: bool | None, why: str, *observations: Observation) -> Answer:  # noqa: FBT001 - as of an Answer
    """Return an answer that rests on these observations."""
    return Answer(holds, why, runs_of(*observations), doubts(*observations))


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything measured for a study, or printed by its source; `missing` is what the runs could not provide.

    `device` stands for the source's GPUs; `device_name` is what the driver or the kernel calls it.
    """

    published: Published
    observations: Sequence[Observation]
    missing: Sequence[Missing] = ()
    cells: Sequence[CellRun] = ()
    device: Device
    device_name: str

    def of(self, metric: str, selector: Selector | None = None) -> tuple[Observation, ...]:
        """Return the observations of a metric that fit a selector, except those over time."""
        wanted = selector or Selector()
        found = (one for one in self.observations if one.metric == metric and one.iterations is None)
        return tuple(one for one in found if selects(wanted, one))

    def over_time(self, metric: str, selector: Selector) -> tuple[Observation, ...]:
        """Return the observations of a metric window by window, in order."""
        found = (one for one in self.observations if one.metric == metric and one.iterations is not None)
        return tuple(sorted((one for one in found if selects(selector, one)), key=lambda one: one.iterations or 0))

    def absent_gpus(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the models of those of the source's GPUs, by id, that nothing was measured on."""
        here = {one.where.gpu for one in self.observations}
        models = {gpu.id: gpu.model for gpu in self.published.hardware.gpus}
        return tuple(models.get(name, name) for name in names if name not in here)

    def why_absent(self, metric: str, selector: Selector, *, case: Collection[str] = ()) -> str:
        """Say why there is no such observation, in half a sentence that leaves out the conditions named by the `case`."""
        if selector.gpu and (absent := self.absent_gpus(selector.gpu)):
            return f"no {' or '.join(absent)} here, but {self.device_name}"
        of_what = selector_text(selector.model_copy(update=dict.fromkeys(case)))
        what = f"no {metric_text(metric)} of {of_what}" if of_what else f"no {metric_text(metric)}"
        reasons = dict.fromkeys(self._reasons(metric, selector))
        if selector.epoch is not None:
            trained = max((one.epoch for one in self.observations if one.metric == metric and one.epoch), default=0)
            reasons = dict.fromkeys([f"{trained} epochs were trained"]) if trained else reasons
        return f"{what} ({'; '.join(list(reasons)[:2])})" if reasons else what

    def _reasons(self, metric: str, selector: Selector) -> list[str]:
        if metric == "full_training_time":
            return ["it is extrapolated from runs on images of the source's size alone"]
        if metric == "steady_time_share":
            return ["it takes the time of a whole program, of a run as long as the source's"]
        own = {run.cell.id: run for run in self.cells if self.covers(selector, run)}
        not_given = [one.why for one in self.missing if one.metric == metric and one.cell in own]
        return not_given or [why_not_run(run) for run in own.values() if not run.runs]

    def covers(self, selector: Selector, run: CellRun) -> bool:
        """Whether a selector covers a cell; conditions that only observations have, such as an epoch, are ignored."""
        return selects(selector.model_copy(update={"state": None, "epoch": None}), run.cell)


def why_not_run(run: CellRun) -> str:
    """Why a cell has no runs."""
    return run.why or run.cell.why or "not run yet"


def metric_text(metric: str) -> str:
    """Write a metric in a sentence: `scaling efficiency`."""
    return metric.replace("_", " ")


def amount(one: Observation) -> Amount:
    """Return the figure of an observation with its interval; exact if it is a count, true by definition, or printed by the source."""
    exact = one.repeats == 0 or one.method == BY_DEFINITION or one.metric == _COUNT
    return Amount(one.value, one.ci95, one.freedom, exact=exact)


def figure_text(one: Observation) -> str:
    """Write a figure in a sentence: `412 ± 6 images/s`."""
    return amount_text(amount(one), one.unit)


def amount_text(figure: Amount, unit: str) -> str:
    """Write a number with its interval and unit; a ratio has no unit."""
    half = figure.ci95.half_width if figure.ci95 else 0.0
    spread = f" ± {half:,.0f}" if half >= 100 else f" ± {half:.2g}" if half else ""  # noqa: PLR2004 - two digits
    return f"{digits(figure.value)}{spread}{'' if unit == 'x' else ' ' + unit}"


def digits(value: float) -> str:
    """Write four significant digits, or all integer digits of a longer number: `3.249`, `65,702`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 - four digits


def in_unit(one: Observation, unit: str) -> Amount:
    """Convert the figure of an observation to another unit of its quantity. Raises ValueError if there is no conversion."""
    if one.unit == unit:
        return amount(one)
    if one.unit not in _FACTORS or unit not in _FACTORS or not {one.unit, unit} <= set(METRICS[one.metric]):
        raise ValueError(f"{one.metric} in {one.unit} can't be given in {unit}")
    return amount(one).scaled(_FACTORS[one.unit] / _FACTORS[unit])


def runs_of(*observations: Observation) -> tuple[str, ...]:
    """Return the ids of the runs behind observations, each once."""
    return tuple(dict.fromkeys(run for one in observations for run in one.runs))


def derived_from(
    *observations: Observation, metric: str, unit: str, figure: Amount, method: str | None = None
) -> Observation:
    """Derive a figure from others: it has the conditions of the first, the fewest repeats, and the runs and differences of all."""
    return observations[0].model_copy(
        update={
            "metric": metric,
            "unit": unit,
            "value": figure.value,
            "ci95": figure.ci95,
            "freedom": figure.freedom,
            "method": method,
            "repeats": min(one.repeats for one in observations),
            "degraded": sum(one.degraded for one in observations),
            "runs": runs_of(*observations),
            "altered": tuple(dict.fromkeys(field for one in observations for field in one.altered)),
        }
    )


def doubts(*observations: Observation) -> tuple[str, ...]:
    """Say why figures are inconclusive: degraded runs, too few runs for an interval, or no interval.

    Values by definition and printed figures are never in doubt; counts and single windows need no interval.
    """
    own = [one for one in observations if one.repeats and one.method != BY_DEFINITION]
    found = ["degraded runs"] if any(one.degraded for one in own) else []
    fewest = min((one.repeats for one in own), default=FEWEST_RUNS)
    if fewest < FEWEST_RUNS:
        found.append("1 run" if fewest == 1 else f"{fewest} runs")
    elif any(one.ci95 is None and one.iterations is None and one.metric != _COUNT for one in own):
        found.append("no interval")
    return tuple(found)


def combined(answers: Sequence[Answer]) -> Answer:
    """Combine the answers to all cases: one failure decides, else one that figures can't tell; cases without figures are mentioned."""
    failed = [one for one in answers if one.holds is False]
    unclear = [one for one in answers if one.holds is None and one.runs]
    held = [one for one in answers if one.holds]
    absent = [one for one in answers if one.holds is None and not one.runs]
    decisive = failed or unclear or held
    if not decisive:
        return Answer(holds=None, why=_listed(absent, all_of_them=True) or "no figures")
    parts = [_listed(decisive)]
    parts += [f"but {_listed(others)}" for others in (unclear, held) if others and others is not decisive]
    parts += [f"not told: {_listed(absent)}"] if absent else []
    runs = tuple(dict.fromkeys(run for one in (*failed, *unclear, *held) for run in one.runs))
    holds = joint([one.holds for one in (*failed, *unclear, *held)])
    return Answer(holds=holds, why="; ".join(parts), runs=runs, doubts=joint_doubts(decisive))


def joint(parts: Sequence[bool | None]) -> bool | None:
    """All of them: False if one is false, else None if one is unknown."""
    return False if False in parts else None if None in parts else True


def joint_doubts(decided: Sequence[Answer]) -> tuple[str, ...]:
    """Return the doubts about a joint decision: those of all its answers, or none if one of them fails beyond doubt."""
    if any(one.holds is False and not one.doubts for one in decided):
        return ()
    return tuple(dict.fromkeys(doubt for one in decided for doubt in one.doubts))


def _listed(answers: Sequence[Answer], *, all_of_them: bool = False) -> str:
    """Join sentences, each once, with the cases that it applies to; if `all_of_them` share one sentence, no case is named."""
    cases: dict[str, list[str]] = {}
    for one in answers:
        cases.setdefault(one.why, []).append(one.case)
    applies_to_all = all_of_them and len(cases) == 1
    texts = []
    for why, affected in cases.items():
        named = ", ".join(dict.fromkeys(case for case in affected if case))
        texts.append(f"{named}: {why}" if named and not applies_to_all else why)
    more = len(texts) - MOST_LISTED
    return "; ".join(texts[:MOST_LISTED]) + (f"; and {more} more" if more > 0 else "")
