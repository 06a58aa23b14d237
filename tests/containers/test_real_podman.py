"""A real Podman behind Docker's API, next to the machine's Docker.

Prevents: MXNet's scheduler left behind by every run, because Podman does not remove a container whose network another one shares; an empty data
set because Podman created a missing path.
"""

import os
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path

import docker
import examples
import pytest
from commands import QUICK, run_to_end

from runner.core.container_spec import LABEL_RUN, LABEL_RUNNER, Mount
from runner.engines.base import EngineError
from runner.engines.docker import DockerEngine
from runner.engines.images import can_mount, load_image, read_image
from runner.engines.owner import labelled, remove_labelled
from runner.plan.discovery import WORKLOADS
from runner.plan.launch import launch

IMAGE = "dlscale/mxnet:1.9.1"
KVSTORE = ("bench", "--framework=mxnet", "--strategy=kvstore", "--kvstore=dist_sync", "--workers=2")


@pytest.fixture(scope="module")
def address(podman):
    """Address of a separate Podman service for tests."""
    with tempfile.TemporaryDirectory() as folder:
        socket, log = Path(folder) / "socket", Path(folder) / "log"
        words = ["podman", "system", "service", "--time=0", f"unix://{socket}"]
        with log.open("w") as file:
            service = subprocess.Popen(words, env={**os.environ, **podman}, stderr=file)
        try:
            while not socket.exists():
                assert service.poll() is None, log.read_text()
                time.sleep(0.1)
            yield f"unix://{socket}"
        finally:
            service.terminate()
            service.wait()


@pytest.fixture(scope="module")
def podman_client(address, client, ensure_image):
    """A client of the service, which has MXNet's image."""
    with closing(docker.DockerClient(base_url=address, timeout=60)) as connected:
        load_image(connected, read_image(client, ensure_image(IMAGE)))
        yield connected


def test_a_run_with_parameter_servers_leaves_nothing(podman_client, address, tmp_path):
    words = (*KVSTORE, *QUICK, f"--out={tmp_path}")
    done = run_to_end(words, out=tmp_path, env={"DOCKER_HOST": address}, only="scaled")
    assert done.code == 0, done.stderr
    assert "Podman" in done.stderr
    assert done.record(2).engine_details.version.startswith("Podman ")
    assert done.record(2).transport.used == "loopback"
    assert podman_client.containers.list(all=True) == []


def test_a_container_is_removed_along_with_those_that_share_its_network(podman_client):
    """Remains of killed runs are removed in the order in which they are found."""
    api = podman_client.api
    labels = {LABEL_RUN: "a-run", LABEL_RUNNER: "gone"}
    owner = api.create_container(
        IMAGE, ["sleep", "600"], labels=labels, host_config=api.create_host_config(network_mode="none")
    )["Id"]
    api.start(owner)
    inside = api.create_host_config(network_mode=f"container:{owner}")
    api.start(api.create_container(IMAGE, ["sleep", "600"], labels=labels, host_config=inside)["Id"])
    containers = [resource for resource in labelled(podman_client) if resource.kind == "container"]
    first, _ = sorted(containers, key=lambda resource: resource.id != owner)
    assert remove_labelled(podman_client, first, force=True)
    assert podman_client.containers.list(all=True) == []


def test_a_missing_path_is_refused_and_not_created(podman_client, tmp_path):
    missing = tmp_path / "missing"
    job = examples.job(examples.trial(framework="mxnet"))
    (spec,) = launch(job)
    spec = spec.model_copy(update={"image": IMAGE, "mounts": (Mount(source=str(missing), target="/data"),)})
    with pytest.raises(EngineError, match=f"{missing} is not there; Podman "):
        DockerEngine(podman_client, WORKLOADS).start(spec)
    assert not can_mount(podman_client, str(missing), image=IMAGE, labels={})
    assert can_mount(podman_client, "/usr/bin", image=IMAGE, labels={})
    assert not missing.exists()
