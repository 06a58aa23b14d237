"""Takes away what killed runs left, here and on other hosts: containers, volumes with programs, networks. `dlscale clean`, and each `bench`.

Whether its runner is gone, most of it tells at once (`runner/engines/owner.py`). Of the rest, the lease tells: what still runs a few seconds later
has a runner, and so has a run that starts something meanwhile. `bench` does not wait for that, and leaves the rest as it is.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER
from runner.core.errors import RequestError
from runner.engines import docker, owner, removal
from runner.engines.base import EngineError, EngineRefusedError, as_engine_error

if TYPE_CHECKING:
    from runner.engines.docker import Client

# The lease ends its container within seconds of its runner (`workloads/lease.py`: five and a moment), and the engine takes one more.
LEASE_S: Final = 10.0
POLL_S: Final = 0.5
_GOING: Final = frozenset({"running", "paused", "restarting"})
_OF_RUNS: Final = {"label": LABEL_RUN}
Thing = dict[str, Any]
"""A container, volume or network in the words of the engine."""


class Place:
    """One engine, and what carries the suite's label in it.

    Attributes:
        containers, volumes, networks: what was there at the first look.
        removed: names of what was removed of it.
        kinds: how much of each kind that was.
        refusal: why the engine was given up, as a sentence; None for one that answers.
    """

    def __init__(self, client: Client, *, host: str = "") -> None:
        """Look for everything; `host` is the name of one that is not this machine."""
        self.removed: list[str] = []
        self.kinds: Counter[str] = Counter()
        self.refusal: str | None = None
        self._api, self._host = client.api, host
        self.volumes: list[Thing] = []
        self.networks: list[Thing] = []
        self.containers = self.now()
        with self._asking():
            self.volumes = self._api.volumes(filters=_OF_RUNS)["Volumes"] or []
            self.networks = self._api.networks(filters=_OF_RUNS)

    def now(self) -> list[Thing]:
        """The containers that are there now."""
        found: list[Thing] = []
        if self.refusal:
            return found
        with self._asking():
            found += self._api.containers(all=True, filters=_OF_RUNS)
        return found

    def remove(self, alive: Collection[str] | None) -> None:
        """Remove what was there at the first look and has no runner.

        Args:
            alive: the runs that have one, of those whose things do not tell; None if nobody looked, so that these stay.
        """
        for container in self._left(self.containers, alive):
            name = container["Names"][0].removeprefix("/")
            if _state(container) == "gone":
                self._remove("container", name, removal.remove, self._api, container["Id"])
            else:
                self._remove("container", name, self._api.remove_container, container["Id"], v=True)
        for volume in self._left(self.volumes, alive):
            self._remove("volume", volume["Name"], self._api.remove_volume, volume["Name"])
        for network in self._left(self.networks, alive):
            self._remove("network", network["Name"], self._api.remove_network, network["Id"])

    def _left(self, things: Sequence[Thing], alive: Collection[str] | None) -> list[Thing]:
        """Those without a runner; what all runs of a matrix share is named like the beginning of theirs."""

        def left(one: Thing) -> bool:
            if (state := _state(one)) != "unknown" or alive is None:
                return state == "gone"
            return not any(f"{run}-".startswith(f"{_run(one)}-") for run in alive)

        return [one for one in things if left(one)]

    def _remove(self, kind: str, name: str, remove: Callable[..., object], *which: object, **how: bool) -> None:
        if self.refusal:
            return
        with (
            self._asking(),
            suppress(EngineRefusedError),
            as_engine_error(),
        ):  # in use by somebody else's container, or gone meanwhile
            if remove(*which, **how) is not False:
                self.removed.append(f"{name} on {self._host}" if self._host else name)
                self.kinds[kind] += 1

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Keep why the engine does not answer, so that the others are cleaned all the same."""
        try:
            with as_engine_error():
                yield
        except EngineError as error:
            where = self._host or "this machine"
            self.refusal = f"{where}: its engine stopped answering ({error}); try again when it is up"


