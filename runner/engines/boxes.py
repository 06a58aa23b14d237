"""Boxes: the surroundings of a job on its node, each a function `ContainerSpec → argv`. Pure.

    Bare       nothing: the process tree of a Python that has the framework
    Apptainer  a SIF: read-only root, its own namespaces except the network, no capabilities for an ordinary user
    Podman     Docker's rights, limits and mounts, through Podman's command line
    Pyxis      options of srun, so for Slurm steps only; the suite has never run it

Every box except `Bare` gives a job the paths of `base.py`. taskset binds cores, which processes inherit: an ordinary user may set no cgroups.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, Protocol

from runner.core.container_spec import VARIABLES, ContainerSpec, Mount
from runner.core.request import EngineName
from runner.engines import docker_options
from runner.engines.base import Inside, Site, Surroundings

# The runner's variables for the program that creates a box, but not for its job: where that program keeps its files.
LAUNCHERS: Final = (
    "HOME",
    "USER",
    "XDG_RUNTIME_DIR",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "APPTAINER_TMPDIR",
    "APPTAINER_CACHEDIR",
)
# Removes $name, and with `--force --depend` in $with also the containers in its network. `rm --force` exits 0 but leaves $name if one of those
# disappeared meanwhile (Podman 4.3.1), so only its absence counts.
_REMOVE: Final = """\
for round in $(seq 60); do
  podman rm $with --ignore "$name"; podman container exists "$name"
  [ $? = 1 ] && break
  sleep 0.5
done"""
# Runs a container that others join, then removes it: after exit code 0 once the others are gone, after 143 (its lease ended) with them. Any other
# code is reported before the removal. Podman's own `--rm` fails while the others exist, and its `run` then waits 20 s for the exit code that
# `--rm` would have recorded (`WaitForExit` of Podman 4.3).
_REMOVE_LAST: Final = f"""\
name=$1 with=; shift
"$@"; code=$?
[ $code = 0 ] || with='--force --depend'
remove() {{ {_REMOVE}; }}
case $code in
  0|143) remove ;;
  *) remove & ;;
esac >/dev/null 2>&1
exit $code"""
# Seconds within which a Podman container that others join must hear from the runner (`workloads/lease.py`).
_BEGIN_S: Final = 5
# The runner's variables that a job without a container may see: where programs, libraries and GPUs are, and nothing personal.
INHERITED: Final = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "LANG", "TZ")


class Box(Surroundings, Protocol):
    """The surroundings of a job: a container, or nothing."""

    @property
    def name(self) -> EngineName:
        """The value of ENGINE that selects it."""

    @property
    def env_names(self) -> tuple[str, ...]:
        """The runner's variables that its argv is started with."""

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """The command that runs the spec on its node."""

    def ready(self, spec: ContainerSpec) -> tuple[str, ...]:
        """The command that succeeds once others can join its network; empty if it has no network of its own."""

    def start_signal(self, spec: ContainerSpec) -> bytes:
        """The bytes that its lease waits for before it starts the job; empty if it does not wait."""

    def removal(self, spec: ContainerSpec) -> tuple[str, ...]:
        """The command that removes its remains after a failure or an early end; empty if nothing can remain."""


class _Processes:
    """A box made of processes alone: it shares the node's network and leaves nothing behind."""

    def ready(self, spec: ContainerSpec) -> tuple[str, ...]:
        """Nothing to wait for."""
        del spec
        return ()

    def start_signal(self, spec: ContainerSpec) -> bytes:
        """Nothing: no engine restarts a process."""
        del spec
        return b""

    def removal(self, spec: ContainerSpec) -> tuple[str, ...]:
        """Nothing to remove."""
        del spec
        return ()


@dataclass(frozen=True)
class Bare(_Processes):
    """No container: the job sees the host's files and network."""

    python: Path | None
    workloads: Path
    name: Literal["venv", "host"] = "venv"
    env_names: ClassVar[tuple[str, ...]] = INHERITED

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """The spec's argv, with its variables and cores set first."""
        return (*_env(spec), *_taskset(spec), *spec.argv)

    def site(self, data: Path | None) -> Site:
        """The host's own paths."""
        python = str(self.python) if self.python else "python3"
        return Site(python=python, workloads=str(self.workloads), data=str(data) if data else None)

    def mounts(self, data: Path | None) -> tuple[Mount, ...]:
        """None: the host's paths are the job's."""
        del data
        return ()

    def place(self, directory: Path) -> str:
        """The directory itself."""
        return str(directory)

    def user(self) -> str:
        """The runner's own user: without a container there is no other."""
        return f"{os.getuid()}:{os.getgid()}"


