"""SQL over records, which must give the records' figures and only read.

Prevents: a column without a field, or a field without a column; figures of one run under the id of another; a query that reads or writes a
file, changes a table or downloads an extension; a traceback for a bad query; an answer that other programs can't read; unexplained
columns.
"""

import csv
import io
import json
import re
from datetime import datetime, timezone

import examples
import pandas as pd
import pytest
from commands import dlscale
from records import record
from rich.console import Console

from runner.commands.query_flow import tables_in
from runner.core.errors import RequestError
from runner.core.events.parse import COLUMNS
from runner.core.measurement import EpochFigures
from runner.core.record import RunRecord, Validity
from runner.core.trial import ExternalTrial, Trial
from runner.report.query import print_answer
from runner.results.find import RESULTS
from runner.results.published.load import load_all
from runner.results.query.database import Database
from runner.results.query.tables import RUNS, TABLES, columns_of, meanings
from runner.results.store import write_record

EPOCH = EpochFigures(
    epoch=1,
    iterations=20,
    train_loss=2.5,
    val_loss=None,
    accuracy_percent=12.5,
    validation_samples=8,
    seconds=3.0,
    elapsed_s=3.0,
)


@pytest.fixture
def place(tmp_path):
    """Two runs: one with telemetry and an epoch, the other invalid and with its record only."""
    one = record(run_id="one", trial=examples.trial(settings={"n-critic": 5}, image_shape=None))
    one = one.model_copy(update={"measurement": one.measurement.model_copy(update={"epochs": (EPOCH,)})})
    two = record(run_id="two").model_copy(update={"validity": Validity(status="invalid", reasons=("a", "b"))})
    for found in (one, two):
        (tmp_path / "here" / found.run_id).mkdir(parents=True)
        write_record(tmp_path / "here" / found.run_id, found)
    samples = {
        "node": ["here", "here"],
        "rank": [0, 0],
        "t": [1.0, 2.0],
        "device": ["gpu0", "gpu0"],
        "power_w": [100.0, 300.0],
    }
    pd.DataFrame(samples).to_parquet(tmp_path / "here" / "one" / "telemetry.parquet")
    return tmp_path


def ask(place, sql, *words):
    done = dlscale("query", sql, "--in", place, "--json", *words)
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_is_a_row_with_the_fields_of_its_record(place):
    fields = (
        "run_id, machine, trial_framework, trial_world_size, trial_image_shape, trial_settings->>'$.n-critic' AS n, "
        "measurement_throughput_value AS rate, validity_status, validity_reasons, "
        "provenance_recorded_at AS at, image_lock_sha256 AS lock"
    )
    one, two = ask(place, f"SELECT {fields} FROM runs ORDER BY run_id")
    # 32 images a step of 0.1 s.
    assert one == {
        "run_id": "one",
        "machine": "here",
        "trial_framework": "mxnet",
        "trial_world_size": 1,
        "trial_image_shape": None,
        "n": "5",
        "rate": pytest.approx(320),
        "validity_status": "valid",
        "validity_reasons": [],
        "at": "2026-01-02 03:04:05",
        "lock": "a" * 64,
    }
    assert (two["trial_image_shape"], two["validity_reasons"], two["n"]) == ([3, 32, 32], ["a", "b"], None)


def test_the_documents_query_leaves_invalid_runs_out(place):
    """Its max() could be the rate of an invalid run, whose record keeps it."""
    (sql,) = re.findall(
        r'^make query SQL="(.*)"$', (examples.ROOT / "docs/compare-and-query.md").read_text(), re.MULTILINE
    )
    fast = record(run_id="two", seconds=0.01).model_copy(
        update={"validity": Validity(status="invalid", reasons=("a",))}
    )
    write_record(place / "here" / "two", fast)
    (row,) = ask(place, sql)
    assert list(row.values()) == ["mxnet", 1, pytest.approx(320)]


def test_the_machine_of_a_run_in_a_topic_is_not_its_topic():
    rows = ask(RESULTS / "h200/wires", "SELECT DISTINCT machine FROM runs")
    assert rows == [{"machine": "h200"}]


def test_a_run_has_no_column_for_an_interval():
    """Prevents ± from one process: older records hold an interval over windows."""
    assert [column.name for column in RUNS.columns if "ci95" in column.name] == []


def test_windows_reproduce_the_throughput(place):
    sql = "SELECT run_id, sum(samples) / sum(seconds) AS rate, count(*) AS n FROM windows WHERE counted AND rank = 0 GROUP BY ALL ORDER BY ALL"
    assert ask(place, sql) == [
        {"run_id": "one", "rate": pytest.approx(320), "n": 20},
        {"run_id": "two", "rate": pytest.approx(320), "n": 20},
    ]


