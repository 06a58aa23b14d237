"""Records on file → the `CrossCheck`s among them: runs of one training that differ in the engine and in what it ran from only. Pure.

What a container costs is a ratio of one software on one machine: where the programs, the framework or anything below it is another
version, or the machine another one, there is no ratio, and the report says what differs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from runner.analysis.comparisons.alike import (
    Compared,
    Names,
    Run,
    TrainingComparison,
    alike,
    grouped,
    ratio,
    reasons,
    slug,
    trial_of,
)
from runner.analysis.summarize import machine, summarize
from runner.core.record import RunRecord
from runner.core.trial import Trial

BAREST: Final = ("host", "venv", "docker")
"""Engines, those with the least around the program first."""
_DIGITS: Final = 12
"""Of a hash that are shown."""

_Software = tuple[tuple[str, str], ...]
_Place = tuple[int, str, _Software]
"""A row: rank of its engine, what it ran from, and all that has to be equal."""


def cross_checks(runs: Sequence[Run]) -> tuple[CrossCheck, ...]:
    """Find what was trained by several engines; passes under a profiler and trainings at once are left out.

    Args:
        runs: run directories and their records, in any order; invalid ones have no figure, and those whose program never said what it
            is are left out.
    """
    names = Names()
    found = []
    told = [run for run in runs if run[1].provenance.framework_version is not None and run[1].engine in BAREST]
    for own in alike(told, but=(), wanted=lambda _: True, also=_shared):
        places = grouped(own, _place)
        if len({engine for engine, *_ in places}) > 1:
            found.append(_report(places, name=names.take(_name(trial_of(own[0])))))
    return tuple(found)


def software(record: RunRecord) -> _Software:
    """What has to be equal for a ratio of two engines: what the program said of itself, what it ran on, and which program it was."""
    said = record.provenance
    known = {
        "framework": said.framework_version,
        "CUDA": said.cuda,
        "cuDNN": said.cudnn,
        "NCCL": said.nccl,
        "Python": said.python,
        "driver": said.driver,
        "devices": f"{len(said.gpus)} × {machine(record)}" if said.gpus else machine(record),
        "machine": said.host.hostname,
        "training programs": said.workloads_sha256[:_DIGITS],
    }
    return tuple((name, value or "none") for name, value in known.items())


def _shared(record: RunRecord, trial: Trial) -> tuple[str, ...]:
    """Cores, threads and loader workers, which an engine must not change, and whether samplers looked on, which costs a little."""
    given = (trial.cpus_per_worker, trial.threads, trial.loader_workers, record.telemetry is not None)
    return tuple(map(str, given))


def _place(run: Run) -> _Place:
    _, record = run
    return BAREST.index(record.engine), record.image.reference, software(record)


def _name(trial: Trial) -> str:
    words = (
        *("engines", trial.framework, trial.model),
        *(() if trial.mode == "train" else (trial.mode,)),
        *((f"{trial.image_size}px",) if trial.image_size else ()),
        *(trial.precision, f"batch{trial.batch_per_device}", f"{trial.world_size}{trial.device}"),
    )
    return slug(words)


def _report(places: dict[_Place, list[Run]], *, name: str) -> CrossCheck:
    barest = min(engine for engine, *_ in places)
    bare = {place[2]: own for place, own in places.items() if place[0] == barest}
    first = summarize(next(iter(places.values())))
    rows = tuple(
        _row(place, own, bare, is_bare=place[0] == barest, apart=_apart(place, places)) for place, own in places.items()
    )
    return CrossCheck(
        name=name,
        title=first.title,
        setting=f"{first.setting}, {first.rows[0].devices}",
        ran_on=f"{first.machine} · {first.date}",
        unit=first.rate_unit,
        bare=BAREST[barest],
        rows=rows,
        notes=tuple(_notes(rows, places.values(), bare=BAREST[barest])),
    )


def _apart(place: _Place, places: Iterable[_Place]) -> str:
    """What differs between a row and others of its engine and reference."""
    engine, reference, own = place
    others = [other for number, name, other in places if (number, name) == (engine, reference) and other != own]
    told = (fact for number, fact in enumerate(own) if any(other[number] != fact for other in others))
    return ", ".join(f"{name} {value}" for name, value in told)


def _row(
    place: _Place, runs: Sequence[Run], bare: dict[_Software, list[Run]], *, is_bare: bool, apart: str
) -> EngineRow:
    engine, reference, own = place
    same = None if is_bare else bare.get(own)
    of_bare, of_bare_ci95 = ratio(runs, same or ())
    came_from = f"{reference}, {apart}" if apart else reference
    return EngineRow(
        label=f"{BAREST[engine]}, {came_from}",
        engine=BAREST[engine],
        reference=reference,
        place=came_from,
        software=own,
        row=summarize(runs).rows[0],
        ratio=of_bare,
        ratio_ci95=of_bare_ci95,
        differs=() if is_bare else tuple(name for name, _, _ in nearest(own, bare)),
        first_step_s=_first_step_s(record for _, record in runs),
        runs=tuple(record.run_id for _, record in runs),
    )


def nearest(own: _Software, others: Iterable[_Software]) -> tuple[tuple[str, str, str], ...]:
    """What differs from the one that differs least: names, our value and theirs; empty where one is the same."""
    differences = (
        tuple((name, ours, theirs) for (name, ours), (_, theirs) in zip(own, other, strict=True) if ours != theirs)
        for other in others
    )
    return min(differences, key=len)


def _first_step_s(records: Iterable[RunRecord]) -> float | None:
    usable = [record.measurement.first_step_s for record in records if record.validity.status != "invalid"]
    known = [seconds for seconds in usable if seconds is not None]
    return statistics.median(known) if known else None


def _notes(rows: Sequence[EngineRow], places: Iterable[Sequence[Run]], *, bare: str) -> Iterator[str]:
    """What is wrong with single rows, why two can't be compared, and which first steps did not wait for a compiler."""
    others = [row.software for row in rows if row.engine == bare]
    for row, own in zip(rows, places, strict=True):
        compiled = [graphs for _, record in own if (graphs := record.measurement.compiled)]
        found = sum(not graphs.fresh for graphs in compiled)
        if found:
            yield f"{row.label}: {found} of {len(compiled)} runs found their network compiled by an earlier one, and began sooner"
    for row in rows:
        yield from reasons([row])
        if row.differs:
            told = (f"{name} {ours} beside {theirs}" for name, ours, theirs in nearest(row.software, others))
            yield f"{row.label} {INCOMPARABLE} with {bare}: {'; '.join(told)}"


INCOMPARABLE: Final = "not comparable"


class EngineRow(Compared):
    """What one engine made of a training, from one image or installation; its ratio is to the bare runs, None where the software differs.

    Attributes:
        engine: what ran it.
        reference: what it ran from: an image, a locked environment, or a package of the machine's own Python.
        place: the same, told from others of that name: `hostroot:1, training programs 8d3e`.
        software: what the program said of itself and the machine of its surroundings, each with its name.
        differs: names of what is not the same as in the nearest bare runs; empty where all is.
        first_step_s: median of the repeats.
    """

    engine: str
    reference: str
    place: str
    software: tuple[tuple[str, str], ...]
    differs: tuple[str, ...]
    first_step_s: float | None


class CrossCheck(TrainingComparison):
    """One training by several engines, the barest first.

    Attributes:
        bare: the engine without a container that the others are held against.
    """

    bare: str
    rows: tuple[EngineRow, ...]
