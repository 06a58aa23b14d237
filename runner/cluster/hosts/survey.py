"""What the hosts have: all are asked concurrently, each by a container of the suite's base that prints a snapshot.

The container has the host's network, to see its interfaces, and no other privilege: an ordinary user without capabilities on a
read-only root. It requests GPUs as a job would, which shows how the engine provides them. The snapshot's files are written to a folder
here, so that the same code reads this machine's files and another's.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import re
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol, TypeVar

from pydantic import Field, ValidationError, field_validator

from runner.cluster.hosts.endpoint import Connection, base_image, connect, engine_errors
from runner.cluster.hosts.model import Claims, Hosts, unmet
from runner.cluster.hosts.supply import supply_image
from runner.cluster.machine import snapshot
from runner.cluster.machine.hostfs import nvidia_pci_functions
from runner.cluster.machine.local_node import PORTS, read_node
from runner.cluster.machine.nvml import GpuHealth, NvmlAnswers, PairAnswer, read_health
from runner.cluster.machine.provenance import read_host
from runner.core.cache import cache_dir
from runner.core.errors import RequestError
from runner.core.frozen import Frozen
from runner.core.node import Node
from runner.core.provenance import SUITE_ROOT
from runner.core.provenance import Host as HostFacts
from runner.engines import docker, podman
from runner.engines.base import EngineError, EngineFacts, EngineRefusedError, GpuRequest
from runner.engines.images import find_image, run_confined
from runner.images.base import ensure_base

_MAX_THREADS: Final = 16
_ARGUMENT: Final = 100_000  # characters of one argument; the kernel takes 131,072 (MAX_ARG_STRLEN)

T = TypeVar("T")
R = TypeVar("R")


_CALLS: Final = 3
_RFC3339: Final = re.compile(r"(.*?)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_MAX_APART_S: Final = 2.0  # events of all nodes are ordered by their clocks, and windows last some seconds


@dataclass(frozen=True)
class Clock:
    """A node's clock minus this machine's, in seconds, and the largest error of that difference."""

    offset_s: float
    error_s: float

    @property
    def apart_s(self) -> float:
        """The least difference of the clocks, in seconds."""
        return max(0.0, abs(self.offset_s) - self.error_s)

    def __str__(self) -> str:
        way = "ahead of" if self.offset_s >= 0 else "behind"
        return f"{abs(self.offset_s):.3f} s {way} this machine's (± {self.error_s:.3f} s)"


def read_clock(
    ask: Callable[[], dict[str, Any]], *, now: Callable[[], float] = time.time
) -> tuple[dict[str, Any], Clock]:
    """Ask an engine for its `info` several times; the quickest answer gives the clock's offset.

    The engine reads its clock between our question and its answer: half of the round trip is the error (Cristian 1989, "Probabilistic clock
    synchronization").
    """
    answers = []
    for _ in range(_CALLS):
        before = now()
        info = ask()
        after = now()
        offset_s = parse_time(info["SystemTime"]) - (before + after) / 2
        answers.append((info, Clock(offset_s=offset_s, error_s=(after - before) / 2)))
    return min(answers, key=lambda answer: answer[1].error_s)


def parse_time(text: str) -> float:
    """Parse a time as Go writes it (RFC 3339, with up to nine decimals) to seconds since 1970."""
    match = _RFC3339.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a time of RFC 3339")
    zone = "+00:00" if match[3] == "Z" else match[3]
    return datetime.fromisoformat(match[1] + zone).timestamp() + float(match[2] or 0)


def clock_refusal(name: str, clock: Clock) -> str | None:
    """Why a node's clock can't be used; None if it can."""
    if clock.apart_s <= _MAX_APART_S:
        return None
    return (
        f"{name}: its clock is {clock}, and a job's events are ordered by the nodes' clocks; "
        "run chrony or ntpd on it and on this machine"
    )


class Reach(Protocol):
    """A connection to a surveyed host."""

    @property
    def host(self) -> Claims:
        """The list's claims about it."""

    @property
    def place(self) -> str:
        """Where it answers, for a sentence."""

    def ask(self, source: str, *arguments: str, patience_s: int) -> str:
        """The output there of a program in Python that needs only the standard library; raises RequestError, which names the host."""

    def close(self) -> None:
        """Close it. Safe to call twice."""


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """A host with what its survey found."""

    host: Claims
    connection: Reach  # the caller of the survey closes it
    engine_id: str
    engine: EngineFacts  # as it reports itself; `gpu_request` is the way in which it did provide GPUs
    node: Node  # what a job may use there
    facts: HostFacts
    clock: Clock
    local: tuple[str, ...]
    pairs: tuple[PairAnswer, ...]
    health: tuple[GpuHealth, ...]
    nvidia_pci: tuple[str, ...]  # NVIDIA's GPUs on its PCI bus, with or without a driver

    @property
    def docker(self) -> Connection:
        """The connection to its Docker engine, for a host surveyed through one."""
        assert isinstance(self.connection, Connection)  # noqa: S101 - callers know it
        return self.connection


class Snapshot(Frozen):
    """The output of `machine/snapshot.py`, validated: only files of /proc and /sys, and numbers of the right type."""

    folders: tuple[str, ...]
    files: Mapping[str, str]
    affinity: tuple[int, ...]
    addresses: Mapping[str, str]
    local: tuple[str, ...]
    ports: tuple[int, ...] = Field(min_length=1)
    visible: str | None = None  # its CUDA_VISIBLE_DEVICES, which Slurm sets if it does not isolate the other GPUs
    uname: Mapping[str, str] = {}
    time: float = 0.0
    nvml: NvmlAnswers | None  # None if the container got no GPU

    @field_validator("folders", "files")
    @classmethod
    def _only_proc_and_sys(cls, paths: Any) -> Any:
        for path in paths:
            parts = PurePosixPath(path).parts
            if parts[:1] != ("/",) or parts[1:2] not in (("proc",), ("sys",)) or ".." in parts:
                raise ValueError(f"{path!r} is no file of /proc or /sys")
        return paths

    def write_to(self, root: Path) -> None:
        """Write the files and folders below `root`."""
        for name in self.folders:
            (root / name[1:]).mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            path = root / name[1:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def node(self, name: str, root: Path, *, no_gpus: str) -> Node:
        """The machine, read from the files at `root`; `no_gpus` is why its engine provided none."""
        return read_node(
            name=name,
            sys_root=root,
            answers=self.nvml or NvmlAnswers(error=no_gpus, loaded=False),
            visible=self.visible,
            affinity=self.affinity,
            addresses=self.addresses,
            ports=self.ports,
        )

    def surveyed(
        self,
        connection: Reach,
        *,
        engine: EngineFacts,
        engine_id: str | None,
        clock: Clock,
        extra_facts: Mapping[str, str],
        no_gpus: str,
    ) -> Surveyed:
        """The host with everything its files tell; `extra_facts` are those that they don't. Without an `engine_id`, its boot id and addresses identify it."""
        name = connection.host.name
        with tempfile.TemporaryDirectory(prefix="dlscale-") as folder:
            root = Path(folder)
            self.write_to(root)
            node = self.node(name, root, no_gpus=no_gpus)
            facts, nvidia_pci = read_host(node, root), nvidia_pci_functions(root)
        return Surveyed(
            host=connection.host,
            connection=connection,
            engine_id=engine_id or " ".join((facts.boot_id or name, *sorted(self.local))),
            engine=engine,
            node=node,
            facts=facts.model_copy(update=dict(extra_facts)),
            clock=clock,
            local=self.local,
            pairs=self.nvml.pairs if self.nvml else (),
            health=read_health(self.nvml, node.gpus) if self.nvml else (),
            nvidia_pci=nvidia_pci,
        )


def read_snapshot(name: str, output: str) -> Snapshot:
    """Parse a host's snapshot; raises RequestError, which names the host."""
    try:
        return Snapshot.model_validate_json(output)
    except ValidationError as error:
        raise RequestError(
            f"{name}: its snapshot can't be read ({output.strip()[-200:] or 'it is empty'}); see its engine's log"
        ) from error


def survey(hosts: Hosts, say: Callable[[str], None]) -> tuple[Surveyed, ...]:
    """Survey every host, in the list's order, and check it against the list's claims; the connections stay open.

    Raises RequestError, after closing them all, if a host can't be reached, lacks what the list claims, has a wrong clock or is listed twice.
    """
    names = [host.name for host in hosts.hosts]
    say(f"asking {', '.join(names)}")
    with contextlib.ExitStack() as undo:
        answers = ask_all(connect, hosts.hosts)
        for answer in answers:
            if isinstance(answer, Connection):
                undo.callback(answer.close)
        connections = require_all(names, answers)
        reference = supply_base(connections, say)
        found = require_all(names, ask_all(lambda connection: examine(connection, reference), connections))
        check(found)
        undo.pop_all()
        return found


def require_all(names: Sequence[str], answers: Sequence[R | RequestError]) -> tuple[R, ...]:
    """Return all answers, one per host; raises the first refusal among them, with the names of the other refused hosts."""
    refusals = [(name, answer) for name, answer in zip(names, answers, strict=True) if isinstance(answer, RequestError)]
    if refusals:
        others = ", ".join(name for name, _ in refusals[1:])
        more = f" ({others} can't be used either: `dlscale doctor --hosts=...` says why)" if others else ""
        raise RequestError(f"{refusals[0][1]}{more}")
    return tuple(answer for answer in answers if not isinstance(answer, RequestError))


def check(found: Sequence[Surveyed]) -> None:
    """Check hosts against their list's claims, their clocks against this machine's, and for duplicates; raises RequestError."""
    names = [seen.host.name for seen in found]
    require_all(names, [RequestError(said[0]) if (said := refusals(seen)) else seen for seen in found])
    _refuse_duplicates(found)


def _refuse_duplicates(found: Sequence[Surveyed]) -> None:
    """Refuse a machine under two names, whose devices a job would count twice; the testbed's nodes have engines of their own."""
    names: dict[str, str] = {}
    for seen in found:
        first = names.setdefault(seen.engine_id, seen.host.name)
        if first != seen.host.name:
            raise RequestError(f"{first} and {seen.host.name} are one machine: the same engine answers; name it once")


def refusals(seen: Surveyed) -> tuple[str, ...]:
    """Why a host that answers can't be used; each a sentence that names it."""
    clock = clock_refusal(seen.host.name, seen.clock)
    return (*unmet(seen.host, seen.node, local=seen.local), *([clock] if clock else []))


def ask_all(ask: Callable[[T], R], whom: Sequence[T]) -> tuple[R | RequestError, ...]:
    """Ask all concurrently; a RequestError is an answer."""

    def answer(one: T) -> R | RequestError:
        try:
            return ask(one)
        except RequestError as error:
            return error

    with ThreadPoolExecutor(min(_MAX_THREADS, len(whom) or 1)) as pool:
        return tuple(pool.map(answer, whom))


def supply_base(connections: Sequence[Connection], say: Callable[[str], None]) -> str:
    """Copy the suite's base to every node that lacks it, and return its reference; raises RequestError if that fails."""
    base = base_image()
    lacking: list[Connection] = []
    supplied: list[Connection] = []
    for connection in connections:
        with engine_errors(connection):
            found = find_image(connection.client, base.reference)
        (supplied if found else lacking).append(connection)
    if not lacking:
        return base.reference
    try:
        source, machine = docker.connect(), "this machine"
        ensure_base(base, client=source, root=SUITE_ROOT, cache=cache_dir(), report=say)
    except EngineError as error:  # no engine here; a node that has the base supplies the others
        if not supplied:
            raise RequestError(
                f"{lacking[0].host.name} lacks {base.reference}, with which the suite inspects it, and {error} here to build it; "
                "start Docker on this machine"
            ) from error
        source, machine = supplied[0].client, supplied[0].host.name
    supply_image(base.reference, source=source, machine=machine, nodes=lacking, report=say)
    return base.reference


def examine(connection: Connection, reference: str) -> Surveyed:
    """Survey one host, by a container of an image with Python that its engine has; raises RequestError if that fails."""
    with engine_errors(connection):
        info, clock = read_clock(connection.client.info)
        podman_version = podman.version_of(connection.client)
        gpu_request, output, no_gpus = _snapshot(connection, info, reference)
    found = read_snapshot(connection.host.name, output)
    keys = {"hostname": "Name", "kernel": "KernelVersion", "architecture": "Architecture", "os": "OperatingSystem"}
    return found.surveyed(
        connection,
        engine=docker.engine_facts(info, gpu_request=gpu_request, podman=podman_version),
        # The engine's ID alone comes from its key file, which clones of a machine share.
        engine_id=" ".join((info["ID"], info["Name"], info["DockerRootDir"])),
        clock=clock,
        extra_facts={field: info[key] for field, key in keys.items()},
        no_gpus=no_gpus,
    )


def _snapshot(connection: Connection, info: dict[str, Any], reference: str) -> tuple[GpuRequest | None, str, str]:
    """Take a snapshot: the way in which the engine provided GPUs, the container's output, and why there are no GPUs."""
    source = Path(snapshot.__file__).read_text(encoding="utf-8")
    argv = ("python3", "-c", source, str(PORTS))
    no_gpus = "its engine has neither NVIDIA's runtime nor CDI device names"
    for request in docker.gpu_requests(info, local=False):
        try:
            output = run_confined(connection.client, reference, (*argv, *packed_pynvml()), gpu_request=request)
        except EngineRefusedError as error:
            no_gpus = f"its engine provides none ({error})"
        else:
            return request, output, "it got no GPU"
    return None, run_confined(connection.client, reference, argv), no_gpus


def packed_pynvml() -> tuple[str, ...]:
    """nvidia-ml-py's single file, as arguments: the node needs no package, only its driver's own library."""
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        return ()
    packed = base64.b85encode(zlib.compress(Path(found.origin).read_bytes(), 9)).decode()
    return tuple(packed[start : start + _ARGUMENT] for start in range(0, len(packed), _ARGUMENT))
