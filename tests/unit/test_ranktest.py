"""A regression believed or missed because of a p-value.

Prevents: a U test that disagrees with the printed tables; ties counted as wins; a p that depends on which side is named first; a jump where
the exact p gives way to the normal one; a p that is not corrected for how many trials were looked at.
"""

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.analysis.comparisons import regression
from runner.analysis.comparisons.regression import EXACT, holm, mann_whitney, smallest_p


@pytest.mark.parametrize(
    ("a", "b", "u", "p"),
    [
        # Nothing overlaps: one arrangement of C(10, 5) = 252, in either tail.
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 25, 2 / 252),
        ([6, 7, 8, 9, 10], [1, 2, 3, 4, 5], 0, 2 / 252),
        # U = 2 for 5 and 5 is the last value below 0.05 in the tables: 1 + 1 + 2 arrangements have U of 0, 1 and 2.
        ([1, 2, 3, 4, 7], [5, 6, 8, 9, 10], 23, 2 * 4 / 252),
        # U = 3 is the first above: three more arrangements.
        ([1, 2, 3, 4, 8], [5, 6, 7, 9, 10], 22, 2 * 7 / 252),
        # Three against three never are below 0.1.
        ([1, 2, 3], [4, 5, 6], 9, 2 / 20),
        # One value that ties counts half: sums of ranks of two out of {1, 2.5, 2.5, 4} that are at least 6.5 are two of six.
        ([1, 2], [2, 3], 3.5, 2 * 2 / 6),
        # All alike.
        ([7, 7, 7], [7, 7], 3, 1.0),
    ],
)
def test_small_samples_by_hand(a, b, u, p):
    assert mann_whitney(a, b) == (u, pytest.approx(p))


SAMPLE = st.lists(st.integers(0, 6), min_size=1, max_size=5)


@given(SAMPLE, SAMPLE)
def test_p_counts_every_arrangement_with_ties(a, b):
    joint = [*a, *b]

    def u_of(chosen):
        rest = [joint[i] for i in range(len(joint)) if i not in chosen]
        return sum((rest_value < joint[i]) + 0.5 * (rest_value == joint[i]) for i in chosen for rest_value in rest)

    every = [u_of(chosen) for chosen in combinations(range(len(joint)), len(b))]
    observed = u_of(range(len(a), len(joint)))
    tail = min(sum(u <= observed for u in every), sum(u >= observed for u in every)) / len(every)
    u, p = mann_whitney(a, b)
    assert u == observed
    assert p == pytest.approx(min(1, 2 * tail))


@given(SAMPLE, SAMPLE)
def test_the_order_of_the_sides_changes_nothing_but_u(a, b):
    u, p = mann_whitney(a, b)
    other_u, other_p = mann_whitney(b, a)
    assert u + other_u == len(a) * len(b)
    assert p == pytest.approx(other_p)


@pytest.mark.parametrize("shift", [0, 3, 8, 12, 20])
@pytest.mark.parametrize("smaller", [9, EXACT // 2])
def test_the_normal_p_takes_over_without_a_jump(smaller, shift):
    """Where counting ends, both ways must lead to one verdict."""
    a = [float(i) for i in range(smaller)]
    b = [i + 0.5 + shift * smaller / EXACT for i in range(EXACT - smaller)]
    ranks = regression._doubled_ranks([*a, *b])
    assert regression._normal(ranks, len(b)) == pytest.approx(regression._exact(ranks, len(b)), abs=0.01)


def test_the_normal_p_by_hand():
    """40 against 40 with all of b above: away 800 less a half, variance 40 × 40 × 81 / 12 = 10800."""
    p = mann_whitney(range(40), range(40, 80))[1]
    assert p == pytest.approx(math.erfc(799.5 / math.sqrt(10800) / math.sqrt(2)), rel=1e-9, abs=0)


def test_the_normal_p_with_ties_by_hand():
    """Of 30 and 30 values 30 are 0, with rank 15.5, and 30 are 1, with 45.5; b has 20 of these.

    Its sum is 1,065, 150 away from 915. Ties: 2 × (30³ - 30) = 53,940; variance 30 × 30 / 12 × (61 - 53,940 / (60 × 59)) = 3,432.2, its
    root 58.585. 149.5 / 58.585 = 2.5518, beyond which either tail has 0.5358 %.
    """
    assert mann_whitney([0] * 20 + [1] * 10, [0] * 10 + [1] * 20)[1] == pytest.approx(0.010716, rel=1e-3, abs=0)


def test_many_equal_values_show_nothing():
    assert mann_whitney([3.0] * 40, [3.0] * 40)[1] == 1.0


@pytest.mark.parametrize(("a", "b", "p"), [(3, 3, 0.1), (4, 4, 2 / 70), (1, 1, 1.0), (1, 40, 2 / 41)])
def test_the_smallest_p_that_sizes_allow(a, b, p):
    assert smallest_p(a, b) == pytest.approx(p)
    assert mann_whitney(range(a), range(a, a + b))[1] == pytest.approx(p)


def test_holm_by_hand():
    """0.01 × 4, 0.02 × 3, 0.03 × 2, and 0.04 is not below its predecessor's 0.06."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx((0.06, 0.04, 0.06, 0.06))
    assert holm([0.6, 0.7]) == (1.0, 1.0)
    assert holm([]) == ()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_between_no_correction_and_bonferroni(ps):
    for p, corrected in zip(ps, holm(ps), strict=True):
        assert p <= corrected <= min(1, p * len(ps))
