"""What a host's processor is.

Prevents: instructions that this processor lacks; a guess for a processor that names neither vendor nor family.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest
from made_up_machine import write_tree

from runner.cluster.machine.provenance import read_processor
from runner.core.node import Processor

# Two cores of two threads, numbered as servers do: the second threads follow after all first ones.
CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480+
stepping\t: 8
flags\t\t: fpu sse sse2 avx fma avx2 avx512f avx512_bf16 amx_bf16 amx_tile

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 5
model\t\t: 1
flags\t\t: fpu"""
TREE = {"proc/cpuinfo": CPUINFO, "sys/devices/system/cpu/online": "0-3"} | {
    f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 2},{cpu % 2 + 2}" for cpu in range(4)
}


def test_the_first_processor_is_read_with_the_instructions_that_count(tmp_path):
    assert read_processor(write_tree(tmp_path, TREE)) == Processor(
        vendor="GenuineIntel",
        family=6,
        model=143,
        flags=("sse2", "avx", "fma", "avx2", "avx512f", "avx512_bf16", "amx_bf16"),
        core_threads=("0,2", "1,3"),
    )


def test_without_a_topology_no_cores_are_told(tmp_path):
    assert read_processor(write_tree(tmp_path, {"proc/cpuinfo": CPUINFO})).core_threads == ()


@pytest.mark.parametrize("cpuinfo", ["", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40"])
def test_a_processor_without_vendor_and_family_is_not_guessed(tmp_path, cpuinfo):
    assert read_processor(write_tree(tmp_path, {"proc/cpuinfo": cpuinfo})) is None


def test_this_machine_against_lscpu():
    if shutil.which("lscpu") is None:
        pytest.skip("lscpu is not installed")
    said = subprocess.run(
        ["lscpu"], capture_output=True, text=True, check=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    )
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in said.stdout.splitlines())}
    found = read_processor()
    if "CPU family" not in told:
        pytest.skip("lscpu names no family here")
    assert (found.vendor, found.family, found.model) == (told["Vendor ID"], int(told["CPU family"]), int(told["Model"]))
