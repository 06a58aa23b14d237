"""The page's figures as files.

Prevents: a CSV from which the figure can't be drawn again; a PNG that fails for a shape of figure, or differs each time.

The text of a figure for screen readers.

Prevents: a summary that omits a value of the figure, an interval, or that a curve is published by others; one that reads out three hundred
points of a curve over time.

The page as Markdown, for a code host.

Prevents: a kernel's template arguments that a browser takes for a tag; a cell that ends its table; an unreadable chapter of hundreds of
blocks; a block that shows another's files; a left-aligned column of figures; a figure that the page has and the Markdown lacks.
"""

from __future__ import annotations

import csv
import io
import struct

import examples
import pages
import pytest
import records
from pydantic import ValidationError

from runner.report import picture
from runner.report.page.collect import Collected
from runner.report.page.markdown import MOST_BLOCKS, MOST_ROWS, MOST_RUNS, markdown
from runner.report.page.model import Block, Figure, Series, prose, to_csv
from runner.report.publish import Measured
from runner.report.table import Table
from runner.results.store import read_record

MEASURED = Series(
    name="measured",
    x=(1.0, 2.0, 16.0),
    y=(1.0, 1.9, None),
    low=(None, 1.8, None),
    high=(None, 2.1, None),
    degraded=(False, True, False),
    runs=(("a",), ("b", "c"), ()),
)
IDEAL = Series(name="ideal", kind="ideal", x=(1.0, 16.0), y=(1.0, 16.0))
THEIRS = Series(name="measured", kind="published", x=(2.0,), y=(1.8,))
LINES = Figure(
    name="f", title="T", x="devices", y="speedup", series=(MEASURED, THEIRS, IDEAL), log=True, interval="95 %"
)
NAMED = MEASURED.model_copy(update={"x": ("one", "two, emulated 1gbit", "three")})
NEEDED = Series(name="needed", kind="ideal", x=("one",), y=(1.5,))
BARS = LINES.model_copy(update={"shape": "bars", "series": (NAMED,), "log": False})
LYING = LINES.model_copy(update={"shape": "lying", "series": (NAMED, NEEDED), "log": False})
OVER_TIME = LINES.model_copy(
    update={
        "log": False,
        "shade": ((0.0, 50.0),),
        "series": (Series(name="GPU 0", x=tuple(map(float, range(100))), y=(1.0,) * 50 + (None,) + (2.0,) * 49),),
    }
)


def test_a_csv_has_every_point_with_its_runs():
    head, *rows = csv.reader(io.StringIO(to_csv(LINES)))
    assert head == ["series", "kind", "x: devices", "y: speedup", "ci95_low", "ci95_high", "degraded", "runs"]
    assert rows[:4] == [
        ["measured", "measured", "1.0", "1.0", "", "", "", "a"],
        ["measured", "measured", "2.0", "1.9", "1.8", "2.1", "yes", "b c"],
        ["measured", "measured", "16.0", "", "", "", "", ""],
        ["measured", "published", "2.0", "1.8", "", "", "", ""],
    ]
    assert len(rows) == 6


@pytest.mark.parametrize("figure", [LINES, BARS, LYING, OVER_TIME], ids=["lines", "bars", "lying", "over time"])
def test_every_shape_of_figure_is_drawn_reproducibly(figure):
    png = picture.png(figure)
    assert struct.unpack(">II", png[16:24])[0] == (1680 if len(figure.series) > 1 else 1280)
    assert picture.to_png(picture.draw(figure)) == png


def test_a_picture_is_redrawn_only_for_other_values_or_another_version(monkeypatch, tmp_path):
    """After any change of the suite a report drew hundreds of pictures again, even if the change did not affect drawing."""
    monkeypatch.setenv("DLSCALE_CACHE", str(tmp_path))
    drawn, draw = [], picture.draw
    monkeypatch.setattr(picture, "draw", lambda *panels, **how: drawn.append(panels) or draw(*panels, **how))
    other = LINES.model_copy(update={"series": (THEIRS,)})
    assert picture.png(LINES) == picture.png(LINES) != picture.png(other)
    assert drawn == [(LINES,), (other,)]
    monkeypatch.setattr(picture, "_versions", lambda: "another")
    picture.png(LINES)
    assert len(drawn) == 3


