"""Podman behind Docker's socket. Prevents: a GPU training that Podman starts without GPUs, since it accepts and ignores the request; a CPU run
whose engine is not named.
"""

import os

import examples
import pytest
from fake_engine import engine

from runner.cluster.cluster import Cluster
from runner.core.errors import RequestError
from runner.core.node import Member
from runner.core.request import Request
from runner.core.wire import NodeWires
from runner.engines import docker, podman
from runner.engines.docker import DockerEngine
from runner.plan import discovery
from runner.run import bench

INFO = {"ServerVersion": "4.3.1", "DockerRootDir": "/var/lib/containers/storage", "Runtimes": {"nvidia": {}}}
# Answers of Podman 4.3.1 (Debian 12) and of Docker 20.10, shortened.
OF_PODMAN = {
    "Version": "4.3.1",
    "ApiVersion": "1.41",
    "Components": [
        {"Name": "Podman Engine", "Version": "4.3.1", "Details": {"APIVersion": "4.3.1", "MinAPIVersion": "4.0.0"}},
        {"Name": "Conmon", "Version": "conmon version 2.1.6"},
        {"Name": "OCI Runtime (crun)", "Version": "crun version 1.8.1"},
    ],
}
OF_DOCKER = {
    "Version": "20.10.24",
    "ApiVersion": "1.41",
    "Components": [{"Name": "Engine", "Version": "20.10.24"}, {"Name": "containerd", "Version": "1.6.20"}],
}


@pytest.fixture(
    params=[OF_PODMAN, OF_DOCKER, {"Version": "99", "ApiVersion": "1.41"}], ids=["podman", "docker", "silent"]
)
def version(request, tmp_path, monkeypatch):
    """The version that the engine at DOCKER_HOST reports."""
    socket = tmp_path / "s"
    with engine(socket, {"/version": request.param, "/info": INFO}):
        monkeypatch.setattr(os, "environ", {**os.environ, "DOCKER_HOST": f"unix://{socket}"})
        yield request.param


@pytest.fixture
def machine(monkeypatch):
    """A machine with two GPUs."""
    node = examples.gpu_node(2)
    monkeypatch.setattr(
        discovery, "assemble", lambda *_, **__: Cluster("here", node.name, (Member(node, NodeWires()),))
    )
    return node


def look(**asked):
    said = []
    found = discovery.discover(Request(framework="pytorch", model="lenet", **asked), say=said.append)
    return found, said


def test_the_engine_reports_whether_it_is_podman(version):
    facts = DockerEngine(docker.connect(), discovery.WORKLOADS).facts()
    assert facts.podman == ("Podman 4.3.1" if version is OF_PODMAN else None)


def test_gpus_are_refused_under_podman_and_requested_from_docker(version, machine, monkeypatch):
    """Also for an external command."""
    if version is not OF_PODMAN:
        found, said = look(gpus=(1,))
        assert (found.device, found.engine.podman, said) == ("gpu", None, [])
        return
    with pytest.raises(RequestError, match=r"^Podman 4\.3\.1 .* DOCKER_HOST .* ENGINE="):
        look(gpus=(1,))
    monkeypatch.setattr("runner.plan.image.inspect_image", lambda *_: None)
    with pytest.raises(RequestError, match=r"Podman 4\.3\.1"):
        bench.bench(Request(image="some:image", command=("true",), gpus=(1,)), command=("dlscale",))


def test_a_cpu_run_under_podman_gets_a_note(version, machine):
    found, said = look(workers=(1,))
    assert found.engine.name == "docker"
    assert said == ([podman.note("Podman 4.3.1")] if version is OF_PODMAN else [])
    found, said = look(workers=(1,), engine="venv")  # no container needs no Docker
    assert (found.engine.podman, said) == (None, [])
