"""Contradictions inside a published source.

Prevents: a tolerance that hides a wrong figure, or takes rounding for one; a truncated digit taken for a wrong one; a ratio checked
against runs that it is not of; `almost double` checked to a digit; a figure that is printed twice, differently, unnoticed.

Speedups of published figures.

Prevents: a speedup between runs that differ in more than scale; weak and strong scaling mixed in one curve; a machine's figures
compared with another's; an efficiency above 100 % clamped; a speedup from a figure of one device that is taken for one of all.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_source import rate, source, table

from runner.results.published.derive import Span, contradictions, scaled


def found(*tables, **parts):
    return [(each.check, each.figure) for each in contradictions(source(*tables, **parts))]


def ratio(value, *, metric="speedup", unit="x", versus=None, **row):
    row = {"id": "printed", "gpus": 4, "value": value, "versus": versus or {"gpus": 1}, **row}
    return table(row, metric=metric, unit=unit)


def test_a_printed_figure_represents_all_numbers_that_round_to_it():
    assert Span.of(Decimal("13.5")) == Span(Fraction("13.45"), Fraction("13.55"))
    assert Span.of(Decimal("13.50")) == Span(Fraction("13.495"), Fraction("13.505"))
    assert Span.of(Decimal(142)) == Span(Fraction("141.5"), Fraction("142.5"))
    assert Span.cut(Decimal("3.52")) == Span(Fraction("3.52"), Fraction("3.53"))


@given(
    st.decimals(min_value=1, max_value=9999, places=3),
    st.decimals(min_value=1, max_value=9999, places=3),
    st.integers(0, 3),
)
def test_a_correctly_rounded_ratio_of_rounded_figures_is_never_a_contradiction(above, below, digits):
    """Whatever the true values: each is within its figure's span."""
    step = Decimal(1).scaleb(-digits)
    printed = (above / below).quantize(step)
    shown = Span.of(above.quantize(step)) / Span.of(max(below.quantize(step), Decimal(1)))
    assert shown.overlaps(Span.of(printed)) or below.quantize(step) < 1


def rates(one, four):
    """Throughputs on one device and on four."""
    return table({"id": "a", "gpus": 1, "value": one}, {"id": "b", "gpus": 4, "value": four})


def of(metric, unit, /, **values):
    """A figure of the quantity with this id, with more fields of its row."""
    more = {name: values.pop(name) for name in ("gpus", "bound", "run") if name in values}
    ((name, value),) = values.items()
    return table({"id": name, "value": value, **more}, metric=metric, unit=unit)


FORWARD = (of("time_forward", "ms", f=25), of("time_backward", "ms", b=46))
ALL, REPORT, PEAK = (
    of("throughput", "images/s", all=27189.9, gpus=8),
    of("throughput", "images/s", report=11331.93),
    ("fp64_peak", "TFLOP/s"),
)
ENDS = (of("power_min", "W", min=38), of("power_max", "W", max=150))
SEVERAL = table(
    {"id": "a", "gpus": 1, "value": 10},
    {"id": "b", "gpus": 4, "value": 40},
    {"id": "c", "gpus": 4, "value": 41, "data": "real"},
)
BUILDS = table(
    {"id": "cpu", "build": "intel", "version": "1.0", "gpus": 0, "device": "cpu", "value": 89},
    {"id": "gpu", "build": "nv", "version": "0.15", "gpus": 4, "value": 468},
)
TO_INTEL = {"metric": "speed_ratio", "build": "nv", "version": "0.15", "versus": {"build": "intel", "gpus": 0}}
EFFICIENCY, GAIN = ({"metric": metric, "unit": "%"} for metric in ("scaling_efficiency", "throughput_gain"))


