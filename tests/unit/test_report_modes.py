"""Prevents: latencies in the wrong unit, an accuracy beside another one's fp32, a batch that was reduced without a word, a mean of epochs
that one repeat did not make, a table of fifty lines without its last one, and columns in the files of ordinary trainings."""

from __future__ import annotations

import io
from pathlib import Path

import examples
import pytest
from records import record
from rich.console import Console

from runner.analysis.summarize import summarize
from runner.core.measurement import AccuracyFigures, BatchUsed, EpochFigures, LatencyFigures, Percentiles, StepTime
from runner.report import matrix
from runner.report.matrix import markdown, print_whole, to_csv
from runner.results.store import read_record

ROOT = Path(__file__).parents[2]


def inferred(run_id, *, p50, percent, used=64):
    """A run of inference in int8, asked for at a batch of 64."""
    answers = {"precision": "int8", "samples": 200, "percent": percent, "fit_iterations": 40}
    accuracy = AccuracyFigures(**answers, reference="fp32", reference_percent=80.0, agree_percent=95.0)
    update = {
        "step_time_s": StepTime(p50=p50, p90=0.012, p99=0.02, method="latency"),
        "accuracy": accuracy,
        "batch": BatchUsed(asked=64, used=used, reason=None if used == 64 else "64 samples take 9 GiB"),
    }
    return run_of(examples.trial(mode="infer", precision="int8"), run_id, update)


def run_of(trial, run_id, update):
    base = record(run_id=run_id, trial=trial)
    return Path(run_id), base.model_copy(update={"measurement": base.measurement.model_copy(update=update)})


def curve(*accuracies, loss=2.0):
    same = {"iterations": 5, "train_loss": loss, "validation_samples": 50, "seconds": 2.0}
    return tuple(
        EpochFigures(epoch=number, val_loss=loss / number, accuracy_percent=accuracy, elapsed_s=2.0 * number, **same)
        for number, accuracy in enumerate(accuracies, start=1)
    )


def converged(run_id, *accuracies, **changes):
    trial = examples.trial(mode="converge", epoch_iterations=5)
    return run_of(trial, run_id, {"epochs": curve(*accuracies, **changes)})


def shown(summary):
    out = io.StringIO()
    print_whole(Console(file=out, width=100), summary)
    return out.getvalue()


def test_latency_and_accuracy_are_those_of_the_repeat_in_the_middle():
    summary = summarize(
        [inferred(str(n), p50=p50, percent=p) for n, (p50, p) in enumerate(((0.009, 70), (0.010, 78), (0.011, 76)))]
    )
    (block,) = matrix.modes(summary)
    assert dict(zip(block.columns, block.rows[0], strict=True)) == {
        "devices": "1 worker × 1 core",
        "batch": "64",
        "in flight": "1",
        "latency p50 (ms)": "10.00",
        "latency p90 (ms)": "12.00",
        "latency p99 (ms)": "20.00",
        "accuracy (%)": "76.0",
        "in fp32 (%)": "80.0",
        "difference (points)": "-4.0",
        "same (%)": "95.0",
    }
    assert "predictions that are those of fp32" in block.legend
    assert "10.00" in shown(summary)
    assert "-4.0" in shown(summary)
    header, line = to_csv(summary).splitlines()
    values = dict(zip(header.split(","), line.split(","), strict=True))
    names = ("in_flight", "latency_with_transfer_p50_s", "accuracy_percent", "reference_accuracy_percent")
    assert [values[name] for name in names] == ["1", "0.01", "76.0", "80.0"]
    assert values["latency_without_transfer_p50_s"] == ""
    assert "one batch at a time" in summary.title


def test_latency_with_transfer_and_without_stand_beside_the_batches_in_flight():
    def run(number, milliseconds):
        whole, placed = (
            Percentiles(p50=1e-3 * ms, p90=2e-3 * ms, p99=3e-3 * ms, repeats=100) for ms in (milliseconds, 7)
        )
        latency = LatencyFigures(with_transfer=whole, without_transfer=placed)
        return run_of(examples.trial(mode="infer"), str(number), {"latency": latency, "in_flight": 4})

    summary = summarize([run(number, ms) for number, ms in enumerate((10, 30, 20))])
    (block,) = matrix.modes(summary)
    assert block.columns[1:] == (
        "in flight",
        *(f"{what} {name} (ms)" for what in ("latency", "on device") for name in ("p50", "p90", "p99")),
    )
    assert block.rows[0][1:] == ("4", "20.00", "40.00", "60.00", "7.000", "14.00", "21.00")
    assert "accuracy" not in block.legend
    assert "4 batches in flight" in summary.title


def test_inference_that_waited_for_each_batch_says_what_it_said():
    """A record of before latencies were told apart: its steps are they, and its throughput is of one batch at a time."""
    (path,) = (ROOT / "results/h200/inference").glob("20261122T195314Z-107f-*-r1")
    summary = summarize([(path, read_record(path))])
    answers = summary.rows[0].answers
    assert (answers.in_flight, answers.latency.without_transfer) == (1, None)
    assert answers.latency.with_transfer.p50 == pytest.approx(0.03355653349996146)
    assert "one batch at a time" in summary.title


def test_a_batch_that_was_made_smaller_says_so():
    (block,) = matrix.modes(
        summarize([inferred("a", p50=0.01, percent=75), inferred("b", p50=0.01, percent=75, used=16)])
    )
    assert block.rows[0][1] == "16 (of 64)"


def test_epochs_are_the_median_of_repeats_as_far_as_all_of_them_went():
    summary = summarize([converged("a", 10, 20, 30), converged("b", 30, 40, loss=4.0), converged("c", 20, 60, 90)])
    (block,) = matrix.modes(summary)
    assert [row[1:] for row in block.rows] == [
        ("1", "2.000", "2.000", "20.0", "2.000"),
        ("2", "2.000", "1.000", "40.0", "4.000"),
    ]
    assert "| 1 worker × 1 core | 2 | 2.000 | 1.000 | 40.0 | 4.000 |" in markdown(summary)


@pytest.mark.parametrize(("count", "lines"), [(12, 12), (13, 12), (50, 12)])
def test_a_long_curve_is_told_in_a_dozen_lines_with_both_ends(count, lines):
    summary = summarize([converged("a", *range(1, count + 1))])
    (block,) = matrix.modes(summary)
    epochs = [int(row[1]) for row in block.rows]
    assert len(epochs) == lines
    assert (epochs[0], epochs[-1]) == (1, count)
    assert epochs == sorted(set(epochs))
    assert len(matrix.epochs_csv(summary).splitlines()) == count + 1


def test_an_ordinary_training_has_neither_tables_nor_columns():
    summary = summarize([(Path("x"), record(trial=examples.trial()))])
    assert matrix.modes(summary) == ()
    assert matrix.epochs_csv(summary) is None
    assert "latency" not in to_csv(summary) + markdown(summary)
