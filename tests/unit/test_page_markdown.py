"""The page as Markdown, for a code host.

Prevents: a kernel's template arguments that a reader's browser takes for a tag; a cell that ends its table; a chapter of hundreds of blocks that
nobody can read; a block that shows another's files; a figure column set left; a figure that the page has and this lacks.
"""

from __future__ import annotations

import pages
import pytest
import records

from runner.report.page.collect import Collected
from runner.report.page.markdown import MOST_BLOCKS, MOST_ROWS, MOST_RUNS, markdown
from runner.report.page.model import Block
from runner.report.table import Table


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


def test_a_matrix_has_its_figures_and_leads_to_its_runs():
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


def test_nothing_said_is_markup():
    said = "void f<float, 4>(int*, __half) | [a](b) & `c`"
    text = page_of(block(lead=said, notes=("# x", "-1 %"), tables=(table((said, "1.5")),)))
    assert "\n" + r"void f\<float, 4>(int\*, \__half) \| \[a\](b) \& \`c\`" + "\n" in text
    assert r"| void f\<float, 4>(int\*, \__half) \| \[a\](b) \& \`c\` | 1.5 |" in text
    assert "\n- \\# x\n- -1 %\n" in text
    assert "batch_norm" in page_of(block(lead="batch_norm"))


def test_figures_are_set_right_and_words_left():
    rows = (("1", "2.5 ± 0.1", "–", "valid", "20260101T000000Z"), ("2", "<3", "", "bad", "4"))
    text = page_of(block(tables=(table(*rows, columns=("n", "rate", "none", "status", "run")),)))
    assert "| n | rate | none | status | run |\n| :-- | --: | :-- | :-- | :-- |\n" in text


def test_long_tables_are_left_out_with_their_length_and_short_ones_behind_them_are_not():
    long = table(*(("k", "1"),) * (MOST_ROWS + 1))
    text = page_of(block(tables=(long, table(("short", "1"), legend="a legend"))))
    assert "Left out here: Kernels (21 rows)" in text
    assert "| short | 1 |\n\na legend\n" in text
    assert "| k | 1 |" not in text


@pytest.mark.parametrize(
    ("files", "entry"),
    [
        ({"s-7.md": "x/s-7.md", "s-7.csv": "x/s-7.csv"}, "[title, s-7](x/s-7.md): lead"),
        ({"s-7.md": "x/s-7.md", "s-7-power.png": "x/p.png"}, "[title, s-7](x/s-7.md): lead · [p.png](x/p.png)"),
        ({}, "[title, s-7](topic/r/): lead"),
    ],
)
def test_of_many_blocks_each_is_a_line_that_leads_to_its_own_report(files, entry):
    folder = Collected()
    folder.chapters["passes"] += [block(anchor=f"a{n}", stem=f"s-{n}", runs=("r",)) for n in range(MOST_BLOCKS + 1)]
    found = Collected(records=[("topic/r", records.record().model_copy(update={"run_id": "r"}))])
    found.join(folder, files=files)
    text = markdown(found.page(title="t", made="m"))
    assert "13 of them, each in a report of its own:" in text
    assert text.count("\n- [title") == 13
    assert f"\n- {entry}\n" in text
    assert "###" not in text


def test_of_many_runs_the_folder_is_named():
    runs = [f"r{number}" for number in range(MOST_RUNS + 1)]
    assert "\n13 runs in [topic](topic/)\n" in page_of(block(runs=runs), runs=runs)
    assert "Runs: [r1](topic/r1/), [r2](topic/r2/)" in page_of(block(runs=runs[1:]), runs=runs)


def test_files_are_those_of_the_block_whose_stem_is_the_longest():
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
