"""Where a figure comes from, typed: the suite's commit, the host, the driver and the software. `cluster` collects it."""

from __future__ import annotations

from pathlib import Path

from pydantic import AwareDatetime

import runner
from runner.core.events import Env
from runner.core.frozen import Frozen
from runner.core.node import Gpu, Hca, Nic, Processor

SUITE_ROOT = Path(runner.__file__).parents[1]


class Git(Frozen):
    """State of the suite's own checkout; all None where it is not one.

    Attributes:
        dirty: whether any file but results differs from `commit`; untracked files count, ignored ones do not.
        branch: None when HEAD is detached.
    """

    commit: str | None
    dirty: bool | None
    branch: str | None


class Host(Frozen):
    """The machine, its operating system, and the settings of both that move a benchmark.

    Attributes:
        product: model of the machine in its firmware, of a virtual machine's too.
        virtualization: the hypervisor, "none" on bare metal.
        cores: physical cores.
        threads: logical CPUs online.
        cpu_quota: cores' worth of CPU time that the control groups allow; None without a quota.
        memory_mib: memory that the kernel manages (MemTotal).
        governors: cpufreq governors in use, more than one where CPUs differ.
        cpu_current_mhz: mean over the online CPUs when the run began.
        cpu_max_mhz: highest clock that cpufreq would allow any CPU.
        boot_id: changes at each boot: runs with the same one shared an uptime.
        load_average_1min: runnable processes, averaged over the minute before the run.
        processor: its kind and instructions; None in records older than this field, and where the kernel does not tell.
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
    """One node of a run on several: the same facts of each as of a run on one.

    `clock_offset_s` is how far its clock was ahead of the runner's, give or take `clock_error_s`; None on the runner's own machine.
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
    """Everything that a figure's reader needs to make it again, beside the trial itself.

    Attributes:
        host: of the only node, or of the first.
        gpus: the GPUs that the run could use there.
        nodes: all nodes of a run on several; empty on one.
        cuda_driver: newest CUDA version that the driver speaks; `cuda` is the one the framework was built with.
        framework: this field and `python`, `cuda`, `cudnn`, `nccl` come from inside the run; None when it did not get that far.
        command: the argv that started the suite.
        workloads_sha256: hash over the names and contents of all training programs.
        recorded_at: when the machine was asked, before the run; UTC.
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
        """Whether nodes of the run share a machine: their kernels were booted at once."""
        boots = [node.host.boot_id for node in self.nodes if node.host.boot_id is not None]
        return len(set(boots)) < len(boots)

    def with_environment(self, env: Env) -> Provenance:
        """Add what the training program said of its own software."""
        said = {
            name: getattr(env, name) for name in ("cuda", "cudnn", "nccl", "framework", "framework_version", "python")
        }
        return self.model_copy(update=said)
