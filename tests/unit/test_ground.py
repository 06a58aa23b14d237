"""Prevents: ways to hosts that stay open, and their folders behind, when a request is refused after the hosts were asked; data that the
job can not read.
"""

import examples
import pytest

from runner import ground
from runner.engines.user import IMAGE_USER
from runner.errors import RequestError
from runner.fleet import Fleet
from runner.ground import EngineChoice
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


@pytest.mark.parametrize(
    ("engine", "user", "refused"),
    [("docker", IMAGE_USER, True), ("docker", "1000:1000", False), ("venv", IMAGE_USER, False)],
)
def test_data_are_held_against_whoever_runs_the_job(monkeypatch, tmp_path, engine, user, refused):
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "0.jpg").write_bytes(b"x")
    tmp_path.chmod(0o755)
    (tmp_path / "cats").chmod(0o700)
    monkeypatch.setattr(ground, "job_user", lambda: user)
    monkeypatch.setattr(ground, "choose_engine", lambda _: EngineChoice(engine, None))
    request = Request(framework="mxnet", device="cpu", data=tmp_path)
    if refused:
        with pytest.raises(RequestError, match="cats may be read by its owner alone"):
            ground.look(request)
    else:
        assert ground.look(request).dataset.images == 1
