"""Figures that can't be had again: a record regraded from its raw files is the same to the digit, and a changed one is mended."""

import builtins
import json
import math
import shutil

import examples
import pytest
from records import events, record

from runner.cli import main
from runner.grading.grade import grade, scaling
from runner.machine.provenance import SUITE_ROOT
from runner.regrade import regrade, regrade_all
from runner.results import RunPlan, RunWriter
from runner.workload import choose_workload, load_workloads


def leave(out, run_id, trial, baseline=None, seconds=0.123456789):
    """A run directory as `bench` leaves it."""
    base = record(run_id=run_id, trial=trial)
    writer = RunWriter(out / run_id)
    writer.create(RunPlan(run_id=run_id, trial=trial, containers=(), command_lines=()))
    said = events(trial, seconds=seconds)
    for event in said:
        writer.event(event)
    workload = choose_workload(load_workloads(SUITE_ROOT), None)
    graded = grade(trial=trial, outcome=base.outcome, events=said, provenance=base.provenance, workload=workload)
    found = base.model_copy(
        update={
            "outcome": graded.outcome,
            "measurement": graded.measurement,
            "transport": graded.transport,
            "validity": graded.validity,
            "scaling": scaling(trial, run_id, graded, baseline),
        }
    )
    writer.finish(found)
    return found


@pytest.fixture
def runs(tmp_path):
    one = leave(tmp_path, "one", examples.trial())
    two = examples.trial(strategy="kvstore", kvstore="dist_sync", world_size=2, processes=2, global_batch=64)
    leave(tmp_path, "two", two, baseline=one, seconds=0.2)
    return tmp_path


@pytest.mark.parametrize("name", ["one", "two"])
def test_the_same_to_the_digit(runs, name):
    old, new = regrade(runs / name)
    assert new == old
    assert new.model_dump_json(by_alias=True) == old.model_dump_json(by_alias=True)


@pytest.mark.parametrize(
    "directory",
    sorted(path.parent for path in (SUITE_ROOT / "results/h200").glob("**/*-profile-*/record.json")),
    ids=lambda path: path.name,
)
def test_another_python_comes_to_the_same_digits(directory, monkeypatch):
    """Python 3.12's sum() loses no last digits and 3.11's does, so that a record from one differed from what the other made of it."""
    builtin = builtins.sum
    old, new = regrade(directory)
    assert new == old

    def of_3_12(values, start=0):
        values = list(values)
        return (
            math.fsum(values)
            if start == 0 and any(isinstance(value, float) for value in values)
            else builtin(values, start)
        )

    monkeypatch.setattr(builtins, "sum", of_3_12)
    assert regrade(directory)[1] == old


def test_a_figure_edited_by_hand_is_found_and_mended(runs, capsys, monkeypatch):
    path = runs / "two" / "record.json"
    honest = path.read_text()
    fields = json.loads(honest)
    fields["measurement"]["throughput"]["value"] *= 2
    path.write_text(json.dumps(fields))
    monkeypatch.setattr("sys.argv", ["dlscale", "regrade", str(runs)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "one: same" in said
    assert "two: written again, measurement differed from the raw files" in said
    assert path.read_text() == honest


def test_runs_in_folders_are_mended_each_against_the_baseline_beside_it(runs, tmp_path, capsys):
    """A machine's records lie in folders by topic: its own name must be enough."""
    machine = tmp_path / "machine"
    for topic in ("wires", "batches/old"):
        shutil.copytree(runs, machine / topic, ignore=shutil.ignore_patterns("machine"))
    path = machine / "batches" / "old" / "two" / "record.json"
    honest = path.read_text()
    fields = json.loads(honest)
    fields["scaling"]["speedup"]["value"] *= 2
    path.write_text(json.dumps(fields))
    assert regrade_all(machine) == 0
    assert [line.removeprefix(f"{machine}/") for line in capsys.readouterr().out.splitlines()] == [
        "batches/old/one: same",
        "batches/old/two: written again, scaling differed from the raw files",
        "wires/one: same",
        "wires/two: same",
    ]
    assert path.read_text() == honest


def test_a_directory_without_records_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["dlscale", "regrade", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "holds no record.json" in capsys.readouterr().err
