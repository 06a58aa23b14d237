"""Differences and ratios against their noise.

Prevents: two figures within noise called different; a ratio whose interval does not follow from its figures; significance claimed for so few
values that no permutation could show it; a precisely measured difference of 1 % that counts as one.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.analysis.grading.metrics import GlobalWindows, pooled_rate, rate_interval, ratio_interval
from runner.core.measurement import Interval
from runner.experiments.studies.noise import Amount, contrast, difference, mean_of, order, ratio


def amount(value, half=None):
    """A figure with an interval over many runs, or without one, of too few runs."""
    return Amount(value, None if half is None else Interval(low=value - half, high=value + half))


def exact(value):
    return Amount(value, exact=True)


def test_difference_adds_half_widths_in_quadrature():
    apart = difference(amount(100, 3), amount(90, 4))
    assert apart.value == 10
    assert (apart.low, apart.high) == pytest.approx((5, 15))


def test_difference_uses_the_half_width_on_each_side():
    apart = difference(Amount(10.0, Interval(low=9.0, high=14.0)), exact(4.0))
    assert (apart.low, apart.high) == (5.0, 10.0)


def test_ratio_adds_half_widths_of_logarithms_in_quadrature():
    made = ratio(Amount(20.0, Interval(low=10.0, high=40.0)), exact(10.0))
    assert (made.value, made.low, made.high) == pytest.approx((2, 1, 4))
    one, other = (Amount(1.0, Interval(low=math.exp(-ln), high=math.exp(ln))) for ln in (3, 4))
    made = ratio(one, other)
    assert (made.low, made.high) == pytest.approx((math.exp(-5), math.exp(5)))


def test_ratio_to_zero_is_none_and_to_possibly_zero_has_no_interval():
    assert ratio(amount(1.0), amount(0.0)) is None
    assert ratio(amount(1.0), amount(1.0, 2.0)).ci95 is None


@pytest.mark.parametrize(
    ("other", "stands"),
    [
        (amount(94.9, 4), "above"),
        (amount(95.1, 4), "within noise"),
        (amount(105.1, 4), "below"),
        (amount(100, 4), "within noise"),
    ],
)
def test_order_is_decided_if_the_interval_of_the_difference_excludes_zero(other, stands):
    # Half-widths 3 and 4 combine to 5: 5.1 is a difference, 4.9 is not.
    assert order(amount(100, 3), other) == stands


def test_exact_figures_are_equal_or_not():
    assert order(exact(1.0), exact(1.0)) == "equal"
    assert order(exact(1.01), exact(1.0)) == "above"


def test_a_figure_of_too_few_runs_differs_only_by_more_than_the_negligible_share():
    """Prevents a finding based on two single runs that differ by 0.1 %: the next ones need not."""
    assert [order(amount(value), amount(100.0)) for value in (104.0, 106.0, 96.0, 94.0)] == [
        *("within noise", "above", "within noise", "below")
    ]
    assert order(amount(104.0), exact(100.0)) == "within noise"
    assert order(amount(100.0, 0.1), amount(104.0)) == "within noise"


def test_a_difference_with_too_few_runs_on_one_side_has_no_interval():
    for made in (difference(amount(10, 1), amount(5)), ratio(amount(10, 1), amount(5)), ratio(amount(10), exact(5))):
        assert (made.ci95, made.exact) == (None, False)
    assert ratio(exact(10), exact(5)) == Amount(2.0, exact=True)


def test_the_mean_of_runs_has_students_interval():
    # Mean 10, standard deviation 1, t(0.975, 2) = 4.303: 4.303 ÷ √3 = 2.484.
    mean = mean_of([9.0, 10.0, 11.0])
    assert (mean.value, mean.freedom) == (10.0, 2)
    assert mean.low == pytest.approx(7.516, abs=1e-3)
    assert mean.high == pytest.approx(12.484, abs=1e-3)
    assert mean_of([9.0, 11.0]) == Amount(10.0)


def test_a_ratio_of_throughputs_has_the_interval_of_their_runs():
    """A table's figures yield the same interval as the runs themselves."""
    runs = {rate: [GlobalWindows.of_rate(rate * math.exp(x)) for x in (-0.03, 0.0, 0.01)] for rate in (100, 180)}
    one, two = (Amount(pooled_rate(own), rate_interval(own), 2) for own in runs.values())
    made, told = ratio(two, one), ratio_interval(runs[180], runs[100])
    assert (made.low, made.high) == pytest.approx((told.low, told.high))
    assert made.freedom == pytest.approx(4)


