"""Prevents: a verdict on file that its own records no longer give, one that was edited by hand, and a reproduction that outlives its runs
without a word."""

import json
import shutil

import pytest

from runner.errors import RequestError
from runner.machine.provenance import SUITE_ROOT
from runner.regrade import regrade_all
from runner.studies.again import SUFFIX, judge_again

COMMITTED = sorted((SUITE_ROOT / "results").rglob(f"*{SUFFIX}"))


@pytest.fixture
def copied(tmp_path):
    """A committed reproduction with its records, which may be changed."""
    path = COMMITTED[0]
    runs = {run for cell in json.loads(path.read_text())["cells"] for run in cell["runs"]}
    for run in runs:
        shutil.copytree(path.parent / run, tmp_path / run)
    return shutil.copy(path, tmp_path / path.name)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_a_committed_study_comes_out_the_same(path):
    old, new = judge_again(path)
    assert new == old
    assert old.observations
    assert {cell.status for cell in old.cells} >= {"ran"}


def test_an_edited_figure_and_an_edited_verdict_are_mended(copied, capsys):
    honest = copied.read_text()
    fields = json.loads(honest)
    fields["observations"][0]["value"] *= 2
    fields["judgements"][0]["verdict"] = "does not hold"
    copied.write_text(json.dumps(fields))
    assert regrade_all(copied.parent) == 0
    said = capsys.readouterr().out
    assert f"{copied}: written again, observations, judgements differed from the records" in said
    assert copied.read_text() == honest
    assert copied.with_name(copied.name.replace(SUFFIX, ".md")).exists()


def test_a_study_whose_runs_are_gone_says_which(copied):
    run = json.loads(copied.read_text())["cells"][0]["runs"][0]
    shutil.rmtree(copied.parent / run)
    with pytest.raises(RequestError, match=f"{run}: holds no record.json"):
        judge_again(copied)


@pytest.mark.parametrize("content", [b"{}", b"\xff"], ids=["empty", "no UTF-8"])
def test_a_file_that_is_none_is_refused(tmp_path, content):
    path = tmp_path / f"x{SUFFIX}"
    path.write_bytes(content)
    with pytest.raises(RequestError, match="is no reproduction of a study") as caught:
        judge_again(path)
    assert "\n" not in str(caught.value)