def test_losses_and_epochs(place):
    (loss,) = ask(
        place, "SELECT count(*) AS n, max(iteration) AS last, max(loss) AS most FROM losses WHERE run_id = 'one'"
    )
    assert loss == {"n": 44, "last": 43, "most": 2.3}
    (epoch,) = ask(place, "SELECT * FROM epochs")
    assert epoch == {"run_id": "one", **EPOCH.model_dump()}


def test_telemetry_is_that_of_its_run_and_lacks_what_the_file_lacks(place):
    sql = "SELECT r.run_id, max(power_w) AS most, any_value(temperature_c) AS t FROM telemetry JOIN runs r USING (run_id) GROUP BY ALL"
    assert ask(place, sql) == [{"run_id": "one", "most": 300.0, "t": None}]


@pytest.mark.parametrize("folder", ["node=zzz", "k=v", "a[1]*", "what?"])
def test_the_name_of_a_folder_never_changes_an_answer(place, tmp_path, folder):
    """In a folder `node=zzz` every sample was of node zzz, in `k=v` intact files were reported as damaged, and in `a[1]` not found."""
    moved = tmp_path / folder
    moved.mkdir()
    (place / "here").rename(moved / "here")
    assert ask(moved, "SELECT run_id, node, t FROM telemetry ORDER BY t") == [
        {"run_id": "one", "node": "here", "t": 1.0},
        {"run_id": "one", "node": "here", "t": 2.0},
    ]


def test_published_figures_are_those_of_the_files():
    (row,) = ask(
        "results",
        "SELECT count(*) AS n, count(DISTINCT source) AS sources, count(value) + count(run_values) AS of FROM published",
    )
    figures = [figure for source in load_all() for figure in source.figures]
    assert row == {"n": len(figures), "sources": len(load_all()), "of": len(figures)}


def test_only_tables_that_are_named_are_filled():
    assert [table.name for table in tables_in("select * from RUNS join windows using (run_id)")] == ["runs", "windows"]
    assert tables_in("select 1 as reruns") == ()


def test_every_field_of_a_trial_has_a_column():
    names = {column.name for column in RUNS.columns}
    for model in (Trial, ExternalTrial):
        for field in model.model_fields:
            assert any(name == f"trial_{field}" or name.startswith(f"trial_{field}_") for name in names), field


def test_raw_tables_have_every_column_that_programs_write():
    for name, columns in COLUMNS.items():
        (table,) = (table for table in TABLES if table.name == name)
        assert [column.name for column in table.columns] == ["run_id", *columns]


def test_columns_are_explained_by_their_types():
    said = {column.name: column.meaning for column in columns_of(RunRecord)}
    assert said["trial_world_size"].startswith("devices that train together")
    assert said["provenance_host_memory_mib"].startswith("memory that the kernel manages")
    assert meanings(Trial)["warmup"] == meanings(Trial)["iterations"]  # "iterations, warmup: ..."
    assert "\n" not in "".join(said.values())


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT nothing FROM runs", 'Referenced column "nothing" not found'),
        ("SELECT * FROM runes", "Table with name runes does not exist! Did you mean"),
        ("SELEC 1", "syntax error"),
        ("/* nothing */", "SQL holds 0 statements"),
        ("SELECT 1; SELECT 2", "SQL holds 2 statements"),
        ("INSERT INTO runs (run_id) VALUES ('x')", "only reads, and this is INSERT"),
        ("DROP TABLE runs", "only reads, and this is DROP"),
        ("COPY runs TO 'x.csv'", "only reads, and this is COPY"),
        ("ATTACH 'x.db'", "only reads, and this is ATTACH"),
        ("INSTALL httpfs", "only reads, and this is LOAD"),
        ("SET threads = 1", "only reads, and this is SET"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM '/etc/x.csv'", "disabled by configuration"),
        ("SELECT * FROM read_text('https://example.org/')", "disabled by configuration"),
    ],
)
def test_only_statements_that_read_tables_are_answered(sql, says):
    with pytest.raises(RequestError) as refused:
        Database().ask(sql)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_mistake_is_one_sentence(place):
    for words, says in (
        (("SELEC 1",), "syntax error"),
        ((), "SQL is empty"),
        (("FROM runs", "--csv", "--json"), "exclude each"),
    ):
        done = dlscale("query", *words, "--in", place)
        assert (done.code, done.stdout) == (2, "")
        assert says in done.stderr
        assert done.stderr.strip().count("\n") == 0


