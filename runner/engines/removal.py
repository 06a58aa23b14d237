"""What the suite's runs have in an engine, by its label, and how it goes: also what the engine itself is removing already."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER
from runner.engines import podman
from runner.engines.base import EngineError, as_engine_error

if TYPE_CHECKING:
    from docker import APIClient, DockerClient

Kind = Literal["container", "volume", "network"]

# An engine that is removing a container already takes moments; on a disk that others fill with an image, seconds.
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
    """Something in an engine that carries the suite's label."""

    kind: Kind
    name: str
    id: str
    run: str
    runner: str | None  # who made it, as `owner.state` reads it; None where it does not say
    status: str | None = None  # of a container: `created`, `running`, `exited`,


def labelled(client: DockerClient, kind: Kind) -> list[Labelled]:
    """What is there of a kind; raises EngineError where the engine does not answer."""
    with as_engine_error():
        found = _LISTS[kind](client.api)
    return [
        Labelled(
            kind,
            name=thing["Names"][0].removeprefix("/") if kind == "container" else thing["Name"],
            id=thing["Name"] if kind == "volume" else thing["Id"],
            run=thing["Labels"][LABEL_RUN],
            runner=thing["Labels"].get(LABEL_RUNNER),
            status=thing.get("State"),
        )
        for thing in found
    ]


def remove_labelled(client: DockerClient, thing: Labelled, *, force: bool) -> bool:
    """Remove a volume, a network, or a container with its anonymous volumes: one that runs by force alone.

    Returns:
        Whether it was there.
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
    """Remove a container with its anonymous volumes, whatever it does, and wait until it is gone; under Podman, what is in its network first.

    Returns:
        Whether it was there; False too where the engine does not answer.
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
