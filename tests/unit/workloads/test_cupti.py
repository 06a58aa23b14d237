"""Calls of a whole process, recorded by a stand-in for CUPTI that hands out its own records.

Prevents: a driver call with the name of a runtime call; times on another clock than the events'; a buffer freed while CUPTI
fills it; a recorder that starts after the calls that it should record.
"""

import ctypes
import re
import struct
import time
import types

import cupti
import profiling
import pytest

DRIVER, RUNTIME = 4, 5
NAMES = {(1, 7): b"cuDeviceGetAttribute", (2, 7): b"cudaMalloc_v3020"}


def record(kind, cbid, start, end, correlation):
    return struct.pack("<IIQQIIII", kind, cbid, start, end, 1, 42, correlation, 0)


class StandIn:
    """CUPTI with records of its own, which it writes to a requested buffer when flushed."""

    def __init__(self, records=(), *, fails=None):
        self.records, self.fails, self.enabled, self.done = b"".join(records), fails, set(), 0

    def __getattr__(self, name):
        own = re.sub("([A-Z])", r"_\1", name.removeprefix("cupti")).lower().removeprefix("_")
        return lambda *words: 1 if name == self.fails else (getattr(type(self), own)(self, *words) or 0)

    def activity_register_callbacks(self, requested, completed):
        self.requested, self.completed = requested, completed

    def activity_enable(self, kind):
        self.enabled.add(kind.value)

    def activity_disable(self, kind):
        self.enabled.remove(kind.value)

    def get_timestamp(self, now):
        now._obj.value = time.monotonic_ns() + 10**15

    def get_result_string(self, _code, text):
        text._obj.value = b"CUPTI_ERROR_MADE_UP"

    def get_callback_name(self, domain, cbid, text):
        text._obj.value = NAMES[domain.value, cbid.value]

    def activity_flush_all(self, _flag):
        buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
        self.requested(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(most))
        assert len(self.records) <= size.value
        assert most.value == 0, "as many records as fit"
        ctypes.memmove(buffer.value, self.records, len(self.records))
        self.completed(None, 0, buffer.value, size.value, len(self.records))

    def activity_get_next_record(self, buffer, filled, record):
        if self.done >= filled.value:
            return 12  # CUPTI_ERROR_MAX_LIMIT_REACHED
        record._obj.value = buffer.value + self.done
        self.done += 40
        return 0


@pytest.fixture
def made(monkeypatch):
    def make(stand_in):
        monkeypatch.setattr(cupti.ctypes, "CDLL", lambda _: stand_in)
        return cupti.Recorder("libcupti.so.13")

    return make


def test_records_become_rows_with_names_and_times_on_the_events_clock(made):
    began = time.monotonic_ns() + 10**15
    calls = [record(RUNTIME, 7, began + 3_000_000, began + 3_500_000, 2), record(DRIVER, 7, began, began + 1_000, 1)]
    stand_in = StandIn(calls)
    recorder = made(stand_in)
    assert stand_in.enabled == {DRIVER, RUNTIME}
    recorder.stop()
    assert stand_in.enabled == set()
    rows = recorder.columns()
    assert (rows["kind"], rows["name"]) == (["call"] * 2, ["cuDeviceGetAttribute", "cudaMalloc_v3020"])
    assert (rows["duration"], rows["thread"], rows["correlation"]) == ([1e-6, 5e-4], [42, 42], [1, 2])
    assert rows["start"][1] - rows["start"][0] == pytest.approx(3e-3)
    assert rows["start"][0] == pytest.approx((began - 10**15) / 1e9, abs=0.1)
    assert recorder.buffers == {}


def test_an_error_of_cupti_ends_the_program_with_one_line(made, capsys):
    with pytest.raises(SystemExit, match="2"):
        made(StandIn(fails="cuptiActivityEnable"))
    assert capsys.readouterr().err == (
        "--profile=calls: cuptiActivityEnable: CUPTI_ERROR_MADE_UP; stop other profilers of this process, or leave it out\n"
    )


def test_a_missing_cupti_is_refused_with_what_to_install(capsys):
    with pytest.raises(SystemExit, match="2"):
        cupti.Recorder("libcupti.so.none")
    assert "install the CUPTI that belongs to this framework's CUDA" in capsys.readouterr().err


def test_a_program_records_only_on_request_and_with_the_cupti_of_its_cuda(monkeypatch, capsys):
    monkeypatch.setattr(profiling, "Recorder", lambda library: library)
    asked = [types.SimpleNamespace(profile=kind, device="gpu") for kind in ("kernels", "calls")]
    assert [profiling.recorder(args, "12.4") for args in asked] == [None, "libcupti.so.12"]
    with pytest.raises(SystemExit, match="2"):
        profiling.recorder(types.SimpleNamespace(profile="calls", device="cpu"), None)
    assert "--device=cpu makes none" in capsys.readouterr().err
