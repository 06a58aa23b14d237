"""Records on file → the `Devices` among them: one-GPU trainings that ran on several GPUs of a kind, one GPU at a time. Pure.

A confidence interval holds for the GPUs that its runs used. If all ran on one GPU, it does not predict another GPU of that kind; how much
such GPUs differ is what this comparison shows.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from runner.analysis.comparisons.grouping import Names, Run, alike, grouped, ids, slug, trial_of, usable
from runner.analysis.comparisons.identity import gpus_of, identity, in_words
from runner.analysis.summarize import Status, device_name, summarize, version_of
from runner.core.frozen import Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.trial import Trial

_Kind = tuple[str, str, str, str, str, str]
"""What the trainings of a report share: framework, its version, engine, GPU model, driver, unit of the rate."""


class OnGpu(Frozen):
    """A training's pooled runs on one GPU: samples a second, and the mean SM clock, None without telemetry."""

    uuid: str
    rate: float
    rate_ci95: Interval | None
    clock_mhz: float | None
    status: Status
    runs: tuple[str, ...]


class Training(Frozen):
    """One training on several GPUs, slowest first; `ratio` is the fastest rate ÷ the slowest."""

    label: str
    gpus: tuple[OnGpu, ...]
    ratio: float

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of all its runs."""
        return tuple(run for gpu in self.gpus for run in gpu.runs)

    @property
    def degraded(self) -> int:
        """Number of GPUs with a degraded run, e.g. one that never settled, or whose GPU was throttled or shared."""
        return sum(gpu.status == "degraded" for gpu in self.gpus)


class Standing(Frozen):
    """One GPU relative to the others that ran the same trainings: its rates, each ÷ the median rate of these GPUs."""

    uuid: str
    trainings: int
    low: float
    median: float
    high: float


class Devices(Frozen):
    """How much GPUs of a kind differ: trainings, largest ratio first; the median ratio; and the GPUs, slowest first."""

    name: str
    title: str
    ran_on: str
    unit: str
    trainings: tuple[Training, ...]
    median_ratio: float
    standings: tuple[Standing, ...]

    @property
    def lead(self) -> str:
        """The result in one line: the more GPUs a training ran on, the farther its fastest and its slowest are apart."""
        counts = sorted(len(one.gpus) for one in self.trainings)
        each = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        in_all = "" if counts[0] == len(self.standings) else f"; {len(self.standings)} GPUs in all"
        ratios = f"median {self.median_ratio:.3f}, at most {self.trainings[0].ratio:.3f}"
        return f"fastest of {each} GPUs ÷ slowest, by training: {ratios}{in_all}"


def devices(runs: Sequence[Run]) -> tuple[Devices, ...]:
    """Find the trainings that ran on several GPUs of a kind.

    Runs without a usable rate, and those whose GPU is unknown, are left out.
    """
    usable_runs = [run for run in runs if gpu_of(run[1]) and run[1].measurement.throughput and usable([run])]
    found: dict[_Kind, list[list[list[Run]]]] = {}
    for own in alike(usable_runs, but=(), wanted=lambda trial: trial.world_size == 1, also=_shared):
        by_gpu = grouped(own, lambda run: (gpu_of(run[1]),))
        if len(by_gpu) > 1:
            found.setdefault(_kind(own[0][1], trial_of(own[0])), []).append(list(by_gpu.values()))
    names = Names()
    return tuple(_report(kind, found[kind], names) for kind in sorted(found))


def gpu_of(record: RunRecord) -> str | None:
    """UUID of a one-device run's GPU; None on a CPU, or if the record does not show which of several GPUs it was."""
    gpus = gpus_of(record)
    return gpus[0] if record.trial.device == "gpu" and len(gpus) == 1 else None


def _shared(record: RunRecord, trial: Trial) -> tuple[str, ...]:
    """What one training's runs share besides `identity`; a report may hold several versions of training programs and requirements."""
    return *_kind(record, trial), record.provenance.workloads_sha256, record.image.lock_sha256 or ""


def _kind(record: RunRecord, trial: Trial) -> _Kind:
    rate = record.measurement.throughput
    unit = rate.unit if rate else "samples/s"
    driver = record.provenance.driver or "unknown"
    return trial.framework, version_of(record), record.engine, device_name(record), driver, unit


def _report(kind: _Kind, trained: Sequence[Sequence[Sequence[Run]]], names: Names) -> Devices:
    framework, version, engine, gpu, driver, unit = kind
    trainings = sorted(map(_training, trained), key=lambda one: -one.ratio)
    every = [record for by_gpu in trained for own in by_gpu for _, record in own]
    dates = sorted(record.provenance.recorded_at.date().isoformat() for record in every)
    return Devices(
        name=names.take(slug(("devices", framework, version, gpu, engine, unit.split("/")[0]))),
        title=f"{framework} {version}: {len(trainings)} training{'s' if len(trainings) > 1 else ''} on one GPU",
        ran_on=f"{gpu} · driver {driver} · engine {engine} · {' to '.join(dict.fromkeys((dates[0], dates[-1])))}",
        unit=unit,
        trainings=tuple(trainings),
        median_ratio=statistics.median(one.ratio for one in trainings),
        standings=tuple(_standings(trainings)),
    )


def _training(by_gpu: Sequence[Sequence[Run]]) -> Training:
    gpus = sorted(map(_on_gpu, by_gpu), key=lambda gpu: gpu.rate)
    return Training(
        label=in_words(identity(by_gpu[0][0][1]), but=("framework", "device_name")),
        gpus=tuple(gpus),
        ratio=gpus[-1].rate / gpus[0].rate,
    )


def _on_gpu(own: Sequence[Run]) -> OnGpu:
    row, uuid = summarize(own).rows[0], gpu_of(own[0][1])
    assert row.throughput is not None and uuid is not None  # noqa: S101, PT018 - all runs may be used
    clock = row.telemetry.gpus[0].sm_clock_mhz if row.telemetry else None
    return OnGpu(
        uuid=uuid,
        rate=row.throughput,
        rate_ci95=row.throughput_ci95,
        clock_mhz=clock.avg if clock else None,
        status=row.status,
        runs=ids(own),
    )


def _standings(trainings: Iterable[Training]) -> Iterator[Standing]:
    """Each GPU relative to the others that ran the same trainings; slowest first."""
    shares: dict[str, list[float]] = {}
    for training in trainings:
        middle = statistics.median(gpu.rate for gpu in training.gpus)
        for gpu in training.gpus:
            shares.setdefault(gpu.uuid, []).append(gpu.rate / middle)
    for uuid, own in sorted(shares.items(), key=lambda one: statistics.median(one[1])):
        yield Standing(uuid=uuid, trainings=len(own), low=min(own), median=statistics.median(own), high=max(own))
