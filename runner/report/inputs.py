"""The same training on synthetic samples and on real ones: the types of the report on its input, and the table as Markdown.

Nothing here is computed: `runner/analysis/comparisons/inputs.py` makes these values.
"""

from __future__ import annotations

from typing import Final

from runner.analysis.comparisons.inputs import InputReport
from runner.core.units import ABSENT, PLUS_MINUS, figure, half_width, milliseconds
from runner.report.block import Block
from runner.report.figures import runs
from runner.report.training import training_section

LEGEND: Final = (
    f"{PLUS_MINUS}; input of a step: what the loop waited for its "
    "batch and compute did not hide; input alone: what the input delivers after the training, with nobody training, the median of the repeats; "
    "limit: the input where, alone, it delivers less than the training takes of synthetic samples"
)


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
