"""Trainings that several GPUs of a kind ran, each by itself: the types of the report on how much GPUs differ, and its tables as Markdown.

Nothing here is computed: `runner/analysis/comparisons/devices.py` makes these values.
"""

from __future__ import annotations

from typing import Final

from runner.analysis.comparisons.devices import Devices
from runner.core.units import ABSENT, PLUS_MINUS, figure, half_width
from runner.report.block import Block, section

LEGEND: Final = (
    f"a training: one version of the programs and of what they ran in; {PLUS_MINUS}; of one GPU it knows of that GPU only; ÷ slowest has none, "
    "as its GPUs were picked by their rates; clock: mean of the SMs'; degraded: on so many of the GPUs"
)
STANDINGS_LEGEND: Final = "least, median, largest of a GPU: its rate ÷ the median of the GPUs that ran the same training, over the trainings that it ran"
_DIGITS: Final = 12
"""Of a UUID that are shown."""


def reports(found: Devices) -> dict[str, str | bytes]:
    """The report by the name of its file."""
    return {f"{found.name}.md": markdown(found)}


def markdown(found: Devices) -> str:
    """It as a section in Markdown."""
    return section(
        f"{found.title}: devices",
        (found.lead, found.ground),
        (trainings(found), standings(found)),
        legend=f"{LEGEND}; {STANDINGS_LEGEND}",
        notes=(),
    )


def trainings(found: Devices) -> Block:
    """The table of trainings."""
    rows = found.trainings
    ends = {"slowest": [row.gpus[0] for row in rows], "fastest": [row.gpus[-1] for row in rows]}
    return Block.of(
        {
            "training": [row.label for row in rows],
            "GPUs": [str(len(row.gpus)) for row in rows],
            "runs": [str(len(row.runs)) for row in rows],
            **{f"{word}'s runs": [str(len(gpu.runs)) for gpu in gpus] for word, gpus in ends.items()},
            **{
                f"{word} ({found.unit}) ±": [figure(gpu.rate, half_width(gpu.rate_ci95)) for gpu in gpus]
                for word, gpus in ends.items()
            },
            "÷ slowest": [figure(row.ratio) for row in rows],
            **{f"{word}'s clock (MHz)": [figure(gpu.clock_mhz) for gpu in gpus] for word, gpus in ends.items()},
            "degraded": [str(row.degraded) if row.degraded else ABSENT for row in rows],
        }
    )


def standings(found: Devices) -> Block:
    """The table of GPUs."""
    rows = found.standings
    return Block.of(
        {
            "GPU": [row.uuid[:_DIGITS] for row in rows],
            "trainings": [str(row.trainings) for row in rows],
            "least": [f"{row.low:.3f}" for row in rows],
            "median": [f"{row.median:.3f}" for row in rows],
            "largest": [f"{row.high:.3f}" for row in rows],
        }
    )
