"""Prevents: figures that can't be reproduced: a record regraded from its raw files is identical to the digit, and a changed one is repaired.

Prevents: a good record overwritten by what is left of its raw files; one run that stops all others from being regraded.
"""

import builtins
import errno
import json
import math
import shutil

import examples
import pandas as pd
import pytest
from commands import dlscale
from graded import leave_graded

from runner.analysis.grading.grade import lost_file
from runner.commands import regrade as regrading
from runner.commands.regrade import regrade, regrade_all
from runner.core.errors import RequestError
from runner.core.provenance import SUITE_ROOT
from runner.core.telemetry import Missing
from runner.results.store import read_record


@pytest.fixture
def runs(tmp_path):
    one = leave_graded(tmp_path, "one", examples.trial())
    two = examples.trial(strategy="kvstore", kvstore="dist_sync", world_size=2, processes=2, global_batch=64)
    leave_graded(tmp_path, "two", two, baseline=one, seconds=0.2)
    return tmp_path


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_regraded_record_is_identical_to_the_digit(runs, name):
    old, new = regrade(runs / name)
    assert new.model_dump_json(by_alias=True) == old.model_dump_json(by_alias=True)


@pytest.mark.parametrize(
    "directory",
    sorted(path.parent for path in (SUITE_ROOT / "results/h200").glob("**/*-profile-*/record.json")),
    ids=lambda path: path.name,
)
def test_python_3_12_computes_the_same_digits(directory, monkeypatch):
    """Python 3.12's sum() loses no last digits and 3.11's does, so that a record from one differed when the other regraded it."""
    builtin = builtins.sum

    def of_3_12(values, start=0):
        values = list(values)
        return (
            math.fsum(values)
            if start == 0 and any(isinstance(value, float) for value in values)
            else builtin(values, start)
        )

    monkeypatch.setattr(builtins, "sum", of_3_12)
    old, new = regrade(directory)
    assert new == old


def scaled(run, part, figure, *, by=2):
    """Scale a recorded figure by hand; returns the record's path and original text."""
    path = run / "record.json"
    honest = path.read_text()
    fields = json.loads(honest)
    fields[part][figure]["value"] *= by
    path.write_text(json.dumps(fields))
    return path, honest


def test_a_figure_edited_by_hand_is_found_and_repaired(runs, capsys):
    path, honest = scaled(runs / "two", "measurement", "throughput")
    assert regrade_all(runs) == 0
    said = capsys.readouterr().out
    assert "one: same" in said
    assert "two: written again, measurement differed from the raw files" in said
    assert path.read_text() == honest


def test_a_last_digit_that_another_processor_adds_up_to_is_no_difference(runs, capsys):
    path, honest = scaled(runs / "two", "measurement", "throughput", by=1 + 4e-16)
    recorded = path.read_text()
    assert recorded != honest
    assert regrade_all(runs) == 0
    assert "two: same" in capsys.readouterr().out
    assert path.read_text() == recorded


def test_runs_in_subfolders_are_regraded_against_the_baseline_next_to_them(runs, tmp_path, capsys):
    """A machine's records are in folders by topic: naming the machine's folder must be enough."""
    machine = tmp_path / "machine"
    for topic in ("wires", "batches/old"):
        shutil.copytree(runs, machine / topic, ignore=shutil.ignore_patterns("machine"))
    path, honest = scaled(machine / "batches" / "old" / "two", "scaling", "speedup")
    assert regrade_all(machine) == 0
    assert [line.removeprefix(f"{machine}/") for line in capsys.readouterr().out.splitlines()] == [
        "batches/old/one: same",
        "batches/old/two: written again, scaling differed from the raw files",
        "wires/one: same",
        "wires/two: same",
    ]
    assert path.read_text() == honest


def committed(kind):
    """A committed run of a kind: a measured one, or a pass under a profiler."""
    name = "*-profile-kernels-*" if kind == "pass" else "*-1gpu-r1"
    return min((SUITE_ROOT / "results/h200/telemetry").glob(f"{name}/record.json")).parent


def rows(cut):
    """Keeps some rows of a table."""

    def change(path):
        frame = pd.read_parquet(path)
        cut(frame).to_parquet(path)

    return change


def lines(count):
    """Drops the last `count` lines of a file."""

    def change(path):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-count]))

    return change


def gone(path):
    path.unlink()


