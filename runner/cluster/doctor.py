"""What this machine can run, what it can't, and what would spoil a measurement on it.

`diagnose` is pure: it judges what `cluster`, `vitals`, the engines and the catalog have read, each judgement one sentence
with the next step. `warn` is worth reading before a benchmark; `bad` means that nothing, or not what was paid for, can run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import TypeAdapter

from runner.cluster.machine.nvml import GpuHealth
from runner.cluster.machine.vitals import Vitals
from runner.core.frozen import Frozen
from runner.core.node import Hca, Nic, Node
from runner.engines.base import EngineFacts

Level = Literal["ok", "warn", "bad"]

_MEMORY_MIB = 2048
"""ResNet-18 at 32x32 with two workers peaks near 1.5 GiB in MXNet; less than this swaps or is killed."""
_RESULTS_MIB = 512
"""Records and logs of a long sweep with telemetry."""
_SHM_MIB = 64
"""Docker's own default, known to be too small for data loaders that pass batches between processes."""
_MEMLOCK_MIB = 1024
"""RDMA pins every buffer that it sends from; the usual 8 MiB end in "ibv_reg_mr failed"."""
_BUSY = 0.5
"""Load a core above which something else is taking part in the measurement."""


class Finding(Frozen):
    """One judgement.

    Attributes:
        subject: what it is about: "engine docker", "GPU 0", "image mxnet 1.9.1".
        sentence: what was found.
        next_step: what to do about it; None when all is well.
    """

    level: Level
    subject: str
    sentence: str
    next_step: str | None = None


class ImageFit(Frozen):
    """Whether an image can run on this machine's devices.

    Attributes:
        name: framework and version, "mxnet 1.9.1".
        size_mib: disk that it takes.
        misfit: why it can't run here; None when it can.
    """

    name: str
    size_mib: int
    misfit: str | None


def diagnose(
    *, node: Node, vitals: Vitals, engines: Sequence[EngineFacts], images: Sequence[ImageFit]
) -> tuple[Finding, ...]:
    """Judge the machine; the order is that of the report."""
    return (
        *_engines(node, engines),
        *gpu_findings(node, health=vitals.gpus, nvidia_pci=vitals.nvidia_pci),
        *_processor(node, vitals),
        *_memory(node, vitals),
        *wire_findings([nic for nic in node.nics if nic.kind not in ("loopback", "virtual")], node.hcas),
        *_disks(vitals, images),
        *_images(images),
    )


def to_json(findings: Sequence[Finding]) -> str:
    """The findings as a JSON array, for other programs."""
    return TypeAdapter(tuple[Finding, ...]).dump_json(tuple(findings), indent=2).decode()


def _engines(node: Node, engines: Sequence[EngineFacts]) -> Iterator[Finding]:
    # What is installed on the machine runs where it is asked for, and never in place of something else.
    fallback = next((engine.name for engine in engines if engine.available and engine.name != "host"), None)
    for engine in engines:
        subject = f"engine {engine.name}"
        if not engine.available:
            level: Level = "warn" if fallback else "bad"
            step = (
                "apt-get install docker.io, start it, and add yourself to the group docker"
                if engine.name == "docker"
                else None
            )
            instead = f"; runs use {fallback} meanwhile" if fallback else "; nothing can run"
            yield Finding(
                level=level, subject=subject, sentence=f"{engine.reason or 'not available'}{instead}", next_step=step
            )
            continue
        answers = f"answers, version {engine.version}"
        if engine.name == "venv":
            yield Finding(
                level="ok", subject=subject, sentence=f"can run jobs without containers, Python {engine.version}"
            )
        elif engine.name == "host":
            yield Finding(level="ok", subject=subject, sentence=f"can run {engine.version} as it is, where asked for")
        elif engine.podman:
            yield Finding(
                level="bad" if node.gpus else "warn",
                subject=subject,
                sentence=f"{answers}; it is {engine.podman} behind Docker's API, which ignores requests for GPUs and may leave an MXNet "
                "scheduler running",
                next_step="start Docker and set DOCKER_HOST to its socket, or run with ENGINE=venv or ENGINE=host",
            )
        elif not node.gpus:
            yield Finding(level="ok", subject=subject, sentence=answers)
        elif engine.gpu_request is None:
            yield Finding(
                level="bad",
                subject=subject,
                sentence=f"{answers}, but it has neither NVIDIA's runtime nor CDI device names, so containers get no GPU",
                next_step="install nvidia-container-toolkit, then `nvidia-ctk runtime configure --runtime=docker` and restart docker",
            )
        else:
            way = "NVIDIA's runtime" if engine.gpu_request == "nvidia" else "CDI device names"
            yield Finding(level="ok", subject=subject, sentence=f"{answers}, hands out GPUs by {way}")


def gpu_findings(node: Node, *, health: Sequence[GpuHealth], nvidia_pci: Sequence[str]) -> Iterator[Finding]:
    """Judge the GPUs of a machine.

    Args:
        node: the machine.
        health: what would disturb its GPUs.
        nvidia_pci: NVIDIA's GPUs on its PCI bus, whether or not a driver holds them.
    """
    if not node.gpus:
        # A GPU on the bus that no driver answers for is money asleep; no GPU at all is an ordinary machine.
        asleep = bool(nvidia_pci) and node.driver is None
        yield Finding(
            level="bad" if asleep else "ok",
            subject="GPUs",
            sentence=f"none: {node.gpu_reason}",
            next_step="install the NVIDIA driver and reboot, or check `dmesg | grep NVRM`" if asleep else None,
        )
        return
    yield Finding(level="ok", subject="driver", sentence=f"NVIDIA {node.driver}, CUDA up to {node.cuda_driver}")
    states = {gpu.index: gpu for gpu in health}
    for gpu in node.gpus:
        state = states.get(gpu.index)
        subject = f"GPU {gpu.index}"
        what = f"{gpu.name}, {gpu.memory_mib:,} MiB, compute capability {gpu.compute_capability}"
        if state and state.slowdowns:
            yield Finding(
                level="warn",
                subject=subject,
                sentence=f"{what}; its clocks are held down by {', '.join(state.slowdowns)}",
                next_step="check cooling and power: `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`",
            )
        elif state and state.processes:
            yield Finding(
                level="warn",
                subject=subject,
                sentence=f"{what}; in use by process {', '.join(map(str, state.processes))}",
                next_step="let it end first, or leave this GPU out with CUDA_VISIBLE_DEVICES",
            )
        else:
            yield Finding(level="ok", subject=subject, sentence=what)


