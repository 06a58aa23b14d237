"""What machines can run, what they can't, and what would spoil a measurement: on this machine, on other hosts, and between them.

Pure: it judges the facts that `machine`, the survey of hosts, the engines and the catalog have read; each finding is one sentence with the
next step. `warn` is worth reading before a benchmark; `bad` means that nothing, or not the hardware that was paid for, can run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from pydantic import TypeAdapter

from runner.cluster.hosts.connectivity import Unreachable
from runner.cluster.hosts.survey import Surveyed
from runner.cluster.machine.local_node import Vitals
from runner.cluster.machine.nvml import GpuHealth, describe_pairs
from runner.core.frozen import Frozen
from runner.core.node import Hca, Nic, Node
from runner.engines.base import EngineFacts, GpuRequest

Level = Literal["ok", "warn", "bad"]

_GPU_REQUESTS: Final[dict[GpuRequest, str]] = {"nvidia": "NVIDIA's runtime", "cdi": "CDI device names"}
_MEMORY_MIB: Final = 2048
"""ResNet-18 at 32x32 with two workers peaks near 1.5 GiB in MXNet; with less than this it swaps or is killed."""
_RESULTS_MIB: Final = 512  # records and logs of a long sweep with telemetry
_SHM_MIB: Final = 64  # Docker's default, too small for data loaders that pass batches between processes
_MEMLOCK_MIB: Final = 1024  # RDMA pins every buffer that it sends from; with the usual 8 MiB, "ibv_reg_mr failed"
_BUSY_LOAD: Final = 0.5  # load per core above which something else disturbs the measurement


class Finding(Frozen):
    """One judgement."""

    level: Level
    subject: str
    sentence: str
    next_step: str | None = None


class ImageFit(Frozen):
    """Whether an image can run on this machine's devices."""

    name: str
    size_mib: int
    misfit: str | None


def judge(
    subject: str, sentence: str, step: str | None = None, *, when: bool = False, level: Level = "warn"
) -> Finding:
    """A finding: `level` with the next step if `when` holds, else `ok`."""
    return Finding(level=level if when else "ok", subject=subject, sentence=sentence, next_step=step if when else None)


def diagnose(
    *, node: Node, vitals: Vitals, engines: Sequence[EngineFacts], images: Sequence[ImageFit]
) -> tuple[Finding, ...]:
    """Judge this machine; the findings are in the report's order."""
    # All other engines run only if requested, never as a fallback.
    fallback = next((engine.name for engine in engines if engine.available and engine.name in ("docker", "venv")), None)
    return (
        *(_engine(node, engine, fallback) for engine in engines),
        *gpu_findings(node, health=vitals.gpus, nvidia_pci=vitals.nvidia_pci),
        *_processor(node, vitals),
        *_memory(node, vitals),
        *wire_findings([nic for nic in node.nics if nic.kind not in ("loopback", "virtual")], node.hcas),
        *_disks(vitals, images),
        *(_image(image) for image in images),
    )


def to_json(findings: Sequence[Finding]) -> str:
    """The findings as a JSON array, for other programs."""
    return TypeAdapter(tuple[Finding, ...]).dump_json(tuple(findings), indent=2).decode()


def _engine(node: Node, engine: EngineFacts, fallback: str | None) -> Finding:
    subject, answers = f"engine {engine.name}", f"answers, version {engine.version}"
    if not engine.available:
        instead = f"until then runs use {fallback}" if fallback else "nothing can run"
        step = "apt-get install docker.io, start it, and add yourself to the group docker"
        return Finding(
            level="warn" if fallback else "bad",
            subject=subject,
            sentence=f"{engine.reason or 'not available'}; {instead}",
            next_step=step if engine.name == "docker" else None,
        )
    other = {
        "venv": f"can run jobs without containers, Python {engine.version}",
        "host": f"can run {engine.version} as it is, if requested",
        "podman": f"version {engine.version}, if requested; emulates no nodes, runs no --image",
        "apptainer": f"version {engine.version}, if requested; isolates no network and limits no memory, emulates no "
        "nodes, runs no --image",
        "slurm": f"version {engine.version}; CLUSTER=slurm allocates nodes, which run no Docker and no --image",
    }
    if engine.name in other:
        return judge(subject, other[engine.name])
    if engine.podman:
        return judge(
            subject,
            f"{answers}; it is {engine.podman}, which serves Docker's API and ignores requests for GPUs",
            "start Docker and set DOCKER_HOST to its socket, or run with ENGINE=venv or ENGINE=host",
            when=bool(node.gpus),
            level="bad",
        )
    if not node.gpus:
        return judge(subject, answers)
    if engine.gpu_request:
        return judge(subject, f"{answers}, provides GPUs by {_GPU_REQUESTS[engine.gpu_request]}")
    return judge(
        subject,
        f"{answers}, but it has neither NVIDIA's runtime nor CDI device names, so containers get no GPU",
        "install nvidia-container-toolkit, then `nvidia-ctk runtime configure --runtime=docker` and restart docker",
        when=True,
        level="bad",
    )


