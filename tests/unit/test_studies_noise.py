"""Differences and ratios against their noise.

Prevents: two figures within noise called different; a ratio whose interval is not that of its figures; a handful of values that pretends to
a significance which no exchange of them could give; a difference of a hundredth called one because it was measured well.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.grading.model import Interval
from runner.studies.noise import Amount, contrast, difference, order, over_repeats, ratio


def amount(value, half=None):
    return Amount(value, None if half is None else Interval(low=value - half, high=value + half))


def test_difference_adds_half_widths_in_quadrature():
    apart = difference(amount(100, 3), amount(90, 4))
    assert apart.value == 10
    assert (apart.low, apart.high) == (5, 15)


def test_difference_takes_the_side_that_each_end_is_on():
    lopsided = Amount(10.0, Interval(low=9.0, high=14.0))
    apart = difference(lopsided, amount(4.0))
    assert (apart.low, apart.high) == (5.0, 10.0)


def test_ratio_is_made_of_logarithms():
    made = ratio(Amount(20.0, Interval(low=10.0, high=40.0)), amount(10.0))
    assert made.value == 2
    assert made.low == pytest.approx(1.0)
    assert made.high == pytest.approx(4.0)


def test_ratio_of_two_spreads_them_in_quadrature():
    one = Amount(1.0, Interval(low=math.exp(-3), high=math.exp(3)))
    other = Amount(1.0, Interval(low=math.exp(-4), high=math.exp(4)))
    made = ratio(one, other)
    assert made.low == pytest.approx(math.exp(-5))
    assert made.high == pytest.approx(math.exp(5))


def test_ratio_to_nothing_is_none_and_one_that_may_be_has_no_interval():
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
def test_order_is_told_where_the_interval_of_the_difference_excludes_nothing(other, stands):
    # Half-widths 3 and 4 make 5: a difference of 5.1 is one, of 4.9 is none.
    assert order(amount(100, 3), other) == stands


def test_exact_figures_are_equal_or_not():
    assert order(amount(1.0), amount(1.0)) == "equal"
    assert order(amount(1.1), amount(1.0)) == "above"


def test_interval_over_repeats_is_students():
    # Mean 10, standard deviation 1, t(0.975, 2) = 4.303: 4.303 ÷ √3 = 2.484.
    interval = over_repeats([9.0, 10.0, 11.0])
    assert interval.low == pytest.approx(7.516, abs=1e-3)
    assert interval.high == pytest.approx(12.484, abs=1e-3)
    assert over_repeats([9.0, 11.0]) is None


def values(*numbers):
    return [amount(number) for number in numbers]


def test_contrast_of_values_that_hardly_differ_is_none_however_sure():
    found = contrast([{"a": [amount(100, 0.1)], "b": [amount(104, 0.1)]}])
    assert found.differs is False
    assert found.spread == pytest.approx(4 / 102)


def test_contrast_by_exchange():
    apart = contrast([{"a": values(1, 2, 3, 4), "b": values(11, 12, 13, 14)}])
    assert apart.differs is True
    # 2 of the 70 ways to deal eight values to two levels are as far apart: p = 1/35, give or take that of a sample of them.
    assert "p = 0.02" in apart.how or "p = 0.03" in apart.how
    mixed = contrast([{"a": values(1, 12, 3, 14), "b": values(11, 2, 13, 5)}])
    assert mixed.differs is False


def test_contrast_exchanges_within_blocks_alone():
    # Each model is far from the other; from one GPU to the next each grows by as much, in all six of them.
    blocks = [{"k80": values(base), "p40": values(base + 2)} for base in (1, 10, 20, 30, 40, 50)]
    assert contrast(blocks).differs is True


def test_contrast_of_few_values_goes_by_intervals_and_without_them_can_not_tell():
    assert contrast([{"a": [amount(10, 1)], "b": [amount(20, 1)]}]).differs is True
    assert contrast([{"a": [amount(10, 8)], "b": [amount(20, 8)]}]).differs is False
    assert contrast([{"a": values(10), "b": values(20)}]).differs is None


def test_contrast_of_many_pairs_asks_more_of_each():
    # 2.1 standard errors apart: enough for one pair at 5 %, not for one of the ten pairs of five levels.
    half = 1.96 / math.sqrt(2)
    pair = {"a": [amount(10.0, half)], "b": [amount(12.1, half)]}
    more = {name: [amount(11.0, half)] for name in "cde"}
    assert contrast([pair]).differs is True
    assert contrast([pair | more]).differs is False


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6), st.floats(0.01, 0.9), st.floats(0.01, 0.9))
def test_order_turns_round_with_its_figures(one, other, share, its):
    a, b = amount(one, one * share), amount(other, other * its)
    turned = {"above": "below", "below": "above", "within noise": "within noise", "equal": "equal"}
    assert order(b, a) == turned[order(a, b)]
    made = ratio(a, b)
    assert made.low <= made.value <= made.high
