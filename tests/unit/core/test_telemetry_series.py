"""Prevents: a mean that weights samples instead of time; energy that depends on the sampling rate; energy of one second counted twice
or in no window; a figure invented over a hole in the samples, a counter reset, or a clock that goes back; a column that is sampled once
a second taken for one full of holes."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runner.analysis.telemetry.device import NO_SAMPLE, RESET, Series
from runner.core.telemetry import Span

SECOND = Span(start=0.0, end=1.0)


def series(points, period_s=1.0):
    t, values = zip(*points, strict=True)
    return Series(np.array(t, dtype=float), np.array([math.nan if v is None else v for v in values]), period_s)


def figures(found):
    return (found.value.min, found.value.avg, found.value.max)


# --- gauges


def test_a_mean_is_weighted_by_time_and_not_by_samples():
    # 100 W for 3 s and 200 W for 1 s, with most of the samples in the last second; linear between samples.
    one = series([(0, 100.0), (3, 100.0), (3.25, 200.0), (3.5, 200.0), (3.75, 200.0), (4, 200.0)])
    # 3 s at 100, 0.25 s from 100 to 200 (mean 150), 0.75 s at 200: 300 + 37.5 + 150 = 487.5 J in 4 s.
    assert figures(one.gauge(Span(start=0, end=4))) == (100.0, 487.5 / 4, 200.0)
    assert one.integral(Span(start=0, end=4)).value == 487.5


def test_values_at_edges_are_interpolated():
    one = series([(0, 0.0), (2, 20.0)])
    assert figures(one.gauge(Span(start=0.5, end=1.5))) == (5.0, 10.0, 15.0)
    assert one.integral(Span(start=0.5, end=1.5)).value == 10.0


def test_a_hole_leaves_the_mean_of_the_rest_and_no_integral():
    one = series([(0, 10.0), (1, 10.0), (7, 30.0), (8, 30.0)])
    found = one.gauge(Span(start=0, end=8))
    assert figures(found) == (10.0, 20.0, 30.0)
    assert found.reason == "no samples for 6 s of the measured 8 s"
    assert one.integral(Span(start=0, end=8)).value is None
    assert one.integral(Span(start=0, end=8)).reason == found.reason


def test_samples_five_periods_apart_and_rounding_errors_are_no_hole():
    assert series([(0, 10.0), (5, 10.0)]).gauge(Span(start=0, end=5)).reason is None
    assert series([(0, 10.0), (5.01, 10.0)]).gauge(Span(start=0, end=5)).reason == NO_SAMPLE
    for missing, why in ((5e-7, None), (5e-6, "no samples for 5e-06 s of the measured 1 s")):
        assert series([(missing, 10.0), (1, 10.0)]).gauge(SECOND).reason == why


def test_a_missing_value_is_a_hole_and_not_zero():
    one = series([(0, 10.0), (0.1, None), (0.2, 30.0)], period_s=0.1)
    assert figures(one.gauge(Span(start=0, end=0.2))) == pytest.approx((10.0, 20.0, 30.0))
    none = series([(0, None), (1, None)])
    assert (none.gauge(SECOND).value, none.gauge(SECOND).reason) == (None, NO_SAMPLE)


# --- means since the previous sample


def test_sampled_means_are_weighted_by_the_time_that_they_cover():
    # 50 % from 0 to 1 and 100 % from 1 to 4: (50 + 300) / 4. The value at 0 is of the time before 0.
    one = series([(0, 7.0), (1, 50.0), (4, 100.0)])
    assert figures(one.mean(Span(start=0, end=4))) == (50.0, 87.5, 100.0)


def test_a_sampled_mean_mostly_of_time_before_the_span_does_not_count():
    one = series([(0, 7.0), (1, 0.0), (2, 80.0), (3, 80.0)])
    assert figures(one.mean(Span(start=0.9, end=3.0))) == (80.0, 80.0, 80.0)


def test_a_sampled_mean_does_not_cover_the_hole_before_it():
    one = series([(0, 7.0), (1, 50.0), (10, 100.0), (11, 100.0)])
    found = one.mean(Span(start=0, end=11))
    assert figures(found) == (50.0, 75.0, 100.0)
    assert found.reason == "no samples for 9 s of the measured 11 s"


# --- counters


def test_a_counter_is_interpolated_at_the_edges():
    one = series([(0, 100.0), (1, 110.0), (2, 130.0)])
    assert one.increase(Span(start=0.5, end=1.5)).value == 15.0  # 120 - 105


def test_a_gauge_of_the_rate_distributes_a_rise_between_two_readings():
    joules = Series(np.array([0.0, 2.0]), np.array([10.0, 310.0]), 2.0)
    watts = series([(0, 0.0), (1, 100.0), (2, 100.0)])  # 50 J after 1 s, 150 J after 2 s
    assert joules.increase(Span(start=1, end=2), rate=watts).value == 200.0  # two thirds of the counted 300 J
    assert joules.increase(Span(start=0, end=1), rate=watts).value == 100.0
    assert joules.increase(Span(start=0, end=2), rate=watts).value == 300.0
    at_rest = series([(0, 0.0), (2, 0.0)])
    hole = Series(np.array([0.0, 2.0]), np.array([0.0, 100.0]), 0.1)
    for silent in (at_rest, hole):
        assert joules.increase(Span(start=1, end=2), rate=silent).value == 150.0


def test_a_counter_that_fell_has_no_rise():
    one = series([(0, 100.0), (1, 110.0), (2, 5.0), (3, 20.0)])
    assert (one.increase(Span(start=0, end=3)).value, one.increase(Span(start=0, end=3)).reason) == (None, RESET)
    assert one.increase(Span(start=2, end=3)).value == 15.0  # after the reset
    assert one.increase(SECOND).value == 10.0


def test_a_counter_may_have_a_hole_within_the_span_but_not_at_its_edges():
    one = series([(0, 100.0), (1, 110.0), (20, 300.0), (21, 310.0)])
    assert one.increase(Span(start=0.5, end=20.5)).value == 200.0
    assert one.increase(Span(start=0.5, end=15)).reason == "no reading of the counter at the end of the measured span"
    assert one.increase(Span(start=5, end=20.5)).reason == "no reading of the counter at the start of the measured span"
    assert (
        one.increase(Span(start=-1, end=20.5)).reason == "no reading of the counter at the start of the measured span"
    )


def test_rates_of_a_counter_are_means_since_the_previous_sample():
    rates = series([(0, 100.0), (1, 110.0), (3, 150.0), (4, 1.0)]).rates()
    assert np.array_equal(rates.values, [math.nan, 10.0, 20.0, math.nan], equal_nan=True)


def test_rare_events_are_counted_from_the_reading_before_the_span_to_the_one_after():
    one = series([(0, 3.0), (1, 3.0), (2, 4.0), (3, 9.0)])
    assert one.rare_events(Span(start=1.2, end=1.9)).value == 1.0
    assert one.rare_events(Span(start=1.2, end=2.5)).value == 6.0
    assert one.rare_events(Span(start=2.5, end=9)).value == 5.0  # the nearest readings
    assert one.rare_events(Span(start=5, end=9)).value is None
    assert series([(0, 3.0), (1, 0.0)]).rare_events(SECOND).reason == RESET


# --- clocks that go back


@pytest.mark.parametrize("question", ["gauge", "mean", "integral", "increase", "rare_events"])
def test_a_clock_that_goes_back_within_the_span_leaves_no_figure(question):
    one = series([(0, 1.0), (1, 2.0), (0.5, 3.0), (1.5, 4.0), (2, 5.0)])
    found = getattr(one, question)(Span(start=0.2, end=1.8))
    assert found.value is None
    assert found.reason == "the sampler's clock went back by 0.5 s in the measured span"


def test_a_clock_that_goes_back_matters_right_after_the_span_but_not_before_or_later():
    """The value at the span's end is interpolated to the next sample, which must be later."""
    before = series([(100, 9.0), (0, 1.0), (1, 1.0), (2, 1.0)])
    assert before.gauge(Span(start=0.5, end=1.5)).reason is None
    at_once = series([(0, 1.0), (1, 1.0), (-5, 1.0), (2, 1.0)])
    assert at_once.gauge(Span(start=0.2, end=1.5)).reason == "the sampler's clock went back by 6 s in the measured span"
    later = series([(0, 1.0), (1, 1.0), (2, 1.0), (1.7, 1.0)])
    assert later.gauge(Span(start=0.2, end=1.5)).reason is None


