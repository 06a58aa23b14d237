"""A study in words, on a terminal and as Markdown.

Prevents: a figure without its unit or its interval; a verdict whose reason is not shown; a reason said once for every run instead of
once; a run that was not come to and looks as if it had been; a bar in a text that breaks a table in two.
"""

import io
from datetime import datetime, timezone
from decimal import Decimal

from made_up_study import cpu_machine
from rich.console import Console

from runner.grading.model import Interval
from runner.published.findings import Finding
from runner.published.model import Conditions
from runner.studies import show, words
from runner.studies.model import (
    Altered,
    CellOutcome,
    Comparison,
    Judgement,
    Observation,
    Reproduction,
)

WHERE = Conditions(framework="mxnet", model="googlenet", gpus=1)
FINDING = Finding.model_validate(
    {
        "id": "rises",
        "says": "more GPUs | more speed",
        "basis": "stated",
        "where": "sec. 1",
        "predicate": {"type": "monotonic", "metric": "throughput", "over": "gpus", "direction": "increasing"},
    }
)
RATE = Observation(
    metric="throughput",
    unit="images/s",
    value=234.56,
    ci95=Interval(low=230.0, high=240.0),
    where=WHERE,
    device="cpu",
    device_name="Example CPU",
    repeats=3,
    runs=("run-1",),
)


def comparison(**changes):
    values = {
        "figure": "googlenet.1",
        "metric": "throughput",
        "unit": "images/s",
        "where": "Figure 3",
        "conditions": WHERE,
        "published": Decimal(220),
        "measured": RATE,
        "ratio": 1.066,
        "ratio_ci95": Interval(low=1.045, high=1.091),
        "verdict": "reproduced",
    }
    return Comparison.model_validate(values | changes)


def made(**changes):
    values = {
        "study": "made-up",
        "source": "somebody",
        "title": "Made up",
        "scale": "small",
        "machine": cpu_machine(),
        "made_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
        "git": "c" * 40,
        "cells": (
            CellOutcome(id="one", block="b", where=WHERE, status="ran", runs=("run-1", "run-2")),
            CellOutcome(id="two", block="b", where=WHERE, status="open"),
            CellOutcome(id="three", block="b", where=WHERE, status="skipped", why="4 GPUs, here are 2 CPU cores"),
            CellOutcome(id="four", block="b", where=WHERE, status="skipped", why="4 GPUs, here are 2 CPU cores"),
            CellOutcome(id="five", block="b", where=WHERE, status="failed", why="a rank died"),
        ),
        "observations": (RATE,),
        "comparisons": (comparison(),),
        "judgements": (Judgement(finding=FINDING, verdict="holds", why="1, 2: 10, 20 images/s"),),
    }
    return Reproduction.model_validate(values | changes)


def test_published_stands_beside_measured_with_interval_and_verdict():
    assert words.figures(made()) == [
        ("googlenet.1", "Figure 3", "220 images/s", "235 ± 5 images/s", "3", "1.07 ± 0.023", "reproduced")
    ]


def test_what_can_not_be_compared_names_the_fields_and_what_was_not_measured_says_why():
    other = made(
        comparisons=(
            comparison(
                verdict="not comparable",
                fields=("gpu (P100 there, Example CPU here)", "version (0.7.0 there, 1.9.1 here)"),
            ),
            comparison(verdict="not measured", measured=None, ratio=None, ratio_ci95=None, why="no NVIDIA device"),
            comparison(published=None, verdict="not comparable", fields=("several values there",)),
            comparison(bound="<", approx=False, ratio_ci95=None),
            comparison(approx=True),
        )
    )
    rows = words.figures(other)
    assert rows[0][-1] == "not comparable: gpu (P100 there, Example CPU here); version (0.7.0 there, 1.9.1 here)"
    assert rows[1][3:] == (words.ABSENT, words.ABSENT, words.ABSENT, "not measured: no NVIDIA device")
    assert [row[2] for row in rows[2:]] == ["several values", "< 220 images/s", "about 220 images/s"]
    assert rows[3][5] == "1.07"


def test_runs_are_listed_with_their_throughput_but_those_that_can_not_be():
    assert words.runs(made()) == [
        ("one", "3", "235 ± 5 images/s", "ran"),
        ("two", words.ABSENT, words.ABSENT, "open"),
        ("five", words.ABSENT, words.ABSENT, "failed: a rank died"),
    ]


def test_each_reason_and_each_change_is_said_once():
    changed = (
        Altered(field="iterations", published="1 epoch", here="4 iterations"),
        Altered(field="image_size", published="224", here="32"),
    )
    cells = [
        cell.model_copy(update={"altered": changed, "id": f"{cell.id}-{number}"})
        for number in (1, 2)
        for cell in made().cells
    ]
    assert words.reasons(cells) == [
        "4 GPUs, here are 2 CPU cores: three-1, four-1, three-2, four-2",
        "a rank died: five-1, five-2",
    ]
    assert words.changes(cells) == ["1 epoch → 4 iterations: b", "image size 224 → 32: b"]


def test_the_verdicts_are_counted():
    other = made()
    assert words.counted(other.judgements, other.comparisons) == (
        "1 of 1 findings hold, 0 do not, 0 can't be tested here; figures: 1 reproduced"
    )


def test_markdown_has_every_table_and_no_broken_row():
    text = show.markdown(made(notes=("a note",)))
    assert text.startswith("# Made up\n")
    assert (
        "Study `made-up`, small, on here: Example CPU, 2 CPU cores in place of GPUs, 2026-01-02, commit cccccccccccc"
        in text
    )
    assert "| more GPUs \\| more speed | holds | 1, 2: 10, 20 images/s |" in text
    assert "- 4 GPUs, here are 2 CPU cores: three, four" in text
    assert "- a note" in text
    assert text.endswith("\n")


def test_a_terminal_gets_the_same():
    console = Console(file=io.StringIO(), width=200)
    show.print_reproduction(console, made())
    printed = console.file.getvalue()
    for row in (*words.figures(made()), *words.findings(made()), *words.runs(made())):
        assert all(cell in printed for cell in row)
