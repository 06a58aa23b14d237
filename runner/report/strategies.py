"""One training on the same devices, its ranks together in several ways: the types of the report on strategies, and its table as Markdown.

Nothing here is computed: `runner/analysis/comparisons/strategies.py` makes these values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from runner.analysis.comparisons.strategies import Strategies
from runner.core.measurement import StepParts
from runner.core.units import PLUS_MINUS, figure, half_width, milliseconds, percent
from runner.report.block import Block
from runner.report.figures import runs
from runner.report.training import training_section

LEGEND: Final = (
    f"{PLUS_MINUS}; efficiency: against one device; step: wall time; exchange alone: all gradients, by the probe, nothing hidden; "
    "communication: the exchange that compute did not hide, and the update"
)

_PARTS: Final[dict[str, Callable[[StepParts], float | None]]] = {
    "step (ms)": lambda parts: parts.step_s,
    "exchange alone (ms)": lambda parts: parts.exchange_alone_s,
    "communication (ms)": lambda parts: parts.communication_s,
}


def reports(found: Strategies) -> dict[str, str | bytes]:
    """The report by the name of its file."""
    return {f"{found.name}.md": markdown(found)}


def markdown(found: Strategies) -> str:
    """It as a section in Markdown."""
    return training_section(found, "strategies", block(found), legend=LEGEND)


def block(found: Strategies) -> Block:
    """The table; columns of which nothing is known are left out."""
    rows = [way.row for way in found.ways]
    every: dict[str, list[str]] = {
        "strategy": [way.label for way in found.ways],
        "runs": [runs(row) for row in rows],
        f"{found.unit} ±": [figure(row.throughput, half_width(row.throughput_ci95)) for row in rows],
        "÷ first ±": [figure(way.ratio, half_width(way.ratio_ci95)) for way in found.ways],
        "efficiency (%) ±": [
            figure(percent(row.efficiency), half_width(row.efficiency_ci95, scale=100)) for row in rows
        ],
        **{
            header: [figure(milliseconds(read(row.parts) if row.parts else None)) for row in rows]
            for header, read in _PARTS.items()
        },
        "validity": [row.status for row in rows],
    }
    return Block.of(every)
