"""Prevents: a worker on a fast node that looks for a node whose name does not exist yet, or for a server that has not started."""

import threading

from runner.core.container_spec import ContainerSpec
from runner.run.container_group import ContainerGroup


class Ended:
    identifier = "id"

    def __init__(self, name):
        self.name = name

    def lines(self):
        return iter(())

    def wait(self):
        return 0


class Slow:
    """An engine of one node that writes down what it started, one of them long after the other."""

    name = "docker"

    def __init__(self, started, seconds):
        self.started, self.seconds = started, seconds

    def start(self, spec):
        threading.Event().wait(self.seconds)
        self.started.append(spec.name)
        return Ended(spec.name)


def spec(name, node, role):
    return ContainerSpec(name=name, node=node, role=role, image="none", argv=("true",), env={}, user="0:0", labels={})


def test_the_daemons_of_all_nodes_are_up_before_anything_else_starts():
    specs = (
        spec("a-daemon", "a", "daemon"),
        spec("b-daemon", "b", "daemon"),
        spec("a-worker", "a", "worker"),
        spec("b-worker", "b", "worker"),
    )
    started = []
    group = ContainerGroup({s.name: s.node for s in specs})
    group.start({"a": Slow(started, 0), "b": Slow(started, 0.3)}, specs, {})
    assert started == ["a-daemon", "b-daemon", "a-worker", "b-worker"]


def test_a_node_does_not_wait_for_another_otherwise():
    specs = (spec("b1", "b", "worker"), spec("a1", "a", "scheduler"), spec("a2", "a", "worker"))
    started = []
    ContainerGroup({s.name: s.node for s in specs}).start({"a": Slow(started, 0), "b": Slow(started, 0.3)}, specs, {})
    assert started == ["a1", "a2", "b1"]
