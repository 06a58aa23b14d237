"""A `ContainerSpec` as options of the SDK, which start it, and as a command line, which a dry run prints. Pure.

Each right, limit and mount is one row with both forms, so that what is printed is what runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from runner.core.container_spec import LABEL_RUN, ContainerSpec, Mount
from runner.engines.base import GpuRequest
from runner.engines.shaper import shapers

# No container of the suite has a writable root, a capability that its spec does not request, or a way to gain one.
CONFINED: Final[Mapping[str, Any]] = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}
PIDS_LIMIT: Final = 8192
# Docker passes on every device below a directory.
RDMA_DEVICES: Final = "/dev/infiniband"
# Nothing outside a run's own network answers: an unknown name must not delay a start by ten seconds per query.
DNS_OPTIONS: Final = ("timeout:1", "attempts:1")
TMP_OPTIONS: Final = "rw,exec,nosuid,nodev,mode=1777"  # exec: compilers of frameworks load what they write there
KEYS_OPTIONS: Final = "rw,noexec,nosuid,nodev,mode=700,size=1m"
# Without this, Docker gives the host the network's first address, and a job could reach services that listen there.
NO_HOST: Final = "com.docker.network.bridge.inhibit_ipv4"

Row: TypeAlias = tuple[tuple[str, ...], Mapping[str, Any]]


def create_options(spec: ContainerSpec, gpu_request: GpuRequest | None) -> dict[str, Any]:
    """The spec as arguments of the SDK's `create_container`, with those of `create_host_config` under `host`."""
    host: dict[str, Any] = {}
    for _, options in _rows(spec, gpu_request):
        for key, value in options.items():
            if isinstance(value, list):
                host[key] = [*host.get(key, []), *value]
            else:
                host[key] = value
    endpoints = {"EndpointsConfig": {spec.network: {"Aliases": list(spec.aliases)}}}
    return {
        "image": spec.image,
        "command": list(spec.argv[1:]),
        "entrypoint": [spec.argv[0]],
        "environment": spec.env,
        "name": spec.name,
        "user": spec.user,
        "hostname": spec.hostname,
        "working_dir": spec.workdir,
        "labels": spec.labels,
        "stdin_open": True,
        "networking_config": endpoints if spec.own_network else None,
        "host": host,
    }


def docker_run(spec: ContainerSpec, gpu_request: GpuRequest | None) -> tuple[str, ...]:
    """The spec as a command line."""
    return (
        *("docker", "run", "--interactive", "--name", spec.name, "--user", spec.user),
        *(word for words, _ in _rows(spec, gpu_request) for word in words),
        *repeated("--label", (f"{key}={value}" for key, value in sorted(spec.labels.items()))),
        *repeated("--env", (f"{key}={value}" for key, value in sorted(spec.env.items()))),
        *("--entrypoint", spec.argv[0], spec.image, *spec.argv[1:]),
    )


def command_line(spec: ContainerSpec, gpu_request: GpuRequest | None) -> str:
    """Every command that starting the spec takes, one a line: its network (for the first container in it), the container, its link."""
    commands = [_network_create(spec)] if spec.own_network and spec.number == 0 else []
    commands += [docker_run(each, gpu_request) for each in (spec, *shapers(spec))]
    return "\n".join(map(shlex.join, commands))


def network_options(spec: ContainerSpec) -> dict[str, Any]:
    """The run's own network, as arguments of the SDK."""
    labels = {LABEL_RUN: spec.labels[LABEL_RUN]}
    return {"driver": "bridge", "internal": True, "options": {NO_HOST: "true"}, "labels": labels}


def _network_create(spec: ContainerSpec) -> tuple[str, ...]:
    label = f"{LABEL_RUN}={spec.labels[LABEL_RUN]}"
    return ("docker", "network", "create", "--internal", "--opt", f"{NO_HOST}=true", "--label", label, spec.network)


