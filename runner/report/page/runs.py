"""One run as a line of the table of all runs, and everything that its panel says: links, image, commands, reasons."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from runner.analysis.summarize import between, machine, mode_in_words, version_of
from runner.core import units
from runner.core.trial import ForeignTrial, Trial, devices_in_words
from runner.core.units import ABSENT
from runner.report.page.command import again
from runner.report.page.model import Fact, RunLine

if TYPE_CHECKING:
    from runner.core.record import RunRecord

COLUMNS: Final = (
    "run",
    "framework",
    "model",
    "devices",
    "batch",
    "throughput",
    "unit",
    "speedup",
    "validity",
    "training time (s)",
    "utilisation (%)",
    "power (W)",
    "precision",
    "mode",
    "wires",
    "machine",
    "date",
)
FILTERED: Final = ("machine", "framework", "model", "devices", "precision", "validity")
"""Columns that have a list of their values to choose from."""


def line(record: RunRecord, *, link: str) -> RunLine:
    """One run.

    Args:
        record: an invalid one shows no figure.
        link: of its directory, relative to the page.
    """
    return RunLine(
        run_id=record.run_id,
        cells=_cells(record),
        record=f"{link}/record.json",
        folder=f"{link}/",
        facts=tuple(_facts(record)),
        reasons=record.validity.reasons,
    )


def devices(record: RunRecord) -> str:
    """The scale in words: "2 workers × 1 core", "16 GPUs on 4 nodes"."""
    trial = record.trial
    words = devices_in_words(trial.device, trial.world_size, cores=trial.cpus_per_worker)
    return f"{words} on {trial.nodes} nodes" if trial.nodes > 1 else words


def framework(record: RunRecord) -> str:
    """Framework and version, or the image of a program that is not the suite's."""
    trial = record.trial
    return trial.image if isinstance(trial, ForeignTrial) else f"{trial.framework} {version_of(record)}"


def status(record: RunRecord) -> str:
    """`valid`, `degraded` or `invalid`; `failed` where it did not come to its end."""
    return "failed" if record.outcome.status != "ok" else record.validity.status


def _cells(record: RunRecord) -> tuple[str, ...]:
    trial, measured = record.trial, record.measurement
    own = trial if isinstance(trial, Trial) else None
    usable = record.validity.status != "invalid" and not record.profiled
    rate = measured.throughput if usable else None
    speedup = record.scaling.speedup if usable else None
    seen = record.telemetry if usable else None
    mode = mode_in_words(record) if own else ABSENT
    kind = f"{mode}, profile {own.profile.kind}" if own and own.profile else mode
    return (
        record.run_id,
        framework(record),
        trial.name if isinstance(trial, ForeignTrial) else trial.model,
        devices(record),
        ABSENT if trial.batch_per_device is None else f"{trial.batch_per_device:,}",
        units.figure(rate.value if rate else None),
        rate.unit if rate else ABSENT,
        units.figure(speedup.value if speedup else None),
        status(record),
        units.figure(measured.training_time_s if usable else None),
        units.figure(seen.utilisation_percent if seen else None),
        units.figure(seen.power_w if seen else None),
        own.precision if own else ABSENT,
        kind,
        between(record),
        machine(record),
        f"{record.provenance.recorded_at:%Y-%m-%d %H:%M}",
    )


def _facts(record: RunRecord) -> Iterator[Fact]:
    where, image = record.provenance, record.image
    if command := again(record):
        yield Fact(name="repeat it with", value=shlex.join(command), command=True)
    yield Fact(name="figures again from raw files", value=f"dlscale regrade {record.run_id}", command=True)
    yield Fact(name="image", value=image.reference)
    for name, value in (
        ("image id", image.id),
        ("image digest", image.digest),
        ("lock (SHA-256)", image.lock_sha256),
        ("engine", " ".join(word for word in (record.engine, record.engine_details.version) if word)),
        ("suite's commit", where.git.commit),
        ("training programs (SHA-256)", where.workloads_sha256),
        ("host", f"{where.host.hostname}, kernel {where.host.kernel}"),
        ("NVIDIA driver", where.driver),
        ("CUDA", where.cuda),
        ("key", record.trial.key),
        ("matrix", record.matrix_id),
        ("speedup is against", record.scaling.baseline_run_id),
        ("transport", f"{record.transport.used}, asked for {record.transport.requested}"),
        ("why it ended", record.outcome.reason),
    ):
        if value:
            yield Fact(name=name, value=value)
    batch, accuracy = record.measurement.batch, record.measurement.accuracy
    if batch and batch.reason:
        yield Fact(name="batch", value=f"{batch.used:,} in place of {batch.asked:,}: {batch.reason}")
    if accuracy and record.validity.status != "invalid":
        yield Fact(
            name="accuracy",
            value=f"{accuracy.percent:.2f} % at {accuracy.precision}, {accuracy.reference_percent:.2f} % at {accuracy.reference}, "
            f"{accuracy.samples:,} samples",
        )
