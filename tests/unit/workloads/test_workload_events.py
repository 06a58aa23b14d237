"""Prevents: a line that the runner can't parse, a NaN, which is not JSON, lost evidence, a log of another process, rows lost,
duplicated or put under another column when a table is split into lines, a line longer than an atomic write to a pipe."""

import io
import json
import math
import os
import re
import socket
import time

import counters
import events
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.events import Bytes, Peer, PortBytes, parse


def emitted(write):
    """The one line that `write` emits, as the runner parses it."""
    stream = io.StringIO()
    write(events.Events(rank=3, stream=stream))
    (line,) = stream.getvalue().splitlines()
    return parse.parse_line(line, received=1.0, container="c")


def test_a_line_is_the_prefix_and_one_json_object_without_spaces():
    stream = io.StringIO()
    before = time.monotonic()
    events.Events(rank=1, stream=stream).emit("warmup_end", iterations=4)
    text = stream.getvalue()
    assert text.startswith('::dlscale:: {"event":"warmup_end","rank":1,"t":')
    assert text.endswith(',"iterations":4}\n')
    assert before <= json.loads(text.removeprefix("::dlscale:: "))["t"] <= time.monotonic()


def test_the_runner_and_the_programs_use_the_same_prefix():
    assert events.PREFIX == parse.PREFIX
    assert events.ROWS_PREFIX == parse.ROWS_PREFIX


def test_rows_of_a_table_are_read_back_column_by_column():
    rows = emitted(
        lambda e: e.rows("telemetry", {"t": [1.5, 1.6], "device": ["gpu0", "gpu0"], "power_w": [70.5, None]})
    )
    assert rows == parse.Rows(
        table="telemetry",
        rank=3,
        columns={"t": [1.5, 1.6], "device": ["gpu0", "gpu0"], "power_w": [70.5, None]},
        container="c",
    )


def test_losses_that_are_not_finite_become_null():
    event = emitted(lambda e: e.loss(4, [0.5, math.nan, math.inf, -math.inf]))
    assert event.first_iteration == 4
    assert event.values == (0.5, None, None, None)
    assert event.rank == 3


def test_a_phase_lasts_from_its_start_until_now():
    start = time.monotonic() - 5
    event = emitted(lambda e: e.phase("import", start))
    assert event.name == "import"
    assert 5 <= event.seconds <= event.t - start + 1e-3


def test_the_counters_of_this_machine_reach_the_runner(monkeypatch):
    monkeypatch.delenv("DLSCALE_NODE", raising=False)
    event = emitted(lambda e: e.net("start"))
    assert event.where == "start"
    assert "lo" in event.interfaces
    assert (event.node, event.peers) == (None, None)
    assert event.namespace > 0


def test_a_host_among_several_is_named_and_reports_its_peers_at_the_stop(monkeypatch):
    monkeypatch.setenv("DLSCALE_NODE", "n1")
    listed = [{"local": "10.77.0.11", "remote": "10.77.0.12", "port": 29500, "connections": 2}]
    monkeypatch.setattr(counters, "peers", lambda: (listed, 3))
    ports = {"mlx5_0:1": {"rx_bytes": 4, "tx_bytes": 8, "link_layer": "InfiniBand"}}
    monkeypatch.setattr(counters, "port_bytes", lambda: ports)
    monkeypatch.setattr(counters, "nvlink_bytes", lambda: {"GPU-0": {"rx_bytes": 1024, "tx_bytes": 2048}})
    event = emitted(lambda e: e.net("stop"))
    assert (event.node, event.local_connections) == ("n1", 3)
    assert event.peers == (Peer(local="10.77.0.11", remote="10.77.0.12", port=29500, connections=2),)
    assert event.ports == {"mlx5_0:1": PortBytes(rx_bytes=4, tx_bytes=8, link_layer="InfiniBand")}
    assert event.nvlink == {"GPU-0": Bytes(rx_bytes=1024, tx_bytes=2048)}


def test_counters_of_interfaces_only_are_read():
    """Records from before several hosts were supported."""
    line = '::dlscale:: {"event":"net","rank":0,"t":1.0,"where":"stop","interfaces":{"lo":{"rx_bytes":1,"tx_bytes":2}}}'
    event = parse.parse_line(line, received=1.0, container="c")
    assert (event.node, event.namespace, event.ports, event.nvlink, event.peers) == (None, None, {}, {}, None)


def test_the_process_started_between_boot_and_now():
    started = events.process_start()
    assert time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME) - 1 <= started < time.monotonic()


