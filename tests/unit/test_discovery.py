"""Prevents: ways to hosts that stay open, and their folders behind, when a request is refused after the hosts were asked; data that the
job can not read.
"""

import examples
import pytest

from runner.cluster.cluster import Cluster
from runner.core.container_spec import IMAGE_USER
from runner.core.errors import RequestError
from runner.core.node import Member
from runner.core.request import Request
from runner.core.wire import NodeWires
from runner.plan import discovery
from runner.plan.discovery import EngineChoice


def test_hosts_are_let_go_of_when_a_request_is_refused(monkeypatch):
    closed = []
    cluster = Cluster("hosts", "n1", (Member(examples.node(name="n1"), NodeWires()),))
    monkeypatch.setattr(Cluster, "close", lambda self: closed.append(self.machine))
    monkeypatch.setattr(discovery, "assemble", lambda *_, **__: cluster)
    with pytest.raises(RequestError):
        discovery.discover(Request(framework="mxnett", hosts="n1"))
    assert closed == ["n1"]
    discovery.discover(Request(framework="mxnet", hosts="n1"))
    assert closed == ["n1"]


@pytest.mark.parametrize(
    ("engine", "user", "refused"),
    [("docker", IMAGE_USER, True), ("docker", "1000:1000", False), ("venv", IMAGE_USER, False)],
)
def test_data_are_held_against_whoever_runs_the_job(monkeypatch, tmp_path, engine, user, refused):
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "0.jpg").write_bytes(b"x")
    tmp_path.chmod(0o755)
    (tmp_path / "cats").chmod(0o700)
    monkeypatch.setattr(discovery, "job_user", lambda: user)
    monkeypatch.setattr(discovery, "choose_engine", lambda _: EngineChoice(engine, None))
    request = Request(framework="mxnet", device="cpu", data=tmp_path)
    if refused:
        with pytest.raises(RequestError, match="cats may be read by its owner alone"):
            discovery.discover(request)
    else:
        assert discovery.discover(request).dataset.images == 1
