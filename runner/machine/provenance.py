"""Where a figure comes from: the suite's commit, the machine, the driver, and the software inside the environment.

One small function a fact, each asking the machine itself. What the machine won't say is None; nothing is inferred from
something else. `collect` is called before a run (the load average is that of the machine left alone); what only the
training program knows is added afterwards from its `env` event by `Provenance.with_environment`.
"""

from __future__ import annotations

import hashlib
import math
import platform
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar

from pydantic import AwareDatetime, BaseModel, ConfigDict

import runner
from runner.engines.process import CommandError, run
from runner.events import Env
from runner.machine import hostfs
from runner.machine.cluster import Gpu, Hca, Nic, Node
from runner.machine.hostfs import read_int, read_text
from runner.machine.processor import Processor, read_processor

SUITE_ROOT = Path(runner.__file__).parents[1]


class Git(BaseModel):
    """State of the suite's own checkout; all None where it is not one.

    Attributes:
        commit: full hash of HEAD.
        dirty: whether any file but results differs from that commit; untracked files count, ignored ones do not.
        branch: None when HEAD is detached.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    of_many: ClassVar[bool] = True

    commit: str | None
    dirty: bool | None
    branch: str | None


class Host(BaseModel):
    """The machine, its operating system, and the settings of both that move a benchmark.

    Attributes:
        kernel: release of the running kernel.
        os: the distribution's name for itself.
        product: model of the machine in its firmware, of a virtual machine's too.
        virtualization: the hypervisor, "none" on bare metal.
        sockets: processor packages.
        cores: physical cores.
        threads: logical CPUs online.
        usable_threads: those that this process may run on.
        cpu_quota: cores' worth of CPU time that the control groups allow; None without a quota.
        memory_mib: memory that the kernel manages (MemTotal).
        governors: cpufreq governors in use, more than one where CPUs differ.
        cpu_current_mhz: mean over the online CPUs when the run began.
        cpu_max_mhz: highest clock that cpufreq would allow any CPU.
        boot_id: changes at each boot: runs with the same one shared an uptime.
        load_average_1min: runnable processes, averaged over the minute before the run.
        processor: its kind and instructions; None in records older than this field, and where the kernel does not tell.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    of_many: ClassVar[bool] = True

    hostname: str
    kernel: str
    architecture: str
    os: str | None
    product: str | None
    virtualization: str | None
    cpu_model: str | None
    sockets: int | None
    cores: int | None
    threads: int | None
    usable_threads: int
    cpu_quota: float | None
    numa_nodes: int | None
    memory_mib: int | None
    governors: tuple[str, ...] | None
    cpu_current_mhz: float | None
    cpu_max_mhz: float | None
    clocksource: str | None
    boot_id: str | None
    load_average_1min: float | None
    processor: Processor | None = None


class NodeUsed(BaseModel):
    """One node of a run on several: the same facts of each as of a run on one.

    Attributes:
        image_id: of the image in its own engine; None where all share one.
        clock_offset_s, clock_error_s: how far its clock was ahead of the runner's, and by how much that may be wrong; None on the
            runner's own machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    host: Host
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    hcas: tuple[Hca, ...]
    driver: str | None
    cuda_driver: str | None
    engine_version: str | None
    image_id: str | None
    clock_offset_s: float | None
    clock_error_s: float | None


class Provenance(BaseModel):
    """Everything that a figure's reader needs to make it again, beside the trial itself.

    Attributes:
        host: of the only node, or of the first.
        gpus: the GPUs that the run could use there.
        nodes: all nodes of a run on several; empty on one.
        driver: version of the NVIDIA kernel driver.
        cuda_driver: newest CUDA version that the driver speaks; `cuda` is the one the framework was built with.
        framework: this field and `python`, `cuda`, `cudnn`, `nccl` come from inside the run; None when it did not get that far.
        command: the argv that started the suite.
        workloads_sha256: hash over the names and contents of all training programs.
        recorded_at: when the machine was asked, before the run; UTC.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    git: Git
    host: Host
    gpus: tuple[Gpu, ...]
    nodes: tuple[NodeUsed, ...] = ()
    driver: str | None
    cuda_driver: str | None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    framework: str | None = None
    framework_version: str | None = None
    python: str | None = None
    command: tuple[str, ...]
    suite_version: str
    suite_python: str
    workloads_sha256: str
    recorded_at: AwareDatetime

    @property
    def one_machine(self) -> bool:
        """Whether nodes of the run share a machine: their kernels were booted at once."""
        boots = [node.host.boot_id for node in self.nodes if node.host.boot_id is not None]
        return len(set(boots)) < len(boots)

    def with_environment(self, env: Env) -> Provenance:
        """Add what the training program said of its own software."""
        said = {
            name: getattr(env, name) for name in ("cuda", "cudnn", "nccl", "framework", "framework_version", "python")
        }
        return self.model_copy(update=said)


