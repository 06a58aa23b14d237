"""Chooses the engine for a request's jobs, and gives the reason. Queries engines; starts none."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from runner.cluster.cluster import Cluster
from runner.core.errors import RequestError
from runner.core.request import BARE_ENGINES, EngineName, Request
from runner.engines import docker, podman, process
from runner.engines.base import EngineError


@dataclass(frozen=True)
class EngineChoice:
    """The engine to use, and the reason if it is not the default."""

    name: EngineName
    reason: str | None
    podman: str | None = None  # Podman's name and version if it serves Docker's API
    version: str | None = None  # of a command-line engine

    @property
    def in_containers(self) -> bool:
        """Whether jobs run in containers."""
        return self.name not in BARE_ENGINES


def engine_of(request: Request, cluster: Cluster) -> EngineChoice:
    """Choose the engine for a request on these machines.

    On nodes that are reached by a command line: Apptainer if the first node has it, else Podman. Elsewhere: Docker if it answers. Otherwise
    the suite's own virtual environment, with the reason. Other engines must be requested; a user's command line runs in Docker only.

    Raises:
        RequestError: a requested engine does not answer or is not installed.
    """
    asked, reaches = request.engine, cluster.reaches
    if cluster.kind == "hosts":
        return EngineChoice("docker", None)  # every host has Docker
    if request.command:
        with closing(docker.connect_or_refuse()) as client:
            return EngineChoice("docker", None, podman.version_of(client))
    if cluster.kind == "emulated":
        asked = "docker"
    if asked in (("venv", "pyxis") if reaches else BARE_ENGINES):
        return EngineChoice(asked, f"asked for with ENGINE={asked}")
    if not reaches and asked not in process.PROGRAMS:
        return _docker(asked)
    ask, where = (reaches[0].command, f"on {reaches[0].node} ") if reaches else (process.ask_here, "")
    for name in (one for one in process.PROGRAMS if asked == one or (reaches and asked is None)):
        found = process.find_program(name, ask)
        if found.available:
            return EngineChoice(name, f"asked for with ENGINE={asked}" if asked else None, version=found.version)
        if asked:
            step = "load its module first, or" if reaches else "install it, or ask for ENGINE=docker or"
            raise RequestError(f"ENGINE={asked} asked, but {where}{found.reason}; {step} ask for ENGINE=venv")
    return EngineChoice("venv", f"{reaches[0].node} has neither {' nor '.join(process.PROGRAMS)}")


def _docker(asked: EngineName | None) -> EngineChoice:
    """Choose Docker if it answers, else the virtual environment. Raises RequestError if Docker was requested and does not answer."""
    try:
        client = docker.connect()
    except EngineError as error:
        if asked == "docker":
            raise RequestError(
                f"ENGINE=docker asked, but {error}; start it (`dlscale doctor` says more) or ask for ENGINE=venv"
            ) from error
        return EngineChoice("venv", str(error))
    with closing(client):
        return EngineChoice("docker", None, podman.version_of(client))
