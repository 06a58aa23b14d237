"""Runs of cells → observations in the vocabulary of published metrics. Pure.

Repeats are pooled as everywhere: samples of all ÷ seconds of all, with an interval over runs; of what a run gives one number for, their
mean with Student's. A quantity that a cell was to give and did not is `Missing`, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.experiments.studies.model import CellRun, Machine, Missing, Observation
from runner.experiments.studies.observe import devices, passes, runs
from runner.experiments.studies.observe.derived import derived
from runner.experiments.studies.observe.gather import Gathered
from runner.results.published.model import Published


def observed(
    found: Sequence[CellRun], *, published: Published, machine: Machine
) -> tuple[tuple[Observation, ...], tuple[Missing, ...]]:
    """Everything that the cells give, and what they do not."""
    observations: list[Observation] = []
    missing: list[Missing] = []
    backward_apart = any(run.cell.where.technique == "backward" for run in found)
    for run in found:
        if run.runs:
            cell = _gathered(Gathered(run=run, machine=machine, backward_apart=backward_apart))
            observations += cell.observations
            missing += cell.missing
    return (*observations, *derived(observations, published)), tuple(missing)


def _gathered(cell: Gathered) -> Gathered:
    if cell.run.cell.case is not None:
        if cell.measured:
            runs.of_case(cell)
        else:
            cell.lack(cell.why_none(), "total_time")
        return cell
    if cell.measured:
        runs.rates(cell)
        runs.times(cell)
        runs.quality(cell)
        devices.devices(cell)
    elif not cell.passes:
        cell.lack(cell.why_none(), "throughput", "training_time")
    passes.passes(cell)
    return cell
