"""What predicates are held against, and what they say of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from runner.core.measurement import FEWEST_RUNS
from runner.core.request import Device
from runner.experiments.studies.matching import described, selects
from runner.experiments.studies.model import CellRun, Missing, Observation
from runner.experiments.studies.noise import Amount
from runner.results.published.findings import BYTES, METRICS, TIME, Selector
from runner.results.published.model import Published

SHOWN: Final = 6
"""Cases that a sentence lists one by one."""
BY_DEFINITION: Final = "by definition"
"""`method` of what nobody has to measure: the speedup of one device is 1."""
_COUNT: Final = "samples_per_run"
"""A quantity that is the same in every run."""
_FACTORS: Final = {
    **dict(zip(TIME, (1e-6, 1e-3, 1.0, 60.0, 3600.0, 86400.0, 604800.0), strict=True)),
    **dict(zip(BYTES, (1e6, 1e9, 2.0**20, 2.0**30), strict=True)),
}


@dataclass(frozen=True)
class Answer:
    """Whether a predicate, or one `case` of it, holds; None where that can't be told here.

    `why` has the figures, or what is missing; `runs` are behind them, and `doubts` say why these are inconclusive.
    """

    holds: bool | None
    why: str
    runs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    case: str = ""


def answer(holds: bool | None, why: str, *observations: Observation) -> Answer:  # noqa: FBT001 - as of an Answer
    """The answer that these figures give."""
    return Answer(holds, why, runs_of(*observations), doubts(*observations))


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that was measured for a study, or that its source printed: `missing` is what runs did not give.

    `device` stands for the source's GPUs; the driver or the kernel calls it `device_name`.
    """

    published: Published
    observations: Sequence[Observation]
    missing: Sequence[Missing] = ()
    cells: Sequence[CellRun] = ()
    device: Device
    device_name: str

    def of(self, metric: str, selector: Selector | None = None) -> tuple[Observation, ...]:
        """The observations of a metric that fit a selector; those over time are not among them."""
        wanted = selector or Selector()
        found = (one for one in self.observations if one.metric == metric and one.iterations is None)
        return tuple(one for one in found if selects(wanted, one))

    def over_time(self, metric: str, selector: Selector) -> tuple[Observation, ...]:
        """The observations of a metric window by window, in their order."""
        found = (one for one in self.observations if one.metric == metric and one.iterations is not None)
        return tuple(sorted((one for one in found if selects(selector, one)), key=lambda one: one.iterations or 0))

    def gpus_not_here(self, names: Sequence[str]) -> tuple[str, ...]:
        """Of the source's GPUs with these ids, those that nothing was measured on, by their models."""
        here = {one.where.gpu for one in self.observations}
        models = {gpu.id: gpu.model for gpu in self.published.hardware.gpus}
        return tuple(models.get(name, name) for name in names if name not in here)

    def nothing(self, metric: str, selector: Selector, *, case: Collection[str] = ()) -> str:
        """Why there is no such observation, as half a sentence; it does not repeat the conditions that tell the `case`."""
        if selector.gpu and (absent := self.gpus_not_here(selector.gpu)):
            return f"no {' or '.join(absent)} here, but {self.device_name}"
        of_what = described(selector.model_copy(update=dict.fromkeys(case)))
        what = f"no {worded(metric)} of {of_what}" if of_what else f"no {worded(metric)}"
        reasons = dict.fromkeys(self._reasons(metric, selector))
        if selector.epoch is not None:
            trained = max((one.epoch for one in self.observations if one.metric == metric and one.epoch), default=0)
            reasons = dict.fromkeys([f"{trained} epochs were trained"]) if trained else reasons
        return f"{what} ({'; '.join(list(reasons)[:2])})" if reasons else what

    def _reasons(self, metric: str, selector: Selector) -> list[str]:
        if metric == "full_training_time":
            return ["it is extrapolated from runs on images of the source's size alone"]
        own = {run.cell.id: run for run in self.cells if self.means(selector, run)}
        not_given = [one.why for one in self.missing if one.metric == metric and one.cell in own]
        return not_given or [not_run(run) for run in own.values() if not run.runs]

    def means(self, selector: Selector, run: CellRun) -> bool:
        """Whether a selector speaks of a cell; what only its observations tell, such as an epoch, is left open."""
        return selects(selector.model_copy(update={"state": None, "epoch": None}), run.cell)


def not_run(run: CellRun) -> str:
    """Why a cell has no runs."""
    return run.why or run.cell.why or "not run yet"


