"""Prevents: one counter taken for another: percentages of a wrong peak, units off by a thousand, rows of kernels outside the brackets."""

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


def kernels(own, instructions=""):
    """Parse the pages of both runs."""
    return ncu.kernels(ncu.rows(own), ncu.rows(instructions))


def test_work_of_each_kernel():
    """By hand: 132 multiprocessors of 128 FP32 lanes issue 16,896 FMAs per cycle, 33,792 FLOP; 5,021,278 cycles elapsed."""
    gemm, copy = kernels(PAGE, PAGE)
    assert gemm["name"] == "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)"
    assert (gemm["device"], gemm["stream"], gemm["grid"], gemm["block"]) == (0, 7, "16,32,1", "256,1,1")
    assert gemm["duration"] == pytest.approx(0.003)  # 3,000,000 ns
    assert gemm["flop"] == 2 * 68_719_476_736 + 1_048_576
    assert gemm["fp32_percent"] == pytest.approx(81)  # 137,440,002,048 of 169,679,026,176
    assert gemm["tensor_percent"] == 0
    assert gemm["dram_bytes"] == 201_326_592
    assert (copy["fp32_percent"], copy["flop"]) == (0, 0)


def test_pages_of_an_h200():
    """4096 cubed takes 2 x 4096^3 operations; 132 x 128 lanes at 1.98 GHz can do 66.9e12 a second; its clock was a little lower."""
    gemm, tensor_gemm, relu, *_, conv_in_tf32, _, _ = kernels(
        (GOLDEN / "h200-counters-page.csv").read_text(), (GOLDEN / "h200-instructions-page.csv").read_text()
    )
    assert gemm["flop"] == pytest.approx(2 * 4096**3, rel=1e-3)
    assert gemm["fp32_percent"] == pytest.approx(100 * gemm["flop"] / (5_307_009 * 132 * 128 * 2), rel=1e-6)
    assert gemm["fp32_percent"] == pytest.approx(
        100 * gemm["flop"] / gemm["duration"] / (132 * 128 * 2 * 1.98e9), rel=0.01
    )
    assert (tensor_gemm["fp32_percent"], tensor_gemm["tensor_percent"]) == (0, 90.05)
    assert relu["dram_bytes"] == pytest.approx(
        2 * 4096**2 * 4, rel=0.2
    )  # read once, most of it written to DRAM in time
    assert conv_in_tf32["tensor_percent"] == 41.72
    assert conv_in_tf32["flop"] < 0.01 * 2 * 64 * 56 * 56 * 64 * 64 * 9  # tensor cores' operations are not counted


def test_operations_are_matched_to_launches_with_equal_names():
    """A second run without the first of three launches: the rest belongs to the first and second of its shape only."""
    head, units, gemm, copy = PAGE.splitlines()[2:]
    second, other = gemm.replace("1,048,576", "3"), gemm.replace("(16, 32, 1)", "(8, 32, 1)")
    found = kernels(f"{head}\n{units}\n{gemm}\n{copy}\n{gemm}\n{other}", f"{head}\n{units}\n{gemm}\n{second}")
    base = 2 * 68_719_476_736
    assert [kernel["flop"] for kernel in found] == [base + 1_048_576, None, base + 3, None]
    assert [kernel["fp32_percent"] is None for kernel in found] == [False, True, False, True]


def test_old_and_new_unit_names_are_parsed():
    old = PAGE.replace('"byte","ns"', '"Mbyte","usecond"')
    assert kernels(old)[0]["duration"] == pytest.approx(3.0)
    assert kernels(old)[0]["dram_bytes"] == pytest.approx(201_326_592e6)


def test_a_counter_that_the_gpu_lacks_is_unknown_and_not_zero():
    without = PAGE.replace('"0","16,896"', '"n/a","16,896"').replace('"1,048,576"', '"n/a"')
    gemm = kernels(without, without)[0]
    assert (gemm["tensor_percent"], gemm["flop"], gemm["fp32_percent"]) == (None, None, None)


def test_a_value_in_an_unknown_unit_is_unknown():
    assert kernels(PAGE.replace('"byte","ns"', '"byte","fortnight"'))[0]["duration"] is None


