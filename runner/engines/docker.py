"""Engine `docker`: containers through the Docker SDK.

A job runs as an ordinary user on a read-only root, without the engine's socket, and with only the capabilities and the network that its
spec names. One hijacked connection per container carries its output and its lease: when the runner dies, the engine closes the
container's stdin (StdinOnce).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from runner.core.container_spec import ContainerSpec, Mount
from runner.core.errors import RequestError
from runner.engines import docker_options, owner, podman
from runner.engines.base import (
    Container,
    EngineError,
    EngineFacts,
    GpuRequest,
    Inside,
    Line,
    Splitter,
    as_engine_error,
)
from runner.engines.owner import signed
from runner.engines.shaper import shape

if TYPE_CHECKING:
    from docker import APIClient, DockerClient
    from docker.models.images import Image
    from requests import Response

    # Aliases for other rooms, which may not import the SDK.
    Client: TypeAlias = DockerClient
    EngineImage: TypeAlias = Image

STOP_GRACE_S: Final = 8
# A healthy engine answers a ping immediately.
_PING_S: Final = 5
_ANSWER_S: Final = 10
# For calls that do work: creating a container on a busy disk.
_CALL_S: Final = 60
# A placeholder that the SDK requires; the engine is asked for its version through a path without one.
_ANY_VERSION: Final = "1.41"
# Nodes start concurrently, and Docker lets two networks have the same name.
_NETWORK_LOCK: Final = threading.Lock()
_REFUSALS: Final = {
    "FileNotFoundError": "its socket does not exist",
    "PermissionError": "this user may not use its socket; add yourself to the group docker",
    "ConnectionRefusedError": "its socket refuses connections",
}


def connect(*, timeout_s: int = 60) -> DockerClient:
    """Open a client as the environment says (DOCKER_HOST and friends); raises EngineError if no engine answers."""
    import docker  # noqa: PLC0415 - 0.2 s that other commands need not pay
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        client = docker.from_env(timeout=timeout_s)
        client.ping()
    except DockerException as error:
        raise EngineError(f"no Docker engine answers ({_reason(error)})") from error
    return client


def connect_to(url: str, *, tls: tuple[Path, Path, Path] | None) -> DockerClient:
    """Open a client of another machine's engine, or of the near end of a tunnel to it; raises EngineError if none answers.

    `tls`: paths of the CA's certificate, our certificate and its key.
    """
    import docker  # noqa: PLC0415 - 0.2 s that other commands need not pay
    from docker.tls import TLSConfig  # noqa: PLC0415

    with as_engine_error():
        tls_config: TLSConfig | Literal[False] = False
        if tls:
            ca, certificate, key = map(str, tls)
            tls_config = TLSConfig(client_cert=(certificate, key), ca_cert=ca, verify=True)
        # The SDK's constructor would ask for the engine's version while its session still obeys the environment: REQUESTS_CA_BUNDLE would
        # replace `ca`, and HTTPS_PROXY would come in between.
        probe = docker.APIClient(base_url=url, version=_ANY_VERSION, tls=tls_config, timeout=_ANSWER_S)
        probe.trust_env = False
        with contextlib.closing(probe):
            version = probe.version(api_version=False)["ApiVersion"]
        client = docker.DockerClient(base_url=url, version=version, tls=tls_config, timeout=_CALL_S)
    client.api.trust_env = False
    return client


def connect_or_refuse() -> DockerClient:
    """Open a client for a command that needs an engine; raises RequestError if none answers."""
    try:
        return connect()
    except EngineError as error:
        raise RequestError(f"{error}; start it (`dlscale doctor` says more)") from error


def _reason(error: BaseException) -> str:
    """The operating system's error below the SDK's layers of wrapping, else the SDK's text."""
    text = str(error)
    for known, meaning in _REFUSALS.items():
        if known in text:
            return meaning
    return text


