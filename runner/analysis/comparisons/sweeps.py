"""Records on file → the `Sweep`s among them: runs and passes under a profiler that differ in batch and precision only. Pure.

Runs of one batch are pooled as repeats of a matrix are. Seconds of passes are added up before they are divided, so that a figure never is
a mean of shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from runner.analysis.comparisons.alike import Names, Run, slug, threads, versions
from runner.analysis.summarize import machine, mode_in_words, summarize, version_of
from runner.analysis.summary import Row, Status
from runner.core.frozen import Frozen
from runner.core.record import RunRecord
from runner.core.trial import Horovod, Trial
from runner.core.wire import Link


@dataclass(frozen=True)
class _Kind:
    """What the runs of a sweep have in common."""

    framework: str
    version: str
    workload: str
    model: str
    mode: str
    image_shape: tuple[int, int, int] | None
    num_classes: int | None
    data: str
    decode: str
    loader_workers: int
    device: str
    machine: str
    engine: str
    cpus_per_worker: int | None
    threads: int | None
    world_size: int
    nodes: int
    way: str
    horovod: Horovod | None
    xla: bool
    techniques: tuple[str, ...]
    settings: tuple[tuple[str, int | float | str], ...]
    fit: int
    wires: tuple[str, str | None, str | None, Link | None]


def sweeps(runs: Sequence[Run]) -> tuple[Sweep, ...]:
    """Find what was run with several batches; runs of other programs than the suite's, and trainings at once, are left out.

    Args:
        runs: run directories and their records, in any order; invalid ones have no figure.
    """
    kinds: dict[_Kind, list[Run]] = {}
    for path, record in runs:
        if isinstance(record.trial, Trial) and not record.concurrent:
            kinds.setdefault(_kind(record, record.trial), []).append((path, record))
    names = Names()
    found = []
    for kind, own in kinds.items():
        points = _points(own)
        if not _varies(points):
            continue
        found.append(_sweep(kind, own, points, name=names.take(_name(kind))))
    return tuple(found)


def _kind(record: RunRecord, trial: Trial) -> _Kind:
    return _Kind(
        framework=trial.framework,
        version=version_of(record),
        workload=trial.workload,
        model=trial.model,
        mode=mode_in_words(record),
        image_shape=trial.image_shape,
        num_classes=trial.num_classes,
        data=trial.dataset.digest if trial.dataset else "synthetic",
        decode=trial.decode,
        loader_workers=trial.loader_workers,
        device=trial.device,
        machine=machine(record),
        engine=record.engine,
        cpus_per_worker=trial.cpus_per_worker,
        threads=threads(trial),
        world_size=trial.world_size,
        nodes=trial.nodes,
        way=trial.way,
        horovod=trial.horovod,
        xla=trial.xla,
        techniques=trial.techniques,
        settings=tuple(sorted(trial.settings.items())),
        fit=trial.fit,
        wires=(trial.interconnect, trial.iface, trial.hca, trial.link),
    )


def _varies(points: Sequence[Point]) -> bool:
    """Whether there are figures of two batches at one precision."""
    batches: dict[str, set[int]] = {}
    for point in points:
        if point.throughput is not None or point.compute_percent is not None:
            batches.setdefault(point.precision, set()).add(point.batch)
    return any(len(own) > 1 for own in batches.values())


def _name(kind: _Kind) -> str:
    words = (
        "sweep",
        kind.framework,
        kind.version,
        kind.model,
        *((f"{kind.image_shape[1]}px",) if kind.image_shape else ()),
        f"{kind.world_size}{kind.device}",
    )
    return slug(words)


def _sweep(kind: _Kind, runs: Sequence[Run], points: tuple[Point, ...], *, name: str) -> Sweep:
    summary = summarize([run for run in runs if not run[1].profiled] or runs)
    size = " {1}×{2}".format(*kind.image_shape) if kind.image_shape else ""
    data = "synthetic data" if kind.data == "synthetic" else "images of a data set"
    way = f", {kind.way}" if kind.world_size > 1 else ""
    where = f" of {kind.nodes} nodes" if kind.nodes > 1 else ""
    return Sweep(
        name=name,
        title=summary.title,
        setting=f"{kind.model}{size}, {summary.rows[0].devices}{where}{way}, {data}",
        ran_on=summary.ran_on,
        device=runs[0][1].trial.device,
        unit=summary.rate_unit,
        points=points,
        notes=tuple(_notes(runs, points)),
    )


def _points(runs: Sequence[Run]) -> tuple[Point, ...]:
    """A point for each precision and batch of which there is a figure, or was to be one; a precision's in the order of its batches."""
    cells: dict[tuple[str, int], list[Run]] = {}
    for path, record in runs:
        assert isinstance(record.trial, Trial)  # noqa: S101 - no other has a kind
        cells.setdefault((record.trial.precision, record.trial.batch_per_device), []).append((path, record))
    points = (_point(precision, batch, cells[precision, batch]) for precision, batch in sorted(cells))
    return tuple(point for point in points if point.row or point.compute_percent is not None)


