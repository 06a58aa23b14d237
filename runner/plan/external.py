"""A command line of the user's: request and resources → its trials, and the container of each. Pure."""

from __future__ import annotations

import re
from typing import Final

from runner.core.container_spec import LABEL_ROLE, LABEL_RUN, ContainerSpec
from runner.core.errors import RequestError
from runner.core.node import Node
from runner.core.parsing import batch_of, names_devices, with_devices
from runner.core.request import Device, Request
from runner.core.trial import ExternalTrial, comparison_key
from runner.engines.base import Describer
from runner.plan.discovery import ExternalResources

# What an image's name may hold and a container's may not.
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
# Letters of it that a run is named by; a tag may have 128.
_LONGEST: Final = 60


def plan(request: Request, resources: ExternalResources) -> tuple[ExternalTrial, ...]:
    """Lay out the repeats of a command at each scale, interleaved as the suite's own are. RequestError: more devices than there are.

    A command that names its number of devices by a placeholder gets its baseline on one device.
    """
    node, device, image = resources.node, resources.device, resources.image.found
    scales = _scales(request, node, device)
    share = len(node.cores) // scales[-1] if device == "cpu" else None
    batch, strong = request.batch or batch_of_command(request), request.scaling == "strong"
    if strong and (batch is None or any(batch % scale for scale in scales)):
        raise RequestError(
            f"SCALING=strong asked, and batch {batch or 'of an unknown size'} can't be shared by {scales[-1]} devices; give --batch N, of all devices"
        )
    data = str(resources.data) if resources.data else None
    accelerator = node.gpus[0].name if device == "gpu" else node.cpu_model
    # Only where they are given, as older records have none.
    given = {
        "mounts": tuple(f"{mount.source}:{mount.target}" for mount in request.mounts),
        "env": tuple(f"{name}={value}" for name, value in sorted(request.env)),
        "workdir": request.workdir,
        "scaling": "strong" if strong else None,
    }
    # Not the dialect: `auto` and the one that it finds read the same log.
    key = comparison_key(
        {
            "machine": node.name,
            "device": device,
            "device_name": accelerator,
            "cpus_per_worker": share,
            "image_id": image.id,
            "command": request.command,
            "batch": batch if request.pattern else request.batch,
            "warmup": request.warmup,
            "data": data,
            **{name: value for name, value in given.items() if value},
        }
    )
    if resources.baseline:
        key = resources.baseline[1].trial.key
    return tuple(
        ExternalTrial(
            image=image.reference,
            command=with_devices(request.command, scale),
            label=request.name,
            env=dict(request.env),
            workdir=request.workdir,
            dialect=request.dialect or "auto",
            pattern=request.pattern,
            device=device,
            world_size=scale,
            batch_per_device=batch // scale if batch and strong else batch,
            scaling=request.scaling,
            warmup=request.warmup,
            data=data,
            cpus_per_worker=share,
            repeat=repeat,
            key=key,
        )
        for repeat in range(1, request.repeat + 1)
        for scale in scales
    )


def batch_of_command(request: Request) -> int | None:
    """The batch that the command line names, where it was not asked for: of a device where a pattern reads the log.

    What reads MXNet's needs it too, but its programs share out what they are given: it is one device's where there is one. nccl-tests' `-b`
    are bytes.
    """
    found = None if request.batch else batch_of(request.command)
    if found is None or request.pattern:
        return found[0] if found else None
    several = (request.gpus or request.workers or (1,))[-1] > 1
    wanted = request.dialect == "mxnet" or (request.dialect in (None, "auto") and not found[1].startswith("-b"))
    return found[0] if wanted and not several else None


def note(request: Request) -> str | None:
    """What of the command line was taken for an answer, in one line."""
    found = batch_of(request.command) if batch_of_command(request) else None
    if not found:
        return None
    of, other = ("of all devices", "weak") if request.scaling == "strong" else ("a device", "strong")
    return f"batch {found[0]} {of}, as the command says with `{found[1]}`; --batch N or --scaling {other} overrides it"


def _scales(request: Request, node: Node, device: Device) -> tuple[int, ...]:
    """Numbers of devices; one where nothing is said, as a command line says it in words of its own. RequestError: the machine has fewer."""
    variable, asked, offered = (
        ("GPUS", request.gpus, len(node.gpus)) if device == "gpu" else ("WORKERS", request.workers, len(node.cores))
    )
    if not offered:
        raise RequestError(f"{node.name} offers no GPU ({node.gpu_reason}); ask for DEVICE=cpu")
    scales = asked or (1,)
    if scales[-1] > offered:
        unit = "GPUs" if device == "gpu" else "cores"
        raise RequestError(
            f"{variable}={scales[-1]} asked, {node.name} offers {offered} {unit}; ask for {offered} or fewer"
        )
    return tuple(sorted({1, *scales})) if names_devices(request.command) else scales


def container(
    trial: ExternalTrial, resources: ExternalResources, describer: Describer, *, run_id: str
) -> ContainerSpec:
    """The one container of a run: as confined as every job, with the image's own entry point.

    It runs under `lease.sh`, as an image that is not the suite's need not have Python; the engine refuses one without `/bin/sh`. The
    program's variables and threads are left to it.
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
            **trial.env,
        },
        workdir=trial.workdir,
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
