"""Machines for studies: with cores alone, with GPUs, and several of those."""

from runner.core.provenance import SUITE_ROOT
from runner.experiments.studies.model import Machine, Usable
from runner.images.catalog import load_images
from runner.plan.launch import STRATEGIES
from runner.plan.strategy import offered


def usable(misfits):
    """All images of the suite, as `machine.survey` sees them; `misfits` by version."""
    return tuple(
        Usable(
            framework=image.framework,
            version=image.version,
            device=image.device,
            alone=offered(image) == ("single",),
            one_node=not any(STRATEGIES[name].several_nodes for name in offered(image)),
            misfit=misfits.get(image.version),
        )
        for image in load_images(SUITE_ROOT).images
    )


def cpu_machine(cores=2, *, may_emulate=True):
    return Machine(
        name="here",
        device="cpu",
        device_name="Example CPU",
        devices=(cores,),
        cores=cores,
        engine="docker",
        may_emulate=may_emulate,
        images=usable({}),
    )


def gpu_machine(*gpus, gpu=None, hosts=None, misfits=None):
    return Machine(
        name="gpus",
        device="gpu",
        device_name="NVIDIA H200",
        devices=gpus,
        gpu=gpu,
        cores=16,
        engine="docker",
        may_emulate=hosts is None,
        hosts=hosts,
        images=usable(misfits or {}),
    )
