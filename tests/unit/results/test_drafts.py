"""Files that are written as a whole. Prevents: a file that is half there, drafts that a full disk or a killed runner leaves for ever, the draft
of somebody who is still writing removed."""

import subprocess
import sys

import pytest
from examples import ROOT

from runner.engines import owner
from runner.results.disk import draft, remove_left

DIES = """
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from runner.results.disk import draft
with draft(Path({path!r})) as own:
    own.write_text("half")
    os.kill(os.getpid(), 9)
"""


def test_a_file_is_there_when_it_is_whole_and_what_fails_leaves_the_old_one(tmp_path):
    path = tmp_path / "a.b.json"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), draft(path) as own:  # noqa: PT012 - it is what is written before that must go
        own.write_text("half")
        raise OSError("full")
    assert path.read_text() == "old"
    with draft(path) as own:
        own.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_drafts_of_killed_runners_go_and_others_stay(tmp_path):
    """Drafts that piled up in results, a file for each kill."""
    run = tmp_path / "run"
    run.mkdir()
    for path in (tmp_path / "report.md", run / "a.b.parquet"):
        done = subprocess.run([sys.executable, "-c", DIES.format(root=str(ROOT), path=str(path))])
        assert done.returncode == -9
    (run / ".hidden").touch()
    elsewhere = run / ".record.json.00000000-0000-0000-0000-000000000000.1.1.2.3"
    elsewhere.touch()
    with draft(run / "record.json") as own:
        own.write_text("half")
        assert len(list(tmp_path.rglob(".*"))) == 5
        remove_left(tmp_path)
        assert set(tmp_path.rglob(".*")) == {run / ".hidden", elsewhere, own}
        assert own.name.endswith(owner.own())
