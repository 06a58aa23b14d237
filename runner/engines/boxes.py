"""BOX: what is around a job on its node, as a function `ContainerSpec → argv`. Pure.

    Bare       nothing: a process tree of a Python that has the framework
    Apptainer  a SIF: read-only root, namespaces of its own but for the network, no capability for an ordinary user
    Podman     Docker's own rights, limits and mounts, by Podman's command line
    Pyxis      options of srun, and so for steps of Slurm alone; nothing here has run it

Every box but `Bare` shows a job the paths of `base.py`. Cores are bound by taskset, which a container's processes inherit: an ordinary
user may set no control group.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, Protocol

from runner.core.container_spec import VARIABLES, ContainerSpec, Mount
from runner.core.request import EngineName
from runner.engines import docker_options
from runner.engines.base import Inside, Site

# What the program that makes a box may see of the runner's environment, and hands on to no job: where it keeps things.
LAUNCHERS: Final = (
    "HOME",
    "USER",
    "XDG_RUNTIME_DIR",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "APPTAINER_TMPDIR",
    "APPTAINER_CACHEDIR",
)
# Removes $name, with the others in its network where $with says so. `rm --force` ends well and leaves it where one of those was removed by itself
# meanwhile (Podman 4.3.1), so that only its absence counts.
_REMOVE: Final = """\
for round in $(seq 60); do
  podman rm $with --ignore "$name"; podman container exists "$name"
  [ $? = 1 ] && break
  sleep 0.5
done"""
# Removes a container that others join once they are gone, or with them where its lease was over. One that failed is told of first: then the runner
# removes it. Podman's own `--rm` fails while they are there, and its `run` waits 20 s for what that would have noted (`WaitForExit` of Podman 4.3).
_AFTER_OTHERS: Final = f"""\
name=$1 with=; shift
"$@"; code=$?
[ $code = 0 ] || with='--force --depend'
remove() {{ {_REMOVE}; }}
case $code in
  0|143) remove ;;
  *) remove & ;;
esac >/dev/null 2>&1
exit $code"""
# Seconds in which a container of Podman's that others join has to hear from the runner (`workloads/lease.py`).
_BEGIN_S: Final = 5
# What a job without a container may see: where programs, libraries and GPUs are, and nothing personal.
PASSED: Final = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "LANG", "TZ")


class Box(Protocol):
    """What is around a job."""

    @property
    def name(self) -> EngineName:
        """The value of ENGINE that names it."""

    @property
    def sees(self) -> tuple[str, ...]:
        """Variables of the runner that its argv is started with."""

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """The command that runs the spec on its node."""

    def up(self, spec: ContainerSpec) -> tuple[str, ...]:
        """The command that succeeds once others may join its network; none where it has none of its own."""

    def begin(self, spec: ContainerSpec) -> bytes:
        """What its lease waits for before all else; nothing where that does not wait."""

    def removal(self, spec: ContainerSpec) -> tuple[str, ...]:
        """The command that removes what is left of it where it was ended before its time; none where nothing can be."""

    def site(self, data: Path | None) -> Site:
        """Where programs and data are found."""

    def mounts(self, data: Path | None) -> tuple[Mount, ...]:
        """The directories of the host that make the site's paths true."""

    def place(self, directory: Path) -> str:
        """Where a directory that a tool writes to appears."""

    def user(self) -> str:
        """Numeric `uid:gid` that a job runs as."""


class _Process:
    """A box that is nothing but processes: it shares the node's network, and nothing is left of it."""

    def up(self, spec: ContainerSpec) -> tuple[str, ...]:
        """Nothing to wait for."""
        del spec
        return ()

    def begin(self, spec: ContainerSpec) -> bytes:
        """Nothing: what has ended is never started again."""
        del spec
        return b""

    def removal(self, spec: ContainerSpec) -> tuple[str, ...]:
        """Nothing to remove."""
        del spec
        return ()


@dataclass(frozen=True)
class Bare(_Process):
    """No container: the job sees the host's files and network."""

    python: Path | None
    workloads: Path
    name: Literal["venv", "host"] = "venv"
    sees: ClassVar[tuple[str, ...]] = PASSED

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """The spec's variables and cores before its argv."""
        return (*_variables(spec), *_bound(spec), *spec.argv)

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


