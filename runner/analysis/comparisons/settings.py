"""Records on file → one training on several inputs, by several strategies, by several engines, or several times concurrently. Pure.

Runs of one setting are pooled like repeats of a matrix; ratios are between the pools:

    inputs         inputs of a training, relative to synthetic samples
    strategies     how its ranks train together, relative to the first of the framework's own strategies; efficiency relative to one device
    cross_checks   the engine and its image or environment, relative to the engine that isolates least. A ratio requires the same software
                   on the same machine: if the programs, the framework, anything below it or the machine differs, there is no ratio, and
                   the report lists the differences
    case_figures   trainings of one matrix, sequential and concurrent
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final, Literal

from runner.analysis.comparisons import grouping
from runner.analysis.comparisons.grouping import Compared, Run, TrainingComparison, trial_of
from runner.analysis.grading.measure import NO_WAIT
from runner.analysis.summarize import machine, model_in_words, summarize, version_of
from runner.core.dataset import PACKED
from runner.core.frozen import Frozen
from runner.core.measurement import StepParts
from runner.core.record import RunRecord
from runner.core.trial import Case, Horovod, Trial

BAREST: Final = ("host", "venv", "apptainer", "podman", "docker")
"""Engines, from the least isolation of the program to the most."""
INCOMPARABLE: Final = "not comparable"
_DIGITS: Final = 12
"""Digits of a hash that are shown."""

_Input = tuple[bool, str, str, int, str]
"""The input of a training, in table order: real or not, storage format, decoder, loader workers, data set."""
_Way = tuple[bool, str]
"""How ranks train together, in table order: with Horovod or not, and in words."""
_Software = tuple[tuple[str, str], ...]
_Place = tuple[int, str, _Software]
"""Where a training ran: index of its engine, image or environment, and all software that must be equal."""
_Base = tuple[str, ...]
"""What one-device runs share with the runs whose baseline they are."""


class Source(Compared):
    """One input of a training and its result; its ratio is to synthetic samples.

    `alone_per_s` is the input's own samples a second, None if the program does not report it; `limit` is the bottleneck.
    """

    alone_per_s: float | None
    limit: Literal["input", "training"] | None


class InputReport(TrainingComparison):
    """One training on synthetic and on real samples: synthetic first, then by storage, decoder and loader workers."""

    rows: tuple[Source, ...]


class EngineRow(Compared):
    """One engine's result of a training; its ratio is to the bare runs of the same software, None if there are none."""

    engine: str
    reference: str  # an image, a locked environment, or a package of the machine's own Python
    place: str  # `reference`, plus what sets it apart from others of that name: `hostroot:1, training programs 8d3e`
    software: tuple[tuple[str, str], ...]
    differs: tuple[str, ...]  # names of the differences from the nearest bare runs
    first_step_s: float | None  # median of the repeats


class CrossCheck(TrainingComparison):
    """One training by several engines; the others are compared with the barest (`bare`), which comes first."""

    bare: str
    rows: tuple[EngineRow, ...]


def inputs(runs: Sequence[Run]) -> tuple[InputReport, ...]:
    """Find the trainings that ran on synthetic and on real images."""
    found = grouping.in_settings(
        runs,
        but=("data", "decode", "num_classes"),  # num_classes follows from the data
        wanted=lambda trial: trial.mode == "train" and trial.image_shape is not None,
        also=grouping.on_one_machine,
        setting=_input,
        differ=lambda settings: len({real for real, *_ in settings}) > 1,
        name=lambda run: grouping.of_batch("input", run),
    )
    return tuple(_input_report(sources, name=name) for name, sources in found)


def _input(run: Run) -> _Input:
    trial = trial_of(run)
    if trial.dataset is None:
        return False, "", "", 0, ""
    packed = PACKED.get(PurePath(trial.dataset.path).suffix)
    return True, packed.label if packed else "JPEGs", trial.decode, trial.loader_workers, trial.dataset.digest


