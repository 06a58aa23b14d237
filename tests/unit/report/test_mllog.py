"""Prevents: a log that states what was not measured; a key used with another than its standard meaning; intervals that overlap or never end;
clocks of hosts mixed up; throughput of an unusable run; validation counted as training; a synthetic run that claims a data set; a log of a
pass under a profiler.
"""

import json
from datetime import datetime, timezone

import examples
import mllog_checker
import pytest
from commands import dlscale
from graded import leave_graded
from records import events, record

from runner.analysis.grading.measure import measure
from runner.core.events import Epoch, MonitorStart, WarmupEnd
from runner.core.trial import Dataset
from runner.report.mllog import mllog

# The time at which `records.record` collected the machine's facts; its first container began at 40 s on the runner's clock.
RECORDED_MS = 1000 * int(datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc).timestamp())


def moved(event, *, t, late):
    """The same event, written at `t` on its rank's clock and received `late` seconds later on the runner's."""
    return event.model_copy(update={"t": t, "received": t + late})


def run(*, said=None, status="valid", **changes):
    """A run on two ranks, windows of 2 iterations of 0.1 s; rank 1's clock is 1000 s ahead."""
    two = {"world_size": 2, "processes": 2, "global_batch": 64, "strategy": "kvstore", "kvstore": "dist_sync"}
    trial = examples.trial(**(two | {"iterations": 8} | changes))
    found = []
    for event in events(trial):
        late = 50.0 - 1000.0 * event.rank
        if event.event == "window":
            start = event.start + 1000.0 * event.rank
            found.append(moved(event.model_copy(update={"start": start}), t=start + event.seconds, late=late))
        else:
            found.append(moved(event, t=1000.0 * event.rank, late=late + 3))
    found += said or []
    base = record(trial=trial, status=status)
    return base.model_copy(update={"measurement": measure(found, started=40.0, unit="images/s")}), found


def lines_of(**changes):
    return mllog_checker.read(mllog(*run(**changes)))


def of(lines, key):
    return [line for line in lines if line["key"] == key]


def test_a_run_matches_lines_computed_by_hand():
    lines = lines_of()
    settings = {"seed": 1, "global_batch_size": 64, "opt_base_learning_rate": 0.05}
    assert {line["key"]: line["value"] for line in lines if line["key"] in settings} == settings
    (begin,), (end,) = of(lines, "run_start"), of(lines, "run_stop")
    # Facts collected at 40 s; the ranks' zero is 50 s on the runner's clock; four windows of 0.2 s.
    assert begin["time_ms"] == RECORDED_MS + 10_000
    assert end["time_ms"] == RECORDED_MS + 10_800
    assert end["metadata"] == {"status": "success", "validity": "valid", "reasons": []}
    assert (begin["metadata"]["model"], begin["metadata"]["strategy"]) == ("resnet18", "kvstore dist_sync")
    rates = of(lines, "tracked_stats")
    assert [(rate["value"].get("throughput"), rate["metadata"]["step"]) for rate in rates[:4]] == [
        (pytest.approx(640), step) for step in (2, 4, 6, 8)
    ]
    assert rates[4]["value"] == {"steady_throughput": pytest.approx(640)}
    assert {rate["metadata"]["unit"] for rate in rates} == {"images/s"}


def test_warm_up_is_before_the_run():
    said = {"rank": 0, "container": "w0", "event": "warmup_end", "iterations": 4}
    (stop,) = of(lines_of(said=[WarmupEnd(t=-1.0, received=49.0, **said)]), "init_stop")
    assert (stop["time_ms"], stop["metadata"]) == (RECORDED_MS + 9_000, {"warmup_iterations": 4})


def test_a_sampler_that_reports_as_rank_0_has_its_own_clock():
    sampler = MonitorStart(
        event="monitor_start", rank=0, t=9000.0, received=41.0, container="monitor", node="b", hz=10.0
    )
    assert of(lines_of(said=[sampler]), "run_start")[0]["time_ms"] == RECORDED_MS + 10_000


@pytest.mark.parametrize(("status", "said"), [("degraded", "success"), ("invalid", "aborted")])
def test_a_run_states_its_validity_and_an_unusable_one_has_no_throughput(status, said):
    lines = lines_of(status=status)
    assert bool(of(lines, "tracked_stats")) == (status == "degraded")
    assert of(lines, "run_stop")[0]["metadata"] == {"status": said, "validity": status, "reasons": ["made up"]}


DATA = Dataset(path="/data", images=100, classes=2, digest="d", validation_images=20)


