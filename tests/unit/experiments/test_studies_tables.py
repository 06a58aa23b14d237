"""A study on a terminal and as Markdown.

Prevents: a figure without its unit, its interval or its number of runs; a verdict without its reason; a reason repeated for every run; a run
that did not start but looks as if it had run; software listed that did not run; a bar in a text that breaks a table in two.
"""

import io
import re
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console
from studied import cpu_machine

from runner.core.measurement import Interval
from runner.core.units import ABSENT
from runner.experiments.studies import tables
from runner.experiments.studies.model import Altered, CellOutcome, Comparison, Judgement, Observation, Reproduction
from runner.results.published.findings import Finding
from runner.results.published.model import Conditions

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
    repeats=2,
    degraded=1,
    runs=("run-1", "run-2"),
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
            CellOutcome(
                id="one",
                block="b",
                where=WHERE,
                status="ran",
                runs=("run-1", "run-2", "run-3"),
                measured=2,
                passes=1,
                degraded=1,
                doubts=("it never settled",),
                software=("mxnet 1.9.1", "mxnet 1.9.0"),
                images=("dlscale/mxnet:1.9.1",),
                devices=("Example CPU, 2 cores",),
            ),
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


def test_published_and_measured_figures_have_interval_and_verdict():
    assert tables.figures(made()).rows == (
        (
            "googlenet.1",
            "Figure 3",
            "220 images/s",
            "234.6 ± 5.0 images/s",
            "2, 1 degraded",
            "1.066 ± 0.023",
            "reproduced",
        ),
    )


def test_doubts_are_listed_before_differences():
    doubted = comparison(verdict="indicated", doubts=("degraded runs", "2 runs"), fields=("image_size",))
    assert tables.figures(made(comparisons=(doubted,))).rows[0][-1] == "indicated: degraded runs; 2 runs; image size"
    judgement = Judgement(finding=FINDING, verdict="not indicated", why="1, 2", runs=("a", "b"), doubts=("1 run",))
    assert tables.findings(made(judgements=(judgement,))).rows == (
        ("more GPUs | more speed", "not indicated: 1 run", "2", "1, 2"),
    )


def test_incomparable_figures_name_the_fields_and_missing_ones_the_reason():
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
    rows = tables.figures(other).rows
    assert rows[0][-1] == "not comparable: gpu (P100 there, Example CPU here); version (0.7.0 there, 1.9.1 here)"
    assert rows[1][3:] == (ABSENT, ABSENT, ABSENT, "not measured: no NVIDIA device")
    assert [row[2] for row in rows[2:]] == ["several values", "< 220 images/s", "about 220 images/s"]
    assert rows[3][5] == "1.066"


def test_runs_are_listed_with_their_software_except_impossible_ones():
    """All software is listed if the runs of a cell differ in it."""
    nothing = (ABSENT,) * 4
    assert list(tables.runs(made()).rows) == [
        (
            "one",
            "234.6 ± 5.0 images/s",
            "2 and 1 pass",
            "mxnet 1.9.1 and mxnet 1.9.0",
            "dlscale/mxnet:1.9.1",
            "ran: 1 degraded (it never settled)",
        ),
        ("two", *nothing, "open"),
        ("five", *nothing, "failed: a rank died"),
    ]


def test_each_reason_and_each_difference_is_listed_once():
    changed = (
        Altered(field="iterations", published="1 epoch", here="4 iterations"),
        Altered(field="image_size", published="224", here="32"),
    )
    cells = [
        cell.model_copy(update={"altered": changed, "id": f"{cell.id}-{number}"})
        for number in (1, 2)
        for cell in made().cells
    ]
    assert tables.reasons(cells) == [
        "4 GPUs, here are 2 CPU cores: three-1, four-1, three-2, four-2",
        "a rank died: five-1, five-2",
    ]
    assert list(tables.differences(cells).rows) == [
        ("iterations", "1 epoch", "4 iterations", "b"),
        ("image size", "224", "32", "b"),
    ]


def test_a_difference_of_several_cells_is_one_row_per_block():
    def cell(id_, here):
        altered = (Altered(field="batch", published="not stated", here=here),)
        return CellOutcome(id=id_, block=id_[0], where=WHERE, status="ran", altered=altered)

    cells = [cell("a1", "16"), cell("a2", "64"), cell("b1", "8"), cell("c1", "8")]
    rows = [("batch", "not stated", "16, 64", "a"), ("batch", "not stated", "8", "b, c")]
    assert list(tables.differences(cells).rows) == rows


