"""Prevents: a planned technique that does not reach the program or that changes what is learnt, and rows that do not run alternately."""

import json

import pytest

from runner.analysis.comparisons.ablation import ablations
from runner.results.find import records_under

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_each_technique_reaches_the_program_and_learns_like_the_plain_one(dlscale, sample, tmp_path):
    words = (
        *("--model=lenet", "--image-size=32", "--batch=16", "--iterations=20", "--warmup=4", "--workers=1"),
        *("--repeat=1", "--threads=1"),
    )
    ended = dlscale("ablate", *words, f"--data={sample}", out=tmp_path)
    assert ended.code == 0, ended.stderr
    (found,) = ablations(list(records_under(tmp_path)))
    assert [line.label for line in found.rows] == ["fp32, plain, batch 16", "+ channels-last", "+ fused-optimizer"]
    assert [line.row.repeats for line in found.rows] == [3, 1, 1]
    for line in found.rows[1:]:
        assert line.losses is not None
        assert line.losses.within, line.losses
    argv = [
        json.loads((tmp_path / line.runs[0] / "plan.json").read_text(encoding="utf-8"))["containers"][0]["argv"]
        for line in found.rows
    ]
    assert [[word for word in words if word.startswith("--techniques")] for words in argv] == [
        [],
        ["--techniques=channels-last"],
        ["--techniques=channels-last,fused-optimizer"],
    ]
    # The plain program and the last row start from the same weights and the same images.
    first, last = (next(iter(record.measurement.losses.values())) for record in _of(tmp_path, found))
    assert last[:4] == pytest.approx(first[:4], rel=1e-4)
    assert list(tmp_path.glob("ablation-pytorch-*.md"))


def test_tuned_tensorflow_runs_a_window_in_one_call_and_learns_like_the_plain_one(dlscale, tmp_path):
    words = (
        *("--framework=tensorflow", "--model=lenet", "--image-size=32", "--batch=4", "--iterations=8", "--warmup=2"),
        *("--workers=1", "--repeat=1", "--threads=1"),
    )
    ended = dlscale("ablate", *words, out=tmp_path)
    assert ended.code == 0, ended.stderr
    (found,) = ablations(list(records_under(tmp_path)))
    assert [line.label for line in found.rows] == ["fp32, plain, batch 4", "+ xla", "+ step-loop"]
    records = {record.run_id: record for _, record in records_under(tmp_path)}
    plain, *faster = (records[line.runs[0]].measurement for line in found.rows)
    (losses,) = plain.losses.values()
    assert len(losses) == 2 + 8
    for measurement in faster:
        (told,) = measurement.losses.values()
        assert told == pytest.approx(losses, rel=1e-5)
        assert measurement.samples == plain.samples
    lines = (tmp_path / found.rows[-1].runs[0] / "events.jsonl").read_text(encoding="utf-8").splitlines()
    windows = [event for event in map(json.loads, lines) if event["event"] == "window"]
    assert sum(window["iterations"] for window in windows) == 8
    assert all(window.get("step_seconds") is None for window in windows)


def test_tuned_mxnet_aggregates_updates_and_its_record_counts_them(dlscale, tmp_path):
    words = (
        *("--framework=mxnet", "--model=resnet18", "--image-size=32", "--batch=4", "--iterations=8", "--warmup=2"),
        *("--workers=1", "--repeat=1", "--threads=1"),
    )
    ended = dlscale("ablate", *words, out=tmp_path)
    assert ended.code == 0, ended.stderr
    (found,) = ablations(list(records_under(tmp_path)))
    assert [line.label for line in found.rows] == ["fp32, plain, batch 4", "+ aggregated-updates"]
    plain, faster = _of(tmp_path, found)
    # Of 62 weights, one call takes at most 60; the last two are updated separately.
    assert (plain.measurement.effects, faster.measurement.effects) == ({}, {"aggregated-updates": 60})
    for rank, losses in plain.measurement.losses.items():
        assert faster.measurement.losses[rank] == pytest.approx(losses, rel=1e-4)


def _of(out, found):
    """Records of the first row's first run and of the last row's run."""
    by_id = {record.run_id: record for _, record in records_under(out)}
    plain = [by_id[run] for run in found.rows[0].runs if by_id[run].trial.seed == 1]
    return plain[0], by_id[found.rows[-1].runs[0]]
