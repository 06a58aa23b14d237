"""A `ContainerSpec` in Docker's words, twice: the SDK's, by which it starts, and the command line's, which a dry run prints. Pure.

`tests/unit/test_docker_options.py` holds the two against each other.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final, Literal

from runner.core.container_spec import ContainerSpec, Mount
from runner.engines.base import GpuRequest
from runner.engines.network import network_create
from runner.engines.shaper import shapers

# What no container of the suite has: a root that it may write to, a capability that it does not ask for, a way to get one.
CONFINED: Final[Mapping[str, Any]] = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}
PIDS_LIMIT: Final = 8192
# Docker hands over every device below a directory.
RDMA_DEVICES: Final = "/dev/infiniband"
# Nobody outside of a run's own network answers: a name that it does not know must not hold a start up for ten seconds a question.
DNS_OPTIONS: Final = ("timeout:1", "attempts:1")
TMP_OPTIONS: Final = "rw,exec,nosuid,nodev,mode=1777"  # exec: compilers of frameworks load what they write there
KEYS_OPTIONS: Final = "rw,noexec,nosuid,nodev,mode=700,size=1m"


def create_options(spec: ContainerSpec, gpus_by: GpuRequest | None) -> dict[str, Any]:
    """The spec in the words of the SDK: arguments of `create_container`, and under `host` those of `create_host_config`."""
    from docker import types  # noqa: PLC0415 - loaded with the client

    host: dict[str, Any] = {
        "network_mode": spec.network,
        **CONFINED,
        "tmpfs": _tmpfs(spec),
        "shm_size": f"{spec.shm_mib}m",
        "pids_limit": PIDS_LIMIT,
        "ulimits": [types.Ulimit(name="core", soft=0, hard=0)],
        "mounts": [
            types.Mount(mount.target, mount.source, type=_kind(mount), read_only=mount.read_only)
            for mount in spec.mounts
        ],
        "log_config": {"type": "none"},  # the attached connection is the log; a second copy on disk serves nobody
        "auto_remove": True,  # also where the runner was killed and nobody else would
    }
    if spec.own_network:
        host["dns_opt"] = list(DNS_OPTIONS)
    if spec.verbs:
        host["devices"] = [f"{RDMA_DEVICES}:{RDMA_DEVICES}:rwm"]
        host["cap_add"] = ["IPC_LOCK"]
        host["ulimits"].append(types.Ulimit(name="memlock", soft=-1, hard=-1))
    if spec.host_pids:
        host["pid_mode"] = "host"
    if spec.net_admin:
        host["cap_add"] = [*host.get("cap_add", []), "NET_ADMIN"]
    if spec.cpus:
        host["cpuset_cpus"] = ",".join(map(str, spec.cpus))
    if spec.memory_mib:
        host["mem_limit"] = f"{spec.memory_mib}m"
    if spec.gpus and gpus_by == "cdi":
        host["device_requests"] = [
            types.DeviceRequest(driver="cdi", device_ids=[f"nvidia.com/gpu={gpu}" for gpu in spec.gpus])
        ]
    elif spec.gpus:
        host["device_requests"] = [
            types.DeviceRequest(driver="nvidia", device_ids=[str(gpu) for gpu in spec.gpus], capabilities=[["gpu"]])
        ]
    return {
        "image": spec.image,
        "command": list(spec.argv[1:]),
        "entrypoint": [spec.argv[0]],
        "environment": spec.env,
        "name": spec.name,
        "user": spec.user,
        "hostname": spec.hostname,
        "labels": spec.labels,
        "stdin_open": True,
        "networking_config": {"EndpointsConfig": {spec.network: {"Aliases": list(spec.aliases)}}}
        if spec.own_network
        else None,
        "host": host,
    }


def docker_run(spec: ContainerSpec, gpus_by: GpuRequest | None) -> tuple[str, ...]:
    """The spec in the words of the command line; `tests/unit` holds it against `create_options`."""
    argv = ["docker", "run", "--interactive", "--name", spec.name, "--user", spec.user, "--network", spec.network]
    argv += ["--rm", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    argv += [word for target, options in _tmpfs(spec).items() for word in ("--tmpfs", f"{target}:{options}")]
    argv += ["--shm-size", f"{spec.shm_mib}m"]
    argv += ["--pids-limit", str(PIDS_LIMIT), "--ulimit", "core=0:0", "--log-driver", "none"]
    argv += _names(spec)
    if spec.verbs:
        argv += ["--device", RDMA_DEVICES, "--cap-add", "IPC_LOCK", "--ulimit", "memlock=-1:-1"]
    if spec.host_pids:
        argv += ["--pid", "host"]
    if spec.net_admin:
        argv += ["--cap-add", "NET_ADMIN"]
    if spec.cpus:
        argv += ["--cpuset-cpus", ",".join(map(str, spec.cpus))]
    if spec.memory_mib:
        argv += ["--memory", f"{spec.memory_mib}m"]
    argv += _gpus(spec, gpus_by)
    for mount in spec.mounts:
        read_only = ",readonly" if mount.read_only else ""
        argv += ["--mount", f"type={_kind(mount)},source={mount.source},target={mount.target}{read_only}"]
    for key, value in sorted(spec.labels.items()):
        argv += ["--label", f"{key}={value}"]
    for key, value in sorted(spec.env.items()):
        argv += ["--env", f"{key}={value}"]
    return (*argv, "--entrypoint", spec.argv[0], spec.image, *spec.argv[1:])


def _tmpfs(spec: ContainerSpec) -> dict[str, str]:
    """By path, what is in memory alone: the job's /tmp, and where it gets keys."""
    found = {"/tmp": f"{TMP_OPTIONS},size={spec.tmp_mib}m"}  # noqa: S108 - inside the container
    if spec.keys:
        uid, _, gid = spec.user.partition(":")
        found[spec.keys] = f"{KEYS_OPTIONS},uid={uid},gid={gid}"
    return found


def _names(spec: ContainerSpec) -> list[str]:
    """What the container is called on its network, and how it looks others up."""
    argv = [word for alias in spec.aliases for word in ("--network-alias", alias)]
    argv += ["--hostname", spec.hostname] if spec.hostname else []
    return argv + [word for option in DNS_OPTIONS for word in ("--dns-opt", option) if spec.own_network]


def _gpus(spec: ContainerSpec, gpus_by: GpuRequest | None) -> list[str]:
    if not spec.gpus:
        return []
    if gpus_by == "cdi":
        return [word for gpu in spec.gpus for word in ("--device", f"nvidia.com/gpu={gpu}")]
    return ["--gpus", f'"device={",".join(map(str, spec.gpus))}"']


def command_line(spec: ContainerSpec, gpus_by: GpuRequest | None) -> str:
    """All that starting the spec does, a command a line: its network with the first container in it, the container, and its link."""
    commands = [network_create(spec)] if spec.own_network and spec.number == 0 else []
    commands += [docker_run(each, gpus_by) for each in (spec, *shapers(spec))]
    return "\n".join(map(shlex.join, commands))


def _kind(mount: Mount) -> Literal["bind", "volume"]:
    """A path has to be there: unlike `--volume`, `--mount` makes no directory for one that is misspelt."""
    return "bind" if mount.source.startswith("/") else "volume"
