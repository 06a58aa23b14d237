"""What a comparison comes to: pairs of sides, worst first, and all that was not compared, with the reason."""

from __future__ import annotations

from typing import Final, Literal

from runner.core.frozen import Frozen
from runner.core.measurement import Interval

Verdict = Literal["slower", "too little", "no difference shown", "faster"]
"""In the order in which pairs are shown; `too little` was measured to tell."""

SIGNIFICANT: Final = 0.05
"""Chance at which all pairs together may be told apart by accident (family-wise)."""


class Side(Frozen):
    """All runs of one trial in A, or in B.

    Attributes:
        throughput: samples of all repeats ÷ seconds of all repeats, steady windows only.
        windows: how many those are.
        doubts: why some of its runs are degraded; empty where all are valid.
    """

    run_ids: tuple[str, ...]
    throughput: float
    repeats: int
    windows: int
    doubts: tuple[str, ...] = ()


class RankTest(Frozen):
    """Mann-Whitney U test, two-sided, of A's rates against B's.

    Attributes:
        over: what is ranked: a rate for each process-level repeat, or for each window of all repeats.
        a, b: how many rates each side has.
        u: pairs of rates in which B's is the higher one, ties by half.
        p: how likely sides of one distribution differ at least so much.
        p_holm: the same, corrected for the number of pairs that were tested.
    """

    over: Literal["repeats", "windows"]
    a: int
    b: int
    u: float
    p: float
    p_holm: float


class Difference(Frozen):
    """Something besides the trial that is not the same in A and B, with its values there."""

    what: str
    a: tuple[str, ...]
    b: tuple[str, ...]


class Pair(Frozen):
    """One trial that ran in A and in B.

    Attributes:
        trial: in words.
        unit: of the throughputs, e.g. `images/s`.
        ratio: throughput of B ÷ that of A: below 1, B is slower.
        ci95: of the ratio, over the runs of both sides; None where one of them has fewer than three.
        test: None where no test over so few rates could show anything among so many pairs.
        differences: where a reason may lie.
    """

    trial: str
    unit: str
    a: Side
    b: Side
    ratio: float
    ci95: Interval | None
    test: RankTest | None
    verdict: Verdict
    differences: tuple[Difference, ...]

    def slower_than(self, percent: float) -> bool:
        """Whether B is slower by more than that: it is told apart from A, and the whole interval lies beyond the threshold."""
        return self.verdict == "slower" and self.ci95 is not None and self.ci95.high < 1 - percent / 100


class Unpaired(Frozen):
    """A trial that one side alone has, and how the nearest one of the other side differs from it."""

    side: Literal["A", "B"]
    trial: str
    run_ids: tuple[str, ...]
    nearest: str


class LeftOut(Frozen):
    """A run that is in no pair, whatever it was of."""

    side: Literal["A", "B"]
    run_id: str
    reason: str


class Compared(Frozen):
    """A against B.

    Attributes:
        a, b: the places, as named.
        pairs: the slowest first, the fastest last.
    """

    a: str
    b: str
    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...]
    left_out: tuple[LeftOut, ...]
