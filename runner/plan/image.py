"""Finds the image for a request's jobs: a custom one, the machine's own software, or one of the suite's that fits its GPUs. Builds none."""

from __future__ import annotations

from typing import Final

from runner.cluster.cluster import Cluster
from runner.core.errors import RequestError, unknown
from runner.core.provenance import SUITE_ROOT
from runner.core.request import Device, Request
from runner.core.strategies import STRATEGIES
from runner.images.catalog import load_images
from runner.images.custom_image import AnyImage, CustomImage, find_host_software, inspect_image
from runner.images.spec import ImageSpec

PREFERRED: Final = ("pytorch", "tensorflow", "mxnet", "caffe")
"""The order in which frameworks are tried if none is requested: most users first."""


def images_of(request: Request, device: Device, cluster: Cluster) -> tuple[AnyImage, ...]:
    """The images that a request can mean, in order of preference; only the suite's own are checked against the GPUs."""
    if not request.image and request.engine != "host":
        return candidates(request, device, cluster)
    framework = "" if request.command else load_images(SUITE_ROOT).of(request.framework or "")[0].framework
    if not request.image:
        return (find_host_software(framework, device=device, horovod=request.strategy == "horovod"),)
    client, machine = cluster.image_source()
    found = inspect_image(client, request.image, machine=machine)
    return (CustomImage(found=found, framework=framework, device=device, mounts=request.mounts),)


def candidates(request: Request, device: Device, cluster: Cluster) -> tuple[ImageSpec, ...]:
    """The suite's images that match a request and run here: one of the requested framework, else one of each framework.

    Raises RequestError, with the first reason, if there is none.
    """
    catalog, node = load_images(SUITE_ROOT), cluster.node
    typed = request.version or ""
    having = {image.framework for image in catalog.images if image.version.startswith(typed)}
    ranked = [framework for framework in dict.fromkeys((*PREFERRED, *catalog.frameworks)) if framework in having]
    if not request.framework and not ranked:
        raise RequestError(
            unknown("VERSION", typed, {image.version for image in catalog.images if image.device == device})
        )
    found, refusals = [], []
    for framework in [request.framework] if request.framework else ranked:
        try:
            # A framework that Horovod does not support is refused later, by the plan, which names its strategies.
            horovod = request.strategy == "horovod" and framework in STRATEGIES["horovod"].frameworks
            image = catalog.find(
                framework, request.version, device, gpus=node.gpus, driver=node.driver, horovod=horovod
            )
            if horovod:
                image = catalog.with_horovod(image)
            for member in cluster.members:
                catalog.check_fit(image, member.node.gpus, member.node.driver)
            found.append(image)
        except RequestError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    return tuple(found)
