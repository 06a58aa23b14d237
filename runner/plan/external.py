"""A command line of the user's: request and resources → its trials, and the container of each. Pure."""

from __future__ import annotations

import re
from typing import Final

from runner.core.container_spec import LABEL_ROLE, LABEL_RUN, ContainerSpec
from runner.core.errors import RequestError
from runner.core.node import Node
from runner.core.request import Device, Request
from runner.core.trial import ForeignTrial, comparison_key
from runner.engines.base import Describer
from runner.plan.discovery import ExternalResources

# What an image's name may hold and a container's may not.
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
# Letters of it that a run is named by; a tag may have 128.
_LONGEST: Final = 60


def plan(request: Request, resources: ExternalResources) -> tuple[ForeignTrial, ...]:
    """Lay out the repeats of a command.

    Raises:
        RequestError: more devices than the machine offers.
    """
    node, device, image = resources.node, resources.device, resources.image.found
    scale = _scale(request, node, device)
    share = len(node.cores) // scale if device == "cpu" else None
    data = str(resources.data) if resources.data else None
    accelerator = node.gpus[0].name if device == "gpu" else node.cpu_model
    # Not the dialect: `auto` and the one that it finds read the same log.
    key = comparison_key(
        {
            "machine": node.name,
            "device": device,
            "device_name": accelerator,
            "cpus_per_worker": share,
            "image_id": image.id,
            "command": request.command,
            "batch": request.batch,
            "warmup": request.warmup,
            "data": data,
            **({"mounts": tuple(f"{m.source}:{m.target}" for m in request.mounts)} if request.mounts else {}),
        }
    )
    return tuple(
        ForeignTrial(
            image=image.reference,
            command=request.command,
            dialect=request.dialect or "auto",
            device=device,
            world_size=scale,
            batch_per_device=request.batch,
            warmup=request.warmup,
            data=data,
            cpus_per_worker=share,
            repeat=repeat,
            key=key,
        )
        for repeat in range(1, request.repeat + 1)
    )


def _scale(request: Request, node: Node, device: Device) -> int:
    """The number of devices asked for; one where nothing is said, as a command line says it in words of its own.

    Raises:
        RequestError: the machine has fewer.
    """
    variable, asked, offered = (
        ("GPUS", request.gpus, len(node.gpus)) if device == "gpu" else ("WORKERS", request.workers, len(node.cores))
    )
    if not offered:
        raise RequestError(f"{node.name} offers no GPU ({node.gpu_reason}); ask for DEVICE=cpu")
    scale = asked[0] if asked else 1
    if scale > offered:
        unit = "GPUs" if device == "gpu" else "cores"
        raise RequestError(f"{variable}={scale} asked, {node.name} offers {offered} {unit}; ask for {offered} or fewer")
    return scale


def container(trial: ForeignTrial, resources: ExternalResources, describer: Describer, *, run_id: str) -> ContainerSpec:
    """The one container of a run: as confined as every job, with the image's own entry point.

    It runs under `lease.sh`, as an image that is not the suite's need not have Python; the engine refuses one without `/bin/sh`. The
    program's variables and threads are left to it; it sees as many cores as it was given.
    """
    node = resources.node
    cores = node.cores if trial.cpus_per_worker is None else node.cores[: trial.cpus_per_worker * trial.world_size]
    lease = f"{describer.site(resources.data).workloads}/lease.sh"
    return ContainerSpec(
        name=f"dlscale-{run_id}-worker0",
        node=node.name,
        role="worker",
        image=trial.image,
        argv=("/bin/sh", lease, *resources.image.entrypoint, *trial.command),
        env={
            "HOME": "/tmp",  # noqa: S108 - the one writable place of a read-only container
            "USER": "bench",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",  # or the log comes at the end, and nobody sees the job work
        },
        mounts=describer.mounts(resources.data),
        gpus=tuple(gpu.index for gpu in node.gpus[: trial.world_size]) if trial.device == "gpu" else (),
        cpus=cores,
        memory_mib=node.memory_mib * 7 // 8,
        user=describer.user(),
        labels={LABEL_RUN: run_id, LABEL_ROLE: "worker"},
    )


def image_label(reference: str) -> str:
    """An image's name as a run id may hold it."""
    return _UNFIT.sub("-", reference.rpartition("/")[2])[:_LONGEST]
