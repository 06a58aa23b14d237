"""Machines for studies: with cores alone, with GPUs, and several of those."""

from runner.core.provenance import SUITE_ROOT
from runner.experiments.studies.machine import usable
from runner.experiments.studies.model import Machine
from runner.images.catalog import load_images

IMAGES = load_images(SUITE_ROOT).images


def cpu_machine(cores=2, **more):
    own = {"device": "cpu", "device_name": "Example CPU", "devices": (cores,), "cores": cores, "may_emulate": True}
    images = tuple(usable(image, misfit=None) for image in IMAGES)
    return Machine(name="here", engine="docker", images=images, **own | more)


def gpu_machine(*gpus, hosts=None, misfits=None, **more):
    """`misfits` are by version."""
    own = {"device": "gpu", "device_name": "NVIDIA H200", "devices": gpus, "cores": 16, "may_emulate": hosts is None}
    images = tuple(usable(image, misfit=(misfits or {}).get(image.version)) for image in IMAGES)
    return Machine(name="gpus", engine="docker", hosts=hosts, images=images, **own | more)
