"""Contradictions inside a published source.

Prevents: a tolerance that hides a wrong figure, or makes one of rounding; a cut digit that passes for a wrong one; a ratio held against
runs that it is not of; `almost double` held to a digit; a figure printed two times, differently, that nobody sees.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_source import rate, source, table

from runner.results.published.contradict import Span, contradictions


def found(*tables, **parts):
    return [(each.check, each.figure) for each in contradictions(source(*tables, **parts))]


def ratio(value, *, metric="speedup", unit="x", versus=None, **row):
    row = {"id": "printed", "gpus": 4, "value": value, "versus": versus or {"gpus": 1}, **row}
    return table(row, metric=metric, unit=unit)


def test_a_printed_figure_stands_for_all_that_round_to_it():
    assert Span.of(Decimal("13.5")) == Span(Fraction("13.45"), Fraction("13.55"))
    assert Span.of(Decimal("13.50")) == Span(Fraction("13.495"), Fraction("13.505"))
    assert Span.of(Decimal(142)) == Span(Fraction("141.5"), Fraction("142.5"))
    assert Span.cut(Decimal("3.52")) == Span(Fraction("3.52"), Fraction("3.53"))


@given(
    st.decimals(min_value=1, max_value=9999, places=3),
    st.decimals(min_value=1, max_value=9999, places=3),
    st.integers(0, 3),
)
def test_a_ratio_rounded_from_rounded_figures_is_never_called_wrong(above, below, digits):
    """Whatever the true values were: they lie in all three spans."""
    step = Decimal(1).scaleb(-digits)
    printed = (above / below).quantize(step)
    shown = Span.of(above.quantize(step)) / Span.of(max(below.quantize(step), Decimal(1)))
    assert shown.meets(Span.of(printed)) or below.quantize(step) < 1


def test_the_published_speedups_of_one_paper_agree_with_its_throughputs():
    """2955 / 220 is 13.43, yet 2955.5 / 219.5 is 13.465, which rounds to the 13.5 that is printed."""
    rates = table({"id": "a", "gpus": 1, "value": 220}, {"id": "b", "gpus": 4, "value": 2955})
    assert found(rates, ratio(13.5)) == []
    assert found(rates, ratio("13.50")) == [("ratio", "printed")]
    assert found(rates, ratio("13.50", approx=True)) == []


def test_a_contradiction_has_both_figures_and_the_difference_of_them():
    rates = table({"id": "a", "gpus": 1, "value": 1055.78}, {"id": "b", "gpus": 4, "value": 3410.52})
    (one,) = contradictions(source(rates, ratio(2.18)))
    assert (one.check, one.figure, one.against, one.unit) == ("ratio", "printed", ("b", "a"), "x")
    assert one.printed == 2.18
    assert one.recomputed == pytest.approx(3.230332)
    assert one.difference == pytest.approx(-0.325147, abs=1e-6)


def test_a_digit_that_was_cut_off_has_a_name_of_its_own():
    """5726 / 1623 is 3.528: printed as 3.52 it was cut, as 3.51 it is wrong."""
    rates = table({"id": "a", "gpus": 1, "value": 1623}, {"id": "b", "gpus": 4, "value": 5726})
    assert found(rates, ratio(3.53)) == []
    assert found(rates, ratio(3.52)) == [("cut", "printed")]
    assert found(rates, ratio(3.51)) == [("ratio", "printed")]


def test_efficiencies_and_gains_are_percent():
    rates = table({"id": "a", "gpus": 1, "value": 100}, {"id": "b", "gpus": 4, "value": 360})
    assert found(rates, ratio(90, metric="scaling_efficiency", unit="%")) == []
    assert found(rates, ratio(94, metric="scaling_efficiency", unit="%")) == [("ratio", "printed")]
    assert found(rates, ratio(260, metric="throughput_gain", unit="%")) == []
    assert found(rates, ratio(360, metric="throughput_gain", unit="%")) == [("ratio", "printed")]


def test_a_ratio_of_which_the_source_has_not_exactly_two_throughputs_is_left_alone():
    several = table(
        {"id": "a", "gpus": 1, "value": 10},
        {"id": "b", "gpus": 4, "value": 40},
        {"id": "c", "gpus": 4, "value": 41, "data": "real"},
    )
    assert found(several, ratio(9.9)) == []
    assert found(several, ratio(9.9, data="real")) == []  # its one-device run is not on real data
    assert found(table({"id": "a", "gpus": 1, "value": 10}), ratio(9.9)) == []


def test_another_build_may_have_another_version():
    rows = (
        {"id": "cpu", "build": "intel", "version": "1.0", "gpus": 0, "device": "cpu", "value": 89},
        {"id": "gpu", "build": "nv", "version": "0.15", "gpus": 4, "value": 468},
    )
    against = {"build": "intel", "gpus": 0}
    assert found(table(*rows), ratio(5.3, metric="speed_ratio", build="nv", version="0.15", versus=against)) == []
    assert found(table(*rows), ratio(6.3, metric="speed_ratio", build="nv", version="0.15", versus=against)) == [
        ("ratio", "printed")
    ]


@pytest.mark.parametrize(("both", "wrong"), [(71, []), (72, []), (73, [("sum", "both")])])
def test_forward_and_backward_make_both(both, wrong):
    """25 and 46, each ± 0.5, make 70 to 72; 72 stands for 71.5 and more, 73 for 72.5 and more."""
    parts = [
        table({"id": "f", "value": 25}, metric="time_forward", unit="ms"),
        table({"id": "b", "value": 46}, metric="time_backward", unit="ms"),
        table({"id": "both", "value": both}, metric="time_forward_backward", unit="ms"),
    ]
    assert found(*parts) == wrong


def test_the_throughput_of_a_device_is_that_of_all_by_their_number():
    whole = table({"id": "all", "gpus": 8, "value": 27189.9})
    assert found(whole, table({"id": "one", "gpus": 8, "value": 3398.7}, metric="throughput_per_gpu")) == []
    assert found(whole, table({"id": "one", "gpus": 8, "value": 3398.5}, metric="throughput_per_gpu")) == [
        ("per device", "one")
    ]


def test_a_figure_that_is_printed_two_times_differs():
    report = table({"id": "report", "value": 11331.93})
    assert found(report, table({"id": "readme", "value": 11233.92})) == [("twice", "readme")]
    assert found(report, table({"id": "readme", "value": 11332})) == []
    assert found(report, table({"id": "again", "value": 11233.92, "run": "2"})) == []


def test_more_than_and_less_than_are_held_to_their_side():
    spec = table({"id": "table", "value": 4.7}, metric="fp64_peak", unit="TFLOP/s")
    above = {"metric": "fp64_peak", "unit": "TFLOP/s"}
    assert found(spec, table({"id": "text", "value": 5, "bound": ">"}, **above)) == [("twice", "text")]
    assert found(spec, table({"id": "text", "value": 4, "bound": ">"}, **above)) == []
    assert found(spec, table({"id": "text", "value": 4, "bound": "<"}, **above)) == [("twice", "text")]


def test_a_mean_lies_between_its_extremes():
    parts = [
        table({"id": name, "value": value}, metric=f"power_{name}", unit="W")
        for name, value in (("min", 38), ("max", 150))
    ]
    assert found(*parts, table({"id": "avg", "value": 103.8}, metric="power_avg", unit="W")) == []
    assert found(*parts, table({"id": "avg", "value": 151.8}, metric="power_avg", unit="W")) == [("range", "avg")]
    assert found(*parts, table({"id": "avg", "value": 36}, metric="power_avg", unit="W")) == [("range", "avg")]
    assert found(*parts, table({"id": "avg", "value": 37}, metric="power_avg", unit="W")) == []  # both may be 37.5


def test_batches_of_devices_make_the_global_one():
    assert found(table(rate(8, 1, batch_per_gpu=64, global_batch=512))) == []
    assert found(table(rate(8, 1, batch_per_gpu=64, global_batch=256))) == [("batch", "g8")]


@pytest.mark.parametrize(("value", "wrong"), [(7.92, []), (9.92, [("finding", "scales")])])
def test_a_stated_ratio_is_held_against_the_figures_that_it_is_of(value, wrong):
    predicate = {
        "type": "ratio",
        "metric": "throughput",
        "num": {"gpus": 8},
        "den": {"gpus": 1},
        "value": value,
        "rel_tol": 0.05,
    }
    stated = {"id": "scales", "says": "scales", "basis": "stated", "where": "Table 1", "predicate": predicate}
    assert found(table(rate(1, 219), rate(8, 1734)), findings=(stated,)) == wrong
