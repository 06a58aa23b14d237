"""Prevents: operators counted twice, once for each of MXNet's two records; mixed-up threads; a GPU by MXNet's number instead of the job's;
regions of a step without synchronization."""

from types import SimpleNamespace

import pytest
from with_mxnet import profiler as profile_mxnet

OFFSET_S = 1_795_270_000.0


def event(phase, name, microseconds, *, pid=0, tid=15131217236527229639, **more):
    # As written by MXNet 1.9.1; its thread numbers are hashes.
    at = int(OFFSET_S) * 10**6 + microseconds
    return {"name": name, "cat": "operator", "ph": phase, "ts": at, "pid": pid, "tid": tid, **more}


def process(pid, name):
    return {"ph": "M", "args": {"name": name}, "pid": pid, "name": "process_name"}


def test_operators_are_their_devices_records_on_the_monotonic_clock():
    other = {"pid": 3060606181218273969, "id": 15131217236527229639}
    trace = [
        process(0, "cpu/0"),
        process(2, "cpu pinned/"),
        process(5, "gpu/2"),
        event("B", "Convolution", 7_000_100, pid=5),
        event("b", "Convolution", 7_000_100, **other),
        event("B", "CopyCPU2GPU", 7_000_150, tid=42),
        event("E", "Convolution", 7_000_400, pid=5),
        event("e", "Convolution", 7_000_400, **other),
        event("E", "CopyCPU2GPU", 7_000_160, tid=42),
        {
            "name": "Memory: cpu/0",
            "cat": "Device Storage",
            "ph": "C",
            "ts": 1,
            "args": {"Memory: cpu/0": 80},
            "pid": 9,
            "tid": 9,
        },
        event("B", "Pooling", 7_000_400, pid=5),
        event("E", "Pooling", 7_000_400, pid=5),
        event("B", "never ended", 7_000_500, pid=5),
    ]
    assert profile_mxnet.columns(trace, gpus={2: 1}, offset=OFFSET_S) == {
        "kind": ["op"] * 3,
        "name": ["Convolution", "CopyCPU2GPU", "Pooling"],
        "device": [1, -1, 1],
        "stream": [0, 1, 0],
        "start": [pytest.approx(7.0001, abs=1e-9), pytest.approx(7.00015, abs=1e-9), pytest.approx(7.0004, abs=1e-9)],
        "duration": [0.0003, 0.00001, 0.0],
        "op": [0, 1, 2],
    }


def test_an_idle_pass_has_columns_without_rows():
    assert set(map(len, profile_mxnet.columns([process(0, "cpu/0")], gpus={}, offset=OFFSET_S).values())) == {0}


class Watching:
    """The actions of a pass at the edges of regions: none, except for waiting."""

    def __init__(self, *, settles):
        self.settles = settles

    def enter(self):
        """Do nothing."""

    settle = enter

    def leave(self, name):
        """Do nothing."""


@pytest.mark.parametrize(("settles", "noted"), [(True, ["forward"]), (False, [])])
def test_regions_are_recorded_only_if_the_loop_waits_at_their_edges(settles, noted):
    regions = profile_mxnet.Regions()
    regions.watch(Watching(settles=settles), only=None)
    with regions("forward"):
        pass
    assert [name for name, _, _ in regions.close()] == noted


def test_memory_counters_exclude_pinned_and_shared_memory():
    said = '"ts": 7,\n "args": { "Memory: gpu/1": 4096 },\n"ts": 8,\n "args": { "Memory: cpu pinned/": 1 }, "ts": 9, "args": { "Memory: cpu/0": 12 }'
    assert profile_mxnet.MEMORY_COUNTER.findall(said) == [("7", "gpu", "1", "4096"), ("9", "cpu", "0", "12")]


def test_memory_held_is_the_latest_counter_and_not_the_last_in_the_file(tmp_path):
    """Each thread's counters are dumped together: 28 was recorded before the 8 above it."""
    told = '"ts": {},\n        "args": {{ "Memory: cpu/0": {} }},\n'
    storage = profile_mxnet.Storage.__new__(profile_mxnet.Storage)
    storage.kind, storage.read, storage.allocated, storage.file = "cpu", 0, {0: 8}, str(tmp_path / "dump")
    storage.mx = SimpleNamespace(profiler=SimpleNamespace(dump=lambda finished: None))
    (tmp_path / "dump").write_text(told.format(200, 8) + told.format(100, 28))
    assert storage.held() == {0: (8, 28)}
