"""What the control groups leave to this process: cores, CPU time and memory, under cgroup v1, v2 or both.

A machine with 64 cores may hand a container two; planning for 64 would oversubscribe it and measure the queue.
Limits are inherited, so each is the tightest over the process's group and its ancestors (cgroups(7)). Reads only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from runner.cluster.machine.hostfs import parse_cpu_list, read_text

_V1_UNLIMITED = 1 << 60  # v1 writes "no limit" as the largest page-aligned integer, 0x7ffffffffffff000


@dataclass(frozen=True, kw_only=True)
class CgroupLimits:
    """The limits that bind this process; None where there is none."""

    cpus: frozenset[int] | None
    cpu_quota: float | None  # cores' worth of CPU time each period: 1.5 is one and a half cores
    memory_bytes: int | None


def read_limits(sys_root: Path = Path("/")) -> CgroupLimits:
    """Read the limits of the calling process below `sys_root` (a made-up tree in tests)."""
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

    The key "" is the unified (v2) one.
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
    """Map each controller to (the group that is mounted, where), from proc_pid_mountinfo(5)."""
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
    """Whole cores that may be kept busy at once: the core count, or fewer under a quota; never less than one."""
    return cores if cpu_quota is None else max(1, min(cores, math.floor(cpu_quota)))
