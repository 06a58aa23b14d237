"""One training in a container and beside it without one: the types of the cross-check, and its table as Markdown and CSV.

Nothing here is computed: `runner/analysis/comparisons/cross_check.py` makes these values.
"""

from __future__ import annotations

import csv
import io
from typing import Final

from runner.analysis.comparisons.cross_check import INCOMPARABLE, CrossCheck
from runner.core.units import ABSENT, PLUS_MINUS, ends, figure, half_width
from runner.report.block import Block
from runner.report.figures import runs
from runner.report.training import training_section

LEGEND: Final = (
    f"{PLUS_MINUS}; a ratio is of the same framework, CUDA, cuDNN, "
    "NCCL, Python, driver, machine and training programs, else there is none; first step: seconds from the start of the first container or "
    "process to the end of the first step, the median of the repeats"
)


def reports(found: CrossCheck) -> dict[str, str | bytes]:
    """The reports by the names of their files."""
    return {f"{found.name}.md": markdown(found), f"{found.name}.csv": to_csv(found)}


def markdown(found: CrossCheck) -> str:
    """It as a section in Markdown."""
    return training_section(found, "engines", block(found), legend=LEGEND)


def block(found: CrossCheck) -> Block:
    """The table; columns of which nothing is known are left out."""
    every: dict[str, list[str]] = {
        "engine": [one.engine for one in found.rows],
        "ran from": [one.place for one in found.rows],
        "runs": [runs(one.row) for one in found.rows],
        f"{found.unit} ±": [figure(one.row.throughput, half_width(one.row.throughput_ci95)) for one in found.rows],
        f"÷ {found.bare} ±": [
            INCOMPARABLE if one.differs else figure(one.ratio, half_width(one.ratio_ci95)) for one in found.rows
        ],
        "differs in": [", ".join(one.differs) or ABSENT for one in found.rows],
        "first step (s)": [figure(one.first_step_s) for one in found.rows],
        "validity": [one.row.status for one in found.rows],
    }
    return Block.of(every)


def to_csv(found: CrossCheck) -> str:
    """One line a row, full precision, an empty field where there is no figure."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    software = [name for name, _ in found.rows[0].software]
    lines.writerow(
        (
            *("engine", "ran_from", *(name.lower().replace(" ", "_") for name in software)),
            *("throughput", "throughput_ci95_low", "throughput_ci95_high", "unit"),
            *(f"ratio_to_{found.bare}", "ratio_ci95_low", "ratio_ci95_high", "differs_in"),
            *("first_step_s", "repeats", "status", "runs"),
        )
    )
    for one in found.rows:
        lines.writerow(
            (
                *(one.engine, one.reference, *(value for _, value in one.software)),
                *(one.row.throughput, *ends(one.row.throughput_ci95), one.row.unit),
                *(one.ratio, *ends(one.ratio_ci95), "; ".join(one.differs)),
                *(one.first_step_s, one.row.repeats, one.row.status, " ".join(one.runs)),
            )
        )
    return text.getvalue()
