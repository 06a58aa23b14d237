"""The machines of a request: this one, nodes emulated on it, or the hosts of a list. Starts nothing that outlives its inspection.

A plan for hosts with Docker needs no contact: it relies on what their list claims. Nodes reached by a command line are always asked.
`plan/launch/` gives each emulated node its network namespace, and `engines/shaper.py` shapes its link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from runner.cluster.hosts.model import Claims, Hosts, declared_node, load_hosts
from runner.cluster.machine import provenance
from runner.cluster.machine.local_node import inspect_local
from runner.cluster.slurm import Allocation, Ending, read_allocation
from runner.core.errors import RequestError
from runner.core.node import Member, Nic, Node
from runner.core.provenance import Host as HostFacts
from runner.core.provenance import NodeUsed
from runner.core.request import SLURM, Device, Request
from runner.core.trial import Placed
from runner.core.wire import IFACE, Link, NodeWires
from runner.engines import docker
from runner.engines.base import EngineError
from runner.engines.ways import Here, Way

if TYPE_CHECKING:
    from runner.cluster.hosts.by_command import CommandReach
    from runner.cluster.hosts.survey import Surveyed

Kind = Literal["here", "emulated", "hosts", "commands"]
"""This machine, nodes emulated on it, hosts with Docker engines, or nodes reached by a command line."""


@dataclass(frozen=True)
class Cluster:
    """The machines of a request."""

    kind: Kind
    machine: str  # whose results these are: this machine's name, or the first host's
    members: tuple[Member, ...]
    link: Link | None = None  # the limits of the hosts' links, which something else enforces
    surveyed: tuple[Surveyed, ...] = ()  # the hosts' connections and facts; empty without contact
    allocation: Allocation | None = None  # the Slurm job whose nodes these are
    way: Way = field(default_factory=Here)  # to its nodes, for engines that drive a command line

    @property
    def remote(self) -> bool:
        """Whether its nodes are, or may be, machines other than the runner's."""
        return self.kind in ("hosts", "commands")

    def ended(self, *, signalled: bool) -> Ending | None:
        """How the job that holds the nodes ended, or is about to if the runner was told to end (`signalled`); None while they are available."""
        return self.allocation.ended(signalled=signalled) if self.allocation else None

    def node_unreachable(self) -> bool:
        """Whether a node of a Slurm job can no longer be reached, which Slurm itself may not notice for minutes."""
        from runner.cluster.hosts.survey import ask_all  # noqa: PLC0415 - loads what only hosts need

        answers = ask_all(lambda reach: reach.run(("true",)), self.reaches) if self.allocation else ()
        return any(isinstance(answer, RequestError) for answer in answers)

    @property
    def reaches(self) -> tuple[CommandReach, ...]:
        """The nodes reached by a command line."""
        from runner.cluster.hosts.by_command import CommandReach  # noqa: PLC0415 - loads what only hosts need

        return tuple(seen.connection for seen in self.surveyed if isinstance(seen.connection, CommandReach))

    @property
    def node(self) -> Node:
        """The first node: the only one, or the one where one-device trials run."""
        return self.members[0].node

    def device_of(self, request: Request) -> Device:
        """CPU or GPU: as requested, else GPU if there is one."""
        if request.device:
            return request.device
        if request.workers:
            return "cpu"
        return "gpu" if request.gpus or self.node.gpus else "cpu"

    def image_source(self) -> tuple[docker.Client, str]:
        """The engine that supplies images, and its machine: this one, else the first host. Raises RequestError if no engine answers."""
        if not self.surveyed:
            return docker.connect_or_refuse(), "this machine"
        try:
            return docker.connect(), "this machine"
        except EngineError:
            first = self.surveyed[0]
            return first.docker.client, first.host.name

    @property
    def host(self) -> HostFacts | None:
        """Facts of the first machine; None without contact, or if that is this machine, which is asked before each run."""
        return self.surveyed[0].facts if self.surveyed else None

    def used(self, placement: Sequence[Placed], *, image_ids: Mapping[str, str]) -> tuple[NodeUsed, ...]:
        """The nodes of a run, for its record; `image_ids` are by node, each from the host's own engine."""
        nodes = {member.node.name: member.node for member in self.members}
        return tuple(
            _used(nodes[placed.node], self._by_name.get(placed.node), image_ids.get(placed.node))
            for placed in placement
        )

    def connectivity_fault(self, placement: Sequence[Placed]) -> str | None:
        """Check after a failed run whether its hosts reach each other on its wires; if not, a sentence on which one is at fault."""
        from runner.cluster.hosts.connectivity import NodeEnd, check_pairs, explain  # noqa: PLC0415 - loads what only hosts need

        by_name = self._by_name
        wired = [(by_name[placed.node], placed.wire) for placed in placement if placed.node in by_name and placed.wire]
        ends = [NodeEnd(wire.iface, wire.address) for _, wire in wired]
        return explain(check_pairs([host for host, _ in wired], ends))

    @property
    def _by_name(self) -> Mapping[str, Surveyed]:
        return {seen.host.name: seen for seen in self.surveyed}

    def close(self) -> None:
        """Close the connections to the hosts."""
        for seen in self.surveyed:
            seen.connection.close()


