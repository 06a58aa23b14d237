"""`dlscale doctor` as a whole.

Prevents: a GPU image that is said to fit a machine without GPUs; a doctor that fails on the very machine that needs it (no engine, no driver).
"""

from __future__ import annotations

import json

import examples
import pytest

from runner.commands import doctor
from runner.engines import docker
from runner.engines.base import EngineError
from runner.images.catalog import load_images
from runner.images.lock import source


def fits(node) -> dict[str, str | None]:
    return {fit.name: fit.misfit for fit in doctor.image_fits(load_images(examples.ROOT), node)}


def test_without_gpus_every_cpu_image_fits_and_no_other():
    found = fits(examples.node())
    devices = {image.name: image.device for image in load_images(examples.ROOT).images}
    refused = "it needs a GPU, and there is none to use"
    assert found == {name: None if device == "cpu" else refused for name, device in devices.items()}
    assert set(devices.values()) == {"cpu", "gpu"}


def test_hopper_cannot_run_a_wheel_without_code_for_it():
    found = fits(examples.gpu_node(2))
    assert found["mxnet 1.9.1-cu112"] == "mxnet 1.9.1-cu112 has no code for compute capability 9.0"
    assert found["pytorch 2.6.0"] is None


def test_a_container_can_run_only_if_its_digest_is_known():
    """It said `can run here`, and `images build` refused the image."""
    found = fits(examples.gpu_node(2))
    containers = [image for image in load_images(examples.ROOT).images if image.container and image.supports("9.0")]
    assert containers
    for image in containers:
        assert (found[image.name] is None) == ("@" in source(image))


def test_pascal_with_an_old_driver():
    old = examples.node(
        gpus=(examples.gpu(compute_capability="6.0"),), driver="440.33.01", cuda_driver="10.2", gpu_reason=None
    )
    assert "driver 440.33.01" in fits(old)["mxnet 1.9.1-cu112"]
    assert fits(old.model_copy(update={"driver": "470.82.01"}))["mxnet 1.9.1-cu112"] is None


@pytest.fixture
def _no_engine(monkeypatch):
    def refuse(*, timeout_s):
        raise EngineError(f"no Docker engine answers (refused within {timeout_s} s)")

    monkeypatch.setattr(docker, "connect", refuse)


@pytest.mark.usefixtures("_no_engine")
def test_a_machine_without_docker_is_examined_too(capsys):
    doctor.examine_machine(as_json=True)
    found = {finding["subject"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert found["engine docker"]["level"] == "warn"
    assert found["engine docker"]["sentence"].startswith("no Docker engine answers (refused within 10 s)")
    assert found["image mxnet 1.9.1"]["level"] == "ok"


@pytest.mark.usefixtures("_no_engine")
def test_the_table_names_every_image(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    doctor.examine_machine(as_json=False)
    out = capsys.readouterr().out
    assert all(f"image {image.name} " in out for image in load_images(examples.ROOT).images)