def test_the_difference_of_few_runs_uses_welchs_degrees_of_freedom():
    """Standard errors 1 and 1 of 3 runs each: t(4) × sqrt(2) = 2.77645 × 1.41421, less than sqrt(2) × t(2)."""
    three = Amount(10.0, Interval(low=10 - 4.30265, high=10 + 4.30265), 2)
    apart = difference(three, three)
    assert (apart.value, apart.freedom) == (0, pytest.approx(4))
    assert apart.high == pytest.approx(3.92649, rel=1e-4)


def values(*numbers):
    return [amount(number) for number in numbers]


def test_contrast_of_nearly_equal_values_is_none_however_precise():
    found = contrast([{"a": [amount(100, 0.1)], "b": [amount(104, 0.1)]}])
    assert found.differs is False
    assert found.spread == pytest.approx(4 / 102)


def test_contrast_by_permutation():
    apart = contrast([{"a": values(1, 2, 3, 4), "b": values(11, 12, 13, 14)}])
    assert apart.differs is True
    # 2 of the 70 ways to assign eight values to two levels differ as much: p = 1/35, up to sampling error.
    assert "p = 0.02" in apart.how or "p = 0.03" in apart.how
    mixed = contrast([{"a": values(1, 12, 3, 14), "b": values(11, 2, 13, 5)}])
    assert mixed.differs is False


def test_contrast_permutes_within_blocks_only():
    # The models differ widely; each grows equally from one GPU to the next, in all six.
    blocks = [{"k80": values(base), "p40": values(base + 2)} for base in (1, 10, 20, 30, 40, 50)]
    assert contrast(blocks).differs is True


def test_levels_that_ran_under_other_conditions_are_not_apart_by_these():
    """a and c, each beside b and equal to it, were 127 % apart: batch 1 had a, batch 64 had c."""
    found = contrast([{"a": values(20), "b": values(20)}, {"b": values(90), "c": values(90)}])
    assert (found.differs, found.spread) == (False, 0.0)


# 2.1 standard errors apart: enough for one pair at 5 %, not for one of the ten pairs of five levels.
HALF = 1.96 / math.sqrt(2)
PAIR = {"a": [amount(10.0, HALF)], "b": [amount(12.1, HALF)]}


@pytest.mark.parametrize(
    ("block", "differs"),
    [
        ({"a": [amount(10, 1)], "b": [amount(20, 1)]}, True),
        ({"a": [amount(10, 8)], "b": [amount(20, 8)]}, False),
        ({"a": values(10), "b": values(20)}, None),
        (PAIR, True),
        (PAIR | {name: [amount(11.0, HALF)] for name in "cde"}, False),
    ],
)
def test_contrast_of_few_values_uses_intervals_or_is_undecided(block, differs):
    assert contrast([block]).differs is differs


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6), st.floats(0.01, 0.9), st.floats(0.01, 0.9))
def test_order_is_antisymmetric(one, other, share, its):
    a, b = amount(one, one * share), amount(other, other * its)
    turned = {"above": "below", "below": "above", "within noise": "within noise", "equal": "equal"}
    assert order(b, a) == turned[order(a, b)]
    made = ratio(a, b)
    assert made.low <= made.value <= made.high
