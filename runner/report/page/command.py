"""The command line that gives a run again: as it was typed, with what it left to the suite as the run had it.

What a default is follows from the machine and the version of the suite: `dlscale bench` alone is another training elsewhere. A default that
is a constant of the command line, and one that a trial follows from (the length of a run), stays one.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from runner.core.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.core.record import RunRecord


def again(record: RunRecord) -> tuple[str, ...]:
    """The words; none where it is not on file what was typed."""
    if not record.provenance.command:
        return ()
    program, *words = record.provenance.command
    name = PurePosixPath(program).name.replace("__main__.py", "dlscale")  # `python3 -m runner`
    if not isinstance(record.trial, Trial) or words[:1] != ["bench"]:
        return (name, *words)
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    given = {word.partition("=")[0] for word in own}
    more = (f"{flag}={value}" for flag, value in _resolved(record, record.trial, given) if flag not in given)
    return (name, "bench", *more, *words[1:])


def _resolved(record: RunRecord, trial: Trial, given: set[str]) -> Iterator[tuple[str, str | int]]:
    """Each flag of what the suite decides where it is not given, with what it decided."""
    yield "--framework", trial.framework
    if "--image" not in given and record.engine != "host":  # whose version is what is there
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
    """How many CPU workers: one has its share of the machine at the largest scale, which so is named, too."""
    cores, share = record.provenance.host.usable_threads, trial.cpus_per_worker
    largest = cores // share if share and trial.nodes == 1 else 0
    return ",".join(map(str, sorted({trial.world_size, max(trial.world_size, largest)})))
