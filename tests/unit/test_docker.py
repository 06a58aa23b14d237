"""A job that ends because its lease does not hear the runner: behind TLS the SDK hands over another object than on a plain connection."""

import socket

import pytest

from runner.core.container_spec import ContainerSpec
from runner.engines.docker import DockerContainer

SPEC = ContainerSpec(name="job", node="a", role="worker", image="none", argv=("true",), env={}, user="1:1", labels={})


@pytest.mark.parametrize("behind_tls", [False, True])
def test_a_container_hears_the_runner(behind_tls):
    near, far = socket.socketpair()
    with near, far:
        attached = near if behind_tls else socket.SocketIO(near, "rwb")
        container = DockerContainer(None, SPEC, "id", attached, None)
        container.tell(b"\n")
        assert far.recv(8) == b"\n"
        far.close()
        container.tell(b"\n")
        container.tell(b"\n")  # nobody there: no error
