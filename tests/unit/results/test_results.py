"""Prevents: lost records through half-written files, full disks, records of a newer version, a wrong baseline, or unsearched folders.

Prevents: an endless walk through a link to a parent, and runs of one folder counted twice because two links lead to it.

Prevents: rows lost when a run ends or the runner dies, a column missing for its reader, rows of one node under another's name.

Prevents: half-written files, drafts that a full disk or a killed runner leaves behind for ever, and the removal of a draft that is still
being written.
"""

import errno
import json
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import examples
import jsonschema
import pandas as pd
import pytest
from disks import fill
from examples import ROOT
from pyarrow import parquet
from records import record

from runner.core.errors import RequestError, RunFailedError
from runner.core.events.parse import COLUMNS, Rows
from runner.core.record import RunPlan
from runner.engines import owner
from runner.results import disk, find, store, tables
from runner.results.disk import draft, remove_stale_drafts
from runner.results.store import RunWriter
from runner.run.bench import stamp


def plan_of(found):
    return RunPlan(run_id=found.run_id, trial=found.trial, containers=(), command_lines=())


def test_a_record_is_read_back_to_the_digit(tmp_path):
    written = record(rates=(0.1 + 0.2, 1 / 3))
    store.write_record(tmp_path, written)
    assert store.read_record(tmp_path) == written


def test_a_record_fits_the_exported_schema(tmp_path):
    store.write_record(tmp_path, record())
    fields = json.loads((tmp_path / "record.json").read_text())
    jsonschema.validate(fields, json.loads(store.record_schema()))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**fields, "surprise": 1}, json.loads(store.record_schema()))


def test_a_writer_keeps_raw_lines_before_the_record_exists(tmp_path):
    writer = RunWriter(tmp_path / "run")
    found = record()
    writer.create(plan_of(found))
    writer.log("w0", "hello")
    assert (tmp_path / "run" / "logs" / "w0.log").read_text() == "hello\n"
    assert not (tmp_path / "run" / "record.json").exists()
    writer.finish(found)
    assert store.read_record(tmp_path / "run") == found
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["logs", "plan.json", "record.json"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), ValueError("no such file system"), TypeError("a bug")]
)
def test_a_table_that_can_not_be_converted_costs_no_record(tmp_path, monkeypatch, error):
    """A run of hours had no record, because one of its tables could not be written."""

    def fail(*_, **__):
        raise error

    writer = RunWriter(tmp_path / "run")
    writer.create(plan_of(record()))
    monkeypatch.setattr(tables, "write_parquet", fail)
    writer.close_tables(plan_of(record()))
    writer.finish(record())
    assert store.read_record(tmp_path / "run") == record()


def test_an_unreadable_table_is_left_out_of_the_figures_with_a_notice(tmp_path):
    writer = RunWriter(tmp_path / "run")
    writer.create(plan_of(record()))
    (tmp_path / "run" / "telemetry.parquet").write_bytes(b"no Parquet")
    said = []
    assert writer.table("telemetry", report=said.append) is None
    assert len(said) == 1
    assert said[0].startswith(f"left out of the figures: {tmp_path / 'run'}: its table telemetry can't be read")


def test_a_run_directory_is_never_overwritten(tmp_path):
    (tmp_path / "run" / "logs").mkdir(parents=True)
    with pytest.raises(RunFailedError, match="File exists"):
        RunWriter(tmp_path / "run").create(plan_of(record()))


