"""Unions, overlaps and concurrency of intervals.

Prevents: a utilisation above 100 % because kernels of two streams were added up; a nested interval that shortens the outer one; touching
intervals counted as concurrent; a figure that depends on the order of rows; a gap found where something ran.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.analysis.profile.devices import Spans, concurrency, gaps_within, intersect, percent, union


def spans(*pairs):
    return Spans(start=np.array([a for a, _ in pairs], dtype=float), end=np.array([b for _, b in pairs], dtype=float))


def merged(*pairs):
    raw = spans(*pairs)
    return union(raw.start, raw.end)


def pairs_of(found):
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


def at_once(*pairs):
    raw = spans(*pairs)
    return concurrency(raw.start, raw.end, merged(*pairs))


# Whole numbers: their sums are exact, so equality can be asserted.
intervals = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 100)).map(lambda p: (p[0], p[0] + p[1])), max_size=40
)
some = intervals.filter(lambda pairs: any(b > a for a, b in pairs))


class TestUnion:
    @pytest.mark.parametrize(
        ("pairs", "expected"),
        [
            ([], []),
            ([(1, 3)], [(1, 3)]),
            ([(0, 10), (2, 3), (4, 5)], [(0, 10)]),  # nested: the inner ones change nothing
            ([(0, 10), (2, 3), (9, 12)], [(0, 12)]),  # the one after a nested interval still overlaps the outer one
            ([(0, 4), (3, 6)], [(0, 6)]),
            ([(0, 4), (4, 6)], [(0, 6)]),  # touching
            ([(5, 6), (0, 1)], [(0, 1), (5, 6)]),
            ([(2, 2)], [(2, 2)]),
            ([(0, 5), (2, 2), (7, 7)], [(0, 5), (7, 7)]),
            ([(0, 5), (0, 5)], [(0, 5)]),  # the same on two streams
        ],
    )
    def test_by_hand(self, pairs, expected):
        assert pairs_of(merged(*pairs)) == expected

    @given(intervals, st.randoms())
    def test_order_does_not_matter(self, pairs, random):
        shuffled = list(pairs)
        random.shuffle(shuffled)
        found = merged(*pairs)
        assert pairs_of(merged(*shuffled)) == pairs_of(found)
        assert (found.start[1:] > found.end[:-1]).all()


class TestIntersect:
    @pytest.mark.parametrize(
        ("a", "b", "expected"),
        [
            ([(0, 4)], [(2, 6)], [(2, 4)]),
            ([(0, 2), (4, 6)], [(1, 5)], [(1, 2), (4, 5)]),
            ([(0, 10)], [(1, 2), (3, 4)], [(1, 2), (3, 4)]),
            ([(0, 2)], [(2, 4)], []),
            ([], [(0, 1)], []),
            ([(0, 1)], [], []),
        ],
    )
    def test_by_hand(self, a, b, expected):
        assert pairs_of(intersect(merged(*a), merged(*b))) == expected

    @given(intervals, intervals)
    def test_it_is_symmetric_and_completes_the_union(self, a, b):
        both = intersect(merged(*a), merged(*b)).total
        assert both == intersect(merged(*b), merged(*a)).total
        assert merged(*a).total + merged(*b).total - both == merged(*a, *b).total


class TestGaps:
    def test_by_hand(self):
        assert pairs_of(gaps_within(merged((1, 3), (5, 6)), merged((0, 10)))) == [(0, 1), (3, 5), (6, 10)]
        assert pairs_of(gaps_within(merged((1, 3), (5, 6)), merged((2, 5.5)))) == [(3, 5)]
        assert pairs_of(gaps_within(merged(), merged((2, 5)))) == [(2, 5)]

    @given(intervals, some)
    def test_gaps_and_work_fill_the_time(self, pairs, within):
        work, time = merged(*pairs), merged(*within)
        assert gaps_within(work, time).total + intersect(work, time).total == time.total


class TestConcurrency:
    @pytest.mark.parametrize(
        ("pairs", "mean", "most", "percent_parallel"),
        [
            # One from 0 to 4, two from 1 to 2, three from 2 to 3, none from 4 to 6, one from 6 to 7: 8 kernel seconds in 5 busy ones.
            ([(0, 4), (1, 3), (2, 3), (6, 7)], 8 / 5, 3, 40),
            ([(0, 1), (1, 2)], 1, 1, 0),  # touching
            ([(0, 2), (0, 2)], 2, 2, 100),  # the same on two streams
        ],
    )
    def test_by_hand(self, pairs, mean, most, percent_parallel):
        found = at_once(*pairs)
        assert (found.mean, found.most, found.parallel_percent) == (mean, most, percent_parallel)

    def test_zero_length_intervals_run_concurrently_with_nothing(self):
        assert at_once((1, 1)) is None
        assert at_once((0, 4), (2, 2)).most == 1
        assert at_once() is None

    @given(some)
    def test_the_mean_is_the_sum_over_the_union(self, pairs):
        found = at_once(*pairs)
        assert found.mean * merged(*pairs).total == pytest.approx(sum(b - a for a, b in pairs))
        assert 1 <= found.mean <= found.most
        assert 0 <= found.parallel_percent <= 100


def test_a_share_of_nothing_is_0():
    assert percent(0, 0) == 0
    assert percent(1.0000000001, 1) == 100
