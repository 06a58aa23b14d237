"""Prevents: strategies of different trainings, scales, software or precisions compared; Horovod options pooled as repeats of one strategy; an
efficiency relative to another key's baseline; a ratio to an invalid run; differing locked requirements that are not noted.

Prevents: a ratio to synthetic samples of another training, scale, machine or precision, or of an invalid run; different decoders or worker
counts pooled as repeats; an unmeasured limit; trainings of other data sets under one name; a report without a training on real images; a
change of the programs or of the last layer that is not noted.

Prevents: a container's ratio to a run of another framework, CUDA, Python, machine or program, or of runs with samplers to runs without; a
ratio of invalid runs; several matrices not pooled, or other software pooled with them; a report of a single engine.
"""

from __future__ import annotations

import csv
import io

import pytest
from records import but
from scaled import ran
from swept import leave, measured, samples

from runner.analysis.comparisons.settings import cross_checks, inputs, strategies
from runner.commands.report import report
from runner.core.measurement import StepParts
from runner.report import comparisons

pytestmark = pytest.mark.filterwarnings("error")  # a missing glyph is a warning

GLOO = {
    "controller": "gloo",
    "operations": "gloo",
    "fusion_threshold_mib": None,
    "cycle_time_ms": None,
    "compression": "none",
}


def horovod(devices, rate, *, status="valid", matrix="h", **options):
    changes = {"strategy": "horovod", "horovod": GLOO | options}
    return ran("lenet", devices, rate, matrix=f"{matrix}{len(options)}", status=status, **changes)


# 100 images/s on one device; on two, 180 and 150 by two strategies.
ALONE, DDP = ran("lenet", 1, 100), ran("lenet", 2, 180)
HOROVOD = horovod(2, 150)


def test_strategies_are_compared_with_the_frameworks_own_and_with_one_device():
    (found,) = strategies((HOROVOD, DDP, ALONE))
    assert [way.label for way in found.rows] == ["ddp", "horovod over gloo, gloo controller"]
    own, other = found.rows
    assert (own.ratio, own.ratio_ci95) == (None, None)
    assert other.ratio == pytest.approx(150 / 180)
    assert [way.row.throughput for way in found.rows] == pytest.approx([180, 150])
    assert [way.row.efficiency for way in found.rows] == pytest.approx([0.9, 0.75])
    assert (own.runs, other.runs) == ((DDP[1].run_id,), (HOROVOD[1].run_id,))
    assert found.name == "strategies-pytorch-1.9.1-lenet-32px-fp32-batch32-2cpu"
    assert found.setting == "lenet 32×32, batch 32 per device, fp32, 2 workers × 1 core"


def test_without_a_one_device_run_there_is_a_ratio_but_no_efficiency():
    (found,) = strategies((HOROVOD, DDP, ran("lenet", 1, 100, key="another")))
    assert [way.row.efficiency for way in found.rows] == [None, None]
    assert found.rows[1].ratio == pytest.approx(150 / 180)
    assert comparisons.strategies(found).tables[0].columns == (
        "strategy",
        "runs",
        "images/s ±",
        "÷ first ±",
        "validity",
    )


def test_horovod_options_make_a_separate_strategy():
    told = (horovod(2, 120, fusion_threshold_mib=8), horovod(2, 110, cycle_time_ms=5, compression="fp16"))
    (found,) = strategies((DDP, HOROVOD, *told))
    assert [way.label for way in found.rows] == [
        "ddp",
        "horovod over gloo, gloo controller",
        "horovod over gloo, gloo controller, cycle time 5 ms, compression fp16",
        "horovod over gloo, gloo controller, fusion threshold 8 MiB",
    ]
    assert [way.row.repeats for way in found.rows] == [1, 1, 1, 1]


def test_other_scales_and_a_single_strategy_are_no_comparison():
    assert strategies(()) == ()
    assert strategies((DDP, ALONE)) == ()
    assert strategies((DDP, horovod(4, 300))) == ()
    assert strategies((ALONE, horovod(1, 90))) == ()


def test_an_invalid_strategy_has_a_row_and_no_figure():
    (found,) = strategies((DDP, ALONE, horovod(2, 999, status="invalid")))
    bad = found.rows[1]
    assert (bad.row.throughput, bad.row.efficiency, bad.ratio) == (None, None, None)
    assert f"{bad.label} invalid: made up" in found.notes
    (found,) = strategies((ran("lenet", 2, 180, status="invalid"), HOROVOD))
    assert found.rows[1].ratio is None
    assert comparisons.strategies(found).page_block().lead == "no usable run"


