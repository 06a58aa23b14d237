"""Prevents: connections to hosts, and their folders, that stay after a request was refused; data that the job cannot read.

For requests that name no framework, prevents: a default framework that refuses the rest of the request (MODEL=wgan, STRATEGY=ddp or
PRECISION=bf16 with the smallest image, MXNet's); a framework that is chosen silently.
"""

import re
from dataclasses import replace

import examples
import pytest
from planned import resources, workload_of

from runner.cluster.cluster import Cluster
from runner.core.container_spec import IMAGE_USER
from runner.core.errors import RequestError
from runner.core.node import Member
from runner.core.request import Request
from runner.core.wire import NodeWires
from runner.plan import discovery
from runner.plan.choice import choose
from runner.plan.engine import EngineChoice
from runner.plan.image import images_of
from runner.run import bench


def test_connections_to_hosts_are_closed_if_a_request_is_refused(monkeypatch):
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


def test_mxnet_on_hopper_is_planned_in_nvidias_container(hopper, capsys):
    """No other MXNet image has code for Hopper."""
    assert bench.dry_run(Request(framework="mxnet", gpus=(16,), hosts=hopper)) == 0
    assert set(re.findall(r" dlscale/(mxnet\S*) ", capsys.readouterr().out)) == {"mxnet:1.9.1-nvidia"}
    assert bench.dry_run(Request(framework="mxnet", gpus=(4,), strategy="horovod", hosts=hopper)) == 0
    assert "horovodrun" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"version": "1.9.1-cu112"}, "no code for compute capability 9.0; versions that do: 1.9.1-nvidia"),
        (
            {"strategy": "horovod"},
            "own images, and mxnet 1.9.1-nvidia is not one of these; ask for STRATEGY=kvstore, or for",
        ),
    ],
)
def test_impossible_requests_for_mxnet_on_hopper_are_refused_with_alternatives(hopper, asked, says):
    with pytest.raises(RequestError, match=says):
        bench.dry_run(Request(framework="mxnet", gpus=(16,), hosts=hopper, **asked))


@pytest.mark.parametrize(
    ("engine", "user", "refused"),
    [("docker", IMAGE_USER, True), ("docker", "1000:1000", False), ("venv", IMAGE_USER, False)],
)
def test_data_must_be_readable_by_the_jobs_user(monkeypatch, tmp_path, engine, user, refused):
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "0.jpg").write_bytes(b"x")
    tmp_path.chmod(0o755)
    (tmp_path / "cats").chmod(0o700)
    monkeypatch.setattr(discovery, "job_user", lambda: user)
    monkeypatch.setattr(discovery, "engine_of", lambda *_: EngineChoice(engine, None))
    request = Request(framework="mxnet", device="cpu", data=tmp_path)
    if refused:
        with pytest.raises(RequestError, match="cats can be read by its owner only"):
            discovery.discover(request)
    else:
        assert discovery.discover(request).dataset.images == 1


def discovered(request, device="cpu", **there):
    """The resources of a request, with every image that it can mean."""
    found = resources("mxnet", device, workload=workload_of(request.model), **there)
    image, *others = images_of(request, device, found.cluster)
    return replace(found, image=image, others=tuple(others))


def chosen(device="cpu", **asked):
    said = []
    found, _ = choose(Request(**asked), discovered(Request(**asked), device), say=said.append)
    return found.image, said


@pytest.mark.parametrize(
    ("asked", "framework"),
    [
        ({}, "pytorch"),
        ({"model": "wgan"}, "pytorch"),
        ({"strategy": "ddp"}, "pytorch"),
        ({"precision": "bf16"}, "pytorch"),
        ({"techniques": ("channels-last",)}, "pytorch"),
        ({"strategy": "mirrored"}, "tensorflow"),
        ({"xla": True}, "tensorflow"),
        ({"version": "2.21.0-cpu"}, "tensorflow"),
        ({"kvstore": "dist_async", "workers": (2,)}, "mxnet"),
        ({"version": "1.0"}, "caffe"),
    ],
    ids=str,
)
def test_the_first_framework_that_offers_the_whole_request_is_chosen_and_named(asked, framework):
    image, said = chosen(**asked)
    assert image.framework == framework
    assert len(said) == 1
    assert said[0].startswith(f"no FRAMEWORK is given, {image.name} is taken")


def test_the_reason_for_another_framework_than_the_first_is_given():
    assert ": STRATEGY=mirrored is not offered by FRAMEWORK=pytorch" in chosen(strategy="mirrored")[1][0]
    assert "taken:" not in chosen()[1][0]
    assert chosen("gpu", techniques=("compile",))[0].name == f"pytorch {examples.newest('pytorch', 'gpu')}"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"precision": "int8"}, "PRECISION=int8 is not offered by any framework"),
        ({"techniques": ("compile",)}, "TECHNIQUES=compile of imagenet_cnn is not offered by any framework on"),
        ({"techniques": ("channels-last",), "strategy": "mirrored"}, "no framework offers everything requested; the"),
        ({"strategy": "ddp", "xla": True}, "XLA compiles TensorFlow's step, not pytorch's"),
        ({"version": "1.9.1-cu112"}, "mxnet 1.9.1-cu112 is built for DEVICE=gpu, not cpu"),
        ({"version": "2.20"}, "unknown VERSION '2.20'; did you mean 2.2"),
    ],
)
def test_a_request_that_no_framework_offers_is_refused_with_the_first_reason(asked, says):
    with pytest.raises(RequestError) as caught:
        chosen(**asked)
    assert str(caught.value).startswith(says)


def test_without_containers_a_framework_with_a_suitable_python_is_chosen(monkeypatch):
    """PyTorch's lock has wheels for one Python only; without Docker, `make bench` failed on systems with another one."""

    def find_interpreter(requires_python):
        if requires_python == "==3.11.*":
            raise RequestError("no Python ==3.11.* with its venv module is on PATH (found 3.12.3); install one")

    monkeypatch.setattr("runner.plan.choice.find_interpreter", find_interpreter)
    said = []
    found, trials = choose(Request(), discovered(Request(), engine=EngineChoice("venv", None)), say=said.append)
    assert found.image.framework == trials[0].framework == "tensorflow"
    assert said[0].endswith("is taken: no Python ==3.11.* with its venv module is on PATH (found 3.12.3)")
    assert chosen()[0].framework == "pytorch"


def test_a_named_framework_is_kept_and_only_an_abbreviated_version_is_reported():
    there = resources("mxnet")
    said = []
    assert choose(Request(framework="mxnet"), there, say=said.append)[0] is there
    choose(Request(framework="mxnet", version="1.9.1"), there, say=said.append)
    assert said == []
    choose(Request(framework="mxnet", version="1.9"), there, say=said.append)
    assert said == ["VERSION=1.9 is taken as 1.9.1"]
