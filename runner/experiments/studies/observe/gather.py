"""The runs of one cell that may be used, and what to make `Observation`s of them with. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.core.record import RunRecord
from runner.experiments.studies.differences import device_names
from runner.experiments.studies.model import CellRun, Machine, Missing, Observation, Run
from runner.experiments.studies.noise import Amount, mean_of

NO_GPU = "no NVIDIA device"


@dataclass
class Gathered:
    """What a cell gives, one quantity after the other.

    Attributes:
        run: the cell with its runs.
        backward_apart: whether other cells of the study look at the backward pass alone, and so tell what belongs to it.
        measured: runs without a profiler that may be used.
        passes: those under one.
    """

    run: CellRun
    machine: Machine
    backward_apart: bool = False
    observations: list[Observation] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def __post_init__(self) -> None:
        usable = [one for one in self.run.runs if one.record.validity.status != "invalid"]
        self.measured: tuple[Run, ...] = tuple(one for one in usable if not one.record.profiled)
        self.passes: tuple[Run, ...] = tuple(one for one in usable if one.record.profiled)

    @property
    def on_cpu(self) -> bool:
        """Whether the devices were CPUs, of the source's own or in place of its GPUs."""
        return self.run.cell.where.device == "cpu" or self.machine.device == "cpu"

    def why_none(self) -> str:
        """Why there is no usable measured run."""
        reasons = [reason for one in self.run.runs for reason in one.record.validity.reasons]
        return self.run.why or next(iter(reasons), None) or "no run of this cell can be used"

    def add(self, metric: str, unit: str, figure: Amount, runs: Sequence[Run], **more: object) -> None:
        """Keep a figure; `more` are further fields of the observation, and `gpu_index` of its conditions."""
        index = more.pop("gpu_index", None)
        where = self.run.cell.where if index is None else self.run.cell.where.model_copy(update={"gpu_index": index})
        record = runs[0].record
        self.observations.append(
            Observation.model_validate(
                {
                    "metric": metric,
                    "unit": unit,
                    "value": figure.value,
                    "ci95": figure.ci95,
                    "freedom": figure.freedom,
                    "where": where,
                    "case": self.run.cell.case,
                    "device": record.trial.device,
                    "device_name": _device_name(record, self.machine),
                    "repeats": len({one.record.trial.repeat for one in runs}),
                    "degraded": sum(one.record.validity.status != "valid" for one in runs),
                    "runs": tuple(one.record.run_id for one in runs),
                    "altered": tuple(one.field for one in self.run.cell.altered),
                    "extra": self.run.cell.extra,
                    **more,
                }
            )
        )

    def add_mean(self, metric: str, unit: str, values: Sequence[float], runs: Sequence[Run], **more: object) -> None:
        """Keep the mean of repeats of which each gives one number, with Student's interval."""
        self.add(metric, unit, mean_of(values), runs, **more)

    def lack(self, why: str, *metrics: str) -> None:
        """Keep why there are no such figures."""
        self.missing += [Missing(cell=self.run.cell.id, metric=metric, why=why) for metric in metrics]


def _device_name(record: RunRecord, machine: Machine) -> str:
    """As the record has it; the machine's where that does not say."""
    own = machine.device_name if record.trial.device == machine.device else "unnamed processor"
    return " and ".join(device_names(record)) or own
