"""Small readers of /proc and /sys, each with the tree's root as an argument so that a made-up tree can stand in.

A file that the kernel does not offer, or refuses to read (a link's speed while it is down), is None and not an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runner.core.node import Hca, Nic, NicKind

# Hardware types of /sys/class/net/*/type, from include/uapi/linux/if_arp.h.
_ARPHRD_ETHER, _ARPHRD_INFINIBAND, _ARPHRD_LOOPBACK = 1, 32, 772


def read_text(path: Path) -> str | None:
    """The stripped text of a file, or None where it is absent, unreadable or without a value."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """The integer that a file holds, or None."""
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
    """What /proc/cpuinfo says of the first processor, by key."""
    first, _, _ = (read_text(sys_root / "proc/cpuinfo") or "").partition("\n\n")
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def governors(sys_root: Path) -> tuple[str, ...]:
    """Governors of cpufreq in use; empty where the kernel does not set clocks (most virtual machines)."""
    files = (sys_root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({text for file in files if (text := read_text(file))}))


def read_nics(sys_root: Path, *, addresses: Mapping[str, str] | None = None) -> tuple[Nic, ...]:
    """Every network interface, by name; `addresses` are IPv4 addresses by interface, which no file tells."""
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
    # Only an interface that hardware backs has a `device`; bridges, veth pairs and tunnels live under devices/virtual.
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
    """PCI addresses of NVIDIA display and compute functions, whether or not a driver holds them."""
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
