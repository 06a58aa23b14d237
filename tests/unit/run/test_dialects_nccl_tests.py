"""Prevents misreading nccl-tests: a latency or a small message as the bandwidth, in-place as out-of-place, damaged data as fast, the columns
of older releases shifted by one."""

import pytest
from dialect_logs import of, read, text

from runner.run.dialects.base import DialectError
from runner.run.dialects.nccl_tests import bus_bandwidth

HEADER = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"


def row(size, bus, *, wrong=("0", "0"), kind="float"):
    both = "".join(f"  100.0    1.00  {bus:6.2f}  {count}" for count in wrong)
    return f"  {size}  {size // 4}  {kind}  sum  -1{both}\n"


def test_every_row_is_kept_in_both_placements():
    found = of("bandwidth", read("nccl-tests", text("nccl-tests-8-gpus.log"), devices=8))
    assert len(found) == 22
    first, second = found[:2]
    assert (first.placement, second.placement) == ("out-of-place", "in-place")
    message = (first.size_bytes, first.elements, first.dtype, first.operation, first.root)
    assert message == (1048576, 262144, "float", "sum", -1)
    assert (first.time_us, first.algbw_gb_s, first.busbw_gb_s, first.wrong) == (78.77, 13.31, 23.29, 0)
    assert (second.time_us, second.algbw_gb_s, second.busbw_gb_s) == (81.31, 12.90, 22.57)
    # For 8 ranks an all-reduce carries 2 x 7 / 8 of the message over each link.
    assert all(one.busbw_gb_s == pytest.approx(one.algbw_gb_s * 14 / 8, abs=0.02) for one in found)


@pytest.mark.parametrize(
    ("name", "devices", "gb_s"),
    [
        ("nccl-tests-8-gpus.log", 8, 230.84),
        ("nccl-tests-2.17-mpi.log", 8, 232.20),
        ("nccl-tests-2.10-error-column.log", 2, 105.46),
    ],
)
def test_the_figure_is_that_of_the_largest_out_of_place_message(name, devices, gb_s):
    assert bus_bandwidth(read("nccl-tests", text(name), devices=devices)) == pytest.approx(gb_s, rel=1e-12)
    # A repeated measurement is pooled as bytes ÷ seconds; for the same bytes at 100 and 50 GB/s: 2 / (1/100 + 1/50) = 66.7, not 75.
    whole = HEADER + row(1024, 500.0) + row(2048, 100.0) + row(2048, 50.0, kind="half")
    assert bus_bandwidth(read("nccl-tests", whole)) == pytest.approx(200 / 3)
    assert bus_bandwidth([]) is None


def test_old_tables_have_no_root_and_an_error_instead_of_a_count():
    found = of("bandwidth", read("nccl-tests", text("nccl-tests-2.10-error-column.log"), devices=2))
    assert len(found) == 10
    last = found[-2]
    assert (last.size_bytes, last.elements, last.root, last.time_us, last.busbw_gb_s, last.wrong) == (
        2147483648, 536870912, None, 38180.0, 105.46, None,
    )  # fmt: skip


def test_tables_before_2020_have_milliseconds_and_a_residual():
    found = of("bandwidth", read("nccl-tests", text("nccl-1-res-column.log"), devices=4))
    assert len(found) == 10
    # 10 MB in 1.628 ms are 6.14 GB/s; for 4 ranks each link carries 2 x 3 / 4 of them.
    assert (found[0].time_us, found[0].algbw_gb_s, found[0].busbw_gb_s, found[0].wrong) == (1628.0, 6.14, 9.21, None)
    # nccl-tests 1: with `-c 0`, rows have no check result, and the header names the ranks.
    rows = """# NCCL Tests compiled with NCCL 2.4
#   Rank  0 on       host device  0 [0x05] GeForce RTX 2080 Ti
#   Rank  1 on       host device  1 [0x06] GeForce RTX 2080 Ti
#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
     1048576        262144   float     sum    0.293   3.58   3.58       N/A    0.294   3.57   3.57      N/A
"""
    assert bus_bandwidth(read("nccl-tests", rows, devices=2)) == 3.58


def test_unchecked_results_and_missing_placements_are_none():
    unchecked = HEADER + row(2048, 10.0, wrong=("N/A", "-1"))
    assert [one.wrong for one in of("bandwidth", read("nccl-tests", unchecked))] == [None, None]
    gather = HEADER + "  2048  512  float  none  -1  10.0  1.00  9.00  0  N/A  N/A  N/A  N/A\n"
    assert [one.placement for one in of("bandwidth", read("nccl-tests", gather))] == ["out-of-place"]


FAILED = text("nccl-tests-2.10-error-column.log").replace("values : 0 OK", "values : 248 FAILED")


@pytest.mark.parametrize(
    ("log", "devices", "says"),
    [
        (HEADER + row(1024, 10.0) + row(2048, 10.0, wrong=("0", "3")), 1, "3 wrong elements in a message of 2048"),
        (FAILED, 2, "counted 248 results out of bounds"),
        (HEADER + row(8, 0.0), 1, "measured 0 GB/s for its largest message"),
        (text("nccl-tests-8-gpus.log"), 4, "names 8 devices, the run was asked for 4"),
        (row(2048, 10.0), 1, "no line is in dialect nccl-tests"),
    ],
    ids=["damaged", "out of bounds", "nothing", "other devices", "no header"],
)
def test_a_table_with_a_meaningless_bandwidth_is_refused(log, devices, says):
    with pytest.raises(DialectError, match=says):
        read("nccl-tests", log, devices=devices)
