"""A program in a container on a node: with the node's network, as an ordinary user, without a single right, for a minute at most."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from runner.cluster.hosts.endpoint import Connection
from runner.core.container_spec import IMAGE_USER, LABEL_RUN
from runner.core.errors import RequestError
from runner.engines.base import EngineError, GpuRequest
from runner.engines.docker_options import CONFINED
from runner.engines.owner import signed

_ANSWER_S: Final = 60


@contextlib.contextmanager
def engine_errors(connection: Connection) -> Iterator[None]:
    """Turn what an engine raises into a sentence that names its node."""
    from docker.errors import DockerException  # noqa: PLC0415 - loaded with the client
    from requests.exceptions import RequestException  # noqa: PLC0415

    try:
        yield
    except (DockerException, RequestException) as error:
        raise RequestError(connection.sentence(error)) from error
    except EngineError as error:
        raise RequestError(f"{connection.host.name}: {error}; see `dlscale doctor --hosts`") from error


def run_on(connection: Connection, reference: str, argv: Sequence[str], *, gpus_by: GpuRequest | None = None) -> str:
    """Run a program in a container with a node's network and no rights, and return what it printed.

    Args:
        connection: to the node's engine.
        reference: an image that the engine has.
        argv: the program and its arguments.
        gpus_by: ask for all GPUs in this way.

    Raises:
        docker.errors.DockerException, requests.RequestException: the engine would not, or it took longer than a minute.
    """
    from docker.types import DeviceRequest, LogConfig  # noqa: PLC0415 - loaded with the client

    gpus = {
        None: [],
        "nvidia": [DeviceRequest(driver="nvidia", count=-1, capabilities=[["gpu", "utility", "compute"]])],
        "cdi": [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])],
    }
    api = connection.client.api
    config = api.create_host_config(
        network_mode="host",
        **CONFINED,
        pids_limit=64,
        device_requests=gpus[gpus_by] or None,
        log_config=LogConfig(type="json-file"),  # an engine's own default may keep nothing that could be read
    )
    container = api.create_container(
        reference,
        list(argv[1:]),
        entrypoint=[argv[0]],
        name=f"dlscale-survey-{uuid.uuid4().hex[:12]}",
        user=IMAGE_USER,
        labels=signed({LABEL_RUN: "survey"}),
        host_config=config,
    )["Id"]
    try:
        api.start(container)
        code = api.wait(container, timeout=_ANSWER_S)["StatusCode"]
        printed: bytes = api.logs(container, stdout=True, stderr=bool(code))
        return printed.decode(errors="replace")
    finally:
        api.remove_container(container, force=True)
