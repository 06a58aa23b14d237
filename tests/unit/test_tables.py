"""Prevents: rows lost when a run ends or the runner dies, a column that a reader misses, rows of one node under another's name."""

import json
from pathlib import Path

import pytest
from pyarrow import parquet

from runner.core.events.parse import COLUMNS, Rows
from runner.results import tables

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
    """The table of two nodes, read in every state that it can be in."""
    if request.param == "in groups":
        monkeypatch.setattr(tables, "GROUP", 1)
    write(tmp_path, *TWO)
    if request.param != "as lines":
        tables.write_parquet(tmp_path, nodes=NODES)
        assert (names(tmp_path)) == ["telemetry.parquet"]
    return tables.read(tmp_path, "telemetry", nodes=NODES)


def test_every_row_is_there_with_every_column(frame):
    assert list(frame.columns) == list(COLUMNS["telemetry"])
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


def test_a_line_that_was_cut_off_by_the_end_of_the_runner_is_left_out(tmp_path):
    write(tmp_path, *TWO)
    with (tmp_path / "telemetry.jsonl").open("a") as file:
        file.write(json.dumps({"table": "telemetry", "rank": 0})[:-3])
    assert len(tables.read(tmp_path, "telemetry", nodes=NODES)) == 3


@pytest.mark.parametrize("name", ["exp:1", "file:x", "s3:x"])
def test_a_folder_whose_name_looks_like_an_address_is_a_folder(tmp_path, monkeypatch, name):
    """Tables that pyarrow would not write, nor read, since it takes a relative path with a colon for a URI."""
    monkeypatch.chdir(tmp_path)
    folder = Path(name)
    folder.mkdir()
    write(folder, *TWO)
    tables.write_parquet(folder, nodes=NODES)
    assert names(folder) == ["telemetry.parquet"]
    assert list(tables.read(folder, "telemetry", nodes=NODES).t) == [1.0, 1.1, 5.0]


def test_lines_stay_where_parquet_can_t_be_written(tmp_path, monkeypatch):
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
    found = tables.read(tmp_path, "kernels", nodes=NODES)
    assert found.category.tolist()[:5] == ["convolution_winograd", "memset", "copy_htod", "launch", "gemm"]
    assert found.category.isna().tolist() == [False] * 5 + [True]


def test_a_file_that_is_older_than_a_column_has_it_empty(tmp_path):
    write(tmp_path, *TWO)
    tables.write_parquet(tmp_path, nodes=NODES)
    path = tmp_path / "telemetry.parquet"
    parquet.write_table(parquet.read_table(path).drop_columns(["power_w", "node"]), path)
    found = tables.read(tmp_path, "telemetry", nodes=NODES)
    assert list(found.columns) == list(COLUMNS["telemetry"])
    assert found.power_w.isna().all()
    assert list(found.t) == [1.0, 1.1, 5.0]
