"""Prevents: a container's memory read from the whole host's, nanoseconds taken for seconds, a failure if the kernel reports less,
memory counted as free beyond what a limit, or the host, leaves."""

from pathlib import Path

import control_group
import pytest
from made_up_machine import write_tree

WORKLOADS = Path(control_group.__file__).parent
V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
84 82 0:30 {top} /sys/fs/cgroup/cpuacct ro - cgroup cgroup rw,cpuacct
86 82 0:32 {top} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"""
V1_FILES = {
    "sys/fs/cgroup/cpuacct/cpuacct.usage": "2500000000",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "4096",
    "sys/fs/cgroup/memory/memory.max_usage_in_bytes": "8192",
}
V2_MOUNT = "40 30 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw"
V2_FILES = {
    "sys/fs/cgroup/memory.current": "4096",
    "sys/fs/cgroup/memory.peak": "8192",
    "sys/fs/cgroup/cpu.stat": "usage_usec 2500000\nuser_usec 2000000",
}
USED = {"cpu_s": 2.5, "memory_bytes": 4096, "memory_peak_bytes": 8192}


def machine(tmp_path, groups, mounts, files):
    return write_tree(tmp_path, {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **files})


def test_v1_in_a_container_whose_group_is_the_mount(tmp_path):
    groups = "4:memory:/docker/ab\n2:cpuacct:/docker/ab\n0::/docker/ab"
    root = machine(tmp_path, groups, V1_MOUNTS.format(top="/docker/ab"), V1_FILES)
    assert control_group.usage(root) == USED


def test_v1_below_the_mount(tmp_path):
    files = {
        path.replace("cpuacct/cpu", "cpuacct/a/cpu").replace("y/mem", "y/a/mem"): text
        for path, text in V1_FILES.items()
    }
    root = machine(tmp_path, "4:memory:/a\n2:cpuacct:/a", V1_MOUNTS.format(top="/"), files)
    assert control_group.usage(root) == USED


def test_the_root_group_of_v1_is_the_hosts(tmp_path):
    root = machine(tmp_path, "4:memory:/\n2:cpuacct:/", V1_MOUNTS.format(top="/"), V1_FILES)
    assert control_group.usage(root) == control_group.NOTHING


def test_v2_in_a_container(tmp_path):
    assert control_group.usage(machine(tmp_path, "0::/", V2_MOUNT, V2_FILES)) == USED


def test_v2_on_a_kernel_without_a_peak(tmp_path):
    files = {path: text for path, text in V2_FILES.items() if "peak" not in path}
    assert control_group.usage(machine(tmp_path, "0::/", V2_MOUNT, files)) == {**USED, "memory_peak_bytes": None}


def test_the_root_group_of_v2_is_the_hosts(tmp_path):
    files = {path: text for path, text in V2_FILES.items() if "memory" not in path}
    assert control_group.usage(machine(tmp_path, "0::/", V2_MOUNT, files)) == control_group.NOTHING


MEMINFO = {"proc/meminfo": "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:   64 kB\n"}  # 65,536 bytes


@pytest.mark.parametrize(("limit", "free"), [("10000", 10000 - 4096), ("9223372036854771712", 65536), ("4000", 0)])
def test_memory_below_a_limit_of_v1(tmp_path, limit, free):
    files = {**V1_FILES, **MEMINFO, "sys/fs/cgroup/memory/memory.limit_in_bytes": limit}
    root = machine(tmp_path, "4:memory:/docker/ab\n2:cpuacct:/docker/ab", V1_MOUNTS.format(top="/docker/ab"), files)
    assert control_group.free_bytes(root) == free


@pytest.mark.parametrize(("limit", "free"), [("10000", 10000 - 4096), ("max", 65536), ("1000000", 65536)])
def test_memory_below_a_limit_of_v2(tmp_path, limit, free):
    root = machine(tmp_path, "0::/", V2_MOUNT, {**V2_FILES, **MEMINFO, "sys/fs/cgroup/memory.max": limit})
    assert control_group.free_bytes(root) == free


def test_without_its_own_group_a_process_has_the_hosts_free_memory(tmp_path):
    files = {**V1_FILES, **MEMINFO, "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000"}
    root = machine(tmp_path, "4:memory:/\n2:cpuacct:/", V1_MOUNTS.format(top="/"), files)
    assert control_group.free_bytes(root) == 65536


def test_this_machine_is_read_without_an_error():
    assert set(control_group.usage()) == set(control_group.NOTHING)
