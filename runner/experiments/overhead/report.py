"""What the suite itself costs: the types of the report, and its tables for a terminal, as Markdown and as CSV.

Nothing here is computed but differences, quotients and medians of what `runner/experiments/overhead/figures.py` made.
"""

from __future__ import annotations

import csv
import io
import shlex
import statistics
from typing import TYPE_CHECKING, Final

from runner.analysis.comparisons.alike import TrainingReport
from runner.core import units
from runner.core.frozen import Frozen
from runner.core.measurement import Interval
from runner.core.units import ABSENT, PLUS_MINUS
from runner.experiments.overhead.raw import SideName
from runner.report.block import Block, code, escaped, laid_out, section
from runner.report.comparison import anchor
from runner.report.page.model import Block as PageBlock
from runner.report.page.model import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Group

LEGEND: Final = (
    "suite: a whole `dlscale bench`; unwatched: the same without samplers; host: the same by ENGINE=host; bare: a plain loop in the same "
    "environment, without the suite. Rates are samples ÷ seconds of all measured iterations; ÷ is of two sides of one round. Outside: seconds "
    "of the whole command beyond those of its program; first step: seconds from the start of the command to the end of the first step, and how "
    "much later than the bare loop's it is, its delay. All rounds: ratio of throughputs over all of them, of the steady windows (beside the bare "
    f"loop, of all measured iterations); {PLUS_MINUS}"
)
RATIO_DIGITS: Final = 4
"""Decimals of a ratio of one round: what is looked for is a part in a hundred."""


class SideFigures(Frozen):
    """One side of a round.

    Attributes:
        rate: samples a second.
        first_step_s: seconds from the start of the command to the end of its first step.
        command_s: seconds of the whole command.
        program_s: of these, the program's; None of the bare loop, which is its program.
    """

    side: SideName
    rate: float
    first_step_s: float
    command_s: float
    program_s: float | None
    run_id: str | None

    @property
    def outside_s(self) -> float | None:
        """Seconds that the command took beyond its program."""
        return None if self.program_s is None else self.command_s - self.program_s


class RoundFigures(Frozen):
    """The sides of one round, in the order in which they ran."""

    sides: tuple[SideFigures, ...]

    def of(self, name: SideName) -> SideFigures | None:
        """One of them; None where it was not run."""
        return next((one for one in self.sides if one.side == name), None)

    def ratio_to(self, name: SideName) -> float | None:
        """Throughput of the suite over that of another side."""
        suite, other = self.of("suite"), self.of(name)
        return suite.rate / other.rate if suite and other else None

    @property
    def outside_s(self) -> float | None:
        """Seconds of the suite's command beyond its program."""
        suite = self.of("suite")
        return suite.outside_s if suite else None

    @property
    def delay_s(self) -> float | None:
        """How much later than the bare loop the suite made its first step."""
        suite, bare = self.of("suite"), self.of("bare")
        return suite.first_step_s - bare.first_step_s if suite and bare else None


