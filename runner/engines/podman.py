"""Podman behind Docker's API: where it differs from Docker.

Seen with Podman 4.3.1: it accepts and ignores requests for GPUs (CDI names too, which its own command line supports), creates an empty
folder for a mount source that does not exist, and refuses to remove a container whose network another container is in.
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

STEP: Final = "start Docker and set DOCKER_HOST to its socket, or use ENGINE=venv or ENGINE=host"
_DEPENDENTS: Final = re.compile(r"has dependent containers which must be removed before it: ([0-9a-f, ]+)")


def version_of(client: DockerClient) -> str | None:
    """Podman's name and version if it serves Docker's API, such as `Podman 4.3.1`; None for Docker itself.

    Raises:
        docker.errors.DockerException, requests.RequestException: nothing answers.
    """
    parts = client.version().get("Components") or ()
    return next((f"Podman {part.get('Version')}" for part in parts if part.get("Name") == "Podman Engine"), None)


def refuse_gpus(podman: str | None) -> None:
    """Refuse a GPU job, on requested or detected GPUs, if Podman would start it without any; raises RequestError."""
    if podman:
        raise RequestError(f"{podman} serves Docker's socket and gives containers no GPU; {STEP}, or DEVICE=cpu")


def refuse_missing_mounts(podman: str, spec: ContainerSpec) -> None:
    """Refuse a container that mounts a missing path of this machine, as Docker does. Raises EngineRefusedError."""
    for mount in spec.mounts:
        if mount.source.startswith("/") and not Path(mount.source).exists():
            raise EngineRefusedError(f"{mount.source} is not there; {podman} would create an empty folder")


def dependents(error: APIError) -> tuple[str, ...]:
    """Ids of the containers that must be removed first because they are in the container's network, from the error of its removal."""
    found = _DEPENDENTS.search(str(error.explanation))
    return tuple(found[1].replace(" ", "").split(",")) if found else ()


def note(podman: str) -> str:
    """A line that tells the user that Podman runs the containers."""
    return f"{podman} runs the containers: it serves Docker's socket"
