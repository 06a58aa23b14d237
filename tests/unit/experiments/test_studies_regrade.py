"""Prevents: a verdict on file that its own records no longer yield, one that was edited by hand, software on file that did not run, and a
reproduction that silently outlives its runs.
"""

import json
import shutil

import pytest
import studied

from runner.commands.regrade import regrade_all
from runner.core.errors import RequestError
from runner.core.provenance import SUITE_ROOT
from runner.experiments.studies import tables
from runner.experiments.studies.reproduction import SUFFIX, judge, rejudge
from runner.experiments.studies.study import study_names
from runner.results.store import read_record, write_record

COMMITTED = sorted((SUITE_ROOT / "results").rglob(f"*{SUFFIX}"))


@pytest.fixture
def copied(tmp_path):
    """A copy of a committed reproduction with its records, which tests may change."""
    path = COMMITTED[0]
    runs = {run for cell in json.loads(path.read_text())["cells"] for run in cell["runs"]}
    for run in runs:
        shutil.copytree(path.parent / run, tmp_path / run)
    return shutil.copy(path, tmp_path / path.name)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_a_committed_study_is_rejudged_the_same(path):
    old, new = rejudge(path)
    assert new == old
    assert old.observations
    assert {cell.status for cell in old.cells} >= {"ran"}


def test_edited_figures_and_verdicts_are_restored(copied, capsys):
    regrade_all(copied.parent)
    honest = copied.read_text()
    fields = json.loads(honest)
    fields["observations"][0]["value"] *= 2
    fields["judgements"][0]["verdict"] = "holds"
    fields["cells"][0]["software"] = ["pytorch 2.15.0"]
    copied.write_text(json.dumps(fields))
    assert regrade_all(copied.parent) == 0
    said = capsys.readouterr().out
    assert f"{copied}: written again, cells, observations, judgements differed from the records" in said
    assert copied.read_text() == honest
    assert copied.with_name(copied.name.replace(SUFFIX, ".md")).exists()


def test_a_study_with_missing_runs_names_them(copied):
    run = json.loads(copied.read_text())["cells"][0]["runs"][0]
    shutil.rmtree(copied.parent / run)
    with pytest.raises(RequestError, match=f"{run}: holds no record.json"):
        rejudge(copied)


def write_study(out, name, here):
    """Write a made-up reproduction with the records of its runs."""
    study, source, found = studied.study_runs(name, here)
    made = judge(study, published=source, runs=found, machine=here, scale="small", made_at=studied.NOW)
    for run in (run for cell in found for run in cell.runs):
        (out / run.run_id).mkdir()
        write_record(out / run.run_id, run)
    path = out / f"made-up{SUFFIX}"
    path.write_text(made.model_dump_json())
    return path


@pytest.mark.parametrize("name", study_names())
def test_every_study_is_rejudged_the_same_from_its_file(tmp_path, name):
    """Facts outside the records came from the plan, which is gone: launches of whole steps were reported for the backward pass."""
    old, new = rejudge(
        write_study(tmp_path, name, studied.machine(device="gpu", devices=(4,), device_name="NVIDIA H200"))
    )
    assert new == old


def test_a_study_of_an_earlier_version_is_rejudged_by_its_records(tmp_path):
    """cern-wgan was reported with the planned PyTorch 2.15.0; its records had 2.11.0+cu130."""
    path = write_study(tmp_path, "cern-wgan", studied.machine())
    fields = json.loads(path.read_text())
    planned = [{"field": "version", "published": "1.3.0", "here": "2.15.0"}]
    for cell in fields["cells"]:
        cell["altered"] = planned
        for name in ("measured", "passes", "degraded", "doubts", "software", "images", "devices"):
            del cell[name]
    for one in fields["observations"]:
        one["altered"] = planned
        del one["degraded"]
    for one in (*fields["comparisons"], *fields["judgements"]):
        del one["doubts"]
    path.write_text(json.dumps(fields))
    for run in (run for cell in fields["cells"] for run in cell["runs"]):
        record = read_record(tmp_path / run)
        ran = record.provenance.model_copy(update={"framework": "pytorch", "framework_version": "2.11.0+cu130"})
        write_record(tmp_path / run, record.model_copy(update={"provenance": ran}))
    old, new = rejudge(path)
    assert old.observations[0].altered == ("version",)
    assert {cell.software for cell in new.cells} == {("pytorch 2.11.0+cu130",)}
    told = {one.field: (one.published, one.here) for one in new.cells[0].altered}
    assert told["version"] == ("1.3.0", "2.11.0+cu130")
    assert told["framework"] == ("tensorflow", "pytorch")
    assert "2.15.0" not in new.model_dump_json(exclude={"machine"})
    assert "2.15.0" not in tables.markdown(new)


def test_a_finding_with_a_removed_predicate_is_replaced_by_its_sources(copied):
    """A reproduction of an earlier version could no longer be read or judged."""
    fields = json.loads(copied.read_text())
    known = fields["judgements"][0]["finding"]["predicate"]
    fields["judgements"][0]["finding"]["predicate"] = {"type": "largest", "over": "gpu", "at": "v100"}
    copied.write_text(json.dumps(fields))
    old, new = rejudge(copied)
    assert old.judgements[0].finding.predicate.type == known["type"]
    assert new == old


@pytest.mark.parametrize("content", [b"{}", b"\xff"], ids=["empty", "no UTF-8"])
def test_a_file_that_is_not_a_reproduction_is_refused(tmp_path, content):
    path = tmp_path / f"x{SUFFIX}"
    path.write_bytes(content)
    with pytest.raises(RequestError, match="is no reproduction of a study") as caught:
        rejudge(path)
    assert "\n" not in str(caught.value)
