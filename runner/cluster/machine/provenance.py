"""The provenance of a figure: the suite's commit, the machine, the driver, and the software inside the environment.

One small function per fact, each asking the machine itself. A fact that the machine does not tell is None; nothing is inferred from
something else. `collect` is called before a run, so that the load average is the idle machine's; `Provenance.with_environment` later adds
what only the training program knows, from its `env` event.
"""

from __future__ import annotations

import hashlib
import math
import platform
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import runner
from runner.cluster.machine import hostfs
from runner.cluster.machine.hostfs import read_int, read_text
from runner.core.node import Node, Processor
from runner.core.provenance import SUITE_ROOT, Host, NodeUsed, Provenance
from runner.engines.process import read_git

# Flags of /proc/cpuinfo that name vector and matrix instructions, the narrowest first.
VECTOR_FLAGS: Final = ("sse2", "avx", "fma", "avx2", "avx512f", "avx512_bf16", "amx_bf16")


def collect(
    *,
    node: Node,
    command: tuple[str, ...],
    host: Host | None = None,
    nodes: tuple[NodeUsed, ...] = (),
    suite_root: Path = SUITE_ROOT,
) -> Provenance:
    """Collect every fact except those that only the training program knows; `host` has another machine's facts."""
    return Provenance(
        git=read_git(suite_root),
        host=host or read_host(node),
        gpus=node.gpus,
        nodes=nodes,
        driver=node.driver,
        cuda_driver=node.cuda_driver,
        command=command,
        suite_version=runner.__version__,
        suite_python=platform.python_version(),
        workloads_sha256=programs_sha256(suite_root / "workloads"),
        recorded_at=datetime.now(timezone.utc),
    )


def read_host(node: Node, sys_root: Path = Path("/")) -> Host:
    """Read the machine's own facts; `node` has what this process may use of it."""
    cpus = _online_cpus(sys_root)
    memory_bytes, load = hostfs.memory_total_bytes(sys_root), read_text(sys_root / "proc/loadavg")
    return Host(
        hostname=socket.gethostname(),
        kernel=platform.release(),
        architecture=platform.machine(),
        os=_os_name(sys_root),
        product=read_text(sys_root / "sys/class/dmi/id/product_name") or read_text(sys_root / "proc/device-tree/model"),
        virtualization=_virtualization(sys_root),
        cpu_model=node.cpu_model,
        sockets=_distinct(cpus, "topology/physical_package_id"),
        cores=_distinct(cpus, "topology/thread_siblings_list"),
        threads=len(cpus) or None,
        usable_threads=len(node.cores),
        cpu_quota=node.cpu_quota,
        numa_nodes=len(list((sys_root / "sys/devices/system/node").glob("node[0-9]*"))) or None,
        memory_mib=None if memory_bytes is None else memory_bytes // 2**20,
        governors=hostfs.governors(sys_root) or None,
        cpu_current_mhz=_current_mhz(cpus, sys_root),
        cpu_max_mhz=max(_mhz(cpus, "cpuinfo_max_freq"), default=None),
        clocksource=read_text(sys_root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        boot_id=read_text(sys_root / "proc/sys/kernel/random/boot_id"),
        load_average_1min=float(load.split()[0]) if load else None,
        processor=read_processor(sys_root),
    )


def programs_sha256(workloads: Path) -> str:
    """Hash all training programs; studies, which only select what to run, are left out."""
    return tree_sha256(workloads, without="studies")


def tree_sha256(root: Path, *, without: str | None = None) -> str:
    """Hash names and contents of all files below `root`, except one top-level folder and compiled Python files."""
    digest = hashlib.sha256()
    files = (
        path
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.relative_to(root).parts[0] != without
    )
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in files):
        content = path.read_bytes()
        # Lengths separate the end of a name from the beginning of its content.
        digest.update(f"{len(name)}:{name}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _online_cpus(sys_root: Path) -> list[Path]:
    directory = sys_root / "sys/devices/system/cpu"
    return [directory / f"cpu{cpu}" for cpu in hostfs.parse_cpu_list(read_text(directory / "online") or "")]


def _distinct(cpus: list[Path], file: str) -> int | None:
    return len({text for cpu in cpus if (text := read_text(cpu / file)) is not None}) or None


def _mhz(cpus: list[Path], file: str) -> list[float]:
    return [khz / 1000 for cpu in cpus if (khz := read_int(cpu / "cpufreq" / file))]


def _current_mhz(cpus: list[Path], sys_root: Path) -> float | None:
    """Mean current clock: cpufreq's if there is one, else that of /proc/cpuinfo (a virtual machine's nominal clock)."""
    mhz = _mhz(cpus, "scaling_cur_freq")
    if not mhz:
        lines = (read_text(sys_root / "proc/cpuinfo") or "").splitlines()
        mhz = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return round(math.fsum(mhz) / len(mhz), 1) if mhz else None


def _os_name(sys_root: Path) -> str | None:
    for line in (read_text(sys_root / "etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return None


def _virtualization(sys_root: Path) -> str | None:
    """Name the hypervisor. x86 processors tell a guest that it is one (CPUID leaf 1, ECX bit 31); others do not say."""
    if kind := read_text(sys_root / "sys/hypervisor/type"):  # xen
        return kind
    flags = hostfs.first_processor(sys_root).get("flags")
    if flags is None:
        return None
    if "hypervisor" not in flags.split():
        return "none"
    vendor = read_text(sys_root / "sys/class/dmi/id/sys_vendor")
    return f"hypervisor ({vendor})" if vendor else "hypervisor"


def read_processor(sys_root: Path = Path("/")) -> Processor | None:
    """Describe the first processor; None if /proc/cpuinfo lacks its vendor, family or model."""
    cpuinfo = hostfs.first_processor(sys_root)
    family, model = cpuinfo.get("cpu family", ""), cpuinfo.get("model", "")
    if "vendor_id" not in cpuinfo or not family.isdigit() or not model.isdigit():
        return None
    flags = set(cpuinfo.get("flags", "").split())
    threads = [read_text(cpu / "topology/thread_siblings_list") for cpu in _online_cpus(sys_root)]
    return Processor(
        vendor=cpuinfo["vendor_id"],
        family=int(family),
        model=int(model),
        flags=tuple(flag for flag in VECTOR_FLAGS if flag in flags),
        core_threads=tuple(dict.fromkeys(found for found in threads if found)),
    )
