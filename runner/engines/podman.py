"""Podman behind Docker's API: it runs containers, takes a request for GPUs and does nothing about it, and may leave MXNet's scheduler running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from runner.core.errors import RequestError

if TYPE_CHECKING:
    from docker import DockerClient

STEP: Final = "start Docker and set DOCKER_HOST to its socket, or ask for ENGINE=venv or ENGINE=host"


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


def note(podman: str) -> str:
    """What to know of a job on CPUs there."""
    return f"{podman} is behind Docker's socket, which the suite is not made for: see `docker ps` for an MXNet scheduler that goes on"
