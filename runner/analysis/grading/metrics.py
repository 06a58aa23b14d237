"""Events → figures. Pure functions, each figure defined once; the same events always give the same digits.

Clock: ranks leave a barrier at the start of the measured windows, so each rank's times are relative to its own first window. That needs no
common clock between hosts; the error is the skew of one barrier.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from runner.core.events import PAUSE_S, Compiled, Eval, Event, Loss, Techniques, Usage, Window
from runner.core.measurement import (
    FEWEST_RUNS,
    CompiledGraphs,
    Evaluation,
    Interval,
    Percentiles,
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
# The largest share of the measured seconds to drop as a transient: a run that is slow for longer is a slow run.
MOST_LEFT_OUT = 0.2
# If the rate changes by less than this without its first windows, there was no transient and nothing is dropped.
TRANSIENT = 0.002
# An efficiency that changes by this much without each window's first step shows the cost of closing windows, not how the job scales.
EDGE_TOLERANCE = 0.002

Floats = npt.NDArray[np.float64]
AnyWindow = TypeVar("AnyWindow", bound=Window | RawWindow)


@dataclass(frozen=True)
class GlobalWindows:
    """The windows of all ranks as one sequence (`global_windows`), (windows,) each: the slowest rank's end closes one, pauses are left out.

    `first_*` describe each window's first step: its share of the samples, and its seconds on the slowest rank; None if untimed.
    """

    samples: Floats  # of all ranks, or units if throughput counts something else
    seconds: Floats
    first_share: Floats | None = None
    first_seconds: Floats | None = None

    @classmethod
    def of_rate(cls, rate: float) -> GlobalWindows:
        """A run with a known rate only: it moves one unit, so that pooling sums the times of such runs."""
        return cls(np.array([1.0]), np.array([1.0 / rate]))

    def since(self, first: int) -> GlobalWindows:
        """The windows from index `first` on."""
        return GlobalWindows(
            self.samples[first:],
            self.seconds[first:],
            None if self.first_share is None else self.first_share[first:],
            None if self.first_seconds is None else self.first_seconds[first:],
        )

    @property
    def rate(self) -> float:
        """Samples ÷ seconds over all windows: never a mean of rates."""
        return float(self.samples.sum() / self.seconds.sum())

    @property
    def within(self) -> GlobalWindows | None:
        """The same windows without their first steps; None if steps were not timed, or a window is a single one."""
        if self.first_share is None or self.first_seconds is None or self.of_single_steps:
            return None
        found = GlobalWindows(self.samples * (1 - self.first_share), self.seconds - self.first_seconds)
        return found if found.seconds.sum() > 0 else None

    @property
    def of_single_steps(self) -> bool:
        """Whether a window is a single step, which does not show what the end of a window costs."""
        return self.first_share is not None and bool((self.first_share >= 1).any())


def global_windows(windows: Sequence[Window | RawWindow]) -> GlobalWindows | None:
    """Merge the ranks' windows; None if no window is common to all ranks.

    A merged window ends when its slowest rank ends it, and starts where the previous one ended; after a pause, such as a validation between
    two epochs, it starts with the first rank.
    """
    ordered = [[raw(window) for window in found] for found in common_windows(windows).values()]
    if not any(ordered):
        return None
    starts = np.array([[w.start - found[0].start for w in found] for found in ordered]).min(axis=0)
    ends = np.array([[w.start + w.seconds - found[0].start for w in found] for found in ordered]).max(axis=0)
    before = np.concatenate([[0.0], ends[:-1]])
    amounts = [[w.amount for w in found] for found in ordered]
    samples = np.array(amounts, dtype=np.float64).sum(axis=0)
    seconds = ends - np.where(starts - before > PAUSE_S, starts, before)
    if any(w.first_step_s is None or not w.iterations for found in ordered for w in found):
        return GlobalWindows(samples, seconds)
    share = np.array([1 / w.iterations for w in ordered[0] if w.iterations])
    first = np.array([[w.first_step_s for w in found] for found in ordered], dtype=np.float64).max(axis=0)
    return GlobalWindows(samples, seconds, share, first)


def common_windows(windows: Iterable[AnyWindow]) -> dict[int, list[AnyWindow]]:
    """The windows of each rank in order, truncated to the number that every rank has."""
    ranks: dict[int, list[AnyWindow]] = {}
    for window in sorted(windows, key=lambda window: window.index):
        ranks.setdefault(window.rank, []).append(window)
    common = min(map(len, ranks.values()), default=0)
    return {rank: found[:common] for rank, found in ranks.items()}


def raw(window: Window | RawWindow) -> RawWindow:
    """The part of a window that a record keeps."""
    if isinstance(window, RawWindow):
        return window
    kept = RawWindow.model_validate(window, from_attributes=True)
    return kept.model_copy(update={"first_step_s": window.step_seconds[0]}) if window.step_seconds else kept


def incomparable(scaled: Sequence[GlobalWindows], base: Sequence[GlobalWindows], *, scale: int) -> str | None:
    """Why `scaled`, on `scale` GPUs, has no efficiency relative to `base` on one; None if it has, or if steps were not timed.

    A program that waits for its devices at the end of a window starts the next one with an empty queue. That costs more on more devices,
    and the shorter the windows, the more often. It shows in each window's first step: an efficiency that changes by `EDGE_TOLERANCE` or
    more without those steps describes the windows, not the job.
    """
    if any(run.of_single_steps for run in (*scaled, *base)):
        return "not comparable: windows of a single step do not show what their ends cost; leave ITERATIONS out, or ask for more"
    ours, theirs = ([run.within for run in runs] for runs in (scaled, base))
    own, other = ([run for run in runs if run] for runs in (ours, theirs))
    if len(own) < len(ours) or len(other) < len(theirs):
        return None
    counted = pooled_rate(scaled) / pooled_rate(base) / scale
    within = pooled_rate(own) / pooled_rate(other) / scale
    if abs(within - counted) < EDGE_TOLERANCE:
        return None
    return (
        "not comparable: each window ended with a wait for the devices, which costs several more than one (efficiency "
        f"{counted:.3f} with the first step of each window, {within:.3f} without)"
    )


def steadiness(windows: GlobalWindows, *, most_left_out: float = MOST_LEFT_OUT) -> Steadiness:
    """Find where the steady state begins, within the first `most_left_out` of the measured seconds and the first half of the windows.

    The number of dropped windows minimizes the marginal standard error of the rest (MSER: K. P. White, "An effective truncation heuristic
    for bias reduction in simulation output", Simulation 69(6), 1997). It is bounded in time as well: of unequal windows, a few can be most
    of the run. The state is steady if there are `MIN_STEADY_WINDOWS` and the later half of the kept ones is within 5 % of the earlier; if it
    is not, or if dropping windows changes the rate by less than `TRANSIENT`, all windows count.
    """
    times = windows.seconds / windows.samples
    count, total = len(times), float(windows.seconds.sum())
    if count < MIN_STEADY_WINDOWS:
        return _kept(windows, first=0, steady=False, drift=0.0)
    droppable = int((np.cumsum(windows.seconds) <= most_left_out * total).sum())
    errors = [times[d:].var() / (count - d) for d in range(min(droppable, count // 2) + 1)]
    first = int(np.argmin(errors))
    kept = windows.since(first)
    drift = drift_of(kept)
    steady = abs(drift) <= STEADY_TOLERANCE
    if steady and abs(kept.rate / windows.rate - 1) < TRANSIENT:
        return _kept(windows, first=0, steady=True, drift=drift_of(windows))
    return _kept(windows, first=first if steady else 0, steady=steady, drift=drift)


def drift_of(windows: GlobalWindows) -> float:
    """How much faster the later half of the windows is than the earlier, as a share."""
    middle = len(windows.samples) // 2
    return windows.since(middle).rate / GlobalWindows(windows.samples[:middle], windows.seconds[:middle]).rate - 1.0


def _kept(windows: GlobalWindows, *, first: int, steady: bool, drift: float) -> Steadiness:
    kept = windows.since(first)
    return Steadiness(
        first_window=first,
        steady=steady,
        drift=drift,
        left_out_s=float(windows.seconds[:first].sum()),
        kept_s=float(kept.seconds.sum()),
        kept=float(kept.samples.sum()),
    )


def pooled_rate(runs: Sequence[GlobalWindows]) -> float:
    """Samples of all runs ÷ seconds of all runs."""
    return float(sum(run.samples.sum() for run in runs) / sum(run.seconds.sum() for run in runs))


def rate_interval(runs: Sequence[GlobalWindows]) -> Interval | None:
    """Student's t interval of the pooled rate over runs, each a newly started process; None for fewer than `FEWEST_RUNS`.

    The windows of one process are alike and do not predict the next process, so only the spread of whole runs counts. It is taken on
    logarithms: rates are positive, and a ratio becomes a difference.
    """
    variance = _log_variance(runs)
    return None if variance is None else _around(pooled_rate(runs), variance, freedom=len(runs) - 1)


def ratio_interval(scaled: Sequence[GlobalWindows], base: Sequence[GlobalWindows]) -> Interval | None:
    """Welch's interval of rate(scaled) ÷ rate(base), on logarithms; None if either has fewer than `FEWEST_RUNS` runs."""
    noise = _log_noise(scaled, base)
    return noise and _around(pooled_rate(scaled) / pooled_rate(base), noise[0], freedom=noise[1])


def equality_p(scaled: Sequence[GlobalWindows], base: Sequence[GlobalWindows]) -> float | None:
    """Welch's two-sided p of equal rates, on logarithms, whose interval is `ratio_interval`; None if either has fewer than `FEWEST_RUNS` runs."""
    noise = _log_noise(scaled, base)
    if noise is None:
        return None
    apart = abs(math.log(pooled_rate(scaled) / pooled_rate(base)))
    return student_p(apart / math.sqrt(noise[0]), noise[1]) if noise[0] else float(apart == 0)


def _log_noise(scaled: Sequence[GlobalWindows], base: Sequence[GlobalWindows]) -> tuple[float, float] | None:
    """Variance of the logarithm of rate(scaled) ÷ rate(base), and its degrees of freedom."""
    own, other = _log_variance(scaled), _log_variance(base)
    if own is None or other is None:
        return None
    return own + other, welch_freedom((own, len(scaled) - 1), (other, len(base) - 1))


def _log_variance(runs: Sequence[GlobalWindows]) -> float | None:
    """Variance of the logarithm of a pooled rate: that of single runs × the sum of the squares of their shares of the samples.

    For n equally long runs that sum is 1 ÷ n; for unequal runs it is larger, as the longest dominate.
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
    """The two-sided quantile of Student's t for `confidence`, by integration; `freedom` need not be whole."""
    if freedom > ALMOST_NORMAL:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    angles, shares = _student_angles(freedom)
    angle = float(np.interp(confidence, shares, angles))
    return round(math.sqrt(freedom) * math.tan(angle), 5)  # the last digits depend on the processor


def student_p(t: float, freedom: float) -> float:
    """The two-sided tail of Student's t beyond `t`, by integration: the chance of |t| or more."""
    if freedom > ALMOST_NORMAL:
        return math.erfc(abs(t) / math.sqrt(2))
    angles, shares = _student_angles(freedom)
    return max(0.0, 1 - float(np.interp(math.atan(abs(t) / math.sqrt(freedom)), angles, shares)))


def _student_angles(freedom: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Angles from 0 to a right one, and the share of Student's t within ± each of them.

    With t = sqrt(freedom) × tan(angle), the density of the angle is proportional to cos(angle)^(freedom - 1).
    """
    angles = np.linspace(0, math.pi / 2, 4001)
    density = np.cos(angles) ** (freedom - 1)
    shares = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return angles, shares / shares[-1]


def step_times(windows: Sequence[Window], *, method: StepMethod = "step") -> StepTime | None:
    """Percentiles of the slowest rank's step times, or of its window means if the framework can't time a step."""
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
    p50, p90, p99 = _quantiles(slowest)
    return StepTime(p50=p50, p90=p90, p99=p99, method=method)


def percentiles(seconds: Sequence[float]) -> Percentiles:
    """Percentiles of at least one timing."""
    return Percentiles.known(*_quantiles(seconds), repeats=len(seconds))


def _quantiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """p50, p90 and p99, by linear interpolation between the two nearest."""
    p50, p90, p99 = (float(value) for value in np.quantile(seconds, [0.5, 0.9, 0.99]))
    return p50, p90, p99


def losses(events: Sequence[Event]) -> dict[str, tuple[float | None, ...]]:
    """Loss curve of each rank by iteration, warm-up included; None for a loss that is not finite."""
    curves: dict[int, dict[int, float | None]] = {}
    for event in events:
        if isinstance(event, Loss):
            curve = curves.setdefault(event.rank, {})
            finite = (value if value is not None and math.isfinite(value) else None for value in event.values)
            curve.update({event.first_iteration + offset: value for offset, value in enumerate(finite)})
    return {str(rank): tuple(curve[i] for i in sorted(curve)) for rank, curve in sorted(curves.items())}


def evaluations(events: Sequence[Event]) -> dict[str, tuple[Evaluation, ...]]:
    """Losses on the shared batch by rank, in iteration order."""
    found: dict[int, list[Evaluation]] = {}
    for event in events:
        if isinstance(event, Eval):
            found.setdefault(event.rank, []).append(Evaluation.model_validate(event, from_attributes=True))
    return {str(rank): tuple(sorted(own, key=lambda e: e.iteration)) for rank, own in sorted(found.items())}


def compiled(events: Sequence[Event]) -> CompiledGraphs | None:
    """Graphs compiled for all ranks; None if no compiler ran."""
    made = [event for event in events if isinstance(event, Compiled)]
    return CompiledGraphs(fresh=sum(one.fresh for one in made), kept=sum(one.kept for one in made)) if made else None


def effects(events: Sequence[Event]) -> dict[str, int]:
    """By technique, the number of operations or weights that it changed, on the rank with the fewest."""
    by_rank = [event.effects for event in events if isinstance(event, Techniques)]
    return {name: min(one[name] for one in by_rank) for name in (by_rank[0] if by_rank else ())}


def used(events: Sequence[Event]) -> dict[str, Used]:
    """By container, its control group's usage; all ranks of a container read the same group, and the lowest rank's readings count."""
    readings: dict[str, dict[str, Usage]] = {}
    for event in sorted((e for e in events if isinstance(e, Usage)), key=lambda e: e.rank, reverse=True):
        readings.setdefault(event.container, {})[event.where] = event
    return {
        name: Used(
            cpu_s=stop.cpu_s - start.cpu_s if stop.cpu_s is not None and start.cpu_s is not None else None,
            memory_mib=_mib(stop.memory_bytes),
            memory_peak_mib=_mib(stop.memory_peak_bytes),
        )
        for name, ends in sorted(readings.items())
        if (start := ends.get("start")) and (stop := ends.get("stop"))
    }


def _mib(size: int | None) -> float | None:
    return None if size is None else size / 2**20


def counted(windows: Sequence[Window | RawWindow], steady: Steadiness) -> GlobalWindows | None:
    """The merged windows from the steady state on."""
    joined = global_windows(windows)
    return joined.since(steady.first_window) if joined else None
