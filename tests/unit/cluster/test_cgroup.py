"""Limits of control groups.

Prevents: a plan for all cores of the machine inside a container that may use two; v1's "unlimited" number taken for a limit;
a limit of a parent group that is missed; a crash if control groups are mounted in an unknown way.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_machine import write_tree

from runner.cluster.machine.hostfs import CgroupLimits, read_limits, usable_cores

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw"


def v1_mount(number: int, controllers: str, root: str = "/") -> str:
    return f"{number} 31 0:{number} {root} /sys/fs/cgroup/{controllers} rw,relatime - cgroup cgroup rw,{controllers}"


def test_v2_takes_the_tightest_of_a_group_and_its_ancestors(tmp_path):
    write_tree(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/cgroup": "0::/machine/job",
            "sys/fs/cgroup/machine/job/memory.max": "max",
            "sys/fs/cgroup/machine/job/cpu.max": "400000 100000",
            "sys/fs/cgroup/machine/job/cpuset.cpus.effective": "2-3,6",
            "sys/fs/cgroup/machine/memory.max": "4294967296",
            "sys/fs/cgroup/machine/cpu.max": "150000 100000",
            "sys/fs/cgroup/machine/cpuset.cpus.effective": "0-7",
        },
    )
    assert read_limits(tmp_path) == CgroupLimits(cpus=frozenset({2, 3, 6}), cpu_quota=1.5, memory_bytes=4 * 2**30)


def test_v2_in_a_container_reads_its_own_group_mounted_as_the_root(tmp_path):
    write_tree(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": "1073741824",
            "sys/fs/cgroup/cpu.max": "max 100000",
        },
    )
    assert read_limits(tmp_path) == CgroupLimits(cpus=None, cpu_quota=None, memory_bytes=2**30)


def test_v1_reads_each_controller_where_it_is_mounted(tmp_path):
    """A v1 container sees the host's path in /proc/self/cgroup, but its own group mounted as the root."""
    write_tree(
        tmp_path,
        {
            "proc/self/mountinfo": "\n".join(
                [v1_mount(40, "memory", root="/docker/abc"), v1_mount(41, "cpu,cpuacct"), v1_mount(42, "cpuset")]
            ),
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n2:cpuset:/docker/abc\n1:name=systemd:/x",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpuset/docker/abc/cpuset.effective_cpus": "1",
        },
    )
    assert read_limits(tmp_path) == CgroupLimits(cpus=frozenset({1}), cpu_quota=0.5, memory_bytes=2**29)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {
            "proc/self/mountinfo": v1_mount(40, "memory") + "\n" + v1_mount(41, "cpu"),
            "proc/self/cgroup": "4:memory:/\n3:cpu:/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    ],
    ids=["no groups", "v1 unlimited"],
)
def test_unlimited_groups_set_no_limit(tmp_path, files):
    write_tree(tmp_path, files)
    assert read_limits(tmp_path) == CgroupLimits(cpus=None, cpu_quota=None, memory_bytes=None)


def test_an_invisible_group_falls_back_to_the_mount(tmp_path):
    """In its own cgroup namespace, a process that was moved in from outside shows a path such as /../other."""
    write_tree(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/cgroup": "0::/gone/away",
            "sys/fs/cgroup/memory.max": "2147483648",
        },
    )
    assert read_limits(tmp_path).memory_bytes == 2**31


@pytest.mark.parametrize(
    ("cores", "quota", "usable"), [(8, None, 8), (8, 2.0, 2), (8, 2.9, 2), (8, 0.5, 1), (2, 64.0, 2)]
)
def test_usable_cores(cores, quota, usable):
    assert usable_cores(cores, quota) == usable


@given(cores=st.integers(1, 512), quota=st.floats(0.01, 1024))
def test_usable_cores_stay_between_one_and_all(cores, quota):
    assert 1 <= usable_cores(cores, quota) <= cores