def _input_report(sources: Mapping[_Input, Sequence[Run]], *, name: str) -> InputReport:
    base, *_ = sources.values()
    synthetic = summarize(base)
    several = len({digest for real, *_, digest in sources if real}) > 1
    rows = []
    for source, own in sources.items():
        alone = _median(record.measurement.input_alone_per_s for record in grouping.usable(own))
        row = grouping.compared(_label(source, own[0], several=several), own, base)
        limit: Literal["input", "training"] | None = None
        rate = synthetic.rows[0].throughput
        if _waits(row.row.parts):
            limit = "input"
        elif alone is not None and rate is not None:
            limit = "input" if alone < rate else "training"
        rows.append(Source(**vars(row), alone_per_s=alone, limit=limit))
    notes = tuple(_input_notes(rows, [run for own in sources.values() for run in own]))
    return InputReport(**grouping.heading(name, synthetic), rows=tuple(rows), notes=notes)


def _waits(parts: StepParts | None) -> bool:
    """Whether a step waits for input, e.g. for a decoder that is fast alone and shares the GPU with the training."""
    return parts is not None and parts.input_s is not None and parts.input_s > NO_WAIT * parts.step_s


def _label(source: _Input, run: Run, *, several: bool) -> str:
    _, stored, decode, workers, digest = source
    dataset = trial_of(run).dataset
    if dataset is None:
        return "synthetic"
    which = f" ({dataset.images:,} images, {digest[:8]})" if several else ""
    return f"{stored}{which}, {decode.upper()} decode, {workers} loader worker{'' if workers == 1 else 's'}"


