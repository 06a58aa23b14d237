"""Events → figures. Pure functions, each figure defined once; the same events always give the same digits.

Clock: ranks leave a barrier at the start of the measured windows, so each rank's times are taken relative to its own first
window. That needs no common clock between hosts, and its error is the skew of one barrier.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from runner.events import PAUSE_S, Compiled, Eval, Event, Loss, Usage, Window
from runner.grading.model import (
    FEWEST_RUNS,
    CompiledGraphs,
    Evaluation,
    Interval,
    RawWindow,
    Steadiness,
    StepMethod,
    StepTime,
    Used,
)

CONFIDENCE = 0.95
ALMOST_NORMAL = 1000
STEADY_TOLERANCE = 0.05
MIN_STEADY_WINDOWS = 4

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GlobalWindows:
    """The windows of all ranks as one sequence.

    Attributes:
        samples: (windows,) samples of all ranks, or units where throughput counts something else.
        seconds: (windows,) wall seconds; they add up to the span from the barrier to the slowest rank's end, less the pauses.
    """

    samples: Floats
    seconds: Floats

    @classmethod
    def of_rate(cls, rate: float) -> GlobalWindows:
        """A run of which the rate alone is known; each such moves one unit, so that pooling adds up their times."""
        return cls(np.array([1.0]), np.array([1.0 / rate]))

    def since(self, first: int) -> GlobalWindows:
        """The windows from index `first` on."""
        return GlobalWindows(self.samples[first:], self.seconds[first:])

    @property
    def rate(self) -> float:
        """Samples ÷ seconds over all the windows: never a mean of rates."""
        return float(self.samples.sum() / self.seconds.sum())


def global_windows(windows: Sequence[Window | RawWindow]) -> GlobalWindows | None:
    """Join the ranks' windows: a window ends, for all, when its slowest rank ends it, and starts where the one before ended.

    After a pause, such as a validation between two epochs, it starts when the first rank does.

    Returns None when there is no window that every rank has.
    """
    ranks: dict[int, list[Window | RawWindow]] = {}
    for window in windows:
        ranks.setdefault(window.rank, []).append(window)
    common = min((len(found) for found in ranks.values()), default=0)
    if common == 0:
        return None
    ordered = [sorted(found, key=lambda w: w.index)[:common] for found in ranks.values()]
    starts = np.array([[w.start - found[0].start for w in found] for found in ordered]).min(axis=0)
    ends = np.array([[w.start + w.seconds - found[0].start for w in found] for found in ordered]).max(axis=0)
    before = np.concatenate([[0.0], ends[:-1]])
    amounts = [[w.samples if w.units is None else w.units for w in found] for found in ordered]
    samples = np.array(amounts, dtype=np.float64).sum(axis=0)
    return GlobalWindows(samples, ends - np.where(starts - before > PAUSE_S, starts, before))


def steadiness(windows: GlobalWindows) -> Steadiness:
    """Find where the steady state begins.

    The number of windows to drop is the one that minimizes the marginal standard error of the rest (MSER: K. P. White, "An
    effective truncation heuristic for bias reduction in simulation output", Simulation 69(6), 1997), searched in the first
    half as its author advises. The state counts as steady when the later half of what is kept is within 5 % of the earlier.
    """
    times = windows.seconds / windows.samples
    count = len(times)
    if count < MIN_STEADY_WINDOWS:
        return Steadiness(first_window=0, steady=False, drift=0.0)
    errors = [times[d:].var() / (count - d) for d in range(count // 2 + 1)]
    first = int(np.argmin(errors))
    kept = windows.since(first)
    middle = len(kept.samples) // 2
    earlier = GlobalWindows(kept.samples[:middle], kept.seconds[:middle]).rate
    drift = kept.since(middle).rate / earlier - 1.0
    steady = abs(drift) <= STEADY_TOLERANCE
    return Steadiness(first_window=first if steady else 0, steady=steady, drift=drift)


def pooled_rate(runs: Sequence[GlobalWindows]) -> float:
    """Samples of all runs ÷ seconds of all runs."""
    return float(sum(run.samples.sum() for run in runs) / sum(run.seconds.sum() for run in runs))


def rate_interval(runs: Sequence[GlobalWindows]) -> Interval | None:
    """Student's t interval of the pooled rate over runs, each a process started anew; None for fewer than `FEWEST_RUNS`.

    Windows of one process are alike and tell nothing about the next one, so that only the spread of whole runs counts. It is taken on
    logarithms: rates are positive, and a ratio of two is then a difference.
    """
    variance = _log_variance(runs)
    return None if variance is None else _around(pooled_rate(runs), variance, freedom=len(runs) - 1)


def ratio_interval(scaled: Sequence[GlobalWindows], base: Sequence[GlobalWindows]) -> Interval | None:
    """Welch's interval of rate(scaled) ÷ rate(base), on logarithms; None where one of them has fewer runs than `FEWEST_RUNS`."""
    own, other = _log_variance(scaled), _log_variance(base)
    if own is None or other is None:
        return None
    freedom = welch_freedom((own, len(scaled) - 1), (other, len(base) - 1))
    return _around(pooled_rate(scaled) / pooled_rate(base), own + other, freedom=freedom)


def _log_variance(runs: Sequence[GlobalWindows]) -> float | None:
    """Variance of the logarithm of a pooled rate: that of single runs, times the sum of the squares of their shares of the samples.

    Of n equally long runs that sum is 1 ÷ n. Of unequal ones it is more, as the longest decide.
    """
    if len(runs) < FEWEST_RUNS:
        return None
    samples = [float(run.samples.sum()) for run in runs]
    whole = math.fsum(samples)
    return statistics.variance([math.log(run.rate) for run in runs]) * math.fsum((own / whole) ** 2 for own in samples)


def _around(value: float, log_variance: float, *, freedom: float) -> Interval:
    factor = math.exp(student_t(freedom) * math.sqrt(log_variance))
    return Interval(low=value / factor, high=value * factor)


def welch_freedom(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of independent variances, each with its own degrees of freedom.

    B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved", Biometrika
    34(1-2), 1947.
    """
    below = math.fsum(variance**2 / freedom for variance, freedom in parts)
    return math.fsum(variance for variance, _ in parts) ** 2 / below if below else math.inf


@cache
def student_t(freedom: float, confidence: float = CONFIDENCE) -> float:
    """The quantile of Student's t that leaves `confidence` in the middle, by integration; `freedom` need not be whole.

    With t = sqrt(freedom) × tan(angle) its density is that of cos(angle)^(freedom - 1).
    """
    if freedom > ALMOST_NORMAL:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    angles = np.linspace(0, math.pi / 2, 4001)
    density = np.cos(angles) ** (freedom - 1)
    share = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = float(np.interp(confidence, share / share[-1], angles))
    return round(math.sqrt(freedom) * math.tan(angle), 5)  # the last digits are the processor's


def step_times(windows: Sequence[Window], *, method: StepMethod = "step") -> StepTime | None:
    """Percentiles over the steps of the slowest rank, or over window means where a framework can't time a step."""
    if not windows:
        return None
    per_rank: dict[int, list[float]] = {}
    if any(window.step_seconds is None for window in windows):
        method = "window-mean"
    for window in windows:
        steps = (
            window.step_seconds
            if method != "window-mean" and window.step_seconds
            else (window.seconds / window.iterations,)
        )
        per_rank.setdefault(window.rank, []).extend(steps)
    slowest = max(per_rank.values(), key=lambda steps: math.fsum(steps) / len(steps))
    p50, p90, p99 = (float(value) for value in np.quantile(slowest, [0.5, 0.9, 0.99]))
    return StepTime(p50=p50, p90=p90, p99=p99, method=method)


def losses(events: Sequence[Event]) -> dict[str, tuple[float | None, ...]]:
    """Loss curve of each rank, warm-up included, by iteration."""
    curves: dict[int, dict[int, float | None]] = {}
    for event in events:
        if isinstance(event, Loss):
            curve = curves.setdefault(event.rank, {})
            curve.update({event.first_iteration + offset: value for offset, value in enumerate(event.values)})
    return {str(rank): tuple(curve[i] for i in sorted(curve)) for rank, curve in sorted(curves.items())}


def evaluations(events: Sequence[Event]) -> dict[str, tuple[Evaluation, ...]]:
    """Losses on the shared batch by rank, in the order of iterations."""
    found: dict[int, list[Evaluation]] = {}
    for event in events:
        if isinstance(event, Eval):
            found.setdefault(event.rank, []).append(Evaluation(iteration=event.iteration, losses=event.losses))
    return {str(rank): tuple(sorted(own, key=lambda e: e.iteration)) for rank, own in sorted(found.items())}


def compiled(events: Sequence[Event]) -> CompiledGraphs | None:
    """What compilers made for all ranks; None where none was at work."""
    told = [event for event in events if isinstance(event, Compiled)]
    return CompiledGraphs(fresh=sum(one.fresh for one in told), kept=sum(one.kept for one in told)) if told else None


def used(events: Sequence[Event]) -> dict[str, Used]:
    """By container, what its control group used; all ranks of a container read the same one, the first of them speaks."""
    told: dict[str, dict[str, Usage]] = {}
    for event in sorted((e for e in events if isinstance(e, Usage)), key=lambda e: e.rank, reverse=True):
        told.setdefault(event.container, {})[event.where] = event
    return {
        name: Used(
            cpu_s=stop.cpu_s - start.cpu_s if stop.cpu_s is not None and start.cpu_s is not None else None,
            memory_mib=_mib(stop.memory_bytes),
            memory_peak_mib=_mib(stop.memory_peak_bytes),
        )
        for name, ends in sorted(told.items())
        if (start := ends.get("start")) and (stop := ends.get("stop"))
    }


def _mib(size: int | None) -> float | None:
    return None if size is None else size / 2**20


def counted(windows: Sequence[Window | RawWindow], steady: Steadiness) -> GlobalWindows | None:
    """The joined windows from the steady state on."""
    joined = global_windows(windows)
    return joined.since(steady.first_window) if joined else None
