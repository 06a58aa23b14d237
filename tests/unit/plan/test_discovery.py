"""Prevents: ways to hosts that stay open, and their folders behind, when a request is refused after the hosts were asked; data that the
job can not read.

A request that names no framework.

Prevents: a default that nobody typed and that refuses what was typed (MODEL=wgan, STRATEGY=ddp, PRECISION=bf16 of the smallest image, MXNet's);
a framework that was taken without a word.
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
        (
            {"strategy": "horovod"},
            "own images, and mxnet 1.9.1-nvidia is not one of these; ask for STRATEGY=kvstore, or for",
        ),
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
        with pytest.raises(RequestError, match="cats can be read by its owner only"):
            discovery.discover(request)
    else:
        assert discovery.discover(request).dataset.images == 1


def looked(request, device="cpu", **there):
    """The resources of a request, with every image that it may mean."""
    found = resources("mxnet", device, workload=workload_of(request.model), **there)
    image, *others = images_of(request, device, found.cluster)
    return replace(found, image=image, others=tuple(others))


def chosen(device="cpu", **asked):
    said = []
    found, _ = choose(Request(**asked), looked(Request(**asked), device), say=said.append)
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
        ({"version": "2.21"}, "tensorflow"),
        ({"kvstore": "dist_async", "workers": (2,)}, "mxnet"),
        ({"version": "1.0"}, "caffe"),
    ],
    ids=str,
)
def test_the_first_that_offers_all_that_was_asked_is_taken_and_named(asked, framework):
    image, said = chosen(**asked)
    assert image.framework == framework
    assert len(said) == 1
    assert said[0].startswith(f"no FRAMEWORK is given, {image.name} is taken")


def test_why_it_is_not_the_usual_one_is_said():
    assert ": STRATEGY=mirrored is not offered by FRAMEWORK=pytorch" in chosen(strategy="mirrored")[1][0]
    assert "taken:" not in chosen()[1][0]
    assert chosen("gpu", techniques=("compile",))[0].name == "pytorch 2.15.0"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"precision": "int8"}, "PRECISION=int8 is not offered by any framework"),
        ({"techniques": ("compile",)}, "TECHNIQUES=compile of imagenet_cnn is not offered by any framework on"),
        ({"techniques": ("channels-last",), "strategy": "mirrored"}, "no framework offers everything requested; the"),
        ({"strategy": "ddp", "xla": True}, "XLA compiles TensorFlow's step, not pytorch's"),
        ({"version": "2.20"}, "unknown VERSION '2.20'; did you mean 2.21.0-cpu?"),
    ],
)
def test_what_none_offers_is_refused_in_the_words_of_the_first(asked, says):
    with pytest.raises(RequestError) as caught:
        chosen(**asked)
    assert str(caught.value).startswith(says)


def test_without_containers_a_framework_is_taken_that_a_python_here_can_install(monkeypatch):
    """PyTorch's lock holds wheels of one Python alone; without Docker, `make bench` had none on a system with another."""

    def find_interpreter(requires_python):
        if requires_python == "==3.11.*":
            raise RequestError("no Python ==3.11.* with its venv module is on PATH (found 3.12.3); install one")

    monkeypatch.setattr("runner.plan.choice.find_interpreter", find_interpreter)
    said = []
    found, trials = choose(Request(), looked(Request(), engine=EngineChoice("venv", None)), say=said.append)
    assert found.image.framework == trials[0].framework == "tensorflow"
    assert said[0].endswith("is taken: no Python ==3.11.* with its venv module is on PATH (found 3.12.3)")
    assert chosen()[0].framework == "pytorch"


def test_a_framework_that_is_named_is_kept_and_a_version_in_full_is_not_repeated():
    there = resources("mxnet")
    said = []
    assert choose(Request(framework="mxnet"), there, say=said.append)[0] is there
    choose(Request(framework="mxnet", version="1.9.1"), there, say=said.append)
    assert said == []
    choose(Request(framework="mxnet", version="1.9"), there, say=said.append)
    assert said == ["VERSION=1.9 is taken as 1.9.1"]
