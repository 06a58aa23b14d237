"""Prevents: ways to hosts that stay open, and their folders behind, when a request is refused after the hosts were asked; data that the
job can not read.
"""

import re

import examples
import pytest

from runner.cluster.cluster import Cluster
from runner.core.container_spec import IMAGE_USER
from runner.core.errors import RequestError
from runner.core.node import Member
from runner.core.request import Request
from runner.core.wire import NodeWires
from runner.plan import discovery
from runner.plan.engine import EngineChoice
from runner.run import bench


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


@pytest.fixture
def hopper(tmp_path):
    """Four hosts with four H100s each."""
    text = (examples.ROOT / "examples" / "c4130x4.yaml").read_text(encoding="utf-8")
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text(text.replace("Tesla P100-PCIE-16GB", "NVIDIA H100").replace('"6.0"', '"9.0"'), encoding="utf-8")
    return str(hosts)


def test_mxnet_on_hopper_is_planned_in_its_vendors_container(hopper, capsys):
    """No other MXNet has code for it."""
    assert bench.dry_run(Request(framework="mxnet", gpus=(16,), hosts=hopper)) == 0
    assert set(re.findall(r" dlscale/(mxnet\S*) ", capsys.readouterr().out)) == {"mxnet:1.9.1-nvidia"}
    assert bench.dry_run(Request(framework="mxnet", gpus=(4,), strategy="horovod", hosts=hopper)) == 0
    assert "horovodrun" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"version": "1.9.1-cu112"}, "no code for compute capability 9.0; versions that do: 1.9.1-nvidia"),
        ({"strategy": "horovod"}, "own images, which mxnet 1.9.1-nvidia is none of; ask for STRATEGY=kvstore, or for"),
    ],
)
def test_what_mxnet_can_not_do_on_hopper_is_refused_with_what_it_can(hopper, asked, says):
    with pytest.raises(RequestError, match=says):
        bench.dry_run(Request(framework="mxnet", gpus=(16,), hosts=hopper, **asked))


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
    monkeypatch.setattr(discovery, "engine_of", lambda *_: EngineChoice(engine, None))
    request = Request(framework="mxnet", device="cpu", data=tmp_path)
    if refused:
        with pytest.raises(RequestError, match="cats may be read by its owner alone"):
            discovery.discover(request)
    else:
        assert discovery.discover(request).dataset.images == 1
