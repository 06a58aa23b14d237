"""Ownership of what runs leave in engines and folders: which runner it belongs to, whether that is gone, and how it is removed.

Ownership is certain only for runners on this one's kernel, since it booted, and in its PID namespace. About any other (another host,
another PID namespace, a previous boot) nothing is known, and nothing is guessed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER
from runner.engines import podman
from runner.engines.base import EngineError, as_engine_error

if TYPE_CHECKING:
    from docker import APIClient, DockerClient


State = Literal["alive", "gone", "unknown"]

_PROC: Final = Path("/proc")
_OWNER: Final = re.compile(r"(?P<place>[0-9a-f-]{36}\.\d+\.\d+)\.(?P<pid>\d{1,9})\.(?P<started>\d+)")


def this_process() -> str | None:
    """A unique name for this process: boot, namespaces, process id and start time; None if /proc does not show them."""
    host = _host_id()
    try:
        return host and f"{host}.{os.getpid()}.{_process_stat(os.getpid())[1]}"
    except (OSError, IndexError):
        return None


def signed(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels with this process added as their owner; engines call this, since no plan can know the owner."""
    mine = this_process()
    return {**labels, LABEL_RUNNER: mine} if mine else dict(labels)


def state(owner: str | None) -> State:
    """Whether a runner still lives, from the owner label on its things."""
    found = _OWNER.fullmatch(owner or "")
    if found is None or found["place"] != _host_id():
        return "unknown"
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        pass  # another user's process, so it exists
    try:
        status, started = _process_stat(pid)
    except (OSError, IndexError):  # /proc may hide others' processes (`hidepid`)
        return "unknown"
    # A killed process stays a zombie until its parent waits for it; process ids are reused.
    return "alive" if started == found["started"] and status not in "ZX" else "gone"


def _host_id() -> str | None:
    """This kernel's boot, and the namespaces in which process ids and start times are counted."""
    try:
        if (_PROC / "self").readlink().name != str(os.getpid()):  # a /proc of another PID namespace
            return None
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{_namespace('pid')}.{_namespace('time')}"
    except OSError:
        return None


def _namespace(kind: str) -> int:
    """A namespace's inode number; 0 if the kernel lacks its kind (time: since Linux 5.6)."""
    path = _PROC / "self/ns" / kind
    return path.stat().st_ino if path.exists() else 0


def _process_stat(pid: int) -> tuple[str, str]:
    """A process's state, and its start time in clock ticks since boot: proc(5), fields 3 and 22 of `stat`."""
    fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return fields[0], fields[19]


Kind = Literal["container", "volume", "network", "process"]

# A removal that is already in progress takes moments; on a disk that is busy with an image, seconds.
_REMOVAL_S: Final = 30
_IN_PROGRESS: Final = 409
_OF_RUNS: Final = {"label": LABEL_RUN}
_LISTS: Final[Mapping[Kind, Callable[[APIClient], Iterable[dict[str, Any]]]]] = {
    "container": lambda api: api.containers(all=True, filters=_OF_RUNS),
    "volume": lambda api: api.volumes(filters=_OF_RUNS)["Volumes"] or (),
    "network": lambda api: api.networks(filters=_OF_RUNS),
}


@dataclass(frozen=True)
class Labelled:
    """Something in an engine, or a machine's processes, with the suite's label."""

    kind: Kind
    name: str
    id: str
    run: str
    runner: str | None  # its owner, as `owner.state` reads it; None if it has no such label
    status: str | None = None  # of containers and processes: `created`, `running`, `exited`, ...


def labelled(client: DockerClient) -> list[Labelled]:
    """Everything of every kind with the suite's label; raises EngineError if the engine does not answer."""
    with as_engine_error():
        found = [(kind, thing) for kind, things in _LISTS.items() for thing in things(client.api)]
    return [
        Labelled(
            kind,
            name=thing["Names"][0].removeprefix("/") if kind == "container" else thing["Name"],
            id=thing["Name"] if kind == "volume" else thing["Id"],
            run=thing["Labels"][LABEL_RUN],
            runner=thing["Labels"].get(LABEL_RUNNER),
            status=thing.get("State"),
        )
        for kind, thing in found
    ]


def remove_labelled(client: DockerClient, thing: Labelled, *, force: bool) -> bool:
    """Remove a volume, a network, or a container with its anonymous volumes; a running container only by force.

    Returns False only by force, as `remove` does; otherwise, raises EngineRefusedError if the thing is missing or in use.
    """
    if thing.kind == "container" and force:
        return remove(client.api, thing.id)
    with as_engine_error():
        if thing.kind == "container":
            client.api.remove_container(thing.id, v=True)
        elif thing.kind == "volume":
            client.api.remove_volume(thing.id)
        else:
            client.api.remove_network(thing.id)
    return True


def remove(api: APIClient, identifier: str) -> bool:
    """Remove a container with its anonymous volumes by force, and wait until it is gone; under Podman, containers in its network first.

    Returns:
        Whether it existed; also False if the engine refuses or does not answer.
    """
    from docker.errors import APIError, NotFound  # noqa: PLC0415 - loaded with the client

    with contextlib.suppress(EngineError), as_engine_error():
        try:
            api.remove_container(identifier, force=True, v=True)
        except NotFound:
            return False
        except APIError as error:
            if others := podman.dependents(error):
                for other in others:
                    remove(api, other)
                api.remove_container(identifier, force=True, v=True)
                return True
            if error.status_code != _IN_PROGRESS:
                raise
            api.wait(identifier, timeout=_REMOVAL_S, condition="removed")
        return True
    return False