class Apptainer(_Processes, Inside):
    """A SIF run by Apptainer 1.1 or newer; the spec's image is its path.

    The job has the machine's network, no limit on memory or /dev/shm, and as much /tmp as the machine's apptainer.conf allows.
    """

    name: Final = "apptainer"
    env_names: ClassVar[tuple[str, ...]] = (*INHERITED, *LAUNCHERS)

    def __init__(self, workloads: Path, *, root: bool) -> None:
        """`root`: the runner is root, so jobs run as the images' own user, as under any other engine."""
        super().__init__(workloads)
        self._root = root

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """`apptainer exec` without the user's home, environment and processes; `env` sets variables inside, since `--env` splits at commas."""
        uid, _, gid = spec.user.partition(":")
        return (
            *(("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups") if self._root else ()),
            *_taskset(spec),
            *("apptainer", "--silent", "exec", "--cleanenv", "--containall", "--no-home"),
            *(("--nv",) if spec.gpus else ()),
            *(("--pwd", spec.workdir) if spec.workdir else ()),
            *docker_options.repeated(
                "--bind",
                (f"{mount.source}:{mount.target}:{'ro' if mount.read_only else 'rw'}" for mount in spec.mounts),
            ),
            *(("--bind", f"{docker_options.RDMA_DEVICES}:{docker_options.RDMA_DEVICES}") if spec.verbs else ()),
            # Files of a SIF belong to the user, so sshd could read in /etc/shadow that its account is locked; in Docker, jobs can't read that file.
            *(("--scratch", spec.keys, "--bind", "/dev/null:/etc/shadow:ro") if spec.keys else ()),
            spec.image,
            *_env(spec),
            *spec.argv,
        )


class Podman(Inside):
    """Containers through Podman's command line, which needs no service; GPUs are requested by CDI names."""

    name: Final = "podman"
    env_names: ClassVar[tuple[str, ...]] = (*INHERITED, *LAUNCHERS)

    def __init__(self, workloads: Path, *, root: bool, limits: bool) -> None:
        """`limits`: the box limits memory; in a Slurm step, the step does."""
        super().__init__(workloads)
        self._root, self._limits = root, limits

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """`podman run` with the options of `docker run` except cores, which taskset binds; an ordinary user keeps their uid inside."""
        lease_env = {"DLSCALE_LEASE_BEGIN": str(_BEGIN_S)} if self.start_signal(spec) else {}
        unbound = spec.model_copy(
            update={"cpus": (), "env": {**spec.env, **lease_env}, **({} if self._limits else {"memory_mib": None})}
        )
        _, *words = docker_options.docker_run(unbound, "cdi")
        userns = spec.network if spec.network.startswith("container:") else "keep-id"
        run = (*_taskset(spec), "podman", words[0], *(() if self._root else (f"--userns={userns}",)), *words[1:])
        if not spec.joined:
            return run
        return ("sh", "-c", _REMOVE_LAST, "sh", spec.name, *(word for word in run if word != "--rm"))

    def ready(self, spec: ContainerSpec) -> tuple[str, ...]:
        """Wait until it runs; fails if it has not been created yet."""
        return ("podman", "wait", "--condition=running", spec.name)

    def start_signal(self, spec: ContainerSpec) -> bytes:
        """A byte if others join its network: Podman restarts an exited container that others join, and then no runner holds its stdin."""
        return b"\n" if spec.joined else b""

    def removal(self, spec: ContainerSpec) -> tuple[str, ...]:
        """`podman run`, killed between create and start, leaves the created container behind."""
        return ("sh", "-c", f"name=$1 with='--force --depend'\n{_REMOVE}", "sh", spec.name)


class Pyxis(_Processes, Inside):
    """An image run by NVIDIA's Slurm plugin (https://github.com/NVIDIA/pyxis); the spec's image is a reference or a squashfs file."""

    name: Final = "pyxis"
    env_names: ClassVar[tuple[str, ...]] = (*INHERITED, *LAUNCHERS)

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """Further options for the way's srun, then the command."""
        mounts = ",".join(f"{mount.source}:{mount.target}:{'ro' if mount.read_only else 'rw'}" for mount in spec.mounts)
        return (
            f"--container-image={spec.image}",
            f"--container-mounts={mounts}",
            *("--no-container-mount-home", "--no-container-remap-root", "--container-readonly"),
            *((f"--container-workdir={spec.workdir}",) if spec.workdir else ()),
            *_taskset(spec),
            *_env(spec),
            *spec.argv,
        )


def _taskset(spec: ContainerSpec) -> tuple[str, ...]:
    """The prefix that binds a command to the spec's cores."""
    return ("taskset", "--cpu-list", ",".join(map(str, spec.cpus))) if spec.cpus else ()


def _env(spec: ContainerSpec) -> tuple[str, ...]:
    """The spec's variables through `env`, with its labels as variables, and GPUs as CUDA_VISIBLE_DEVICES, since no engine assigns them."""
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, spec.gpus))} if spec.gpus else {}
    labels = {VARIABLES[label]: value for label, value in spec.labels.items() if label in VARIABLES}
    return ("env", *(f"{key}={value}" for key, value in sorted({**spec.env, **gpus, **labels}.items())))
