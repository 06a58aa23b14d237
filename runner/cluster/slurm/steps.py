"""What the nodes of a Slurm job are: each is asked by a step of the job, so that what it says of cores, memory and GPUs is the job's share.

Steps run the suite's own files by the suite's own Python: the checkout has to be on a file system that all nodes share.
"""

from __future__ import annotations

import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.cluster.hosts.model import Claims
from runner.cluster.hosts.survey import Clock, Snapshot, Surveyed, at_once, packed_pynvml, read_snapshot, refuse_any
from runner.cluster.machine import snapshot
from runner.cluster.machine.local_node import PORTS
from runner.cluster.slurm.allocation import Allocation
from runner.core.errors import RequestError
from runner.engines.base import EngineFacts
from runner.engines.command import OF_WAYS, passed
from runner.engines.process import CommandError, run
from runner.engines.ways import EXPORTED

_ANSWER_S: Final = 120
_SHARE: Final = "put the checkout, results (OUT) and cache (DLSCALE_CACHE) where every node of the job sees them"


@dataclass(frozen=True)
class StepReach:
    """One node of a job, asked by steps."""

    allocation: Allocation
    node: str

    @property
    def place(self) -> str:
        """Where it is, for a sentence."""
        return f"by steps of job {self.allocation.job}"

    def ask(self, source: str, *arguments: str, patience_s: int) -> str:
        """What a program prints there, by the suite's own Python."""
        return self.run((sys.executable, "-c", source, *arguments), patience_s=patience_s)

    def command(self, argv: Sequence[str], *, patience_s: int = _ANSWER_S) -> str:
        """What a command prints there; raises CommandError."""
        env = passed((*EXPORTED, *OF_WAYS))
        return run(self.allocation.way.reach(self.node, argv), env=env, timeout_s=patience_s)

    def run(self, argv: Sequence[str], *, patience_s: int = _ANSWER_S) -> str:
        """The same; raises RequestError, which names the node."""
        try:
            return self.command(argv, patience_s=patience_s)
        except CommandError as error:
            raise RequestError(
                f"{self.node}: a step of job {self.allocation.job} did not run {argv[0]} ({error.last_line}); "
                f"see `scontrol show node {self.node}`"
            ) from error

    def check_seen(self, paths: Sequence[Path]) -> None:
        """See that files of this machine are there too; raises RequestError where one is not."""
        argv = ("stat", "--terse", "--", *map(str, paths))
        try:
            self.command(argv)
        except CommandError as error:
            if lacking := next((path for path in paths if f"'{path}'" in error.stderr), None):
                raise RequestError(f"{self.node}: {lacking} is not there; {_SHARE}") from error
            raise RequestError(
                f"{self.node}: a step of job {self.allocation.job} could not look for files ({error.last_line}); see `sinfo`"
            ) from error

    def close(self) -> None:
        """Nothing is held."""


def survey(allocation: Allocation, say: Callable[[str], None]) -> tuple[Surveyed, ...]:
    """Ask every node of a job what the job has of it. RequestError: one does not answer, or does not see the suite's files."""
    say(f"asking {', '.join(allocation.nodes)} by steps of job {allocation.job}")
    found = at_once(lambda node: _examine(StepReach(allocation, node)), allocation.nodes)
    return refuse_any(allocation.nodes, found)


def check_shared(reaches: Sequence[StepReach], *, out: Path, files: Sequence[Path]) -> None:
    """See that every node sees files, and what was written a moment ago to the directory of the records. RequestError: one does not."""
    probe = out / f".seen-{uuid.uuid4().hex}"
    try:
        probe.touch()
        answers = at_once(lambda reach: reach.check_seen([probe, *files]), reaches)
    except OSError as error:
        raise RequestError(f"{out}: can't be written ({error.strerror}); give another directory with OUT") from error
    finally:
        probe.unlink(missing_ok=True)
    refuse_any([reach.node for reach in reaches], answers)


def _examine(reach: StepReach) -> Surveyed:
    program = Path(snapshot.__file__)
    reach.check_seen([Path(sys.executable), program])
    before = time.time()
    found: Snapshot = read_snapshot(reach.node, reach.run((sys.executable, str(program), str(PORTS), *packed_pynvml())))
    after = time.time()
    with tempfile.TemporaryDirectory(prefix="dlscale-") as folder:
        described = found.describe(reach.node, Path(folder), no_gpus="the job has none there, or no driver answers")
    return Surveyed(
        host=Claims(name=reach.node),
        connection=reach,
        engine_id=f"slurm {reach.node}",
        engine=EngineFacts(name="slurm", available=True, version=reach.allocation.version),
        node=described.node,
        facts=described.facts.model_copy(update=found.uname),
        clock=Clock(offset_s=found.time - (before + after) / 2, error_s=(after - before) / 2),
        local=found.local,
        pairs=found.nvml.pairs if found.nvml else (),
        health=described.health,
        nvidia_pci=described.nvidia_pci,
    )