def test_asynchronous_ranks_and_other_requirements_are_noted():
    mxnet = {"framework": "mxnet", "strategy": "kvstore"}
    runs = [ran("lenet", 2, rate, kvstore=store, **mxnet) for store, rate in (("dist_sync", 180), ("dist_async", 200))]
    (found,) = strategies(runs)
    assert [way.label for way in found.rows] == ["kvstore dist_async", "kvstore dist_sync"]
    (note,) = found.notes
    assert note.startswith("kvstore dist_async: a rank goes on with the weights that it finds")
    (found,) = strategies((DDP, but(HOROVOD, image={"lock_sha256": "e" * 64})))
    assert found.notes == ("2 versions of the locked requirements were run: not the strategy alone differs",)


def test_the_table_shows_the_parts_of_a_step():
    parts = StepParts(step_s=0.4, exchange_alone_s=0.05, communication_s=0.1)
    (found,) = strategies((DDP, ALONE, but(HOROVOD, measurement={"step_parts": parts})))
    table = comparisons.strategies(found).tables[0]
    assert table.columns[5:8] == ("step (ms)", "exchange alone (ms)", "communication + update (ms)")
    assert [row[5:8] for row in table.rows] == [("–", "–", "–"), ("400.0", "50.00", "100.0")]
    assert "| horovod over gloo, gloo controller | 1 | 150.0 | 0.833 |" in comparisons.strategies(found).markdown()
    shown = comparisons.strategies(found).page_block()
    assert shown.lead == "horovod over gloo, gloo controller: 0.833 of ddp"
    assert shown.figures[0].series[0].y == pytest.approx((180, 150))


DATA = {"path": "/data/set", "images": 4000, "classes": 10, "digest": "d" * 64}
SYNTHETIC = measured(64, 1000.0, run_id="synthetic")


def real(rate, *, decode="cpu", workers=8, alone=None, run_id=None, dataset=None, **changes):
    """A run on a folder of JPEGs whose input alone delivers `alone` images a second."""
    given = {**DATA, **(dataset or {})}
    fields = {"decode": decode, "loader_workers": workers, "data": given["path"], "dataset": given}
    run = measured(64, rate, run_id=run_id or f"{decode}-{workers}", **fields, **changes)
    return but(run, measurement={"input_alone_per_s": alone})


CPU2 = real(250.0, workers=2, alone=300.0)
CPU8 = real(800.0, alone=900.0)
GPU8 = real(950.0, decode="gpu", alone=4000.0)
RUNS = (GPU8, CPU8, SYNTHETIC, CPU2)


def test_a_training_is_compared_with_itself_on_synthetic_images():
    (found,) = inputs(RUNS)
    assert [source.label for source in found.rows] == [
        "synthetic",
        "JPEGs, CPU decode, 2 loader workers",
        "JPEGs, CPU decode, 8 loader workers",
        "JPEGs, GPU decode, 8 loader workers",
    ]
    assert [source.row.throughput for source in found.rows] == [pytest.approx(r) for r in (1000, 250, 800, 950)]
    assert found.rows[0].ratio is None
    # 250, 800 and 950 of 1000 images a second, one run each.
    for source, ratio in zip(found.rows[1:], (0.25, 0.8, 0.95), strict=True):
        assert source.ratio == pytest.approx(ratio)
        assert source.ratio_ci95 is None
    # 300 and 900 are below the training's 1000, 4000 is above.
    assert [source.limit for source in found.rows] == [None, "input", "input", "training"]
    assert found.name == "input-pytorch-2.15.0-resnet50-224px-fp32-batch64-1gpu"


def test_the_table_has_every_figure_and_a_dash_for_unknown_ones():
    waited = but(CPU2, measurement={"step_parts": StepParts(step_s=0.256, input_s=0.192)})
    shared = but(GPU8, measurement={"step_parts": StepParts(step_s=0.0674, input_s=0.012)})
    (found,) = inputs((SYNTHETIC, shared))
    assert found.rows[1].limit == "input"  # the decoder is fast alone, and shares the GPU with the training
    untimed = but(CPU2, measurement={"step_parts": StepParts(step_s=0.256, input_s=0.192), "input_alone_per_s": None})
    (found,) = inputs((SYNTHETIC, untimed))
    assert found.rows[1].limit == "input"  # its steps wait
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


