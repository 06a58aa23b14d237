"""Tables, Markdown and CSV.

Prevents: more digits than the interval supports; a throughput shown for a run that is invalid or failed; `±` without a word on what it is;
a table that does not fit a terminal of 80 columns; a reason with `|` or a line break in it breaking a Markdown table.

After a wanted change, `DLSCALE_GOLDEN=write make test` writes the golden files again; read the difference before committing it.
"""

from __future__ import annotations

import csv
import io

import examples
import pytest
from goldens import expected, printed
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from summaries import CPUS, GPUS, NODES, parts, row, summary, unusable

from runner.core import units
from runner.core.measurement import Interval
from runner.report import matrix
from runner.report.matrix import print_whole

GOLDEN = examples.ROOT / "tests" / "golden" / "report"


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
    path = GOLDEN / name
    assert text == expected(path, text)


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
@pytest.mark.parametrize("figure", ["throughput", "training_time_s", "speedup", "efficiency", "mfu_percent", "parts"])
def test_an_unusable_row_cannot_carry_a_figure(status, figure):
    with pytest.raises(ValidationError, match=f"a row that is {status} may carry no figures"):
        unusable(2, status, **{figure: parts() if figure == "parts" else 1.0})


def test_unusable_rows_show_their_reasons_and_nothing_else():
    found = summary(row(1), unusable(2, "failed", "rank 1 hung", "no output for 600 s"))
    assert matrix.scaling(found).rows[1] == ("2 GPUs", *("\N{EN DASH}",) * 5, "failed")
    assert matrix.notes(found) == ("2 GPUs failed: rank 1 hung; no output for 600 s",)


@pytest.mark.parametrize(("speedup", "flagged"), [(2.0, False), (2.0001, True), (1.9, False), (None, False)])
def test_speedup_above_n_is_flagged_and_never_clamped(speedup, flagged):
    fast = row(2, speedup=speedup)
    assert fast.superlinear is flagged
    assert ("superlinear" in matrix.scaling(summary(fast)).rows[0][-1]) is flagged
    assert (len(matrix.notes(summary(fast))) == 1) is flagged
    if speedup is not None:
        assert matrix.scaling(summary(fast)).rows[0][4] == f"{speedup:.3f}"


def test_the_legend_says_what_the_interval_is_over_and_the_table_of_how_many_runs():
    found = summary(row(1, repeats=3), row(2, repeats=2, throughput_ci95=None))
    legend = "± = half the width of the 95 % interval over runs, each a process started anew (Student's t); fewer than 3 runs have none"
    assert matrix.interval_legend(found) == legend
    assert [cells[:3] for cells in matrix.scaling(found).rows] == [
        ("1 GPU", "3", "100.0 ± 2.0"),
        ("2 GPUs", "2", "200.0"),
    ]
    without = "no ±: an interval is over runs, from 3 on (REPEAT=3)"
    assert matrix.interval_legend(summary(row(1, repeats=1, throughput_ci95=None))) == without
    assert matrix.interval_legend(summary(unusable(1, "failed", "x"))) == without


def test_in_running_text_a_figure_without_an_interval_says_how_many_runs_it_rests_on():
    assert units.estimate(6525.31, None, runs=1) == "6,525 (1 run)"
    assert units.estimate(6525.31, None, runs=2) == "6,525 (2 runs)"
    assert units.estimate(6525.31, Interval(low=6513.0, high=6537.0), runs=3) == "6,525 ± 12"
    assert units.estimate(None, None, runs=0) == "\N{EN DASH}"


def test_every_line_of_the_table_fits_80_columns():
    """Wide figures: six digits of throughput and a speedup with two digits before the point."""
    wide = row(
        64,
        device="cpu worker",
        throughput=118758.0,
        throughput_ci95=Interval(low=117758.0, high=119758.0),
        speedup=57.1,
        speedup_ci95=Interval(low=56.2, high=58.0),
        efficiency=0.892,
        efficiency_ci95=Interval(low=0.878, high=0.906),
    )
    text = printed(print_whole, summary(wide, record_dirs=()), width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    for figure in ("64 CPU  ", "118,758 ± 1,000", "57.10 ± 0.90", "89.2 ± 1.4", "valid"):
        assert figure in text


def test_a_link_that_is_no_real_wire_is_called_emulated_in_every_form():
    for text in (printed(print_whole, NODES, width=80), matrix.markdown(NODES), matrix.to_csv(NODES)):
        assert "emulated 1gbit" in text


def test_where_the_time_of_a_step_went_is_in_milliseconds_and_absent_where_nobody_told():
    """By hand: 5 of 100 ms waited for input, 80 computed, 5 for the slowest rank, 10 for communication; alone the exchange takes 42.1."""
    four = ("4 CPU workers", "100.0", "5.000", "80.00", "5.000", "10.00", "42.10")
    parts = matrix.parts(NODES)
    assert parts is not None
    assert parts.rows[1] == four
    assert parts.rows[0][3:] == ("95.00", "\N{EN DASH}", "\N{EN DASH}", "\N{EN DASH}")
    assert matrix.parts(GPUS) is None
    assert "exchange alone" not in matrix.markdown(GPUS)


def test_utilisation_has_a_column_where_a_peak_is_known_and_none_elsewhere():
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
    """A path cut by the terminal's width cannot be copied."""
    path = "results/" + "a-very-long-machine-name/" * 5 + "run"
    assert f"record: {path}\n" in printed(print_whole, summary(row(1), record_dirs=(path,)), width=60)


def test_markdown_survives_pipes_and_line_breaks_in_reasons():
    text = matrix.markdown(summary(unusable(1, "failed", "exit 1: a | b\nsecond line")))
    assert "- 1 GPU failed: exit 1: a \\| b second line\n" in text
    assert all(line.count("|") == 8 for line in text.splitlines() if line.startswith("|"))


def test_csv_keeps_full_precision_and_empty_fields():
    rows = list(csv.DictReader(io.StringIO(matrix.to_csv(GPUS))))
    assert [line["scale"] for line in rows] == ["1", "2", "3", "4", "8"]
    assert float(rows[1]["speedup"]) == 1.971
    assert (float(rows[1]["efficiency_ci95_low"]), float(rows[1]["efficiency_ci95_high"])) == (0.9715, 0.9995)
    assert rows[0]["speedup_ci95_low"] == ""
    assert rows[4]["throughput"] == ""
    assert rows[4]["reasons"] == "rank 5 ended with exit code 137; the kernel killed it for memory"
