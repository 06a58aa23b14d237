"""Containers of a Docker engine. Prevents: a job that ends because the runner's heartbeat does not reach its lease (over TLS the SDK returns
another object than on a plain connection); an exit code that is requested too late; a removal that returns before the container is gone.
"""

import socket
from types import SimpleNamespace

import docker
import pytest
from docker.errors import APIError, NotFound
from fake_engine import engine

from runner.core.container_spec import ContainerSpec
from runner.engines import owner
from runner.engines.base import EngineError, as_engine_error
from runner.engines.docker import DockerContainer, exit_code

SPEC = ContainerSpec(name="job", node="a", role="worker", image="none", argv=("true",), env={}, user="1:1", labels={})


@pytest.mark.parametrize("behind_tls", [False, True])
def test_heartbeats_reach_a_container_and_its_end_is_no_error(behind_tls):
    near, far = socket.socketpair()
    with near, far:
        attached = near if behind_tls else socket.SocketIO(near, "rwb")
        container = DockerContainer(None, SPEC, "id", attached, None)
        container.send(b"\n")
        assert far.recv(8) == b"\n"
        far.close()
        container.send(b"\n")
        container.send(b"\n")  # the far end is closed: no error


class Api:
    def __init__(self, refusal=None):
        self.refusal, self.calls = refusal, []

    def remove_container(self, identifier, *, force, v):
        assert force
        assert v
        self.calls.append("remove")
        if self.refusal:
            raise self.refusal

    def wait(self, identifier, *, timeout, condition):
        self.calls.append(condition)


def answer(status):
    return APIError("refused", response=SimpleNamespace(status_code=status, reason="", url=""))


@pytest.mark.parametrize(
    ("refusal", "was_there", "calls"),
    [
        (None, True, ["remove"]),
        (NotFound("gone"), False, ["remove"]),
        (answer(409), True, ["remove", "removed"]),
        (answer(500), False, ["remove"]),
    ],
    ids=["there", "gone", "going", "refused"],
)
def test_removal_waits_for_a_container_that_is_already_being_removed(refusal, was_there, calls):
    api = Api(refusal)
    assert owner.remove(api, "id") is was_there
    assert api.calls == calls


def test_the_exit_code_comes_from_the_request_made_before_the_start(tmp_path):
    socket = tmp_path / "s"
    with engine(socket, {"/wait": {"StatusCode": 143}}) as served:
        client = docker.DockerClient(base_url=f"unix://{socket}", version="1.41")
        container = DockerContainer(client, SPEC, "id", None, exit_code(client.api, "id"))
        del served.answers["/wait"]
        assert container.wait() == 143
        with pytest.raises(EngineError), as_engine_error():
            exit_code(client.api, "id")
