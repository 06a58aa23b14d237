"""Prevents: a line that the runner can't read back, a NaN that is no JSON, byte counters of the wrong column, a log of another process."""

import io
import json
import math
import os
import socket
import time

import events
import pytest

from runner import parse

# proc(5): per interface 8 receive columns, then 8 transmit columns; the name may touch the first number.
PROC_NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
  eth0:2331607157 1545312   1    2    3     4          5         6  2799536   41530    7    8    9    10      11         12
"""


def emitted(write):
    """The one line that `write` puts out, as the runner parses it."""
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


def test_the_runner_and_the_programs_mean_the_same_prefix():
    assert events.PREFIX == parse.PREFIX


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


def test_byte_counters_are_the_first_and_the_ninth_column(tmp_path):
    table = tmp_path / "dev"
    table.write_text(PROC_NET_DEV)
    assert events.interface_bytes(table) == {
        "lo": {"rx_bytes": 3193, "tx_bytes": 3193},
        "eth0": {"rx_bytes": 2331607157, "tx_bytes": 2799536},
    }


def test_the_counters_of_this_machine_reach_the_runner():
    event = emitted(lambda e: e.net("start"))
    assert event.where == "start"
    assert "lo" in event.interfaces


def test_the_process_started_before_now_and_after_boot():
    started = events.process_start()
    assert time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME) - 1 <= started < time.monotonic()


def test_nccl_lines_are_this_process_own_each_once(tmp_path, monkeypatch):
    kept = "vm:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    log = tmp_path / f"nccl.{socket.gethostname()}.{os.getpid()}.log"
    log.write_text(f"{kept}\nvm:7:7 [0] NCCL INFO Connected all rings\n{kept}\n")
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(tmp_path / "nccl.%h.%p.log"))
    assert emitted(lambda e: e.nccl()).lines == (kept,)


@pytest.mark.parametrize("pattern", [None, "/nowhere/nccl.%p.log"])
def test_without_an_nccl_log_there_is_no_event(monkeypatch, pattern):
    monkeypatch.delenv("NCCL_DEBUG_FILE", raising=False)
    if pattern:
        monkeypatch.setenv("NCCL_DEBUG_FILE", pattern)
    stream = io.StringIO()
    events.Events(rank=0, stream=stream).nccl()
    assert stream.getvalue() == ""