def test_two_marks_across_a_bar_differ_and_do_not_cross_its_label():
    """Two entries of a legend shared one mark, and the second line crossed the bar's value."""
    sent = Series(name="sent", x=("one",), y=(1.0,), labels=("1.000",))
    tree, ring = (
        Series(name=name, kind="ideal", x=("one",), y=(value,)) for name, value in (("tree", 0.9), ("ring", 1.5))
    )
    (axes,) = picture.draw(LYING.model_copy(update={"series": (sent, tree, ring)})).axes
    solid, dashed = axes.collections
    assert solid.get_linestyle() != dashed.get_linestyle()
    assert solid.get_color().tolist() != dashed.get_color().tolist()
    (label,) = axes.texts
    assert label.xy[0] == 1.5


def figure(*series, **changes):
    return Figure.model_validate(
        {"name": "f", "title": "T", "x": "devices", "y": "speedup", "series": series} | changes
    )


def test_a_summary_lists_few_points_with_their_intervals():
    series = Series(name="measured", x=(1.0, 4.0), y=(1.0, 3.9), low=(None, 3.8), high=(None, 4.0))
    assert prose(figure(series)) == "Speedup by devices. measured: 1.000 at 1; 3.90 ± 0.10 at 4."


def test_a_summary_marks_published_series_and_omits_the_ideal():
    ours = Series(name="mxnet", x=(2.0,), y=(1.9,))
    theirs = Series(name="mxnet", kind="published", x=(2.0,), y=(1.868,))
    ideal = Series(name="ideal", kind="ideal", x=(1.0, 2.0), y=(1.0, 2.0))
    assert prose(figure(theirs, ours, ideal)) == "Speedup by devices. mxnet (published): 1.868 at 2. mxnet: 1.900 at 2."
    alone = theirs.model_copy(update={"name": "published"})
    assert "published: 1.868 at 2" in prose(figure(alone))


def test_a_summary_of_many_points_has_the_ends_and_extremes():
    values = (5.0, 7.0, 1.0, 3.0, None, 3.0, 3.0, 3.0, 3.0, 4.0)
    said = prose(figure(Series(name="host", x=tuple(map(float, range(10))), y=values)))
    assert said.endswith("host: 9 values, first 5.000 at 0, last 4.000 at 9, smallest 1.000 at 2, largest 7.000 at 1.")


@pytest.mark.parametrize("column", [{"low": (1.0,)}, {"runs": (("a",),)}, {"degraded": (True,)}, {"y": ()}])
def test_columns_of_different_length_are_refused(column):
    with pytest.raises(ValidationError, match="for 2 points"):
        Series.model_validate({"name": "s", "x": (1.0, 2.0), "y": (1.0, 2.0)} | column)


def page_of(*blocks, runs=()):
    """A page with one chapter."""
    found = Collected()
    found.records += [(f"topic/{run}", records.record().model_copy(update={"run_id": run})) for run in runs]
    found.chapters["passes"] += blocks
    return markdown(found.page(title="t", made="m"))


def block(**parts):
    return Block(**{"anchor": "a", "title": "title", "lead": "lead"} | parts)


def table(*rows, columns=("kernel", "time (ms)"), **more):
    return Table(title="Kernels", columns=columns, rows=rows, **more)


def test_a_matrix_has_its_figures_and_links_to_its_runs():
    text = markdown(pages.page_of_one_matrix(title="dlscale report", made="8 records"))
    assert text.startswith("<!-- written by `dlscale report`: do not edit -->\n# dlscale report\n\n8 records. ")
    assert "| runs | valid |\n" in text
    assert "\n| 8 | 8 |\n" in text
    assert "\n## Scaling\n\nRuns that differ in the number of devices only" in text
    assert '\n### <a id="matrix-m001"></a>pytorch 2.13.0-cpu: resnet50 train\n' in text
    assert "\n- [pytorch 2.13.0-cpu: resnet50 train](#matrix-m001): " in text
    assert "\n| devices | runs | images/s ± | training time (s) | speedup ± | efficiency (%) ± | validity |\n" in text
    latest, line = (line for line in text.splitlines() if line.startswith("| 8 workers × 1 core | "))
    assert latest.count("|") == line.count("|") == 8
    assert "Runs: [m001-1-r1](wires/m001-1-r1/), " in text


