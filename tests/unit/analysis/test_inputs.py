"""Prevents: a ratio to synthetic samples of another training, scale, machine or precision, or of a run that may not be used; inputs that differ
in what decodes or in workers pooled as repeats; a limit that nobody measured; trainings of other data sets under one name; a report where
nothing was trained on real images; a change of the programs or of the last layer that nobody is told of.
"""

from __future__ import annotations

import pytest
from records import but
from swept import H200, leave, measured, samples

from runner.analysis.comparisons.settings import inputs
from runner.commands.report import report
from runner.core.measurement import StepParts
from runner.report import comparisons

pytestmark = pytest.mark.filterwarnings("error")  # a glyph that the font lacks is a warning

DATA = {"path": "/data/set", "images": 4000, "classes": 10, "digest": "d" * 64}
SYNTHETIC = measured(64, 1000.0, run_id="synthetic")


def real(rate, *, decode="cpu", workers=8, alone=None, run_id=None, dataset=None, **changes):
    """A run on a folder of JPEGs whose input delivers `alone` images a second by itself."""
    given = {**DATA, **(dataset or {})}
    fields = {"decode": decode, "loader_workers": workers, "data": given["path"], "dataset": given}
    run = measured(64, rate, run_id=run_id or f"{decode}-{workers}", **fields, **changes)
    return but(run, measurement={"input_alone_per_s": alone})


CPU2 = real(250.0, workers=2, alone=300.0)
CPU8 = real(800.0, alone=900.0)
GPU8 = real(950.0, decode="gpu", alone=4000.0)
RUNS = (GPU8, CPU8, SYNTHETIC, CPU2)


def test_a_training_is_held_against_itself_on_synthetic_images():
    (found,) = inputs(RUNS)
    assert [source.label for source in found.rows] == [
        "synthetic",
        "JPEGs, CPU decode, 2 loader workers",
        "JPEGs, CPU decode, 8 loader workers",
        "JPEGs, GPU decode, 8 loader workers",
    ]
    assert [source.row.throughput for source in found.rows] == [pytest.approx(r) for r in (1000, 250, 800, 950)]
    assert found.rows[0].ratio is None
    # 250, 800 and 950 of 1000 images a second, of one run each.
    for source, ratio in zip(found.rows[1:], (0.25, 0.8, 0.95), strict=True):
        assert source.ratio == pytest.approx(ratio)
        assert source.ratio_ci95 is None
    # 300 and 900 are less than the 1000 that the training takes, 4000 are more.
    assert [source.limit for source in found.rows] == [None, "input", "input", "training"]
    assert found.name == "input-pytorch-2.15.0-resnet50-224px-fp32-batch64-1gpu"


def test_the_table_has_every_figure_and_a_dash_for_what_is_not_known():
    waited = but(CPU2, measurement={"step_parts": StepParts(step_s=0.256, input_s=0.192)})
    (found,) = inputs((SYNTHETIC, waited, GPU8))
    table = comparisons.inputs(found).tables[0]
    assert table.columns == (
        "input", "runs", "images/s ±", "÷ synthetic ±", "input of a step (ms)", "input alone (images/s)", "limit", "validity",
    )  # fmt: skip
    assert table.rows == (
        ("synthetic", "1", "1,000", "–", "–", "–", "–", "valid"),
        ("JPEGs, CPU decode, 2 loader workers", "1", "250.0", "0.250", "192.0", "300.0", "input", "valid"),
        ("JPEGs, GPU decode, 8 loader workers", "1", "950.0", "0.950", "–", "4,000", "training", "valid"),
    )
    assert "| JPEGs, GPU decode, 8 loader workers | 1 | 950.0 |" in comparisons.inputs(found).markdown()
    (found,) = inputs((SYNTHETIC, real(800.0)))
    assert comparisons.inputs(found).tables[0].columns == ("input", "runs", "images/s ±", "÷ synthetic ±", "validity")


