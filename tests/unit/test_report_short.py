"""The screen that `bench` ends on.

Prevents: an answer that scrolls away above tables of telemetry; a word or a path cut by the terminal's edge; `±` that reaches below zero; an
interval over which the rate doubles told as a figure; a legend of columns that are not there.
"""

from __future__ import annotations

import io

import pytest
from records import record
from rich.console import Console
from summaries import CPUS, GPUS, NODES, row, summary, unusable

from runner.core.console import open_console
from runner.core.measurement import Interval
from runner.report import matrix
from runner.report.matrix import print_short, verdict
from runner.report.publish import publish

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
def test_it_fits_80_columns_and_24_lines_and_breaks_no_word(found):
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


def test_it_has_the_figures_of_a_scaling_and_no_others():
    found = summary(row(1, mfu_percent=40.0), row(2), peak="1 × NVIDIA H200")
    assert matrix.screen(found).columns == (
        *("devices", "images/s", "training time (s)", "speedup", "efficiency (%)", "runs", "validity"),
    )
    assert "MFU" not in short(found)
    assert "±: 95 % interval over runs" in short(found)
    assert "interval over" not in short(summary(row(1, throughput_ci95=None)))


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (6525.31, 6512.9, 6537.7, "6,525 ± 12"),
        (13.2, 6.1, 306.0, "13 (6–306)"),
        (0.9, 0.41, 2.14, "0.9 (0.4–2.1)"),
        (100.0, 100.0, 100.0, "100.0 ± 0"),
        (100.0, 101.0, 103.0, "100.0 (101.0–103.0)"),  # runs of unequal length: pooled, they may lie beside
    ],
)
def test_an_interval_is_written_by_its_ends_where_it_is_lopsided(value, low, high, text):
    assert matrix.with_interval(value, Interval(low=low, high=high)) == text
    assert matrix.with_interval(value, None) == matrix.figure(value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((row(1), NOISY), "Too noisy to tell: 13 images/s on 2 GPUs, 6 to 306; close other programs or REPEAT=5."),
        ((NOISY.model_copy(update={"repeats": 5}),), "REPEAT=10"),
        ((row(1), row(2, speedup=1.9, efficiency=0.95)), "2 GPUs are 1.900 times as fast as one, efficiency 95.00 %."),
        ((row(2, speedup=1.1, speedup_ci95=Interval(low=0.9, high=1.3), efficiency=0.55),), "No speedup shown: "),
        ((row(2, speedup=None, efficiency=None, withheld="withheld: ends"),), "no speedup: withheld: ends."),
        ((row(1, throughput_ci95=None, repeats=1),), "100.0 images/s on 1 GPU; no interval from 1 run, REPEAT=3 gives one."),
        ((row(1, status="degraded", reasons=("hot", "shared")),), "; degraded: hot."),
        ((row(1), unusable(2, "failed", "rank 1 hung")), "; 2 GPUs failed: rank 1 hung."),
        ((unusable(1, "invalid", "no wire"),), "No figure: 1 GPU invalid: no wire."),
    ],
)  # fmt: skip
def test_the_verdict_is_one_sentence(rows, said):
    found = verdict(summary(*rows))
    assert said in found
    assert found.count(". ") == 0


def test_bench_ends_on_one_path_and_the_next_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAKELEVEL", raising=False)
    (tmp_path / "out").mkdir()

    def said(**more):
        console = Console(width=200, file=io.StringIO())
        run = (tmp_path / "out" / "one", record())
        publish([run], out=tmp_path / "out", name="m", console=console, **more)
        return console.file.getvalue()

    assert said().endswith("results: out/m*\nnext: dlscale report out, or the same with VERBOSE=1 (-v)\n")
    assert "record: " not in said()
    monkeypatch.setenv("MAKELEVEL", "1")
    whole = said(verbose=True)
    assert f"record: {tmp_path / 'out/one'}\nreport: {tmp_path / 'out/m.md'}\n" in whole
    assert whole.endswith("next: make report DIR=out\n")