def assemble(request: Request, *, contact: bool, say: Callable[[str], None]) -> Cluster:
    """Find the machines that a request may use. Without `contact`, the claims of a list of Docker hosts are believed. Raises RequestError."""
    if request.hosts is None:
        return _this_machine(request)
    if request.hosts == SLURM:
        return _slurm_nodes(say)
    hosts = load_hosts(request.hosts)
    if request.engine not in (None, "docker"):
        return _ssh_hosts(hosts, say)
    surveyed: tuple[Surveyed, ...] = ()
    if contact:
        from runner.cluster.hosts.survey import survey  # noqa: PLC0415 - loads what only hosts need

        surveyed = survey(hosts, say)
        members = _members(surveyed)
    else:
        members = tuple(_member(host, declared_node(host)) for host in hosts.hosts)
    return Cluster("hosts", hosts.hosts[0].name, members, hosts.link, surveyed)


def _slurm_nodes(say: Callable[[str], None]) -> Cluster:
    """The nodes of this Slurm job, asked even for a dry run, since only they know the job's share of them."""
    from runner.cluster.hosts.by_command import by_steps, survey  # noqa: PLC0415 - loads what only hosts need

    allocation = read_allocation()
    surveyed = survey(by_steps(allocation), say)
    return Cluster(
        "commands", allocation.cluster, _members(surveyed), surveyed=surveyed, allocation=allocation, way=allocation.way
    )


def _ssh_hosts(hosts: Hosts, say: Callable[[str], None]) -> Cluster:
    """The hosts of a list, reached over ssh; asked even for a dry run, like the nodes of a Slurm job."""
    from runner.cluster.hosts.by_command import by_ssh, survey  # noqa: PLC0415 - loads what only hosts need

    reaches = by_ssh(hosts.hosts)
    surveyed = survey(reaches, say)
    return Cluster("commands", hosts.hosts[0].name, _members(surveyed), hosts.link, surveyed, way=reaches[0].way)


def _this_machine(request: Request) -> Cluster:
    here = inspect_local()
    if not request.links or not request.nodes:
        return Cluster("here", here.name, (Member(here, NodeWires()),))
    nodes = emulated_nodes(here, request.nodes)
    return Cluster("emulated", here.name, tuple(Member(n, NodeWires(roles={"ethernet": IFACE})) for n in nodes))


def _used(node: Node, seen: Surveyed | None, image_id: str | None) -> NodeUsed:
    return NodeUsed(
        name=node.name,
        host=seen.facts if seen else provenance.read_host(node),
        gpus=node.gpus,
        nics=node.nics,
        hcas=node.hcas,
        driver=node.driver,
        cuda_driver=node.cuda_driver,
        engine_version=seen.engine.version if seen else None,
        image_id=image_id,
        clock_offset_s=seen.clock.offset_s if seen else None,
        clock_error_s=seen.clock.error_s if seen else None,
    )


def _members(surveyed: Sequence[Surveyed]) -> tuple[Member, ...]:
    return tuple(_member(seen.host, seen.node) for seen in surveyed)


def _member(host: Claims, node: Node) -> Member:
    wires = NodeWires(
        roles={role: interface.name for role, interface in host.interfaces.items()},
        addresses={i.name: i.address for i in host.interfaces.values() if i.address},
        hcas=host.hcas,
    )
    return Member(node, wires, host.slots)


_MTU_BYTES: Final = 1500

_T = TypeVar("_T")


def emulated_nodes(node: Node, count: int) -> tuple[Node, ...]:
    """Divide a machine into `count` nodes, named node1, node2 and so on.

    Each has neighbouring cores and GPUs of its own (the first nodes one more if they do not divide equally), an equal share of the memory,
    and an interface whose address is the node's name. They do not share ports, so each may use all that are free.
    Raises RequestError if there are more nodes than cores.
    """
    if count > len(node.cores):
        raise RequestError(
            f"NODES={count} asked, {node.name} has {len(node.cores)} cores, and an emulated node needs at least one; "
            f"ask for NODES={len(node.cores)} or fewer"
        )
    cores, gpus = deal(node.cores, count), deal(node.gpus, count)
    no_gpus = node.gpu_reason or f"{node.name} has {len(node.gpus)} for {count} nodes"
    return tuple(
        node.model_copy(
            update={
                "name": name,
                "cores": cores[number],
                "cpu_quota": node.cpu_quota and node.cpu_quota / count,
                "memory_mib": node.memory_mib // count,
                "gpus": gpus[number],
                "gpu_reason": None if gpus[number] else no_gpus,
                "nics": (Nic(name=IFACE, state="up", speed_mbit=None, mtu=_MTU_BYTES, kind="virtual", address=name),),
                "hcas": (),
            }
        )
        for number, name in enumerate(f"node{number}" for number in range(1, count + 1))
    )


def deal(things: tuple[_T, ...], count: int) -> tuple[tuple[_T, ...], ...]:
    """Cut a sequence into `count` consecutive parts whose lengths differ by at most one, longer ones first."""
    share, extra = divmod(len(things), count)
    ends = [share * number + min(number, extra) for number in range(count + 1)]
    return tuple(things[start:end] for start, end in pairwise(ends))