@pytest.mark.parametrize(
    ("tables", "wrong"),
    [
        # 2955 / 220 is 13.43, yet 2955.5 / 219.5 is 13.465, which rounds to the 13.5 that is printed.
        ([rates(220, 2955), ratio(13.5)], None),
        ([rates(220, 2955), ratio("13.50")], ("ratio", "printed")),
        ([rates(220, 2955), ratio("13.50", approx=True)], None),
        # 5726 / 1623 is 3.528: 3.52 is truncated, 3.51 is wrong.
        ([rates(1623, 5726), ratio(3.53)], None),
        ([rates(1623, 5726), ratio(3.52)], ("cut", "printed")),
        ([rates(1623, 5726), ratio(3.51)], ("ratio", "printed")),
        ([rates(100, 360), ratio(90, **EFFICIENCY)], None),
        ([rates(100, 360), ratio(94, **EFFICIENCY)], ("ratio", "printed")),
        ([rates(100, 360), ratio(260, **GAIN)], None),
        ([rates(100, 360), ratio(360, **GAIN)], ("ratio", "printed")),
        # Without exactly two throughputs it is not checked; on real data there is no one-device run.
        ([SEVERAL, ratio(9.9)], None),
        ([SEVERAL, ratio(9.9, data="real")], None),
        ([table({"id": "a", "gpus": 1, "value": 10}), ratio(9.9)], None),
        # Another build may have another version.
        ([BUILDS, ratio(5.3, **TO_INTEL)], None),
        ([BUILDS, ratio(6.3, **TO_INTEL)], ("ratio", "printed")),
        # 25 and 46, each ± 0.5, add up to 70 to 72; 72 represents 71.5 and more, 73 represents 72.5 and more.
        ([*FORWARD, of("time_forward_backward", "ms", both=71)], None),
        ([*FORWARD, of("time_forward_backward", "ms", both=72)], None),
        ([*FORWARD, of("time_forward_backward", "ms", both=73)], ("sum", "both")),
        ([ALL, of("throughput_per_gpu", "images/s", one=3398.7, gpus=8)], None),
        ([ALL, of("throughput_per_gpu", "images/s", one=3398.5, gpus=8)], ("per device", "one")),
        ([REPORT, of("throughput", "images/s", readme=11233.92)], ("twice", "readme")),
        ([REPORT, of("throughput", "images/s", readme=11332)], None),
        ([REPORT, of("throughput", "images/s", again=11233.92, run="2")], None),
        # `more than` and `less than` are checked on their side.
        ([of(*PEAK, table=4.7), of(*PEAK, text=5, bound=">")], ("twice", "text")),
        ([of(*PEAK, table=4.7), of(*PEAK, text=4, bound=">")], None),
        ([of(*PEAK, table=4.7), of(*PEAK, text=4, bound="<")], ("twice", "text")),
        ([*ENDS, of("power_avg", "W", avg=103.8)], None),
        ([*ENDS, of("power_avg", "W", avg=151.8)], ("range", "avg")),
        ([*ENDS, of("power_avg", "W", avg=36)], ("range", "avg")),
        ([*ENDS, of("power_avg", "W", avg=37)], None),  # both may be 37.5
        ([table(rate(8, 1, batch_per_gpu=64, global_batch=512))], None),
        ([table(rate(8, 1, batch_per_gpu=64, global_batch=256))], ("batch", "g8")),
    ],
)  # fmt: skip
def test_a_figure_that_others_of_its_source_contradict_is_found(tables, wrong):
    assert found(*tables) == ([wrong] if wrong else [])


def test_a_contradiction_has_both_figures_and_their_difference():
    (one,) = contradictions(source(rates(1055.78, 3410.52), ratio(2.18)))
    assert (one.check, one.figure, one.against, one.unit) == ("ratio", "printed", ("b", "a"), "x")
    assert one.printed == 2.18
    assert one.recomputed == pytest.approx(3.230332)
    assert one.difference == pytest.approx(-0.325147, abs=1e-6)


@pytest.mark.parametrize(("value", "wrong"), [(7.92, []), (9.92, [("finding", "scales")])])
def test_a_stated_ratio_is_checked_against_its_figures(value, wrong):
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