@pytest.mark.parametrize(
    "sql",
    ["FROM runs", "DESCRIBE runs", "SUMMARIZE windows", "EXPLAIN FROM runs", "PIVOT losses ON rank USING avg(loss)"],
)
def test_other_ways_to_read(sql):
    names, _ = Database().ask(sql)
    assert names


def test_python_is_out_of_reach():
    """By default, DuckDB reads variables of the embedding program as tables."""
    secrets = pd.DataFrame({"a": [1]})
    assert len(secrets) == 1
    with pytest.raises(RequestError, match="secrets does not exist"):
        Database().ask("SELECT * FROM secrets")


def test_csv(place):
    done = dlscale("query", "SELECT run_id, trial_image_shape, 1.5 AS x FROM runs ORDER BY 1", "--in", place, "--csv")
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert rows == [["run_id", "trial_image_shape", "x"], ["one", "", "1.5"], ["two", "[3, 32, 32]", "1.5"]]


def test_a_table_is_not_cut_unless_it_has_to_fit_a_screen(place):
    done = dlscale("query", f"SELECT '{'long ' * 60}' AS words, 0.1234567::DOUBLE AS x, NULL AS y", "--in", place)
    assert "long " * 60 in done.stdout
    assert "0.123457" in done.stdout
    assert done.stdout.rstrip().endswith("1 row")
    assert dlscale("query", "SELECT 1 AS x", "--in", place).stdout.rstrip().endswith("\n1 row")


def shown(names, rows, *, width):
    """Return the output on a terminal of so many columns."""
    console = Console(force_terminal=True, color_system=None, width=width, file=io.StringIO(), highlight=False)
    print_answer(console, names, rows)
    return console.file.getvalue()


def test_rows_too_wide_for_the_screen_are_a_line_a_field_and_never_cut():
    ids = [f"20261121T084635Z-dcb6-pytorch-resnet18-1cpu-r{number}" for number in (1, 2)]
    rows = [(one, 32.5, "images/s") for one in ids]
    names = ("run_id", "throughput", "unit")
    assert shown(names, rows, width=80).splitlines()[0].split() == list(names)
    narrow = shown(names, rows, width=40)
    assert [line.split() for line in narrow.splitlines() if line.startswith("throughput")] == [
        ["throughput", "32.5"]
    ] * 2
    for one in ids:
        assert one in "".join(line.strip() for line in narrow.replace("run_id", "").splitlines())
    assert max(map(len, narrow.splitlines())) <= 40


def test_brackets_are_no_markup():
    for width in (14, 80):
        found = shown(("[/x]", "b"), [("x[etc]", "[red]y")], width=width)
        assert all(word in found for word in ("[/x]", "x[etc]", "[red]y"))


def test_columns_of_the_same_name_are_all_kept(place):
    sql = "SELECT a.run_id, b.run_id, 1 AS run_id_1 FROM runs a JOIN runs b USING (run_id) ORDER BY 1"
    assert ask(place, sql) == [{"run_id": one, "run_id_1": one, "run_id_1_1": 1} for one in ("one", "two")]


def test_times_with_a_zone_are_answered(place):
    sql = "SELECT '2026-11-23 12:00:00+00'::TIMESTAMPTZ AS t, [1.5] AS x"
    ((row),) = ask(place, sql)
    assert datetime.fromisoformat(row["t"]) == datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
    assert row["x"] == [1.5]


def test_numbers_that_json_can_not_represent_are_null(place):
    assert ask(place, "SELECT 'nan'::DOUBLE AS a, [1.5, 'inf'::DOUBLE] AS b") == [{"a": None, "b": [1.5, None]}]


def test_tables_are_listed():
    done = dlscale("query", "--tables")
    assert done.code == 0
    for table in TABLES:
        assert f"{table.name}: {table.row}" in done.stdout
        for column in table.columns:
            assert column.name in done.stdout
    listed = json.loads(dlscale("query", "--tables", "--json").stdout)
    assert len(listed) == sum(len(table.columns) for table in TABLES)
    assert {"table": "runs", "column": "directory", "type": "VARCHAR", "meaning": "the run directory"} in listed


def test_damaged_files_are_named(place):
    (place / "here" / "one" / "telemetry.parquet").write_bytes(b"no parquet")
    done = dlscale("query", "SELECT count(*) FROM telemetry", "--in", place)
    assert done.code == 2
    assert "one/telemetry.parquet: can't be read" in done.stderr
    assert "put the raw file back" in done.stderr
    (place / "here" / "two" / "record.json").write_text("{")
    done = dlscale("query", "SELECT count(*) FROM runs", "--in", place)
    assert done.code == 0
    assert "two/record.json: is not a run record" in done.stderr