def _median(values: Iterable[float | None]) -> float | None:
    """Median of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _input_notes(sources: Sequence[Source], runs: Sequence[Run]) -> Iterator[str]:
    """Yield problems of single rows, and unintended differences between the runs."""
    yield from grouping.reasons(sources)
    classes = {trial_of(run).num_classes for run in runs}
    if len(classes) > 1:
        counts = " and ".join(f"{count:,}" for count in sorted(count for count in classes if count is not None))
        yield f"the last layer has as many outputs as the data have classes: {counts}"
    yield from grouping.versions(runs, but="input")


def strategies(runs: Sequence[Run]) -> tuple[TrainingComparison, ...]:
    """Find the trainings that ran with several strategies."""
    alone = grouping.partition(
        [run for run in runs if grouping.is_training(run[1]) and run[1].trial.world_size == 1], _base
    )
    found = grouping.in_settings(
        runs,
        but=("strategy", "kvstore", "horovod"),
        wanted=lambda trial: trial.mode == "train" and trial.world_size > 1,
        also=grouping.on_one_input,
        setting=_way,
        differ=lambda ways: len(ways) > 1,
        name=lambda run: grouping.of_batch("strategies", run),
    )
    return tuple(_strategy_report(ways, alone, name=name) for name, ways in found)


def _base(run: Run) -> _Base:
    return trial_of(run).key, version_of(run[1]), run[1].engine


def _way(run: Run) -> _Way:
    trial = trial_of(run)
    if trial.horovod is None:
        return False, trial.way
    return True, ", ".join((trial.way, *_horovod_options(trial.horovod)))


def _horovod_options(horovod: Horovod) -> Iterator[str]:
    yield f"{horovod.controller} controller"
    if horovod.fusion_threshold_mib is not None:
        yield f"fusion threshold {horovod.fusion_threshold_mib} MiB"
    if horovod.cycle_time_ms is not None:
        yield f"cycle time {horovod.cycle_time_ms} ms"
    if horovod.compression != "none":
        yield f"compression {horovod.compression}"


def _strategy_report(
    ways: Mapping[_Way, Sequence[Run]], alone: Mapping[_Base, Sequence[Run]], *, name: str
) -> TrainingComparison:
    first, *_ = ways.values()
    trial, shown = trial_of(first[0]), summarize(first)
    base = alone.get(_base(first[0]), [])
    rows = tuple(grouping.compared(label, own, first, alone=base) for (_, label), own in ways.items())
    faster = f", with {', '.join(trial.techniques)}" if trial.techniques else ""
    asynchronous = [label for (_, label), own in ways.items() if trial_of(own[0]).asynchronous]
    setting = f"{model_in_words(trial)}, batch {trial.batch_per_device} per device, {trial.precision}, {shown.rows[0].devices}{faster}"
    return TrainingComparison(
        **grouping.heading(name, shown) | {"setting": setting},
        rows=rows,
        notes=(
            *grouping.reasons(rows),
            *(
                f"{label}: a rank goes on with the weights that it finds, so that as many images may teach less"
                for label in asynchronous
            ),
            *grouping.versions([run for own in ways.values() for run in own], but="strategy"),
        ),
    )


def cross_checks(runs: Sequence[Run]) -> tuple[CrossCheck, ...]:
    """Find the trainings that ran on several engines; runs whose program never reported its version are left out."""
    found = grouping.in_settings(
        [run for run in runs if run[1].provenance.framework_version is not None and run[1].engine in BAREST],
        wanted=lambda _: True,
        also=_engine_invariants,
        setting=lambda run: (BAREST.index(run[1].engine), run[1].image.reference, software(run[1])),
        differ=lambda places: len({engine for engine, *_ in places}) > 1,
        name=_engines_name,
    )
    return tuple(_engine_report(places, name=name) for name, places in found)


def _engine_invariants(record: RunRecord, trial: Trial) -> tuple[str, ...]:
    """Cores, threads and loader workers, which an engine must not change, and whether samplers ran, which cost a little."""
    facts = (trial.cpus_per_worker, trial.threads, trial.loader_workers, record.telemetry is not None)
    return tuple(map(str, facts))


def software(record: RunRecord) -> _Software:
    """What must be equal for a ratio of two engines: reported versions, devices and machine, and the training programs."""
    reported = record.provenance
    known = {
        "framework": reported.framework_version,
        "CUDA": reported.cuda,
        "cuDNN": reported.cudnn,
        "NCCL": reported.nccl,
        "Python": reported.python,
        "driver": reported.driver,
        "devices": f"{len(reported.gpus)} × {machine(record)}" if reported.gpus else machine(record),
        "machine": reported.host.hostname,
        "training programs": reported.workloads_sha256[:_DIGITS],
    }
    return tuple((name, value or "none") for name, value in known.items())


def _engines_name(run: Run) -> str:
    trial = trial_of(run)
    mode = () if trial.mode == "train" else (trial.mode,)
    return grouping.slug(
        ("engines", trial.framework, trial.model, *mode, *grouping.pixels(trial), *grouping.at_batch(trial))
    )


def _engine_report(places: Mapping[_Place, Sequence[Run]], *, name: str) -> CrossCheck:
    barest = min(engine for engine, *_ in places)
    bare = {software: own for (engine, _, software), own in places.items() if engine == barest}
    first = summarize(next(iter(places.values())))
    rows = []
    for place, own in places.items():
        engine, reference, found = place
        place_name = ", ".join((reference, *_distinctions(place, places)))
        base = () if engine == barest else bare.get(found, ())
        rows.append(
            EngineRow(
                **vars(grouping.compared(f"{BAREST[engine]}, {place_name}", own, base)),
                engine=BAREST[engine],
                reference=reference,
                place=place_name,
                software=found,
                differs=tuple(name for name, _, _ in nearest(found, bare)),
                first_step_s=_median(record.measurement.first_step_s for record in grouping.usable(own)),
            )
        )
    return CrossCheck(
        **grouping.heading(name, first) | {"ran_on": f"{first.machine} · {first.date}"},
        bare=BAREST[barest],
        rows=tuple(rows),
        notes=tuple(_engine_notes(rows, places.values(), bare=BAREST[barest])),
    )


def _distinctions(place: _Place, places: Iterable[_Place]) -> Iterator[str]:
    """Yield what sets a row apart from others of its engine and reference."""
    others = [software for *where, software in places if tuple(where) == place[:2]]
    for number, (name, value) in enumerate(place[2]):
        if any(software[number] != (name, value) for software in others):
            yield f"{name} {value}"


def nearest(own: _Software, others: Iterable[_Software]) -> tuple[tuple[str, str, str], ...]:
    """Differences from the most similar of `others`: (name, own value, other value); empty if one is identical."""
    differences = (
        tuple((name, ours, theirs) for (name, ours), (_, theirs) in zip(own, other, strict=True) if ours != theirs)
        for other in others
    )
    return min(differences, key=len)


def _engine_notes(rows: Sequence[EngineRow], places: Iterable[Sequence[Run]], *, bare: str) -> Iterator[str]:
    """Yield which runs skipped compilation, problems of single rows, and why rows are not comparable."""
    others = [row.software for row in rows if row.engine == bare]
    for row, own in zip(rows, places, strict=True):
        compiled = [graphs for _, record in own if (graphs := record.measurement.compiled)]
        found = sum(not graphs.fresh for graphs in compiled)
        if found:
            yield f"{row.label}: {found} of {len(compiled)} runs found their network compiled by an earlier one, and began sooner"
    for row in rows:
        yield from grouping.reasons([row])
        if row.differs:
            differences = (f"{name} {ours} beside {theirs}" for name, ours, theirs in nearest(row.software, others))
            yield f"{row.label} {INCOMPARABLE} with {bare}: {'; '.join(differences)}"


CASES: tuple[Case, ...] = ("one", "sequential", "together")


class CaseFigures(Frozen):
    """Total time of the trainings of one case, each on `devices`, by repeat; `reasons` are why runs are not valid."""

    case: Case
    trainings: int
    devices: int
    shared: bool  # whether concurrent trainings shared all devices
    total_s: tuple[float, ...]  # by usable repeat (`total_s`)
    samples: int  # processed by all trainings of one repeat in that time
    reasons: tuple[str, ...]

    @property
    def median_s(self) -> float | None:
        """Median of the repeats; None if none is usable."""
        return statistics.median(self.total_s) if self.total_s else None


def case_figures(runs: Sequence[Run]) -> tuple[CaseFigures, ...]:
    """Compute the figures of each case in one matrix; cases without runs are left out."""
    return tuple(found for case in CASES if (found := _of_case(case, [record for _, record in runs])))


def _of_case(case: Case, records: Sequence[RunRecord]) -> CaseFigures | None:
    own = [record for record in records if record.trial.concurrent and record.trial.concurrent.case == case]
    if not own or not (concurrent := own[0].trial.concurrent):
        return None
    repeats: dict[int, list[RunRecord]] = {}
    for record in own:
        repeats.setdefault(record.trial.repeat, []).append(record)
    expected = 1 if case == "one" else concurrent.trainings
    whole = [
        repeat
        for repeat in repeats.values()
        if len(repeat) == expected and all(record.validity.status != "invalid" for record in repeat)
    ]
    return CaseFigures(
        case=case,
        trainings=expected,
        devices=own[0].trial.world_size,
        shared=concurrent.shared,
        total_s=tuple(total_s(repeat, case=case) for repeat in whole),
        samples=sum(record.measurement.samples for record in whole[0]) if whole else 0,
        reasons=tuple(dict.fromkeys(reason for record in own for reason in record.validity.reasons)),
    )


def total_s(records: Sequence[RunRecord], *, case: Case) -> float:
    """Seconds that the trainings of one repeat took together, without start-up, model construction and warm-up.

    If concurrent: from the first measured window's start to the last one's end, on the machine's clock; else the sum of their measured
    times.
    """
    if case != "together":
        return math.fsum(record.measurement.training_time_s or 0.0 for record in records)
    windows = [window for record in records for window in record.measurement.windows]
    return max(window.start + window.seconds for window in windows) - min(window.start for window in windows)