def test_repeats_are_pooled_and_the_input_rate_is_their_median():
    """40 steps of 64 images at 250/s and 750/s: 5120 images in 10.24 + 3.413 s are 375/s; the mean of the rates would be 500."""
    again = (real(750.0, workers=2, alone=700.0, run_id="b"), real(375.0, workers=2, alone=350.0, run_id="c"))
    (found,) = inputs((SYNTHETIC, CPU2, *again[:1]))
    assert found.rows[1].ratio == pytest.approx(0.375)
    assert found.rows[1].row.repeats == 2
    (found,) = inputs((SYNTHETIC, CPU2, *again))
    assert found.rows[1].alone_per_s == 350.0


def test_without_both_inputs_of_one_training_there_is_no_report():
    assert inputs(()) == ()
    assert inputs((SYNTHETIC, measured(64, 900.0, run_id="again"))) == ()
    assert inputs((CPU2, CPU8, GPU8)) == ()


def test_an_input_with_invalid_runs_has_a_row_and_no_figure():
    (found,) = inputs((SYNTHETIC, CPU8, real(5000.0, decode="gpu", alone=9000.0, status="invalid")))
    bad = found.rows[2]
    assert (bad.row.throughput, bad.ratio, bad.ratio_ci95, bad.alone_per_s, bad.limit) == (None,) * 5
    assert "JPEGs, GPU decode, 8 loader workers invalid: made up" in found.notes
    without = measured(64, 1000.0, run_id="synthetic", status="invalid")
    (found,) = inputs((without, CPU8))
    assert (found.rows[1].ratio, found.rows[1].limit) == (None, None)
    assert found.rows[1].row.throughput == pytest.approx(800)


def test_data_sets_are_distinguished_and_a_packed_one_is_named_by_its_format():
    other = real(700.0, run_id="other", dataset={"images": 900, "digest": "e" * 64})
    (found,) = inputs((SYNTHETIC, CPU8, other))
    assert [source.label for source in found.rows[1:]] == [
        "JPEGs (4,000 images, dddddddd), CPU decode, 8 loader workers",
        "JPEGs (900 images, eeeeeeee), CPU decode, 8 loader workers",
    ]
    (found,) = inputs((SYNTHETIC, real(800.0, workers=1, dataset={"path": "/data/set.rec"})))
    assert found.rows[1].label == "MXNet's RecordIO, CPU decode, 1 loader worker"


def test_other_differences_are_noted():
    classes = real(800.0, num_classes=12)
    (found,) = inputs((SYNTHETIC, classes))
    assert found.notes == ("the last layer has as many outputs as the data have classes: 10 and 12",)
    (found,) = inputs((SYNTHETIC, but(CPU8, provenance={"workloads_sha256": "d" * 64})))
    assert found.notes == ("2 versions of the training programs were run: not the input alone differs",)


def test_the_page_shows_input_rates_next_to_training_rates():
    (found,) = inputs(RUNS)
    shown = comparisons.inputs(found).page_block()
    assert shown.lead == "JPEGs, GPU decode, 8 loader workers: 0.950 of synthetic images"
    (figure,) = shown.figures
    trained, alone = figure.series
    assert trained.y == tuple(pytest.approx(rate) for rate in (1000, 250, 800, 950))
    assert alone.y == (None, 300.0, 900.0, 4000.0)
    assert shown.runs == ("synthetic", "cpu-2", "cpu-8", "gpu-8")


SAID = {"framework_version": "2.11.0+cu130", "cuda": "13.0", "cudnn": "9.10", "nccl": "2.27.7", "python": "3.12.3"}
HERE = "torch 2.11.0+cu130 of /opt/torch/bin/python3"
REFERENCES = {"docker": "hostroot:1", "host": HERE, "venv": "pytorch 2.11.0 (virtual environment)"}


def in_engine(engine, rate, *, run_id=None, reference=None, said=None, hostname="here", first_step_s=9.0, **changes):
    """A run of `rate` images/s on one H200 in an engine."""
    version = changes.pop("version", reference or REFERENCES[engine])
    run = measured(64, rate, run_id=run_id or engine, version=version, **changes)
    host = run[1].provenance.host.model_copy(update={"hostname": hostname})
    path, record = but(
        run,
        image={"reference": reference or REFERENCES[engine], "id": None, "lock_sha256": None},
        provenance={"host": host, **SAID, **(said or {})},
        measurement={"first_step_s": first_step_s},
    )
    return path, record.model_copy(update={"engine": engine})