def test_markdown_has_every_table_and_no_broken_row():
    text = tables.markdown(made(notes=("a note",)))
    assert text.startswith("# Made up\n")
    assert (
        "Study `made-up`, small, on here: Example CPU, 2 cores in place of GPUs, 2026-01-02, commit cccccccccccc"
        in text
    )
    assert "| more GPUs \\| more speed | holds | – | 1, 2: 10, 20 images/s |" in text
    assert "- 4 GPUs, here are 2 CPU cores: three, four" in text
    assert "- a note" in text
    assert text.endswith("\n")


def test_measured_quantities_without_a_printed_figure_have_their_own_table():
    assert "## Also measured" not in tables.markdown(made())
    of = Conditions(model="a", gpus=1)
    warm = RATE.model_copy(update={"metric": "temperature_max", "unit": "°C", "value": 61.5, "ci95": None, "where": of})
    text = tables.markdown(made(observations=(warm,)))
    assert "## Also measured" in text
    assert "| temperature max | model a, gpus 1 | 61.5" in text


def test_flop_by_counters_and_the_suites_count_are_shown_if_findings_use_them():
    counted = [
        RATE.model_copy(update={"metric": name, "unit": "x", "value": value, "ci95": None})
        for name, value in (("average_flop_count", 5e7), ("average_flop_count_of_model", 6e7))
    ]
    assert "## Also measured" not in tables.markdown(made(observations=counted))
    predicate = FINDING.predicate.model_copy(update={"metric": "average_flop_count"})
    about = made().judgements[0].model_copy(update={"finding": FINDING.model_copy(update={"predicate": predicate})})
    text = tables.markdown(made(observations=counted, judgements=(about,)))
    assert "| average flop count |" in text
    assert "| average flop count of model |" in text


@pytest.mark.parametrize(
    ("bound", "limit"),
    [
        ({"op": ">=", "value": 80, "unit": "%"}, "at least 80 %"),
        ({"op": "in", "value": [35, 55.5], "unit": "%"}, "between 35 and 55.5 %"),
        ({"op": "<", "value": 0.065536, "unit": "MB"}, "less than 0.065536 MB"),
    ],
)
def test_a_limit_that_the_source_left_open_is_told_beside_what_it_says(bound, limit):
    """`takes almost 100 %` was not indicated at 83 %, and nobody read that the limit was 90 %, nor whose it was."""
    ours = {"type": "bound", "metric": "throughput", "limit_by": "project"} | bound
    for predicate, told in (
        (ours, True),
        ({"type": "all", "of": [ours]}, True),
        (ours | {"limit_by": "source"}, False),
    ):
        finding = Finding.model_validate(FINDING.model_dump() | {"predicate": predicate})
        about = made().judgements[0].model_copy(update={"finding": finding})
        sentence = f"(judged by a limit of this project: {limit})"
        assert (sentence in tables.markdown(made(judgements=(about,)))) is told


def test_a_finding_that_its_source_does_not_state_says_so():
    """Ratios of a source's figures stood among its conclusions."""
    for basis, told in (
        ("stated", "speed |"),
        ("table", "speed |"),
        ("computed", "speed (computed from its figures) |"),
    ):
        about = made().judgements[0].model_copy(update={"finding": FINDING.model_copy(update={"basis": basis})})
        assert told in tables.markdown(made(judgements=(about,)))


def test_a_terminal_shows_measured_and_judged_rows_and_counts_the_rest():
    bare = comparison(figure="googlenet.16", measured=None, ratio=None, ratio_ci95=None, verdict="not measured")
    untold = Judgement(
        finding=FINDING.model_copy(update={"says": "nobody knows"}), verdict="not testable here", why="no"
    )
    other = made(comparisons=(comparison(), bare), judgements=(*made().judgements, untold))
    console = Console(file=io.StringIO(), width=80)
    tables.print_reproduction(console, other, whole=Path("x.md"))
    printed = console.file.getvalue()
    lines = [re.split(r" {2,}", line.strip()) for line in printed.splitlines()]
    assert ["googlenet.1", "220 images/s", "234.6 ± 5.0", "1.066", "reproduced"] in lines
    assert ["holds", "more GPUs | more speed"] in lines
    assert ["five", "–", "–", "failed: a rank died"] in lines
    assert "googlenet.16" not in printed
    assert "nobody knows" not in printed
    assert " ".join(printed.split()).endswith(
        "not shown: figures that nothing was measured for 1, findings that can't be tested here 1, runs that this hardware can't do 2, "
        "differences from the source 0; these and the reasons are in x.md"
    )
    assert max(map(len, printed.splitlines())) <= 80
