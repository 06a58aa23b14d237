"""Request × catalog × machine × data → `Trial`s. Pure: nothing is looked up, started or written here.

Every default is taken here, every trial is complete, and whatever can't be met is refused in one sentence before anything
starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import PurePath

from runner.cluster import Node
from runner.dataset import PACKED
from runner.errors import RequestError
from runner.ground import Ground
from runner.images.spec import ImageSpec
from runner.request import Request
from runner.strategy import Chosen, choose, offered
from runner.trial import Placed, Trial, comparison_key
from runner.workload import Defaults, Model

# Synchronized window edges in a run: enough for an interval, few enough not to be felt (an asynchronous engine such as MXNet's
# loses about 1 % of its rate on two cores when every iteration has an edge).
WINDOWS = 10
# The longest stretch without an edge: a long run shows its rate and stays bounded in what a late fault can hide.
MAX_WINDOW = 50
# Decoding processes or threads beside each GPU or CPU worker; more only move the wait elsewhere.
MAX_LOADER_WORKERS = 8


def scales(request: Request, image: ImageSpec, node: Node) -> tuple[int, ...]:
    """Numbers of devices to run on, ascending; CPU workers may be more than the cores where that was allowed.

    Raises:
        RequestError: more devices than the machine offers, with what to ask for instead.
    """
    device = image.device
    asked = request.gpus if device == "gpu" else request.workers
    there = len(node.gpus) if device == "gpu" else len(node.cores)
    variable, unit = ("GPUS", "GPUs") if device == "gpu" else ("WORKERS", "cores")
    if device == "gpu" and not there:
        wanted = f"GPUS={','.join(map(str, asked))}" if asked else "DEVICE=gpu"
        raise RequestError(
            f"{wanted} asked, {node.name} offers none ({node.gpu_reason}); ask for DEVICE=cpu WORKERS=1,2 instead"
        )
    alone = offered(image) == ("single",)
    if asked and asked[-1] > 1 and alone:
        raise RequestError(f"{variable}={asked[-1]} asked, {image.name} trains on one device; ask for {variable}=1")
    if asked and asked[-1] > there and not (request.oversubscribe and device == "cpu"):
        step = " or add --oversubscribe" if device == "cpu" else ""
        raise RequestError(
            f"{variable}={asked[-1]} asked, {node.name} offers {there} {unit}; ask for {variable}={there} or fewer{step}"
        )
    if asked:
        return asked
    if alone:
        return (1,)
    if device == "cpu":
        return (1, 2) if there > 1 else (1,)
    powers = [2**exponent for exponent in range(there.bit_length()) if 2**exponent <= there]
    return tuple(sorted({*powers, there}))


def plan(request: Request, ground: Ground) -> tuple[Trial, ...]:
    """Lay out every trial, the repeats interleaved so that a drift of the machine touches all scales alike.

    A one-device baseline is part of every plan that scales, asked for or not.

    Raises:
        RequestError: the request can't be met on this ground.
    """
    device = ground.device
    workload, framework = ground.workload, ground.image.framework
    if request.mode not in workload.modes:
        raise RequestError(
            f"MODE={request.mode} is not offered by {workload.name}; ask for {' or '.join(workload.modes)}"
        )
    defaults = workload.defaults[device]
    model = workload.find_model(request.model or defaults.model, framework=framework)
    workload.check_precision(request.precision, framework=framework, device=device)
    packed = PACKED.get(PurePath(ground.dataset.path).suffix) if ground.dataset else None
    if ground.dataset and packed and packed.framework != framework:
        raise RequestError(
            f"FRAMEWORK={framework} reads a folder of JPEGs, DATA={ground.dataset.path} is {packed.label}; give the folder"
        )
    asked = scales(request, ground.image, ground.node)
    every = tuple(sorted({1, *asked}))
    cell = _Cell(
        request=request,
        ground=ground,
        model=model,
        image_size=workload.image_size(model, device=device, asked=request.image_size),
        strategy=choose(request, image=ground.image, asked=asked),
        total=_total_iterations(request, ground, request.batch or defaults.batch, defaults),
        largest=every[-1],
    )
    if ground.dataset and ground.dataset.images < cell.batch(every[-1]) * every[-1]:
        wanted = cell.batch(every[-1]) * every[-1]
        raise RequestError(
            f"DATA={ground.dataset.path} holds {ground.dataset.images} images, one step takes {wanted}; ask for a smaller BATCH"
        )
    return tuple(_trial(cell, scale, repeat) for repeat in range(1, request.repeat + 1) for scale in every)


def _total_iterations(request: Request, ground: Ground, batch: int, defaults: Defaults) -> int:
    """Iterations that one device makes; EPOCHS are turned into them."""
    if request.epochs:
        samples = ground.dataset.images if ground.dataset else ground.workload.training_samples
        return math.ceil(request.epochs * samples / batch)
    return request.iterations or defaults.iterations


@dataclass(frozen=True)
class _Cell:
    """What all trials of a plan share."""

    request: Request
    ground: Ground
    model: Model
    image_size: int
    strategy: Chosen
    total: int
    largest: int

    def batch(self, scale: int) -> int:
        """Samples a device.

        Raises:
            RequestError: a global batch that the devices can't share equally.
        """
        batch = self.request.batch or self.ground.workload.defaults[self.ground.device].batch
        if self.request.scaling == "weak":
            return batch
        if batch % scale:
            raise RequestError(
                f"BATCH={batch} is shared by all devices with SCALING=strong and does not divide by {scale}; ask for a multiple of it"
            )
        return batch // scale

    @property
    def share(self) -> int | None:
        """Cores that each CPU worker has for itself, the same at every scale, so that a worker is the same device at all of them."""
        return max(1, len(self.ground.node.cores) // self.largest) if self.ground.device == "cpu" else None


def _trial(cell: _Cell, scale: int, repeat: int) -> Trial:
    request, ground, workload = cell.request, cell.ground, cell.ground.workload
    batch = cell.batch(scale)
    chosen = Chosen("single") if scale == 1 else cell.strategy
    processes = chosen.processes(scale)
    iterations = math.ceil(cell.total / scale) if request.scaling == "weak" else cell.total
    samples = ground.dataset.images if ground.dataset else workload.training_samples
    threads = cell.share or max(1, len(ground.node.cores) // processes)
    warmup = request.warmup or workload.defaults[cell.ground.device].warmup
    num_classes = max(2, ground.dataset.classes) if ground.dataset else workload.num_classes
    return Trial(
        framework=ground.image.framework,
        version=ground.image.version,
        workload=workload.name,
        program=workload.program(ground.image.framework),
        dialect=workload.dialects.get(ground.image.framework),
        model=cell.model.name,
        mode=request.mode,
        strategy=chosen.name,
        kvstore=chosen.kvstore,
        horovod=chosen.horovod,
        xla=request.xla,
        oversubscribed=cell.share is not None and cell.share * scale > len(ground.node.cores),
        precision=request.precision,
        device=cell.ground.device,
        world_size=scale,
        processes=processes,
        nodes=1,
        placement=(Placed(node=ground.node.name, devices=scale),),
        batch_per_device=batch,
        global_batch=batch * scale,
        image_shape=(3, cell.image_size, cell.image_size),
        num_classes=num_classes,
        data=ground.dataset.path if ground.dataset else "synthetic",
        dataset=ground.dataset,
        iterations=iterations,
        warmup=warmup,
        window=min(MAX_WINDOW, max(1, iterations // WINDOWS)),
        epochs=iterations * batch * scale / samples,
        learning_rate=cell.model.learning_rate,
        momentum=workload.momentum,
        weight_decay=workload.weight_decay,
        seed=request.seed,
        scaling=request.scaling,
        interconnect=request.interconnect,
        threads=threads,
        loader_workers=min(MAX_LOADER_WORKERS, threads) if ground.dataset else 0,
        cpus_per_worker=cell.share,
        repeat=repeat,
        key=_key(cell, num_classes),
    )


def _key(cell: _Cell, num_classes: int) -> str:
    """What a speedup's two runs must share: all but scale, strategy, interconnect and repeat."""
    request, ground = cell.request, cell.ground
    accelerators = tuple(gpu.name for gpu in ground.node.gpus[:1]) if cell.ground.device == "gpu" else ()
    return comparison_key(
        {
            "machine": ground.node.name,
            "device": cell.ground.device,
            "device_name": accelerators[0] if accelerators else ground.node.cpu_model,
            "cpus_per_worker": cell.share,
            "engine": ground.engine.name,
            "framework": ground.image.framework,
            "version": ground.image.version,
            "lock_sha256": ground.image.lock_sha256,
            "workloads_sha256": ground.workloads_sha256,
            "workload": ground.workload.name,
            "model": cell.model.name,
            "mode": request.mode,
            "precision": request.precision,
            "image_size": cell.image_size,
            "num_classes": num_classes,
            "data": ground.dataset.digest if ground.dataset else "synthetic",
            "scaling": request.scaling,
            "batch": request.batch or ground.workload.defaults[cell.ground.device].batch,
            "iterations": cell.total,
            "warmup": request.warmup,
            "xla": request.xla,
            "seed": request.seed,
        }
    )