HOST = in_engine("host", 1000.0, first_step_s=8.0)
DOCKER = in_engine("docker", 995.0)


def test_a_container_is_compared_with_the_same_software_without_one():
    (found,) = cross_checks((DOCKER, HOST))
    assert found.name == "engines-pytorch-resnet50-224px-fp32-batch64-1gpu"
    assert found.bare == "host"
    assert [row.label for row in found.rows] == [f"host, {HERE}", "docker, hostroot:1"]
    bare, contained = found.rows
    assert (bare.ratio, bare.ratio_ci95, bare.differs) == (None, None, ())
    # 995 of 1000 images a second, one run each.
    assert contained.ratio == pytest.approx(0.995)
    assert contained.ratio_ci95 is None
    assert [row.first_step_s for row in found.rows] == [8.0, 9.0]
    assert found.notes == ()


def test_repeats_of_several_matrices_are_pooled():
    """40 steps of 64 images at 1000/s and 500/s: 5120 images in 2.56 + 5.12 s are 666.7/s; the mean of the rates would be 750."""
    again = in_engine("host", 500.0, run_id="again", matrix="other", first_step_s=20.0)
    (found,) = cross_checks((DOCKER, HOST, again))
    assert found.rows[0].row.throughput == pytest.approx(2000 / 3)
    assert found.rows[0].row.repeats == 2
    assert found.rows[0].first_step_s == 14.0
    assert found.rows[1].ratio == pytest.approx(995 / (2000 / 3))
    assert found.rows[0].runs == ("host", "again")


@pytest.mark.parametrize(
    ("changes", "name", "told"),
    [
        ({"said": {"framework_version": "2.15.0"}}, "framework", "2.15.0 beside 2.11.0+cu130"),
        ({"said": {"cuda": "12.8"}}, "CUDA", "12.8 beside 13.0"),
        ({"said": {"cudnn": None}}, "cuDNN", "none beside 9.10"),
        ({"said": {"nccl": "2.26"}}, "NCCL", "2.26 beside 2.27.7"),
        ({"said": {"python": "3.11.2"}}, "Python", "3.11.2 beside 3.12.3"),
        ({"said": {"driver": "570.1"}}, "driver", "570.1 beside none"),
        ({"hostname": "there"}, "machine", "there beside here"),
        ({"said": {"gpus": HOST[1].provenance.gpus * 4}}, "devices", "4 × NVIDIA H200 beside 1 × NVIDIA H200"),
        ({"said": {"workloads_sha256": "d" * 64}}, "training programs", f"{'d' * 12} beside {'b' * 12}"),
    ],
)
def test_other_software_or_another_machine_has_a_reason_and_no_ratio(changes, name, told):
    (found,) = cross_checks((HOST, in_engine("docker", 995.0, **changes)))
    row = found.rows[1]
    assert (row.ratio, row.ratio_ci95, row.differs) == (None, None, (name,))
    assert row.row.throughput == pytest.approx(995)
    assert "| docker | hostroot:1 | 1 | 995.0 | not comparable |" in comparisons.engines(found).markdown()
    assert found.notes == (f"docker, hostroot:1 not comparable with host: {name} {told}",)
    assert comparisons.engines(found).page_block().lead == "not comparable"


def test_each_software_is_compared_with_itself():
    """Two versions of a framework, each with and without a container: two ratios, one per version."""
    old = {"framework_version": "2.6.0", "python": "3.11.2"}
    older = in_engine("host", 500.0, run_id="older", reference="torch 2.6.0 of /usr/bin/python3", said=old)
    contained = in_engine("docker", 250.0, run_id="contained", reference="old:1", said=old)
    (found,) = cross_checks((HOST, DOCKER, older, contained))
    assert {row.reference: row.ratio for row in found.rows if row.engine == "docker"} == {
        "hostroot:1": pytest.approx(0.995),
        "old:1": pytest.approx(0.5),
    }
    # A run that matches neither is described by the nearest: it has the older one's Python, and its own CUDA.
    between = in_engine("docker", 1.0, run_id="between", reference="odd:1", said=old | {"cuda": "12.4"})
    (found,) = cross_checks((HOST, older, between))
    assert found.rows[-1].differs == ("CUDA",)


