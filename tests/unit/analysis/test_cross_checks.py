"""Prevents: a container's ratio to a run of another framework, CUDA, Python, machine or program; one of runs with samplers to runs without; a
ratio of what may not be used; several matrices not pooled, or other software pooled with them; a report where one engine ran.
"""

from __future__ import annotations

import csv
import io

import pytest
from records import but
from swept import leave, measured, samples

from runner.analysis.comparisons.settings import cross_checks
from runner.commands.report import report
from runner.report import comparisons

pytestmark = pytest.mark.filterwarnings("error")  # a glyph that the font lacks is a warning

SAID = {"framework_version": "2.11.0+cu130", "cuda": "13.0", "cudnn": "9.10", "nccl": "2.27.7", "python": "3.12.3"}
HERE = "torch 2.11.0+cu130 of /opt/torch/bin/python3"
REFERENCES = {"docker": "hostroot:1", "host": HERE, "venv": "pytorch 2.11.0 (virtual environment)"}


def ran(engine, rate, *, run_id=None, reference=None, said=None, hostname="here", first_step_s=9.0, **changes):
    """A run of `rate` images/s on one H200 by an engine."""
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


HOST = ran("host", 1000.0, first_step_s=8.0)
DOCKER = ran("docker", 995.0)


def test_a_container_is_held_against_the_same_software_without_one():
    (found,) = cross_checks((DOCKER, HOST))
    assert found.name == "engines-pytorch-resnet50-224px-fp32-batch64-1gpu"
    assert found.bare == "host"
    assert [row.label for row in found.rows] == [f"host, {HERE}", "docker, hostroot:1"]
    bare, contained = found.rows
    assert (bare.ratio, bare.ratio_ci95, bare.differs) == (None, None, ())
    # 995 of 1000 images a second, of one run each.
    assert contained.ratio == pytest.approx(0.995)
    assert contained.ratio_ci95 is None
    assert [row.first_step_s for row in found.rows] == [8.0, 9.0]
    assert found.notes == ()


def test_repeats_of_several_matrices_are_pooled():
    """40 steps of 64 images at 1000/s and 500/s: 5120 images in 2.56 + 5.12 s are 666.7/s; the mean of the rates would be 750."""
    again = ran("host", 500.0, run_id="again", matrix="other", first_step_s=20.0)
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
def test_other_software_or_another_machine_has_no_ratio_and_the_table_says_why(changes, name, told):
    (found,) = cross_checks((HOST, ran("docker", 995.0, **changes)))
    row = found.rows[1]
    assert (row.ratio, row.ratio_ci95, row.differs) == (None, None, (name,))
    assert row.row.throughput == pytest.approx(995)
    assert "| docker | hostroot:1 | 1 | 995.0 | not comparable |" in comparisons.engines(found).markdown()
    assert found.notes == (f"docker, hostroot:1 not comparable with host: {name} {told}",)
    assert comparisons.engines(found).page_block().lead == "not comparable"


def test_each_software_is_held_against_its_own():
    """Two versions of a framework, both in containers and beside them: two ratios, each of one version."""
    old = {"framework_version": "2.6.0", "python": "3.11.2"}
    older = ran("host", 500.0, run_id="older", reference="torch 2.6.0 of /usr/bin/python3", said=old)
    contained = ran("docker", 250.0, run_id="contained", reference="old:1", said=old)
    (found,) = cross_checks((HOST, DOCKER, older, contained))
    assert {row.reference: row.ratio for row in found.rows if row.engine == "docker"} == {
        "hostroot:1": pytest.approx(0.995),
        "old:1": pytest.approx(0.5),
    }
    # What fits neither is told by what it is nearest to: it has the older one's Python, and a CUDA of its own.
    between = ran("docker", 1.0, run_id="between", reference="odd:1", said=old | {"cuda": "12.4"})
    (found,) = cross_checks((HOST, older, between))
    assert found.rows[-1].differs == ("CUDA",)


