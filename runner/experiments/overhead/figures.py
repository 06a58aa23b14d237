"""Figures and report of `dlscale overhead`, from the times of its commands (`overhead-....json`) and the records of their runs.

The file lies next to the records and holds no figures: recomputed from file, they are the same. A throughput ratio compares the two sides
of one round, which ran one after the other; next to the median there is the ratio of all rounds, with its interval over the runs of both
sides. A ratio to ENGINE=host requires the same software on the same machine; otherwise there is none.
"""

from __future__ import annotations

import json
import math
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import AwareDatetime, Field, field_validator, model_validator

from runner.analysis.comparisons.grouping import TrainingReport, ratio
from runner.analysis.comparisons.settings import nearest, software
from runner.analysis.grading import metrics
from runner.analysis.grading.metrics import GlobalWindows
from runner.analysis.summarize import summarize
from runner.core import units
from runner.core.errors import RunFailedError
from runner.core.events import Event, FirstStep, Phase, RunStop
from runner.core.frozen import FileName, Frozen, load_fields, reading, refuse_newer
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.units import ABSENT, PLUS_MINUS
from runner.report.comparisons import Report
from runner.report.table import Table, code, escaped, fixed
from runner.results.store import read_events, read_record

PREFIX: Final = "overhead-"
SCHEMA_VERSION: Final = 1

SideName = Literal["suite", "unwatched", "host", "bare"]


class Printed(Frozen):
    """What the bare loop, which leaves no record, printed.

    Attributes:
        rate_per_s: samples a second over all its measured iterations.
        first_step_s: seconds from the start of its process to the end of its first step.
    """

    rate_per_s: float
    first_step_s: float


class Command(Frozen):
    """One side of a round.

    Attributes:
        side: `suite`, all of `dlscale bench`; `unwatched`, the same without samplers; `host`, the same with ENGINE=host; `bare`, a plain loop.
        began_s, ended_s: start and end of the whole command on the machine's monotonic clock, the clock of the run's events.
        run_id: of its record; None for the bare loop.
        printed: set for the bare loop only.
    """

    side: SideName
    began_s: float
    ended_s: float
    run_id: FileName | None = None
    printed: Printed | None = None

    @model_validator(mode="after")
    def _leaves_a_record_or_prints(self) -> Command:
        if (self.run_id is None) is (self.printed is None):
            raise ValueError("a command either leaves a record or prints its figures")
        return self


class Overhead(Frozen):
    """One `dlscale overhead`.

    Attributes:
        name: of its reports, `overhead-` and its start time.
        made_at: when the last of these rounds ended; UTC.
        command: the argv that started it.
        commit: of the suite; None if it is not a checkout.
        rounds: the commands of each, in the order in which they ran.
    """

    schema_: int = Field(default=SCHEMA_VERSION, alias="schema")
    name: FileName
    made_at: AwareDatetime
    command: tuple[str, ...]
    commit: str | None
    rounds: tuple[tuple[Command, ...], ...] = Field(min_length=1)

    @field_validator("rounds")
    @classmethod
    def _have_the_suite(cls, rounds: tuple[tuple[Command, ...], ...]) -> tuple[tuple[Command, ...], ...]:
        if not all(any(command.side == "suite" for command in own) for own in rounds):
            raise ValueError("each round has a command of the suite")
        return rounds

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.name}.json"

    def to_json(self) -> str:
        """Return the contents of its file."""
        return self.model_dump_json(indent=1, by_alias=True) + "\n"


def read_overhead(path: Path) -> Overhead:
    """Read a file that `dlscale overhead` wrote.

    Raises:
        RequestError: it is damaged, or a newer version of the suite wrote it.
    """
    with reading(path, "is no file of `dlscale overhead`", step="name one that it left, or run it again"):
        fields = load_fields(path.read_text(encoding="utf-8"))
        refuse_newer(fields, path, newest=SCHEMA_VERSION)
        return Overhead.model_validate(fields)


def overhead_schema() -> str:
    """Return the JSON Schema of the file, as committed under `results/schema/`."""
    return json.dumps(Overhead.model_json_schema(by_alias=True), indent=1, sort_keys=True) + "\n"


@dataclass(frozen=True)
class RunOnFile:
    """A run read from its directory."""

    directory: Path
    record: RunRecord
    events: tuple[Event, ...]