def test_rows_of_one_engine_and_image_show_what_distinguishes_them():
    """Three bars of 4,700 images/s had the same name, and the page showed their sum, 14,000."""
    newer = {"workloads_sha256": "d" * 64}
    runs = [in_engine(engine, 990.0, run_id=f"{engine}-newer", said=newer) for engine in ("host", "docker")]
    (found,) = cross_checks((HOST, DOCKER, *runs))
    words = [f"training programs {digit * 12}" for digit in "bd"]
    names = [f"{name}, {word}" for name in (f"host, {HERE}", "docker, hostroot:1") for word in words]
    assert [row.label for row in found.rows] == names
    assert [row[1] for row in comparisons.engines(found).tables[0].rows[2:]] == [
        f"hostroot:1, {word}" for word in words
    ]
    (series,) = comparisons.engines(found).page_block().figures[0].series
    assert (series.x, series.y) == (tuple(names), pytest.approx((1000, 990, 995, 990)))


def test_a_locked_environment_is_the_bare_side_if_nothing_is_barer():
    venv = in_engine("venv", 900.0)
    (found,) = cross_checks((DOCKER, venv))
    assert (found.bare, found.rows[1].ratio) == ("venv", pytest.approx(995 / 900))
    (found,) = cross_checks((DOCKER, venv, HOST))
    assert found.bare == "host"
    assert [(row.engine, row.ratio) for row in found.rows] == [
        ("host", None),
        ("venv", pytest.approx(0.9)),
        ("docker", pytest.approx(0.995)),
    ]


def test_runs_with_samplers_are_compared_with_runs_with_samplers():
    path, record = in_engine("docker", 999.0, run_id="unwatched")
    unwatched = (path, record.model_copy(update={"telemetry": None}))
    assert cross_checks((HOST, unwatched)) == ()
    (found,) = cross_checks((HOST, DOCKER, unwatched))
    assert found.rows[1].runs == ("docker",)


def test_a_single_engine_and_a_program_without_a_version_make_no_report():
    assert cross_checks(()) == ()
    assert cross_checks((HOST, in_engine("host", 900.0, run_id="again"))) == ()
    assert cross_checks((DOCKER, in_engine("docker", 900.0, run_id="other", reference="other:1"))) == ()
    assert cross_checks((HOST, in_engine("docker", 1.0, said={"framework_version": None}))) == ()


def test_an_invalid_run_has_a_row_and_no_figure():
    (found,) = cross_checks((HOST, in_engine("docker", 5000.0, status="invalid")))
    bad = found.rows[1]
    assert (bad.row.throughput, bad.ratio, bad.ratio_ci95, bad.first_step_s) == (None,) * 4
    assert found.notes == ("docker, hostroot:1 invalid: made up",)
    (found,) = cross_checks((in_engine("host", 1000.0, status="invalid"), DOCKER))
    assert (found.rows[1].ratio, found.rows[1].row.throughput) == (None, pytest.approx(995))


def test_the_table_and_the_file_have_every_figure():
    (found,) = cross_checks((HOST, DOCKER))
    table = comparisons.engines(found).tables[0]
    assert comparisons.engines(found).page_block().lead == "docker, hostroot:1: 0.995 of host"
    assert table.columns == (*("engine", "ran from", "runs", "images/s ±", "÷ host ±", "first step (s)", "validity"),)
    assert table.rows == (
        ("host", HERE, "1", "1,000", "–", "8.000", "valid"),
        ("docker", "hostroot:1", "1", "995.0", "0.995", "9.000", "valid"),
    )
    bare, contained = csv.DictReader(io.StringIO(comparisons.engines(found).files()[f"{found.name}.csv"]))
    assert (bare["engine"], bare["ratio_to_host"], bare["framework"], bare["cudnn"]) == (
        *("host", "", "2.11.0+cu130", "9.10"),
    )
    assert (contained["ran_from"], contained["runs"], contained["repeats"]) == ("hostroot:1", "docker", "1")
    assert float(contained["ratio_to_host"]) == pytest.approx(0.995)


def test_records_on_file_become_reports_and_chapters_of_the_page(tmp_path):
    for run in (*RUNS, HOST, DOCKER):
        leave(tmp_path / "runs", run, table_of_samples=samples())
    report([tmp_path / "runs"], out=tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Container beside host" in page
    for name, line in (
        ("input-pytorch-2.15.0-resnet50-224px-fp32-batch64-1gpu", "| JPEGs, GPU decode, 8 loader workers |"),
        ("engines-pytorch-resnet50-224px-fp32-batch64-1gpu", "| docker | hostroot:1 |"),
    ):
        assert line in (tmp_path / "out" / f"{name}.md").read_text()
        assert (tmp_path / "out" / "report-figures" / f"{name}-throughput.png").is_file()
        assert name in page
