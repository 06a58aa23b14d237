"""Records on file → the `Devices` among them: trainings on one GPU that ran on several of a kind, each by itself. Pure.

An interval is over the runs that it is of. Where they all had one GPU, it can't tell what another of the kind would have made of the same
training; this can.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from runner.analysis.compare.identity import identity, in_words
from runner.analysis.comparisons.alike import Names, Run, alike, grouped, slug, trial_of
from runner.analysis.summarize import device_name, summarize, version_of
from runner.analysis.summary import Status
from runner.core.frozen import Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.trial import Trial

SEVERAL: Final = 2

_Kind = tuple[str, str, str, str, str, str]
"""What the trainings of a report have in common: framework, its version, engine, kind of GPU, driver, unit of the rate."""


def devices(runs: Sequence[Run]) -> tuple[Devices, ...]:
    """Find what ran on several GPUs of a kind; passes under a profiler and trainings at once are left out.

    Args:
        runs: run directories and their records, in any order; left out are those without a rate that may be used, and those of which
            nobody told on which of several GPUs they ran.
    """
    told = [run for run in runs if gpu_of(run[1]) and run[1].measurement.throughput and _usable(run[1])]
    found: dict[_Kind, list[dict[str, list[Run]]]] = {}
    for own in alike(told, but=(), wanted=lambda trial: trial.world_size == 1, also=_shared):
        by_gpu = {uuid: mine for (uuid,), mine in grouped(own, lambda run: (gpu_of(run[1]) or "",)).items()}
        if len(by_gpu) >= SEVERAL:
            found.setdefault(_kind(own[0][1], trial_of(own[0])), []).append(by_gpu)
    names = Names()
    return tuple(_report(kind, found[kind], name=names.take(_name(kind))) for kind in sorted(found))


def gpu_of(record: RunRecord) -> str | None:
    """The GPU of a run on one device, by its UUID; None on a CPU, and where nobody told which of several it was."""
    seen = record.telemetry.gpus if record.telemetry else record.provenance.gpus
    return seen[0].uuid if record.trial.device == "gpu" and len(seen) == 1 else None


def _usable(record: RunRecord) -> bool:
    return record.validity.status != "invalid"


def _shared(record: RunRecord, trial: Trial) -> tuple[str, ...]:
    """All but the GPU: the training programs and what they ran in as well, of which a report may hold several."""
    return *_kind(record, trial), record.provenance.workloads_sha256, record.image.lock_sha256 or ""


def _kind(record: RunRecord, trial: Trial) -> _Kind:
    rate = record.measurement.throughput
    unit = rate.unit if rate else "samples/s"
    driver = record.provenance.driver or "unknown"
    return trial.framework, version_of(record), record.engine, device_name(record), driver, unit


def _name(kind: _Kind) -> str:
    framework, version, engine, gpu, _, unit = kind
    return slug(("devices", framework, version, gpu, engine, unit.split("/")[0]))


def _report(kind: _Kind, trained: Sequence[dict[str, list[Run]]], *, name: str) -> Devices:
    framework, version, engine, gpu, driver, unit = kind
    trainings = sorted((_training(by_gpu) for by_gpu in trained), key=lambda one: -one.ratio)
    dates = sorted(
        record.provenance.recorded_at.date().isoformat()
        for by_gpu in trained
        for own in by_gpu.values()
        for _, record in own
    )
    return Devices(
        name=name,
        title=f"{framework} {version}: {len(trainings)} training{'s' if len(trainings) > 1 else ''} on one GPU",
        ran_on=f"{gpu} · driver {driver} · engine {engine} · {' to '.join(dict.fromkeys((dates[0], dates[-1])))}",
        unit=unit,
        trainings=tuple(trainings),
        median_ratio=statistics.median(one.ratio for one in trainings),
        standings=tuple(_standings(trainings)),
    )


def _training(by_gpu: dict[str, list[Run]]) -> Training:
    gpus = sorted((_on_gpu(uuid, own) for uuid, own in by_gpu.items()), key=lambda gpu: gpu.rate)
    slowest, fastest = gpus[0], gpus[-1]
    ((_, one), *_), *_ = by_gpu.values()
    return Training(
        label=in_words(identity(one), but=("framework", "device_name")),
        gpus=tuple(gpus),
        ratio=fastest.rate / slowest.rate,
    )


def _on_gpu(uuid: str, own: Sequence[Run]) -> OnGpu:
    row = summarize(own).rows[0]
    assert row.throughput is not None  # noqa: S101 - all runs may be used
    clock = row.telemetry.gpus[0].sm_clock_mhz if row.telemetry else None
    return OnGpu(
        uuid=uuid,
        rate=row.throughput,
        rate_ci95=row.throughput_ci95,
        clock_mhz=clock.avg if clock else None,
        status=row.status,
        runs=tuple(record.run_id for _, record in own),
    )


def _standings(trainings: Iterable[Training]) -> Iterator[Standing]:
    """Each GPU beside the others that trained what it trained; slowest first."""
    shares: dict[str, list[float]] = {}
    for training in trainings:
        middle = statistics.median(gpu.rate for gpu in training.gpus)
        for gpu in training.gpus:
            shares.setdefault(gpu.uuid, []).append(gpu.rate / middle)
    for uuid, own in sorted(shares.items(), key=lambda one: statistics.median(one[1])):
        yield Standing(uuid=uuid, trainings=len(own), low=min(own), median=statistics.median(own), high=max(own))


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
        ran_on: GPU, driver and engine, and when, in one line.
        unit: of the rates.
        trainings: those that differ most first.
        median_ratio: the median of their ratios.
        standings: slowest first.
    """

    name: str
    title: str
    ran_on: str
    unit: str
    trainings: tuple[Training, ...]
    median_ratio: float
    standings: tuple[Standing, ...]

    @property
    def lead(self) -> str:
        """What it comes to, in one line."""
        return f"fastest of {len(self.standings)} GPUs ÷ slowest: median {self.median_ratio:.3f}, at most {self.trainings[0].ratio:.3f}"
