"""Studies on the page.

Prevents: a published point drawn as a measured one, or with another value than printed; curves of different runs joined into one; two
curves of equal name; a verdict or a finding that is missing from the page; a study whose figures can't be drawn at all.
"""

from __future__ import annotations

import pytest
import studied

from runner.core.measurement import Interval
from runner.experiments.studies import page
from runner.experiments.studies.study import DIRECTORY
from runner.report import picture

STUDIES = sorted(path.stem for path in DIRECTORY.glob("*.yaml"))
GPUS = studied.machine(device="gpu", devices=(4, 4, 4, 4), device_name="Example GPU")


def point(value, *, published=False, **where):
    return page.Point(where, value, published=published, runs=() if published else (f"r{value:g}",))


def drawn(*points, metric="throughput", unit="images/s"):
    return page._figures_of_metric(metric, unit, points, stem="s")


@pytest.fixture(scope="module")
def dell():
    return studied.reproduced("dell-p100", GPUS, repeats=1)


def test_published_and_measured_are_separate_curves_over_the_devices():
    (figure,) = drawn(
        point(100.0, published=True, gpus=1, batch=32),
        point(190.0, published=True, gpus=2, batch=64),
        point(10.0, gpus=1, batch=32),
        point(19.0, gpus=2, batch=64),
    )
    assert (figure.x, figure.y) == ("devices", "throughput (images/s)")
    theirs, ours = figure.series
    assert (theirs.kind, theirs.x, theirs.y, theirs.runs) == ("published", (1.0, 2.0), (100.0, 190.0), ())
    assert (ours.kind, ours.y, ours.runs) == ("measured", (10.0, 19.0), (("r10",), ("r19",)))


def test_batches_on_the_same_devices_are_separate_curves():
    (figure,) = drawn(*(point(n * batch, gpus=n, batch=batch) for n in (1, 2, 4) for batch in (16, 32)))
    assert {one.name: one.y for one in figure.series} == {"batch 16": (16, 32, 64), "batch 32": (32, 64, 128)}


def test_the_axis_is_the_one_with_most_points_in_fewest_curves():
    (figure,) = drawn(*(point(n * batch, gpus=n, batch=batch) for n in (1, 2) for batch in (4, 8, 16)))
    assert figure.x == "batch"
    assert [(one.name, one.x) for one in figure.series] == [("gpus 1", (4, 8, 16)), ("gpus 2", (4, 8, 16))]


def test_bars_are_drawn_if_no_number_varies():
    (figure,) = drawn(point(1.0, model="alexnet", gpus=1), point(2.0, model="vgg16", gpus=1))
    assert (figure.shape, figure.series[0].x) == ("lying", ("alexnet", "vgg16"))


def test_names_of_curves_are_only_as_long_as_needed_to_differ():
    every = [{"framework": "mxnet", "network": "ib"}, {"framework": "mxnet", "network": "eth"}, {"framework": "caffe"}]
    assert [page._label(own, every) for own in every] == ["mxnet, ib", "mxnet, eth", "caffe"]


def test_too_many_curves_are_split_by_network():
    points = [
        point(n, gpus=n, model=f"net{net}", precision=p) for n in (1, 2) for net in range(5) for p in ("fp32", "fp16")
    ]
    found = drawn(*points)
    assert [one.title for one in found] == [f"Throughput, net{net}" for net in range(5)]
    assert all(len(one.series) == 2 for one in found)


def test_speedups_have_an_ideal_and_a_baseline_alone_is_not_a_curve():
    (figure,) = drawn(
        *(point(0.9 * n, gpus=n, model="a") for n in (1, 2, 16)),
        point(1.0, gpus=1, model="b"),
        metric="speedup",
        unit="x",
    )
    own, ideal = figure.series
    assert (own.name, ideal.kind, ideal.x, ideal.y) == ("a", "ideal", (1, 2, 16), (1, 2, 16))
    assert figure.log


def test_a_note_names_published_figures_that_are_only_in_the_table():
    (figure,) = drawn(point(1.0, gpus=1), point(2.0, gpus=2), point(0.5, published=True))
    assert figure.notes == ("1 published figures without devices are in the table alone",)


def test_only_measured_points_have_intervals():
    held = page.Point({"gpus": 2}, 2.0, published=False, ci95=Interval(low=1.9, high=2.2))
    (figure,) = drawn(point(1.0, gpus=1), held)
    assert (figure.series[0].low, figure.series[0].high) == ((None, 1.9), (None, 2.2))


def test_a_studys_source_is_drawn_as_printed(dell):
    """Dell's Figure 6: 13.5 times the speed on 16 GPUs with GoogLeNet, 3.8 on 4 with NV-Caffe."""
    figures = {one.name: one for one in page.figures(dell, stem="dell")}
    theirs = [one for one in figures["dell-speedup-googlenet"].series if one.kind == "published"]
    printed = {(x, y) for one in theirs for x, y in zip(one.x, one.y, strict=True)}
    assert {(16.0, 13.5), (4.0, 3.8)} <= printed


def test_every_verdict_and_finding_is_in_a_table(dell):
    tables = {one.title: one for one in page.block(dell, stem="dell").tables}
    rows = tables["Published figures"].rows
    place = {name: number for number, name in enumerate(tables["Published figures"].columns)}
    assert [row[place["figure"]] for row in rows] == [one.figure for one in dell.comparisons]
    assert {row[place["verdict"]] for row in rows} == {one.verdict for one in dell.comparisons}
    assert [row[2] for row in tables["Findings"].rows] == [one.verdict for one in dell.judgements]
    assert len(tables["Cells"].rows) == len(dell.cells)


def test_points_of_degraded_runs_are_hollow():
    doubted = page.Point({"gpus": 2}, 2.0, published=False, runs=("b",), degraded=True)
    (figure,) = drawn(point(1.0, gpus=1), doubted)
    assert figure.series[0].degraded == (False, True)


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("here", [GPUS, studied.machine()], ids=["gpus", "cpus"])
def test_every_study_can_be_drawn(name, here):
    block = page.block(studied.reproduced(name, here, repeats=1), stem=name)
    assert block.figures
    names = [one.name for one in block.figures]
    assert len(set(names)) == len(names)
    for figure in block.figures:
        curves = [(one.kind, one.name) for one in figure.series]
        assert len(set(curves)) == len(curves), figure.title
    assert picture.png(block.figures[0])
