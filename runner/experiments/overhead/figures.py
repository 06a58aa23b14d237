"""Raw clocks and the records of the runs → the figures of `dlscale overhead`. Pure: the same now and from what is on file.

Ratios of throughput are of the two sides of one round, which ran one after the other; the report shows their median beside the ratio of
all rounds together, with its interval over the runs of both sides. A ratio to ENGINE=host is of the same software on the same machine, or there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.analysis.comparisons.alike import ratio
from runner.analysis.comparisons.cross_check import nearest, software
from runner.analysis.grading import metrics
from runner.analysis.grading.metrics import GlobalWindows
from runner.analysis.summarize import summarize
from runner.core.errors import RunFailedError
from runner.core.events import Event
from runner.core.events.training import FirstStep, Phase, RunStop
from runner.core.record import RunRecord
from runner.experiments.overhead.raw import Command, Overhead, SideName
from runner.experiments.overhead.report import OverheadReport, RoundFigures, SideFigures


@dataclass(frozen=True)
class Told:
    """What is on file of one run."""

    directory: Path
    record: RunRecord
    events: tuple[Event, ...]


def overhead_report(raw: Overhead, runs: Mapping[str, Told]) -> OverheadReport:
    """Make every figure.

    Args:
        raw: the clocks.
        runs: by id, all runs that it names.

    Raises:
        RunFailedError: a run has no throughput.
    """
    rounds = tuple(RoundFigures(sides=tuple(side(command, runs) for command in own)) for own in raw.rounds)
    of_suite, of_unwatched, of_host = (_runs(raw, runs, name) for name in ("suite", "unwatched", "host"))
    differs = _differs(of_suite, of_host)
    on_off, on_off_ci95 = ratio(of_suite, of_unwatched)
    of_bare_metal, of_bare_metal_ci95 = ratio(of_suite, () if differs else of_host)
    suite, bare = (_whole(rounds, name) for name in ("suite", "bare"))
    first = summarize(of_suite)
    return OverheadReport(
        name=raw.name,
        title=first.title,
        setting=f"{first.setting}, {first.rows[0].devices}",
        ran_on=f"{first.ran_on}{f' · host: {of_host[0][1].image.reference}' if of_host else ''}",
        unit=first.rate_unit,
        command=raw.command,
        commit=raw.commit,
        rounds=rounds,
        telemetry_ratio=on_off,
        telemetry_ratio_ci95=on_off_ci95,
        host_ratio=of_bare_metal,
        host_ratio_ci95=of_bare_metal_ci95,
        bare_ratio=metrics.pooled_rate(suite) / metrics.pooled_rate(bare) if bare else None,
        bare_ratio_ci95=metrics.ratio_interval(suite, bare),
        differs=tuple(name for name, _, _ in differs),
        notes=tuple(_notes(differs, [record for _, record in (*of_suite, *of_unwatched, *of_host)])),
    )


def side(command: Command, runs: Mapping[str, Told]) -> SideFigures:
    """One side of a round.

    Raises:
        RunFailedError: its run has no throughput.
    """
    took = command.ended_s - command.began_s
    if command.printed:
        return SideFigures(
            side=command.side,
            rate=command.printed.rate_per_s,
            first_step_s=command.printed.first_step_s,
            command_s=took,
            program_s=None,
            run_id=None,
        )
    told = runs[command.run_id or ""]
    measured, validity = told.record.measurement, told.record.validity
    steps = [event.received for event in told.events if isinstance(event, FirstStep)]
    if validity.status == "invalid" or not measured.training_time_s or not steps:
        raise RunFailedError(f"{told.record.run_id} has no throughput: {'; '.join(validity.reasons)}")
    return SideFigures(
        side=command.side,
        rate=measured.samples / measured.training_time_s,
        first_step_s=steps[0] - command.began_s,
        command_s=took,
        program_s=program_s(told.events),
        run_id=told.record.run_id,
    )


def program_s(events: Sequence[Event]) -> float:
    """Seconds from the start of the program's process to its last event, by its own clock."""
    starts = [event.t - event.seconds for event in events if isinstance(event, Phase) and event.name == "import"]
    stops = [event.t for event in events if isinstance(event, RunStop)]
    return max(stops) - min(starts)


def _whole(rounds: Sequence[RoundFigures], name: SideName) -> list[GlobalWindows]:
    """All measured iterations of a side, of each round: the bare loop tells no windows."""
    return [GlobalWindows.of_rate(one.rate) for each in rounds if (one := each.of(name))]


def _runs(raw: Overhead, runs: Mapping[str, Told], name: SideName) -> list[tuple[Path, RunRecord]]:
    told = (runs[one.run_id] for own in raw.rounds for one in own if one.side == name and one.run_id)
    return [(one.directory, one.record) for one in told]


def _differs(
    suite: Sequence[tuple[Path, RunRecord]], host: Sequence[tuple[Path, RunRecord]]
) -> tuple[tuple[str, str, str], ...]:
    """What is not the same in the container and beside it; nothing where nobody looked beside it."""
    return nearest(software(suite[0][1]), [software(host[0][1])]) if host else ()


def _notes(differs: Sequence[tuple[str, str, str]], records: Sequence[RunRecord]) -> Iterator[str]:
    if differs:
        told = (f"{name} {ours} beside {theirs}" for name, ours, theirs in differs)
        yield f"not comparable with host: {'; '.join(told)}"
    for record in records:
        if record.validity.status != "valid":
            yield f"{record.run_id} {record.validity.status}: {'; '.join(record.validity.reasons)}"