def gpu_findings(node: Node, *, health: Sequence[GpuHealth], nvidia_pci: Sequence[str]) -> Iterator[Finding]:
    """Judge a machine's GPUs; `nvidia_pci` are the NVIDIA GPUs on its PCI bus, with or without a driver."""
    if not node.gpus:
        # A GPU on the bus without a driver is wasted; a machine without any GPU is ordinary.
        step = "install the NVIDIA driver and reboot, or check `dmesg | grep NVRM`"
        unused = bool(nvidia_pci) and node.driver is None
        yield judge("GPUs", f"none: {node.gpu_reason}", step, when=unused, level="bad")
        return
    yield judge("driver", f"NVIDIA {node.driver}, CUDA up to {node.cuda_driver}")
    states = {gpu.index: gpu for gpu in health}
    for gpu in node.gpus:
        state = states.get(gpu.index)
        description, step = f"{gpu.name}, {gpu.memory_mib:,} MiB, compute capability {gpu.compute_capability}", ""
        if state and state.slowdowns:
            description += f"; its clocks are reduced by {', '.join(state.slowdowns)}"
            step = "check cooling and power: `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`"
        elif state and state.processes:
            description += f"; in use by process {', '.join(map(str, state.processes))}"
            step = "let it end first, or exclude this GPU with CUDA_VISIBLE_DEVICES"
        yield judge(f"GPU {gpu.index}", description, step, when=bool(step))


def _processor(node: Node, vitals: Vitals) -> Iterator[Finding]:
    cores, load, throttled = len(node.cores), vitals.load_average_1min, vitals.throttled_cores
    quota = f", {node.cpu_quota:g} cores' worth of time" if node.cpu_quota is not None else ""
    yield judge("CPU", f"{node.cpu_model or 'unnamed processor'}, {cores} logical CPUs usable{quota}")
    if load > _BUSY_LOAD * cores:
        sentence = f"{load:.1f} runnable processes on {cores} CPUs over the last minute: something else is running"
        yield judge("load", sentence, "wait until the machine is idle, or expect wide intervals", when=True)
    if not vitals.governors:
        yield judge("clocks", "the kernel does not set CPU clocks here (most virtual machines)")
    elif vitals.governors == ("performance",):
        yield judge("clocks", "governor performance on all CPUs")
    else:
        sentence = f"governor {', '.join(vitals.governors)}: clocks follow the load, so the first windows are slow"
        yield judge("clocks", sentence, "`cpupower frequency-set -g performance` before a run that counts", when=True)
    if throttled:
        sentence = f"{throttled} CPUs have been throttled by heat since boot"
        yield judge("clocks", sentence, "check cooling; a run that is throttled is marked degraded", when=True)


def _memory(node: Node, vitals: Vitals) -> Iterator[Finding]:
    shm, pinned = vitals.shm_mib, vitals.memlock_mib
    yield judge(
        "memory",
        f"{node.memory_mib:,} MiB",
        f"only small models and batches fit: the main job needs {_MEMORY_MIB:,} MiB",
        when=node.memory_mib < _MEMORY_MIB,
    )
    yield judge(
        "shared memory",
        "no /dev/shm" if shm is None else f"{shm:,} MiB at /dev/shm",
        "data loaders with several processes need more: `mount -o remount,size=8G /dev/shm`",
        when=shm is None or shm <= _SHM_MIB,
    )
    no_adapter = "" if node.hcas else ", and no RDMA adapter that needs more"
    yield judge(
        "locked memory",
        "unlimited" if pinned is None else f"{pinned:,} MiB a process{no_adapter}",
        "raise `memlock` in /etc/security/limits.conf to unlimited: RDMA pins its buffers",
        when=bool(node.hcas) and pinned is not None and pinned < _MEMLOCK_MIB,
    )


def wire_findings(nics: Sequence[Nic], hcas: Sequence[Hca]) -> Iterator[Finding]:
    """List interfaces, and judge the ports of RDMA adapters."""
    for nic in nics:
        speed = f"{nic.speed_mbit:,} Mbit/s" if nic.speed_mbit else "speed unknown to its driver"
        address = f", {nic.address}" if nic.address else ""
        yield judge(f"interface {nic.name}", f"{nic.kind}, {nic.state}, {speed}, MTU {nic.mtu}{address}")
    for hca in hcas:
        yield judge(
            f"adapter {hca.name} port {hca.port}",
            f"{hca.link_layer}, {hca.state}, {hca.rate}",
            "check the cable and, for InfiniBand, that a subnet manager runs",
            when=hca.state != "ACTIVE",
        )


def _disks(vitals: Vitals, images: Sequence[ImageFit]) -> Iterator[Finding]:
    runnable = [image.size_mib for image in images if image.misfit is None]
    for disk in vitals.disks:
        needed, content = _RESULTS_MIB, "records"
        if disk.purpose in ("images", "cache") and runnable:
            needed, content = max(runnable), "the largest image that can run here"
        yield judge(
            f"disk for {disk.purpose}",
            f"{disk.free_mib:,} MiB free at {disk.path}",
            f"{content} may need {needed:,} MiB: free some, or use another disk",
            when=disk.free_mib < needed,
        )


