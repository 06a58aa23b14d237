"""One training with more and more techniques: the types of its ablation, and the table as Markdown and on a terminal.

Nothing here is computed: `runner/analysis/comparisons/ablation.py` makes these values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from runner.analysis.comparisons.ablation import Ablation, Losses
from runner.core.units import ABSENT, PLUS_MINUS, figure, half_width
from runner.report.block import Block, laid_out
from runner.report.figures import runs
from runner.report.training import training_section

if TYPE_CHECKING:
    from rich.console import Group

LEGEND: Final = (
    f"each line has all that the lines above it have; {PLUS_MINUS}; "
    "loss: how far its losses, means of 10 steps, are from the plain program's with the same seed, and how far two seeds of that program are "
    "from each other at most: root mean square of the differences, and their mean"
)


def reports(found: Ablation) -> dict[str, str | bytes]:
    """The report by the name of its file."""
    return {f"{found.name}.md": markdown(found)}


def table(found: Ablation) -> Group:
    """Lay it out for a terminal."""
    return laid_out(
        f"{found.title}: ablation", (found.setting, found.ground), block(found), legend=LEGEND, notes=found.notes
    )


def markdown(found: Ablation) -> str:
    """The same as a section in Markdown."""
    return training_section(found, "ablation", block(found), legend=LEGEND)


def block(found: Ablation) -> Block:
    """The table; columns of which nothing is known are left out."""
    every: dict[str, list[str]] = {
        "line": [line.label for line in found.lines],
        "runs": [runs(line.row) for line in found.lines],
        f"{found.unit} ±": [figure(line.row.throughput, half_width(line.row.throughput_ci95)) for line in found.lines],
        "÷ first ±": [figure(line.ratio, half_width(line.ratio_ci95)) for line in found.lines],
        "÷ before ±": [figure(line.gain, half_width(line.gain_ci95)) for line in found.lines],
        "loss, RMS": [_of(line.losses, "distance", "spread") for line in found.lines],
        "loss, mean": [_of(line.losses, "shift", "sway") for line in found.lines],
        "validity": [line.row.status for line in found.lines],
    }
    return Block.of(every)


def _of(found: Losses | None, own: Literal["distance", "shift"], most: Literal["spread", "sway"]) -> str:
    if found is None:
        return ABSENT
    value, limit = getattr(found, own), getattr(found, most)
    return f"{figure(value)} of {figure(limit)}" + ("" if abs(value) <= limit else ", outside")
