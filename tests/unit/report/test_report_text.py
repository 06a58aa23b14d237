"""Tables, Markdown and CSV.

Prevents: more digits than the interval supports; a throughput shown for an invalid or failed run; `±` without an explanation; a table that
does not fit a terminal of 80 columns; a reason with `|` or a line break in it breaking a Markdown table.

After an intended change, `DLSCALE_GOLDEN=write make test` rewrites the golden files; read the difference before committing it.

Prevents: latencies in the wrong unit; an accuracy next to another run's fp32; a batch reduced silently; a mean of epochs that one repeat
did not reach; a table of fifty rows without its last; inference columns in the files of trainings.

The screen that `bench` ends with.

Prevents: a result that scrolls away above tables of telemetry; a word or a path cut at the terminal's edge; `±` that reaches below zero; a
figure whose interval spans a factor of two; a legend for columns that are absent.
"""

from __future__ import annotations

import io
from pathlib import Path

import examples
import pytest
from goldens import expected, printed
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from records import record
from rich.console import Console
from summaries import CPUS, GPUS, NODES, parts, row, summary, unusable

from runner.analysis.summarize import DEGRADED_BASELINE, summarize
from runner.core import units
from runner.core.console import open_console
from runner.core.measurement import (
    AccuracyFigures,
    BatchUsed,
    EpochFigures,
    GenerationFigures,
    Interval,
    LatencyFigures,
    Percentiles,
    StepTime,
)
from runner.report import matrix, modes
from runner.report.matrix import markdown, to_csv, verdict
from runner.report.page import figures as page_figures
from runner.report.publish import publish
from runner.report.terminal import print_short, print_whole
from runner.results.store import read_record

GOLDEN = examples.ROOT / "tests" / "golden" / "report"
(INFERRED,) = (examples.ROOT / "results/h200/inference").glob("20261122T195314Z-107f-*-r1")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpus-100-columns.txt", printed(print_whole, GPUS, width=100)),
        ("cpus-80-columns.txt", printed(print_whole, CPUS, width=80)),
        ("gpus.md", matrix.markdown(GPUS)),
        ("cpus.md", matrix.markdown(CPUS)),
        ("gpus.csv", matrix.to_csv(GPUS)),
        ("nodes-80-columns.txt", printed(print_whole, NODES, width=80)),
        ("nodes.md", matrix.markdown(NODES)),
        ("nodes.csv", matrix.to_csv(NODES)),
    ],
)
def test_golden(name, text):
    assert text == expected(GOLDEN / name, text)


@pytest.mark.parametrize(
    ("value", "plus_minus", "text"),
    [
        (6525.31, 12.4, "6,525 ± 12"),
        (35.214, 0.652, "35.21 ± 0.65"),
        (61.02, 1.4, "61.0 ± 1.4"),
        (1234567.0, 4321.0, "1,234,567 ± 4,321"),
        (1.98123, 0.0244, "1.981 ± 0.024"),
        (1.98123, 0.00001, "1.981 ± 0.000"),
        (35.214, None, "35.21"),
        (6525.31, None, "6,525"),
        (0.5, None, "0.500"),
        (0.0, None, "0.000"),
        (100.0, 0.0, "100.0 ± 0"),
        (None, None, "\N{EN DASH}"),
    ],
)
def test_figures_have_the_digits_that_their_interval_supports(value, plus_minus, text):
    assert units.figure(value, plus_minus) == text


@given(value=st.floats(0.001, 1e7), plus_minus=st.floats(0.001, 1e6))
def test_a_figure_is_never_off_by_more_than_half_a_last_digit_of_its_interval(value, plus_minus):
    shown, spread = (float(part.replace(",", "")) for part in units.figure(value, plus_minus).split(" ± "))
    assert abs(shown - value) <= max(0.05 * plus_minus, 0.0005) + 1e-9
    assert abs(spread - plus_minus) <= max(0.05 * plus_minus, 0.0005) + 1e-9


@pytest.mark.parametrize("status", ["invalid", "failed"])
@pytest.mark.parametrize(
    ("figure", "value"),
    [
        *((name, 1.0) for name in ("throughput", "training_time_s", "speedup", "efficiency", "mfu_percent")),
        ("parts", parts()),
        ("telemetry", read_record(INFERRED).telemetry),
    ],
)
def test_an_unusable_row_cannot_carry_a_figure(status, figure, value):
    with pytest.raises(ValidationError, match=f"a row that is {status} may carry no figures"):
        unusable(2, status, **{figure: value})


