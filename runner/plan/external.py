"""Plans a user's command line: request and resources → its trials. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from runner.core.errors import RequestError
from runner.core.node import Node
from runner.core.parsing import batch_of, names_devices, with_devices
from runner.core.request import Device, Request
from runner.core.trial import ExternalTrial, comparison_key
from runner.plan.discovery import ExternalResources

# Characters of an image's name that a container's name may not have.
_INVALID: Final = re.compile(r"[^A-Za-z0-9_.-]+")
# Characters of an image's name that a run id keeps; a tag may have 128.
_LABEL_LENGTH: Final = 60


def plan_command(
    request: Request, resources: ExternalResources, *, say: Callable[[str], None] = lambda _: None
) -> tuple[ExternalTrial, ...]:
    """Plan the repeats of a command at each scale, interleaved like the suite's own; `say` which batch was read from the command.

    A command with a placeholder for its number of devices gets a baseline on one device. Raises RequestError if there are too few devices, or
    they cannot share the batch.
    """
    node, device, image = resources.node, resources.device, resources.image.found
    scales = _scales(request, node, device)
    share = len(node.cores) // scales[-1] if device == "cpu" else None
    found, strong = _batch_in_command(request), request.scaling == "strong"
    batch = request.batch or (found[0] if found else None)
    if found:
        of, other = ("of all devices", "weak") if strong else ("a device", "strong")
        say(f"batch {found[0]} {of}, from `{found[1]}` in the command; --batch N or --scaling {other} overrides it")
    if strong and (batch is None or any(batch % scale for scale in scales)):
        raise RequestError(
            f"SCALING=strong asked, and batch {batch or 'of an unknown size'} can't be shared by {scales[-1]} devices; give --batch N, of all devices"
        )
    data = str(resources.data) if resources.data else None
    accelerator = node.gpus[0].name if device == "gpu" else node.cpu_model
    # Included only if given, because older records lack them.
    optional = {
        "mounts": tuple(f"{mount.source}:{mount.target}" for mount in request.mounts),
        "env": tuple(f"{name}={value}" for name, value in sorted(request.env)),
        "workdir": request.workdir,
        "scaling": "strong" if strong else None,
        "pattern": request.pattern.model_dump_json() if request.pattern else None,
    }
    # Without the dialect: `auto` and the dialect that it detects read the same log.
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
            **{name: value for name, value in optional.items() if value},
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


def _batch_in_command(request: Request) -> tuple[int, str] | None:
    """The batch in the command line, and its text there, if none was requested. A pattern always gets it, per device unless SCALING=strong.

    The MXNet dialect, even if only detected, needs it too, but MXNet's programs divide their batch among devices, so it is used for one device
    only. `-b` of nccl-tests is in bytes.
    """
    found = None if request.batch else batch_of(request.command)
    if found is None or request.pattern:
        return found
    several = (request.gpus or request.workers or (1,))[-1] > 1
    applies = request.dialect == "mxnet" or (request.dialect in (None, "auto") and not found[1].startswith("-b"))
    return found if applies and not several else None


def _scales(request: Request, node: Node, device: Device) -> tuple[int, ...]:
    """Numbers of devices; 1 by default, because a command line may choose its devices itself. Raises RequestError if the machine has fewer."""
    variable, requested, offered = (
        ("GPUS", request.gpus, len(node.gpus)) if device == "gpu" else ("WORKERS", request.workers, len(node.cores))
    )
    if not offered:
        raise RequestError(f"{node.name} offers no GPU ({node.gpu_reason}); ask for DEVICE=cpu")
    scales = requested or (1,)
    if scales[-1] > offered:
        unit = "GPUs" if device == "gpu" else "cores"
        raise RequestError(
            f"{variable}={scales[-1]} asked, {node.name} offers {offered} {unit}; ask for {offered} or fewer"
        )
    return tuple(sorted({1, *scales})) if names_devices(request.command) else scales


def image_label(reference: str) -> str:
    """An image's name in a form that a run id may contain."""
    return _INVALID.sub("-", reference.rpartition("/")[2])[:_LABEL_LENGTH]