class Apptainer(_Process, Inside):
    """A SIF run by Apptainer 1.1 or newer; the spec's image is its path.

    It has no network of its own, limits neither memory nor /dev/shm, and gives /tmp as much as the machine's apptainer.conf says.
    """

    name: Final = "apptainer"
    sees: ClassVar[tuple[str, ...]] = (*PASSED, *LAUNCHERS)

    def __init__(self, workloads: Path, *, root: bool) -> None:
        """`root` says that the runner is root, whose jobs run as the images' own user, as in any other engine."""
        super().__init__(workloads)
        self._root = root

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """`apptainer exec` without the user's home, environment and processes; variables are set inside, where commas separate nothing."""
        uid, _, gid = spec.user.partition(":")
        return (
            *(("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups") if self._root else ()),
            *_bound(spec),
            *("apptainer", "--silent", "exec", "--cleanenv", "--containall", "--no-home"),
            *(("--nv",) if spec.gpus else ()),
            *(("--pwd", spec.workdir) if spec.workdir else ()),
            *_each(
                "--bind",
                (f"{mount.source}:{mount.target}:{'ro' if mount.read_only else 'rw'}" for mount in spec.mounts),
            ),
            *(("--bind", f"{docker_options.RDMA_DEVICES}:{docker_options.RDMA_DEVICES}") if spec.verbs else ()),
            # Files of a SIF are the user's own: sshd would read there that its account is locked, which Docker's jobs may not.
            *(("--scratch", spec.keys, "--bind", "/dev/null:/etc/shadow:ro") if spec.keys else ()),
            spec.image,
            *_variables(spec),
            *spec.argv,
        )


class Podman(Inside):
    """Containers of Podman's command line, which needs no service; GPUs are asked for by CDI names."""

    name: Final = "podman"
    sees: ClassVar[tuple[str, ...]] = (*PASSED, *LAUNCHERS)

    def __init__(self, workloads: Path, *, root: bool, limits: bool) -> None:
        """`limits` says that memory is the box's to limit; in a step of Slurm it is the step's."""
        super().__init__(workloads)
        self._root, self._limits = root, limits

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """`podman run` with what `docker run` gets, but for cores; an ordinary user keeps its number inside."""
        begin = {"DLSCALE_LEASE_BEGIN": str(_BEGIN_S)} if self.begin(spec) else {}
        bare = spec.model_copy(
            update={"cpus": (), "env": {**spec.env, **begin}, **({} if self._limits else {"memory_mib": None})}
        )
        _, *words = docker_options.docker_run(bare, "cdi")
        space = spec.network if spec.network.startswith("container:") else "keep-id"
        run = (*_bound(spec), "podman", words[0], *(() if self._root else (f"--userns={space}",)), *words[1:])
        if not spec.joined:
            return run
        return ("sh", "-c", _AFTER_OTHERS, "sh", spec.name, *(word for word in run if word != "--rm"))

    def up(self, spec: ContainerSpec) -> tuple[str, ...]:
        """Wait until it runs; fails where it is not even created yet."""
        return ("podman", "wait", "--condition=running", spec.name)

    def begin(self, spec: ContainerSpec) -> bytes:
        """A byte, where others join its network: for them Podman starts it again when it has ended, and the runner is not there."""
        return b"\n" if spec.joined else b""

    def removal(self, spec: ContainerSpec) -> tuple[str, ...]:
        """A container that was created, and whose `podman run` was ended before it started it, stays."""
        return ("sh", "-c", f"name=$1 with='--force --depend'\n{_REMOVE}", "sh", spec.name)


class Pyxis(_Process, Inside):
    """An image run by NVIDIA's plugin of Slurm (https://github.com/NVIDIA/pyxis); the spec's image is a reference or a squashfs file."""

    name: Final = "pyxis"
    sees: ClassVar[tuple[str, ...]] = (*PASSED, *LAUNCHERS)

    def argv(self, spec: ContainerSpec) -> tuple[str, ...]:
        """More options for the srun that the way has begun, then the command."""
        mounts = ",".join(f"{mount.source}:{mount.target}:{'ro' if mount.read_only else 'rw'}" for mount in spec.mounts)
        return (
            f"--container-image={spec.image}",
            f"--container-mounts={mounts}",
            *("--no-container-mount-home", "--no-container-remap-root", "--container-readonly"),
            *((f"--container-workdir={spec.workdir}",) if spec.workdir else ()),
            *_bound(spec),
            *_variables(spec),
            *spec.argv,
        )


def _bound(spec: ContainerSpec) -> tuple[str, ...]:
    """What binds a command to the spec's cores."""
    return ("taskset", "--cpu-list", ",".join(map(str, spec.cpus))) if spec.cpus else ()


def _variables(spec: ContainerSpec) -> tuple[str, ...]:
    """The spec's variables by `env`; GPUs are given by the CUDA runtime's own variable where no engine hands out devices, labels as variables."""
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, spec.gpus))} if spec.gpus else {}
    labels = {VARIABLES[label]: value for label, value in spec.labels.items() if label in VARIABLES}
    return ("env", *(f"{key}={value}" for key, value in sorted({**spec.env, **gpus, **labels}.items())))


def _each(flag: str, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (flag, value))
