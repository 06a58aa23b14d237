"""Whether two figures differ by more than their noise. Pure.

Intervals are 95 %. A figure without one is taken as exact, and whoever uses it says so. The interval of a difference, or of a ratio, of two
independent figures is made from their own intervals (MOVER: G. Y. Zou and A. Donner, "Construction of confidence limits about effect
measures: a general approach", Statistics in Medicine 27(10), 2008), so that a reader can do it again from a table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from runner.grading.metrics import student_t
from runner.grading.model import Interval

PERMUTATIONS: Final = 9_999
SIGNIFICANCE: Final = 0.05
NEGLIGIBLE: Final = 0.05
"""Differences up to this share of the mean count as none, however sure they are: sources call no smaller one significant."""

_FEWEST_REPEATS: Final = 3

Order = Literal["above", "below", "equal", "within noise"]


@dataclass(frozen=True)
class Amount:
    """A figure and its interval; None where nothing tells how far to trust it."""

    value: float
    ci95: Interval | None = None

    @property
    def low(self) -> float:
        """Lower end of the interval; the figure itself without one."""
        return self.ci95.low if self.ci95 else self.value

    @property
    def high(self) -> float:
        """Upper end of the interval; the figure itself without one."""
        return self.ci95.high if self.ci95 else self.value

    def scaled(self, factor: float) -> Amount:
        """The figure in a unit of which there are `factor` times as many."""
        return Amount(self.value * factor, self.ci95.scaled(factor) if self.ci95 else None)


def over_repeats(values: Sequence[float]) -> Interval | None:
    """Student's interval of the mean of repeats of which each gives one number; None for fewer than three."""
    if len(values) < _FEWEST_REPEATS:
        return None
    half = student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    middle = statistics.fmean(values)
    return Interval(low=middle - half, high=middle + half)


def difference(a: Amount, b: Amount) -> Amount:
    """A - b."""
    value = a.value - b.value
    if a.ci95 is None and b.ci95 is None:
        return Amount(value)
    down = math.hypot(a.value - a.low, b.high - b.value)
    up = math.hypot(a.high - a.value, b.value - b.low)
    return Amount(value, Interval(low=value - down, high=value + up))


def ratio(a: Amount, b: Amount) -> Amount | None:
    """A ÷ b; without an interval where one of theirs reaches 0. None where b is 0."""
    if b.value == 0:
        return None
    value = a.value / b.value
    if (a.ci95 is None and b.ci95 is None) or min(a.low, b.low) <= 0:
        return Amount(value)
    logs = difference(_log(a), _log(b))
    return Amount(value, Interval(low=math.exp(logs.low), high=math.exp(logs.high)))


def _log(amount: Amount) -> Amount:
    ends = Interval(low=math.log(amount.low), high=math.log(amount.high)) if amount.ci95 else None
    return Amount(math.log(amount.value), ends)


def order(a: Amount, b: Amount) -> Order:
    """How a stands to b: above or below only if the interval of a - b says so."""
    apart = difference(a, b)
    if apart.low > 0:
        return "above"
    if apart.high < 0:
        return "below"
    return "equal" if apart.ci95 is None else "within noise"


@dataclass(frozen=True)
class Contrast:
    """Whether figures differ between the levels of an axis.

    Attributes:
        differs: None where nothing can tell.
        spread: (largest - smallest) ÷ mean of the levels' means.
        how: what told.
    """

    differs: bool | None
    spread: float
    how: str


