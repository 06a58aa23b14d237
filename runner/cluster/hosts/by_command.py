"""Nodes reached by a command line: steps of a Slurm job, or ssh logins. Surveys them, and checks that they see the suite's files.

The suite's own program and Python run on each, so that a step reports its job's share of cores, memory and GPUs. The checkout, the results
and the cache therefore have to be on a file system that all nodes share.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.cluster.hosts.endpoint import login, ssh_sentence
from runner.cluster.hosts.model import Claims, Host
from runner.cluster.hosts.survey import Clock, Surveyed, ask_all, check, packed_pynvml, read_snapshot, require_all
from runner.cluster.machine import snapshot
from runner.cluster.machine.local_node import PORTS
from runner.cluster.slurm import Allocation
from runner.core.errors import RequestError
from runner.engines.base import EngineFacts
from runner.engines.command import inherited_env
from runner.engines.process import CommandError, run
from runner.engines.ways import EXPORTED, Ssh, Way

_ANSWER_S: Final = 120
_SHARE_HINT: Final = "put the checkout, results (OUT) and cache (DLSCALE_CACHE) where every node sees them"


@dataclass(frozen=True)
class CommandReach:
    """One node, reached by commands.

    Attributes:
        place: how it is reached, for a sentence.
        error_sentence: returns the sentence for a command that failed there.
        facts: of the program that runs commands there.
    """

    way: Way
    host: Claims
    place: str
    error_sentence: Callable[[CommandError], str]
    facts: EngineFacts

    @property
    def node(self) -> str:
        """Its name."""
        return self.host.name

    def ask(self, source: str, *arguments: str, patience_s: int = _ANSWER_S) -> str:
        """The output there of a program in Python, run by the suite's own interpreter."""
        return self.run((sys.executable, "-c", source, *arguments), patience_s=patience_s)

    def command(self, argv: Sequence[str], *, patience_s: int = _ANSWER_S) -> str:
        """A command's output there; raises CommandError."""
        env = inherited_env((*EXPORTED, *self.way.env_names))
        return run(self.way.reach(self.node, argv), env=env, timeout_s=patience_s)

    def run(self, argv: Sequence[str], *, patience_s: int = _ANSWER_S) -> str:
        """A command's output there; raises RequestError, which names the node."""
        try:
            return self.command(argv, patience_s=patience_s)
        except CommandError as error:
            raise RequestError(self.error_sentence(error)) from error

    def check_visible(self, paths: Sequence[Path]) -> None:
        """Check that files of this machine exist there too; raises RequestError if one does not."""
        try:
            self.command(("stat", "--terse", "--", *map(str, paths)))
        except CommandError as error:
            if missing := next((path for path in paths if f"'{path}'" in error.stderr), None):
                raise RequestError(f"{self.node}: {missing} is not there; {_SHARE_HINT}") from error
            raise RequestError(self.error_sentence(error)) from error

    def close(self) -> None:
        """Nothing to close."""


def by_steps(allocation: Allocation) -> tuple[CommandReach, ...]:
    """The nodes of a Slurm job, each reached by its steps."""

    def error_sentence(node: str) -> Callable[[CommandError], str]:
        step = f"{node}: a step of job {allocation.job} did not run"
        return lambda error: f"{step} ({error.last_line}); see `scontrol show node {node}`"

    place = f"by steps of job {allocation.job}"
    facts = EngineFacts(name="slurm", available=True, version=allocation.version)
    return tuple(
        CommandReach(allocation.way, Claims(name=node), place, error_sentence(node), facts) for node in allocation.nodes
    )


def by_ssh(hosts: Sequence[Host]) -> tuple[CommandReach, ...]:
    """The hosts of a list, each reached over ssh. Raises RequestError if one can't be."""

    def error_sentence(host: Host) -> Callable[[CommandError], str]:
        return lambda error: ssh_sentence(host, error.stderr)

    way = Ssh({host.name: login(host) for host in hosts}, inherited_env(EXPORTED))
    facts = EngineFacts(name="ssh", available=True)
    return tuple(CommandReach(way, host, "over ssh", error_sentence(host), facts) for host in hosts)


def survey(reaches: Sequence[CommandReach], say: Callable[[str], None]) -> tuple[Surveyed, ...]:
    """Survey what a job may use of every node. Raises RequestError if one does not answer or see the suite, lacks what its list claims, or has a wrong clock."""
    names = [reach.node for reach in reaches]
    say(f"asking {', '.join(names)} {reaches[0].place}")
    found = require_all(names, ask_all(_examine, reaches))
    check(found)
    return found


def check_shared(reaches: Sequence[CommandReach], *, out: Path, files: Sequence[Path]) -> None:
    """Check that every node sees `files`, and a file just written to the records' directory. Raises RequestError if one does not."""
    probe = out / f".seen-{uuid.uuid4().hex}"
    try:
        probe.touch()
        answers = ask_all(lambda reach: reach.check_visible([probe, *files]), reaches)
    except OSError as error:
        raise RequestError(f"{out}: can't be written ({error.strerror}); give another directory with OUT") from error
    finally:
        probe.unlink(missing_ok=True)
    require_all([reach.node for reach in reaches], answers)


def _examine(reach: CommandReach) -> Surveyed:
    program = Path(snapshot.__file__)
    reach.check_visible([Path(sys.executable), program])
    before = time.time()
    answer = read_snapshot(reach.node, reach.run((sys.executable, str(program), str(PORTS), *packed_pynvml())))
    after = time.time()
    return answer.surveyed(
        reach,
        engine=reach.facts,
        engine_id=None,
        clock=Clock(offset_s=answer.time - (before + after) / 2, error_s=(after - before) / 2),
        extra_facts=answer.uname,
        no_gpus="it was assigned none, or no driver answers",
    )
