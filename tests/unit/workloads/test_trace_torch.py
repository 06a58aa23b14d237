"""Prevents: times of a trace on another clock than the events', kernels on another rank's GPU, copies without their size, work
without its call or operator, an operator that belongs to one that had ended or ran on another thread, the profiler's own
calls in the table."""

import json

import pytest
from with_pytorch.trace import COLUMNS, MARK, clock_ahead, rows

BASE_US = 4.4e12  # Kineto's microseconds start some months earlier
LAUNCH = {"External id": 11, "cbid": 211, "correlation": 501}
# Fields that Kineto writes for a kernel and for a copy (libkineto, output_json.cpp).
KERNEL = {
    "External id": 11,
    "queued": 0,
    "device": 2,
    "context": 1,
    "stream": 7,
    "correlation": 501,
    "registers per thread": 128,
    "shared memory": 49152,
    "blocks per SM": 1.9,
    "warps per SM": 7.7,
    "grid": [64, 4, 1],
    "block": [128, 1, 1],
    "est. achieved occupancy %": 12,
}
COPY = {"External id": 12, "device": 2, "context": 1, "stream": 9, "correlation": 502, "bytes": 4096}


def event(cat, name, at_us, dur_us, args=None, *, tid=31):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 30,
        "tid": tid,
        "ts": BASE_US + at_us,
        "dur": dur_us,
        "args": args or {},
    }


def marks_at(*starts_us):
    return [event("user_annotation", MARK, at, 1.0, {"External id": 1}) for at in starts_us]


# The trace's zero is at 50 s of the monotonic clock: the second mark began between 50.000100 and 50.000104.
MARKS = [(50.0, 50.0001), (50.0001, 50.000104)]
TRACE = {
    "traceEvents": [
        *marks_at(30.0, 102.0),
        {"ph": "M", "name": "process_name", "ts": BASE_US, "pid": 30, "tid": 0, "args": {"name": "python3"}},
        {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 30, "tid": 31, "ts": BASE_US + 210},
        event("user_annotation", "forward", 190.0, 900.0, {"External id": 9}),
        event("cpu_op", "aten::conv2d", 200.0, 100.0, {"External id": 10}),
        event("cpu_op", "aten::cudnn_convolution", 205.0, 95.0, {"External id": 11}),
        event("cuda_runtime", "cudaLaunchKernel", 210.0, 5.0, LAUNCH),
        event("kernel", "sm90_xmma_fprop_implicit_gemm", 230.0, 600.0, KERNEL, tid=7),
        event("cpu_op", "aten::copy_", 300.0, 20.0, {"External id": 12}),
        event("cpu_op", "ReluBackward0", 250.0, 10.0, {"External id": 13}, tid=32),
        event("cuda_runtime", "cudaMemcpyAsync", 305.0, 5.0, {**LAUNCH, "External id": 12, "correlation": 502}),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 320.0, 2.5, COPY, tid=9),
        event("gpu_memset", "Memset (Device)", 330.0, 1.0, {**COPY, "External id": 9, "correlation": 503}, tid=9),
        event("user_annotation", "nccl:all_reduce", 340.0, 1.0, {"External id": 14}),
        event("gpu_user_annotation", "nccl:all_reduce", 345.0, 300.0, {"External id": 14}, tid=20),
        event("cuda_driver", "cuLaunchKernelEx", 350.0, 2.0, {"External id": 0, "cbid": 652, "correlation": 504}),
        event("cuda_runtime", "cudaProfilerStop", 999.0, 5.0, {"External id": 0, "cbid": 2, "correlation": 505}),
        event("overhead", "Buffer Flush", 1000.0, 5.0),
    ]
}


@pytest.fixture
def found():
    return {row["name"]: row for row in rows(json.loads(json.dumps(TRACE)), MARKS, device=5, flop={10: 2.5e9})}


def test_the_table_holds_only_work_calls_and_operators(found):
    assert [(row["kind"], name) for name, row in found.items()] == [
        ("op", "aten::conv2d"),
        ("op", "aten::cudnn_convolution"),
        ("call", "cudaLaunchKernel"),
        ("kernel", "sm90_xmma_fprop_implicit_gemm"),
        ("op", "ReluBackward0"),
        ("op", "aten::copy_"),
        ("call", "cudaMemcpyAsync"),
        ("copy", "Memcpy HtoD (Pinned -> Device)"),
        ("set", "Memset (Device)"),
        ("op", "nccl:all_reduce"),
        ("call", "cuLaunchKernelEx"),
    ]
    assert all(tuple(row) == COLUMNS for row in found.values())


def test_times_are_seconds_of_the_monotonic_clock(found):
    # The trace's zero is at 50.000102 - 0.000102 = 50 s.
    kernel = found["sm90_xmma_fprop_implicit_gemm"]
    assert (kernel["start"], kernel["duration"]) == (pytest.approx(50.00023, abs=1e-8), 0.0006)


def test_the_tightest_mark_aligns_the_clocks():
    assert clock_ahead(marks_at(30.0, 102.0), MARKS) == pytest.approx(BASE_US - 50e6, abs=1e-3)
    assert clock_ahead(marks_at(30.0), MARKS[:1]) == pytest.approx(BASE_US + 30 - 50.00005e6, abs=1e-3)


def test_a_missing_mark_is_an_error():
    with pytest.raises(ValueError, match="1 of 2 marks"):
        clock_ahead(marks_at(30.0), MARKS)


def test_a_kernel_has_its_rank_stream_size_call_and_operator(found):
    kernel = found["sm90_xmma_fprop_implicit_gemm"]
    assert (kernel["device"], kernel["stream"], kernel["grid"], kernel["block"]) == (5, 7, "64,4,1", "128,1,1")
    assert kernel["correlation"] == found["cudaLaunchKernel"]["correlation"] == 501
    assert kernel["op"] == found["cudaLaunchKernel"]["op"] == found["aten::cudnn_convolution"]["op"] == 11
    assert kernel["bytes"] is kernel["parent"] is None


def test_copies_and_sets_have_their_bytes(found):
    copy, memset = found["Memcpy HtoD (Pinned -> Device)"], found["Memset (Device)"]
    assert (copy["bytes"], copy["stream"], copy["device"], copy["op"], copy["correlation"]) == (4096, 9, 5, 12, 502)
    assert copy["grid"] is None
    assert memset["op"] is None, "an annotation was taken for an operator"


def test_operators_are_on_a_cpu_thread_and_have_parents_there(found):
    assert {(row["device"], row["stream"]) for row in found.values() if row["kind"] == "op"} == {(-1, 31), (-1, 32)}
    assert found["aten::cudnn_convolution"]["parent"] == 10
    assert found["aten::copy_"]["parent"] is None, "began when the other ended"
    assert found["ReluBackward0"]["parent"] is None, "runs on another thread"
    assert found["aten::conv2d"]["correlation"] is None


def test_an_operator_has_the_flop_that_the_profiler_counted(found):
    assert found["aten::conv2d"]["flop"] == 2.5e9
    assert found["aten::copy_"]["flop"] is None