def worded(metric: str) -> str:
    """A metric in a sentence: `scaling efficiency`."""
    return metric.replace("_", " ")


def amount(one: Observation) -> Amount:
    """The figure of an observation with its interval; exact for a count, by definition, and where a source prints it."""
    exact = one.repeats == 0 or one.method == BY_DEFINITION or one.metric == _COUNT
    return Amount(one.value, one.ci95, one.freedom, exact=exact)


def shown(one: Observation, unit: str | None = None) -> str:
    """A figure as a sentence has it: `412 ± 6 images/s`."""
    return written(amount(one), unit or one.unit)


def written(figure: Amount, unit: str) -> str:
    """A number with its interval and unit; a ratio has no unit."""
    half = figure.ci95.half_width if figure.ci95 else 0.0
    spread = f" ± {half:,.0f}" if half >= 100 else f" ± {half:.2g}" if half else ""  # noqa: PLR2004 - two digits
    return f"{digits(figure.value)}{spread}{'' if unit == 'x' else ' ' + unit}"


def digits(value: float) -> str:
    """Four digits of a number, and all before the point of a long one: `3.249`, `65,702`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 - four digits


def in_unit(one: Observation, unit: str) -> Amount:
    """The figure of an observation in another unit of its quantity."""
    if one.unit == unit:
        return amount(one)
    if one.unit not in _FACTORS or unit not in _FACTORS or not {one.unit, unit} <= set(METRICS[one.metric]):
        raise ValueError(f"{one.metric} in {one.unit} can't be given in {unit}")
    return amount(one).scaled(_FACTORS[one.unit] / _FACTORS[unit])


def runs_of(*observations: Observation) -> tuple[str, ...]:
    """The runs behind observations, each once."""
    return tuple(dict.fromkeys(run for one in observations for run in one.runs))


def made_of(
    *observations: Observation, metric: str, unit: str, figure: Amount, method: str | None = None
) -> Observation:
    """A figure made of others, under the conditions of the first, with the fewest repeats, and all runs and differences of them."""
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
    """Why figures only indicate what they say: a degraded run among them, fewer runs than an interval takes, or no interval.

    Neither what is so by definition nor what a source printed is in doubt, nor are counts, or windows one by one, for want of an interval.
    """
    own = [one for one in observations if one.repeats and one.method != BY_DEFINITION]
    found = ["degraded runs"] if any(one.degraded for one in own) else []
    fewest = min((one.repeats for one in own), default=FEWEST_RUNS)
    if fewest < FEWEST_RUNS:
        found.append("1 run" if fewest == 1 else f"{fewest} runs")
    elif any(one.ci95 is None and one.iterations is None and one.metric != _COUNT for one in own):
        found.append("no interval")
    return tuple(found)


def together(answers: Sequence[Answer]) -> Answer:
    """One answer to all cases: one that fails is enough, and what could not be told is said beside it."""
    failed = [one for one in answers if one.holds is False]
    held = [one for one in answers if one.holds]
    untold = [one for one in answers if one.holds is None]
    decided = failed or held
    if not decided:
        return Answer(holds=None, why=_listed(untold, all_of_them=True) or "no figures")
    parts = [_listed(failed)] if failed else []
    if held:
        parts.append(f"{'but ' if failed else ''}{_listed(held)}")
    if untold:
        parts.append(f"not told: {_listed(untold)}")
    runs = tuple(dict.fromkeys(run for one in (*failed, *held) for run in one.runs))
    return Answer(holds=not failed, why="; ".join(parts), runs=runs, doubts=in_doubt(decided))


def in_doubt(decided: Sequence[Answer]) -> tuple[str, ...]:
    """The doubts about what answers decide together: of those that hold all count, of those that fail one without any is enough."""
    if any(one.holds is False and not one.doubts for one in decided):
        return ()
    return tuple(dict.fromkeys(doubt for one in decided for doubt in one.doubts))


def _listed(answers: Sequence[Answer], *, all_of_them: bool = False) -> str:
    """Sentences, each once, with the cases that it is said of; what is said of all of them goes without."""
    cases: dict[str, list[str]] = {}
    for one in answers:
        cases.setdefault(one.why, []).append(one.case)
    alike = all_of_them and len(cases) == 1
    texts = []
    for why, own in cases.items():
        named = ", ".join(dict.fromkeys(case for case in own if case))
        texts.append(f"{named}: {why}" if named and not alike else why)
    more = len(texts) - SHOWN
    return "; ".join(texts[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
