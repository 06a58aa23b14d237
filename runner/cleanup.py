"""`dlscale clean`: takes away what a killed run left, here and on other hosts: containers, volumes with programs or keys, networks."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from runner.engines import docker
from runner.errors import RequestError
from runner.spec import LABEL_RUN

if TYPE_CHECKING:
    from docker import DockerClient


def clean(hosts: str | None = None) -> None:
    """Remove everything that carries the suite's label and say what it was.

    Args:
        hosts: HOSTS, whose engines are cleaned instead of this machine's.

    Raises:
        RequestError: no Docker engine answers, so there is nothing to ask; with hosts, after the others have been cleaned.
    """
    removed = remove_left(docker.connect_or_refuse()) if hosts is None else _clean_hosts(hosts)
    sys.stdout.write("".join(f"removed {name}\n" for name in removed) or "nothing to remove\n")


def remove_left(client: DockerClient) -> tuple[str, ...]:
    """Remove what runs have left in one engine, and return the names."""
    from docker.errors import APIError  # noqa: PLC0415 - loaded with the client

    removed = list(docker.remove_all(client))
    by_label = {"label": LABEL_RUN}
    for volume in client.volumes.list(filters=by_label):
        with contextlib.suppress(APIError):  # in use by somebody else's container, or gone meanwhile
            volume.remove()
            removed.append(str(volume.name))
    for network in client.networks.list(filters=by_label):
        with contextlib.suppress(APIError):
            network.remove()
            removed.append(str(network.name))
    return tuple(removed)


def _clean_hosts(text: str) -> tuple[str, ...]:
    from docker.errors import DockerException  # noqa: PLC0415 - commands load what they need
    from requests.exceptions import RequestException  # noqa: PLC0415

    from runner.hosts.endpoint import connected  # noqa: PLC0415
    from runner.hosts.hostsfile import load_hosts  # noqa: PLC0415

    removed: list[str] = []
    refusals: list[str] = []
    for host in load_hosts(text).hosts:
        try:
            with connected(host) as connection:
                removed += [f"{name} on {host.name}" for name in remove_left(connection.client)]
        except RequestError as error:
            refusals.append(str(error))
        except (DockerException, RequestException) as error:
            refusals.append(f"{host.name}: its engine stopped answering ({error}); try again when it is up")
    if refusals:
        sys.stdout.write("".join(f"removed {name}\n" for name in removed))
        raise RequestError("; also ".join(refusals))
    return tuple(removed)
