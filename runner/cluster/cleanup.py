"""Removes what killed runs left, here and on other hosts: containers, volumes, networks, processes. For `dlscale clean`, and in Docker for `bench`.

Most things name their owner, which shows immediately whether it is gone (`runner/engines/owner.py`). For the rest the lease decides: a run has
a runner if something of it still runs a few seconds later, or starts meanwhile. `bench` does not wait for that, and leaves these runs alone.
What `bench` itself creates is removed right after it if it is killed.
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

# A lease ends its container a little more than five seconds after its runner died (`workloads/lease.py`), and the engine adds a moment.
LEASE_S: Final = 10.0
POLL_S: Final = 0.5
_ANSWER_S: Final = 60
_ACTIVE: Final = frozenset({"running", "paused", "restarting"})
_JOBS: Final = ("container", "process")


class Place:
    """One engine, or a machine's processes, with everything there that has the suite's label.

    Attributes:
        refusal: why the engine was given up, as a sentence; None while it answers.
    """

    def __init__(self, finder: Finder, *, host: str = "") -> None:
        """Find everything; `host` names another machine, and is empty for this one."""
        self.removed: list[Labelled] = []
        self.refusal: str | None = None
        self.finder, self._host = finder, host
        self.things = self.now()

    def now(self) -> list[Labelled]:
        """Everything that is there now; if the engine stops answering, nothing, and `refusal` is set."""
        if self.refusal is None:
            try:
                return self.finder.find()
            except EngineError as error:
                self._give_up(error)
        return []

    def remove(self, alive: Collection[str] | None) -> None:
        """Remove what the first search found and has no runner.

        `alive`: the runs with a runner, among those whose owner is unknown; None if nobody has checked, so that these stay.
        """
        for thing in self.things:
            state = _state(thing)
            if self.refusal or not (state == "gone" or (state == "unknown" and _is_left(thing, alive))):
                continue
            try:
                with suppress(EngineRefusedError):  # in use by another container, or already gone
                    if self.finder.remove(thing, force=state == "gone"):
                        self.removed.append(thing)
            except EngineError as error:
                self._give_up(error)

    @property
    def names(self) -> list[str]:
        """The removed things, as printed."""
        return [f"{thing.name} on {self._host}" if self._host else thing.name for thing in self.removed]

    def _give_up(self, error: EngineError) -> None:
        """Keep the reason why the engine does not answer, so that the other places are still cleaned."""
        where = self._host or "this machine"
        self.refusal = f"{where}: its engine stopped answering ({error}); try again when it is up"


def clean(hosts: str | None = None) -> None:
    """Remove everything with the suite's label whose runner is gone, here or on HOSTS; print what was removed and what was left.

    Raises RequestError, after cleaning everything else, if a Docker engine that should be there does not answer, or any engine stops answering.
    """
    refusals: list[str] = []
    with ExitStack() as connections:
        places = list(_places(hosts, connections, refusals) if hosts else _here(refusals))
        alive = remove_left(places, say=lambda text: sys.stderr.write(f"{text}\n"))
    lines = [f"removed {name}\n" for place in places for name in place.names]
    lines += [
        f"left {name} as it is: its runner is alive; end that by Ctrl-C, or what it runs by `{_finder_of(places, name).by_hand(name)}`\n"
        for name in alive
    ]
    refusals += [place.refusal for place in places if place.refusal]
    sys.stdout.write("".join(lines) or ("" if refusals else "nothing to remove\n"))
    if refusals:
        raise RequestError("; also ".join(refusals))


def remove_left(places: Sequence[Place], *, say: Callable[[str], object] = lambda _: None) -> tuple[str, ...]:
    """Remove what killed runs left in the engines of all machines that a run may span; returns the runs that are alive."""
    alive = _alive(places, say=say)
    for place in places:
        place.remove(alive)
    return tuple(sorted(alive))


def remove_certain(clients: Iterable[docker.Client]) -> str | None:
    """Remove, without waiting, what certainly has no runner; returns a sentence on what was removed, None if nothing was."""
    places = [Place(InDocker(client)) for client in clients]
    for place in places:
        place.remove(None)
    kinds = Counter(thing.kind for place in places for thing in place.removed)
    counted = ", ".join(f"{number} {kind}{'s' * (number > 1)}" for kind, number in sorted(kinds.items()))
    return f"removed what killed runs had left: {counted}" if counted else None


@contextmanager
def removed_if_killed(hosts: str | None) -> Iterator[None]:
    """Have everything that this process creates in Docker, here or on HOSTS, removed if it is killed within the block.

    Docker itself removes the containers that a lease then ends; networks, volumes and containers that never started would stay.
    """
    mine = owner.this_process()
    if mine is None:  # its things could not be told from others'
        yield
        return
    with when_killed((sys.executable, "-I", "-m", __name__, mine, *([hosts] if hosts else []))):
        yield


def remove_of(runner: str, places: Sequence[Place]) -> None:
    """Remove a dead runner's things: idle ones immediately, even if an engine creates them just then; running ones once the lease has expired."""
    deadline = time.monotonic() + LEASE_S
    expired = False
    while not expired:
        expired = time.monotonic() > deadline
        gone = owner.state(runner) == "gone"
        for place in places:
            for thing in place.now() if gone else ():
                if thing.runner == runner and (expired or thing.status not in _ACTIVE):
                    with suppress(EngineError):  # it, or something in it, is just ending: the next round retries
                        place.finder.remove(thing, force=expired)
        time.sleep(POLL_S)


