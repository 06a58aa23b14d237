"""Prevents: a ratio taken for a percent, a missing value taken for zero, one GPU's values under another's index, a sampler that fails if the
host engine is missing, exits or never answers, a leftover `dcgmi`."""

import os
import sys
import time

import monitor_dcgm
import monitor_nvml
import pytest
from monitor_dcgm import NAMES, Dcgm, Table

# Printed by DCGM 4.2.3 on eight GPUs: github.com/NVIDIA/DCGM/issues/244.
PRINTED = """\
#Entity    GRACT        SMACT        SMOCC        TENSO        DRAMA        FP64A        FP32A        FP16A
ID
GPU 0      N/A          N/A          N/A          N/A          N/A          N/A          N/A          N/A
GPU 0      0.888        N/A          N/A          0.178        N/A          N/A          N/A          0.001
GPU 1      N/A          0.777        N/A          N/A          N/A          0.000        0.046        N/A
"""
# Same format; values and the order of the GPUs are made up, with all requested fields.
HEADER = f"#Entity   NVIDX  {'  '.join(NAMES)}"
GPU_0 = "GPU 1     0      0.5    0.25   0.125  0.75   0.0    0.0625 0.01   2000   1000   40     30"


def test_lines_of_dmon_are_parsed():
    table = Table()
    assert [table.parse(line) for line in PRINTED.splitlines()] == [
        None,
        None,
        (0, {}),
        (0, {"tensor_percent": 17.8, "fp16_percent": 0.1}),
        (1, {"sm_active_percent": 77.7, "fp64_percent": 0.0, "fp32_percent": 4.6}),
    ]


def test_all_fields_have_nvmls_index_and_not_dcgms():
    table = Table()
    assert table.parse(HEADER) is None
    assert table.parse(GPU_0) == (
        0,
        {
            "sm_active_percent": 50.0,
            "sm_occupancy_percent": 25.0,
            "tensor_percent": 12.5,
            "dram_percent": 75.0,
            "fp64_percent": 0.0,
            "fp32_percent": 6.25,
            "fp16_percent": 1.0,
            "pcie_tx_rate": 2000,
            "pcie_rx_rate": 1000,
            "nvlink_tx_rate": 40,
            "nvlink_rx_rate": 30,
        },
    )


@pytest.mark.parametrize("line", ["", "ID", "GPU-I 3   0.1 0.2", "Error setting watches. Result: -33", "GPU 0  0.1"])
def test_other_lines_have_no_values(line):
    table = Table()
    assert table.parse(GPU_0) is None  # nothing before the header
    table.parse(HEADER)
    assert table.parse(line) is None


def test_dcgm_and_gpm_have_the_same_columns():
    assert {column for column, _ in NAMES.values()} == set(monitor_nvml.COUNTERS)


def dcgmi(folder, body):
    """Put a `dcgmi` on its own PATH that records its arguments and its process."""
    program = folder / "dcgmi"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, time\nfrom pathlib import Path\n"
        f"here = Path({str(folder)!r})\n"
        "(here / 'argv').write_text(' '.join(sys.argv[1:]))\n(here / 'pid').write_text(str(os.getpid()))\n"
        f"header, row = {HEADER!r}, {GPU_0!r}\n{body}\n"
    )
    program.chmod(0o755)
    return folder


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


FOREVER = "print(header)\nwhile True:\n    print(row, flush=True)\n    time.sleep(0.05)"


def test_gpus_before_hopper_use_dcgm(sampled, tmp_path):
    sampler = sampled(nvml={"gpm": False, "nvlink": False}, path=dcgmi(tmp_path, FOREVER))
    sampler.wait_for(lambda: any("sm_active_percent" in row for row in sampler.rows_of("gpu0", 1)))
    assert sampler.close() == 0
    (start,) = sampler.events("monitor_start")
    assert start.gpus[0].counters == "dcgm"
    assert (start.sources["gpm"], start.sources["dcgm"]) == ("this GPU has no GPM (Hopper and later have)", None)
    row = next(row for row in sampler.rows_of("gpu0", 1) if "sm_active_percent" in row)
    assert (row["sm_active_percent"], row["pcie_tx_rate"], row["power_w"]) == (50.0, 2000, 298.765)
    assert (tmp_path / "argv").read_text() == (
        "dmon -d 100 -e 52,1002,1003,1004,1005,1006,1007,1008,1009,1010,1011,1012"
    )
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_host_engine_that_exits_is_reported(sampled, tmp_path):
    ends = "print(header)\nprint(row, flush=True)\ntime.sleep(1)\nprint('Error getting values information.')"
    sampler = sampled(nvml={"gpm": False}, path=dcgmi(tmp_path, ends))
    reason = "dcgmi ended: Error getting values information."
    sampler.wait_for(lambda: reason in sampler.troubles("gpu0"))
    sampler.rows_of("gpu0", len(sampler.rows_of("gpu0", 0)) + 5)
    assert sampler.close() == 0
    assert sampler.troubles("gpu0")[reason] == list(monitor_nvml.COUNTERS)


def test_a_missing_host_engine_is_reported(monkeypatch, tmp_path):
    says = "print('Error: unable to establish a connection to the specified host: localhost')\nsys.exit(1)"
    monkeypatch.setenv("PATH", str(dcgmi(tmp_path, says)))
    dcgm = Dcgm(10, monitor_nvml.COUNTERS)
    assert dcgm.reason == "dcgmi ended: Error: unable to establish a connection to the specified host: localhost"
    dcgm.stop()


def test_a_silent_host_engine_is_stopped(monkeypatch, tmp_path):
    monkeypatch.setattr(monitor_dcgm, "CONNECT_S", 0.5)
    monkeypatch.setenv("PATH", str(dcgmi(tmp_path, "time.sleep(1000)")))
    dcgm = Dcgm(10, monitor_nvml.COUNTERS)
    assert dcgm.reason == "dcgmi did not answer for 0.5 s"
    assert dcgm.child.poll() is not None


def test_a_field_that_never_has_a_value_is_missing(monkeypatch, tmp_path):
    """Fields take turns at first; a GPU without NVLink says N/A for ever."""
    lacks = FOREVER.replace("row, flush", "row[:-2] + 'N/A', flush").replace("0.05", "0.005")
    monkeypatch.setenv("PATH", str(dcgmi(tmp_path, lacks)))
    dcgm = Dcgm(10, ("sm_active_percent", "nvlink_rx_rate"))
    taken = []
    deadline = time.monotonic() + 30
    while len(taken) < monitor_dcgm.MAX_SILENT_ROWS and time.monotonic() < deadline:
        values = dcgm.take(0)
        taken += [values] if values else []
        time.sleep(0.005)
    dcgm.stop()
    assert taken[0] == [50.0, None]
    assert taken[-1][0] == 50.0
    assert taken[-1][1].reason == "DCGM has no value of it for this GPU"