# --- idle power, and states


def test_idle_power_is_the_lowest_mean_over_a_second():
    # 60 W, then 1 s at 40 W, then 100 W; 0.5 s at 20 W is too short to count alone.
    t = [0, 1, 1.001, 2.001, 2.002, 3]
    one = series(list(zip(t, [60.0, 60.0, 40.0, 40.0, 100.0, 100.0], strict=True)))
    assert one.lowest(Span(start=0, end=3), one.integral).value == pytest.approx(40.0)
    short = series([(0, 60.0), (0.5, 60.0), (0.501, 20.0), (1.001, 20.0), (1.002, 60.0), (2, 60.0)], period_s=0.5)
    assert short.lowest(Span(start=0, end=2), short.integral).value == pytest.approx(40.0, abs=0.1)


def test_idle_power_needs_a_second():
    one = series([(0, 60.0), (2, 60.0)])
    assert one.lowest(Span(start=0, end=0.9), one.integral).reason.startswith("0.9 s before the job are too short")
    assert one.lowest(Span(start=5, end=9), one.integral).reason == "no second before the job has samples throughout"
    counter = series([(0, 0.0), (1, 50.0), (2, 80.0), (3, 140.0)])
    assert counter.lowest(Span(start=0, end=3), counter.increase).value == pytest.approx(30.0)