def _rows(spec: ContainerSpec, gpu_request: GpuRequest | None) -> Iterator[Row]:
    """Words of the command line, and the same option for `create_host_config`, empty if `create_container` takes it; lists of several rows add up."""
    tmpfs = _tmpfs(spec)
    confined = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    yield ("--network", spec.network), {"network_mode": spec.network}
    yield ("--rm",), {"auto_remove": True}  # so it is removed even if the runner was killed
    yield confined, CONFINED
    yield repeated("--tmpfs", (f"{target}:{options}" for target, options in tmpfs.items())), {"tmpfs": tmpfs}
    yield ("--shm-size", f"{spec.shm_mib}m"), {"shm_size": f"{spec.shm_mib}m"}
    yield ("--pids-limit", str(PIDS_LIMIT)), {"pids_limit": PIDS_LIMIT}
    yield ("--ulimit", "core=0:0"), {"ulimits": [{"name": "core", "soft": 0, "hard": 0}]}
    # The attached connection carries the output; a second copy on disk serves nobody.
    yield ("--log-driver", "none"), {"log_config": {"type": "none"}}
    yield repeated("--network-alias", spec.aliases), {}
    yield ("--hostname", spec.hostname) if spec.hostname else (), {}
    if spec.own_network:
        yield repeated("--dns-opt", DNS_OPTIONS), {"dns_opt": list(DNS_OPTIONS)}
    yield ("--workdir", spec.workdir) if spec.workdir else (), {}
    if spec.verbs:
        yield ("--device", RDMA_DEVICES), {"devices": [f"{RDMA_DEVICES}:{RDMA_DEVICES}:rwm"]}
        yield ("--cap-add", "IPC_LOCK"), {"cap_add": ["IPC_LOCK"]}
        yield ("--ulimit", "memlock=-1:-1"), {"ulimits": [{"name": "memlock", "soft": -1, "hard": -1}]}
    if spec.host_pids:
        yield ("--pid", "host"), {"pid_mode": "host"}
    if spec.net_admin:
        yield ("--cap-add", "NET_ADMIN"), {"cap_add": ["NET_ADMIN"]}
    if spec.cpus:
        cpus = ",".join(map(str, spec.cpus))
        yield ("--cpuset-cpus", cpus), {"cpuset_cpus": cpus}
    if spec.memory_mib:
        yield ("--memory", f"{spec.memory_mib}m"), {"mem_limit": f"{spec.memory_mib}m"}
    if spec.gpus:
        yield _gpus(spec, gpu_request)
    for mount in spec.mounts:
        yield _mount(mount)


def _tmpfs(spec: ContainerSpec) -> dict[str, str]:
    """In-memory file systems by path: the job's /tmp, and the folder for its keys."""
    found = {"/tmp": f"{TMP_OPTIONS},size={spec.tmp_mib}m"}  # noqa: S108 - inside the container
    if spec.keys:
        uid, _, gid = spec.user.partition(":")
        found[spec.keys] = f"{KEYS_OPTIONS},uid={uid},gid={gid}"
    return found


def _gpus(spec: ContainerSpec, gpu_request: GpuRequest | None) -> Row:
    indices = [str(gpu) for gpu in spec.gpus]
    if gpu_request == "cdi":
        names = [f"nvidia.com/gpu={index}" for index in indices]
        return repeated("--device", names), {"device_requests": [{"driver": "cdi", "device_ids": names}]}
    request = {"driver": "nvidia", "device_ids": indices, "capabilities": [["gpu"]]}
    return ("--gpus", f'"device={",".join(indices)}"'), {"device_requests": [request]}


def _mount(mount: Mount) -> Row:
    """A bind mount's source has to exist: unlike `--volume`, `--mount` creates no directory for a misspelt path."""
    kind = "bind" if mount.source.startswith("/") else "volume"
    words = f"type={kind},source={mount.source},target={mount.target}{',readonly' * mount.read_only}"
    option = {"Target": mount.target, "Source": mount.source, "Type": kind, "ReadOnly": mount.read_only}
    return ("--mount", words), {"mounts": [option]}


def repeated(flag: str, values: Iterable[str]) -> tuple[str, ...]:
    """The flag before each of the values."""
    return tuple(word for value in values for word in (flag, value))
