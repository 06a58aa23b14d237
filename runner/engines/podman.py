"""Podman behind Docker's API: where it is not Docker.

Seen with Podman 4.3.1: it takes a request for GPUs and does nothing about it (CDI names too, which its own command line knows), makes an
empty folder of a mount's source that is not there, and removes no container whose network another one is in.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runner.core.container_spec import ContainerSpec
from runner.core.errors import RequestError
from runner.engines.base import EngineRefusedError

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.errors import APIError

STEP: Final = "start Docker and set DOCKER_HOST to its socket, or ask for ENGINE=venv or ENGINE=host"
_DEPENDENTS: Final = re.compile(r"has dependent containers which must be removed before it: ([0-9a-f, ]+)")


def behind(client: DockerClient) -> str | None:
    """Podman by its version where it answers in Docker's place, `Podman 4.3.1`; None for Docker itself.

    Raises:
        docker.errors.DockerException, requests.RequestException: nothing answers.
    """
    parts = client.version().get("Components") or ()
    return next((f"Podman {part.get('Version')}" for part in parts if part.get("Name") == "Podman Engine"), None)


def refuse_gpus(podman: str | None) -> None:
    """Refuse a job on GPUs, asked for or taken because they are there, where Podman would start it without any; raises RequestError."""
    if podman:
        raise RequestError(f"{podman} is behind Docker's socket and gives containers no GPU; {STEP}, or for DEVICE=cpu")


def refuse_missing_mounts(podman: str, spec: ContainerSpec) -> None:
    """Refuse a container with a path of this machine that is not there, as Docker does. Raises EngineRefusedError."""
    for mount in spec.mounts:
        if mount.source.startswith("/") and not Path(mount.source).exists():
            raise EngineRefusedError(f"{mount.source} is not there; {podman} would make an empty folder of it")


def dependents(error: APIError) -> tuple[str, ...]:
    """Ids of the containers that have to be removed before the one whose removal this refuses: they are in its network."""
    found = _DEPENDENTS.search(str(error.explanation))
    return tuple(found[1].replace(" ", "").split(",")) if found else ()


def note(podman: str) -> str:
    """What runs a job's containers."""
    return f"{podman} runs the containers: it is behind Docker's socket"
