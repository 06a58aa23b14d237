"""Prevents: a `clean` that ends a live run, or removes what it needs between two trials; remains of a killed run that `clean` keeps; ten
seconds of waiting when the owner is certain; a `bench` that removes things whose owner it does not know."""

import itertools

import pytest
from docker.errors import APIError, DockerException

from runner.cluster import cleanup
from runner.cluster.cleanup import Place, remove_certain, remove_left, remove_of
from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER
from runner.engines.leftovers import InDocker

RUN = "20260101T000000Z-0a0b-mxnet-lenet-1cpu-r1"
MATRIX = "20260101T000000Z-0a0b"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that advances by a second at each reading; returns the list of sleeps."""
    slept = []
    ticks = itertools.count()
    monkeypatch.setattr(cleanup.time, "monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr(cleanup.time, "sleep", slept.append)
    return slept


def container(state, run=RUN, number=0):
    name = f"dlscale-{run}-worker{number}"
    return {"Id": f"id of {name}", "Names": [f"/{name}"], "State": state, "Labels": {LABEL_RUN: run}}


def thing(name, run):
    return {"Name": name, "Id": f"id of {name}", "Labels": {LABEL_RUN: run}}


def of(runner, found):
    """Add a runner to the labels: `alive`, `gone`, or on another host."""
    found["Labels"][LABEL_RUNNER] = runner
    return found


@pytest.fixture(autouse=True)
def owners(monkeypatch):
    states = {"alive": "alive", "gone": "gone"}
    monkeypatch.setattr(cleanup.owner, "state", lambda runner: states.get(runner, "unknown"))
    return states


class Engine:
    """A fake Docker client; `looks` are the containers of successive listings, the last of which repeats."""

    def __init__(self, *looks, volumes=(), networks=(), in_use=()):
        self.api, self.looks, self.removed = self, [list(look) for look in looks] or [[]], []
        self._volumes, self._networks, self.in_use = list(volumes), list(networks), in_use

    def containers(self, *, all, filters):  # noqa: A002 - the SDK's name
        assert (all, filters) == (True, {"label": LABEL_RUN})
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def volumes(self, *, filters):
        return {"Volumes": self._volumes}

    def networks(self, *, filters):
        return self._networks

    def remove_container(self, identifier, *, v, force=False):
        assert v
        self._take((identifier, "by force") if force else identifier)

    def remove_volume(self, name):
        self._take(name)

    def remove_network(self, identifier):
        self._take(identifier)

    def _take(self, what):
        if what in self.in_use:
            raise APIError("volume is in use")
        self.removed.append(what)


def cleaned(*engines):
    places = [Place(InDocker(engine), host=f"n{number}") for number, engine in enumerate(engines)]
    return remove_left(places), [place.names for place in places], [place.refusal for place in places]


def test_exited_containers_are_removed_immediately(clock):
    engine = Engine([container("exited"), container("dead", number=1)])
    assert cleaned(engine)[0] == ()
    assert engine.removed == [f"id of dlscale-{RUN}-worker0", f"id of dlscale-{RUN}-worker1"]
    assert clock == []


def test_a_live_run_keeps_everything_of_its_own_and_of_its_matrix():
    """The containers of a running bench were removed, and it then blamed its batch."""
    other = container("exited", run="20260101T000000Z-ffff-r1")
    engine = Engine(
        [container("running"), container("exited", number=1), other],
        volumes=[thing("dlscale-workloads", MATRIX), thing("dlscale-keys", RUN), thing("old", "20260101T000000Z-ffff")],
        networks=[thing("dlscale-net", RUN)],
    )
    left, removed, _ = cleaned(engine)
    assert left == (RUN,)
    assert removed == [["dlscale-20260101T000000Z-ffff-r1-worker0 on n0", "old on n0"]]


def test_a_container_whose_lease_has_expired_is_removed(clock):
    engine = Engine(
        [container("running")],
        [container("running")],
        [container("exited")],
        volumes=[thing("dlscale-workloads", MATRIX)],
    )
    assert cleaned(engine)[0] == ()
    assert engine.removed == [f"id of dlscale-{RUN}-worker0", "dlscale-workloads"]
    assert clock


@pytest.mark.parametrize(
    ("engines", "left", "removed"),
    [
        # A container that never started is removed if its run starts nothing.
        ([Engine([container("created")])], (), [[f"dlscale-{RUN}-worker0 on n0"]]),
        # A run that is alive on one host is kept on all.
        (
            [Engine([container("exited")], volumes=[thing("keys", RUN)]), Engine([container("running", number=1)])],
            (RUN,),
            [[], []],
        ),
        # A thing in use by others is not reported as removed.
        ([Engine([], volumes=[thing("theirs", "old"), thing("mine", "old")], in_use=["theirs"])], (), [["mine on n0"]]),
    ],
    ids=["never started", "alive elsewhere", "in use"],
)
def test_live_and_used_things_are_kept_and_others_removed(engines, left, removed):
    assert cleaned(*engines)[:2] == (left, removed)


def test_a_matrix_between_two_trials_keeps_its_programs():
    """Volumes without a container were removed, although the next trial needs them."""
    begun = [container("running", run=f"{MATRIX}-mxnet-lenet-1cpu-r2")]
    engine = Engine([], [], begun, [], volumes=[thing("dlscale-workloads", MATRIX)])
    left, removed, _ = cleaned(engine)
    assert left == (f"{MATRIX}-mxnet-lenet-1cpu-r2",)
    assert removed == [[]]


def test_an_engine_that_stops_answering_is_named_and_the_others_are_cleaned():
    class Silent(Engine):
        def volumes(self, *, filters):
            raise DockerException("no route to host")

    silent, other = Silent([container("exited")]), Engine([container("exited", run="old")])
    _, removed, refusals = cleaned(silent, other)
    assert removed == [[], ["dlscale-old-worker0 on n1"]]
    assert refusals == ["n0: its engine stopped answering (no route to host); try again when it is up", None]


def leftovers(runner):
    return Engine(
        [of(runner, container("running")), of(runner, container("exited", number=1))],
        volumes=[of(runner, thing("programs", MATRIX))],
        networks=[of(runner, thing("network", RUN))],
    )


WORKERS = [f"dlscale-{RUN}-worker{number}" for number in (0, 1)]


@pytest.mark.parametrize(
    "by", [lambda engine: remove_left([Place(InDocker(engine))]), lambda engine: remove_certain([engine])]
)
def test_things_of_a_dead_runner_are_removed_immediately(clock, by):
    """`clean` waited ten seconds although the process list decides, and `bench` never removed the containers."""
    engine = leftovers("gone")
    by(engine)
    assert engine.removed == [*((f"id of {name}", "by force") for name in WORKERS), "programs", "id of network"]
    assert clock == []


def test_things_of_a_live_runner_are_kept_without_waiting(clock):
    """A bench's network was removed between its containers."""
    assert cleaned(leftovers("alive"))[:2] == (tuple(sorted({RUN, MATRIX})), [[]])
    assert clock == []
    engine = leftovers("alive")
    assert remove_certain([engine]) is None
    assert engine.removed == []