def test_rows_of_one_engine_and_image_say_what_tells_them_apart():
    """Three bars of 4,700 images/s had one name, and the page showed their sum, 14,000."""
    newer = {"workloads_sha256": "d" * 64}
    runs = [ran(engine, 990.0, run_id=f"{engine}-newer", said=newer) for engine in ("host", "docker")]
    (found,) = cross_checks((HOST, DOCKER, *runs))
    words = [f"training programs {digit * 12}" for digit in "bd"]
    names = [f"{name}, {word}" for name in (f"host, {HERE}", "docker, hostroot:1") for word in words]
    assert [row.label for row in found.rows] == names
    assert [row[1] for row in comparisons.engines(found).tables[0].rows[2:]] == [
        f"hostroot:1, {word}" for word in words
    ]
    (series,) = comparisons.engines(found).page_block().figures[0].series
    assert (series.x, series.y) == (tuple(names), pytest.approx((1000, 990, 995, 990)))


def test_a_locked_environment_is_the_bare_side_where_nothing_is_barer():
    venv = ran("venv", 900.0)
    (found,) = cross_checks((DOCKER, venv))
    assert (found.bare, found.rows[1].ratio) == ("venv", pytest.approx(995 / 900))
    (found,) = cross_checks((DOCKER, venv, HOST))
    assert found.bare == "host"
    assert [(row.engine, row.ratio) for row in found.rows] == [
        ("host", None),
        ("venv", pytest.approx(0.9)),
        ("docker", pytest.approx(0.995)),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "vgg16"},
        {"precision": "bf16"},
        {"techniques": ("channels-last",)},
        {"threads": 2},
        {"loader_workers": 2},
    ],
    ids=str,
)
def test_another_training_is_held_against_nothing(changes):
    assert cross_checks((HOST, ran("docker", 995.0, **changes))) == ()


def test_runs_with_samplers_are_held_against_runs_with_samplers():
    path, record = ran("docker", 999.0, run_id="unwatched")
    unwatched = (path, record.model_copy(update={"telemetry": None}))
    assert cross_checks((HOST, unwatched)) == ()
    (found,) = cross_checks((HOST, DOCKER, unwatched))
    assert found.rows[1].runs == ("docker",)


def test_one_engine_alone_and_a_program_that_never_spoke_make_no_report():
    assert cross_checks(()) == ()
    assert cross_checks((HOST, ran("host", 900.0, run_id="again"))) == ()
    assert cross_checks((DOCKER, ran("docker", 900.0, run_id="other", reference="other:1"))) == ()
    assert cross_checks((HOST, ran("docker", 1.0, said={"framework_version": None}))) == ()


def test_what_may_not_be_used_has_a_line_and_no_figure():
    (found,) = cross_checks((HOST, ran("docker", 5000.0, status="invalid")))
    bad = found.rows[1]
    assert (bad.row.throughput, bad.ratio, bad.ratio_ci95, bad.first_step_s) == (None,) * 4
    assert found.notes == ("docker, hostroot:1 invalid: made up",)
    (found,) = cross_checks((ran("host", 1000.0, status="invalid"), DOCKER))
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


def test_records_on_file_become_reports_and_a_chapter_of_the_page(tmp_path):
    for run in (HOST, DOCKER):
        leave(tmp_path / "runs", run, table_of_samples=samples())
    report([tmp_path / "runs"], out=tmp_path / "out")
    name = "engines-pytorch-resnet50-224px-fp32-batch64-1gpu"
    assert "| docker | hostroot:1 |" in (tmp_path / "out" / f"{name}.md").read_text()
    assert (tmp_path / "out" / f"{name}.csv").read_text().startswith("engine,ran_from,framework,cuda,")
    assert (tmp_path / "out" / "report-figures" / f"{name}-throughput.png").is_file()
    page = (tmp_path / "out" / "report.html").read_text()
    assert name in page
    assert "Container beside host" in page
