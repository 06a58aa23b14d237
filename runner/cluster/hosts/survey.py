"""What the hosts are: each is asked by a container of the suite's base that prints a snapshot, all at the same time.

The container has the host's network, so that it sees its interfaces, and nothing else: an ordinary user without capabilities on a
read-only root. GPUs are asked for as a job would ask, and so it is known by which words the engine hands them out.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import tempfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from runner.cluster.hosts import snapshot
from runner.cluster.hosts.clock import Clock, clock_refusal, read_clock
from runner.cluster.hosts.endpoint import Connection, connect, engine_errors
from runner.cluster.hosts.gpu_topology import GpuPair, read_pair
from runner.cluster.hosts.model import Host, Hosts
from runner.cluster.hosts.remote_facts import Snapshot
from runner.cluster.hosts.supply import supply_image
from runner.cluster.hosts.validate import unmet
from runner.cluster.machine.hostfs import nvidia_pci_functions
from runner.cluster.machine.local_node import PORTS
from runner.cluster.machine.nvml import GpuHealth, read_health
from runner.cluster.machine.provenance import read_host
from runner.core.cache import cache_dir
from runner.core.errors import RequestError
from runner.core.node import Node
from runner.core.provenance import SUITE_ROOT
from runner.core.provenance import Host as HostFacts
from runner.engines import docker, podman
from runner.engines.base import EngineError, EngineFacts, EngineRefusedError, GpuRequest
from runner.engines.images import find_image, run_confined
from runner.images.base import ensure_base
from runner.images.catalog import load_images
from runner.images.versions import BaseSpec

BASE: Final = "bookworm"
_AT_ONCE: Final = 16
_ARGUMENT: Final = 100_000
"""Characters of one argument; the kernel takes 131,072 (MAX_ARG_STRLEN)."""

Report = Callable[[str], None]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """A host as it was found.

    Attributes:
        connection: to its engine; whoever asked for the survey closes it.
        engine_id: what tells the engine from all others.
        engine: what it says of itself; `gpu_request` is the way by which it did hand out GPUs.
        node: what a job may use there.
        facts: the machine, for a record's provenance.
        clock: against this machine's.
        local: every IPv4 address that it has.
        pairs: its GPUs, two by two.
        health: what would disturb its GPUs.
        nvidia_pci: NVIDIA's GPUs on its PCI bus, whether or not a driver holds them.
    """

    host: Host
    connection: Connection
    engine_id: str
    engine: EngineFacts
    node: Node
    facts: HostFacts
    clock: Clock
    local: tuple[str, ...]
    pairs: tuple[GpuPair, ...]
    health: tuple[GpuHealth, ...]
    nvidia_pci: tuple[str, ...]


def survey(hosts: Hosts, say: Report) -> tuple[Surveyed, ...]:
    """Ask every host what it is, and hold it against what the list claims.

    Args:
        hosts: the list.
        say: told what is done.

    Returns:
        One a host, in the list's order, with connections that stand.

    Raises:
        RequestError: a host can't be reached, does not answer, has not what the list claims, or its clock is wrong; all
            connections are closed then.
    """
    say(f"asking {', '.join(host.name for host in hosts.hosts)}")
    with contextlib.ExitStack() as undo:
        connections = _whole(at_once(connect, hosts.hosts), hosts.hosts, undo)
        reference = supply_base(connections, say)
        found = _whole(at_once(lambda connection: examine(connection, reference), connections), hosts.hosts)
        refused = {seen.host.name: refusals(seen) for seen in found}
        _raise([(name, sentences[0]) for name, sentences in refused.items() if sentences])
        _refuse_twins(found)
        undo.pop_all()
        return found


def _refuse_twins(found: Sequence[Surveyed]) -> None:
    """Refuse a machine under two names, whose devices a job would count twice; the rig's nodes have engines of their own."""
    names: dict[str, str] = {}
    for seen in found:
        first = names.setdefault(seen.engine_id, seen.host.name)
        if first != seen.host.name:
            raise RequestError(f"{first} and {seen.host.name} are one machine: the same engine answers; name it once")


def refusals(seen: Surveyed) -> tuple[str, ...]:
    """Why a host that answers can't be used, each as a sentence that names it."""
    clock = clock_refusal(seen.host.name, seen.clock)
    return (*unmet(seen.host, seen.node, local=seen.local), *([clock] if clock else []))


def at_once(ask: Callable[[T], R], whom: Sequence[T]) -> tuple[R | RequestError, ...]:
    """Ask all at the same time; a refusal is an answer."""

    def answer(one: T) -> R | RequestError:
        try:
            return ask(one)
        except RequestError as error:
            return error

    with ThreadPoolExecutor(min(_AT_ONCE, len(whom))) as pool:
        return tuple(pool.map(answer, whom))


def base_image() -> BaseSpec:
    """The system that the containers look around in: Python, and nothing that is not needed."""
    return load_images(SUITE_ROOT).base(BASE)