def test_a_write_that_fails_leaves_no_half_record(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    writer = RunWriter(tmp_path / "run")
    writer.create(plan_of(record()))
    with pytest.raises(RunFailedError, match="No space left on device"):
        writer.finish(record())
    assert not list((tmp_path / "run").glob("*record.json*"))


def test_a_full_disk_keeps_earlier_runs_and_still_takes_the_record_of_the_run_that_filled_it(small_disk):
    """On a disk that is full to the last byte, the writer's reserved space still holds one record."""
    earlier = RunWriter(small_disk / "a")
    earlier.create(plan_of(record()))
    earlier.finish(record())
    writer = RunWriter(small_disk / "b")
    writer.create(plan_of(record()))
    with pytest.raises(RunFailedError, match="No space left on device"):  # noqa: PT012 - one of many writes fails
        for _ in range(100):
            writer.log("w0", "x" * 2**20)
    fill(small_disk)
    writer.finish(record(run_id="b"))
    assert store.read_record(small_disk / "b").run_id == "b"
    assert store.read_record(small_disk / "a") == record()


def test_a_run_that_does_not_fit_on_the_disk_leaves_nothing(small_disk):
    """Each attempt on a full disk left half a run directory."""
    fill(small_disk, but=2**20)
    with pytest.raises(RunFailedError, match="No space left on device"):
        RunWriter(small_disk / "c").create(plan_of(record()))
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_a_full_disk_leaves_whole_lines_and_refuses_all_after_a_lost_one(small_disk):
    """Half a line at the end of events.jsonl made `dlscale regrade` call the failed run damaged. And a run that continued after space was
    freed silently had a hole in its samples."""
    writer = RunWriter(small_disk / "run")
    writer.create(plan_of(record()))
    writer.log("w0", "first")
    fill(small_disk, but=2**16)
    with pytest.raises(RunFailedError, match="No space left on device") as lost:
        writer.log("w0", "x" * 2**20)
    assert (small_disk / "run" / "logs" / "w0.log").read_text() == "first\n"
    (small_disk / "filler").unlink()
    for write in (lambda: writer.log("w0", "short"), writer.check):
        with pytest.raises(RunFailedError) as after:
            write()
        assert str(after.value) == str(lost.value)
        assert str(small_disk / "run") in str(after.value)


def test_a_full_disk_is_found_while_the_job_is_silent(small_disk):
    """A run without samples continued for 97 s on a full disk, until its next window."""
    writer = RunWriter(small_disk / "run")
    writer.create(plan_of(record()))
    writer.check()
    fill(small_disk)
    with pytest.raises(RunFailedError, match="No space left on device"):
        writer.check()
    writer.finish(record())
    assert store.read_record(small_disk / "run") == record()
    assert list(small_disk.rglob(".*")) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "holds no record.json"),
        ("{", "is not a run record"),
        ("[]", "is not a run record (it is JSON, but no object)"),
        ('{"schema": 99}', "schema 99 is newer than this version's 1; update dlscale to read it"),
        ('{"schema": 1}', "is not a run record, at run_id"),
        (b"\xff\xfe{", "is not a run record ('utf-8' codec can't decode"),
        ('{"a":' * 100_000, "is not a run record (maximum recursion depth exceeded"),
        ('{"schema": ' + "9" * 5000 + "}", "is not a run record (Exceeds the limit"),
    ],
    ids=["none", "cut", "a list", "newer", "empty", "no UTF-8", "deep", "a long number"],
)
def test_an_invalid_record_gives_one_sentence(tmp_path, content, sentence):
    if content is not None:
        (tmp_path / "record.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RequestError) as caught:
        store.read_record(tmp_path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_of_runs_read_as_a_run_names_its_newest(tmp_path):
    """`dlscale show` of the folder that a bench had just filled said that no run ended there."""
    for name in ("20260101", "20260102"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").touch()
    with pytest.raises(RequestError, match=f"is a folder of 2 runs; name one, for example {tmp_path}/20260102"):
        store.read_record(tmp_path)


@pytest.mark.parametrize(
    ("read", "name", "content"),
    [
        (store.read_events, "events.jsonl", b"\xff\n"),
        (store.read_events, "events.jsonl", b'{"a":' * 100_000),
        (store.read_events, "events.jsonl", b"{\n"),
        (store.read_events, "events.jsonl", None),
        (store.read_plan, "plan.json", b"{"),
        (store.read_plan, "plan.json", b"\xff"),
        (store.read_plan, "plan.json", None),
    ],
    ids=["no UTF-8", "deep", "cut", "a folder", "a cut plan", "a plan without UTF-8", "a plan that is a folder"],
)
def test_a_damaged_file_is_named_in_one_sentence(tmp_path, read, name, content):
    path = tmp_path / name
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(RequestError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_an_unfinished_run_is_passed_over(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    store.write_record(tmp_path / "b", record())
    assert [path.name for path, _ in find.records_under(tmp_path)] == ["b"]


def leave(*directories):
    for directory in directories:
        directory.mkdir(parents=True)
        (directory / "record.json").touch()


def test_folders_of_run_directories_are_found_at_any_depth(tmp_path):
    leave(tmp_path / "flat" / "b", tmp_path / "flat" / "a", tmp_path / "machine" / "wires" / "old" / "c")
    leave(tmp_path / "machine" / "wires" / "d")
    (tmp_path / "machine" / "unfinished" / "logs").mkdir(parents=True)
    wires = tmp_path / "machine" / "wires"
    assert store.folders_under(tmp_path) == [tmp_path / "flat", wires, wires / "old"]
    assert store.run_directories(tmp_path / "flat") == [tmp_path / "flat" / "a", tmp_path / "flat" / "b"]
    assert store.run_directories(wires) == [wires / "d"]


def test_runs_of_one_second_sort_in_the_order_in_which_they_were_made(tmp_path):
    """Ids ended in two random bytes: of two commands within a second, the later sorted last half of the time."""
    moments = [datetime(2026, 11, 22, 2, 8, 41, at, tzinfo=timezone.utc) for at in (0, 16, 15_259, 500_000, 999_999)]
    names = [stamp(moment) for moment in (*moments, datetime(2026, 11, 22, 2, 8, 42, tzinfo=timezone.utc))]
    # 16 µs are 1.05, 15,259 are 1,000.01 and half a second is 32,768 of 65,536.
    assert names == [f"20261122T020841Z-{part}" for part in ("0000", "0001", "03e8", "8000", "ffff")] + [
        "20261122T020842Z-0000"
    ]
    older = "20261122T020840Z-fe31"  # random, one second earlier
    leave(*(tmp_path / f"{name}-mxnet-resnet18-1cpu-r1" for name in (*reversed(names), older)))
    assert [path.name[:21] for path in store.run_directories(tmp_path)] == [older, *names]
    assert stamp() <= stamp()


def test_run_directories_are_not_searched_for_folders(tmp_path):
    leave(tmp_path / "run", tmp_path / "run" / "logs" / "copied")
    assert store.folders_under(tmp_path) == [tmp_path]
    assert store.folders_under(tmp_path / "nowhere") == []


def test_links_are_followed_once_and_never_to_a_parent(tmp_path):
    leave(tmp_path / "disk" / "machine" / "run")
    top = tmp_path / "results"
    top.mkdir()
    (top / "a").symlink_to(tmp_path / "disk" / "machine")
    (top / "b").symlink_to(tmp_path / "disk" / "machine")
    (tmp_path / "disk" / "machine" / "up").symlink_to(top)
    assert store.folders_under(top) == [top / "a"]


def test_the_baseline_is_the_newest_usable_one_of_the_same_key_and_repeat(tmp_path):
    def run(run_id, **trial):
        return tmp_path / run_id, record(run_id=run_id, trial=examples.trial(**trial))

    wanted = examples.trial(world_size=2, repeat=2)
    old, new, other_repeat, other_key = (
        run("1", repeat=2),
        run("2", repeat=2),
        run("3", repeat=1),
        run("4", repeat=2, key="f" * 16),
    )
    invalid = (tmp_path / "5", record(run_id="5", trial=examples.trial(repeat=2), status="invalid"))
    two = run("6", repeat=2, world_size=2)
    assert store.baseline_for(wanted, [new, old, other_repeat, other_key, invalid, two])[1].run_id == "2"
    assert store.baseline_for(wanted, [other_repeat, other_key])[1].run_id == "3"
    assert store.baseline_for(wanted, [other_key, invalid, two]) is None
    degraded = (tmp_path / "7", record(run_id="7", trial=examples.trial(repeat=2), status="degraded"))
    assert store.baseline_for(wanted, [other_repeat, degraded])[1].run_id == "3"
    assert store.baseline_for(wanted, [degraded, invalid])[1].run_id == "7"


def test_an_unwritable_directory_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="^OUT=.*can't be written"):
        disk.check_writable(tmp_path / "file" / "out")


@pytest.mark.parametrize("room", [1, store.RESERVE_BYTES])
def test_a_full_disk_is_refused_and_no_probe_file_stays(small_disk, room):
    """A full disk kept `.probe.1234`, and a run began although its record would not fit."""
    fill(small_disk, but=room // 2)
    with pytest.raises(RequestError, match=r"^OUT=.*No space left on device.*OUT=DIR$"):
        disk.check_writable(small_disk, room=room)
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


@pytest.mark.parametrize("name", ["/elsewhere/x", "../../x", "a/b", "", ".", "..", ".hidden", "a\nb", "x" * 300])
@pytest.mark.parametrize("field", ["run_id", "matrix_id"])
def test_a_record_can_not_choose_where_files_are_written(tmp_path, field, name):
    """With `matrix_id: "/elsewhere/x"` in results of others, `dlscale report` wrote `/elsewhere/x.md`."""
    fields = json.loads(record().model_dump_json(by_alias=True)) | {field: name}
    (tmp_path / store.RECORD).write_text(json.dumps(fields))
    with pytest.raises(RequestError, match=f"is not a run record, at {field}"):
        store.read_record(tmp_path)


@pytest.mark.parametrize("name", ["../x.md", "/elsewhere/x.md", "a/x.md"])
def test_a_report_is_written_nowhere_but_in_its_folder(tmp_path, name):
    with pytest.raises(RequestError, match="is not a valid file name"):
        store.write_report(tmp_path, name, "text")


@pytest.mark.parametrize("figure", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_a_non_finite_figure_is_refused_with_its_record(tmp_path, figure):
    """One record with Infinity made the whole report fail."""
    text = record().model_dump_json(by_alias=True)
    fields = json.loads(text)
    rate = fields["measurement"]["throughput"]["value"]
    (tmp_path / store.RECORD).write_text(text.replace(f'"value":{rate}', f'"value":{figure}', 1))
    with pytest.raises(RequestError, match="is not a run record"):
        store.read_record(tmp_path)


NODES = {"c0": "n1", "c1": "n2"}


def write(directory, *lines):
    text = "".join(
        Rows(table="telemetry", rank=0, columns=columns, container=c).model_dump_json() + "\n" for c, columns in lines
    )
    (directory / "telemetry.jsonl").write_text(text)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


TWO = (
    ("c0", {"t": [1.0, 1.1], "device": ["gpu0", "host"], "power_w": [70.5, None], "core_percent": [None, [1.5, 99.0]]}),
    (
        "c1",
        {
            "t": [5.0],
            "device": ["gpu0"],
            "processes": [[{"pid": 7, "memory_mib": 2.0, "cgroup": "/docker/ab", "session": 7}]],
        },
    ),
)


@pytest.fixture(params=["as lines", "settled", "in groups"])
def frame(request, tmp_path, monkeypatch):
    """The table of two nodes, read in each of its states."""
    if request.param == "in groups":
        monkeypatch.setattr(tables, "GROUP", 1)
    write(tmp_path, *TWO)
    if request.param != "as lines":
        tables.write_parquet(tmp_path, nodes=NODES)
        assert (names(tmp_path)) == ["telemetry.parquet"]
    return pd.DataFrame(tables.read(tmp_path, "telemetry", nodes=NODES))


def test_every_row_is_there_with_every_column(frame):
    assert list(frame) == list(COLUMNS["telemetry"])
    assert list(frame.t) == [1.0, 1.1, 5.0]
    assert list(frame.node) == ["n1", "n1", "n2"]
    assert frame.power_w[0] == 70.5
    assert frame.power_w.isna().tolist() == [False, True, True]
    assert list(frame.core_percent[1]) == [1.5, 99.0]
    assert frame.processes[2][0]["cgroup"] == "/docker/ab"
    assert frame.sm_active_percent.isna().all()


def test_a_run_without_a_table_has_none(tmp_path):
    tables.write_parquet(tmp_path, nodes=NODES)
    assert names(tmp_path) == []
    assert tables.read(tmp_path, "kernels", nodes=NODES) is None


def test_a_line_truncated_by_a_killed_runner_is_left_out(tmp_path):
    write(tmp_path, *TWO)
    with (tmp_path / "telemetry.jsonl").open("a") as file:
        file.write(json.dumps({"table": "telemetry", "rank": 0})[:-3])
    assert len(tables.read(tmp_path, "telemetry", nodes=NODES)["t"]) == 3


@pytest.mark.parametrize("name", ["exp:1", "file:x", "s3:x"])
def test_a_folder_whose_name_looks_like_a_uri_is_a_folder(tmp_path, monkeypatch, name):
    """pyarrow neither wrote nor read tables there: it takes a relative path with a colon for a URI."""
    monkeypatch.chdir(tmp_path)
    folder = Path(name)
    folder.mkdir()
    write(folder, *TWO)
    tables.write_parquet(folder, nodes=NODES)
    assert names(folder) == ["telemetry.parquet"]
    assert list(tables.read(folder, "telemetry", nodes=NODES)["t"]) == [1.0, 1.1, 5.0]


def test_lines_stay_if_parquet_can_not_be_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    write(tmp_path, *TWO)
    monkeypatch.setattr(tables, "_arrow", full)
    with pytest.raises(OSError, match="No space left"):
        tables.write_parquet(tmp_path, nodes=NODES)
    assert names(tmp_path) == ["telemetry.jsonl"]


def test_each_piece_of_work_has_its_category(tmp_path):
    columns = {
        "kind": ["kernel", "set", "copy", "call", "op", "region"],
        "name": [
            "maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt",
            "Memset (Device)",
            "Memcpy HtoD (Pinned -> Device)",
            "cudaLaunchKernel",
            "aten::mm",
            "forward",
        ],
    }
    rows = Rows(table="kernels", rank=0, columns=columns, container="c0")
    (tmp_path / "kernels.jsonl").write_text(rows.model_dump_json() + "\n")
    tables.write_parquet(tmp_path, nodes=NODES)
    found = pd.DataFrame(tables.read(tmp_path, "kernels", nodes=NODES))
    assert found.category.tolist()[:5] == ["convolution_winograd", "memset", "copy_htod", "launch", "gemm"]
    assert found.category.isna().tolist() == [False] * 5 + [True]


def test_a_column_that_an_older_file_lacks_is_empty(tmp_path):
    write(tmp_path, *TWO)
    tables.write_parquet(tmp_path, nodes=NODES)
    path = tmp_path / "telemetry.parquet"
    parquet.write_table(parquet.read_table(path).drop_columns(["power_w", "node"]), path)
    found = pd.DataFrame(tables.read(tmp_path, "telemetry", nodes=NODES))
    assert list(found.columns) == list(COLUMNS["telemetry"])
    assert found.power_w.isna().all()
    assert list(found.t) == [1.0, 1.1, 5.0]


DIES = """
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from runner.results.disk import draft
with draft(Path({path!r})) as own:
    own.write_text("half")
    os.kill(os.getpid(), 9)
"""


def test_a_draft_replaces_the_file_only_on_success(tmp_path):
    path = tmp_path / "a.b.json"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), draft(path) as own:  # noqa: PT012 - the file written before must be removed
        own.write_text("half")
        raise OSError("full")
    assert path.read_text() == "old"
    with draft(path) as own:
        own.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_drafts_of_killed_runners_are_removed_and_others_kept(tmp_path):
    """Drafts accumulated in results, one file for each kill."""
    run = tmp_path / "run"
    run.mkdir()
    for path in (tmp_path / "report.md", run / "a.b.parquet"):
        done = subprocess.run([sys.executable, "-c", DIES.format(root=str(ROOT), path=str(path))])
        assert done.returncode == -9
    (run / ".hidden").touch()
    elsewhere = run / ".record.json.00000000-0000-0000-0000-000000000000.1.1.2.3"
    elsewhere.touch()
    with draft(run / "record.json") as own:
        own.write_text("half")
        assert len(list(tmp_path.rglob(".*"))) == 5
        remove_stale_drafts(tmp_path)
        assert set(tmp_path.rglob(".*")) == {run / ".hidden", elsewhere, own}
        assert own.name.endswith(owner.this_process())
