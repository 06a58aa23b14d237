"""The containers of one run while they run: started on all nodes concurrently, read, kept alive by heartbeats, and ended.

If a launcher needs SSH keys, each run has its own. They are made in memory, sent to the leases over the connections that hold them open,
and never written to a disk. The first node gets the private key for logging in to the others; these get the public key that they accept, and
one host key for all. A lease keeps them on a tmpfs of its container, which is removed with it (`workloads/lease.py`).
"""

from __future__ import annotations

import json
import queue
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from runner.analysis.grading.failures import explain
from runner.core.container_spec import BEAT_S, SILENCE_S, ContainerSpec
from runner.core.record import Status
from runner.engines.base import QUEUE_LENGTH, Container, Engine, EngineError, Line, NodeGoneError
from runner.plan.launch import horovod
from runner.plan.launch.job import Job

# Last lines of a container that are kept to explain why it failed; torchrun alone writes 45 after a rank's last line.
TAIL_LINES: Final = 200
POLL_S: Final = 0.25
# Tells a lease that the runner is alive.
HEARTBEAT: Final = b"\n"
# Characters that are kept of each of the last lines.
TAIL_LENGTH: Final = 2000


class Stop(Exception):  # noqa: N818 - it ends a run in an orderly way and is no error
    """Ends a run before all of its containers have exited."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason = reason


@dataclass
class ContainerGroup:
    """The containers of a run by name, with their nodes, unprocessed output and exit codes, and the nodes that were lost."""

    nodes: Mapping[str, str]
    containers: dict[str, Container] = field(default_factory=dict)
    output: queue.Queue[tuple[str, Line | int | EngineError]] = field(
        default_factory=lambda: queue.Queue(maxsize=QUEUE_LENGTH)
    )
    tails: dict[str, deque[str]] = field(default_factory=dict)
    exit_codes: dict[str, int] = field(default_factory=dict)
    last_events: dict[str, dict[int, str]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    identifiers: dict[str, str] = field(default_factory=dict)
    finished: threading.Event = field(default_factory=threading.Event)

    def start(self, engines: Mapping[str, Engine], specs: Sequence[ContainerSpec], keys: Mapping[str, bytes]) -> None:
        """Start all containers: nodes concurrently, in order on each; first the daemons of all nodes, because the others depend on them.

        `engines` are by node; `keys`, by container, are sent to its lease first. Raises Stop if an engine cannot start a container.
        """
        nodes = list(dict.fromkeys(spec.node for spec in specs))

        def start_on(node: str, wave: Sequence[ContainerSpec]) -> None:
            for spec in (spec for spec in wave if spec.node == node):
                try:
                    container = engines[node].start(spec)
                except EngineError as error:
                    engine = f"{node}: {engines[node].name}" if len(nodes) > 1 else engines[node].name
                    raise Stop("failed", f"{engine} would not start {spec.name}: {error}") from error
                self.follow(container)
                if spec.keys:
                    container.send(keys[spec.name])

        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            for wave in ([s for s in specs if s.role == "daemon"], [s for s in specs if s.role != "daemon"]):
                for started in [pool.submit(start_on, node, wave) for node in nodes]:
                    started.result()

    def follow(self, container: Container) -> None:
        """Read a container's lines in a new thread; its exit code, or the error of an engine that no longer answers, comes last."""
        self.tails[container.name] = deque(maxlen=TAIL_LINES)
        self.last_events[container.name] = {}
        self.containers[container.name] = container
        if container.identifier:
            self.identifiers[container.name] = container.identifier
        threading.Thread(target=self._read, args=(container,), daemon=True).start()

    def _read(self, container: Container) -> None:
        try:
            for line in container.lines():
                self._put(container.name, line)
            self._put(container.name, container.wait())
        except EngineError as error:
            self._put(container.name, error)

    def _put(self, name: str, item: Line | int | EngineError) -> None:
        """Queue output as soon as there is room; it is discarded once the run is over."""
        while not self.finished.is_set():
            with suppress(queue.Full):
                self.output.put((name, item), timeout=POLL_S)
                return

    def keep_alive(self, engines: Mapping[str, Engine]) -> None:
        """Send heartbeats to every container until the run ends, and check that the engine of every node still answers.

        A pulled cable closes no connection; only missed heartbeats reveal it.
        """

        def beat() -> None:
            while not self.finished.wait(BEAT_S):
                for container in tuple(self.containers.values()):
                    container.send(HEARTBEAT)

        def watch(node: str, engine: Engine) -> None:
            missed = 0
            while not self.finished.wait(BEAT_S):
                try:
                    engine.check(node)
                    missed = 0
                except EngineError as error:
                    missed += 1
                    if missed * BEAT_S >= SILENCE_S or isinstance(error, NodeGoneError):
                        self._put(next(name for name in self.nodes if self.nodes[name] == node), error)
                        return

        threading.Thread(target=beat, daemon=True).start()
        for node, engine in engines.items():
            threading.Thread(target=watch, args=(node, engine), daemon=True).start()

    def add_to_tail(self, name: str, text: str) -> None:
        """Add a line to the last lines of a container."""
        self.tails[name].append(text[:TAIL_LENGTH])

    def explain(self, name: str) -> str:
        """Explain why a container exited as it did; names its node if there are several."""
        where = f"{self.nodes[name]}: " if len(set(self.nodes.values())) > 1 else ""
        why = explain(self.exit_codes[name], self.tails[name], last_events=self.last_events[name])
        return f"{where}{name}: {why}"

    def end(self) -> None:
        """Stop all containers in parallel, the last started first, then remove them; on lost nodes, only release their leases.

        None is removed before all have ended: when Podman removes a container, it ends those that share its network.
        """
        self.finished.set()
        lost = [container for name, container in self.containers.items() if self.nodes[name] in self.lost]
        others = [container for container in reversed(self.containers.values()) if container not in lost]
        for calls in (
            [*(one.close_lease for one in lost), *(one.stop for one in others)],
            [one.remove for one in others],
        ):
            ends = [threading.Thread(target=call) for call in calls]
            for end in ends:
                end.start()
            for end in ends:
                end.join()
        self.containers.clear()


@dataclass(frozen=True)
class KeyPair:
    """An Ed25519 key pair in OpenSSH's formats: a private key file; algorithm and public key, as in known_hosts and authorized_keys."""

    private: str = field(repr=False)
    public: str


def make_pair() -> KeyPair:
    """Make a new key pair."""
    key = Ed25519PrivateKey.generate()
    return KeyPair(
        private=key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode(),
        public=key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
    )


def make_keys(job: Job, specs: Sequence[ContainerSpec]) -> dict[str, bytes]:
    """Make a run's SSH keys: by container, the line that its lease gets first; empty for a job that needs no SSH."""
    logins = horovod.logins(job)
    if not logins:
        return {}
    user, host = make_pair(), make_pair()
    on_head = {
        "id": user.private,
        "ssh_config": horovod.client_config(logins),
        "known_hosts": horovod.known_hosts(logins, host.public),
    }
    on_others = {"host": host.private, "authorized_keys": f"{user.public}\n"}
    by_node = {job.head.node.name: on_head, **{login.node: on_others for login in logins}}
    return {spec.name: f"{json.dumps(by_node[spec.node])}\n".encode() for spec in specs if spec.keys}
