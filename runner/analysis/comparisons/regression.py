"""Two sets of records → which trials got slower, and how certain that is. Pure.

A trial differs if the 95 % interval of its ratio excludes 1 and a rank test has p < 0.05 after Holm's correction for all pairs: the
interval, over at least three runs of each side, allows for the similarity of one process's windows, the test for the number of pairs. The
test ranks repeats if there are enough for significance among so many pairs (three against three never are: their smallest possible p is
0.1), else the windows of all repeats.

The test is Mann and Whitney's, implemented here because the one library that has it weighs more than the rest of the runner. H. B. Mann and
D. R. Whitney, "On a test of whether one of two random variables is stochastically larger than the other", Annals of Mathematical Statistics
18(1), 1947; S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6(2), 1979.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

from runner.analysis.comparisons.identity import Difference, Identity, differences, distance, identity, in_words
from runner.analysis.grading import metrics
from runner.analysis.summarize import usable_windows
from runner.core.frozen import Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord

Verdict = Literal["slower", "too little", "no difference shown", "faster"]
"""In display order; `too little`: not enough was measured to tell."""

SIGNIFICANT: Final = 0.05
"""Family-wise significance level: the chance of any false difference among all pairs."""


class Side(Frozen):
    """All runs of one trial in A, or in B: samples of all repeats ÷ their seconds, steady windows only; and why some are degraded."""

    run_ids: tuple[str, ...]
    throughput: float
    repeats: int
    windows: int
    doubts: tuple[str, ...] = ()


class RankTest(Frozen):
    """Two-sided Mann-Whitney U test of `a` rates of A against `b` of B; `p_holm` is corrected for the number of tested pairs."""

    over: Literal["repeats", "windows"]
    a: int
    b: int
    p: float
    p_holm: float


class Pair(Frozen):
    """One trial that ran in A and in B; the interval is None if a side has fewer than three runs."""

    trial: str
    unit: str
    a: Side
    b: Side
    ratio: float  # B ÷ A: below 1, B is slower
    ci95: Interval | None
    test: RankTest | None  # None if so few rates could not be significant among so many pairs
    verdict: Verdict
    differences: tuple[Difference, ...]  # possible causes

    def slower_than(self, percent: float) -> bool:
        """Whether B is significantly slower than A, and the whole interval lies beyond the threshold."""
        return self.verdict == "slower" and self.ci95 is not None and self.ci95.high < 1 - percent / 100


class Unpaired(Frozen):
    """A trial of one side only, the nearest trial of the other side and their differences; None if the other side has no trial."""

    side: Literal["A", "B"]
    trial: str
    run_ids: tuple[str, ...]
    nearest: str | None
    differs: tuple[str, ...]


class LeftOut(Frozen):
    """A run excluded from all pairs, whatever its trial."""

    side: Literal["A", "B"]
    run_id: str
    reason: str


class Compared(Frozen):
    """A against B, which are names of places; pairs are in order of verdict, slowest first."""

    a: str
    b: str
    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...]
    left_out: tuple[LeftOut, ...]


Trials = Mapping[Identity, Sequence[RunRecord]]
ORDER: Final[Sequence[str]] = get_args(Verdict)


def compare(a: Sequence[RunRecord], b: Sequence[RunRecord], *, names: tuple[str, str]) -> Compared:
    """Compare every trial of B with the same trial of A; `names` label the sides."""
    left_out: list[LeftOut] = []
    in_a, in_b = (_usable("A", a, left_out), _usable("B", b, left_out))
    both = [trial for trial in in_a if trial in in_b]
    tests = [_ranked(in_a[trial], in_b[trial], among=len(both)) for trial in both]
    corrected = iter(holm([test.p for test in tests if test]))
    tests = [test and test.model_copy(update={"p_holm": next(corrected)}) for test in tests]
    pairs = [_pair(trial, in_a[trial], in_b[trial], test) for trial, test in zip(both, tests, strict=True)]
    return Compared(
        a=names[0],
        b=names[1],
        pairs=tuple(sorted(pairs, key=lambda pair: (ORDER.index(pair.verdict), pair.ratio, pair.trial))),
        unpaired=(*_unpaired("A", in_a, in_b), *_unpaired("B", in_b, in_a)),
        left_out=tuple(left_out),
    )


def _usable(side: Literal["A", "B"], records: Sequence[RunRecord], left_out: list[LeftOut]) -> Trials:
    """Group the comparable runs by trial; append the others to `left_out`, each with its reason."""
    trials: dict[Identity, list[RunRecord]] = {}
    for record in records:
        if reason := _unusable(record):
            left_out.append(LeftOut(side=side, run_id=record.run_id, reason=reason))
        else:
            trials.setdefault(identity(record), []).append(record)
    return trials


def _unusable(record: RunRecord) -> str | None:
    if record.validity.status == "invalid":
        return f"invalid: {'; '.join(record.validity.reasons)}"
    if record.profiled:
        return "a pass under a profiler, which has no rate"
    return None if usable_windows([record]) else "it has no window that counts"


def _ranked(a: Sequence[RunRecord], b: Sequence[RunRecord], *, among: int) -> RankTest | None:
    """Rank the rates of both sides, p uncorrected; None if no outcome could be significant among so many pairs."""
    sides = (usable_windows(a), usable_windows(b))
    rates: dict[Literal["repeats", "windows"], list[list[float]]] = {
        "repeats": [[run.rate for run in side] for side in sides],
        "windows": [[float(rate) for run in side for rate in run.samples / run.seconds] for side in sides],
    }
    for over, (of_a, of_b) in rates.items():
        if smallest_p(len(of_a), len(of_b)) * among < SIGNIFICANT:
            _, p = mann_whitney(of_a, of_b)
            return RankTest(over=over, a=len(of_a), b=len(of_b), p=p, p_holm=p)
    return None


def _pair(trial: Identity, a: Sequence[RunRecord], b: Sequence[RunRecord], test: RankTest | None) -> Pair:
    of_a, of_b = _side(a), _side(b)
    ci95 = metrics.ratio_interval(usable_windows(b), usable_windows(a))
    throughputs = (record.measurement.throughput for record in (*a, *b))
    return Pair(
        trial=in_words(trial),
        unit=next((rate.unit for rate in throughputs if rate), "samples/s"),
        a=of_a,
        b=of_b,
        ratio=of_b.throughput / of_a.throughput,
        ci95=ci95,
        test=test,
        verdict=verdict(ci95, test.p_holm if test else None),
        differences=differences(a, b, counting=True),
    )


def _side(records: Sequence[RunRecord]) -> Side:
    windows = usable_windows(records)
    return Side(
        run_ids=tuple(record.run_id for record in records),
        throughput=metrics.pooled_rate(windows),
        repeats=len(windows),
        windows=sum(len(run.samples) for run in windows),
        doubts=tuple(dict.fromkeys(reason for record in records for reason in record.validity.reasons)),
    )


def verdict(ci95: Interval | None, p_holm: float | None) -> Verdict:
    """Judge a ratio: it differs from 1 only if the interval and the test agree."""
    if ci95 is None or p_holm is None:
        return "too little"
    if p_holm < SIGNIFICANT and ci95.high < 1:
        return "slower"
    return "faster" if p_holm < SIGNIFICANT and ci95.low > 1 else "no difference shown"


def _unpaired(side: Literal["A", "B"], own: Trials, other: Trials) -> list[Unpaired]:
    """The trials of one side only, each with its differences from the nearest trial of the other side."""
    found = []
    for trial in (one for one in own if one not in other):
        nearest = min(other, key=lambda one: len(distance(trial, one)), default=None)
        differs = tuple(name.replace("_", " ") for name in distance(trial, nearest)) if nearest else ()
        words = in_words(nearest) if nearest else None
        run_ids = tuple(record.run_id for record in own[trial])
        found.append(Unpaired(side=side, trial=in_words(trial), run_ids=run_ids, nearest=words, differs=differs))
    return found


# Up to this many values in total, all arrangements are counted; beyond, the normal approximation's p is within 0.01 of the exact one if
# each side has nine or more.
EXACT: Final = 50


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """U, the number of pairs with `b`'s value above `a`'s, ties counting half, and the two-sided p, twice the smaller tail.

    Up to EXACT values in total, p is exact, with ties as well: it counts the choices of len(b) of the joint ranks by their sum (shift
    algorithm: B. Streitberg and J. Röhmel, "Exact distributions for permutation and rank tests", Statistical Software Newsletter 12, 1986).
    Beyond, it is the normal approximation, with the variance corrected for ties and with a continuity correction.
    """
    ranks = _doubled_ranks([*a, *b])
    # With doubled ranks: 2U = 2 × (rank sum of b) - m(m + 1).
    doubled_u = sum(ranks[len(a) :]) - len(b) * (len(b) + 1)
    p = _exact(ranks, len(b)) if len(ranks) <= EXACT else _normal(ranks, len(b))
    return doubled_u / 2, p


def smallest_p(a: int, b: int) -> float:
    """The p of samples of these sizes that do not overlap at all: the smallest possible."""
    return min(1.0, 2 / math.comb(a + b, b))


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """Each p corrected for all of them together, in their order: at 0.05, at most one family in twenty has a false positive."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected = [0.0] * len(ps)
    so_far = 0.0
    for place, index in enumerate(order):
        so_far = max(so_far, min(1.0, (len(ps) - place) * ps[index]))
        corrected[index] = so_far
    return tuple(corrected)


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, from 2; ties share their mean rank, which is whole when doubled."""
    counts = Counter(values)
    below = 0
    doubled: dict[float, int] = {}
    for value in sorted(counts):
        doubled[value] = 2 * below + counts[value] + 1
        below += counts[value]
    return [doubled[value] for value in values]


def _exact(ranks: Sequence[int], chosen: int) -> float:
    """Twice the smaller tail of the sum of the last `chosen` ranks, over all choices of that many."""
    # ways[k][s]: choices of k of the ranks seen so far whose sum is s.
    ways: list[Counter[int]] = [Counter({0: 1}), *(Counter() for _ in range(chosen))]
    for rank in ranks:
        for k in range(chosen, 0, -1):
            for total, count in ways[k - 1].items():
                ways[k][total + rank] += count
    observed = sum(ranks[-chosen:])
    lower = sum(count for total, count in ways[chosen].items() if total <= observed)
    upper = sum(count for total, count in ways[chosen].items() if total >= observed)
    return min(1.0, 2 * min(lower, upper) / math.comb(len(ranks), chosen))


def _normal(ranks: Sequence[int], chosen: int) -> float:
    count = len(ranks)
    ties = sum(tied**3 - tied for tied in Counter(ranks).values())
    variance = chosen * (count - chosen) / 12 * (count + 1 - ties / (count * (count - 1)))
    if variance == 0:  # all values are equal
        return 1.0
    away = abs(sum(ranks[-chosen:]) / 2 - chosen * (count + 1) / 2)
    return math.erfc(max(0.0, away - 0.5) / math.sqrt(2 * variance))