def test_text_is_never_markup():
    said = "void f<float, 4>(int*, __half) | [a](b) & `c`"
    text = page_of(block(lead=said, notes=("# x", "-1 %"), tables=(table((said, "1.5")),)))
    assert "\n" + r"void f\<float, 4>(int\*, \__half) \| \[a\](b) \& \`c\`" + "\n" in text
    assert r"| void f\<float, 4>(int\*, \__half) \| \[a\](b) \& \`c\` | 1.5 |" in text
    assert "\n- \\# x\n- -1 %\n" in text
    assert "batch_norm" in page_of(block(lead="batch_norm"))


def test_figures_are_right_aligned_and_words_left_aligned():
    rows = (("1", "2.5 ± 0.1", "–", "valid", "20260101T000000Z"), ("2", "<3", "", "bad", "4"))
    text = page_of(block(tables=(table(*rows, columns=("n", "rate", "none", "status", "run")),)))
    assert "| n | rate | none | status | run |\n| :-- | --: | :-- | :-- | :-- |\n" in text


def test_long_tables_are_replaced_by_their_length_but_later_short_ones_kept():
    long = table(*(("k", "1"),) * (MOST_ROWS + 1))
    text = page_of(block(tables=(long, table(("short", "1"), legend="a legend"))))
    assert "Left out here: Kernels (21 rows)" in text
    assert "| short | 1 |\n\na legend\n" in text
    assert "| k | 1 |" not in text


def test_the_page_has_the_latencies_of_an_inference():
    (path,) = (examples.ROOT / "results/h200/inference").glob("20261122T195314Z-107f-*-r1")
    found, record = Collected(), read_record(path)
    found.matrix(Measured.of([(path, record)]), name=record.matrix_id, watched={})
    text = markdown(found.page(title="t", made="m"))
    assert "**Inference**" in text
    assert "| latency p50 (ms) | latency p90 (ms) | latency p99 (ms) |" in text
    assert "| 33.56 |" in text


@pytest.mark.parametrize(
    ("files", "entry"),
    [
        ({"s-7.md": "x/s-7.md", "s-7.csv": "x/s-7.csv"}, "[title, s-7](x/s-7.md): lead"),
        ({"s-7.md": "x/s-7.md", "s-7-power.png": "x/p.png"}, "[title, s-7](x/s-7.md): lead · [p.png](x/p.png)"),
        ({}, "[title, s-7](topic/r/): lead"),
    ],
)
def test_many_blocks_are_listed_with_links_to_their_own_reports(files, entry):
    folder = Collected()
    folder.chapters["passes"] += [block(anchor=f"a{n}", stem=f"s-{n}", runs=("r",)) for n in range(MOST_BLOCKS + 1)]
    found = Collected(records=[("topic/r", records.record().model_copy(update={"run_id": "r"}))])
    found.join(folder, files=files)
    text = markdown(found.page(title="t", made="m"))
    assert "13 of them, each in a report of its own:" in text
    assert text.count("\n- [title") == 13
    assert f"\n- {entry}\n" in text
    assert "###" not in text


def test_many_runs_are_replaced_by_their_folder():
    runs = [f"r{number}" for number in range(MOST_RUNS + 1)]
    assert "\n13 runs in [topic](topic/)\n" in page_of(block(runs=runs), runs=runs)
    assert "Runs: [r1](topic/r1/), [r2](topic/r2/)" in page_of(block(runs=runs[1:]), runs=runs)


def test_a_file_belongs_to_the_block_with_the_longest_matching_stem():
    folder = Collected()
    folder.chapters["matrices"] += [block(anchor="m", stem="m"), block(anchor="e", stem="m-eth")]
    folder.chapters["passes"].append(block(anchor="p", stem="m-pass-r1"))
    names = ("m.md", "m-power.png", "m-eth.png", "m-eth-power.png", "m-pass-r1.png", "mx.png", "other.csv")
    found = Collected()
    found.join(folder, files={name: f"x/{name}" for name in names})
    own = {one.anchor: one.files for blocks in found.chapters.values() for one in blocks}
    assert own == {
        "m": ("x/m.md", "x/m-power.png"),
        "e": ("x/m-eth.png", "x/m-eth-power.png"),
        "p": ("x/m-pass-r1.png",),
    }
    assert "Files: [md](x/m.md), [power.png](x/m-power.png)\n" in markdown(found.page(title="t", made="m"))