def gpu_requests(info: dict[str, Any], *, local: bool) -> tuple[GpuRequest, ...]:
    """How GPUs can be requested from an engine, judged by its `info`: through NVIDIA's runtime, by CDI device names.

    Engines before 28 do not list the CDI names that they know. For an engine on this machine (`local`), the CDI specs on disk decide; a
    remote one with folders for CDI specs is taken to support CDI, and only a request shows whether it does.
    """
    requests: list[GpuRequest] = ["nvidia"] if "nvidia" in (info.get("Runtimes") or {}) else []
    listed = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or []]
    folders = info.get("CDISpecDirs") or []
    may_list = any("nvidia" in spec.name for folder in folders for spec in Path(folder).glob("*")) if local else folders
    if any(name.startswith("nvidia.com/gpu") for name in listed) or (may_list and not listed):
        requests.append("cdi")
    return tuple(requests)


def engine_facts(info: dict[str, Any], *, gpu_request: GpuRequest | None, podman: str | None) -> EngineFacts:
    """Facts from an engine's `info`."""
    return EngineFacts(
        name="docker",
        available=True,
        version=info["ServerVersion"],
        gpu_request=gpu_request,
        podman=podman,
        root_dir=info["DockerRootDir"],
    )


class DockerPlan(Inside):
    """Docker's containers, described without asking an engine: enough for a dry run of other machines."""

    name = "docker"

    def __init__(
        self, workloads: Path | str, *, gpu_request: GpuRequest | None = "nvidia", extra_mounts: tuple[Mount, ...] = ()
    ) -> None:
        super().__init__(workloads, extra_mounts=extra_mounts)
        self.gpu_request = gpu_request

    def command_line(self, spec: ContainerSpec) -> str:
        """The `docker run` that starts the same container; for one in the run's own network, with the commands before and after it."""
        return docker_options.command_line(spec, self.gpu_request)


