"""Takes away what killed runs left, here and on other hosts: containers, volumes, networks, processes. `dlscale clean`, and Docker's each `bench`.

Whether its runner is gone, most of it tells at once (`runner/engines/owner.py`). Of the rest, the lease tells: what still runs a few seconds later
has a runner, and so has a run that starts something meanwhile. `bench` does not wait for that, and leaves the rest as it is. What
it makes itself is removed right after it, should it be killed.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from runner.core.errors import RequestError
from runner.engines import docker, owner
from runner.engines.base import EngineError, EngineRefusedError
from runner.engines.leftovers import Ask, Finder, InDocker, InPodman, InProcesses
from runner.engines.owner import Labelled
from runner.engines.process import CommandError, find_program, on_path, run, when_killed

# The lease ends its container within seconds of its runner (`workloads/lease.py`: five and a moment), and the engine takes one more.
LEASE_S: Final = 10.0
POLL_S: Final = 0.5
_ANSWER_S: Final = 60
_GOING: Final = frozenset({"running", "paused", "restarting"})
_RUNS: Final = ("container", "process")


class Place:
    """One engine, or a machine's processes, and what carries the suite's label there.

    Attributes:
        refusal: why the engine was given up, as a sentence; None for one that answers.
    """

    def __init__(self, finder: Finder, *, host: str = "") -> None:
        """Look for everything; `host` is the name of one that is not this machine."""
        self.removed: list[Labelled] = []
        self.refusal: str | None = None
        self.finder, self._host = finder, host
        self.things = self.now()

    def now(self) -> list[Labelled]:
        """What is there now; nothing, and a refusal, where the engine stops answering."""
        if self.refusal is None:
            try:
                return self.finder.find()
            except EngineError as error:
                self._give_up(error)
        return []

    def remove(self, alive: Collection[str] | None) -> None:
        """Remove what was there at the first look and has no runner.

        `alive` are the runs that have one, of those whose things do not tell; None if nobody looked, so that these stay.
        """
        for thing in self.things:
            state = _state(thing)
            if self.refusal or not (state == "gone" or (state == "unknown" and _is_left(thing, alive))):
                continue
            try:
                with suppress(EngineRefusedError):  # in use by somebody else's container, or gone meanwhile
                    if self.finder.remove(thing, force=state == "gone"):
                        self.removed.append(thing)
            except EngineError as error:
                self._give_up(error)

    @property
    def names(self) -> list[str]:
        """What was removed, as a line says it."""
        return [f"{thing.name} on {self._host}" if self._host else thing.name for thing in self.removed]

    def _give_up(self, error: EngineError) -> None:
        """Keep why the engine does not answer, so that the others are cleaned all the same."""
        where = self._host or "this machine"
        self.refusal = f"{where}: its engine stopped answering ({error}); try again when it is up"


def clean(hosts: str | None = None) -> None:
    """Remove everything that carries the suite's label and has no runner any more, here or on HOSTS; say what that was, and what was left.

    Raises RequestError: a Docker engine that should be there does not answer; after all else has been cleaned.
    """
    refusals: list[str] = []
    with ExitStack() as connections:
        places = list(_places(hosts, connections, refusals) if hosts else _here(refusals))
        left = remove_left(places, say=lambda text: sys.stderr.write(f"{text}\n"))
    lines = [f"removed {name}\n" for place in places for name in place.names]
    lines += [
        f"left {name} as it is: its runner is alive; end that by Ctrl-C, or what runs by `{_holding(places, name).by_hand(name)}`\n"
        for name in left
    ]
    refusals += [place.refusal for place in places if place.refusal]
    sys.stdout.write("".join(lines) or ("" if refusals else "nothing to remove\n"))
    if refusals:
        raise RequestError("; also ".join(refusals))


def remove_left(places: Sequence[Place], *, say: Callable[[str], object] = lambda _: None) -> tuple[str, ...]:
    """Remove what killed runs have left in the engines of all machines that runs may be spread over; returns the runs that are alive."""
    alive = _alive(places, say=say)
    for place in places:
        place.remove(alive)
    return tuple(sorted(alive))


def remove_certain(clients: Iterable[docker.Client]) -> str | None:
    """Remove what certainly has no runner any more; a sentence on what that was, None for nothing. Waits for nothing."""
    places = [Place(InDocker(client)) for client in clients]
    for place in places:
        place.remove(None)
    kinds = Counter(thing.kind for place in places for thing in place.removed)
    counted = ", ".join(f"{number} {kind}{'s' * (number > 1)}" for kind, number in sorted(kinds.items()))
    return f"removed what killed runs had left: {counted}" if counted else None


@contextmanager
def removed_if_killed(hosts: str | None) -> Iterator[None]:
    """Have what this process makes in Docker, here or on HOSTS, removed where it is killed within the block.

    Docker itself removes what a lease ends then; networks, volumes and containers that were never started would stay.
    """
    mine = owner.own()
    if mine is None:  # nothing is known by it
        yield
        return
    with when_killed((sys.executable, "-I", "-m", __name__, mine, *([hosts] if hosts else []))):
        yield


def remove_of(runner: str, places: Sequence[Place]) -> None:
    """Remove all that a dead runner left: what does not run at once, also what an engine was making just then, and the rest once its lease is over."""
    over = time.monotonic() + LEASE_S
    late = False
    while not late:
        late = time.monotonic() > over
        gone = owner.state(runner) == "gone"
        for place in places:
            for thing in place.now() if gone else ():
                if thing.runner == runner and (late or thing.status not in _GOING):
                    with suppress(EngineError):  # it ends just now, or something in it does: the next round comes
                        place.finder.remove(thing, force=late)
        time.sleep(POLL_S)


def _alive(places: Sequence[Place], *, say: Callable[[str], object]) -> set[str]:
    """The runs that have a runner: theirs says so, something of them outlasts the lease, or something of them begins meanwhile.

    What has ended decides nothing, and a volume or network may be of a matrix that is between two trials.
    """
    things = [thing for place in places for thing in place.things]
    known = {thing.id for thing in things}
    begun = {thing.run for thing in things if _state(thing) == "alive"}
    others = any(_state(thing) == "unknown" for thing in things if thing.kind not in _RUNS)
    over = time.monotonic() + LEASE_S
    said = False
    while True:
        now = [one for place in places for one in place.now() if one.kind in _RUNS and _state(one) == "unknown"]
        begun |= {container.run for container in now if container.id not in known}
        going = {container.run for container in now if container.status in _GOING}
        undecided = others or any(container.status in {*_GOING, "created"} for container in now)
        if time.monotonic() > over or not undecided:
            return begun | going
        if not said:
            say(f"looking for {LEASE_S:.0f} s which runs have a runner")
            said = True
        time.sleep(POLL_S)


def _holding(places: Sequence[Place], name: str) -> Finder:
    """Where something of a run was found."""
    return next((one for one in places if any(thing.run == name for thing in one.things)), places[0]).finder


def _main(runner: str, hosts: str | None = None) -> None:
    """What a shell runs once the runner has been killed (`removed_if_killed`)."""
    with ExitStack() as connections:
        remove_of(runner, list(_places(hosts, connections, [])) if hosts else [Place(InDocker(docker.connect()))])


def _here(refusals: list[str]) -> Iterator[Place]:
    """The places of this machine; an engine that it has no program for, and that nobody named, is not missed."""
    try:
        yield Place(InDocker(docker.connect()))
    except EngineError as error:
        if "DOCKER_HOST" in os.environ or any(on_path("docker")):
            refusals.append(f"{error}; start it (`dlscale doctor` says more)")
    yield from _by_programs(lambda argv: run(argv, timeout_s=_ANSWER_S))


def _places(text: str, connections: ExitStack, refusals: list[str]) -> Iterator[Place]:
    """The places of hosts; those that only commands reach over ssh, as jobs of ENGINE=podman, apptainer and venv do, need no Docker."""
    from runner.cluster.hosts.by_command import by_ssh  # noqa: PLC0415 - commands load what they need
    from runner.cluster.hosts.endpoint import connect  # noqa: PLC0415
    from runner.cluster.hosts.model import load_hosts  # noqa: PLC0415

    for host in load_hosts(text).hosts:
        logins = by_ssh([host]) if host.endpoint.address.scheme == "ssh" else ()
        ask = logins[0].command if logins and _answers(logins[0].command, "true") else None
        try:
            connection = connect(host)
        except RequestError as error:
            if ask is None or _answers(ask, "docker", "--version"):
                refusals.append(str(error))
        else:
            connections.callback(connection.close)
            yield Place(InDocker(connection.client), host=host.name)
        if ask:
            yield from _by_programs(ask, host=host.name)


def _by_programs(ask: Ask, *, host: str = "") -> Iterator[Place]:
    """What commands find on a machine: Podman's containers where it has Podman, and processes."""
    if find_program("podman", ask).available:
        yield Place(InPodman(ask), host=host)
    yield Place(InProcesses(ask), host=host)


def _answers(ask: Ask, *argv: str) -> bool:
    with suppress(CommandError):
        ask(argv)
        return True
    return False


def _state(thing: Labelled) -> owner.State:
    """Whether its runner still lives, as of now."""
    return owner.state(thing.runner)


def _is_left(thing: Labelled, alive: Collection[str] | None) -> bool:
    """Whether no run of these uses it; what all runs of a matrix share is named like the beginning of theirs."""
    return alive is not None and not any(f"{run}-".startswith(f"{thing.run}-") for run in alive)


if __name__ == "__main__":
    _main(*sys.argv[1:])
