"""Types of a figure's provenance: the suite's commit, the host, the driver and the software. `cluster` collects them."""

from __future__ import annotations

from pathlib import Path

from pydantic import AwareDatetime

import runner
from runner.core.events import Env
from runner.core.frozen import Frozen
from runner.core.node import Gpu, Hca, Nic, Processor

SUITE_ROOT = Path(runner.__file__).parents[1]


class Git(Frozen):
    """State of the suite's own checkout; all None if it is not a git checkout.

    Attributes:
        dirty: whether any file outside results differs from `commit`; untracked files count, ignored files do not.
        branch: None if HEAD is detached.
    """

    commit: str | None
    dirty: bool | None
    branch: str | None


class Host(Frozen):
    """The machine, its operating system, and their settings that affect a benchmark.

    Attributes:
        product: model of the machine, physical or virtual, as its firmware reports it.
        virtualization: the hypervisor; "none" on bare metal.
        cores: physical cores.
        threads: logical CPUs online.
        cpu_quota: CPU time that the control groups allow, in cores; None without a quota.
        memory_mib: memory that the kernel manages (MemTotal).
        governors: cpufreq governors in use; several if CPUs differ.
        cpu_current_mhz: mean over the online CPUs just before the run.
        cpu_max_mhz: highest clock of any CPU by cpufreq (cpuinfo_max_freq), whatever limit is set.
        boot_id: changes at each boot, so that runs with the same one share an uptime.
        load_average_1min: runnable processes, averaged over the minute before the run.
        processor: its model and instruction sets; None in records older than this field, or if the kernel does not report them.
    """

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


class NodeUsed(Frozen):
    """One node of a run on several, with the facts that a run on one node records.

    `clock_offset_s` is the time by which its clock was ahead of the runner's, ± `clock_error_s`; None on the runner's own machine.
    """

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


class Provenance(Frozen):
    """Everything, in addition to the trial, that a reader needs to reproduce a figure.

    Attributes:
        host: the only node, or the first.
        gpus: the GPUs that the run could use there.
        nodes: all nodes of a run on several; empty on one.
        cuda_driver: newest CUDA version that the driver supports; `cuda` is the version that the framework was built with.
        framework: this field and `python`, `cuda`, `cudnn`, `nccl` come from the training program; None if it did not report them.
        command: the argv that started the suite.
        workloads_sha256: hash over the names and contents of all training programs.
        recorded_at: when the machine was inspected, before the run; UTC.
    """

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
        """Whether some nodes of the run share a machine: they have the same boot id."""
        boots = [node.host.boot_id for node in self.nodes if node.host.boot_id is not None]
        return len(set(boots)) < len(boots)

    def with_environment(self, env: Env) -> Provenance:
        """Add the software versions that the training program reported."""
        reported = {
            name: getattr(env, name) for name in ("cuda", "cudnn", "nccl", "framework", "framework_version", "python")
        }
        return self.model_copy(update=reported)
