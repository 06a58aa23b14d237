"""Readers of /proc and /sys: cores, adapters, control groups. Each takes the tree's root as an argument, so that tests can use a fake tree.

A file that the kernel lacks, or refuses to read (a link's speed while it is down), is None and not an error. A machine with 64 cores may
give a container two; a plan for 64 would oversubscribe them and measure the queue. Control groups (v1, v2 or both) tell how many: their
limits are inherited, so each is the tightest over the process's group and its ancestors (cgroups(7)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from runner.core.node import Hca, Nic, NicKind

# Hardware types of /sys/class/net/*/type, from include/uapi/linux/if_arp.h.
_ARPHRD_ETHER, _ARPHRD_INFINIBAND, _ARPHRD_LOOPBACK = 1, 32, 772


def read_text(path: Path) -> str | None:
    """The stripped text of a file; None if it is absent or the kernel refuses to read it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """The integer in a file, or None."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Expand the kernel's list format: ``"0-2,8"`` gives ``(0, 1, 2, 8)``."""
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first:
            cpus += range(int(first), int(last or first) + 1)
    return tuple(cpus)


def memory_total_bytes(sys_root: Path) -> int | None:
    """MemTotal of /proc/meminfo in bytes."""
    for line in (read_text(sys_root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def first_processor(sys_root: Path) -> dict[str, str]:
    """The first processor's entry in /proc/cpuinfo, by key."""
    first, _, _ = (read_text(sys_root / "proc/cpuinfo") or "").partition("\n\n")
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def counts_energy(sys_root: Path) -> bool:
    """Whether there is an energy counter (Documentation/power/powercap); AMD's are called intel-rapl too."""
    return any((sys_root / "sys/class/powercap").glob("intel-rapl:*"))


def governors(sys_root: Path) -> tuple[str, ...]:
    """The cpufreq governors in use; empty if the kernel does not set clocks (most virtual machines)."""
    files = (sys_root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({text for file in files if (text := read_text(file))}))


def read_nics(sys_root: Path, *, addresses: Mapping[str, str] | None = None) -> tuple[Nic, ...]:
    """Every network interface, by name; `addresses` are the IPv4 addresses by interface, which no file contains."""
    found = []
    for directory in _directories(sys_root / "sys/class/net"):
        speed = read_int(directory / "speed")
        found.append(
            Nic(
                name=directory.name,
                state=read_text(directory / "operstate") or "unknown",
                speed_mbit=speed if speed and speed > 0 else None,  # -1: the driver does not know
                mtu=read_int(directory / "mtu") or 0,
                kind=_nic_kind(directory),
                address=(addresses or {}).get(directory.name),
            )
        )
    return tuple(found)


def _nic_kind(directory: Path) -> NicKind:
    hardware = read_int(directory / "type")
    if hardware == _ARPHRD_LOOPBACK:
        return "loopback"
    if hardware == _ARPHRD_INFINIBAND:
        return "infiniband"
    if (directory / "bonding").is_dir():
        return "bond"
    # Only an interface backed by hardware has a `device`; bridges, veth pairs and tunnels are under devices/virtual.
    if not (directory / "device").exists():
        return "virtual"
    if (directory / "wireless").is_dir():
        return "wireless"
    return "ethernet" if hardware == _ARPHRD_ETHER else "other"


def read_hcas(sys_root: Path) -> tuple[Hca, ...]:
    """Every port of every RDMA adapter, by name and number."""
    return tuple(
        Hca(
            name=adapter.name,
            port=int(port.name),
            state=(read_text(port / "state") or "").partition(": ")[2] or "unknown",  # "4: ACTIVE"
            link_layer=read_text(port / "link_layer") or "unknown",
            rate=read_text(port / "rate") or "unknown",
        )
        for adapter in _directories(sys_root / "sys/class/infiniband")
        for port in _directories(adapter / "ports")
    )


def nvidia_pci_functions(sys_root: Path) -> tuple[str, ...]:
    """PCI addresses of NVIDIA display and compute functions, with or without a driver."""
    return tuple(
        function.name
        for function in _directories(sys_root / "sys/bus/pci/devices")
        if read_text(function / "vendor") == "0x10de" and (read_text(function / "class") or "").startswith("0x03")
    )


def _directories(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except OSError:
        return []


_V1_UNLIMITED = 1 << 60  # v1 writes "no limit" as the largest page-aligned integer, 0x7ffffffffffff000


@dataclass(frozen=True, kw_only=True)
class CgroupLimits:
    """The limits that bind this process; None for unlimited."""

    cpus: frozenset[int] | None
    cpu_quota: float | None  # cores' worth of CPU time each period: 1.5 is one and a half cores
    memory_bytes: int | None


def read_limits(sys_root: Path = Path("/")) -> CgroupLimits:
    """Read the limits of the calling process below `sys_root` (a fake tree in tests)."""
    quotas: list[float] = []
    memory: list[int] = []
    cpus: frozenset[int] | None = None
    for controller, lineage in _own_groups(sys_root).items():
        for directory in lineage:
            quotas += _quota(directory)
            memory += _memory(directory)
            if cpus is None and controller in ("cpuset", ""):
                cpus = _cpus(directory)
    return CgroupLimits(cpus=cpus, cpu_quota=min(quotas, default=None), memory_bytes=min(memory, default=None))


def _own_groups(sys_root: Path) -> dict[str, list[Path]]:
    """Directories of this process's group for each controller, and of its ancestors up to the mount, nearest first.

    The key "" is the unified (v2) hierarchy.
    """
    mounts = controller_mounts(sys_root)
    groups: dict[str, list[Path]] = {}
    for line in (read_text(sys_root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in mounts:
                mount_root, mount = mounts[controller]
                below = _below(mount, mount_root, PurePosixPath(path)).relative_to(mount)
                groups[controller] = [mount / below, *(mount / parent for parent in below.parents)]
    return groups


def controller_mounts(sys_root: Path) -> dict[str, tuple[PurePosixPath, Path]]:
    """Map each controller to (the mounted group, its mount point), from proc_pid_mountinfo(5)."""
    mounts: dict[str, tuple[PurePosixPath, Path]] = {}
    for line in (read_text(sys_root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        fields = before.split()
        place = (PurePosixPath(fields[3]), sys_root / fields[4].lstrip("/"))
        for controller in [""] if kind == "cgroup2" else options.split(","):
            mounts[controller] = place
    return mounts


def _below(mount: Path, mount_root: PurePosixPath, group: PurePosixPath) -> Path:
    """Translate a group's path to a directory; a container sees its own group mounted as the root."""
    if group.is_relative_to(mount_root):
        directory = mount.joinpath(*group.relative_to(mount_root).parts)
        if directory.is_dir():
            return directory
    return mount


def _quota(directory: Path) -> list[float]:
    v2 = (read_text(directory / "cpu.max") or "").split()
    if v2 and v2[0] != "max":
        return [int(v2[0]) / int(v2[1])]
    quota_us = read_text(directory / "cpu.cfs_quota_us")
    period_us = read_text(directory / "cpu.cfs_period_us")
    if quota_us and period_us and int(quota_us) > 0:  # -1: no quota
        return [int(quota_us) / int(period_us)]
    return []


def _memory(directory: Path) -> list[int]:
    limits = [read_text(directory / name) for name in ("memory.max", "memory.limit_in_bytes")]
    return [int(limit) for limit in limits if limit and limit != "max" and int(limit) < _V1_UNLIMITED]


def _cpus(directory: Path) -> frozenset[int] | None:
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
        if listed := read_text(directory / name):
            return frozenset(parse_cpu_list(listed))
    return None


def usable_cores(cores: int, cpu_quota: float | None) -> int:
    """Whole cores that can be busy concurrently: the core count, or fewer under a quota; at least one."""
    return cores if cpu_quota is None else max(1, min(cores, math.floor(cpu_quota)))
