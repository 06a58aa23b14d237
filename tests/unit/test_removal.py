"""How a container goes. Prevents: an exit code that nobody can ask for any more, since the engine has removed its container; a removal that is
over before the container is gone, so that its network can't be removed."""

from types import SimpleNamespace

import docker
import pytest
from docker.errors import APIError, NotFound
from fake_engine import engine

from runner.core.container_spec import ContainerSpec
from runner.engines import removal
from runner.engines.base import EngineError, as_engine_error
from runner.engines.docker import DockerContainer

SPEC = ContainerSpec(name="job", node="a", role="worker", image="none", argv=("true",), env={}, user="1:1", labels={})


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
def test_a_container_that_is_going_already_is_waited_for(refusal, was_there, calls):
    api = Api(refusal)
    assert removal.remove(api, "id") is was_there
    assert api.calls == calls


def test_the_exit_code_is_that_of_the_question_asked_before(tmp_path):
    socket = tmp_path / "s"
    with engine(socket, {"/wait": {"StatusCode": 143}}) as served:
        client = docker.DockerClient(base_url=f"unix://{socket}", version="1.41")
        container = DockerContainer(client, SPEC, "id", None, removal.follow(client.api, "id"))
        del served.answers["/wait"]
        assert container.wait() == 143
        with pytest.raises(EngineError), as_engine_error():
            removal.follow(client.api, "id")
