"""Runs the scripts of `by_image/<framework>/` inside that framework's CPU image, each in a separate container.

A script can import the modules next to `by_image/<framework>/`, those of `workloads/`, and those of one workload: the one that its folder is
named after, or imagenet_cnn. Its arguments are the catalog of the framework's CNNs, {model: [image size, parameters]}, and the catalogs of
other workloads by name.

Prevents models, pipelines and gradients that work with one machine's packages but not with those of the image.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runner.core.workload import load_workloads
from runner.images.catalog import load_images
from runner.images.wheelhouse import read_lock

ROOT = Path(__file__).parents[2]
BY_IMAGE = "tests/containers/by_image"
SCRIPTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / BY_IMAGE).glob("*/**/*.py"))
# Packages that only GPU images have but that also decode on CPUs, and their dependencies there.
DALI = [
    "nvidia-dali-cuda130",
    "nvidia-nvimgcodec-cu13",
    "astunparse",
    "gast",
    "libcst",
    "makefun",
    "nvtx",
    "optree",
    "packaging",
    "pyyaml",
    "six",
    "typing-extensions",
    "wheel",
]
WITH_DALI = f"{BY_IMAGE}/pytorch/decoding.py"


@pytest.fixture
def dali(tmp_path):
    """A folder with DALI, at the version in the newest GPU image of PyTorch."""
    lock = load_images(ROOT).find("pytorch", None, "gpu").lock_path.read_text(encoding="utf-8")
    asked = tmp_path / "dali.lock"
    asked.write_text("\n".join(pin.line() for pin in read_lock(lock) if pin.name in DALI), encoding="utf-8")
    words = ("--quiet", "--no-deps", "--require-hashes", f"--requirement={asked}", f"--target={tmp_path / 'packages'}")
    subprocess.run([sys.executable, "-m", "pip", "install", *words], check=True, timeout=600)
    return tmp_path / "packages"


@pytest.mark.beside
@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != WITH_DALI])
def test_script(client, script):
    run(client, script)


@pytest.mark.beside
def test_script_with_dali(client, dali):
    run(client, WITH_DALI, beside={str(dali): {"bind": "/beside", "mode": "ro"}})


def run(client, script, beside=None):
    framework, *workload = Path(script).relative_to(BY_IMAGE).parts[:-1]
    modules = (BY_IMAGE, "workloads", f"workloads/{workload[0] if workload else 'imagenet_cnn'}")
    image = load_images(ROOT).find(framework, None, "cpu")
    catalogs = {
        workload.name: {
            model.name: (model.image_size, model.parameters[framework])
            for model in workload.models
            if framework in model.frameworks
        }
        for workload in load_workloads(ROOT)
    }
    # Raises if the script exits with a code other than 0, as on a failed assertion.
    client.containers.run(
        image.reference,
        ["python3", f"/suite/{script}", json.dumps(catalogs.pop("imagenet_cnn")), json.dumps(catalogs)],
        volumes={str(ROOT / part): {"bind": f"/suite/{part}", "mode": "ro"} for part in ("tests", "workloads")}
        | (beside or {}),
        environment={
            "HOME": "/tmp",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": ":".join(("/beside", *(f"/suite/{folder}" for folder in modules))),
        },
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "size=256m"},
        cpu_shares=128,  # of 1,024: all other tests wait for those that have the engine to themselves
        remove=True,
        stderr=True,
    )
