"""What the suite itself costs, declared as one comparison for a terminal, Markdown, CSV and the page."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from runner.core import units
from runner.core.units import ABSENT, PLUS_MINUS
from runner.experiments.overhead.figures import Overhead, OverheadFigures, RunOnFile, SideName, overhead_figures
from runner.report.comparisons import Report
from runner.report.table import Table, code, escaped
from runner.results.store import read_events, read_record

LEGEND: Final = (
    "suite: a whole `dlscale bench`; unwatched: the same without samplers; host: the same by ENGINE=host; bare: a plain loop in the same "
    "environment, without the suite. Rates are samples ÷ seconds of all measured iterations; ÷ is of two sides of one round. Outside: seconds "
    "of the whole command beyond those of its program; first step: seconds from the start of the command to the end of the first step, and how "
    "much later than the bare loop's it is, its delay. All rounds: ratio of throughputs over all of them, of the steady windows (beside the bare "
    f"loop, of all measured iterations); {PLUS_MINUS}"
)
RATIO_DIGITS: Final = 4
"""Decimals of a ratio of one round: what is looked for is a part in a hundred."""


def from_file(raw: Overhead, folder: Path) -> Report:
    """The report of an overhead whose runs are in a folder; a RequestError where one is gone or damaged, a RunFailedError where one has no throughput."""
    names = {command.run_id for own in raw.rounds for command in own if command.run_id}
    runs = {name: RunOnFile(folder / name, read_record(folder / name), read_events(folder / name)) for name in names}
    return overhead_report(raw, overhead_figures(raw, runs))


def overhead_report(raw: Overhead, found: OverheadFigures) -> Report:
    """The report of figures; the terminal has the costs alone, since the rounds are too wide for one."""
    ratio, ci95 = found.together["unwatched"]
    on_off = units.figure(ratio, units.half_width(ci95))
    return Report(
        chapter="overheads",
        name=found.name,
        title=f"{found.title}: what the suite costs",
        lead=f"with samplers {on_off} of the throughput without them, {len(found.rounds)} rounds",
        lines=(found.setting, found.ran_on),
        measured=(f"{code(shlex.join(raw.command))}{f', commit {escaped(raw.commit)}' if raw.commit else ''}",),
        tables=(costs(found), rounds(found), commands(found)),
        legends=(LEGEND,),
        notes=found.notes,
        csv=[
            {
                "round": number,
                "side": one.side,
                "run": one.run_id,
                "rate": one.rate,
                "unit": found.unit,
                "command_s": one.command_s,
                "program_s": one.program_s,
                "outside_s": one.outside_s,
                "first_step_s": one.first_step_s,
            }
            for number, each in enumerate(found.rounds, start=1)
            for one in each.values()
        ],
        runs=found.runs,
    )


def costs(found: OverheadFigures) -> Table:
    """One line a cost: the middle of the rounds and their ends, and where it is one the ratio of all rounds together."""
    named: tuple[tuple[str, SideName], ...] = (("unwatched", "unwatched"), ("host", "host"), ("bare loop", "bare"))
    every = [
        (f"throughput ÷ {name}", _known(found.ratios_to(side)), RATIO_DIGITS, _together(found, side))
        for name, side in named
    ]
    every += [
        ("outside of the program (s)", _known(each["suite"].outside_s for each in found.rounds), 2, ABSENT),
        ("delay of the first step (s)", _known(found.delays_s), 2, ABSENT),
    ]
    rows = []
    for label, values, digits, together in every:
        if values:
            middle = (statistics.median(values), min(values), max(values))
            rows.append((label, f"{len(values):,}", *(f"{value:.{digits}f}" for value in middle), together))
        elif together != ABSENT:
            rows.append((label, ABSENT, ABSENT, ABSENT, ABSENT, together))
    columns = ("cost", "rounds", "median", "smallest", "largest", "all rounds ±")
    return Table(title="Costs", columns=columns, rows=tuple(rows))


def rounds(found: OverheadFigures) -> Table:
    """One line a round; columns of sides that were not run are left out."""
    every: dict[str, list[str]] = {"round": [str(number + 1) for number in range(len(found.rounds))]}
    names: tuple[SideName, ...] = ("suite", "unwatched", "host", "bare")
    for name in names:
        every[f"{name} ({found.unit})"] = [
            f"{each[name].rate:,.1f}" if name in each else ABSENT for each in found.rounds
        ]
        if name != "suite":
            every[f"÷ {name}"] = [_cell(ratio, RATIO_DIGITS) for ratio in found.ratios_to(name)]
    every["outside (s)"] = [_cell(each["suite"].outside_s, 2) for each in found.rounds]
    every["delay (s)"] = [_cell(delay, 2) for delay in found.delays_s]
    columns = {name: cells.__getitem__ for name, cells in every.items()}
    return Table.of(range(len(found.rounds)), columns, title="Rounds")


def commands(found: OverheadFigures) -> Table:
    """One line a command, in the order in which they ran, with the run that it left."""
    columns = ("run", "round", "side", f"{found.unit}", "command (s)", "program (s)", "first step (s)")
    rows = [
        (
            *(one.run_id or ABSENT, str(number), one.side, f"{one.rate:,.3f}", _cell(one.command_s, 3)),
            *(_cell(one.program_s, 3), _cell(one.first_step_s, 3)),
        )
        for number, each in enumerate(found.rounds, start=1)
        for one in each.values()
    ]
    return Table(title="Commands", columns=columns, rows=tuple(rows))


def _together(found: OverheadFigures, side: SideName) -> str:
    """A ratio of all rounds, with as many digits as those of single rounds."""
    if side == "host" and found.differs:
        return f"not comparable: {', '.join(found.differs)}"
    ratio, ci95 = found.together[side]
    return _cell(ratio, RATIO_DIGITS) + (f" ± {ci95.half_width:.{RATIO_DIGITS}f}" if ci95 else "")


def _known(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None)


def _cell(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"