def supply_base(connections: Sequence[Connection], say: Report) -> str:
    """Have the suite's base on every node, and return its reference.

    Raises:
        RequestError: it can't be made here, or a node can't take it.
    """
    base = base_image()
    lacking: list[Connection] = []
    having: list[Connection] = []
    for connection in connections:
        with engine_errors(connection):
            found = find_image(connection.client, base.reference)
        (having if found else lacking).append(connection)
    if not lacking:
        return base.reference
    try:
        source = docker.connect()
        ensure_base(base, client=source, root=SUITE_ROOT, cache=cache_dir(), report=say)
    except EngineError as error:  # this machine only gives orders; a node that has it helps the others
        if not having:
            raise RequestError(
                f"{lacking[0].host.name} has no {base.reference}, which the suite looks around in, and {error} here to make it; "
                "start Docker on this machine"
            ) from error
        source = having[0].client
    supply_image(base.reference, source=source, nodes=lacking, report=say)
    return base.reference


def examine(connection: Connection, reference: str) -> Surveyed:
    """Ask one host.

    Args:
        connection: to its engine.
        reference: an image that the engine has, with Python.

    Raises:
        RequestError: it does not answer as it should; the sentence names it.
    """
    host = connection.host
    with engine_errors(connection):
        info, clock = read_clock(connection.client.info)
        in_its_place = podman.behind(connection.client)
        way, said, no_gpus = _snapshot(connection, info, reference)
    try:
        found = Snapshot.model_validate_json(said)
    except ValidationError as error:
        raise RequestError(
            f"{host.name}: the snapshot that a container made there can't be read ({said.strip()[-200:] or 'it is empty'}); "
            f"look at its engine's log"
        ) from error
    with tempfile.TemporaryDirectory(prefix="dlscale-") as folder:
        root = Path(folder)
        found.lay_out(root)
        node = found.node(host.name, root, no_gpus=no_gpus)
        on_bus = nvidia_pci_functions(root)
        facts = read_host(node, root).model_copy(
            update={
                "hostname": info["Name"],
                "kernel": info["KernelVersion"],
                "architecture": info["Architecture"],
                "os": info["OperatingSystem"],
            }
        )
    return Surveyed(
        host=host,
        connection=connection,
        # The engine's ID alone is what its key file says, which copies of a machine have in common.
        engine_id=" ".join((info["ID"], info["Name"], info["DockerRootDir"])),
        engine=EngineFacts(
            name="docker",
            available=True,
            version=info["ServerVersion"],
            gpu_request=way,
            podman=in_its_place,
            root_dir=info["DockerRootDir"],
        ),
        node=node,
        facts=facts,
        clock=clock,
        local=found.local,
        pairs=tuple(read_pair(answer) for answer in found.nvml.pairs) if found.nvml else (),
        health=read_health(node.gpus, nvml=found.recorded_nvml()),
        nvidia_pci=on_bus,
    )


def gpu_ways(info: dict[str, Any]) -> tuple[GpuRequest, ...]:
    """How an engine may be asked for GPUs, by what it says; engines before 28 do not list the CDI names that they know."""
    ways: list[GpuRequest] = []
    if "nvidia" in (info.get("Runtimes") or {}):
        ways.append("nvidia")
    listed = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or []]
    if any(name.startswith("nvidia.com/gpu") for name in listed) or (info.get("CDISpecDirs") and not listed):
        ways.append("cdi")
    return tuple(ways)


def _snapshot(
    connection: Connection, info: dict[str, Any], reference: str
) -> tuple[GpuRequest | None, str, str | None]:
    """Have a snapshot made, with GPUs if the engine hands them out.

    Returns:
        The way by which it did, what the container printed, and why there are no GPUs.
    """
    source = Path(snapshot.__file__).read_text(encoding="utf-8")
    argv = ("python3", "-c", source, str(PORTS))
    no_gpus = "its engine has neither NVIDIA's runtime nor CDI device names"
    for way in gpu_ways(info):
        try:
            return way, run_confined(connection.client, reference, (*argv, *_packed_pynvml()), gpus_by=way), None
        except EngineRefusedError as error:
            no_gpus = f"its engine hands out none ({error})"
    return None, run_confined(connection.client, reference, argv), no_gpus


def _packed_pynvml() -> tuple[str, ...]:
    """nvidia-ml-py's one file, as arguments: the node needs no package, only its driver's own library."""
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        return ()
    packed = base64.b85encode(zlib.compress(Path(found.origin).read_bytes(), 9)).decode()
    return tuple(packed[start : start + _ARGUMENT] for start in range(0, len(packed), _ARGUMENT))


def _whole(
    answers: Sequence[R | RequestError], hosts: Sequence[Host], undo: contextlib.ExitStack | None = None
) -> tuple[R, ...]:
    """All answers, if none is a refusal; what has to be closed is closed by `undo`."""
    found = tuple(answer for answer in answers if not isinstance(answer, RequestError))
    for answer in found:
        if undo and isinstance(answer, Connection):
            undo.callback(answer.close)
    _raise([(host.name, str(a)) for host, a in zip(hosts, answers, strict=True) if isinstance(a, RequestError)])
    return found


def _raise(refused: Sequence[tuple[str, str]]) -> None:
    """Raise the first of these refusals, and name the other hosts that have one."""
    if not refused:
        return
    others = ", ".join(name for name, _ in refused[1:])
    more = f" (nor can {others} be used: `dlscale doctor --hosts` says why)" if others else ""
    raise RequestError(f"{refused[0][1]}{more}")
