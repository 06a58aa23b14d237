"""Events → figures. Pure functions, each figure defined once; the same events always give the same digits.

Clock: ranks leave a barrier at the start of the measured windows, so each rank's times are taken relative to its own first
window. That needs no common clock between hosts, and its error is the skew of one barrier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from runner.events import PAUSE_S, Compiled, Eval, Event, Loss, Usage, Window
from runner.grading.model import CompiledGraphs, Evaluation, Interval, RawWindow, Steadiness, StepMethod, StepTime, Used

RESAMPLES = 10_000
CONFIDENCE = 0.95
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


def _block_rates(windows: GlobalWindows, rng: np.random.Generator, resamples: int) -> tuple[Floats, Floats]:
    """Resample windows in circular blocks: (resamples,) samples and seconds.

    Windows that follow each other are alike, so blocks of n^(1/3) windows are drawn (Politis and Romano, "A circular
    block-resampling procedure for stationary data", 1992; the order of the length after Künsch, 1989).
    """
    count = len(windows.samples)
    length = max(1, round(count ** (1 / 3)))
    blocks = math.ceil(count / length)
    starts = rng.integers(0, count, size=(resamples, blocks))
    index = ((starts[:, :, None] + np.arange(length)) % count).reshape(resamples, -1)[:, :count]
    return windows.samples[index].sum(axis=1), windows.seconds[index].sum(axis=1)


def rate_distribution(runs: Sequence[GlobalWindows], *, seed: int) -> Floats:
    """Bootstrap distribution, (RESAMPLES,), of the pooled rate of process-level repeats of one trial.

    Two levels, as the variation has two: repeats are drawn with replacement, then each one's windows in blocks (A. C. Davison
    and D. V. Hinkley, "Bootstrap Methods and their Application", 1997, §3.8). A repeat that is drawn twice has its windows drawn twice.
    Before that repeats are moved apart, as few of them are nearer to each other than many would be.
    """
    rng = np.random.default_rng(seed)
    samples, seconds = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    picked = rng.integers(0, len(runs), size=(len(runs), RESAMPLES))
    apart = _apart(runs)
    for number, run in enumerate(apart):
        _, resamples = np.nonzero(picked == number)
        of_samples, of_seconds = _block_rates(run, rng, len(resamples))
        np.add.at(samples, resamples, of_samples)
        np.add.at(seconds, resamples, of_seconds)
    return samples / seconds * (pooled_rate(runs) / pooled_rate(apart))


def _apart(runs: Sequence[GlobalWindows]) -> list[GlobalWindows]:
    """Repeats with their rates farther from the pooled one, by the same factor each (of logarithms).

    What is drawn from n repeats varies by (n - 1) ÷ n of what they do, and Student's t says how much more they may vary than they show
    (T. C. Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69(4), 2015, on narrowness bias). Without
    both, an interval of 95 % over three repeats holds the truth three times of four.
    """
    count = len(runs)
    if count == 1:
        return list(runs)
    factor = student_t(count - 1) / student_t(math.inf) * math.sqrt(count / (count - 1))
    pooled = pooled_rate(runs)
    return [GlobalWindows(run.samples, run.seconds * (pooled / run.rate) ** (factor - 1)) for run in runs]


def student_t(freedom: float) -> float:
    """The quantile of Student's t that leaves `CONFIDENCE` in the middle, to 0.3 %.

    Closed forms at 1 and 2 degrees of freedom, then by expansion (M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions",
    26.7.5).
    """
    if freedom == 1:
        return math.tan(math.pi * CONFIDENCE / 2)
    if freedom == 2:  # noqa: PLR2004
        return CONFIDENCE * math.sqrt(2 / (1 - CONFIDENCE**2))
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))


def interval(distribution: Floats) -> Interval:
    """The central 95 % of a bootstrap distribution."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(distribution, [tail, 1 - tail])
    return Interval(low=float(low), high=float(high))


def pooled_rate(runs: Sequence[GlobalWindows]) -> float:
    """Samples of all repeats ÷ seconds of all repeats."""
    return float(sum(run.samples.sum() for run in runs) / sum(run.seconds.sum() for run in runs))


def rate_interval(runs: Sequence[GlobalWindows]) -> Interval | None:
    """Interval of the pooled rate; None of a single window, which can't vary, and is no certainty."""
    return interval(rate_distribution(runs, seed=1)) if _vary(runs) else None


def ratio_interval(scaled: Sequence[GlobalWindows], base: Sequence[GlobalWindows]) -> Interval | None:
    """Interval of rate(scaled) ÷ rate(base), the two resampled independently; None where one of them is a single window."""
    if not _vary(scaled) or not _vary(base):
        return None
    return interval(rate_distribution(scaled, seed=1) / rate_distribution(base, seed=2))


def _vary(runs: Sequence[GlobalWindows]) -> bool:
    return sum(len(run.samples) for run in runs) > 1


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