class SideFigures(Frozen):
    """One side of a round: samples a second, and seconds from the start of the command to the end of its first step and to its own end.

    The first step of the bare loop is from the start of its process: the start of its container is in the suite's delay only.
    `program_s` is that of the program's process alone; None for the bare loop, whose command is its program.
    """

    side: SideName
    rate: float
    first_step_s: float
    command_s: float
    program_s: float | None = None
    run_id: str | None = None

    @property
    def outside_s(self) -> float | None:
        """Seconds of the command outside its program."""
        return None if self.program_s is None else self.command_s - self.program_s


class OverheadFigures(TrainingReport):
    """The cost of the suite; `differs` names versions, devices, machine or training programs that are not the same with ENGINE=host.

    The sides of each of `rounds` are in the order in which they ran. `together` has, by side, the ratio of throughputs over all rounds with its
    interval; each is None if it is unknown, e.g. because the side did not run, or because `differs` is not empty.
    """

    rounds: tuple[Mapping[SideName, SideFigures], ...]
    together: Mapping[SideName, tuple[float | None, Interval | None]]
    differs: tuple[str, ...]

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of all runs."""
        return tuple(one.run_id for each in self.rounds for one in each.values() if one.run_id)

    def ratios_to(self, name: SideName) -> tuple[float | None, ...]:
        """Return the suite's throughput ÷ another side's, per round; None if that side did not run, or is a host that `differs`."""
        other = () if name == "host" and self.differs else (name,)
        return tuple(
            next((each["suite"].rate / each[one].rate for one in other if one in each), None) for each in self.rounds
        )

    @property
    def delays_s(self) -> tuple[float | None, ...]:
        """Seconds by which the suite's first step ends later than the bare loop's, per round; None without a bare loop."""
        return tuple(
            each["suite"].first_step_s - each["bare"].first_step_s if "bare" in each else None for each in self.rounds
        )


def overhead_figures(raw: Overhead, runs: Mapping[str, RunOnFile]) -> OverheadFigures:
    """Compute every figure from the times and the runs that they name, by id. Raises RunFailedError if a run has no throughput."""
    rounds = tuple({command.side: _side(command, runs) for command in own} for own in raw.rounds)
    suite, unwatched, host = (_runs(raw, runs, name) for name in ("suite", "unwatched", "host"))
    differs = nearest(software(suite[0][1]), [software(host[0][1])]) if host else ()
    first = summarize(suite)
    to_unwatched, to_host = ratio(suite, unwatched), ratio(suite, () if differs else host)
    # The bare loop reports no windows: all measured iterations of each round count.
    whole, bare = (_rates_of(rounds, name) for name in ("suite", "bare"))
    to_bare = metrics.pooled_rate(whole) / metrics.pooled_rate(bare) if bare else None
    return OverheadFigures(
        name=raw.name,
        title=first.title,
        setting=f"{first.setting}, {first.rows[0].devices}",
        ran_on=f"{first.ran_on}{f' · host: {host[0][1].image.reference}' if host else ''}",
        unit=first.rate_unit,
        rounds=rounds,
        together={
            "unwatched": to_unwatched,
            "host": to_host,
            "bare": (to_bare, metrics.ratio_interval(whole, bare)),
        },
        differs=tuple(name for name, _, _ in differs),
        notes=tuple(_notes(differs, [record for _, record in (*suite, *unwatched, *host)])),
    )


def _side(command: Command, runs: Mapping[str, RunOnFile]) -> SideFigures:
    took = command.ended_s - command.began_s
    if printed := command.printed:
        return SideFigures(
            side=command.side, rate=printed.rate_per_s, first_step_s=printed.first_step_s, command_s=took
        )
    run = runs[command.run_id or ""]
    measured, validity = run.record.measurement, run.record.validity
    steps = [event.received for event in run.events if isinstance(event, FirstStep)]
    if validity.status == "invalid" or not measured.training_time_s or not steps:
        raise RunFailedError(f"{run.record.run_id} has no throughput: {'; '.join(validity.reasons)}")
    return SideFigures(
        side=command.side,
        rate=math.fsum(window.amount for window in measured.windows) / measured.training_time_s,
        first_step_s=steps[0] - command.began_s,
        command_s=took,
        program_s=program_s(run.events),
        run_id=run.record.run_id,
    )


def program_s(events: Sequence[Event]) -> float:
    """Return the seconds from the start of the program's process to its last `RunStop`, by its own clock."""
    starts = [event.t - event.seconds for event in events if isinstance(event, Phase) and event.name == "import"]
    stops = [event.t for event in events if isinstance(event, RunStop)]
    return max(stops) - min(starts)


def _rates_of(rounds: Sequence[Mapping[SideName, SideFigures]], name: SideName) -> list[GlobalWindows]:
    return [GlobalWindows.of_rate(each[name].rate) for each in rounds if name in each]


