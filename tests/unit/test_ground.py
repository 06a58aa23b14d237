"""Ways to hosts that stay open, and their folders behind, when a request is refused after the hosts were asked."""

import examples
import pytest

from runner import ground
from runner.errors import RequestError
from runner.fleet import Fleet
from runner.planning.spread import Member
from runner.planning.wire import NodeWires
from runner.request import Request


def test_hosts_are_let_go_of_when_a_request_is_refused(monkeypatch):
    closed = []
    fleet = Fleet("hosts", "n1", (Member(examples.node(name="n1"), NodeWires()),))
    monkeypatch.setattr(Fleet, "close", lambda self: closed.append(self.machine))
    monkeypatch.setattr(ground, "assemble", lambda *_, **__: fleet)
    with pytest.raises(RequestError):
        ground.look(Request(framework="mxnett", hosts="n1"))
    assert closed == ["n1"]
    ground.look(Request(framework="mxnet", hosts="n1"))
    assert closed == ["n1"]