def test_a_state_holds_until_the_next_sample():
    one = series([(0, 0.0), (1, 4.0), (3, 0.0), (20, 0.0)])
    assert one.seconds_held(Span(start=0.5, end=5)).tolist() == [0.5, 2.0, 0.0, 0.0]  # no samples after 3 s


# --- properties

levels = st.floats(0, 1000)
gaps = st.floats(0.01, 1.0)


@st.composite
def sampled(draw):
    """Generate samples without holes, and a span that they cover."""
    steps = draw(st.lists(gaps, min_size=1, max_size=30))
    t = np.concatenate([[0.0], np.cumsum(steps)])
    values = draw(st.lists(levels, min_size=len(t), max_size=len(t)))
    start, end = sorted((draw(st.floats(0, float(t[-1]))), draw(st.floats(0, float(t[-1])))))
    assume(end - start > 1e-6)
    return Series(t, np.array(values), 1.0), Span(start=start, end=end)


@given(sampled())
def test_the_mean_lies_between_the_extremes(made):
    one, span = made
    for found in (one.gauge(span), one.mean(span)):
        if found.value:
            assert found.value.min <= found.value.avg <= found.value.max


@given(sampled(), levels)
def test_energy_of_constant_power_is_power_times_time_however_it_is_sampled(made, power):
    one, span = made
    constant = Series(one.t, np.full(len(one.t), power), 1.0)
    counter = Series(one.t, power * one.t, 1.0)
    assert constant.integral(span).value == pytest.approx(power * span.seconds, rel=1e-9, abs=1e-9)
    assert counter.increase(span).value == pytest.approx(power * span.seconds, rel=1e-6, abs=1e-6)


@given(sampled(), st.floats(0.01, 0.99))
def test_two_parts_of_a_span_add_up_to_it(made, share):
    one, span = made
    middle = span.start + share * span.seconds
    assume(span.start < middle < span.end)
    parts = (Span(start=span.start, end=middle), Span(start=middle, end=span.end))
    rising = Series(one.t, np.cumsum(one.values), 1.0)
    whole = one.integral(span)
    if whole.value is not None:  # rounding may leave a tiny remainder of a span
        assert sum(one.integral(part).value for part in parts) == pytest.approx(whole.value, rel=1e-9, abs=1e-6)
    assert sum(rising.increase(part).value for part in parts) == pytest.approx(
        rising.increase(span).value, rel=1e-9, abs=1e-6
    )
