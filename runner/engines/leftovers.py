"""Places where dead runners may have left something, and how each is searched: Docker's API, Podman's command line, a machine's processes.

Podman's containers carry the same labels as Docker's; processes carry the same two in their environment (`boxes.py`), which their children
inherit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER, VARIABLES
from runner.engines import owner
from runner.engines.base import EngineError, EngineRefusedError
from runner.engines.owner import Labelled
from runner.engines.process import CommandError

if TYPE_CHECKING:
    from docker import DockerClient

Ask = Callable[[Sequence[str]], str]  # returns a command's output on the machine; raises CommandError

_RUN, _RUNNER = VARIABLES[LABEL_RUN], VARIABLES[LABEL_RUNNER]
# Other users' environments can't be read, and exited processes have none: neither is an error.
_FIND: Final = f"grep -azs '^{_RUN}=\\|^{_RUNNER}=' /proc/[0-9]*/environ || true"
# Each job has its own session, which also contains Apptainer's processes, whose environment is overwritten. The caller's own sessions are spared.
_SESSIONS: Final = """\
{ parent[$1] = $2; session[$1] = $3 }
END {
  for (pid = self; pid in parent; pid = parent[pid]) spared[session[pid]]
  split(found, jobs)
  for (job in jobs) if (session[jobs[job]] > 0 && !(session[jobs[job]] in spared)) ended[session[jobs[job]]]
  for (pid in session) if (session[pid] in ended) print pid
}"""
# Processes started during one round are found in the next.
_KILL: Final = f"""\
for round in $(seq 50); do
  found=$(echo $(grep -lazsxF "{_RUNNER}=$1" /proc/[0-9]*/environ | cut -d/ -f3))
  [ "$found" ] || exit 0
  echo $found
  kill -KILL $found $(sed -n 's/^\\([0-9]*\\) (.*) . \\([0-9]*\\) [0-9]* \\([0-9]*\\) .*/\\1 \\2 \\3/p' /proc/[0-9]*/stat 2>/dev/null |
    awk -v found="$found" -v self=$$ '{_SESSIONS}') 2>/dev/null
  sleep 0.1
done
exit 1"""
# Attempts to remove a container that `podman rm` silently leaves there.
_ROUNDS: Final = 10
_VARIABLE: Final = re.compile(r"/proc/(?P<pid>\d+)/environ:(?P<name>\w+)=(?P<value>[^\0]*)\0")


class Finder(Protocol):
    """One place to search on one machine."""

    def find(self) -> list[Labelled]:
        """Everything of the suite there; raises EngineError if nothing answers."""

    def remove(self, thing: Labelled, *, force: bool) -> bool:
        """Remove one thing, a running one only by force; returns False if nothing was removed. Raises EngineError, EngineRefusedError."""

    def by_hand(self, run: str) -> str:
        """The shell command that ends a run's containers or processes there."""


@dataclass(frozen=True)
class InDocker:
    """Containers, volumes and networks of an engine, through its API."""

    client: DockerClient

    def find(self) -> list[Labelled]:
        """Everything with the suite's label."""
        return owner.labelled(self.client)

    def remove(self, thing: Labelled, *, force: bool) -> bool:
        """Through the API."""
        return owner.remove_labelled(self.client, thing, force=force)

    def by_hand(self, run: str) -> str:
        """By label."""
        return _by_label("docker", run)


@dataclass(frozen=True)
class InPodman:
    """Containers, through Podman's command line."""

    ask: Ask

    def find(self) -> list[Labelled]:
        """Everything with the suite's label."""
        listing = ("podman", "ps", "--all", f"--filter=label={LABEL_RUN}", "--format=json")
        output = _output(self.ask, listing, refusal=EngineError)
        return [
            Labelled(
                "container",
                name=found["Names"][0],
                id=found["Id"],
                run=found["Labels"][LABEL_RUN],
                runner=found["Labels"].get(LABEL_RUNNER),
                status=found["State"],
            )
            for found in json.loads(output) or ()
        ]

    def remove(self, thing: Labelled, *, force: bool) -> bool:
        """Remove it, by force with the containers in its network. Repeats while it exists: Podman 4.3 gives up if one of those disappears."""
        words = ("--force", "--depend", "--time=0") if force else ()
        remove = ("podman", "rm", "--ignore", "--volumes", *words, thing.id)
        listing = ("podman", "ps", "--all", "--quiet", f"--filter=id={thing.id}")
        for _ in range(_ROUNDS):
            _output(self.ask, remove, refusal=EngineRefusedError)
            if not _output(self.ask, listing, refusal=EngineError).strip():
                return True
        raise EngineRefusedError(f"podman rm does not remove {thing.name}; see `podman ps --all`")

    def by_hand(self, run: str) -> str:
        """By label."""
        return _by_label("podman", run)


@dataclass(frozen=True)
class InProcesses:
    """Jobs without an engine, or whose engine is only their parent process (Apptainer): the processes that this user may inspect."""

    ask: Ask

    def find(self) -> list[Labelled]:
        """One entry per run and runner, however many processes it has."""
        output = _output(self.ask, ("sh", "-c", _FIND), refusal=EngineError)
        variables: dict[str, dict[str, str]] = {}
        for match in _VARIABLE.finditer(output):
            variables.setdefault(match["pid"], {})[match["name"]] = match["value"]
        found = {(named[_RUN], named.get(_RUNNER)) for named in variables.values() if _RUN in named}
        return [
            Labelled("process", f"processes of {run}", f"{run} {runner}", run, runner, "running")
            for run, runner in sorted(found, key=str)
        ]

    def remove(self, thing: Labelled, *, force: bool) -> bool:
        """Kill everything that its runner's jobs have started, and all else in their sessions; only by force, and if the runner is known."""
        if not force or thing.runner is None:
            return False
        return bool(_output(self.ask, ("sh", "-c", _KILL, "sh", thing.runner), refusal=EngineRefusedError))

    def by_hand(self, run: str) -> str:
        """By the run's id in their environment."""
        return f"kill $(grep -lazsxF {_RUN}={run} /proc/[0-9]*/environ | cut -d/ -f3)"


def _output(ask: Ask, argv: Sequence[str], *, refusal: type[EngineError]) -> str:
    """A command's output; raises `refusal` if it fails."""
    try:
        return ask(argv)
    except CommandError as error:
        raise refusal(error.last_line) from error


def _by_label(program: str, run: str) -> str:
    return f"{program} rm --force $({program} ps --quiet --filter label={LABEL_RUN}={run})"