def clean(hosts: str | None = None) -> None:
    """Remove everything that carries the suite's label and has no runner any more, and say what that was, and what was left.

    Args:
        hosts: HOSTS, whose engines are cleaned instead of this machine's.

    Raises:
        RequestError: no Docker engine answers, so there is nothing to ask; with hosts, after the others have been cleaned.
    """
    refusals: list[str] = []
    with ExitStack() as connections:
        places = list(_places(hosts, connections, refusals)) if hosts else [Place(docker.connect_or_refuse())]
        left = remove_left(places, say=lambda text: sys.stderr.write(f"{text}\n"))
    lines = [f"removed {name}\n" for place in places for name in place.removed]
    lines += [
        f"left {run} as it is: its runner is alive; end that by Ctrl-C, or what runs by "
        f"`docker rm --force $(docker ps --quiet --filter label={LABEL_RUN}={run})`\n"
        for run in left
    ]
    refusals += [place.refusal for place in places if place.refusal]
    sys.stdout.write("".join(lines) or ("" if refusals else "nothing to remove\n"))
    if refusals:
        raise RequestError("; also ".join(refusals))


def remove_left(places: Sequence[Place], *, say: Callable[[str], object] = lambda _: None) -> tuple[str, ...]:
    """Remove what killed runs have left; returns the runs that are alive, whose things stay.

    Args:
        places: the engines of one machine, or of all machines that runs may be spread over.
        say: told what is waited for.
    """
    alive = _alive(places, say=say)
    for place in places:
        place.remove(alive)
    return tuple(sorted(alive))


def remove_certain(clients: Iterable[Client]) -> str | None:
    """Remove what certainly has no runner any more; a sentence on what that was, None for nothing. Waits for nothing."""
    places = [Place(client) for client in clients]
    for place in places:
        place.remove(None)
    kinds = sum((place.kinds for place in places), Counter[str]())
    counted = ", ".join(f"{number} {kind}{'s' * (number > 1)}" for kind, number in sorted(kinds.items()))
    return f"removed what killed runs had left: {counted}" if counted else None


def _alive(places: Sequence[Place], *, say: Callable[[str], object]) -> set[str]:
    """The runs that have a runner: theirs says so, something of them outlasts the lease, or something of them begins meanwhile.

    What has ended decides nothing, and a volume or network may be of a matrix that is between two trials.
    """
    known = {container["Id"] for place in places for container in place.containers}
    things = [thing for place in places for thing in (*place.containers, *place.volumes, *place.networks)]
    begun = {_run(thing) for thing in things if _state(thing) == "alive"}
    others = any(_state(thing) == "unknown" for place in places for thing in (*place.volumes, *place.networks))
    over = time.monotonic() + LEASE_S
    said = False
    while True:
        now = [one for place in places for one in place.now() if _state(one) == "unknown"]
        begun |= {_run(container) for container in now if container["Id"] not in known}
        going = {_run(container) for container in now if container["State"] in _GOING}
        if time.monotonic() > over or not (others or any(one["State"] in {*_GOING, "created"} for one in now)):
            return begun | going
        if not said:
            say(f"looking for {LEASE_S:.0f} s which runs have a runner")
            said = True
        time.sleep(POLL_S)


def _places(text: str, connections: ExitStack, refusals: list[str]) -> Iterator[Place]:
    from runner.cluster.hosts.endpoint import connected  # noqa: PLC0415 - commands load what they need
    from runner.cluster.hosts.hostsfile import load_hosts  # noqa: PLC0415

    for host in load_hosts(text).hosts:
        try:
            yield Place(connections.enter_context(connected(host)).client, host=host.name)
        except RequestError as error:
            refusals.append(str(error))


def _state(thing: Thing) -> owner.State:
    """Whether its runner still lives."""
    return owner.state(thing["Labels"].get(LABEL_RUNNER))


def _run(thing: Thing) -> str:
    """The run that it says it belongs to."""
    return str(thing["Labels"][LABEL_RUN])
