"""Readers of /proc and /sys.

Prevents: a crash on a link that is down (its speed can't be read); a bridge or veth pair taken for hardware;
/sys/class/net/bonding_masters, a file, taken for an interface; an IPoIB interface taken for Ethernet.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_machine import write_tree

from runner.cluster.machine import hostfs
from runner.core.node import Hca, Nic


def interface(
    name: str, *, hardware: int = 1, speed: str = "25000", state: str = "up", backed: bool = True, **extra: str
) -> dict:
    base = f"sys/class/net/{name}"
    files = {f"{base}/type": str(hardware), f"{base}/operstate": state, f"{base}/speed": speed, f"{base}/mtu": "1500"}
    if backed:
        files[f"{base}/device/vendor"] = "0x15b3"
    return files | {f"{base}/{path}": text for path, text in extra.items()}


@pytest.mark.parametrize(
    ("files", "changes"),
    [
        (interface("eth0"), {}),
        (interface("eth1", speed="-1"), {"speed_mbit": None}),
        (interface("ib0", hardware=32, speed="200000"), {"speed_mbit": 200000, "kind": "infiniband"}),
        (interface("lo", hardware=772, state="unknown", backed=False), {"state": "unknown", "kind": "loopback"}),
        (interface("docker0", backed=False), {"kind": "virtual"}),
        (interface("bond0", backed=False, **{"bonding/mode": "802.3ad 4"}), {"kind": "bond"}),
        (interface("wlan0", **{"wireless/link": "70"}), {"kind": "wireless"}),
    ],
)
def test_interfaces_are_classified(tmp_path, files, changes):
    write_tree(tmp_path, files | {"sys/class/net/bonding_masters": "bond0"})
    name = next(iter(files)).split("/")[3]
    facts = {"name": name, "state": "up", "speed_mbit": 25000, "mtu": 1500, "kind": "ethernet"}
    assert hostfs.read_nics(tmp_path) == (Nic.model_validate(facts | changes),)
    speed = tmp_path / f"sys/class/net/{name}/speed"
    speed.unlink()
    speed.mkdir()  # reading a directory raises OSError, like the kernel's EINVAL; root may read any file
    assert hostfs.read_nics(tmp_path)[0].speed_mbit is None


def test_adapters_are_listed_port_by_port(tmp_path):
    ports = "sys/class/infiniband/mlx5_0/ports"
    write_tree(
        tmp_path,
        {
            f"{ports}/1/state": "4: ACTIVE",
            f"{ports}/1/link_layer": "InfiniBand",
            f"{ports}/1/rate": "400 Gb/sec (4X NDR)",
            f"{ports}/2/state": "1: DOWN",
            f"{ports}/2/link_layer": "Ethernet",
            f"{ports}/2/rate": "40 Gb/sec (4X QDR)",
        },
    )
    assert hostfs.read_hcas(tmp_path) == (
        Hca(name="mlx5_0", port=1, state="ACTIVE", link_layer="InfiniBand", rate="400 Gb/sec (4X NDR)"),
        Hca(name="mlx5_0", port=2, state="DOWN", link_layer="Ethernet", rate="40 Gb/sec (4X QDR)"),
    )


def test_nvidia_pci_functions_are_only_gpus(tmp_path):
    """An NVIDIA card's audio function and another vendor's display are no NVIDIA GPUs."""
    bus = "sys/bus/pci/devices"
    write_tree(
        tmp_path,
        {
            f"{bus}/0000:01:00.0/vendor": "0x10de",
            f"{bus}/0000:01:00.0/class": "0x030200",
            f"{bus}/0000:01:00.1/vendor": "0x10de",
            f"{bus}/0000:01:00.1/class": "0x040300",
            f"{bus}/0000:02:00.0/vendor": "0x1a03",
            f"{bus}/0000:02:00.0/class": "0x030000",
        },
    )
    assert hostfs.nvidia_pci_functions(tmp_path) == ("0000:01:00.0",)


def test_memory_and_processor(tmp_path):
    write_tree(
        tmp_path,
        {
            "proc/meminfo": "MemTotal:       24684084 kB\nMemFree:        1 kB",
            "proc/cpuinfo": "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654",
        },
    )
    assert hostfs.memory_total_bytes(tmp_path) == 25_276_502_016  # 24,684,084 x 1024
    assert hostfs.first_processor(tmp_path)["model name"] == "AMD EPYC 9654"


@pytest.mark.parametrize(("text", "cpus"), [("0-2,8", (0, 1, 2, 8)), ("5", (5,)), ("", ()), ("0,2-3", (0, 2, 3))])
def test_cpu_lists(text, cpus):
    assert hostfs.parse_cpu_list(text) == cpus


@pytest.mark.parametrize(("zone", "counts"), [("intel-rapl:0", True), ("dtpm", False)])
def test_energy_is_counted_if_there_is_a_rapl_zone(tmp_path, zone, counts):
    write_tree(tmp_path, {f"sys/class/powercap/{zone}/name": "package-0"})
    assert hostfs.counts_energy(tmp_path) == counts


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpu_lists_of_single_numbers_round_trip(cpus):
    assert hostfs.parse_cpu_list(",".join(map(str, sorted(cpus)))) == tuple(sorted(cpus))
