"""The scaling curve.

Prevents: an invalid run drawn; a run left out silently; a degraded run that looks valid; efficiency above 100 % cut off; an error bar of
negative length because the interval does not contain the point; a plot that needs a display.
"""

from __future__ import annotations

import pytest
from summaries import CPUS, GPUS, NODES, row, summary, unusable

from runner.core.measurement import Interval
from runner.report.page.figures import scaling_panels
from runner.report.picture import draw
from runner.report.publish import scaling_png

pytestmark = pytest.mark.filterwarnings("error")  # matplotlib warns if the font lacks a glyph


def panels(summary):
    """The measured series: throughput and efficiency."""
    return [figure.series[0] for figure in scaling_panels(summary)]


def scaling_figure(summary):
    return draw(*scaling_panels(summary), title=summary.title, lead=(summary.setting, summary.wires or ""))


def words(figure) -> str:
    return " ".join([*(text.get_text() for text in figure.texts), figure._supxlabel.get_text()]).replace("\n", " ")


def test_usable_points_are_drawn_at_their_values():
    rates, shares = panels(GPUS)
    assert (rates.x, rates.y) == ((1, 2, 3), (361.84, 713.2, 1102.0))
    assert rates.degraded == (False, True, False)
    assert shares.y == pytest.approx((100.0, 98.55, 101.53))
    hollow = [line for line in scaling_figure(GPUS).axes[0].lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in hollow] == [[2]]


def test_error_bars_end_at_the_ends_of_the_intervals():
    rates, shares = panels(GPUS)
    assert (rates.low[1], rates.high[1]) == pytest.approx((704.0, 722.0))
    assert (shares.low[1], shares.high[1]) == pytest.approx((97.15, 99.95))
    assert shares.low[0] is None  # the baseline's efficiency has no interval


def test_an_interval_that_excludes_its_point_has_no_negative_error_bar():
    beside = row(1, throughput=100.0, throughput_ci95=Interval(low=101.0, high=103.0))
    ((start, end), *_) = scaling_figure(summary(beside, row(2))).axes[0].containers[0].lines[2][0].get_segments()
    assert (start[1], end[1]) == pytest.approx((100.0, 103.0))


def test_the_ideal_line_is_n_times_one_device():
    _, ideal = scaling_panels(GPUS)[0].series
    assert ideal.name == "ideal: n times one device"
    assert (ideal.x, ideal.y) == ((1, 3), pytest.approx((361.84, 1085.52)))


def test_without_a_baseline_there_is_no_ideal_line():
    without = [row(n, speedup=None, efficiency=None) for n in (2, 4)]
    top, bottom = scaling_panels(summary(unusable(1, "failed", "x"), *without))
    assert [series.name for series in top.series] == ["measured"]
    assert bottom.series[0].y == ()


def test_runs_left_out_are_named_with_their_reason():
    said = words(scaling_figure(GPUS))
    assert "not drawn: 4 GPUs invalid (nvlink was asked for and shared memory was used)" in said
    assert "not drawn: 8 GPUs failed (rank 5 ended with exit code 137; the kernel killed it for memory)" in said


def test_title_and_footer_state_what_ran_where_and_when():
    """A picture shown without its table must still tell an emulated link from a real one."""
    said = words(scaling_figure(CPUS))
    told = (
        "mxnet 1.9.1: resnet18 train",
        "batch 32 per device",
        "fp32",
        "weak scaling",
        "error bars: 95 % interval over runs",
    )
    assert [part for part in told if part not in said] == []
    assert "nodes" not in said
    assert "4 on 2 nodes over ethernet eth0, emulated 1gbit" in words(scaling_figure(NODES))


def test_axes_carry_units():
    top, bottom = scaling_figure(CPUS).axes
    labels = (top.get_ylabel(), bottom.get_ylabel(), bottom.get_xlabel())
    assert labels == ("throughput (images/s)", "efficiency (%)", "CPU workers")


def test_efficiency_above_100_is_not_cut_off():
    fast = row(2, speedup=3.0, efficiency=1.5, efficiency_ci95=Interval(low=1.4, high=1.6))
    assert scaling_figure(summary(row(1), fast)).axes[1].get_ylim()[1] > 160


@pytest.mark.parametrize(("largest", "scale"), [(8, "linear"), (16, "log")])
def test_axes_are_logarithmic_if_linear_ones_would_crowd(largest, scale):
    top, bottom = scaling_figure(summary(*(row(n) for n in (1, 2, 4, 8, 16) if n <= largest))).axes
    assert top.get_yscale() == bottom.get_xscale() == scale
    if scale == "linear":
        assert top.get_ylim()[0] == 0  # an axis that does not start at 0 would exaggerate the gain
    assert [tick.get_text() for tick in bottom.get_xticklabels()] == [str(n) for n in (1, 2, 4, 8, 16) if n <= largest]


@pytest.mark.parametrize("first", [row(1), unusable(1, "failed", "x")])
def test_fewer_than_two_points_are_not_plotted(first):
    assert scaling_png(summary(first, unusable(2, "invalid", "y"))) is None
