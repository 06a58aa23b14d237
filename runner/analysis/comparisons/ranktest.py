"""The Mann-Whitney U test and Holm's correction. Own code: the one library that has them weighs more than the rest of the runner.

H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables is stochastically larger than the other", Annals of
Mathematical Statistics 18(1), 1947; S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
Statistics 6(2), 1979.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

# Values in all up to which every arrangement is counted; beyond, the normal distribution's p is within 0.01 of it where each side has
# nine or more.
EXACT: Final = 50


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """U, the pairs with the value of `b` above that of `a`, a tie counting half, and the two-sided p, twice the smaller tail.

    Up to EXACT values in all, p is exact, with ties as well: it counts the choices of len(a) of the joint ranks by their sum (shift
    algorithm: B. Streitberg and J. Röhmel, "Exact distributions for permutation and rank tests", Statistical Software Newsletter 12,
    1986). Beyond, it is that of the normal distribution with the variance corrected for ties, and for continuity.
    """
    ranks = _doubled_ranks([*a, *b])
    # Of doubled ranks: 2U = 2 × (rank sum of b) - m(m + 1).
    doubled_u = sum(ranks[len(a) :]) - len(b) * (len(b) + 1)
    p = _exact(ranks, len(b)) if len(ranks) <= EXACT else _normal(ranks, len(b))
    return doubled_u / 2, p


def smallest_p(a: int, b: int) -> float:
    """The p of samples of these sizes that do not overlap at all: below it, no test of them can come."""
    return min(1.0, 2 / math.comb(a + b, b))


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """Each p corrected for all of them together, in their order: below 0.05, at most one family in twenty errs anywhere."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected = [0.0] * len(ps)
    so_far = 0.0
    for place, index in enumerate(order):
        so_far = max(so_far, min(1.0, (len(ps) - place) * ps[index]))
        corrected[index] = so_far
    return tuple(corrected)


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, from 2; values that tie share the mean of their ranks, which doubled is whole."""
    counts = Counter(values)
    below = 0
    doubled: dict[float, int] = {}
    for value in sorted(counts):
        doubled[value] = 2 * below + counts[value] + 1
        below += counts[value]
    return [doubled[value] for value in values]


def _exact(ranks: Sequence[int], chosen: int) -> float:
    """Twice the smaller tail of the sum of the last `chosen` ranks, among all choices of as many."""
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
    if variance == 0:  # all values are one
        return 1.0
    away = abs(sum(ranks[-chosen:]) / 2 - chosen * (count + 1) / 2)
    return math.erfc(max(0.0, away - 0.5) / math.sqrt(2 * variance))