def _image(image: ImageFit) -> Finding:
    sentence = f"can run here, {image.size_mib:,} MiB" if image.misfit is None else f"can't run here: {image.misfit}"
    return judge(f"image {image.name}", sentence, when=image.misfit is not None)


ImageState = Literal["same", "missing", "other"]

_IMAGES: Final[dict[ImageState, str]] = {
    "same": "as here",
    "missing": "missing, loaded by the next bench that needs it",
    "other": "different, replaced by the next bench that needs it",
}
_NAMES_SHOWN: Final = 3  # names before "and 9 more"
_CLOCK_S: Final = 0.1  # with a larger difference the nodes' logs can't be read side by side; a job still runs


def refused(name: str, sentence: str) -> Finding:
    """A finding on a host that can't be used, from a sentence with its name, the reason and the next step."""
    reason, _, step = sentence.removeprefix(f"{name}: ").partition("; ")
    return Finding(level="bad", subject=name, sentence=reason, next_step=step or None)


def host_findings(
    seen: Surveyed, *, images: Mapping[str, ImageState], refusals: Sequence[str] = ()
) -> Iterator[Finding]:
    """Judge one host that answers; `images`: the state there of this machine's images; `refusals`: why the host can't be used."""
    name, node, engine = seen.host.name, seen.node, seen.engine
    yield from (refused(name, sentence) for sentence in refusals)
    gpus = f", provides GPUs by {_GPU_REQUESTS[engine.gpu_request]}" if engine.gpu_request else ""
    podman = f"; it is {engine.podman}, which serves Docker's API and provides no GPU" if engine.podman else ""
    answers = f"answers at {seen.connection.place}, version {engine.version}{gpus}{podman}"
    slots = f", {seen.host.slots} slots" if seen.host.slots else ""
    cpu = f"{node.cpu_model or 'unnamed processor'}, {len(node.cores)} logical CPUs usable, {node.memory_mib:,} MiB{slots}"
    synchronise = "run chrony or ntpd on all hosts and on this machine"
    # Interfaces that lead somewhere: hardware, or named in the hosts file.
    named = {interface.name for interface in seen.host.interfaces.values()}
    nics = [nic for nic in node.nics if nic.kind not in ("loopback", "virtual") or nic.name in named]
    found = [
        judge("engine", answers, "start Docker there", when=bool(podman)),
        judge("CPU", cpu),
        judge("clock", str(seen.clock), synchronise, when=seen.clock.apart_s > _CLOCK_S),
        *gpu_findings(node, health=seen.health, nvidia_pci=seen.nvidia_pci),
        *([judge("GPU pairs", describe_pairs(seen.pairs))] if seen.pairs else []),
        *wire_findings(nics, node.hcas),
    ]
    for state, meaning in _IMAGES.items():
        if names := [image for image, there in images.items() if there == state]:
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            found.append(judge("images", f"{', '.join(names[:_NAMES_SHOWN])}{more}: {meaning}"))
    yield from (finding.model_copy(update={"subject": f"{name} {finding.subject}"}) for finding in found)


def common_findings(surveyed: Sequence[Surveyed]) -> Iterator[Finding]:
    """Compare what hosts should have in common: drivers, GPUs, and the MTU of interfaces with the same role."""
    slowest = "a job is as slow as its slowest node"
    drivers = {seen.host.name: seen.node.driver for seen in surveyed}
    models = {seen.host.name: ", ".join(sorted({gpu.name for gpu in seen.node.gpus})) or None for seen in surveyed}
    compared: list[tuple[str, Mapping[str, str | None], str]]
    compared = [("drivers", drivers, slowest), ("GPUs", models, slowest)]
    for role in sorted({role for seen in surveyed for role in seen.host.interfaces}):
        named = {seen.host.name: seen.host.interfaces[role].name for seen in surveyed if role in seen.host.interfaces}
        sizes = {
            seen.host.name: str(nic.mtu)
            for seen in surveyed
            for nic in seen.node.nics
            if nic.name == named.get(seen.host.name)
        }
        compared.append((f"MTU of {role}", sizes, "large packets may get lost between them: set one MTU on all"))
    for what, values, consequence in compared:
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{name}: {value or 'none'}" for name, value in values.items())
            yield judge(what, f"differ ({listed})", consequence, when=True)


def pair_findings(unreachable: Sequence[Unreachable], interfaces: Mapping[str, str]) -> Iterator[Finding]:
    """Judge connectivity: the pairs of hosts that could not reach each other; `interfaces` are the ones tested, by host."""
    for pair in unreachable:
        look = f"`ip link` and `ip route get` on {pair.source} say more"
        step = f"check {pair.iface}, its cable, the switch and firewalls; {look}"
        reason = str(pair).partition(": ")[2]
        yield judge(f"{pair.source} → {pair.target}", reason, step, when=True, level="bad")
    if not unreachable and len(interfaces) > 1:
        used = ", ".join(sorted(set(interfaces.values())))
        yield judge("pairs", f"all {len(interfaces)} hosts reach each other on {used}")