class OverheadReport(TrainingReport):
    """What the suite costs.

    Attributes:
        command: the argv that measured it.
        commit: of the suite.
        telemetry_ratio: throughput with samplers over that without, all rounds together.
        bare_ratio: throughput of all measured iterations over that of the bare loop; None where it was not run.
        host_ratio: throughput over that by ENGINE=host; None where it was not run, or is other software.
        differs: names of what is not the same there.
    """

    command: tuple[str, ...]
    commit: str | None
    rounds: tuple[RoundFigures, ...]
    telemetry_ratio: float | None
    telemetry_ratio_ci95: Interval | None
    host_ratio: float | None
    host_ratio_ci95: Interval | None
    bare_ratio: float | None
    bare_ratio_ci95: Interval | None
    differs: tuple[str, ...]

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of all runs."""
        return tuple(one.run_id for each in self.rounds for one in each.sides if one.run_id)

    def ratios_to(self, name: SideName) -> tuple[float, ...]:
        """Of each round; none to a host with other software."""
        if name == "host" and self.differs:
            return ()
        found = (each.ratio_to(name) for each in self.rounds)
        return tuple(one for one in found if one is not None)


def reports(found: OverheadReport) -> dict[str, str | bytes]:
    """The reports by the names of their files."""
    return {f"{found.name}.md": markdown(found), f"{found.name}.csv": to_csv(found)}


def table(found: OverheadReport) -> Group:
    """Lay the costs out for a terminal; the rounds are too wide for one."""
    return laid_out(
        f"{found.title}: what the suite costs",
        (found.setting, found.ran_on),
        costs(found),
        legend=LEGEND,
        notes=found.notes,
    )


def markdown(found: OverheadReport) -> str:
    """A section in Markdown: the costs, every round, and every command with its run."""
    measured = f"{code(shlex.join(found.command))}{f', commit {escaped(found.commit)}' if found.commit else ''}"
    return section(
        f"{found.title}: what the suite costs",
        (found.setting, found.ran_on),
        (costs(found), rounds(found), commands(found)),
        legend=LEGEND,
        notes=found.notes,
        measured=(measured,),
    )


def costs(found: OverheadReport) -> Block:
    """One line a cost: the middle of the rounds and their ends, and where it is one the ratio of all rounds together."""
    rows = []
    for label, values, digits, together in (
        (
            "throughput ÷ unwatched",
            found.ratios_to("unwatched"),
            RATIO_DIGITS,
            _together(found.telemetry_ratio, found.telemetry_ratio_ci95),
        ),
        ("throughput ÷ host", found.ratios_to("host"), RATIO_DIGITS, _host(found)),
        (
            "throughput ÷ bare loop",
            found.ratios_to("bare"),
            RATIO_DIGITS,
            _together(found.bare_ratio, found.bare_ratio_ci95),
        ),
        ("outside of the program (s)", _known(each.outside_s for each in found.rounds), 2, ABSENT),
        ("delay of the first step (s)", _known(each.delay_s for each in found.rounds), 2, ABSENT),
    ):
        if values:
            middle = (statistics.median(values), min(values), max(values))
            rows.append((label, f"{len(values):,}", *(f"{value:.{digits}f}" for value in middle), together))
        elif together != ABSENT:
            rows.append((label, ABSENT, ABSENT, ABSENT, ABSENT, together))
    return Block(headers=("cost", "rounds", "median", "smallest", "largest", "all rounds ±"), rows=tuple(rows))


def rounds(found: OverheadReport) -> Block:
    """One line a round; columns of sides that were not run are left out."""
    every: dict[str, list[str]] = {"round": [str(number + 1) for number in range(len(found.rounds))]}
    names: tuple[SideName, ...] = ("suite", "unwatched", "host", "bare")
    for name in names:
        own = [each.of(name) for each in found.rounds]
        every[f"{name} ({found.unit})"] = [f"{one.rate:,.1f}" if one else ABSENT for one in own]
        if name != "suite":
            every[f"÷ {name}"] = _cells([each.ratio_to(name) for each in found.rounds], RATIO_DIGITS)
    if found.differs:
        every["÷ host"] = [ABSENT] * len(found.rounds)
    every["outside (s)"] = _cells([each.outside_s for each in found.rounds], 2)
    every["delay (s)"] = _cells([each.delay_s for each in found.rounds], 2)
    return Block.of(range(len(found.rounds)), {name: cells.__getitem__ for name, cells in every.items()})


def commands(found: OverheadReport) -> Block:
    """One line a command, in the order in which they ran, with the run that it left."""
    headers = ("run", "round", "side", f"{found.unit}", "command (s)", "program (s)", "first step (s)")
    rows = [
        (
            *(one.run_id or ABSENT, str(number), one.side, f"{one.rate:,.3f}", f"{one.command_s:.3f}"),
            *(ABSENT if one.program_s is None else f"{one.program_s:.3f}", f"{one.first_step_s:.3f}"),
        )
        for number, each in enumerate(found.rounds, start=1)
        for one in each.sides
    ]
    return Block(headers=headers, rows=tuple(rows))


def to_csv(found: OverheadReport) -> str:
    """One line a command, in the order in which they ran, full precision, an empty field where there is no figure."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(
        ("round", "side", "run", "rate", "unit", "command_s", "program_s", "outside_s", "first_step_s"),
    )
    for number, each in enumerate(found.rounds, start=1):
        for one in each.sides:
            seconds = (one.command_s, one.program_s, one.outside_s, one.first_step_s)
            lines.writerow((number, one.side, one.run_id, one.rate, found.unit, *seconds))
    return text.getvalue()


def _host(found: OverheadReport) -> str:
    if found.differs:
        return f"not comparable: {', '.join(found.differs)}"
    return _together(found.host_ratio, found.host_ratio_ci95)


def _together(ratio: float | None, interval: Interval | None) -> str:
    """A ratio of all rounds, with as many digits as those of single rounds."""
    if ratio is None:
        return ABSENT
    return f"{ratio:.{RATIO_DIGITS}f}" + (f" ± {interval.half_width:.{RATIO_DIGITS}f}" if interval else "")


def _known(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None)


def _cells(values: list[float | None], digits: int) -> list[str]:
    return [ABSENT if value is None else f"{value:.{digits}f}" for value in values]


def page_block(found: OverheadReport) -> PageBlock:
    """The costs as a block of the report page."""
    on_off = units.figure(found.telemetry_ratio, units.half_width(found.telemetry_ratio_ci95))
    tables = {
        "Costs": costs(found),
        "Rounds": rounds(found),
        "Commands": commands(found),
    }
    return PageBlock(
        anchor=anchor(found.name),
        title=f"{found.title}: what the suite costs",
        lead=f"with samplers {on_off} of the throughput without them, {len(found.rounds)} rounds",
        lines=(found.setting, found.ran_on, LEGEND),
        tables=tuple(Table(title=title, columns=one.headers, rows=one.rows) for title, one in tables.items()),
        notes=found.notes,
        runs=found.runs,
        stem=found.name,
    )
