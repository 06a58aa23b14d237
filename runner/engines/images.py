"""Images of a Docker engine, and the short-lived containers that look around in one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from runner.core.container_spec import IMAGE_USER, LABEL_RUN
from runner.engines import docker
from runner.engines.base import EngineError, EngineRefusedError, GpuRequest, as_engine_error
from runner.engines.docker_options import CONFINED
from runner.engines.owner import signed

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image

_ANSWER_S: Final = 60


def find_image(client: DockerClient, reference: str) -> Image | None:
    """The image that an engine has under a reference; None for none.

    Raises:
        EngineError: the engine refuses the reference, or does not answer.
    """
    from docker.errors import ImageNotFound  # noqa: PLC0415 - loaded with the client

    with as_engine_error():
        try:
            return client.images.get(reference)
        except ImageNotFound:
            return None


def run_confined(
    client: DockerClient, reference: str, argv: Sequence[str], *, gpus_by: GpuRequest | None = None
) -> str:
    """Run a program with the machine's network, as an ordinary user without a single right, and return what it printed.

    Args:
        client: the engine.
        reference: an image that the engine has.
        argv: the program and its arguments.
        gpus_by: ask for all GPUs in this way.

    Raises:
        EngineError: the engine would not, or it took longer than a minute.
    """
    from docker.types import DeviceRequest, LogConfig  # noqa: PLC0415 - loaded with the client

    gpus = {
        None: [],
        "nvidia": [DeviceRequest(driver="nvidia", count=-1, capabilities=[["gpu", "utility", "compute"]])],
        "cdi": [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])],
    }
    api = client.api
    with as_engine_error():
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


def can_mount(client: DockerClient, place: str, *, image: str, labels: Mapping[str, str]) -> bool:
    """Whether a machine has a path, seen by a container that is created with it and never started.

    Raises:
        EngineError: the engine refuses for another reason, or does not answer.
    """
    from docker.types import Mount  # noqa: PLC0415 - loaded with the client

    api = client.api
    try:
        with as_engine_error():
            mount = Mount("/data", place, type="bind", read_only=True)
            host = api.create_host_config(mounts=[mount], network_mode="none")
            holder = api.create_container(image, ["true"], labels=signed(labels), host_config=host)["Id"]
            api.remove_container(holder, force=True)
    except EngineRefusedError as error:
        if "bind source path does not exist" not in str(error):
            raise
        return False
    return True


_REGISTRY_ANSWER_S: Final = 15


@dataclass(frozen=True)
class Answer:
    """What a registry said of a reference.

    Attributes:
        digest: the digest that it has; None if it has none to give.
        silence: why not, as the engine says; None where there is a digest.
    """

    digest: str | None
    silence: str | None


def ask_registry(reference: str) -> Answer:
    """Ask the registry that a reference names; pulls nothing."""
    try:
        api: Any = docker.connect(timeout_s=_REGISTRY_ANSWER_S).api
    except EngineError as error:
        return Answer(None, str(error))
    try:
        with as_engine_error():
            return Answer(str(api.inspect_distribution(reference)["Descriptor"]["digest"]), None)
    except EngineError as error:
        return Answer(None, str(error).rpartition(": ")[2])