def test_repeats_are_pooled_and_what_the_input_delivers_is_that_of_the_middle_one():
    """40 steps of 64 images at 250/s and 750/s: 5120 images in 10.24 + 3.413 s are 375/s; the mean of the rates would be 500."""
    again = (real(750.0, workers=2, alone=700.0, run_id="b"), real(375.0, workers=2, alone=350.0, run_id="c"))
    (found,) = inputs((SYNTHETIC, CPU2, *again[:1]))
    assert found.rows[1].ratio == pytest.approx(0.375)
    assert found.rows[1].row.repeats == 2
    (found,) = inputs((SYNTHETIC, CPU2, *again))
    assert found.rows[1].alone_per_s == 350.0


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "vgg16"},
        {"version": "2.6.0"},
        {"precision": "bf16"},
        {"world_size": 2, "processes": 2},
        {"image_shape": (3, 32, 32)},
        {"mode": "converge"},
        {"concurrent": {"trainings": 2, "case": "sequential", "number": 1}},
    ],
    ids=str,
)
def test_what_differs_in_more_than_the_input_is_not_held_against_it(changes):
    assert inputs((SYNTHETIC, real(800.0, **changes))) == ()


def test_without_both_inputs_of_one_training_there_is_no_report():
    older = H200.model_copy(update={"name": "Tesla V100"})
    assert inputs((SYNTHETIC, but(CPU8, provenance={"gpus": (older,)}))) == ()
    assert inputs((measured(32, 1000.0), CPU8)) == ()
    assert inputs(()) == ()
    assert inputs((SYNTHETIC, measured(64, 900.0, run_id="again"))) == ()
    assert inputs((CPU2, CPU8, GPU8)) == ()


def test_an_input_whose_runs_may_not_be_used_has_a_line_and_no_figure():
    (found,) = inputs((SYNTHETIC, CPU8, real(5000.0, decode="gpu", alone=9000.0, status="invalid")))
    bad = found.rows[2]
    assert (bad.row.throughput, bad.ratio, bad.ratio_ci95, bad.alone_per_s, bad.limit) == (None,) * 5
    assert "JPEGs, GPU decode, 8 loader workers invalid: made up" in found.notes
    without = measured(64, 1000.0, run_id="synthetic", status="invalid")
    (found,) = inputs((without, CPU8))
    assert (found.rows[1].ratio, found.rows[1].limit) == (None, None)
    assert found.rows[1].row.throughput == pytest.approx(800)


def test_data_sets_are_told_apart_and_a_packed_one_is_called_what_it_is():
    other = real(700.0, run_id="other", dataset={"images": 900, "digest": "e" * 64})
    (found,) = inputs((SYNTHETIC, CPU8, other))
    assert [source.label for source in found.rows[1:]] == [
        "JPEGs (4,000 images, dddddddd), CPU decode, 8 loader workers",
        "JPEGs (900 images, eeeeeeee), CPU decode, 8 loader workers",
    ]
    (found,) = inputs((SYNTHETIC, real(800.0, workers=1, dataset={"path": "/data/set.rec"})))
    assert found.rows[1].label == "MXNet's RecordIO, CPU decode, 1 loader worker"


def test_what_else_differs_is_told():
    classes = real(800.0, num_classes=12)
    (found,) = inputs((SYNTHETIC, classes))
    assert found.notes == ("the last layer has as many outputs as the data have classes: 10 and 12",)
    (found,) = inputs((SYNTHETIC, but(CPU8, provenance={"workloads_sha256": "d" * 64})))
    assert found.notes == ("2 versions of the training programs were run: not the input alone differs",)


def test_the_page_shows_what_each_input_delivers_beside_what_was_trained():
    (found,) = inputs(RUNS)
    shown = comparisons.inputs(found).page_block()
    assert shown.lead == "JPEGs, GPU decode, 8 loader workers: 0.950 of synthetic images"
    (figure,) = shown.figures
    trained, alone = figure.series
    assert trained.y == tuple(pytest.approx(rate) for rate in (1000, 250, 800, 950))
    assert alone.y == (None, 300.0, 900.0, 4000.0)
    assert shown.runs == ("synthetic", "cpu-2", "cpu-8", "gpu-8")


def test_records_on_file_become_a_report_and_a_chapter_of_the_page(tmp_path):
    for run in RUNS:
        leave(tmp_path / "runs", run, table_of_samples=samples())
    report([tmp_path / "runs"], out=tmp_path / "out")
    name = "input-pytorch-2.15.0-resnet50-224px-fp32-batch64-1gpu"
    assert "| JPEGs, GPU decode, 8 loader workers |" in (tmp_path / "out" / f"{name}.md").read_text()
    assert (tmp_path / "out" / "report-figures" / f"{name}-throughput.png").is_file()
    assert name in (tmp_path / "out" / "report.html").read_text()