def _alive(places: Sequence[Place], *, say: Callable[[str], object]) -> set[str]:
    """The runs that have a runner: their owner is alive, something of the run outlasts the lease, or something of it starts meanwhile.

    Exited containers decide nothing, and a volume or network may belong to a matrix that is between two trials.
    """
    things = [thing for place in places for thing in place.things]
    known = {thing.id for thing in things}
    started = {thing.run for thing in things if _state(thing) == "alive"}
    shared = any(_state(thing) == "unknown" for thing in things if thing.kind not in _JOBS)
    deadline = time.monotonic() + LEASE_S
    announced = False
    while True:
        now = [one for place in places for one in place.now() if one.kind in _JOBS and _state(one) == "unknown"]
        started |= {container.run for container in now if container.id not in known}
        active = {container.run for container in now if container.status in _ACTIVE}
        undecided = shared or any(container.status in {*_ACTIVE, "created"} for container in now)
        if time.monotonic() > deadline or not undecided:
            return started | active
        if not announced:
            say(f"checking for {LEASE_S:.0f} s which runs have a runner")
            announced = True
        time.sleep(POLL_S)


def _finder_of(places: Sequence[Place], name: str) -> Finder:
    """The finder of the place where something of a run was found."""
    return next((place for place in places if any(thing.run == name for thing in place.things)), places[0]).finder


def _main(runner: str, hosts: str | None = None) -> None:
    """Clean up after a killed runner; a shell runs this (`removed_if_killed`)."""
    with ExitStack() as connections:
        remove_of(runner, list(_places(hosts, connections, [])) if hosts else [Place(InDocker(docker.connect()))])


def _here(refusals: list[str]) -> Iterator[Place]:
    """The places of this machine; a Docker engine that does not answer is a refusal only if its program or DOCKER_HOST shows that it should."""
    try:
        yield Place(InDocker(docker.connect()))
    except EngineError as error:
        if "DOCKER_HOST" in os.environ or any(on_path("docker")):
            refusals.append(f"{error}; start it (`dlscale doctor` says more)")
    yield from _by_programs(lambda argv: run(argv, timeout_s=_ANSWER_S))


def _places(text: str, connections: ExitStack, refusals: list[str]) -> Iterator[Place]:
    """The places of hosts; a host that runs jobs of ENGINE=podman, apptainer or venv over ssh needs no Docker."""
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
    """The places that commands can search on a machine: Podman's containers if it is installed, and processes."""
    if find_program("podman", ask).available:
        yield Place(InPodman(ask), host=host)
    yield Place(InProcesses(ask), host=host)


def _answers(ask: Ask, *argv: str) -> bool:
    with suppress(CommandError):
        ask(argv)
        return True
    return False


def _state(thing: Labelled) -> owner.State:
    """Whether its runner is alive now."""
    return owner.state(thing.runner)


def _is_left(thing: Labelled, alive: Collection[str] | None) -> bool:
    """Whether no run in `alive` uses it; a thing that all runs of a matrix share is named by the common prefix of their ids."""
    return alive is not None and not any(f"{run}-".startswith(f"{thing.run}-") for run in alive)


if __name__ == "__main__":
    _main(*sys.argv[1:])
