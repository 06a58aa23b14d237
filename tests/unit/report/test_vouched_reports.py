"""Reports that are committed beside the records that the project vouches for.

Prevents: a table on file that its own records no longer give, which a redraw then changes by the way; a report of a folder that nobody committed.
Plots are left out: another version of the library that draws them moves a line by a pixel.
"""

import re
from pathlib import Path

import pytest

from runner.commands import compare_flow
from runner.commands.report import KEPT_PAGE, report
from runner.report import picture

RESULTS = Path(__file__).parents[3] / "results"


@pytest.mark.parametrize("folder", ["epyc-2core", "h200/telemetry", "h200/cern-wgan"])
def test_they_are_drawn_again_to_the_byte(folder, tmp_path, monkeypatch):
    """Ten CSVs had no columns for what was measured later, and each redraw rewrote them."""
    monkeypatch.setattr(picture, "png", lambda *_, **_how: None)
    report([RESULTS / folder], out=tmp_path)
    drawn, kept = tables(tmp_path), tables(RESULTS / folder)
    # `reproduce` writes those of a study, and `regrade` again.
    studies = {
        path.name.replace(".reproduction.json", ".md") for path in (RESULTS / folder).glob("*.reproduction.json")
    }
    assert drawn.keys() == kept.keys() - studies
    differing = [name for name in drawn if drawn[name] != kept[name]]
    assert differing == [], f"run `dlscale report results/{folder}`, read the difference, and commit what it wrote"


def tables(folder):
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.suffix in {".csv", ".md"} and path.name != KEPT_PAGE
    }


def test_the_documents_print_what_compare_prints(monkeypatch, capsys):
    """README had another interval than the command beside it gives."""
    monkeypatch.chdir(RESULTS.parent)
    documents = [RESULTS.parent / "README.md", *(RESULTS.parent / "docs").rglob("*.md")]
    shown = [text for path in documents if "| trial | runs | A | B | B/A |" in (text := path.read_text("utf-8"))]
    assert shown
    for text in shown:
        sides = re.search(r"make compare A='([^']+)' B='([^']+)'", text)
        compare_flow.compare_runs(*compare_flow.sides(*sides.groups()), threshold=None, form="markdown")
        printed = capsys.readouterr().out.splitlines()
        start = text.index("| trial | runs | A | B | B/A |")
        assert [line for line in text[start:].split("\n\n")[0].splitlines() if line not in printed] == []
