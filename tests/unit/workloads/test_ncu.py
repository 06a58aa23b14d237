"""A counter that is taken for another: percentages of a wrong peak, units off by a thousand, rows of kernels that nobody bracketed."""

import json
import os
import subprocess
import sys

import examples
import ncu
import pytest
from stand_in_ncu import make_ncu

PROGRAM = examples.ROOT / "workloads" / "ncu.py"
GOLDEN = examples.ROOT / "tests" / "golden" / "ncu"
PAGE = (GOLDEN / "raw-page.csv").read_text()


def test_what_each_kernel_did():
    """By hand: 132 multiprocessors of 128 FP32 lanes begin 16,896 FMAs a cycle, 33,792 FLOP."""
    gemm, copy = ncu.kernels(PAGE)
    assert gemm["name"] == "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)"
    assert (gemm["device"], gemm["stream"], gemm["grid"], gemm["block"]) == (0, 7, "16,32,1", "256,1,1")
    assert gemm["duration"] == pytest.approx(0.003)  # 3,000,000 ns
    assert gemm["flop"] == 2 * 68_719_476_736 + 1_048_576
    assert gemm["fp32_percent"] == pytest.approx(100 * (2 * 13_516.8 + 337.92) / 33_792)  # 81 %
    assert gemm["tensor_percent"] == 0
    assert gemm["dram_bytes"] == 201_326_592
    assert (copy["fp32_percent"], copy["flop"]) == (0, 0)


def test_a_page_of_an_h200():
    """4096 cubed takes 2 x 4096^3 operations; 132 x 128 lanes at 1.98 GHz can do 66.9e12 a second, the clock it ran at is a little less."""
    gemm, tensor_gemm, relu, *_ = ncu.kernels((GOLDEN / "h200-raw-page.csv").read_text())
    assert gemm["flop"] == pytest.approx(2 * 4096**3, rel=1e-3)
    assert gemm["fp32_percent"] == pytest.approx(100 * 12_969.35 / 16_896)
    assert gemm["fp32_percent"] == pytest.approx(
        100 * gemm["flop"] / gemm["duration"] / (132 * 128 * 2 * 1.98e9), rel=0.01
    )
    assert (tensor_gemm["fp32_percent"], tensor_gemm["tensor_percent"]) == (0, 90.24)
    assert relu["dram_bytes"] == pytest.approx(2 * 4096**2 * 4, rel=0.03)  # read once, written once


def test_units_of_older_and_newer_versions():
    old = PAGE.replace('"byte","ns"', '"Mbyte","usecond"')
    assert ncu.kernels(old)[0]["duration"] == pytest.approx(3.0)
    assert ncu.kernels(old)[0]["dram_bytes"] == pytest.approx(201_326_592e6)


def test_a_counter_that_the_gpu_has_not_is_unknown_and_not_zero():
    without = PAGE.replace('"0","16,896"', '"n/a","16,896"').replace('"1,048,576"', '"n/a"')
    gemm = ncu.kernels(without)[0]
    assert (gemm["tensor_percent"], gemm["flop"]) == (None, None)
    assert gemm["fp32_percent"] == pytest.approx(81)


def test_a_unit_that_nobody_knows_is_unknown():
    assert ncu.kernels(PAGE.replace('"byte","ns"', '"byte","fortnight"'))[0]["duration"] is None


def test_an_old_version_that_tells_neither_device_nor_shape():
    old = PAGE.replace('"Block Size","Grid Size","Device","CC",', "").replace(
        '"(256, 1, 1)","(16, 32, 1)","0","9.0",', ""
    )
    old = old.replace('"(128, 1, 1)","(16384, 1, 1)","0","9.0",', "").replace(
        '"","","","","","","","","","","",', '"","","","","","","",'
    )
    gemm = ncu.kernels(old)[0]
    assert (gemm["device"], gemm["grid"], gemm["block"]) == (0, None, None)
    assert gemm["fp32_percent"] == pytest.approx(81)


def test_no_page_is_no_kernel():
    assert ncu.kernels("==PROF== Connected to process 7\n==WARNING== No kernels were profiled.\n") == []


@pytest.fixture
def stand_in(tmp_path):
    return lambda page: make_ncu(tmp_path, page)


def run(path, *program):
    return subprocess.run(
        [sys.executable, str(PROGRAM), f"--ncu={path}", *program], capture_output=True, text=True, timeout=60
    )


def test_the_program_runs_under_it_and_the_rows_come_after_its_own_lines(stand_in, tmp_path):
    done = run(stand_in(PAGE), "sh", "-c", "echo mine; exit 3")
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert lines[0] == "mine"
    assert PAGE.splitlines()[3] in lines  # the raw page is in the log
    rows = json.loads(lines[-1].removeprefix("::dlscale-rows:: "))
    assert (rows["table"], rows["rank"]) == ("kernels", 0)
    assert rows["columns"]["kind"] == ["kernel", "kernel"]
    flags = (tmp_path / "flags").read_text().splitlines()
    assert {"--profile-from-start=off", "--clock-control=none", "--page=raw", "--csv"} <= set(flags)


def test_its_columns_are_the_tables():
    from runner.core.events.parse import COLUMNS

    assert ncu.columns(ncu.kernels(PAGE)).keys() <= COLUMNS["kernels"].keys()


def test_a_missing_right_is_said_where_failures_are_looked_for(stand_in):
    done = run(stand_in("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"), "true")
    assert "ERR_NVGPUCTRPERM" in done.stderr
    assert "::dlscale-rows::" not in done.stdout


def test_a_profiler_that_is_not_there_is_named(tmp_path):
    done = run(tmp_path / "nowhere", "true")
    assert (done.returncode, done.stderr.strip()) == (127, f"ncu: {tmp_path / 'nowhere'}: No such file or directory")


def test_nothing_of_it_is_left_in_the_temporary_folder(stand_in, tmp_path):
    (tmp_path / "scratch").mkdir()
    path = stand_in(PAGE)
    subprocess.run(
        [sys.executable, str(PROGRAM), f"--ncu={path}", "true"],
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
        capture_output=True,
        timeout=60,
    )
    assert not list((tmp_path / "scratch").iterdir())
