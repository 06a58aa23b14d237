"""Whether two figures differ by more than their noise. Pure.

Intervals are 95 %, over runs. The interval of a difference or ratio of two independent figures is computed from theirs (MOVER: G. Y. Zou
and A. Donner, "Construction of confidence limits about effect measures: a general approach", Statistics in Medicine 27(10), 2008) with
Welch's degrees of freedom: half an interval's width ÷ Student's t for its degrees of freedom (runs less one) is a standard error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, Literal

import numpy as np

from runner.analysis.grading.metrics import student_t, welch_freedom
from runner.core.measurement import FEWEST_RUNS, Interval

PERMUTATIONS: Final = 9_999
SIGNIFICANCE: Final = 0.05
NEGLIGIBLE: Final = 0.05
"""Differences up to this share count as none: no source calls a smaller one significant, and repeated runs on file have standard deviations of
up to 5 %."""

Order = Literal["above", "below", "equal", "within noise"]


@dataclass(frozen=True)
class Amount:
    """A figure and its uncertainty: `ci95` is None for few runs, and for `exact` values, which are printed or defined, not measured.

    `freedom` is the interval's degrees of freedom, runs less one; None for infinitely many.
    """

    value: float
    ci95: Interval | None = None
    freedom: float | None = None
    exact: bool = False

    @property
    def low(self) -> float:
        """Lower end of the interval, or the figure itself without one."""
        return self.ci95.low if self.ci95 else self.value

    @property
    def high(self) -> float:
        """Upper end of the interval, or the figure itself without one."""
        return self.ci95.high if self.ci95 else self.value

    @property
    def known(self) -> bool:
        """Whether its uncertainty is known."""
        return self.exact or self.ci95 is not None

    def scaled(self, factor: float) -> Amount:
        """Convert to a unit `factor` times smaller."""
        return replace(self, value=self.value * factor, ci95=self.ci95.scaled(factor) if self.ci95 else None)


def mean_of(values: Sequence[float]) -> Amount:
    """Average one number per run, with Student's interval if there are at least `FEWEST_RUNS`."""
    middle = statistics.fmean(values)
    if len(values) < FEWEST_RUNS:
        return Amount(middle)
    freedom = len(values) - 1
    half = student_t(freedom) * statistics.stdev(values) / math.sqrt(len(values))
    return Amount(middle, Interval(low=middle - half, high=middle + half), freedom)


def difference(a: Amount, b: Amount) -> Amount:
    """Return a - b, without an interval if one of them is not exact and has none."""
    value = a.value - b.value
    if not (a.known and b.known) or (a.exact and b.exact):
        return Amount(value, exact=a.exact and b.exact)
    of_a, of_b = a.freedom or math.inf, b.freedom or math.inf
    t_a, t_b = student_t(of_a), student_t(of_b)
    freedom = welch_freedom((((a.high - a.low) / t_a) ** 2, of_a), (((b.high - b.low) / t_b) ** 2, of_b))
    down = student_t(freedom) * math.hypot((a.value - a.low) / t_a, (b.high - b.value) / t_b)
    up = student_t(freedom) * math.hypot((a.high - a.value) / t_a, (b.value - b.low) / t_b)
    return Amount(value, Interval(low=value - down, high=value + up), freedom)


def ratio(a: Amount, b: Amount) -> Amount | None:
    """Return a ÷ b, without an interval if `difference` has none, or if the lower end of a or b is not above 0. None if b is 0."""
    if b.value == 0:
        return None
    value = a.value / b.value
    if not (a.known and b.known) or min(a.low, b.low) <= 0:
        return Amount(value)
    logs = difference(_log(a), _log(b))
    if logs.ci95 is None:
        return Amount(value, exact=logs.exact)
    return Amount(value, Interval(low=math.exp(logs.low), high=math.exp(logs.high)), logs.freedom)


def _log(amount: Amount) -> Amount:
    ends = Interval(low=math.log(amount.low), high=math.log(amount.high)) if amount.ci95 else None
    return replace(amount, value=math.log(amount.value), ci95=ends)


def order(a: Amount, b: Amount) -> Order:
    """Order a against b by the interval of a - b; without one, by their values, if these are exact or more than `NEGLIGIBLE` apart."""
    apart = difference(a, b)
    if not apart.known and abs(apart.value) <= NEGLIGIBLE * max(abs(a.value), abs(b.value)):
        return "within noise"
    if apart.low > 0:
        return "above"
    if apart.high < 0:
        return "below"
    return "within noise" if apart.ci95 else "equal"


@dataclass(frozen=True)
class Contrast:
    """Whether figures differ between levels (None: undecided), the spread (`_spread`), and the test."""

    differs: bool | None
    spread: float
    how: str