def _point(precision: str, batch: int, runs: Sequence[Run]) -> Point:
    measured = [run for run in runs if not run[1].profiled]
    row = summarize(measured).rows[0] if measured else None
    passes = [record for _, record in runs if _traced(record)]
    telemetry = row.telemetry if row else None
    return Point(
        precision=precision,
        batch=batch,
        row=row,
        compute_percent=_compute_percent(passes),
        compute_status=_worst(passes),
        runs=tuple(record.run_id for _, record in runs),
        utilisation_percent=telemetry.utilisation_percent if telemetry else None,
        sm_active_percent=telemetry.mean(lambda gpu: gpu.sm_active_percent) if telemetry else None,
        fp32_percent=telemetry.mean(lambda gpu: gpu.fp32_utilisation) if telemetry else None,
        tensor_percent=telemetry.mean(lambda gpu: gpu.tensor_percent) if telemetry else None,
        power_w=telemetry.power_w if telemetry else None,
        samples_per_joule=telemetry.samples_per_joule if telemetry else None,
    )


def _traced(record: RunRecord) -> bool:
    """Whether it is a pass that may be used and traced whole steps.

    One that reads counters runs kernels one after the other, and one of a region sees nothing of the rest of a step.
    """
    profile = record.profile
    whole = profile is not None and profile.kind == "kernels" and profile.region is None
    return whole and record.validity.status != "invalid"


def _compute_percent(passes: Sequence[RunRecord]) -> float | None:
    """GPU compute utilisation over passes; None without any on a GPU."""
    used = [use for record in passes if record.profile and (use := record.profile.gpu_total)]
    elapsed_s = math.fsum(use.elapsed_s for use in used)
    return 100 * math.fsum(use.busy_s for use in used) / elapsed_s if elapsed_s else None


def _worst(passes: Sequence[RunRecord]) -> Status | None:
    if not passes:
        return None
    return "valid" if all(record.validity.status == "valid" for record in passes) else "degraded"


def _notes(runs: Sequence[Run], points: Sequence[Point]) -> Iterator[str]:
    """What is wrong with single points, and what else than the batch differed between them."""
    for point in points:
        if point.row and point.row.reasons:
            yield f"{point.precision}, batch {point.batch} {point.row.status}: {'; '.join(point.row.reasons)}"
    for _, record in runs:
        trial = record.trial
        if isinstance(trial, Trial) and trial.profile and trial.profile.kind == "kernels" and record.validity.reasons:
            what = f"{trial.precision}, batch {trial.batch_per_device}, pass under a profiler"
            yield f"{what} {record.validity.status}: {'; '.join(record.validity.reasons)}"
    yield from versions(runs, but="batch")


class Point(Frozen):
    """One batch at one precision.

    Attributes:
        batch: samples of a device.
        row: the measured runs together; None where there are only passes under a profiler.
        compute_percent: GPU compute utilisation of the passes under a profiler.
        compute_status: whether all of these passes are valid; None without any.
        runs: ids of the measured runs and of the passes.
        utilisation_percent: and all below it: over the measured windows, the mean of the devices, power and energy of all of them; None
            unless each is known.
    """

    precision: str
    batch: int
    row: Row | None = None
    compute_percent: float | None = None
    compute_status: Status | None = None
    runs: tuple[str, ...] = ()
    utilisation_percent: float | None = None
    sm_active_percent: float | None = None
    fp32_percent: float | None = None
    tensor_percent: float | None = None
    power_w: float | None = None
    samples_per_joule: float | None = None

    @property
    def status(self) -> Status | None:
        """Whether the measured figures may be used; None without any."""
        return self.row.status if self.row else None

    @property
    def throughput(self) -> float | None:
        """Of all devices, samples a second."""
        return self.row.throughput if self.row else None


class Sweep(Frozen):
    """What was run with several batches and otherwise alike.

    Attributes:
        name: begins the names of its reports.
        title: framework, version, model.
        setting: on how many of which devices, in one line.
        ran_on: what it ran on, in one line.
        unit: of the throughput.
        points: by precision, then by batch.
        notes: what the figures alone would hide.
    """

    name: str
    title: str
    setting: str
    ran_on: str
    device: Literal["cpu", "gpu"]
    unit: str
    points: tuple[Point, ...]
    notes: tuple[str, ...]
