"""A node's engine and ssh server: configured, started, stopped and killed, in the node's network and with its host name."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from runner.cluster.machine.hostfs import read_text
from runner.core.errors import RequestError
from runner.engines.process import run
from testbed import teardown
from testbed.layout import (
    NAMESPACES,
    Layout,
    RigNode,
    containerd_config,
    engine_config,
    known_hosts,
    ssh_config,
    sshd_config,
)
from testbed.tools import start_daemon, tool

_MACHINE_ENGINE: Final = Path("/etc/docker/daemon.json")
# Compiled into Debian's sshd; normally created by its service, which does not run here.
_PRIVILEGE_SEPARATION: Final = Path("/run/sshd")
_PING: Final = b"GET /_ping HTTP/1.0\r\n\r\n"
_START_S: Final = 60.0
_STOP_S: Final = 30.0  # an engine gives its containers 15 s to stop
# How long a server may be missing before it counts as exited: during execve, it has no arguments to recognize it by.
_GONE_S: Final = 1.0


def configure(layout: Layout) -> None:
    """Write keys and configuration of all nodes, into the rig's existing directories."""
    key = layout.run / "key"
    _make_key(key)
    authorized = layout.run / "authorized_keys"
    authorized.write_text(_public(key))
    (layout.run / "ssh_config").write_text(ssh_config(layout))
    machine = _machine_engine()
    for node in layout.nodes:
        node.run.mkdir(mode=0o700)
        node.data.mkdir(mode=0o700)
        _make_key(node.run / "host_key")
        (node.run / "sshd_config").write_text(sshd_config(node, authorized=authorized, pam=is_root_locked()))
        (node.run / "containerd.toml").write_text(containerd_config(node))
        (node.run / "daemon.json").write_text(engine_config(node, machine=machine))
    (layout.run / "known_hosts").write_text(
        known_hosts({node.address: _public(node.run / "host_key") for node in layout.nodes})
    )


def name_host(node: RigNode) -> None:
    """Give the node its own host name, because some libraries tell hosts apart by it."""
    node.host_name.touch()
    run((tool("unshare"), f"--uts={node.host_name}", tool("hostname"), node.address))


def start_engine(node: RigNode) -> None:
    """Start the containerd and Docker engine if they do not run; `await_engine` waits until they answer."""
    for name, words in (
        ("containerd", ("--config", str(node.run / "containerd.toml"))),
        ("dockerd", ("--config-file", str(node.run / "daemon.json"))),
    ):
        if not teardown.started_with(Path(words[-1])):
            # Left by a killed one; another process may have its id now.
            (node.run / f"{name}.pid").unlink(missing_ok=True)
            _start(node, name, words)


def await_engine(node: RigNode) -> None:
    """Wait until the engine answers."""
    answers = partial(_answers, node.socket, ask=_PING, expect=b" 200 ")
    _await(node, "dockerd", configuration=node.run / "daemon.json", answers=answers)


def stop_engine(node: RigNode) -> None:
    """Stop the Docker engine and its containers gracefully, like `systemctl stop docker`."""
    running = teardown.started_with(node.run / "daemon.json")
    if not teardown.kill(running, sign=signal.SIGTERM, patience_s=_STOP_S):
        teardown.kill(running)


def kill_engine(node: RigNode) -> None:
    """Kill the Docker engine immediately; its containers keep running."""
    teardown.kill(teardown.started_with(node.run / "daemon.json"))


def start_ssh(node: RigNode) -> None:
    """Start the ssh server if it does not run; `await_ssh` waits until it answers."""
    if not teardown.started_with(node.run / "sshd_config"):
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
        _start(node, "sshd", ("-D", "-e", "-f", str(node.run / "sshd_config")))


def await_ssh(node: RigNode) -> None:
    """Wait until the ssh server answers."""
    answers = partial(_answers, (node.address, 22), ask=b"", expect=b"SSH-")
    _await(node, "sshd", configuration=node.run / "sshd_config", answers=answers)


def stop_ssh(node: RigNode) -> None:
    """Kill the ssh server and all sessions: new connections are refused, open ones break."""
    sessions = tuple(process for process in teardown.processes_of(node.namespace) if process.name.startswith("sshd"))
    teardown.kill((*teardown.started_with(node.run / "sshd_config"), *sessions))


def _start(node: RigNode, name: str, words: tuple[str, ...]) -> None:
    # Not `ip netns exec`: it mounts another /sys, without the control groups that the engine needs.
    inside = (tool("nsenter"), f"--net={NAMESPACES / node.namespace}", f"--uts={node.host_name}")
    start_daemon((*inside, tool(name), *words), log=node.run / f"{name}.log")


def _await(node: RigNode, name: str, *, configuration: Path, answers: Callable[[], bool]) -> None:
    seen = time.monotonic()
    deadline = seen + _START_S
    while not answers():
        now = time.monotonic()
        if teardown.started_with(configuration):
            seen = now
        ended = now > seen + _GONE_S
        if ended or now > deadline:
            last = (read_text(node.run / f"{name}.log") or "it said nothing").splitlines()[-1]
            what = "did not start" if ended else f"did not answer within {_START_S:.0f} s"
            raise RequestError(f"{name} of node {node.name} {what}: {last}")
        time.sleep(0.05)


def _answers(address: Path | tuple[str, int], *, ask: bytes, expect: bytes) -> bool:
    """Whether a server's first bytes contain `expect`. An engine accepts connections long before it is ready."""
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            probe.connect(str(address) if isinstance(address, Path) else address)
            probe.sendall(ask)
            return expect in probe.recv(64)
    except OSError:
        return False


def _make_key(path: Path) -> None:
    run((tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "dlscale rig", "-f", str(path)))


def _public(key: Path) -> str:
    return key.with_name(f"{key.name}.pub").read_text()


def _machine_engine() -> dict[str, Any]:
    """Settings of the machine's own engine; empty if it has none."""
    text = read_text(_MACHINE_ENGINE)
    settings: dict[str, Any] = json.loads(text) if text else {}
    return settings


def is_root_locked() -> bool:
    """Whether root has no password at all, as on Ubuntu: sshd then accepts root only if it uses PAM."""
    lines = (read_text(Path("/etc/shadow")) or "").splitlines()
    return any(line.startswith("root:!") for line in lines)