@pytest.mark.parametrize(
    ("rates", "speedups"),
    [
        ({4: 380, 1: 100, 2: 198}, {"g4": (3.8, 95.0), "g1": (1.0, 100.0), "g2": (1.98, 99.0)}),
        ({1: 2897, 8: 23874}, {"g1": (1.0, 100.0), "g8": (8.2409389, 103.0117)}),  # above the ideal, not clamped
        ({8: 800, 256: 23040}, {"g8": (1.0, 100.0), "g256": (28.8, 90.0)}),
    ],
)
def test_speedup_and_efficiency_are_against_the_fewest_devices(rates, speedups):
    found = scaled(source(table(*(rate(devices, value) for devices, value in rates.items()), batch_per_gpu=64)))
    assert {each.figure.id: (each.speedup, each.efficiency_percent) for each in found} == {
        name: pytest.approx(pair) for name, pair in speedups.items()
    }
    assert {each.baseline.id for each in found} == {f"g{min(rates)}"}


FAMILY = [{"id": "a-1x", "family": "a"}, {"id": "a-2x", "family": "a"}, {"id": "b"}]


@pytest.mark.parametrize(
    ("rows", "points"),
    [
        # Runs that differ in more than scale are no curve.
        *(([rate(1, 100), rate(2, 198, **other)], {}) for other in ({"precision": "amp"}, {"framework": "mxnet"})),
        *(([rate(1, 100), rate(2, 198, **other)], {}) for other in ({"data": "real"}, {"variant": "v1.5"})),
        # Another batch per device starts another curve.
        (
            [rate(1, 100, batch_per_gpu=32), rate(2, 190, batch_per_gpu=32), rate(4, 500, batch_per_gpu=64)],
            {"g1": ("g1", "weak", 1.0), "g2": ("g1", "weak", 1.9)},
        ),
        # 8 GPUs with 3200 and 16 with 6400 have 400 a device: weak. 64 with 3200 keep the global batch of 8: strong.
        (
            [rate(8, 100, global_batch=3200), rate(16, 190, global_batch=6400), rate(64, 500, global_batch=3200)],
            {"g8": ("g8", "weak", 1.0), "g16": ("g8", "weak", 1.9), "g64": ("g8", "strong", 5.0)},
        ),
        # Without a batch per device or a global batch, scaling is unstated.
        (
            [rate(1, 100, batch=144), rate(2, 198, batch=144)],
            {"g1": ("g1", "unstated", 1.0), "g2": ("g1", "unstated", 1.98)},
        ),
        # Machines are compared with themselves and their family.
        (
            [rate(1, 100, system="a-1x"), rate(2, 190, system="a-2x"), rate(2, 300, id="b2", system="b")],
            {"g1": ("g1", "unstated", 1.0), "g2": ("g1", "unstated", 1.9)},
        ),
        # CPUs, bounds and lists are not points of a curve.
        (
            [rate(0, 89), rate(1, 100), {**rate(2, 190), "bound": ">"}, {"id": "r", "gpus": 4, "value": [380, 390]}],
            {},
        ),
    ],
)
def test_a_curve_holds_runs_that_differ_only_in_scale(rows, points):
    found = scaled(source(table(*rows), systems=FAMILY))
    assert {each.figure.id: (each.baseline.id, each.scaling, each.speedup) for each in found} == {
        name: (*said, pytest.approx(speedup)) for name, (*said, speedup) in points.items()
    }


def test_throughput_per_device_is_multiplied_by_the_number_of_devices():
    rows = (rate(8, 5762), rate(128, 5605))
    found = scaled(source(table(*rows, metric="throughput_per_gpu", unit="tokens/s", batch_per_gpu=2)))
    assert found[1].speedup == pytest.approx(5605 / 5762 * 16)
    assert found[1].efficiency_percent == pytest.approx(97.2753, abs=1e-4)