class DockerEngine(DockerPlan):
    """Containers of one Docker engine."""

    def __init__(
        self,
        client: DockerClient,
        workloads: Path | str,
        *,
        gpu_request: GpuRequest | None = None,
        extra_mounts: tuple[Mount, ...] = (),
    ) -> None:
        """Ask the engine about itself; `gpu_request` is given for an engine on another machine, whose CDI folders can't be read here."""
        self.info: dict[str, Any] = client.info()
        known = gpu_requests(self.info, local=True)
        super().__init__(workloads, gpu_request=gpu_request or next(iter(known), None), extra_mounts=extra_mounts)
        self.client = client
        self.podman = podman.version_of(client)

    def facts(self) -> EngineFacts:
        """Version, GPU support and root directory of the engine."""
        return engine_facts(self.info, gpu_request=self.gpu_request, podman=self.podman)

    def check(self, node: str) -> None:
        """Ping the engine; raises EngineError if it does not answer."""
        del node
        api = self.client.api
        with as_engine_error():
            api.get(f"{api.base_url}/_ping", timeout=_PING_S).raise_for_status()

    def start(self, spec: ContainerSpec) -> Container:
        """Create the container, attach to it, then start it, so that no line is lost.

        For a container in the run's own network, creates that network first if needed, and shapes the container's link before anything uses it.
        """
        if not spec.own_network:
            return self._start(spec)
        self._ensure_network(spec)
        try:
            container = self._start(spec)
        except EngineError:
            _remove_network(self.client, spec.network)
            raise
        try:
            shape(self, spec)
        except EngineError:
            container.remove()
            raise
        return container

    def _ensure_network(self, spec: ContainerSpec) -> None:
        """Create the network that a container will live in, unless another container of the run has created it.

        A bridge of the engine between a run's emulated nodes, with no route out and no address of the host. It is created with its first
        container and removed with its last; if the runner is killed, soon after that (`cluster/cleanup.py`).
        """
        options = docker_options.network_options(spec)
        options["labels"] = signed(options["labels"])
        try:
            with _NETWORK_LOCK, as_engine_error():
                if spec.network not in [network.name for network in self.client.networks.list(names=[spec.network])]:
                    self.client.networks.create(spec.network, **options)
        except EngineError as error:
            raise EngineError(
                f"the network {spec.network} could not be created ({error}); `dlscale clean` removes networks that killed runs left"
            ) from error

    def _start(self, spec: ContainerSpec) -> DockerContainer:
        if self.podman and isinstance(self.workloads, Path):
            podman.refuse_missing_mounts(self.podman, spec)
        api = self.client.api
        options = docker_options.create_options(spec, self.gpu_request)
        options["labels"] = signed(spec.labels)
        host = api.create_host_config(**options.pop("host"))
        with as_engine_error():
            identifier = api.create_container(**options, host_config=host)["Id"]
        try:
            with as_engine_error():
                socket = api.attach_socket(identifier, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
                exit_reply = exit_code(api, identifier)
                api.start(identifier)
        except EngineError:
            owner.remove(api, identifier)
            raise
        return DockerContainer(self.client, spec, identifier, socket, exit_reply)


class DockerContainer:
    """A started container and the connection that holds its lease."""

    def __init__(
        self, client: DockerClient, spec: ContainerSpec, identifier: str, socket: Any, exit_reply: Response
    ) -> None:
        """Take over a container that the engine removes when it exits; `exit_reply` is the reply that `exit_code` returned."""
        self.client = client
        self.name = spec.name
        self.identifier = identifier
        self._network = spec.network if spec.own_network else None
        self._socket = socket
        self._exit_reply = exit_reply

    def lines(self) -> Iterator[Line]:
        """Yield lines of both streams as they arrive."""
        from docker.utils.socket import frames_iter  # noqa: PLC0415 - loaded with the client

        splitters = {1: Splitter("stdout"), 2: Splitter("stderr")}
        with contextlib.suppress(OSError, ValueError):  # close_lease() closes the socket
            for stream, data in frames_iter(self._socket, tty=False):  # type: ignore[no-untyped-call]
                yield from splitters[stream].feed(data)
        for splitter in splitters.values():
            yield from splitter.close()

    def wait(self) -> int:
        """The exit code, once the container has exited; raises EngineError if the engine no longer knows it."""
        with as_engine_error():
            return int(self._exit_reply.json()["StatusCode"])

    def send(self, line: bytes) -> None:
        """Write to the container's stdin; does nothing once it has exited."""
        # For a plain connection the SDK returns a reader around the socket, which can't write; for TLS, the socket itself.
        socket = getattr(self._socket, "_sock", self._socket)
        with contextlib.suppress(OSError, ValueError):
            socket.sendall(line)

    def close_lease(self) -> None:
        """Close the connection that holds the lease."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def stop(self) -> None:
        """Terminate, and kill after the grace time."""
        with contextlib.suppress(EngineError), as_engine_error():
            self.client.api.stop(self.identifier, timeout=STOP_GRACE_S)

    def remove(self) -> None:
        """Close the lease and remove the container with its anonymous volumes; with the last one in the run's network, that network too."""
        self.close_lease()
        owner.remove(self.client.api, self.identifier)
        if self._network:
            _remove_network(self.client, self._network)


def exit_code(api: APIClient, identifier: str) -> Response:
    """Ask for a container's exit code before it starts: once the engine has removed the container, it no longer knows the code.

    The reply's headers show that the engine waits for the exit; its body, such as `{"StatusCode": 0}`, follows when the container has exited.
    """
    # The SDK's own `wait` returns only with the code, and does not show when the engine began to wait.
    response: Response = api.post(
        f"{api.base_url}/v{api.api_version}/containers/{identifier}/wait",
        params={"condition": "next-exit"},
        stream=True,
        timeout=_CALL_S,
    )
    response.raise_for_status()
    connection: Any = response.raw.connection
    connection.sock.settimeout(None)  # the engine is waiting; a training may take days
    return response


def _remove_network(client: DockerClient, name: str) -> None:
    """Remove a network unless a container is still in it. Safe to call at any time, even if the engine is gone."""
    with contextlib.suppress(EngineError), as_engine_error():
        client.api.remove_network(name)
