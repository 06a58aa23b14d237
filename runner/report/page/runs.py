"""One run as a row of the table of all runs, and the contents of its panel: links, image, commands, reasons."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from runner.analysis.summarize import between, machine, mode_in_words, version_of
from runner.core import units
from runner.core.record import RunRecord
from runner.core.trial import ExternalTrial, Trial, devices_in_words
from runner.core.units import ABSENT
from runner.report.page.model import Fact, RunLine

COLUMNS: Final = (
    "run",
    "framework",
    "model",
    "devices",
    "throughput",
    "validity",
    "batch",
    "speedup",
    "training time (s)",
    "utilisation (%)",
    "power (W)",
    "precision",
    "mode",
    "wires",
    "machine",
    "date",
)
SHOWN_FIRST: Final = 6  # columns shown at first: as many as fit in a window of 1,200 pixels
FILTERED: Final = ("machine", "framework", "model", "devices", "precision", "validity")
"""Columns that can be filtered by value."""


def line(record: RunRecord, *, link: str) -> RunLine:
    """One run, without figures if it is invalid; `link` is its directory, relative to the page."""
    return RunLine(
        run_id=record.run_id,
        cells=_cells(record),
        record=f"{link}/record.json",
        folder=f"{link}/",
        facts=tuple(_facts(record)),
        reasons=record.validity.reasons,
        profiled=record.profiled,
    )


def devices(record: RunRecord) -> str:
    """The scale in words: "2 workers × 1 core", "16 GPUs on 4 nodes"."""
    trial = record.trial
    words = devices_in_words(trial.device, trial.world_size, cores=trial.cpus_per_worker)
    return f"{words} on {trial.nodes} nodes" if trial.nodes > 1 else words


def framework(record: RunRecord) -> str:
    """Framework and version, or the image of an external program."""
    trial = record.trial
    return trial.image if isinstance(trial, ExternalTrial) else f"{trial.framework} {version_of(record)}"


def status(record: RunRecord) -> str:
    """`valid`, `degraded` or `invalid`; `failed` if it did not finish."""
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
        trial.name if isinstance(trial, ExternalTrial) else trial.model,
        devices(record),
        f"{units.figure(rate.value)} {rate.unit}" if rate else ABSENT,
        status(record),
        ABSENT if trial.batch_per_device is None else f"{trial.batch_per_device:,}",
        units.figure(speedup.value if speedup else None),
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
    if command := rerun_command(record):
        yield Fact(name="repeat it with", value=shlex.join(command), command=True)
    yield Fact(name="figures again from raw files", value=f"dlscale regrade {record.run_id}", command=True)
    known = {
        "image": image.reference,
        "image id": image.id,
        "image digest": image.digest,
        "lock (SHA-256)": image.lock_sha256,
        "engine": " ".join(word for word in (record.engine, record.engine_details.version) if word),
        "suite's commit": where.git.commit,
        "training programs (SHA-256)": where.workloads_sha256,
        "host": f"{where.host.hostname}, kernel {where.host.kernel}",
        "NVIDIA driver": where.driver,
        "CUDA": where.cuda,
        "key": record.trial.key,
        "matrix": record.matrix_id,
        "speedup is against": record.scaling.baseline_run_id,
        "transport": f"{record.transport.used}, asked for {record.transport.requested}",
        "why it ended": record.outcome.reason,
    }
    yield from (Fact(name=name, value=value) for name, value in known.items() if value)
    batch, accuracy = record.measurement.batch, record.measurement.accuracy
    if batch and batch.reason:
        yield Fact(name="batch", value=f"{batch.used:,} in place of {batch.asked:,}: {batch.reason}")
    if accuracy and record.validity.status != "invalid":
        yield Fact(
            name="accuracy",
            value=f"{accuracy.percent:.2f} % at {accuracy.precision}, {accuracy.reference_percent:.2f} % at {accuracy.reference}, "
            f"{accuracy.samples:,} samples",
        )


# Defaults depend on the machine and the suite's version, so `dlscale bench` alone may train something else elsewhere: they are written out.
# Constant defaults of the command line, and those that the trial is derived from (the length of a run), are left out.
def rerun_command(record: RunRecord) -> tuple[str, ...]:
    """The argv that repeats a run; empty if its record does not have the command."""
    if not record.provenance.command:
        return ()
    program, *words = record.provenance.command
    name = PurePosixPath(program).name.replace("__main__.py", "dlscale")  # `python3 -m runner.commands`
    if not isinstance(record.trial, Trial) or words[:1] != ["bench"]:
        return (name, *words)
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    given = {word.partition("=")[0] for word in own}
    given |= {f"--{word.lower().replace('_', '-')}" for word in given if word.isupper()}  # GPUS=4
    more = (f"{flag}={value}" for flag, value in _resolved_flags(record, record.trial, given) if flag not in given)
    return (name, "bench", *more, *words[1:])


def _resolved_flags(record: RunRecord, trial: Trial, given: set[str]) -> Iterator[tuple[str, str | int]]:
    """Each flag that the suite chooses a value for unless it is typed, with the run's value."""
    yield "--framework", trial.framework
    if "--image" not in given and record.engine != "host":  # the host's framework has whatever version is installed
        yield "--version", trial.version
    yield "--model", trial.model
    several = trial.nodes == 1 and given & {"--nodes", "--hosts", "-H"}
    if not several and not given & {"--gpus", "--workers", "--concurrent"}:
        yield ("--gpus", trial.world_size) if trial.device == "gpu" else ("--workers", _workers(record, trial))
    yield "--batch", trial.global_batch if trial.scaling == "strong" else trial.batch_per_device
    if trial.image_size:
        yield "--image-size", trial.image_size
    yield "--precision", trial.precision
    if trial.world_size > 1:
        yield "--strategy", trial.strategy
        if trial.kvstore:
            yield "--kvstore", trial.kvstore
    if "--image" not in given:
        yield "--engine", record.engine


def _workers(record: RunRecord, trial: Trial) -> str:
    """The worker counts to request: the run's and the largest scale's, because the latter determines a worker's share of the machine."""
    cores, share = record.provenance.host.usable_threads, trial.cpus_per_worker
    largest = cores // share if share and trial.nodes == 1 else 0
    return ",".join(map(str, sorted({trial.world_size, max(trial.world_size, largest)})))
