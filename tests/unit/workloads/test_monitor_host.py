"""Prevents: bytes of one disk or wire counted twice, the loopback taken for the network, energy that falls when a counter wraps, a
platform's energy added to that of its processors, a host without psutil or RAPL whose GPUs are not read."""

import os
from pathlib import Path

import events
import monitor_host
import psutil
from monitor_host import Host, Rapl, hardware_backed, selected


def memory_in_use_mib():
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(lines[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return (total - available) / 1024


def test_this_host_is_sampled(sampled):
    before = memory_in_use_mib()
    sampler = sampled("--gpus=", "--hz=20")
    rows = sampler.rows_of("host", 25)
    after = memory_in_use_mib()
    assert sampler.close() == 0
    (start,) = sampler.events("monitor_start")
    assert (start.cores, start.sources["psutil"]) == (os.cpu_count(), None)
    assert all(len(row["core_percent"]) == len(psutil.cpu_percent(percpu=True)) for row in rows)
    assert all(0 <= core <= 100 for row in rows for core in row["core_percent"])
    assert [row["t"] for row in rows] == sorted({row["t"] for row in rows})
    # Other processes come and go between the readings.
    assert min(before, after) - 2048 <= rows[0]["memory_mib"] <= max(before, after) + 2048
    for column in ("disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes"):
        counted = [row[column] for row in rows if column in row]
        assert len(counted) >= 2
        assert counted == sorted(counted)


def test_every_column_is_in_the_contract():
    assert all(column in events.__doc__ for column in Host().columns)


def test_a_sampler_without_psutil_still_reads_the_gpus(sampled, tmp_path):
    (tmp_path / "psutil.py").write_text("raise ImportError('not here')\n")
    sampler = sampled(nvml={}, modules=[tmp_path])
    row = sampler.rows_of("gpu0", 1)[0]
    assert sampler.close() == 0
    assert row["power_w"] == 298.765
    (start,) = sampler.events("monitor_start")
    assert start.sources["psutil"] == "psutil is not installed beside the sampler"
    fields = sampler.troubles("host")["psutil is not installed beside the sampler"]
    assert set(fields) == set(Host().columns) - {"energy_j"}


def test_the_first_cpu_share_is_not_the_one_since_boot():
    host = Host()
    host.begin()
    assert [0 <= core <= 100 for core in host.cores()[0]]


def test_only_hardware_devices_are_counted(tmp_path):
    for name in ("eth0/device", "docker0", "lo", "veth1"):
        (tmp_path / name).mkdir(parents=True)
    assert hardware_backed(tmp_path) == {"eth0"}
    assert hardware_backed(tmp_path / "nowhere") == frozenset()
    assert selected({"lo": 1, "eth0": 2, "docker0": 4}, {"eth0"}) == [2]


def test_without_hardware_all_but_the_loopback_is_counted():
    """A network namespace has one end of a veth pair as its network, and no device behind it."""
    assert selected({"lo": 1, "eth0": 2}, frozenset()) == [2]
    assert selected({"loop0": 1, "dm-0": 2}, frozenset()) == [2]
    assert selected({}, {"eth0"}) == []


def zone(root, name, *, kind, energy, span=262_143_328_850):
    folder = root / "class" / "powercap" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{kind}\n")
    (folder / "energy_uj").write_text(f"{energy}\n")
    (folder / "max_energy_range_uj").write_text(f"{span}\n")


def test_energy_of_two_packages_across_a_wrapping_counter(tmp_path):
    zone(tmp_path, "intel-rapl:0", kind="package-0", energy=1_000_000, span=5_000_000)
    zone(tmp_path, "intel-rapl:1", kind="package-1", energy=4_500_000, span=5_000_000)
    zone(tmp_path, "intel-rapl:2", kind="psys", energy=7_000_000)
    zone(tmp_path, "intel-rapl:0:0", kind="core", energy=9_000_000)
    zone(tmp_path, "intel-rapl-mmio:0", kind="package-0", energy=1_000_000)  # the same package by another interface
    rapl = Rapl(tmp_path)
    assert rapl.reason is None
    assert rapl.read() == [0.0]
    zone(tmp_path, "intel-rapl:0", kind="package-0", energy=1_250_000, span=5_000_000)
    zone(tmp_path, "intel-rapl:1", kind="package-1", energy=4_900_000, span=5_000_000)
    zone(tmp_path, "intel-rapl:2", kind="psys", energy=9_999_999)
    assert rapl.read() == [0.65]  # 0.25 + 0.4 J
    zone(tmp_path, "intel-rapl:1", kind="package-1", energy=100_000, span=5_000_000)
    assert rapl.read() == [0.85]  # 0.1 J to the end of the range and 0.1 J after it
    assert rapl.read() == [0.85]


def test_missing_energy_has_a_reason(tmp_path):
    assert Rapl(tmp_path).reason == "the kernel shows no RAPL package"
    zone(tmp_path, "intel-rapl:0", kind="package-0", energy=1)
    counter = tmp_path / "class" / "powercap" / "intel-rapl:0" / "energy_uj"
    counter.unlink()
    assert Rapl(tmp_path).reason == f"{counter}: No such file or directory"
    host = Host(tmp_path)
    assert host.sources["rapl"] == f"{counter}: No such file or directory"
    values = host.read(0.0)
    assert values["energy_j"].reason == host.sources["rapl"]
    assert isinstance(values["core_percent"], list)


def test_energy_is_a_column_of_the_host(tmp_path):
    zone(tmp_path, "intel-rapl:0", kind="package-0", energy=1_000_000)
    host = Host(tmp_path)
    zone(tmp_path, "intel-rapl:0", kind="package-0", energy=3_500_000)
    assert host.sources["rapl"] is None
    assert host.read(0.0)["energy_j"] == 2.5


def test_a_clock_that_the_kernel_does_not_report_is_missing(monkeypatch):
    monkeypatch.setattr(monitor_host.psutil, "cpu_freq", lambda: None)
    assert Host().clock()[0].reason == "the kernel tells no clock"
    monkeypatch.delattr(monitor_host.psutil, "cpu_freq")
    assert Host().clock()[0].reason == "the kernel tells no clock"