def contrast(blocks: Sequence[Mapping[str, Sequence[Amount]]]) -> Contrast:
    """Whether figures differ between levels, beyond noise and by more than `NEGLIGIBLE`.

    Args:
        blocks: by level, the figures (of repeats, or one) under conditions that are the same within a block.

    A permutation test tells, where enough can be exchanged for one to come out significant at all: within each block figures change
    places between levels (R. A. Fisher, "The Design of Experiments", 1935, §21). Else intervals do, if all have them: two figures
    differ if the interval of their difference excludes 0, widened for the number of pairs (Bonferroni).
    """
    levels = sorted({level for block in blocks for level in block})
    means = [statistics.fmean(one.value for block in blocks for one in block.get(level, ())) for level in levels]
    middle = abs(statistics.fmean(means))
    spread = (max(means) - min(means)) / middle if middle else 0.0
    if spread <= NEGLIGIBLE:
        return Contrast(differs=False, spread=spread, how=f"at most {NEGLIGIBLE:.0%} apart counts as the same")
    if _fewest_p(blocks) <= SIGNIFICANCE:
        p = _permuted(blocks, levels)
        return Contrast(differs=p <= SIGNIFICANCE, spread=spread, how=f"permutation test, p = {p:.2g}")
    amounts = [one for block in blocks for group in block.values() for one in group]
    if all(one.ci95 for one in amounts):
        pairs = sum(_pairs(block) for block in blocks)
        apart = any(_apart(block, pairs=pairs) for block in blocks)
        return Contrast(differs=apart, spread=spread, how="95 % intervals, for all pairs together")
    return Contrast(differs=None, spread=spread, how=f"{len(amounts)} figures without repeats or intervals can't tell")


def _pairs(block: Mapping[str, Sequence[Amount]]) -> int:
    return math.comb(len(block), 2)


def _apart(block: Mapping[str, Sequence[Amount]], *, pairs: int) -> bool:
    """Whether any two levels of a block differ at 1 - 0.05 ÷ `pairs` (normal quantiles widen the 95 % intervals)."""
    normal = statistics.NormalDist()
    widen = normal.inv_cdf(1 - SIGNIFICANCE / 2 / pairs) / normal.inv_cdf(1 - SIGNIFICANCE / 2)
    firsts = [group[0] for group in block.values() if group]
    for place, one in enumerate(firsts):
        for other in firsts[place + 1 :]:
            apart = difference(one, other)
            reach = apart.value - apart.low if apart.value > 0 else apart.high - apart.value
            if abs(apart.value) > widen * reach:
                return True
    return False


def _fewest_p(blocks: Sequence[Mapping[str, Sequence[Amount]]]) -> float:
    """The smallest p that exchanging could give: one over the ways to deal each block's figures to its levels."""
    ways = 1
    for block in blocks:
        sizes = [len(group) for group in block.values()]
        ways *= math.factorial(sum(sizes)) // math.prod(math.factorial(size) for size in sizes)
    # Levels of one size that change places as a whole leave the statistic as it is.
    alike = math.factorial(max((len(block) for block in blocks), default=1))
    return max(alike / ways, 1 / (PERMUTATIONS + 1))


def _permuted(blocks: Sequence[Mapping[str, Sequence[Amount]]], levels: Sequence[str]) -> float:
    """P of the variance of the levels' means, when figures change places within their blocks."""
    rng = np.random.default_rng(1)
    place = {level: index for index, level in enumerate(levels)}
    columns: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for block in blocks:
        own = [(place[level], one.value) for level, group in block.items() for one in group]
        values = np.array([value for _, value in own])
        # What a block adds to all its levels alike is none of the axis' doing.
        columns.append(values - values.mean())
        labels.append(np.array([level for level, _ in own]))
    label = np.concatenate(labels)
    counts = np.bincount(label, minlength=len(levels))

    def spread(values: np.ndarray) -> float:
        means = np.bincount(label, weights=values, minlength=len(levels)) / counts
        return float((counts * means**2).sum())

    observed = spread(np.concatenate(columns))
    shuffled = (spread(np.concatenate([rng.permutation(values) for values in columns])) for _ in range(PERMUTATIONS))
    as_large = sum(value >= observed * (1 - 1e-12) for value in shuffled)
    return (as_large + 1) / (PERMUTATIONS + 1)