def test_bench_keeps_things_whose_owner_is_unknown(clock):
    """A bench on this host ended a run of another host on the same engine."""
    engine = leftovers("of another host")
    assert remove_certain([engine]) is None
    assert engine.removed == clock == []


def test_dead_and_live_runs_with_the_same_id_are_distinguished():
    """Containers of all runners use the run ids `survey` and `link-check`."""
    engine = Engine([of("gone", container("running", run="survey")), of("alive", container("running", "survey", 1))])
    assert cleaned(engine)[:2] == (("survey",), [["dlscale-survey-worker0 on n0"]])


def test_bench_reports_in_one_line_what_it_removed():
    assert remove_certain([leftovers("gone"), leftovers("gone")]).endswith(": 4 containers, 2 networks, 2 volumes")
    one = Engine([], networks=[of("gone", thing("network", RUN))])
    assert remove_certain([one]).endswith(": 1 network")


def test_things_of_a_runner_that_dies_during_the_check_are_removed_too(clock, owners, monkeypatch):
    engine = Engine([container("running")], [container("running")], [], networks=[of("alive", thing("network", RUN))])
    monkeypatch.setattr(cleanup.time, "sleep", lambda _: owners.update(alive="gone"))
    assert "network on n0" in cleaned(engine)[1][0]


def test_a_killed_bench_loses_idle_things_immediately_and_running_ones_after_the_lease():
    """Containers that never started, and networks, stayed until the next bench."""
    running, created = of("gone", container("running")), of("gone", container("created", number=1))
    others = [of("alive", container("exited", number=2)), container("exited", number=3)]
    engine = Engine([running, *others], [running, created, *others], [running, *others])
    remove_of("gone", [Place(InDocker(engine))])
    assert engine.removed == [f"id of {WORKERS[1]}", (f"id of {WORKERS[0]}", "by force")]


def test_nothing_of_a_live_runner_is_removed():
    engine = leftovers("alive")
    remove_of("alive", [Place(InDocker(engine))])
    assert engine.removed == []
