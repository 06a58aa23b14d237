"""The same training on synthetic samples and on real ones: the types of the report on its input, and the table as Markdown.

Nothing here is computed: `runner/across/inputs.py` makes these values.
"""

from __future__ import annotations

from typing import Final, Literal

from runner.frozen import Frozen
from runner.grading.model import Interval
from runner.report.block import ABSENT, Block
from runner.report.figures import PLUS_MINUS, figure, half_width, milliseconds, runs
from runner.report.summary import Row
from runner.report.training import TrainingReport, training_section

LEGEND: Final = (
    f"{PLUS_MINUS}; input of a step: what the loop waited for its "
    "batch and compute did not hide; input alone: what the input delivers after the training, with nobody training, the median of the repeats; "
    "limit: the input where, alone, it delivers less than the training takes of synthetic samples"
)


class Source(Frozen):
    """What a training was fed with, and what came of it.

    Attributes:
        label: which samples, what decoded them, and how many loader workers prepared them.
        synthetic: whether one batch that was there from the start was all its input.
        row: the runs together.
        ratio: throughput over that of synthetic samples; None unless both may be used.
        alone_per_s: samples a second that the input delivers by itself; None where the program does not tell.
        limit: what keeps the training from being faster; None where that is not known.
        runs: ids of the runs.
    """

    label: str
    synthetic: bool
    row: Row
    ratio: float | None
    ratio_ci95: Interval | None
    alone_per_s: float | None
    limit: Literal["input", "training"] | None
    runs: tuple[str, ...]


class InputReport(TrainingReport):
    """One training on synthetic samples and on real ones.

    Attributes:
        sources: synthetic first, then by what decodes and by loader workers.
    """

    sources: tuple[Source, ...]


def reports(found: InputReport) -> dict[str, str | bytes]:
    """The report by the name of its file."""
    return {f"{found.name}.md": markdown(found)}


def markdown(found: InputReport) -> str:
    """It as a section in Markdown."""
    return training_section(found, "input", block(found), legend=LEGEND)


def block(found: InputReport) -> Block:
    """The table; columns of which nothing is known are left out."""
    every: dict[str, list[str]] = {
        "input": [one.label for one in found.sources],
        "runs": [runs(one.row) for one in found.sources],
        f"{found.unit} ±": [figure(one.row.throughput, half_width(one.row.throughput_ci95)) for one in found.sources],
        "÷ synthetic ±": [figure(one.ratio, half_width(one.ratio_ci95)) for one in found.sources],
        "input of a step (ms)": [
            figure(milliseconds(one.row.parts.input_s if one.row.parts else None)) for one in found.sources
        ],
        f"input alone ({found.unit})": [figure(one.alone_per_s) for one in found.sources],
        "limit": [one.limit or ABSENT for one in found.sources],
        "validity": [one.row.status for one in found.sources],
    }
    return Block.of(every)
