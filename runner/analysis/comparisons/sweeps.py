"""Records on file → runs with several batches, and networks trained on increasing numbers of devices. Pure.

A `Sweep` holds runs and profiling passes that differ only in batch and precision. Runs of one batch are pooled like repeats of a matrix;
seconds of passes are summed before the division, so that no figure is a mean of shares.

`Networks` were trained alike on one device and on more. The runs of one network may be from several matrices: those that share the key of
their speedups (`Trial.key`) and their wires form one curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from runner.analysis.comparisons import grouping
from runner.analysis.comparisons.grouping import (
    Names,
    Run,
    TrainingReport,
    grouped,
    ids,
    is_training,
    partition,
    slug,
    software,
    trial_of,
)
from runner.analysis.summarize import Row, Status, Summary, between, device_name, model_in_words, summarize, version_of
from runner.core.frozen import Frozen
from runner.core.record import RunRecord
from runner.core.trial import Trial

# A smaller batch gives an epoch more iterations.
_VARIED: Final = frozenset({"precision", "batch_per_device", "global_batch", "epoch_iterations"})


class Point(Frozen):
    """One batch per device at one precision: its pooled measured runs (None if there are only passes), and its profiling passes.

    Utilisations are over the measured windows, averaged over the devices; power and energy are totals, None unless known for each device.
    """

    precision: str
    batch: int
    row: Row | None = None
    compute_percent: float | None = None  # GPU compute utilisation of the passes
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
        """Status of the measured figures; None without any."""
        return self.row.status if self.row else None

    @property
    def throughput(self) -> float | None:
        """Samples a second of all devices."""
        return self.row.throughput if self.row else None


class Sweep(TrainingReport):
    """Runs that differ only in their batch: one point per precision and batch, in that order."""

    device: Literal["cpu", "gpu"]
    points: tuple[Point, ...]


def sweeps(runs: Sequence[Run]) -> tuple[Sweep, ...]:
    """Find runs with several batches; external programs and concurrent trainings are left out."""
    names = grouping.Names()
    found = []
    for own in grouping.alike(runs, but=_VARIED, wanted=lambda _: True, also=_setup, passes=True):
        points = _points(own)
        if _varies(points):
            found.append(_sweep(own, points, name=names.take(_name(own[0]))))
    return tuple(found)


def _setup(record: RunRecord, trial: Trial) -> tuple[str, ...]:
    return *grouping.on_one_input(record, trial), str(trial.iface), str(trial.hca)


def _varies(points: Sequence[Point]) -> bool:
    """Whether one precision has figures of two batches."""
    known = [one.precision for one in points if one.throughput is not None or one.compute_percent is not None]
    return len(known) > len(set(known))


def _name(run: Run) -> str:
    trial = trial_of(run)
    scale = f"{trial.world_size}{trial.device}"
    return grouping.slug(("sweep", *grouping.software(run), trial.model, *grouping.pixels(trial), scale))


def _sweep(runs: Sequence[Run], points: tuple[Point, ...], *, name: str) -> Sweep:
    summary = summarize([run for run in runs if not run[1].profiled] or runs)
    trial = trial_of(runs[0])
    data = "images of a data set" if trial.dataset else "synthetic data"
    way = f", {trial.way}" if trial.world_size > 1 else ""
    where = f" of {trial.nodes} nodes" if trial.nodes > 1 else ""
    return Sweep(
        **grouping.heading(name, summary)
        | {"setting": f"{model_in_words(trial)}, {summary.rows[0].devices}{where}{way}, {data}"},
        device=trial.device,
        points=points,
        notes=tuple(_notes(runs, points)),
    )


def _points(runs: Sequence[Run]) -> tuple[Point, ...]:
    """One point per precision and batch with measured runs or a figure of a pass, in order."""
    cells = grouped(runs, lambda run: (trial_of(run).precision, trial_of(run).batch_per_device))
    points = (_point(precision, batch, own) for (precision, batch), own in cells.items())
    return tuple(point for point in points if point.row or point.compute_percent is not None)


def _point(precision: str, batch: int, runs: Sequence[Run]) -> Point:
    measured = [run for run in runs if not run[1].profiled]
    row = summarize(measured).rows[0] if measured else None
    passes = [record for record in grouping.usable(runs) if _traced(record)]
    used = [use for record in passes if record.profile and (use := record.profile.gpu_total)]
    elapsed_s = math.fsum(use.elapsed_s for use in used)
    valid = all(record.validity.status == "valid" for record in passes)
    point = Point(
        precision=precision,
        batch=batch,
        row=row,
        compute_percent=100 * math.fsum(use.busy_s for use in used) / elapsed_s if elapsed_s else None,
        compute_status=("valid" if valid else "degraded") if passes else None,
        runs=ids(runs),
    )
    if row is None or row.telemetry is None:
        return point
    telemetry = row.telemetry
    return point.model_copy(
        update={
            "utilisation_percent": telemetry.utilisation_percent,
            "sm_active_percent": telemetry.mean(lambda gpu: gpu.sm_active_percent),
            "fp32_percent": telemetry.mean(lambda gpu: gpu.fp32_utilisation),
            "tensor_percent": telemetry.mean(lambda gpu: gpu.tensor_percent),
            "power_w": telemetry.power_w,
            "samples_per_joule": telemetry.samples_per_joule,
        }
    )


def _traced(record: RunRecord) -> bool:
    """Whether the run is a pass that traced whole steps: a pass that reads counters serializes kernels."""
    profile = record.profile
    return profile is not None and profile.kind == "kernels" and profile.region is None


def _notes(runs: Sequence[Run], points: Sequence[Point]) -> Iterator[str]:
    """Yield problems of single points, and unintended differences between the runs."""
    for point in points:
        if point.row and point.row.reasons:
            yield f"{point.precision}, batch {point.batch} {point.row.verdict}"
    for run in runs:
        trial, record = trial_of(run), run[1]
        if trial.profile and trial.profile.kind == "kernels" and record.validity.reasons:
            what = f"{trial.precision}, batch {trial.batch_per_device}, pass under a profiler"
            yield f"{what} {record.validity.status}: {'; '.join(record.validity.reasons)}"
    yield from grouping.versions(runs, but="batch")


SCALES: Final = 3
"""Two networks are compared if one of them ran at this many scales: two points are no curve."""
SEVERAL: Final = 3
"""With this many networks, two scales each suffice."""

_FACTS: Final = (
    *("framework", "device", "mode", "precision", "scaling", "way", "horovod", "xla", "techniques", "decode"),
    *("gpu_memory", "interconnect", "iface", "hca", "link"),
)
"""Trial fields that the networks of a report share."""


class Network(Frozen):
    """One network on one device and on more: one row per scale, and the ids of the runs behind each row."""

    label: str
    batch: int  # per device; global with strong scaling
    unit: str
    rows: tuple[Row, ...]
    runs: tuple[tuple[str, ...], ...]


class Networks(Frozen):
    """Networks trained alike, by name; `ran_on` is of the largest scale, `techniques` are of the runs on several devices."""

    name: str
    title: str
    setting: str
    techniques: tuple[str, ...]
    ran_on: str
    networks: tuple[Network, ...]
    notes: tuple[str, ...]

    @property
    def how(self) -> tuple[str, ...]:
        """How they were trained, in one or two lines."""
        return (self.setting, *((f"with {', '.join(self.techniques)}",) if self.techniques else ()))


def networks(runs: Sequence[Run]) -> tuple[Networks, ...]:
    """Find groups of networks that were trained alike, each on one device and on more."""
    trainings = [run for run in runs if is_training(run[1]) and trial_of(run).mode == "train"]
    alone = partition([run for run in trainings if trial_of(run).world_size == 1], _networks_key)
    names = Names()
    found = []
    for kind in partition([run for run in trainings if trial_of(run).world_size > 1], _networks_kind).values():
        curves = [[*alone[key], *own] for key, own in partition(kind, _networks_key).items() if key in alone]
        curved = any(len({trial_of(run).world_size for run in own}) >= SCALES for own in curves)
        models = {trial_of(own[0]).model for own in curves}
        if len(models) >= SEVERAL or (len(curves) > 1 and curved):
            found.append(_networks(curves, name=names.take(_networks_name(curves[0][-1]))))
    return tuple(found)


def _networks_key(run: Run) -> tuple[str]:
    return (trial_of(run).key,)


def _networks_kind(run: Run) -> tuple[object, ...]:
    """What the networks of a report share."""
    trial, record = trial_of(run), run[1]
    return (
        *(getattr(trial, name) for name in _FACTS),
        *(version_of(record), record.engine, device_name(record)),
        trial.dataset.digest if trial.dataset else None,
    )


def _networks_name(run: Run) -> str:
    trial = trial_of(run)
    return slug(("networks", *software(run), trial.precision, trial.interconnect, trial.device))


def _networks(curves: Sequence[Sequence[Run]], *, name: str) -> Networks:
    every = [run for own in curves for run in own]
    largest = max(every, key=lambda run: run[1].trial.world_size)
    summaries = [(runs, summarize(runs)) for runs in sorted(curves, key=lambda runs: model_in_words(trial_of(runs[0])))]
    over = " or ".join(dict.fromkeys(between(record) for _, record in every if record.trial.world_size > 1))
    trial = trial_of(largest)
    data = "images of a data set" if trial.dataset else "synthetic data"
    return Networks(
        name=name,
        title=f"{' '.join(software(largest))}: {len(summaries)} networks",
        setting=f"{trial.precision}, {trial.scaling} scaling, {trial.way} over {over}, {data}",
        techniques=trial.techniques,
        ran_on=summarize([largest]).ran_on,
        networks=tuple(_network(runs, summary) for runs, summary in summaries),
        notes=tuple(note for runs, summary in summaries for note in _network_notes(trial_of(runs[0]), summary)),
    )


def _network(runs: Sequence[Run], summary: Summary) -> Network:
    trial = trial_of(runs[0])
    return Network(
        label=model_in_words(trial),
        batch=trial.batch_per_device if trial.scaling == "weak" else trial.global_batch,
        unit=summary.rate_unit,
        rows=summary.rows,
        runs=tuple(ids([run for run in runs if run[1].trial.world_size == row.scale]) for row in summary.rows),
    )


def _network_notes(trial: Trial, summary: Summary) -> Iterator[str]:
    for row in summary.rows:
        if row.reasons:
            yield f"{model_in_words(trial)}, {row.devices} {row.verdict}"
    yield from (f"{model_in_words(trial)}, {note}" for note in summary.notes)