@pytest.mark.parametrize(("speedup", "flagged"), [(2.0, False), (2.0001, True), (1.9, False), (None, False)])
def test_speedup_above_n_is_flagged_and_never_clamped(speedup, flagged):
    fast = row(2, speedup=speedup)
    assert fast.superlinear is flagged
    assert ("superlinear" in matrix.scaling(summary(fast)).rows[0][-1]) is flagged
    assert (len(matrix.notes(summary(fast))) == 1) is flagged
    if speedup is not None:
        assert matrix.scaling(summary(fast)).rows[0][4] == f"{speedup:.3f}"


def test_in_prose_a_figure_without_an_interval_has_its_number_of_runs():
    assert units.estimate(6525.31, None, runs=1) == "6,525 (1 run)"
    assert units.estimate(6525.31, None, runs=2) == "6,525 (2 runs)"
    assert units.estimate(6525.31, Interval(low=6513.0, high=6537.0), runs=3) == "6,525 ± 12"
    assert units.estimate(None, None, runs=0) == "\N{EN DASH}"


@pytest.mark.parametrize(("status", "speedup"), [("valid", 57.1), ("degraded", 57.1), ("degraded", 64.1)])
def test_every_line_of_the_table_fits_80_columns_and_breaks_no_word(status, speedup):
    """Wide figures: six digits of throughput, and a speedup with two digits before the point. `superlinear` was cut in two."""
    wide = row(
        64,
        device="cpu worker",
        status=status,
        throughput=118758.0,
        throughput_ci95=Interval(low=117758.0, high=119758.0),
        speedup=speedup,
        speedup_ci95=Interval(low=speedup - 0.9, high=speedup + 0.9),
        efficiency=0.892,
        efficiency_ci95=Interval(low=0.878, high=0.906),
    )
    text = printed(print_whole, summary(wide, record_dirs=()), width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    for figure in ("64 CPU  ", "118,758 ± 1,000", f"{speedup:.2f} ± 0.90", "89.2 ± 1.4", status):
        assert figure in text
    assert text.count("superlinear") == (speedup > 64)


def test_parts_of_a_step_are_in_milliseconds_or_absent():
    """By hand: 5 of 100 ms waited for input, 80 computed, 5 for the slowest rank, 10 for communication; alone the exchange takes 42.1."""
    four = ("4 CPU workers", "100.0", "5.000", "80.00", "5.000", "10.00", "42.10")
    parts = matrix.parts(NODES)
    assert parts is not None
    assert parts.rows[1] == four
    assert parts.rows[0][3:] == ("95.00", "\N{EN DASH}", "\N{EN DASH}", "\N{EN DASH}")
    assert matrix.parts(GPUS) is None
    assert "exchange alone" not in matrix.markdown(GPUS)


def test_utilisation_has_a_column_only_if_a_peak_is_known():
    known = summary(
        row(1, mfu_percent=34.56),
        row(2, mfu_percent=None),
        peak="1 × NVIDIA H200: 66.9 TFLOP/s in fp32",
        record_dirs=(),
    )
    for text in (printed(print_whole, known, width=80), matrix.markdown(known)):
        assert "MFU" in text
        assert "34.56" in text
        assert "66.9 TFLOP/s in fp32" in text
    assert max(len(line) for line in printed(print_whole, known, width=80).splitlines()) <= 80
    assert matrix.scaling(known).columns[-2:] == ("MFU (%)", "validity")
    assert matrix.scaling(known).rows[1][-2:] == ("\N{EN DASH}", "valid")
    assert "MFU" not in matrix.markdown(GPUS) + printed(print_whole, GPUS, width=100)


def test_utilisation_above_the_peak_is_withheld_with_its_reason():
    found = summary(row(1, above_peak=True), row(2, mfu_percent=40.0), peak="a peak")
    assert matrix.scaling(found).rows[0][-2] == "\N{EN DASH}"
    (note,) = matrix.notes(found)
    assert note.startswith("1 GPU: no MFU, as the model's FLOP/s are above the peak; look first for ")


def test_a_record_path_is_never_broken():
    """A path wrapped at the terminal's width can't be copied."""
    path = "results/" + "a-very-long-machine-name/" * 5 + "run"
    assert f"record: {path}\n" in printed(print_whole, summary(row(1), record_dirs=(path,)), width=60)


def inferred(run_id, *, p50, percent, used=64):
    """A run of inference in int8; batch 64 was requested."""
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


def test_latency_and_accuracy_are_the_median_of_the_repeats():
    summary = summarize(
        [inferred(str(n), p50=p50, percent=p) for n, (p50, p) in enumerate(((0.009, 70), (0.010, 78), (0.011, 76)))]
    )
    (block,) = modes.tables(summary)
    assert dict(zip(block.columns, block.rows[0], strict=True)) == {
        "devices": "1 worker × 1 core",
        "batch": "64",
        "in flight": "1",
        "latency p50 (ms)": "10.00",
        "latency p90 (ms)": "12.00",
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


def test_of_two_accuracies_the_lower_is_shown():
    """Of two repeats the higher one passed for their median."""
    found = summarize([inferred(str(n), p50=0.01, percent=percent) for n, percent in enumerate((70, 78))])
    assert found.rows[0].answers.accuracy.percent == 70


def test_latencies_with_and_without_transfer_are_in_the_row_of_batches_in_flight():
    def run(number, milliseconds):
        whole, placed = (
            Percentiles(p50=1e-3 * ms, p90=2e-3 * ms, p99=3e-3 * ms, repeats=100) for ms in (milliseconds, 7)
        )
        latency = LatencyFigures(with_transfer=whole, without_transfer=placed)
        return run_of(examples.trial(mode="infer"), str(number), {"latency": latency, "in_flight": 4})

    summary = summarize([run(number, ms) for number, ms in enumerate((10, 30, 20))])
    (block,) = modes.tables(summary)
    assert block.columns[1:] == (
        "in flight",
        *(f"{what} {name} (ms)" for what in ("latency", "on device") for name in ("p50", "p90", "p99")),
    )
    assert block.rows[0][1:] == ("4", "20.00", "40.00", "60.00", "7.000", "14.00", "21.00")
    assert "accuracy" not in block.legend
    assert "4 batches in flight" in summary.title


def test_inference_records_without_separate_latencies_keep_their_figures():
    """In a record older than separate latencies, the steps are the latencies, and throughput is of one batch at a time."""
    summary = summarize([(INFERRED, read_record(INFERRED))])
    answers = summary.rows[0].answers
    assert (answers.in_flight, answers.latency.without_transfer) == (1, None)
    assert answers.latency.with_transfer.p50 == pytest.approx(0.03355653349996146)
    assert "one batch at a time" in summary.title


def test_generation_has_a_row_per_batch_and_a_file():
    def run(number, seconds):
        times = Percentiles(p50=seconds, p90=2 * seconds, p99=3 * seconds, repeats=100)
        rates = {"prefill_tokens_per_s": 96 / seconds, "decode_tokens_per_s": 1 / seconds}
        batches = tuple(
            GenerationFigures(batch=b, prompt_tokens=96, new_tokens=32, first_token=times, step=times, **rates)
            for b in (1, 2)
        )
        return run_of(examples.trial(mode="infer"), str(number), {"generation": batches})

    summary = summarize([run(number, seconds) for number, seconds in enumerate((0.01, 0.04, 0.02))])
    _, block = modes.tables(summary)
    assert block.columns == (
        *("devices", "batch", "prompt", "new"),
        *(f"{what} token {name} (ms)" for what in ("first", "next") for name in ("p50", "p90", "p99")),
        *("prefill (tokens/s)", "decode (tokens/s)"),
    )
    times = ("20.00", "40.00", "60.00")
    assert [row[1:] for row in block.rows] == [(b, "96", "32", *times, *times, "4,800", "50.00") for b in ("1", "2")]
    header, line, _ = modes.generation_csv(summary).splitlines()
    values = dict(zip(header.split(","), line.split(","), strict=True))
    assert (values["batch"], values["first_token_p99_s"], values["decode_tokens_per_s"]) == ("1", "0.06", "50.0")
    assert modes.generation_csv(summarize([inferred("a", p50=0.01, percent=75)])) is None


def test_a_reduced_batch_is_marked():
    (block,) = modes.tables(
        summarize([inferred("a", p50=0.01, percent=75), inferred("b", p50=0.01, percent=75, used=16)])
    )
    assert block.rows[0][1] == "16 (of 64)"


def test_epochs_are_the_median_of_repeats_up_to_the_shortest():
    summary = summarize([converged("a", 10, 20, 30), converged("b", 30, 40, loss=4.0), converged("c", 20, 60, 90)])
    (block,) = modes.tables(summary)
    assert [row[1:] for row in block.rows] == [
        ("1", "2.000", "2.000", "20.0", "2.000"),
        ("2", "2.000", "1.000", "40.0", "4.000"),
    ]
    assert "| 1 worker × 1 core | 2 | 2.000 | 1.000 | 40.0 | 4.000 |" in markdown(summary)


@pytest.mark.parametrize(("count", "lines"), [(12, 12), (13, 12), (50, 12)])
def test_a_long_curve_is_reduced_to_a_dozen_rows_with_both_ends(count, lines):
    summary = summarize([converged("a", *range(1, count + 1))])
    (block,) = modes.tables(summary)
    epochs = [int(row[1]) for row in block.rows]
    assert len(epochs) == lines
    assert (epochs[0], epochs[-1]) == (1, count)
    assert epochs == sorted(set(epochs))
    assert len(modes.epochs_csv(summary).splitlines()) == count + 1


def test_a_training_has_no_tables_or_columns_of_inference():
    summary = summarize([(Path("x"), record(trial=examples.trial()))])
    assert modes.tables(summary) == ()
    assert modes.epochs_csv(summary) is None
    assert "latency" not in to_csv(summary) + markdown(summary)


LONG = "nvcr.io/nvidia/mxnet@sha256:" + 64 * "a"
WIDE = summary(
    *(
        row(
            scale,
            device="cpu worker",
            cores=16,
            throughput=118758.0 * scale,
            throughput_ci95=Interval(low=58758.0 * scale, high=318758.0 * scale),
            speedup=57.1,
            speedup_ci95=Interval(low=26.2, high=158.0),
            efficiency=0.892,
            efficiency_ci95=Interval(low=0.478, high=1.9),
        )
        for scale in (1, 64)
    ),
    image_reference=LONG,
)
NOISY = row(2, throughput=13.2, throughput_ci95=Interval(low=6.1, high=306.0))


def short(found, width=80):
    console = open_console(width=width, file=io.StringIO())
    print_short(console, found)
    return console.file.getvalue()


@pytest.mark.parametrize("found", [GPUS, CPUS, NODES, WIDE, summary(NOISY)])
def test_the_screen_fits_80_columns_and_24_lines_and_breaks_no_word(found):
    lines = short(found).splitlines()
    assert len(lines) <= 24
    assert max(len(line.rstrip()) for line in lines if LONG not in line) <= 80
    words = " ".join(lines).split()
    assert "…" not in "".join(words)
    for said in (
        found.title,
        found.setting,
        found.ran_on,
        verdict(found),
        *matrix.screen(found).without("training time (s)").rows[-1],
    ):
        assert set(said.split()) <= set(words)


def test_a_unit_of_several_words_is_printed_whole():
    """Its header was measured on two lines and printed on one, so that others lost their ends."""
    found = summary(*(row(scale, unit="seconds of audio/s") for scale in (1, 2)))
    assert "…" not in short(found, width=60)


def test_the_screen_has_the_figures_of_a_scaling_and_no_others():
    found = summary(row(1, mfu_percent=40.0), row(2), peak="1 × NVIDIA H200")
    assert matrix.screen(found).columns == (
        *("devices", "images/s", "training time (s)", "speedup", "efficiency (%)", "runs", "validity"),
    )
    assert "MFU" not in short(found)
    assert "±: 95 % interval over runs" in short(found)
    assert "interval over" not in short(summary(row(1, throughput_ci95=None)))


@pytest.mark.parametrize(("more", "said"), [(1, False), (2, True)])
def test_training_times_of_different_work_are_named(more, said):
    """Four GPUs took 29 s beside 28 s of one, at 3.9 times its rate: both ran for 30 s, and the four trained on four times as much."""
    halved = {"world_size": 2, "processes": 2, "global_batch": 64, "strategy": "ps"}
    two = examples.trial(**halved, iterations=20 * more)
    found = summarize([(Path("one"), record(run_id="one")), (Path("two"), record(run_id="two", trial=two))])
    note = "different numbers of samples: 1 worker × 1 core 1,280, 2 workers × 1 core 2,560"
    told = short(found, width=200), shown(found), markdown(found)
    assert [note in " ".join(text.split()) for text in told] == [said] * 3
    drawn = {one.name: " ".join(one.notes) for one in page_figures.scaling(found, name="m", runs={})}
    assert [name for name, notes in drawn.items() if note in notes] == (["m-training-time"] if said else [])


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (6525.31, 6512.9, 6537.7, "6,525 ± 12"),
        (13.2, 6.1, 306.0, "13 (6–306)"),
        (0.9, 0.41, 2.14, "0.9 (0.4–2.1)"),
        (100.0, 100.0, 100.0, "100.0 ± 0"),
        (100.0, 101.0, 103.0, "100.0 (101.0–103.0)"),  # of runs of unequal length the pooled rate can lie outside
    ],
)
def test_a_lopsided_interval_is_written_by_its_ends(value, low, high, text):
    assert matrix.with_interval(value, Interval(low=low, high=high)) == text
    assert matrix.with_interval(value, None) == matrix.figure(value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((row(1), NOISY), "Too noisy to tell: 13 images/s on 2 GPUs, 6 to 306; close other programs or --repeat=5."),
        ((NOISY.model_copy(update={"repeats": 5}),), "--repeat=10"),
        ((row(1), row(2, speedup=1.9, efficiency=0.95)), "2 GPUs are 1.900 times as fast as one, efficiency 95.00 %."),
        ((row(2, speedup=1.1, speedup_ci95=Interval(low=0.9, high=1.3), efficiency=0.55),), "No speedup shown: "),
        ((row(2, speedup=None, efficiency=None, withheld="withheld: ends"),), "no speedup: withheld: ends."),
        ((row(1, throughput_ci95=None, repeats=1),), "100.0 images/s on 1 GPU; no interval from 1 run, --repeat=3 gives one."),
        ((row(1, throughput_ci95=None, repeats=1, lost=("hung",)),), "100.0 images/s on 1 GPU; 1 of 2 runs can't be used: hung."),
        ((row(1, status="degraded", reasons=("hung", "hot"), lost=("hung",)),), "1 of 4 runs can't be used: hung."),
        ((row(1, status="degraded", reasons=("hot", "shared")),), "; degraded: hot."),
        (
            (row(1, status="degraded", reasons=("hot",)), row(2, status="degraded", reasons=(DEGRADED_BASELINE,))),
            "; degraded: 1 GPU: hot.",
        ),
        ((row(1), unusable(2, "failed", "rank 1 hung")), "; 2 GPUs failed: rank 1 hung."),
        ((unusable(1, "invalid", "no wire"),), "No figure: 1 GPU invalid: no wire."),
        ((unusable(1, "failed", "it said: not with Keras 3."),), "No figure: 1 GPU failed: it said: not with Keras 3."),
    ],
)  # fmt: skip
def test_the_verdict_is_one_sentence(rows, said):
    found = verdict(summary(*rows))
    assert said in found
    assert found.count(". ") == 0
    assert not found.endswith("..")


def test_bench_ends_with_one_path_and_the_next_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAKELEVEL", raising=False)
    (tmp_path / "out").mkdir()

    def said(**more):
        console = Console(width=200, file=io.StringIO())
        run = (tmp_path / "out" / "one", record())
        publish([run], out=tmp_path / "out", name="m", console=console, **more)
        return console.file.getvalue()

    assert said().endswith("results: out/m*\nnext: dlscale report out, or this bench again with --verbose\n")
    assert "record: " not in said()
    monkeypatch.setenv("MAKELEVEL", "1")
    whole = said(verbose=True)
    assert f"record: {tmp_path / 'out/one'}\nreport: {tmp_path / 'out/m.md'}\n" in whole
    assert whole.endswith("next: make report DIR=out\n")
