"""WAY: how an argv reaches a node with standard input, output and error of its own. Pure: argv in, argv out.

The lease (`workloads/lease.py`) counts on that: its standard input is the runner's end of the way, wherever it runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from runner.core.record import SESSION

# Variables that a job on another node gets from the runner: where programs are, and where engines keep things. Slurm adds its own, and those
# of its GPUs; a login has its user's.
OF_USER: Final = ("HOME", "USER")
EXPORTED: Final = ("PATH", "LANG", "TZ", *OF_USER, "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "APPTAINER_TMPDIR")
# ssh asks nobody for a password, tells within 15 s that the other side is gone, and shares no connection of the user's, which would go on
# when this process ends.
SSH: Final = (
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
    *("-o", "ControlMaster=no", "-o", "ControlPath=none"),
)


class Way(Protocol):
    """How an argv reaches a node."""

    @property
    def sees(self) -> tuple[str, ...]:
        """Variables of the runner that the way itself takes."""

    @property
    def tells(self) -> bool:
        """Whether the process of the argv ends by itself, soon, once the node is gone or cut off."""

    @property
    def grace_s(self) -> float:
        """Seconds that a job has to end by itself once its lease is let go, before the way to it is torn down."""

    def reach(self, node: str, words: Sequence[str]) -> tuple[str, ...]:
        """The argv that runs these words on a node."""

    def identifier(self, leader: int) -> str | None:
        """What the node's kernel tells the job's processes by, None where nobody knows; `leader` is the process of the argv on this machine."""


@dataclass(frozen=True)
class Here:
    """This machine: nothing is in between. TERM reaches the lease itself."""

    grace_s: float = 0.0
    tells: ClassVar[bool] = True
    sees: ClassVar[tuple[str, ...]] = ()

    def reach(self, node: str, words: Sequence[str]) -> tuple[str, ...]:
        """The words as they are."""
        del node
        return tuple(words)

    def identifier(self, leader: int) -> str:
        """Number of the session that it leads."""
        return f"{SESSION}{leader}"


@dataclass(frozen=True)
class Step:
    """A step of a Slurm job on one of its nodes, beside the job's other steps there (srun(1))."""

    job: str
    grace_s: float = 12.0  # on SIGTERM srun kills the step immediately: the lease must have ended the job by then
    tells: ClassVar[bool] = False  # srun waits until Slurm gives the node up, after `SlurmdTimeout`
    # Where clients of Slurm find their controller; its other variables would be taken for options of srun.
    sees: ClassVar[tuple[str, ...]] = ("SLURM_CONF",)

    def reach(self, node: str, words: Sequence[str]) -> tuple[str, ...]:
        """One task with all cores, memory and GPUs that the job has on the node.

        Without `--overlap` and `--mem=0` each step waits for the one before; without `--cpu-bind=none` the task is bound to one core.
        """
        return (
            *("srun", f"--jobid={self.job}", "--overlap", "--mem=0", "--nodes=1", "--ntasks=1", f"--nodelist={node}"),
            *("--cpu-bind=none", "--unbuffered", "--input=all", "--quiet", f"--export={','.join(EXPORTED)}"),
            *words,
        )

    def identifier(self, leader: int) -> str:
        """The job's control group, `.../job_5/step_3/...`, which all its steps on a node have in common."""
        del leader
        return f"/job_{self.job}/"


@dataclass(frozen=True)
class Ssh:
    """A login on a node (ssh(1)); `variables` are those of `EXPORTED` that the runner has.

    Standard input ends there with the connection, and so does the lease; where a cable is cut, the lease misses the runner's signs.
    """

    logins: Mapping[str, tuple[str, ...]]  # by node, ssh's options and destination
    variables: Mapping[str, str]
    grace_s: float = 12.0
    tells: ClassVar[bool] = True
    sees: ClassVar[tuple[str, ...]] = (*OF_USER, "SSH_AUTH_SOCK")

    def reach(self, node: str, words: Sequence[str]) -> tuple[str, ...]:
        """One connection a job; no shell of the node stays between sshd and the words."""
        exported = (f"{name}={value}" for name, value in self.variables.items() if name not in OF_USER)
        return ("ssh", "-Tax", *SSH, *self.logins[node], f"exec {shlex.join(('env', *exported, *words))}")

    def identifier(self, leader: int) -> None:
        """Nothing: the session and control group are those that sshd gives it there."""
        del leader