def test_an_old_version_reports_neither_device_nor_shape():
    old = PAGE.replace('"Block Size","Grid Size","Device","CC",', "").replace(
        '"(256, 1, 1)","(16, 32, 1)","0","9.0",', ""
    )
    old = old.replace('"(128, 1, 1)","(16384, 1, 1)","0","9.0",', "").replace(
        '"","","","","","","","","","","",', '"","","","","","","",'
    )
    gemm = kernels(old, old)[0]
    assert (gemm["device"], gemm["grid"], gemm["block"]) == (0, None, None)
    assert gemm["fp32_percent"] == pytest.approx(81)


def test_an_empty_page_has_no_kernels():
    assert kernels("==PROF== Connected to process 7\n==WARNING== No kernels were profiled.\n") == []


@pytest.fixture
def stand_in(tmp_path):
    return lambda page: make_ncu(tmp_path, page)


def run(path, *program):
    return subprocess.run(
        [sys.executable, str(PROGRAM), f"--ncu={path}", *program], capture_output=True, text=True, timeout=60
    )


def test_the_program_runs_twice_and_its_output_is_printed_once(stand_in, tmp_path):
    done = run(stand_in(PAGE), "sh", "-c", f"echo mine; echo ran >>{tmp_path}/runs")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert (lines[0], lines.count("mine")) == ("mine", 1)
    assert (tmp_path / "runs").read_text() == "ran\nran\n"
    # The raw pages are in the log, one row per kernel in each.
    own, instructions = [
        [n for n, line in enumerate(lines) if f'"{value}"' in line] for value in ("201,326,592", "68,719,476,736")
    ]
    assert (len(own), len(instructions), own < instructions) == (1, 1, True)
    assert sum(line.startswith('"ID"') for line in lines) == 2
    rows = json.loads(lines[-1].removeprefix("::dlscale-rows:: "))
    assert (rows["table"], rows["rank"]) == ("kernels", 0)
    assert rows["columns"]["kind"] == ["kernel", "kernel"]
    assert rows["columns"]["fp32_percent"] == [pytest.approx(81), 0]
    own, instructions = [line.split() for line in (tmp_path / "flags").read_text().splitlines()]
    assert {"--profile-from-start=off", "--clock-control=none", "--page=raw", "--csv"} <= set(own) & set(instructions)
    # In one run, they take ncu four times as long.
    assert [word for word in own if word.startswith("--metrics=") and "sass" in word] == []
    assert all("sass" in name for word in instructions if word.startswith("--metrics=") for name in word.split(","))


def test_a_program_that_fails_runs_once(stand_in, tmp_path):
    done = run(stand_in(PAGE), "sh", "-c", f"echo ran >>{tmp_path}/runs; exit 3")
    assert (done.returncode, (tmp_path / "runs").read_text()) == (3, "ran\n")
    assert "flop" not in json.loads(done.stdout.splitlines()[-1].removeprefix("::dlscale-rows:: "))["columns"]


def test_a_failed_second_run_keeps_the_figures_of_the_first(stand_in, tmp_path):
    done = run(stand_in(PAGE), "sh", "-c", f"test ! -e {tmp_path}/runs && echo ran >{tmp_path}/runs")
    assert (done.returncode, "exited with 1" in done.stderr) == (0, True)
    columns = json.loads(done.stdout.splitlines()[-1].removeprefix("::dlscale-rows:: "))["columns"]
    assert ("flop" in columns, columns["dram_bytes"][0]) == (False, 201_326_592)


def test_columns_are_those_of_the_table():
    from runner.core.events.parse import COLUMNS

    assert ncu.columns(kernels(PAGE, PAGE)).keys() <= COLUMNS["kernels"].keys()


def test_a_missing_permission_ends_the_log(stand_in):
    done = run(stand_in("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"), "true")
    assert "ERR_NVGPUCTRPERM" in done.stderr
    assert "::dlscale-rows::" not in done.stdout


def test_a_missing_profiler_is_named(tmp_path):
    done = run(tmp_path / "nowhere", "true")
    assert (done.returncode, done.stderr.strip()) == (127, f"ncu: {tmp_path / 'nowhere'}: No such file or directory")


def test_no_temporary_files_are_left(stand_in, tmp_path):
    (tmp_path / "scratch").mkdir()
    path = stand_in(PAGE)
    subprocess.run(
        [sys.executable, str(PROGRAM), f"--ncu={path}", "true"],
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
        capture_output=True,
        timeout=60,
    )
    assert not list((tmp_path / "scratch").iterdir())