def first_half(frame):
    return frame[: len(frame) // 2]


EVENTS, SAMPLES, KERNELS = "events.jsonl", "telemetry.parquet", "kernels.parquet"


@pytest.mark.parametrize(
    ("kind", "file", "change", "says"),
    [
        ("run", EVENTS, gone, "events.jsonl no longer holds what the record was made from"),
        ("run", EVENTS, lines(1), "(telemetry.hosts.sampler_percent: 0 of 1)"),
        ("run", EVENTS, lines(2), "(measurement.parameter_norms: 0 of 1)"),
        ("run", EVENTS, lines(40), "events.jsonl no longer holds"),
        ("run", SAMPLES, gone, "its table telemetry no longer holds"),
        ("run", SAMPLES, rows(first_half), "its table telemetry no longer holds"),
        ("run", SAMPLES, rows(lambda frame: frame[len(frame) // 2 :]), "its table telemetry no longer holds"),
        ("pass", KERNELS, gone, "its table kernels no longer holds"),
        ("pass", KERNELS, rows(first_half), "(profile.categories: "),
        ("pass", EVENTS, gone, "events.jsonl no longer holds"),
    ],
    ids=["no events", "a line", "two lines", "many lines", "no samples", "first", "last", "no rows", "half", "pass"],
)
def test_a_record_with_damaged_raw_files_is_left_unchanged(tmp_path, kind, file, change, says):
    """A run whose events were deleted became invalid, as did a pass without its kernels, and the command printed `written again`."""
    run = tmp_path / "run"
    shutil.copytree(committed(kind), run)
    before = (run / "record.json").read_bytes()
    change(run / file)
    done = dlscale("regrade", run)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{run}: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (run / "record.json").read_bytes() == before


def test_power_of_a_too_short_span_is_not_reported_as_lost():
    """Records had a power figure for a span of one second, because of a late sample; without it, 50 of 234 were refused as damaged."""
    old = read_record(committed("run"))
    gpu = old.telemetry.gpus[0].model_copy(update={"power_w": None, "energy_j": None, "integrated_power_j": None})
    fewer = Missing(node=gpu.node, device="gpu0", fields=("energy_j", "power_w"), reason="1 s were measured")
    telemetry = old.telemetry.model_copy(update={"gpus": (gpu,), "missing": (*old.telemetry.missing, fewer)})
    assert lost_file(old, old.model_copy(update={"telemetry": telemetry}), None) is None
    blind = gpu.model_copy(update={"temperature_c": None})
    worse = old.model_copy(update={"telemetry": telemetry.model_copy(update={"gpus": (blind,)})})
    assert "its table telemetry no longer holds" in lost_file(old, worse, None)


def test_a_run_without_events_is_regraded_and_a_directory_without_runs_refused(tmp_path):
    """A run that failed before its first event has no `events.jsonl`."""
    with pytest.raises(RequestError, match=r"holds no record\.json"):
        regrade_all(tmp_path)
    leave_graded(tmp_path, "one", examples.trial(), said=())
    assert not (tmp_path / "one" / "events.jsonl").exists()
    old, new = regrade(tmp_path / "one")
    assert (old, old.validity.status) == (new, "invalid")


def test_a_damaged_run_does_not_stop_the_others_from_being_regraded(runs, capsys):
    """The first damaged run ended the command, and the runs after it were never regraded."""
    for name, file, content in (
        ("damaged", "record.json", b"\xff"),
        ("deep", "record.json", b'{"a":' * 100_000),
        ("no events", "events.jsonl", b"\xff"),
    ):
        shutil.copytree(runs / "one", runs / name)
        (runs / name / file).write_bytes(content)
    shutil.copytree(runs / "two", runs / "far" / "two")
    assert regrade_all(runs) == 2
    said = capsys.readouterr()
    assert [line.removeprefix(f"{runs}/") for line in said.out.splitlines()] == ["one: same", "two: same"]
    assert [line.removeprefix(f"{runs}/").partition(": ")[0] for line in said.err.splitlines()] == [
        "damaged/record.json",
        "deep/record.json",
        "no events/events.jsonl",
        "far/two",
    ]
    assert "the baseline of its speedup can't be read" in said.err
    assert "restore it next to the run" in said.err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_an_unwritable_record_is_one_sentence(runs, capsys, monkeypatch, number):
    scaled(runs / "one", "measurement", "throughput")

    def refuse(*_):
        raise OSError(number, "no")

    monkeypatch.setattr(regrading, "write_record", refuse)
    assert regrade_all(runs) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"{runs / 'one'}: its record.json can't be rewritten (no); ")
    assert "two: " in said.out