def _processor(node: Node, vitals: Vitals) -> Iterator[Finding]:
    cores = len(node.cores)
    quota = f", {node.cpu_quota:g} cores' worth of time" if node.cpu_quota is not None else ""
    yield Finding(
        level="ok",
        subject="CPU",
        sentence=f"{node.cpu_model or 'unnamed processor'}, {cores} logical CPUs usable{quota}",
    )
    if vitals.load_average_1min > _BUSY * cores:
        yield Finding(
            level="warn",
            subject="load",
            sentence=f"{vitals.load_average_1min:.1f} runnable processes on {cores} CPUs over the last minute: something else is running",
            next_step="wait until the machine is idle, or expect wide intervals",
        )
    if not vitals.governors:
        yield Finding(
            level="ok", subject="clocks", sentence="the kernel does not set CPU clocks here (most virtual machines)"
        )
    elif vitals.governors == ("performance",):
        yield Finding(level="ok", subject="clocks", sentence="governor performance on all CPUs")
    else:
        yield Finding(
            level="warn",
            subject="clocks",
            sentence=f"governor {', '.join(vitals.governors)}: clocks follow the load, so the first windows are slow",
            next_step="`cpupower frequency-set -g performance` before a run that counts",
        )
    if vitals.throttled_cores:
        yield Finding(
            level="warn",
            subject="clocks",
            sentence=f"{vitals.throttled_cores} CPUs were slowed down by heat since boot",
            next_step="check cooling; a run that is throttled is marked degraded",
        )


def _memory(node: Node, vitals: Vitals) -> Iterator[Finding]:
    enough = node.memory_mib >= _MEMORY_MIB
    yield Finding(
        level="ok" if enough else "warn",
        subject="memory",
        sentence=f"{node.memory_mib:,} MiB",
        next_step=None if enough else f"small models and batches only: the main job wants {_MEMORY_MIB:,} MiB",
    )
    shm = vitals.shm_mib
    roomy = shm is not None and shm > _SHM_MIB
    yield Finding(
        level="ok" if roomy else "warn",
        subject="shared memory",
        sentence="no /dev/shm" if shm is None else f"{shm:,} MiB at /dev/shm",
        next_step=None
        if roomy
        else "data loaders with several processes need more: `mount -o remount,size=8G /dev/shm`",
    )
    pinned = vitals.memlock_mib
    short = bool(node.hcas) and pinned is not None and pinned < _MEMLOCK_MIB
    yield Finding(
        level="warn" if short else "ok",
        subject="locked memory",
        sentence="unlimited"
        if pinned is None
        else f"{pinned:,} MiB a process" + ("" if node.hcas else ", and no RDMA adapter that needs more"),
        next_step="raise `memlock` in /etc/security/limits.conf to unlimited: RDMA pins its buffers" if short else None,
    )


def wire_findings(nics: Sequence[Nic], hcas: Sequence[Hca]) -> Iterator[Finding]:
    """Tell of interfaces, and judge the ports of RDMA adapters."""
    for nic in nics:
        speed = f"{nic.speed_mbit:,} Mbit/s" if nic.speed_mbit else "speed unknown to its driver"
        address = f", {nic.address}" if nic.address else ""
        yield Finding(
            level="ok",
            subject=f"interface {nic.name}",
            sentence=f"{nic.kind}, {nic.state}, {speed}, MTU {nic.mtu}{address}",
        )
    for hca in hcas:
        up = hca.state == "ACTIVE"
        yield Finding(
            level="ok" if up else "warn",
            subject=f"adapter {hca.name} port {hca.port}",
            sentence=f"{hca.link_layer}, {hca.state}, {hca.rate}",
            next_step=None if up else "check the cable and, for InfiniBand, that a subnet manager runs",
        )


def _disks(vitals: Vitals, images: Sequence[ImageFit]) -> Iterator[Finding]:
    runnable = [image.size_mib for image in images if image.misfit is None]
    for disk in vitals.disks:
        needed, what = _RESULTS_MIB, "records"
        if disk.purpose in ("images", "cache") and runnable:
            needed, what = max(runnable), "the largest image that can run here"
        enough = disk.free_mib >= needed
        yield Finding(
            level="ok" if enough else "warn",
            subject=f"disk for {disk.purpose}",
            sentence=f"{disk.free_mib:,} MiB free at {disk.path}",
            next_step=None if enough else f"{what} may need {needed:,} MiB: free some, or put it elsewhere",
        )


def _images(images: Sequence[ImageFit]) -> Iterator[Finding]:
    for image in images:
        if image.misfit is None:
            yield Finding(level="ok", subject=f"image {image.name}", sentence=f"can run here, {image.size_mib:,} MiB")
        else:
            yield Finding(level="warn", subject=f"image {image.name}", sentence=f"can't run here: {image.misfit}")
