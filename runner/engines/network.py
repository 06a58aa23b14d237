"""The network that a run makes for itself: a bridge of the engine between its emulated nodes, with no way out and no address of the host.

It comes with the first container that lives in it and goes with the last; what a killed run left, `dlscale clean` removes.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

from runner.core.container_spec import LABEL_RUN, ContainerSpec
from runner.engines.base import EngineError, as_engine_error
from runner.engines.owner import signed

if TYPE_CHECKING:
    from docker import DockerClient

# Without this, Docker gives the host the first address of the network, and a job could reach what listens there.
NO_HOST: Final = "com.docker.network.bridge.inhibit_ipv4"
# Nodes start at once, and Docker lets two networks have one name.
_MAKING: Final = threading.Lock()


def ensure(client: DockerClient, spec: ContainerSpec) -> None:
    """Make the network that a container is to live in, unless another of the run's has made it.

    Raises:
        EngineError: the engine would not.
    """
    try:
        with _MAKING, as_engine_error():
            if spec.network not in [there.name for there in client.networks.list(names=[spec.network])]:
                client.networks.create(
                    spec.network,
                    driver="bridge",
                    internal=True,
                    options={NO_HOST: "true"},
                    labels=signed(_labels(spec)),
                )
    except EngineError as error:
        raise EngineError(
            f"the network {spec.network} could not be made ({error}); `dlscale clean` removes those that killed runs left"
        ) from error


def remove_unused(client: DockerClient, name: str) -> None:
    """Remove a network unless a container is still in it. Safe to call at any time, and when the engine is gone."""
    with contextlib.suppress(EngineError), as_engine_error():
        client.api.remove_network(name)


def network_create(spec: ContainerSpec) -> tuple[str, ...]:
    """The same in the words of the command line."""
    labels = [word for key, value in _labels(spec).items() for word in ("--label", f"{key}={value}")]
    return ("docker", "network", "create", "--internal", "--opt", f"{NO_HOST}=true", *labels, spec.network)


def _labels(spec: ContainerSpec) -> dict[str, str]:
    return {LABEL_RUN: spec.labels[LABEL_RUN]}
