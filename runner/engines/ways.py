"""Ways: how an argv reaches a node, with stdin, stdout and stderr of its own. Pure: argv in, argv out.

The lease (`workloads/lease.py`) relies on its stdin: wherever it runs, the runner holds the other end.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from runner.core.record import SESSION

# The runner's variables that a job on another node gets: where programs are, and where engines keep their files. Slurm adds its own and those
# of its GPUs; a login adds its user's.
OF_USER: Final = ("HOME", "USER")
EXPORTED: Final = ("PATH", "LANG", "TZ", *OF_USER, "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "APPTAINER_TMPDIR")
# ssh never asks for a password, exits within 15 s of losing the other side, and does not share the user's connection, which would outlive
# this process.
SSH: Final = (
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
    *("-o", "ControlMaster=no", "-o", "ControlPath=none"),
)


class Way(Protocol):
    """How an argv reaches a node."""

    @property
    def env_names(self) -> tuple[str, ...]:
        """The runner's variables that the way itself needs."""

    @property
    def notices_loss(self) -> bool:
        """Whether the argv's process exits soon on its own once the node is gone or cut off."""

    @property
    def grace_s(self) -> float:
        """Seconds that a job has to end on its own after its lease is closed, before the way to it is torn down."""

    def reach(self, node: str, words: Sequence[str]) -> tuple[str, ...]:
        """The argv that runs `words` on a node."""

    def identifier(self, leader: int) -> str | None:
        """How the node's kernel identifies the job's processes, None if unknown; `leader` is the argv's process on this machine."""


@dataclass(frozen=True)
class Here:
    """This machine: nothing is in between, so SIGTERM reaches the lease itself."""

    grace_s: float = 0.0
    notices_loss: ClassVar[bool] = True
    env_names: ClassVar[tuple[str, ...]] = ()

    def reach(self, node: str, words: Sequence[str]) -> tuple[str, ...]:
        """The words, unmodified."""
        del node
        return tuple(words)

    def identifier(self, leader: int) -> str:
        """The session that the argv's process leads, by its number."""
        return f"{SESSION}{leader}"


@dataclass(frozen=True)
class Step:
    """A step of a Slurm job on one of its nodes, concurrent with the job's other steps there (srun(1))."""

    job: str
    grace_s: float = 12.0  # on SIGTERM srun kills the step immediately: the lease must have ended the job by then
    notices_loss: ClassVar[bool] = False  # srun waits until Slurm gives up the node, after `SlurmdTimeout`
    # Where Slurm's clients find their controller; srun would take Slurm's other variables for options.
    env_names: ClassVar[tuple[str, ...]] = ("SLURM_CONF",)

    def reach(self, node: str, words: Sequence[str]) -> tuple[str, ...]:
        """Run one task with all cores, memory and GPUs that the job has on the node.

        Without `--overlap` and `--mem=0`, each step waits for the previous one; without `--cpu-bind=none`, the task is bound to one core.
        """
        return (
            *("srun", f"--jobid={self.job}", "--overlap", "--mem=0", "--nodes=1", "--ntasks=1", f"--nodelist={node}"),
            *("--cpu-bind=none", "--unbuffered", "--input=all", "--quiet", f"--export={','.join(EXPORTED)}"),
            *words,
        )

    def identifier(self, leader: int) -> str:
        """`/job_5/` of the cgroup path `.../job_5/step_3/...`: the part that all steps of the job on a node share."""
        del leader
        return f"/job_{self.job}/"


@dataclass(frozen=True)
class Ssh:
    """A login on a node (ssh(1)); `variables` are the runner's values of `EXPORTED`.

    The job's stdin closes with the connection, and so the lease ends; if a cable is cut, the lease misses the runner's heartbeats.
    """

    logins: Mapping[str, tuple[str, ...]]  # by node, ssh's options and destination
    variables: Mapping[str, str]
    grace_s: float = 12.0
    notices_loss: ClassVar[bool] = True
    env_names: ClassVar[tuple[str, ...]] = (*OF_USER, "SSH_AUTH_SOCK")

    def reach(self, node: str, words: Sequence[str]) -> tuple[str, ...]:
        """Open one connection per job; `exec` leaves no shell between sshd and the words."""
        exported = (f"{name}={value}" for name, value in self.variables.items() if name not in OF_USER)
        return ("ssh", "-Tax", *SSH, *self.logins[node], f"exec {shlex.join(('env', *exported, *words))}")

    def identifier(self, leader: int) -> None:
        """None: sshd chooses the session and cgroup there."""
        del leader
