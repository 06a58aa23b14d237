"""Runs on file that need not be run again: a study or a matrix that was stopped goes on from there."""

from __future__ import annotations

from pathlib import Path

from runner.core.record import ImageUsed, RunRecord
from runner.core.trial import AnyTrial, Trial, paced
from runner.results.find import Run, records_under


class RecordedRuns:
    """The usable runs in a folder, by trial: one stands for a trial that equals its own in every field, in the same image."""

    def __init__(self, out: Path) -> None:
        self._runs: dict[str, list[Run]] = {}
        for run in records_under(out):
            self.add(run)

    def add(self, run: Run) -> None:
        """Remember a run; one that failed or is invalid is tried again."""
        _, record = run
        if record.outcome.status == "ok" and record.validity.status != "invalid" and isinstance(record.trial, Trial):
            self._runs.setdefault(record.trial.key, []).append(run)

    def find(self, trial: AnyTrial, image: ImageUsed) -> Run | None:
        """The newest run of this trial in this image; None if there is none."""
        own = [run for run in self._runs.get(trial.key, []) if _stands_for(run[1], trial, image)]
        return max(own, key=lambda run: run[1].run_id, default=None)


def _stands_for(record: RunRecord, trial: AnyTrial, image: ImageUsed) -> bool:
    """Whether a run is of a trial, whose length may have followed its rate, and whose nodes of their kind may have been others."""
    ran, used = record.trial, record.image
    if not isinstance(ran, Trial) or not isinstance(trial, Trial):
        return False
    if not trial.iterations and not trial.profile:
        trial = paced(trial, iterations=ran.iterations, window=ran.window)
    alike = [(one.devices, one.wire and one.wire.kind) for one in ran.placement]
    return (
        ran.model_copy(update={"placement": trial.placement}) == trial
        and alike == [(one.devices, one.wire and one.wire.kind) for one in trial.placement]
        and (used.id, used.lock_sha256) == (image.id, image.lock_sha256)
    )