def _runs(raw: Overhead, runs: Mapping[str, RunOnFile], name: SideName) -> list[tuple[Path, RunRecord]]:
    found = (runs[one.run_id] for own in raw.rounds for one in own if one.side == name and one.run_id)
    return [(one.directory, one.record) for one in found]


def _notes(differs: Sequence[tuple[str, str, str]], records: Sequence[RunRecord]) -> Iterator[str]:
    if differs:
        differences = (f"{name} {ours} beside {theirs}" for name, ours, theirs in differs)
        yield f"not comparable with host: {'; '.join(differences)}"
    for record in records:
        if record.validity.status != "valid":
            yield f"{record.run_id} {record.validity.status}: {'; '.join(record.validity.reasons)}"


LEGEND: Final = (
    "suite: a whole `dlscale bench` that does not wait for idle power; unwatched: the same without samplers; host: the same by ENGINE=host; bare: a plain loop in the same "
    "environment, without the suite. Rates are samples ÷ seconds of all measured iterations; ÷ is of two sides of one round. Outside: seconds "
    "of the whole command beyond those of its program; first step: seconds from the start of the command, of the bare loop from that of its "
    "process, to the end of the first step; delay: how much more the suite's are than the bare loop's. All rounds: ratio of throughputs over all of them, of the steady windows (beside the bare "
    f"loop, of all measured iterations); {PLUS_MINUS}"
)
RATIO_DIGITS: Final = 4
"""Decimals of a ratio of one round: the costs of interest are about 1 %."""


def report_from_file(raw: Overhead, folder: Path) -> Report:
    """Build the report from a folder of runs. Raises RequestError if one is gone or damaged, RunFailedError if one has no throughput."""
    names = {command.run_id for own in raw.rounds for command in own if command.run_id}
    runs = {name: RunOnFile(folder / name, read_record(folder / name), read_events(folder / name)) for name in names}
    return overhead_report(raw, overhead_figures(raw, runs))


def overhead_report(raw: Overhead, found: OverheadFigures) -> Report:
    """Build the report of figures; a terminal shows only the costs, since the rounds are too wide."""
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
    """One line per cost: median and extremes of the rounds, and for a ratio also that of all rounds."""
    named: tuple[tuple[str, SideName], ...] = (("unwatched", "unwatched"), ("host", "host"), ("bare loop", "bare"))
    every = [
        (f"throughput ÷ {name}", _known(found.ratios_to(side)), RATIO_DIGITS, _all_rounds_text(found, side))
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
    """One line per round, without columns of sides that did not run."""
    every: dict[str, list[str]] = {"round": [str(number + 1) for number in range(len(found.rounds))]}
    names: tuple[SideName, ...] = ("suite", "unwatched", "host", "bare")
    for name in names:
        every[f"{name} ({found.unit})"] = [
            f"{each[name].rate:,.1f}" if name in each else ABSENT for each in found.rounds
        ]
        if name != "suite":
            every[f"÷ {name}"] = [fixed(ratio, RATIO_DIGITS) for ratio in found.ratios_to(name)]
    every["outside (s)"] = [fixed(each["suite"].outside_s, 2) for each in found.rounds]
    every["delay (s)"] = [fixed(delay, 2) for delay in found.delays_s]
    columns = {name: cells.__getitem__ for name, cells in every.items()}
    return Table.without_empty_columns(range(len(found.rounds)), columns, title="Rounds")


def commands(found: OverheadFigures) -> Table:
    """One line per command, in the order in which they ran, with the run that it left."""
    columns = ("run", "round", "side", f"{found.unit}", "command (s)", "program (s)", "first step (s)")
    rows = [
        (
            *(one.run_id or ABSENT, str(number), one.side, f"{one.rate:,.3f}", fixed(one.command_s, 3)),
            *(fixed(one.program_s, 3), fixed(one.first_step_s, 3)),
        )
        for number, each in enumerate(found.rounds, start=1)
        for one in each.values()
    ]
    return Table(title="Commands", columns=columns, rows=tuple(rows))


def _all_rounds_text(found: OverheadFigures, side: SideName) -> str:
    """Write the ratio of all rounds with as many digits as those of single rounds."""
    if side == "host" and found.differs:
        return f"not comparable: {', '.join(found.differs)}"
    ratio, ci95 = found.together[side]
    return fixed(ratio, RATIO_DIGITS) + (f" ± {ci95.half_width:.{RATIO_DIGITS}f}" if ci95 else "")


def _known(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None)
