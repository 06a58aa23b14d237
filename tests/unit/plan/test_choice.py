"""A request that names no framework.

Prevents: a default that nobody typed and that refuses what was typed (MODEL=wgan, STRATEGY=ddp, PRECISION=bf16 of the smallest image, MXNet's);
a framework that was taken without a word.
"""

from dataclasses import replace

import pytest
from planned import resources, workload_of

from runner.core.errors import RequestError
from runner.core.request import Request
from runner.plan.choice import choose
from runner.plan.engine import EngineChoice
from runner.plan.image import images_of


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
        ({"techniques": ("channels-last",), "strategy": "mirrored"}, "no framework offers all that was asked; the"),
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
