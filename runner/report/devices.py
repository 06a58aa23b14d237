"""Trainings that several GPUs of a kind ran, each by itself: the types of the report on how much GPUs differ, and its tables as Markdown.

Nothing here is computed: `runner/across/devices.py` makes these values.
"""

from __future__ import annotations

from typing import Final

from runner.frozen import Frozen
from runner.grading.model import Interval
from runner.report.block import ABSENT, Block, section
from runner.report.figures import PLUS_MINUS, figure, half_width
from runner.report.summary import Status

LEGEND: Final = (
    f"a training: one version of the programs and of what they ran in; {PLUS_MINUS}; of one GPU it knows of that GPU only; ÷ slowest has none, "
    "as its GPUs were picked by their rates; clock: mean of the SMs'; degraded: on so many of the GPUs"
)
STANDINGS_LEGEND: Final = "least, median, largest of a GPU: its rate ÷ the median of the GPUs that ran the same training, over the trainings that it ran"
_DIGITS: Final = 12
"""Of a UUID that are shown."""


class OnGpu(Frozen):
    """A training on one of the GPUs.

    Attributes:
        uuid: the GPU, as its driver names it.
        rate: samples a second, of its runs together.
        clock_mhz: mean clock of the SMs; None where nobody looked on.
        status: of the runs together.
        runs: their ids.
    """

    uuid: str
    rate: float
    rate_ci95: Interval | None
    clock_mhz: float | None
    status: Status
    runs: tuple[str, ...]


class Training(Frozen):
    """One training on several GPUs.

    Attributes:
        label: what was trained, in words.
        gpus: slowest first.
        ratio: rate of the fastest over that of the slowest.
    """

    label: str
    gpus: tuple[OnGpu, ...]
    ratio: float

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of all its runs."""
        return tuple(run for gpu in self.gpus for run in gpu.runs)

    @property
    def degraded(self) -> int:
        """GPUs of which a run never settled, or saw the GPU throttled or shared."""
        return sum(gpu.status == "degraded" for gpu in self.gpus)


class Standing(Frozen):
    """How one GPU did beside the others.

    Attributes:
        uuid: the GPU.
        trainings: how many it shares with others.
        low, median, high: of its rates, each over the median rate of the GPUs that ran the same.
    """

    uuid: str
    trainings: int
    low: float
    median: float
    high: float


class Devices(Frozen):
    """How much GPUs of a kind differ.

    Attributes:
        name: of its reports.
        title: framework, version, how many trainings.
        ground: GPU, driver and engine, and when, in one line.
        unit: of the rates.
        trainings: those that differ most first.
        median_ratio: the median of their ratios.
        standings: slowest first.
    """

    name: str
    title: str
    ground: str
    unit: str
    trainings: tuple[Training, ...]
    median_ratio: float
    standings: tuple[Standing, ...]

    @property
    def lead(self) -> str:
        """What it comes to, in one line."""
        return f"fastest of {len(self.standings)} GPUs ÷ slowest: median {self.median_ratio:.3f}, at most {self.trainings[0].ratio:.3f}"


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