def test_nccl_lines_are_this_process_own_without_duplicates(tmp_path, monkeypatch):
    kept = "vm:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    log = tmp_path / f"nccl.{socket.gethostname()}.{os.getpid()}.log"
    log.write_text(f"{kept}\nvm:7:7 [0] NCCL INFO Connected all rings\n{kept}\n")
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(tmp_path / "nccl.%h.%p.log"))
    assert emitted(lambda e: e.nccl()).lines == (kept,)


@pytest.mark.parametrize(
    "line",
    [
        "n1:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.77.0.11<0>",
        "n1:7:7 [0] NCCL INFO NET/Socket : Using [0]eth0:10.77.0.11<0>",
        "n1:7:7 [0] NCCL INFO Using network Socket",
        "n1:7:7 [0] NCCL INFO Failed to open libibverbs.so[.1]",
        "misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed",
        "n1:7:7 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.",
        "n1:7:7 [1] NCCL INFO P2P is disabled between connected GPUs 2 and 1. You can repress this message with ...",
    ],
)
def test_the_adapter_or_interface_given_to_nccl_is_kept(tmp_path, monkeypatch, line):
    (tmp_path / "log").write_text(f"n1:7:7 [0] NCCL INFO Connected all trees\n{line}\n")
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(tmp_path / "log"))
    assert emitted(lambda e: e.nccl()).lines == (line,)


@pytest.mark.parametrize("pattern", [None, "/nowhere/nccl.%p.log"])
def test_without_an_nccl_log_there_is_no_event(monkeypatch, pattern):
    monkeypatch.delenv("NCCL_DEBUG_FILE", raising=False)
    if pattern:
        monkeypatch.setenv("NCCL_DEBUG_FILE", pattern)
    stream = io.StringIO()
    events.Events(rank=0, stream=stream).nccl()
    assert stream.getvalue() == ""


# A text of 19 digits is rejected, as pydantic would take it for a number (below).
TEXTS = st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"])).filter(
    lambda text: len(re.sub(r"[^\d_]", "", text)) < 19
)
VALUES = st.none() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS

NAMES = ("name", "op", "bytes")


def written(columns):
    stream = io.StringIO()
    events.Events(rank=3, stream=stream).table("kernels", columns)
    return stream.getvalue().splitlines(keepends=True)


def test_a_text_with_too_many_digits_for_a_number_is_refused():
    (line,) = written({"name": ["1234567890123456789", "_" * 40]})
    assert parse.parse_line(line, received=0.0, container="w0").columns["name"] == ["1234567890123456789", "_" * 40]
    (line,) = written({"name": ["9" * 19]})
    with pytest.raises(parse.EventError, match="9{19}, which is not a finite 64-bit number"):
        parse.parse_line(line, received=0.0, container="c")


@given(rows=st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=200))
def test_tables_are_read_back_as_written(rows):
    columns = {name: [row[index] for row in rows] for index, name in enumerate(NAMES)}
    found = [parse.parse_line(line, received=0.0, container="c") for line in written(columns)]
    assert all(line.rank == 3 and line.table == "kernels" for line in found)
    back = []
    for line in found:
        size = len(next(iter(line.columns.values()), []))
        back += zip(*(line.columns.get(name, [None] * size) for name in NAMES), strict=True)
    expected = [row for row in rows if any(value is not None for value in row)]
    assert [row for row in back if any(value is not None for value in row)] == expected


@pytest.mark.parametrize("length", [60, 700, 5000])
def test_no_line_is_longer_than_an_atomic_write(length):
    names = [f"{number:05}" + "é<" * length for number in range(40)]
    lines = written({"kind": ["kernel"] * 40, "name": names, "start": [1e4 / 7] * 40, "op": [None] * 40})
    assert max(len(line.encode()) for line in lines) <= 4096
    assert len(lines) > 1
    read = [name for line in lines for name in json.loads(line[len(parse.ROWS_PREFIX) :])["columns"]["name"]]
    assert [name[:5] for name in read] == [name[:5] for name in names]


def test_an_all_null_column_is_omitted_and_an_empty_table_writes_no_line():
    (line,) = written({"name": ["a", "b"], "op": [None, None], "bytes": [None, 4]})
    assert json.loads(line[len(parse.ROWS_PREFIX) :])["columns"] == {"name": ["a", "b"], "bytes": [None, 4]}
    assert written({"name": [], "op": []}) == []