def contrast(blocks: Sequence[Mapping[str, Sequence[Amount]]]) -> Contrast:
    """Test whether figures differ between levels, beyond noise and by more than `NEGLIGIBLE`; conditions are equal within each of `blocks`.

    A permutation test decides if there are enough exchanges for a significant result: within each block, figures are exchanged between
    levels (R. A. Fisher, "The Design of Experiments", 1935, §21). Otherwise intervals decide, if every figure has one: two figures
    differ if the interval of their difference excludes 0, widened for the number of pairs (Bonferroni).
    """
    levels = sorted({level for block in blocks for level in block})
    spread = _spread(blocks, levels)
    if spread <= NEGLIGIBLE:
        return Contrast(differs=False, spread=spread, how=f"at most {NEGLIGIBLE:.0%} apart counts as the same")
    if _smallest_p(blocks) <= SIGNIFICANCE:
        p = _permutation_p(blocks, levels)
        return Contrast(differs=p <= SIGNIFICANCE, spread=spread, how=f"permutation test, p = {p:.2g}")
    amounts = [one for block in blocks for group in block.values() for one in group]
    if all(one.known for one in amounts):
        pairs = sum(math.comb(len(block), 2) for block in blocks)
        apart = any(_any_pair_differs(block, pairs=pairs) for block in blocks)
        return Contrast(differs=apart, spread=spread, how="95 % intervals, for all pairs together")
    return Contrast(differs=None, spread=spread, how=f"{len(amounts)} figures without repeats or intervals can't tell")


def _spread(blocks: Sequence[Mapping[str, Sequence[Amount]]], levels: Sequence[str]) -> float:
    """(largest - smallest) ÷ mean of the levels' means, each figure less the mean of its block: not every block need have every level."""
    every = [one.value for block in blocks for group in block.values() for one in group]
    own: dict[str, list[float]] = {level: [] for level in levels}
    for block in blocks:
        middle = statistics.fmean(one.value for group in block.values() for one in group)
        for level, group in block.items():
            own[level] += [one.value - middle for one in group]
    means = [statistics.fmean(found) for found in own.values()]
    whole = abs(statistics.fmean(every))
    return (max(means) - min(means)) / whole if whole else 0.0


def _any_pair_differs(block: Mapping[str, Sequence[Amount]], *, pairs: int) -> bool:
    """Whether any two levels of a block differ at confidence 1 - 0.05 ÷ `pairs`."""
    for one, other in combinations([group[0] for group in block.values() if group], 2):
        apart = difference(one, other)
        reach = apart.value - apart.low if apart.value > 0 else apart.high - apart.value
        freedom = apart.freedom or math.inf
        if abs(apart.value) > reach * student_t(freedom, 1 - SIGNIFICANCE / pairs) / student_t(freedom):
            return True
    return False


def _smallest_p(blocks: Sequence[Mapping[str, Sequence[Amount]]]) -> float:
    """Return the smallest p-value that permutations could give: one over the number of ways to assign each block's figures to its levels."""
    ways = 1
    for block in blocks:
        sizes = [len(group) for group in block.values()]
        ways *= math.factorial(sum(sizes)) // math.prod(math.factorial(size) for size in sizes)
    # Exchanging whole levels of equal size leaves the statistic unchanged.
    alike = math.factorial(max((len(block) for block in blocks), default=1))
    return max(alike / ways, 1 / (PERMUTATIONS + 1))


def _permutation_p(blocks: Sequence[Mapping[str, Sequence[Amount]]], levels: Sequence[str]) -> float:
    """Return the p-value of the variance of the levels' means when figures are permuted within their blocks."""
    rng = np.random.default_rng(1)
    place = {level: index for index, level in enumerate(levels)}
    columns, labels = [], []
    for block in blocks:
        own = [(place[level], one.value) for level, group in block.items() for one in group]
        values = np.array([value for _, value in own])
        columns.append(values - values.mean())  # what a block adds to all levels is not an effect of the axis
        labels += [level for level, _ in own]
    label = np.array(labels)
    counts = np.bincount(label, minlength=len(levels))

    def spread(values: np.ndarray) -> float:
        means = np.bincount(label, weights=values, minlength=len(levels)) / counts
        return float((counts * means**2).sum())

    observed = spread(np.concatenate(columns))
    shuffled = (spread(np.concatenate([rng.permutation(values) for values in columns])) for _ in range(PERMUTATIONS))
    as_large = sum(value >= observed * (1 - 1e-12) for value in shuffled)
    return (as_large + 1) / (PERMUTATIONS + 1)
