"""Thousands of records.

Prevents: a query that reads every record again because one is new; an answer from cached rows of a record that has changed; a report
that draws every picture again; memory and a page that grow by a picture or a block a run. Nothing depends on elapsed time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import duckdb
import many
import pytest

from runner.commands import query_flow
from runner.commands import report as reports
from runner.commands.report import report
from runner.report import picture
from runner.results import store
from runner.results.query import database

RATES = "SELECT run_id, measurement_throughput_value AS rate FROM runs ORDER BY run_id"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A private cache, which indexes records however new they are, from the first record on."""
    monkeypatch.setenv("DLSCALE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(database, "SETTLED_NS", -(10**18))
    monkeypatch.setattr(query_flow, "MANY", 0)
    return tmp_path / "cache"


@pytest.fixture
def runs(tmp_path):
    return many.leave_many(tmp_path / "results", 40)


@pytest.fixture
def parsed(monkeypatch):
    """The records that were read."""
    found = []
    real = store.read_record

    def read(directory):
        found.append(directory)
        return real(directory)

    monkeypatch.setattr(database, "read_record", read)
    return found


def ask(place, capsys, sql=RATES):
    query_flow.query(sql, place=str(place), form="json")
    return json.loads(capsys.readouterr().out)


def change(directory, **measured):
    """Change the rate of a run; the file keeps its size if the rate keeps its number of digits."""
    path = directory / "record.json"
    fields = json.loads(path.read_text())
    fields["measurement"]["throughput"]["value"] = measured["rate"]
    path.write_text(json.dumps(fields))


def test_a_second_query_reads_new_records_only(runs, tmp_path, parsed, capsys):
    """Each query read every record: 36 s and 1.5 GB for 20,000."""
    place = tmp_path / "results"
    first = ask(place, capsys)
    assert (len(first), len(parsed)) == (40, 40)
    assert first == sorted(first, key=lambda one: one["run_id"])
    parsed.clear()
    assert ask(place, capsys) == first
    assert parsed == []
    many.leave_many(tmp_path / "more", 41)
    new = next(
        path
        for path in (tmp_path / "more").rglob("record.json")
        if not (place / path.parent.relative_to(tmp_path / "more")).exists()
    )
    shutil.copytree(new.parent, place / new.parent.relative_to(tmp_path / "more"))
    assert len(ask(place, capsys)) == 41
    assert [path.name for path in parsed] == [new.parent.name]


def test_a_changed_record_is_read_again(runs, tmp_path, parsed, capsys):
    """A cached answer would be wrong after a record is changed in place, replaced with the same timestamps, or removed."""
    place = tmp_path / "results"
    ask(place, capsys)
    parsed.clear()
    rated = [path for path in runs if json.loads((path / "record.json").read_text())["measurement"]["throughput"]]
    one, two, three = rated[:3]
    about = (two / "record.json").stat()
    change(one, rate=1.5)
    change(two, rate=2.5)
    os.utime(two / "record.json", ns=(about.st_atime_ns, about.st_mtime_ns))  # as after `cp -p` and `rsync -t`
    shutil.rmtree(three)
    found = {row["run_id"]: row["rate"] for row in ask(place, capsys)}
    assert (found[one.name], found[two.name]) == (1.5, 2.5)
    assert three.name not in found
    assert len(found) == 39
    assert set(parsed) == {one, two}


def test_a_record_written_just_now_is_not_cached(runs, tmp_path, parsed, capsys, monkeypatch):
    """A file can change twice within one tick of the clock that sets its timestamps."""
    monkeypatch.setattr(database, "SETTLED_NS", 10**18)
    for _ in range(2):
        assert len(ask(tmp_path / "results", capsys)) == 40
    assert len(parsed) == 80


def test_the_index_gives_the_same_answer_as_the_records(runs, tmp_path, capsys, monkeypatch):
    """The index must give every row of every table, and those of runs with copies once."""
    place = tmp_path / "results"
    shutil.copytree(runs[0], runs[0].parent / "backup")
    (runs[1] / "record.json").write_text("{}")
    # All rows of a table by their hashes: printing a hundred thousand samples took most of the time.
    tables = [
        *(f"SELECT * FROM {table} ORDER BY ALL" for table in ("runs", "epochs")),
        *(f"SELECT count(*), sum(hash(one)) FROM {table} one" for table in ("windows", "losses", "telemetry")),
        *(f"DESCRIBE {table}" for table in ("windows", "losses", "telemetry")),
    ]
    ask(place, capsys)
    kept = [ask(place, capsys, sql) for sql in tables]
    query_flow.query("SELECT count(*) FROM runs", place=str(place), form="json")
    said = capsys.readouterr().err
    monkeypatch.setattr(query_flow, "MANY", 10**6)
    assert kept == [ask(place, capsys, sql) for sql in tables]
    query_flow.query("SELECT count(*) FROM runs", place=str(place), form="json")
    assert sorted(capsys.readouterr().err.splitlines()) == sorted(said.splitlines())
    assert "which counts once" in said


def test_a_damaged_index_or_unwritable_cache_costs_only_time(runs, tmp_path, cache, capsys):
    """A full disk may truncate the index, and the cache may not be a folder."""
    place = tmp_path / "results"
    first = ask(place, capsys)
    (kept,) = (cache / "index").iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", b"nothing", whole[: len(whole) // 2]):
        kept.write_bytes(damaged)
        assert ask(place, capsys) == first
    shutil.rmtree(cache)
    cache.write_text("no folder")
    assert ask(place, capsys) == first


def test_two_concurrent_queries_both_answer(runs, tmp_path, cache):
    """Each builds the index, and one replaces the other's."""
    words = ["query", RATES, "--in", str(tmp_path / "results"), "--csv"]
    code = "import sys; from runner.commands import query_flow; query_flow.MANY = 0; from runner.commands.cli import main; sys.argv[0] = 'dlscale'; main()"
    started = [
        subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = [one.communicate()[0] for one in started]
    assert [one.returncode for one in started] == [0, 0]
    assert answers[0] == answers[1]
    assert len(answers[0].splitlines()) == 41
    (kept,) = (cache / "index").iterdir()
    with duckdb.connect(str(kept), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM files").fetchone() == (40,)


@pytest.fixture
def drawn(monkeypatch):
    """The pictures that were drawn."""
    found = []
    real = picture.to_png

    def to_png(sheet):
        found.append(real(sheet))
        return found[-1]

    monkeypatch.setattr(picture, "to_png", to_png)
    return found


def test_a_second_report_draws_no_picture_again(tmp_path, drawn):
    """Pictures took almost all of the 138 s of each report of 500 runs. A changed record changes its picture."""
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


def test_a_page_of_too_many_matrices_has_the_newest(tmp_path, monkeypatch):
    """With a block and pictures for every matrix, 20,000 runs took more than 500 s, and no browser opens such a page."""
    monkeypatch.setattr(reports, "MOST_MATRICES", 5)
    monkeypatch.setattr(picture, "to_png", lambda _: b"a picture")  # the test is about which pictures exist
    place = tmp_path / "results"
    runs = many.leave_many(place, 30)
    report([place], out=None)
    page = (place / "report.html").read_text()
    said = json.loads(re.search(r'id="values">(.*?)</script>', page)[1])
    assert len([name for name in said["blocks"] if name.startswith("matrix-")]) == 5
    assert len(said["runs"]["panels"]) == 30
    assert not list(place.rglob("*-power.png"))
    assert said["pictures"] is False
    assert not list((place / reports.FIGURES_FOLDER).glob("*.png"))
    records = {run: json.loads((run / "record.json").read_text()) for run in runs}
    by_age = sorted(runs, key=lambda run: records[run]["provenance"]["recorded_at"], reverse=True)
    matrices = list(dict.fromkeys(run.parent / f"{records[run]['matrix_id']}.md" for run in by_age))
    assert [path.exists() for path in matrices] == [True] * 5 + [False] * (len(matrices) - 5)
    assert f"{len(matrices)} matrices" in (place / "report.md").read_text()
    reports.check_pages([place])
    # A comparison of some of the runs would replace that of all runs.
    assert not list(place.rglob("ablation-*.md"))
    monkeypatch.setattr(reports, "MOST_MATRICES", 500)
    report([place], out=None)
    assert list(place.rglob("ablation-*.md"))


def test_a_page_of_too_many_matrices_has_the_studies_of_all_folders(tmp_path, monkeypatch):
    """Studies and overheads of a folder whose runs are all among the older ones were missing, without a word."""
    place = tmp_path / "results"
    folders = {run.parent for run in many.leave_many(place, 30)}
    searched = []
    monkeypatch.setattr(reports, "MOST_MATRICES", 1)
    monkeypatch.setattr(reports, "_draw_experiments", lambda folder, *_, **_how: searched.append(folder))
    report([place], out=None)
    assert len(folders) > 1
    assert set(searched) == folders
