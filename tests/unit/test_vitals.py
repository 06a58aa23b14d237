"""The state of the machine.

Prevents: limits read in the wrong unit; a machine without cpufreq, thermal counters or /dev/shm ending `dlscale doctor`.
"""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

import pytest
from made_up_machine import Card, FakeNvml, write_tree

from runner.cluster.machine.local_node import inspect_local
from runner.cluster.machine.vitals import take_vitals


def test_governors_throttling_and_gpus_of_a_made_up_machine(tmp_path):
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


def test_a_bare_machine_has_no_governors_and_no_counters(tmp_path):
    nvml = FakeNvml([], broken="none")
    node = inspect_local(sys_root=tmp_path, nvml=nvml)
    vitals = take_vitals(node, images=tmp_path, cache=tmp_path, results=tmp_path, sys_root=tmp_path, nvml=nvml)
    assert (vitals.governors, vitals.throttled_cores, vitals.gpus, vitals.nvidia_pci) == ((), None, (), ())


def test_this_machine_as_others_see_it(tmp_path):
    vitals = take_vitals(inspect_local(), images=tmp_path, cache=tmp_path, results=tmp_path)
    assert vitals.load_average_1min == pytest.approx(os.getloadavg()[0], abs=1.0)
    if Path("/dev/shm").is_dir():
        assert vitals.shm_mib == shutil.disk_usage("/dev/shm").total // 2**20
    assert vitals.disks[0].free_mib == pytest.approx(shutil.disk_usage(tmp_path).free // 2**20, abs=256)


@pytest.mark.parametrize(("limit", "mib"), [(8 * 2**20, 8), (resource.RLIM_INFINITY, None)])
def test_locked_memory_is_in_mib_and_none_when_unlimited(tmp_path, monkeypatch, limit, mib):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert take_vitals(inspect_local(), images=None, cache=tmp_path, results=tmp_path).memlock_mib == mib
