"""Runs on file that need not be run again. A study that was stopped goes on where it was, and one that is done costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from runner.core.record import ImageUsed
from runner.core.trial import AnyTrial, Trial
from runner.results.find import records_under
from runner.run.trial_runner import Run


class Memory:
    """What `out` has of each trial.

    A run counts for a trial that is equal to its own in every field: scale, batch, wires, link, profile, concurrent trainings, data. The
    key in it covers machine, engine, lock and the programs' source; the image is held against that of the run.
    """

    def __init__(self, out: Path) -> None:
        self._runs: dict[str, list[Run]] = {}
        for run in records_under(out):
            self.add(run)

    def add(self, run: Run) -> None:
        """Remember a run that may be used; one that failed or is invalid is tried again."""
        _, record = run
        if record.outcome.status == "ok" and record.validity.status != "invalid" and isinstance(record.trial, Trial):
            self._runs.setdefault(record.trial.key, []).append(run)

    def find(self, trial: AnyTrial, image: ImageUsed) -> Run | None:
        """The newest run of this trial in this image; None if there is none."""
        return max(self._of(trial, image), key=lambda run: run[1].run_id, default=None)

    def _of(self, trial: AnyTrial, image: ImageUsed) -> Iterator[Run]:
        for run in self._runs.get(trial.key, []):
            used = run[1].image
            if run[1].trial == trial and (used.id, used.lock_sha256) == (image.id, image.lock_sha256):
                yield run
