"""Images of a Docker engine, and short-lived containers that inspect an image or its host."""

from __future__ import annotations

import contextlib
import tarfile
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal

from runner.core.container_spec import IMAGE_USER, LABEL_RUN
from runner.engines import docker, podman
from runner.engines.base import EngineError, EngineRefusedError, GpuRequest, as_engine_error
from runner.engines.docker_options import CONFINED
from runner.engines.owner import signed

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image

_ANSWER_S: Final = 60
_REGISTRY_ANSWER_S: Final = 15
_ALL_GPUS: Final[Mapping[GpuRequest | None, list[dict[str, Any]]]] = {
    None: [],
    "nvidia": [{"driver": "nvidia", "count": -1, "capabilities": [["gpu", "utility", "compute"]]}],
    "cdi": [{"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]}],
}


def find_image(client: DockerClient, reference: str) -> Image | None:
    """The engine's image under a reference; None if it has none."""
    from docker.errors import ImageNotFound  # noqa: PLC0415 - loaded with the client

    with as_engine_error():
        try:
            return client.images.get(reference)
        except ImageNotFound:
            return None


def image_id(client: DockerClient, reference: str) -> str | None:
    """Id of the engine's image under a reference; None if it has none."""
    found = find_image(client, reference)
    return str(found.id) if found else None


def read_image(client: DockerClient, reference: str) -> Iterator[bytes]:
    """Yield an engine's image as an archive, which includes its name, in blocks of about 2 MiB."""
    with as_engine_error():
        yield from client.api.get_image(reference)


def load_image(client: DockerClient, archive: IO[bytes] | Iterator[bytes]) -> None:
    """Load the images of an archive; returns once the engine has unpacked them."""
    with as_engine_error():
        # Quiet: the engine would write progress that we do not read while we still send, until both block.
        steps: Iterator[dict[str, Any]] = client.api.load_image(archive, quiet=True)  # type: ignore[no-untyped-call]
        for step in steps:
            if "error" in step:
                raise EngineRefusedError(str(step["error"]).strip())


def pull_image(client: DockerClient, reference: str) -> None:
    """Pull an image from its registry; raises EngineError in the engine's words if that fails."""
    with as_engine_error():
        client.images.pull(reference)


def build_image(
    client: DockerClient,
    files: Mapping[str, Path],
    *,
    tag: str,
    labels: Mapping[str, str],
    scratch: Path,
    network: Literal["none"] | None = None,
) -> Iterator[str]:
    """Build an image from files, by their paths in its context, and yield the output of its steps.

    The context is written to a temporary file in `scratch`. The steps use the engine's default network, or `none`.
    """
    with tempfile.TemporaryFile(dir=scratch) as context, as_engine_error():
        write_context(context, files)
        context.seek(0)
        steps = client.api.build(
            fileobj=context,
            custom_context=True,
            tag=tag,
            network_mode=network,
            labels=dict(labels),
            rm=True,
            forcerm=True,
            decode=True,
        )
        for step in steps:
            if "error" in step:
                raise EngineRefusedError(str(step["error"]).strip())
            yield str(step.get("stream", "")).strip()


def write_context(file: IO[bytes], files: Mapping[str, Path]) -> None:
    """Write a build context as a tar: the same bytes for the same inputs, so that the engine's layer cache hits."""
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, path in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                tar.addfile(info, content)


def prune_images(client: DockerClient, *, label: str) -> None:
    """Remove untagged images with this label, such as build stages, if the engine answers."""
    with contextlib.suppress(EngineError), as_engine_error():
        client.images.prune(filters={"dangling": True, "label": label})


def remove_unnamed(client: DockerClient, identifier: str) -> None:
    """Remove an image whose tag has moved to a new one, unless it has another tag or a container uses it."""
    with contextlib.suppress(EngineError), as_engine_error():
        if not client.images.get(identifier).tags:
            client.images.remove(identifier)


def run_confined(
    client: DockerClient,
    reference: str,
    argv: Sequence[str],
    *,
    network: Literal["host", "none"] = "host",
    gpu_request: GpuRequest | None = None,
    files: str | None = None,
    scratch: str | None = None,
) -> str:
    """Run a program as an ordinary user without capabilities, in the machine's network or none; return its stdout, and on failure its stderr too.

    `gpu_request` requests all GPUs in this way; `files` is the path inside at which the machine's whole file system is mounted, read-only; `scratch`
    is a path inside that gets a temporary volume on the engine's disk. Raises EngineError if the engine refuses, or after a minute.
    """
    api = client.api
    options: dict[str, Any] = {
        **CONFINED,
        "network_mode": network,
        "pids_limit": 64,
        "device_requests": _ALL_GPUS[gpu_request] or None,
        "mounts": [{"Target": files, "Source": "/", "Type": "bind", "ReadOnly": True}] if files else None,
        "log_config": {"type": "json-file"},  # an engine's default driver may keep nothing to read
    }
    with as_engine_error():
        container = api.create_container(
            reference,
            list(argv[1:]),
            entrypoint=[argv[0]],
            name=f"dlscale-survey-{uuid.uuid4().hex[:12]}",
            user=IMAGE_USER,
            volumes=[scratch] if scratch else None,
            labels=signed({LABEL_RUN: "survey"}),
            host_config=api.create_host_config(**options),
        )["Id"]
        try:
            api.start(container)
            code = api.wait(container, timeout=_ANSWER_S)["StatusCode"]
            output: bytes = api.logs(container, stdout=True, stderr=bool(code))
            return output.decode(errors="replace")
        finally:
            api.remove_container(container, v=True, force=True)


def can_mount(client: DockerClient, place: str, *, image: str, labels: Mapping[str, str]) -> bool:
    """Whether a machine has a path, tested by creating, and never starting, a container that mounts it; raises EngineError.

    Podman would create a missing path; there, a container looks for it in the machine's file system, as any user would see it.
    """
    with as_engine_error():
        is_podman = podman.version_of(client)
    if is_podman:
        path = f"/host{place}"
        return run_confined(client, image, ("ls", "-d", path), network="none", files="/host").strip() == path
    api = client.api
    mount: Any = {"Target": "/data", "Source": place, "Type": "bind", "ReadOnly": True}
    try:
        with as_engine_error():
            host = api.create_host_config(mounts=[mount], network_mode="none")
            helper = api.create_container(image, ["true"], labels=signed(labels), host_config=host)["Id"]
            api.remove_container(helper, force=True)
    except EngineRefusedError as error:
        if "bind source path does not exist" not in str(error):
            raise
        return False
    return True


@dataclass(frozen=True)
class Answer:
    """A registry's answer for a reference: its digest, or in the engine's words why there is none."""

    digest: str | None
    reason: str | None


def ask_registry(reference: str) -> Answer:
    """Ask a reference's registry for its digest; pulls nothing."""
    try:
        api: Any = docker.connect(timeout_s=_REGISTRY_ANSWER_S).api
    except EngineError as error:
        return Answer(None, str(error))
    try:
        with as_engine_error():
            return Answer(str(api.inspect_distribution(reference)["Descriptor"]["digest"]), None)
    except EngineError as error:
        return Answer(None, str(error).rpartition(": ")[2])
