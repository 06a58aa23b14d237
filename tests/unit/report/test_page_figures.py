"""Figures of the page against the values that they are made from.

Prevents: an unusable run that becomes a point; a degraded one that looks valid; a curve that ends silently; a point that links to another
point's runs; a curve over time that loses its mean, or crosses a gap in the samples.
"""

from __future__ import annotations

import numpy as np
import pages
import pytest
import summaries
from hypothesis import given
from hypothesis import strategies as st
from swept import measured, traced

from runner.analysis.comparisons.sweeps import sweeps
from runner.report import comparisons
from runner.report.page import figures
from runner.report.page.model import Series

RUNS = {1: ("a",), 2: ("b1", "b2"), 3: ("c",), 4: ("never",)}


def by_name(found, name="m"):
    return {one.name.removeprefix(f"{name}-"): one for one in found}


def test_the_figures_of_a_matrix():
    found = by_name(figures.scaling(summaries.GPUS, name="m", runs=RUNS))
    assert list(found) == ["throughput", "training-time", "speedup"]
    (rates,) = found["throughput"].series
    assert rates.x == ("1 GPU", "2 GPUs", "3 GPUs")
    assert rates.y == (361.84, 713.2, 1102.0)
    assert (rates.low[0], rates.high[0]) == (360.1, 363.9)
    assert rates.runs == (("a",), ("b1", "b2"), ("c",))
    assert found["throughput"].y == "throughput (images/s)"
    (times,) = found["training-time"].series
    assert times.y == (35.37, 35.9, 34.85)
    assert times.low == ()


def test_speedup_is_drawn_with_the_ideal():
    speedup = by_name(figures.scaling(summaries.GPUS, name="m", runs=RUNS))["speedup"]
    own, ideal = speedup.series
    assert own.x == ideal.x == ideal.y == (1.0, 2.0, 3.0)
    assert own.y == (1.0, 1.971, 3.046)
    assert (ideal.kind, speedup.log) == ("ideal", False)


def test_degraded_rows_are_marked_and_unusable_ones_only_named():
    throughput = figures.scaling(summaries.GPUS, name="m", runs=RUNS)[0]
    assert throughput.series[0].degraded == (False, True, False)
    assert throughput.notes == (
        "not drawn: 4 GPUs invalid (nvlink was asked for and shared memory was used)",
        "not drawn: 8 GPUs failed (rank 5 ended with exit code 137; the kernel killed it for memory)",
    )


@given(st.lists(st.sampled_from(["a", "b", "a (2)", 1.0]), max_size=6))
def test_no_two_bars_of_a_series_share_a_name(names):
    """Plotly draws bars of equal name in one trace on top of each other, as their sum."""
    series = Series(name="measured", x=tuple(names), y=(1.0,) * len(names))
    bars = [name for name in series.x if isinstance(name, str)]
    assert len(set(bars)) == len(bars)
    assert all(str(new).startswith(str(old)) for new, old in zip(series.x, names, strict=True))
    assert Series.model_validate(series.model_dump()) == series


def test_a_single_scale_has_no_figure():
    only = summaries.summary(summaries.row(1), summaries.unusable(2, "invalid", "why"))
    assert figures.scaling(only, name="m", runs=RUNS) == ()


def test_points_of_batch_sweeps_link_to_their_runs():
    found = by_name(comparisons.sweep_figures(pages.batches()), "sweep-pytorch-2.15.0-resnet50-224px-1gpu")
    assert list(found) == ["throughput", "utilisation", "sm-active", "compute"]
    (rates,) = found["throughput"].series
    assert (rates.name, rates.x) == ("fp32", (4.0, 16.0))
    assert rates.y == pytest.approx((400, 1600))
    assert rates.runs == (("m-fp32-4", "m-fp32-4-profile-kernels"), ("m-fp32-16", "m-fp32-16-profile-kernels"))
    (compute,) = found["compute"].series  # 0.25 s of kernels in 5 steps of 0.1 s
    assert compute.y == pytest.approx((50, 50))
    assert found["compute"].percent
    assert not found["throughput"].percent


def test_a_batch_without_a_value_has_no_point():
    runs = [measured(4, 400.0), measured(16, 1600.0), measured(64, 9000.0, status="invalid")]
    (found,) = sweeps(runs)
    assert comparisons.sweep_figures(found)[0].series[0].x == (4.0, 16.0)


def test_time_shares_match_the_pass():
    _, record = traced(4, 0.3, 0.1)
    (figure,) = figures.time_shares(record.profile, name="n", title="t", run=record.run_id)
    (shares,) = figure.series
    assert shares.y == pytest.approx((75, 25))
    assert shares.runs == ((record.run_id,),) * 2


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=1500))
def test_a_downsampled_curve_keeps_its_mean_and_its_ends(values):
    times, found, each = figures.downsampled(np.arange(len(values), dtype=float), np.array(values))
    assert len(found) <= figures.MOST_POINTS
    assert len(values) <= each * len(found) < len(values) + each
    sizes = [min(each, len(values) - start) for start in range(0, len(values), each)]
    assert sum(value * size for value, size in zip(found, sizes, strict=True)) == pytest.approx(sum(values), abs=1e-6)
    assert list(times) == sorted(times)


def test_a_gap_in_the_samples_stays_a_gap():
    values = np.array([1.0, 1.0, np.nan, 3.0])
    assert figures.downsampled(np.arange(4.0), values)[1] == (1.0, 1.0, None, 3.0)
    long = np.full(900, 2.0)
    long[450] = np.nan
    assert figures.downsampled(np.arange(900.0), long)[1].count(None) == 1


def test_accuracy_and_loss_after_each_epoch():
    accuracy, loss = figures.over_epochs([pages.converging()], name="m", title="t")
    assert accuracy.series[0].x == (1.0, 2.0, 3.0)
    assert accuracy.series[0].y == (20.0, 40.0, 60.0)
    assert [(one.name, one.y) for one in loss.series] == [
        ("training", pytest.approx((2.0, 1.0, 2 / 3))),
        ("validation", pytest.approx((2.5, 1.25, 2.5 / 3))),
    ]
    two = [pages.converging(), pages.converging()]
    assert len(figures.over_epochs(two, name="m", title="t")[1].series) == 4
    assert figures.over_epochs([pages.scaled(1, matrix="m")], name="m", title="t") == ()