def collect(
    *,
    node: Node,
    command: tuple[str, ...],
    host: Host | None = None,
    nodes: tuple[NodeUsed, ...] = (),
    suite_root: Path = SUITE_ROOT,
    sys_root: Path = Path("/"),
) -> Provenance:
    """Ask the machine for everything but what only the training program knows.

    Args:
        node: the machine, or the first of several.
        host: its own facts where it is not the machine that this runs on.
        nodes: all of them where there are several.
        command: the argv that started the suite.
        suite_root: the suite's checkout.
        sys_root: root of the /proc, /sys and /etc that are read; a made-up tree in tests.
    """
    return Provenance(
        git=read_git(suite_root),
        host=host or read_host(node, sys_root),
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


def read_git(checkout: Path) -> Git:
    """Read commit, state and branch of a checkout."""
    try:
        commit = run(["git", "-C", str(checkout), "rev-parse", "HEAD"], timeout_s=10).strip()
        # Records that land in the checkout are no part of what ran.
        changes = run(["git", "-C", str(checkout), "status", "--porcelain", "--", ":!results"], timeout_s=30)
        branch = run(["git", "-C", str(checkout), "rev-parse", "--abbrev-ref", "HEAD"], timeout_s=10).strip()
    except CommandError:  # git is not installed, this is no checkout, or it belongs to somebody else
        return Git(commit=None, dirty=None, branch=None)
    return Git(commit=commit, dirty=bool(changes.strip()), branch=None if branch == "HEAD" else branch)


def read_host(node: Node, sys_root: Path = Path("/")) -> Host:
    """Read the machine's own facts; `node` gives what this process may use of it."""
    cpus = _online_cpus(sys_root)
    memory_bytes = hostfs.memory_total_bytes(sys_root)
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
        governors=_governors(cpus),
        cpu_current_mhz=_current_mhz(cpus, sys_root),
        cpu_max_mhz=_max_mhz(cpus),
        clocksource=read_text(sys_root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        boot_id=read_text(sys_root / "proc/sys/kernel/random/boot_id"),
        load_average_1min=_load_average(sys_root),
        processor=read_processor(sys_root),
    )


def programs_sha256(workloads: Path) -> str:
    """Hash all training programs; studies, which only say what to run, change none of them."""
    return tree_sha256(workloads, without="studies")


def tree_sha256(root: Path, *, without: str | None = None) -> str:
    """Hash the names and contents of all files below `root`, but for one folder; compiled Python files do not count."""
    digest = hashlib.sha256()
    files = (
        path
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.relative_to(root).parts[0] != without
    )
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in files):
        content = path.read_bytes()
        # Lengths keep a name's end from being read as a content's beginning.
        digest.update(f"{len(name)}:{name}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _online_cpus(sys_root: Path) -> list[Path]:
    directory = sys_root / "sys/devices/system/cpu"
    return [directory / f"cpu{cpu}" for cpu in hostfs.parse_cpu_list(read_text(directory / "online") or "")]


def _distinct(cpus: list[Path], file: str) -> int | None:
    return len({text for cpu in cpus if (text := read_text(cpu / file)) is not None}) or None


def _governors(cpus: list[Path]) -> tuple[str, ...] | None:
    return tuple(sorted({text for cpu in cpus if (text := read_text(cpu / "cpufreq/scaling_governor"))})) or None


def _current_mhz(cpus: list[Path], sys_root: Path) -> float | None:
    """Mean current clock: cpufreq's where there is one, else the one in /proc/cpuinfo (a virtual machine's nominal clock)."""
    mhz = [khz / 1000 for cpu in cpus if (khz := read_int(cpu / "cpufreq/scaling_cur_freq"))]
    if not mhz:
        lines = (read_text(sys_root / "proc/cpuinfo") or "").splitlines()
        mhz = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return round(math.fsum(mhz) / len(mhz), 1) if mhz else None


def _max_mhz(cpus: list[Path]) -> float | None:
    return max((khz / 1000 for cpu in cpus if (khz := read_int(cpu / "cpufreq/cpuinfo_max_freq"))), default=None)


def _os_name(sys_root: Path) -> str | None:
    for line in (read_text(sys_root / "etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return None


def _virtualization(sys_root: Path) -> str | None:
    """Name the hypervisor. x86 processors tell a guest that it is one (CPUID leaf 1, ECX bit 31); others do not say."""
    if kind := read_text(sys_root / "sys/hypervisor/type"):  # xen
        return kind
    for line in (read_text(sys_root / "proc/cpuinfo") or "").splitlines():
        if line.startswith("flags"):
            if "hypervisor" not in line.split():
                return "none"
            vendor = read_text(sys_root / "sys/class/dmi/id/sys_vendor")
            return f"hypervisor ({vendor})" if vendor else "hypervisor"
    return None


def _load_average(sys_root: Path) -> float | None:
    text = read_text(sys_root / "proc/loadavg")
    return float(text.split()[0]) if text else None
