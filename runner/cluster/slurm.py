"""The Slurm job that the runner is in: its nodes and its state, from scontrol(1). Allocates nothing."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import Final

from runner.core.errors import RequestError
from runner.core.record import Status
from runner.engines.process import CommandError, run
from runner.engines.ways import Step

_ANSWER_S: Final = 30
# How long Slurm may take to end a job's steps (KillWait is 30 s by default) before it reports how the job ended.
_COMPLETING_S: Final = 45.0
_POLL_S: Final = 0.5
# Set if this process is itself in a step of the job or in its script: Slurm waits for it (KillWait) before it reports how the job ended.
_IN_STEP: Final = "SLURM_TASK_PID"
# With at most this many seconds left, the time limit is taken to be why Slurm tells the job to end (sbatch's --signal).
_NEAR_S: Final = 120
_FIELD: Final = re.compile(r"(?:^| )(?P<name>[A-Z][A-Za-z]+)=(?P<value>\S*)")
_ACTIVE: Final = ("RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT")


@dataclass(frozen=True)
class Ending:
    """How a job ended early: the status of the run in progress, and one sentence on why."""

    status: Status
    sentence: str


@dataclass(frozen=True)
class Allocation:
    """A Slurm job with its nodes, in Slurm's order."""

    job: str
    cluster: str
    nodes: tuple[str, ...]
    version: str

    @property
    def way(self) -> Step:
        """How its nodes are reached."""
        return Step(self.job)

    def ended(self, *, signalled: bool) -> Ending | None:
        """How it ended, or is about to if the runner was told to end (`signalled`); None while it continues.

        Waits up to `_COMPLETING_S` while Slurm is ending the job, unless this process is part of the job.
        """
        deadline = time.monotonic() + _COMPLETING_S
        while True:
            try:
                fields = read_fields(_ask("scontrol", "-o", "show", "job", self.job))
            except CommandError as error:
                why = f"Slurm does not report the state of job {self.job} ({error.last_line})"
                return Ending("failed", f"{why}; see `squeue` and slurmctld's log")
            if fields.get("JobState") != "COMPLETING" or _IN_STEP in os.environ or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        state = fields.get("JobState", "UNKNOWN")
        if state in _ACTIVE:
            return self._time_limit() if signalled else None
        lost = self._lost() if state in ("NODE_FAIL", "COMPLETING") else ()
        return ending(self.job, final_state(fields, lost) if state == "COMPLETING" else state, fields, lost=lost)

    def _time_limit(self) -> Ending | None:
        """The job's time limit, if it is near and so the reason why the runner was told to end; None if it is not, or is unknown."""
        try:
            left, limit = _ask("squeue", "-h", "-j", self.job, "-o", "%L %l").split()
        except (CommandError, ValueError):
            return None
        left_s = parse_duration(left)
        if left_s is None or left_s > _NEAR_S:
            return None
        return Ending("interrupted", f"job {self.job} is about to reach its time limit of {limit}; {_MORE_TIME}")

    def _lost(self) -> tuple[str, ...]:
        """Its nodes that Slurm reports as down or unreachable (`*`)."""
        try:
            output = _ask("scontrol", "-o", "show", "node", ",".join(self.nodes))
        except CommandError:
            return ()
        nodes = [read_fields(line) for line in output.splitlines() if line.strip()]
        return tuple(n["NodeName"] for n in nodes if "*" in n.get("State", "") or n.get("State", "").startswith("DOWN"))


_MORE_TIME: Final = "ask for more with --time (SLURM_FLAGS='--time=...'), then continue with RESUME=1"


def final_state(fields: dict[str, str], lost: tuple[str, ...]) -> str:
    """The final state of a completing job: until Slurm has ended its steps, only other fields reveal it."""
    if lost:
        return "NODE_FAIL"
    if fields.get("Reason") == "TimeLimit":
        return "TIMEOUT"
    return "CANCELLED" if fields.get("PreemptTime", "None") == "None" else "PREEMPTED"


def ending(job: str, state: str, fields: dict[str, str], *, lost: tuple[str, ...]) -> Ending:
    """Explain a job's final state (squeue(1), "JOB STATE CODES")."""
    match state:
        case "CANCELLED":
            return Ending("interrupted", f"job {job} was cancelled, by scancel or an administrator; RESUME=1 continues")
        case "TIMEOUT" | "DEADLINE":
            return Ending(
                "interrupted",
                f"job {job} was ended at its time limit of {fields.get('TimeLimit', 'unknown')}; {_MORE_TIME}",
            )
        case "PREEMPTED":
            return Ending("interrupted", f"job {job} was preempted by another; RESUME=1 continues")
        case "NODE_FAIL":
            nodes = ", ".join(lost) or "a node"
            return Ending(
                "failed",
                f"{nodes} was lost, and Slurm ended job {job}; see `scontrol show node`, then continue with RESUME=1",
            )
        case "OUT_OF_MEMORY":
            return Ending(
                "failed",
                f"job {job} exceeded its memory on a node; ask for more with --mem, or use a smaller BATCH",
            )
        case _:
            reason = fields.get("Reason", "None")
            why = f" ({reason})" if reason != "None" else ""
            return Ending("failed", f"Slurm ended job {job}: {state}{why}; see `scontrol show job {job}`")


def read_allocation() -> Allocation:
    """The job that this process is in. Raises RequestError if it is in none or Slurm does not answer."""
    job, node_list = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NODELIST")
    if not job or not node_list:
        raise RequestError(
            "HOSTS=slurm uses the nodes of the Slurm job that it runs in, and this is none; run it in salloc or sbatch, or use "
            "CLUSTER=slurm, which allocates one"
        )
    try:
        nodes = _ask("scontrol", "show", "hostnames", node_list).split()
        version = _ask("scontrol", "--version").split()[-1]
    except CommandError as error:
        raise RequestError(f"HOSTS=slurm asked, but Slurm does not answer ({error.last_line}); see `sinfo`") from error
    return Allocation(job, os.environ.get("SLURM_CLUSTER_NAME", "slurm"), tuple(nodes), version)


def _ask(*argv: str) -> str:
    return run(argv, timeout_s=_ANSWER_S)


def read_fields(text: str) -> dict[str, str]:
    """The `Name=value` fields of a line of `scontrol -o`; a value with blanks is cut at the first."""
    return {match["name"]: match["value"] for match in _FIELD.finditer(text)}


def parse_duration(text: str) -> int | None:
    """Parse Slurm's `days-hours:minutes:seconds`, whose leading parts may be missing; None for UNLIMITED and the like."""
    if not re.fullmatch(r"(\d+-)?(\d+:){0,2}\d+", text):
        return None
    days, _, clock = text.rpartition("-")
    total = 0
    for part in clock.split(":"):
        total = total * 60 + int(part)
    return int(days or 0) * 86400 + total
