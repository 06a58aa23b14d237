"""WAY: how an argv reaches a node with standard input, output and error of its own. Pure: argv in, argv out.

The lease (`workloads/lease.py`) counts on that: its standard input is the runner's end of the way, wherever it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from runner.core.record import SESSION

# Variables that a step gets from the runner: where programs are, and where engines keep things. Slurm adds its own, and those of its GPUs.
EXPORTED: Final = (
    "PATH",
    "LANG",
    "TZ",
    "HOME",
    "USER",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "APPTAINER_TMPDIR",
)


class Way(Protocol):
    """How an argv reaches a node."""

    @property
    def grace_s(self) -> float:
        """Seconds that a job has to end by itself once its lease is let go, before the way to it is torn down."""

    def reach(self, node: str, words: Sequence[str]) -> tuple[str, ...]:
        """The argv that runs these words on a node."""

    def identifier(self, leader: int) -> str:
        """What the node's kernel tells the job's processes by; `leader` is the process of the argv on this machine."""


@dataclass(frozen=True)
class Here:
    """This machine: nothing is in between. TERM reaches the lease itself."""

    grace_s: float = 0.0

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
    grace_s: float = (
        12.0  # srun has the step killed at once when it gets a TERM itself: the lease has to be over by then
    )

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