def epoch(number, t):
    """An epoch of two windows, after whose validation rank 0 reports 5 of 20 correct."""
    found = {"samples": 20, "loss_sum": 30.0, "correct": 5 * number}
    return Epoch(
        event="epoch",
        rank=0,
        t=t,
        received=t + 50.0,
        container="w0",
        epoch=number,
        iterations=4,
        seconds=0.4,
        train_loss=1.5,
        validation=found,
    )


def test_epochs_match_lines_computed_by_hand():
    """Two epochs of two windows each; the second's validation ends after the last window."""
    changes = {"world_size": 1, "processes": 1, "global_batch": 32, "strategy": "single", "kvstore": None}
    converging = {"mode": "converge", "epoch_iterations": 4, "data": "/data", "dataset": DATA}
    lines = lines_of(said=[epoch(1, 0.4), epoch(2, 1.5)], **changes, **converging)
    assert (of(lines, "train_samples")[0]["value"], of(lines, "eval_samples")[0]["value"]) == (80, 20)
    at = {
        (line["key"], line["metadata"]["epoch_num"]): line["time_ms"] - RECORDED_MS - 10_000
        for line in lines
        if "epoch_num" in line["metadata"]
    }
    assert at == {
        ("epoch_start", 1): 0,
        ("epoch_stop", 1): 400,
        ("eval_start", 1): 400,
        ("eval_accuracy", 1): 400,
        ("eval_stop", 1): 400,
        ("epoch_start", 2): 400,
        ("epoch_stop", 2): 800,
        ("eval_start", 2): 800,
        ("eval_accuracy", 2): 1500,
        ("eval_stop", 2): 1500,
    }
    assert [line["value"] for line in of(lines, "eval_accuracy")] == [0.25, 0.5]
    assert of(lines, "eval_accuracy")[0]["metadata"] == {"epoch_num": 1, "train_loss": 1.5, "val_loss": 1.5}
    assert of(lines, "run_stop")[0]["time_ms"] == RECORDED_MS + 11_500


def test_real_data_without_validation_has_all_its_samples():
    lines = lines_of(data="/data", dataset=DATA)
    assert of(lines, "train_samples")[0]["value"] == 100
    assert of(lines, "eval_samples") == []


def test_synthetic_data_is_not_a_data_set_and_a_run_is_not_a_submission():
    text = mllog(*run())
    assert "train_samples" not in text
    assert "submission" not in text


def test_a_run_that_never_trained_has_no_log():
    record_, _ = run()
    assert mllog(record_, []) is None


def test_every_training_on_file_gets_a_log(tmp_path):
    leave_graded(tmp_path / "runs", "one", examples.trial())
    leave_graded(tmp_path / "runs", "two", examples.trial(mode="infer"))
    done = dlscale("report", tmp_path / "runs", "--format=mllog")
    assert done.code == 0, done.stderr
    assert "no log: two, inference" in done.stdout
    text = (tmp_path / "runs" / "one.mllog.txt").read_text()
    assert len(of(mllog_checker.read(text), "tracked_stats")) == 21
    assert not (tmp_path / "runs" / "two.mllog.txt").exists()


def test_nothing_to_log_is_one_sentence(tmp_path):
    leave_graded(tmp_path, "two", examples.trial(mode="infer"))
    done = dlscale("report", tmp_path, "--format=mllog")
    assert done.code == 2
    assert "holds no measured training" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        lambda lines: [line for line in lines if line["key"] != "run_stop"],
        lambda lines: lines[::-1],
        lambda lines: [{**line, "key": line["key"].upper()} for line in lines],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [{**line, "event_type": "POINT_IN_TIME"} for line in lines],
    ],
    ids=["no end", "backwards", "unknown keys", "twice", "no intervals"],
)
def test_the_checker_finds_each_error(wrong):
    lines = wrong(lines_of())
    with pytest.raises((AssertionError, KeyError, ValueError)):
        mllog_checker.read("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))


def test_unreadable_events_only_prevent_their_own_log(tmp_path):
    for name in ("a", "b"):
        leave_graded(tmp_path, name, examples.trial())
    (tmp_path / "a" / "events.jsonl").write_bytes(b"\xff")
    done = dlscale("report", tmp_path, "--format=mllog")
    assert (done.code, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.startswith(f"no log: {tmp_path / 'a' / 'events.jsonl'}: holds a line that is not an event (")
    assert second == f"log: {tmp_path / 'b.mllog.txt'}"
