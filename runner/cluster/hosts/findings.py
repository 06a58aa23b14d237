"""What the doctor makes of hosts: each by itself, all of them against each other, and every pair. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from runner.cluster.doctor import GPU_WAYS, Finding, gpu_findings, judge, wire_findings
from runner.cluster.hosts.connectivity import Unreachable
from runner.cluster.hosts.model import Claims
from runner.cluster.hosts.survey import Surveyed
from runner.cluster.machine.nvml import describe_pairs
from runner.core.node import Nic

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


def refused(name: str, sentence: str) -> Finding:
    """A host that can't be used, from the sentence that names it, says why and what helps."""
    said, _, step = sentence.removeprefix(f"{name}: ").partition("; ")
    return Finding(level="bad", subject=name, sentence=said, next_step=step or None)


def host_findings(
    seen: Surveyed, *, images: Mapping[str, ImageState], refusals: Sequence[str] = ()
) -> Iterator[Finding]:
    """Judge one host that answers; `images` are those that this machine has, `refusals` sentences on why it can't be used."""
    name, node, engine = seen.host.name, seen.node, seen.engine
    yield from (refused(name, sentence) for sentence in refusals)
    gpus = f", hands out GPUs by {GPU_WAYS[engine.gpu_request]}" if engine.gpu_request else ""
    podman = f"; it is {engine.podman} behind Docker's API, and hands out no GPU" if engine.podman else ""
    answers = f"answers at {seen.connection.place}, version {engine.version}{gpus}{podman}"
    slots = f", {seen.host.slots} slots" if seen.host.slots else ""
    cpu = f"{node.cpu_model or 'unnamed processor'}, {len(node.cores)} logical CPUs usable, {node.memory_mib:,} MiB{slots}"
    synchronise = "run chrony or ntpd on all hosts and on this machine"
    nics = [nic for nic in node.nics if _wired(nic, seen.host)]
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
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            found.append(judge("images", f"{', '.join(names[:_LISTED])}{more}: {meaning}"))
    yield from (finding.model_copy(update={"subject": f"{name} {finding.subject}"}) for finding in found)


def common_findings(surveyed: Sequence[Surveyed]) -> Iterator[Finding]:
    """Judge what hosts should have in common: drivers, GPUs, and the MTU of interfaces with one role."""
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
    """Judge the ways between hosts: the pairs that did not reach each other, of those whose interfaces these are by host."""
    for pair in unreachable:
        look = f"`ip link` and `ip route get` on {pair.source} say more"
        step = f"check {pair.iface}, its cable, the switch and firewalls; {look}"
        said = str(pair).partition(": ")[2]
        yield judge(f"{pair.source} → {pair.target}", said, step, when=True, level="bad")
    if not unreachable and len(interfaces) > 1:
        used = ", ".join(sorted(set(interfaces.values())))
        yield judge("pairs", f"all {len(interfaces)} hosts reach each other on {used}")


def _wired(nic: Nic, host: Claims) -> bool:
    """Whether an interface leads somewhere: hardware, or one that the hosts file names."""
    return nic.kind not in ("loopback", "virtual") or nic.name in {i.name for i in host.interfaces.values()}
