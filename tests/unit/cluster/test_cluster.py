"""The description of a machine.

Prevents: a plan with cores, memory or GPUs that this process may not use; two jobs on the same port; a free-disk check that fails
because the directory does not exist yet; limits read in the wrong unit; a doctor that crashes on a machine without cpufreq, thermal counters
or /dev/shm.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from made_up_machine import Card, FakeNvml, write_tree

from runner.cluster.machine.local_node import inspect_local, take_vitals
from runner.cluster.machine.snapshot import free_ports
from runner.core.cache import free_mib

MACHINE = {
    "proc/meminfo": "MemTotal:       16777216 kB",
    "proc/cpuinfo": "model name\t: Xeon",
    "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    "proc/self/cgroup": "0::/",
}


@pytest.fixture(autouse=True)
def _no_mask(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_usable_cores_are_in_both_affinity_and_cgroup(tmp_path):
    write_tree(tmp_path, MACHINE | {"sys/fs/cgroup/cpuset.cpus.effective": "2-9"})
    assert inspect_local(sys_root=tmp_path, nvml=FakeNvml([]), affinity=range(6)).cores == (2, 3, 4, 5)


def test_a_quota_leaves_only_the_cores_that_it_can_keep_busy(tmp_path):
    """`docker run --cpus 2.5` on 64 cores: 64 threads would be throttled most of the time."""
    write_tree(tmp_path, MACHINE | {"sys/fs/cgroup/cpu.max": "250000 100000"})
    node = inspect_local(sys_root=tmp_path, nvml=FakeNvml([]), affinity=range(64))
    assert (node.cores, node.cpu_quota) == ((0, 1), 2.5)


@pytest.mark.parametrize(("limit", "memory_mib"), [("max", 16384), ("2147483648", 2048), ("99999999999999", 16384)])
def test_memory_is_the_lower_of_installed_and_allowed(tmp_path, limit, memory_mib):
    write_tree(tmp_path, MACHINE | {"sys/fs/cgroup/memory.max": limit})
    assert inspect_local(sys_root=tmp_path, nvml=FakeNvml([]), affinity=[0]).memory_mib == memory_mib


def test_gpus_obey_cuda_visible_devices(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    node = inspect_local(
        sys_root=write_tree(tmp_path, MACHINE), nvml=FakeNvml([Card("GPU-a"), Card("GPU-b")]), affinity=[0]
    )
    assert [(gpu.index, gpu.uuid) for gpu in node.gpus] == [(1, "GPU-b")]
    assert (node.driver, node.cuda_driver, node.gpu_reason) == ("580.159.03", "13.0", None)


def test_this_machine_agrees_with_psutil():
    node = inspect_local()
    assert node.name == socket.gethostname()
    assert set(node.cores) <= os.sched_getaffinity(0)
    assert 0 < node.memory_mib <= psutil.virtual_memory().total // 2**20
    # Containers of other tests start and end, and their veth pairs with them: only lasting interfaces are compared.
    lasting = {nic.name: nic.mtu for nic in node.nics if nic.kind != "virtual"}
    stats = psutil.net_if_stats()
    assert lasting == {name: stats[name].mtu for name in lasting}
    assert "lo" in lasting
    assert bool(node.gpus) is (node.gpu_reason is None)


def test_free_ports_can_be_bound_and_used_ones_are_not_returned():
    ports = []
    with ExitStack() as held:
        for _ in range(5):
            for port in free_ports(4):
                ports.append(port)
                listener = held.enter_context(socket.socket())
                listener.bind(("127.0.0.1", port))
                listener.listen()
    assert len(set(ports)) == 20


def test_free_space_is_that_of_the_nearest_existing_parent(tmp_path):
    expected = shutil.disk_usage(tmp_path).free // 2**20
    assert free_mib(tmp_path / "not/made/yet") == pytest.approx(expected, abs=256)  # others write meanwhile


def test_governors_throttling_and_gpus_of_a_fake_machine(tmp_path):
    cpu = "sys/devices/system/cpu"
    write_tree(
        tmp_path,
        {
            f"{cpu}/cpu0/cpufreq/scaling_governor": "powersave",
            f"{cpu}/cpu1/cpufreq/scaling_governor": "performance",
            f"{cpu}/cpu10/cpufreq/scaling_governor": "powersave",
            f"{cpu}/cpu0/thermal_throttle/core_throttle_count": "12",
            f"{cpu}/cpu1/thermal_throttle/core_throttle_count": "0",
            f"{cpu}/cpu10/thermal_throttle/core_throttle_count": "3",
            "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de",
            "sys/bus/pci/devices/0000:01:00.0/class": "0x030200",
        },
    )
    nvml = FakeNvml([Card("GPU-a", reasons=0x80)])
    node = inspect_local(sys_root=tmp_path, nvml=nvml)
    vitals = take_vitals(node, images=None, cache=tmp_path, results=tmp_path / "results", sys_root=tmp_path, nvml=nvml)
    assert vitals.governors == ("performance", "powersave")
    assert vitals.throttled_cores == 2
    assert vitals.nvidia_pci == ("0000:01:00.0",)
    assert [(gpu.index, gpu.slowdowns) for gpu in vitals.gpus] == [(0, ("power brake",))]
    assert [disk.purpose for disk in vitals.disks] == ["cache", "results"]
    assert vitals.shm_mib is None


def test_this_machines_condition_agrees_with_the_standard_library(tmp_path):
    vitals = take_vitals(inspect_local(), images=tmp_path, cache=tmp_path, results=tmp_path)
    assert vitals.load_average_1min == pytest.approx(os.getloadavg()[0], abs=1.0)
    if Path("/dev/shm").is_dir():
        assert vitals.shm_mib == shutil.disk_usage("/dev/shm").total // 2**20
    assert vitals.disks[0].free_mib == pytest.approx(shutil.disk_usage(tmp_path).free // 2**20, abs=256)


@pytest.mark.parametrize(("limit", "mib"), [(8 * 2**20, 8), (resource.RLIM_INFINITY, None)])
def test_locked_memory_is_in_mib_and_none_when_unlimited(tmp_path, monkeypatch, limit, mib):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert take_vitals(inspect_local(), images=None, cache=tmp_path, results=tmp_path).memlock_mib == mib


def test_a_bare_machine_has_no_governors_and_no_counters(tmp_path):
    nvml = FakeNvml([], broken="none")
    node = inspect_local(sys_root=tmp_path, nvml=nvml)
    vitals = take_vitals(node, images=tmp_path, cache=tmp_path, results=tmp_path, sys_root=tmp_path, nvml=nvml)
    assert (vitals.governors, vitals.throttled_cores, vitals.gpus, vitals.nvidia_pci) == ((), None, (), ())
    assert (node.nics, node.hcas, node.memory_mib, node.cpu_model) == ((), (), 0, None)
