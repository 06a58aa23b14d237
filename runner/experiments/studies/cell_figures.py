"""The figures of one cell while they are collected: its usable runs, and what was found in them or is missing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.core.record import RunRecord
from runner.experiments.studies.differences import device_names
from runner.experiments.studies.model import CellRun, Machine, Missing, Observation
from runner.experiments.studies.noise import Amount, mean_of

Runs = Sequence[RunRecord]


@dataclass
class CellFigures:
    """Collects the figures of a cell: `measured` are its usable runs without a profiler, `passes` its usable profiling passes."""

    run: CellRun
    machine: Machine
    backward_separate: bool
    observations: list[Observation] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def __post_init__(self) -> None:
        usable = [one for one in self.run.runs if one.validity.status != "invalid"]
        self.measured = [one for one in usable if not one.profiled]
        self.passes = [one for one in usable if one.profiled]
        self.on_cpu = self.run.cell.where.device == "cpu" or self.machine.device == "cpu"

    @property
    def shortened(self) -> bool:
        """Whether the runs are shorter than the source's."""
        return any(one.field == "iterations" and not one.declared for one in self.run.cell.altered)

    def why_unusable(self) -> str:
        """Say why there is no usable measured run."""
        reasons = [reason for one in self.run.runs for reason in one.validity.reasons]
        return self.run.why or next(iter(reasons), None) or "no run of this cell can be used"

    def add(self, metric: str, unit: str, figure: Amount | float, runs: Runs, **more: object) -> None:
        """Add a figure; `more` are further fields of the observation, or `gpu_index`, which goes to its conditions."""
        cell, trial = self.run.cell, runs[0].trial
        amount = figure if isinstance(figure, Amount) else Amount(figure)
        index = more.pop("gpu_index", None)
        unnamed = self.machine.device_name if trial.device == self.machine.device else "unnamed processor"
        fields = {
            "metric": metric,
            "unit": unit,
            "value": amount.value,
            "ci95": amount.ci95,
            "freedom": amount.freedom,
            "where": cell.where if index is None else cell.where.model_copy(update={"gpu_index": index}),
            "case": cell.case,
            "device": trial.device,
            "device_name": " and ".join(device_names(runs[0])) or unnamed,
            "repeats": len({one.trial.repeat for one in runs}),
            "degraded": sum(one.validity.status != "valid" for one in runs),
            "runs": tuple(one.run_id for one in runs),
            "altered": tuple(one.field for one in cell.altered),
            "extra": cell.extra,
        }
        self.observations.append(Observation.model_validate(fields | more))

    def add_mean(self, metric: str, unit: str, values: Sequence[float], runs: Runs, **more: object) -> None:
        """Add the mean of one number per repeat, with Student's interval."""
        self.add(metric, unit, mean_of(values), runs, **more)

    def add_missing(self, why: str, *metrics: str) -> None:
        """Add the reason why these figures are missing."""
        self.missing += [Missing(cell=self.run.cell.id, metric=metric, why=why) for metric in metrics]
