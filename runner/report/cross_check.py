"""One training in a container and beside it without one: the types of the cross-check, and its table as Markdown and CSV.

Nothing here is computed: `runner/across/cross_check.py` makes these values.
"""

from __future__ import annotations

import csv
import io
from typing import Final

from runner.frozen import Frozen
from runner.grading.model import Interval
from runner.report.block import ABSENT, Block
from runner.report.figures import PLUS_MINUS, ends, figure, half_width, runs
from runner.report.summary import Row
from runner.report.training import TrainingReport, training_section

LEGEND: Final = (
    f"{PLUS_MINUS}; a ratio is of the same framework, CUDA, cuDNN, "
    "NCCL, Python, driver, machine and training programs, else there is none; first step: seconds from the start of the first container or "
    "process to the end of the first step, the median of the repeats"
)
INCOMPARABLE: Final = "not comparable"


class EngineRow(Frozen):
    """What one engine made of a training, from one image or installation.

    Attributes:
        engine: what ran it.
        reference: what it ran from: an image, a locked environment, or a package of the machine's own Python.
        apart: what of that tells it from other rows of the same engine and reference, in words; empty where there are none.
        software: what the program said of itself and the machine of its surroundings, each with its name.
        row: the runs together.
        ratio: throughput over that of the bare runs; None of these themselves, and where one of the two may not be used or differs.
        differs: names of what is not the same as in the nearest bare runs; empty where all is.
        first_step_s: median of the repeats.
        runs: ids of the runs.
    """

    engine: str
    reference: str
    apart: str = ""
    software: tuple[tuple[str, str], ...]
    row: Row
    ratio: float | None
    ratio_ci95: Interval | None
    differs: tuple[str, ...]
    first_step_s: float | None
    runs: tuple[str, ...]

    @property
    def label(self) -> str:
        """Engine and what it ran from: `docker, hostroot:1`."""
        return f"{self.engine}, {self.place}"

    @property
    def place(self) -> str:
        """What it ran from, told from others of the same name: `hostroot:1, training programs 8d3e`."""
        return f"{self.reference}, {self.apart}" if self.apart else self.reference


class CrossCheck(TrainingReport):
    """One training by several engines.

    Attributes:
        bare: the engine without a container that the others are held against.
        rows: the barest first.
    """

    bare: str
    rows: tuple[EngineRow, ...]


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
