"""What the doctor makes of hosts: each by itself, all of them against each other, and every pair. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from runner.cluster.doctor import Finding, gpu_findings, wire_findings
from runner.cluster.hosts.clock import Clock
from runner.cluster.hosts.connectivity import Unreachable
from runner.cluster.hosts.gpu_topology import GpuPair, describe
from runner.cluster.hosts.model import Host
from runner.cluster.machine.nvml import GpuHealth
from runner.core.node import Nic, Node
from runner.engines.base import EngineFacts

ImageState = Literal["same", "missing", "other"]

_IMAGES: Final[dict[ImageState, str]] = {
    "same": "as here",
    "missing": "not there, the next bench that needs one loads it",
    "other": "not as here, the next bench that needs one replaces it",
}
_LISTED: Final = 3
"""Names before "and 9 more"."""
_CLOCK_S: Final = 0.1
"""Apart by more than this, the nodes' logs can't be read side by side; a job still runs."""


@dataclass(frozen=True, kw_only=True)
class HostLook:
    """What was seen of a host that answers.

    Attributes:
        images: of the suite's images that this machine has, which is there in what state.
        refusals: why it can't be used, each a sentence that names it.
    """

    host: Host
    node: Node
    engine: EngineFacts
    clock: Clock
    health: tuple[GpuHealth, ...]
    nvidia_pci: tuple[str, ...]
    pairs: tuple[GpuPair, ...]
    images: Mapping[str, ImageState]
    refusals: tuple[str, ...]


def host_findings(look: HostLook) -> Iterator[Finding]:
    """Judge one host that answers."""
    name = look.host.name
    for refusal in look.refusals:
        said, _, step = refusal.removeprefix(f"{name}: ").partition("; ")
        yield Finding(level="bad", subject=name, sentence=said, next_step=step or None)
    way = {"nvidia": "NVIDIA's runtime", "cdi": "CDI device names", None: None}[look.engine.gpu_request]
    gpus = f", hands out GPUs by {way}" if way else ""
    podman = f"; it is {look.engine.podman} behind Docker's API, and hands out no GPU" if look.engine.podman else ""
    yield Finding(
        level="warn" if podman else "ok",
        subject=f"{name} engine",
        sentence=f"answers at {look.host.endpoint.url}, version {look.engine.version}{gpus}{podman}",
        next_step="start Docker there" if podman else None,
    )
    cores, memory = len(look.node.cores), look.node.memory_mib
    slots = f", {look.host.slots} slots" if look.host.slots else ""
    yield Finding(
        level="ok",
        subject=f"{name} CPU",
        sentence=f"{look.node.cpu_model or 'unnamed processor'}, {cores} logical CPUs usable, {memory:,} MiB{slots}",
    )
    apart = look.clock.apart_s > _CLOCK_S
    yield Finding(
        level="warn" if apart else "ok",
        subject=f"{name} clock",
        sentence=str(look.clock),
        next_step="run chrony or ntpd on all hosts and on this machine" if apart else None,
    )
    yield from (
        _named(name, found) for found in gpu_findings(look.node, health=look.health, nvidia_pci=look.nvidia_pci)
    )
    if look.pairs:
        yield Finding(level="ok", subject=f"{name} GPU pairs", sentence=describe(look.pairs))
    nics = [nic for nic in look.node.nics if _wired(nic, look.host)]
    yield from (_named(name, found) for found in wire_findings(nics, look.node.hcas))
    yield from _images(look)


def common_findings(looks: Sequence[HostLook]) -> Iterator[Finding]:
    """Judge what hosts should have in common: drivers, GPUs, and the MTU of interfaces with one role."""
    yield from _differing(
        "drivers", {look.host.name: look.node.driver for look in looks}, "a job is as slow as its slowest node"
    )
    models = {look.host.name: ", ".join(sorted({gpu.name for gpu in look.node.gpus})) or None for look in looks}
    yield from _differing("GPUs", models, "a job is as slow as its slowest node")
    for role in sorted({role for look in looks for role in look.host.interfaces}):
        sizes: dict[str, str | None] = {}
        for look in looks:
            by_name = {nic.name: nic for nic in look.node.nics}
            interface = look.host.interfaces.get(role)
            nic = by_name.get(interface.name) if interface else None
            if nic:
                sizes[look.host.name] = str(nic.mtu)
        yield from _differing(f"MTU of {role}", sizes, "large packets may get lost between them: set one MTU on all")


def pair_findings(
    unreachable: Sequence[Unreachable], *, names: Sequence[str], interfaces: Mapping[str, str]
) -> Iterator[Finding]:
    """Judge the ways between hosts.

    Args:
        unreachable: pairs that did not meet.
        names: the hosts that were asked.
        interfaces: the interface of each.
    """
    for pair in unreachable:
        yield Finding(
            level="bad",
            subject=f"{pair.source} → {pair.target}",
            sentence=str(pair).partition(": ")[2],
            next_step=f"check {pair.iface}, its cable, the switch and firewalls; `ip link` and `ip route get` on {pair.source} say more",
        )
    if not unreachable and len(names) > 1:
        used = sorted(set(interfaces.values()))
        yield Finding(
            level="ok", subject="pairs", sentence=f"all {len(names)} hosts reach each other on {', '.join(used)}"
        )


def _images(look: HostLook) -> Iterator[Finding]:
    for state, meaning in _IMAGES.items():
        names = [name for name, found in look.images.items() if found == state]
        if names:
            more = len(names) - _LISTED
            listed = ", ".join(names) if more <= 0 else f"{', '.join(names[:_LISTED])} and {more} more"
            yield Finding(level="ok", subject=f"{look.host.name} images", sentence=f"{listed}: {meaning}")


def _differing(what: str, values: Mapping[str, str | None], consequence: str) -> Iterator[Finding]:
    if len(set(values.values())) > 1:
        listed = ", ".join(f"{name}: {value or 'none'}" for name, value in values.items())
        yield Finding(level="warn", subject=what, sentence=f"differ ({listed})", next_step=consequence)


def _wired(nic: Nic, host: Host) -> bool:
    """Whether an interface leads somewhere: hardware, or one that the hosts file names."""
    return nic.kind not in ("loopback", "virtual") or nic.name in {i.name for i in host.interfaces.values()}


def _named(name: str, finding: Finding) -> Finding:
    return finding.model_copy(update={"subject": f"{name} {finding.subject}"})
