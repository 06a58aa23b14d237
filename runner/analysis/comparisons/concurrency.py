"""What several trainings at once came to, a case each. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from runner.analysis.comparisons.grouping import Run
from runner.core.frozen import Frozen
from runner.core.record import RunRecord
from runner.core.trial import Case

CASES: tuple[Case, ...] = ("one", "sequential", "together")


class CaseFigures(Frozen):
    """What the trainings of one case, each on `devices`, took together over its repeats; `reasons` are why runs are not valid."""

    case: Case
    trainings: int
    devices: int
    shared: bool  # whether those at once had all devices in common
    total_s: tuple[float, ...]  # of each usable repeat, as `total_s`
    samples: int  # that all trainings of one repeat trained on in that time
    reasons: tuple[str, ...]

    @property
    def median_s(self) -> float | None:
        """Median of the repeats; None where none can be used."""
        return statistics.median(self.total_s) if self.total_s else None


def figures(runs: Sequence[Run]) -> tuple[CaseFigures, ...]:
    """What the runs of one matrix came to, a case each; one without runs is not there."""
    return tuple(found for case in CASES if (found := _figures(case, [record for _, record in runs])))


def _figures(case: Case, records: Sequence[RunRecord]) -> CaseFigures | None:
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
    """Seconds that the trainings of one repeat took together, without start, model and warm-up.

    At once, they are from the first one's first measured window to the last one's end, by the clock of the machine; else their measured
    times added up.
    """
    if case != "together":
        return math.fsum(record.measurement.training_time_s or 0.0 for record in records)
    windows = [window for record in records for window in record.measurement.windows]
    return max(window.start + window.seconds for window in windows) - min(window.start for window in windows)
