"""Thousands of records that nobody can wait for.

Prevents: a report that draws every picture again; memory and a page that grow by a picture or a block a run. Nothing is decided by time.
"""

from __future__ import annotations

import json
import re
import shutil

import many
import pytest

from runner.commands import report as reports
from runner.commands.report import report
from runner.report import canvas


@pytest.fixture
def drawn(monkeypatch):
    """The pictures that were drawn."""
    found = []
    real = canvas.png

    def png(figure):
        made = real(figure)
        found.extend([made] if made else [])
        return made

    monkeypatch.setattr(canvas, "png", png)
    return found


def test_a_second_report_draws_no_picture_again(tmp_path, drawn):
    """Pictures took all but seconds of the 138 s that a report of 500 runs took, each time; a picture of another record is another one."""
    place = tmp_path / "results"
    runs = many.leave_many(place, 6)
    report([place], out=None)
    assert len(drawn) > len(runs)
    pictures = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in place.rglob("*.png")}
    drawn.clear()
    next(iter(pictures)).unlink()
    report([place], out=None)
    assert drawn == []
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in place.rglob("*.png")}
    assert {path: held[0] for path, held in after.items()} == {path: held[0] for path, held in pictures.items()}
    assert sum(after[path] != held for path, held in pictures.items()) == 1
    shutil.copyfile(runs[1] / "telemetry.parquet", (runs[0] / "telemetry.parquet").with_suffix(".other"))
    (runs[0] / "telemetry.parquet").unlink()
    (runs[0] / "telemetry.other").rename(runs[0] / "telemetry.parquet")
    report([place], out=None)
    assert 0 < len(drawn) <= 3  # power beside the runs, power and utilisation on the page


def test_a_page_of_more_matrices_than_anybody_opens_has_the_newest(tmp_path, drawn, monkeypatch):
    """A block and pictures for every matrix: 20,000 runs were not drawn after 500 s, and no browser opens such a page."""
    monkeypatch.setattr(reports, "MOST", 5)
    place = tmp_path / "results"
    runs = many.leave_many(place, 30)
    report([place], out=None)
    page = (place / "report.html").read_text()
    said = json.loads(re.search(r'id="values">(.*?)</script>', page)[1])
    assert len([name for name in said["blocks"] if name.startswith("matrix-")]) == 5
    assert len(said["runs"]["panels"]) == 30
    assert not list(place.rglob("*-power.png"))
    assert said["pictures"] is False
    assert not list((place / reports.BESIDE).glob("*.png"))
    records = {run: json.loads((run / "record.json").read_text()) for run in runs}
    by_age = sorted(runs, key=lambda run: records[run]["provenance"]["recorded_at"], reverse=True)
    matrices = list(dict.fromkeys(run.parent / f"{records[run]['matrix_id']}.md" for run in by_age))
    assert [path.exists() for path in matrices] == [True] * 5 + [False] * (len(matrices) - 5)
    assert f"{len(matrices)} matrices" in (place / "report.md").read_text()
    reports.check_page(place)
    # A comparison of some of the runs would take the place of one of all.
    assert not list(place.rglob("ablation-*.md"))
    monkeypatch.setattr(reports, "MOST", 500)
    report([place], out=None)
    assert list(place.rglob("ablation-*.md"))
