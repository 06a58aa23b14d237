"""Request × catalog × machine × data → `Trial`s. Pure: nothing is looked up, started or written here.

Every default is taken here, every trial is complete, and whatever can't be met is refused in one sentence before anything
starts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from runner.core.dataset import PACKED
from runner.core.errors import RequestError
from runner.core.request import Device, Interconnect, Mode, Request
from runner.core.trial import Placed, Trial, comparison_key
from runner.core.wire import Link
from runner.core.workload import Model
from runner.plan import techniques
from runner.plan.concurrency import cases, devices_of_cases
from runner.plan.discovery import Resources
from runner.plan.interconnect_sweep import kinds
from runner.plan.length import MEASURE_S, Length, length, window
from runner.plan.passes import passes
from runner.plan.spread import nodes_for, scales
from runner.plan.strategy import Chosen, choose
from runner.plan.wire import KINDS, Wanted, choose_wires

# Messages in bytes that are timed on the job's own wires before its first step: one that latency rules, one that bandwidth does.
PROBE: Mapping[Device, tuple[int, ...]] = {
    "cpu": (2**16, 2**20, 2**22),
    "gpu": (2**16, 2**20, 2**24, 2**28),
}
LARGEST_PUSH = 2**26
# Decoding processes or threads beside each GPU or CPU worker; more only move the wait elsewhere.
MAX_LOADER_WORKERS = 8
# Epochs of a training that is watched to converge, unless EPOCHS says otherwise.
EPOCHS = 10


def plan(request: Request, resources: Resources) -> tuple[Trial, ...]:
    """Lay out every trial, the repeats interleaved so that a drift of the machine touches all scales alike.

    A one-device baseline is part of every plan that scales, asked for or not. Passes under a profiler come last, after all figures.

    Raises:
        RequestError: the request can't be met with these resources.
    """
    request = techniques.apply_defaults(request, resources)
    device = resources.device
    workload, framework = resources.workload, resources.image.framework
    program = workload.program(framework, request.mode)
    defaults = workload.defaults[device]
    model = workload.find_model(request.model or defaults.model, framework=framework)
    workload.check_precision(request.precision, framework=framework, device=device, mode=request.mode)
    workload.check_decode(request.decode, framework=framework, device=device)
    workload.check_profiles(request.profile, region=request.profile_region, framework=framework)
    packed = PACKED.get(PurePath(resources.dataset.path).suffix) if resources.dataset else None
    if resources.dataset and packed and packed.framework != framework:
        raise RequestError(
            f"FRAMEWORK={framework} reads a folder of JPEGs, DATA={resources.dataset.path} is {packed.label}; give the folder"
        )
    _refuse_data(request, resources)
    asked = scales(request, resources.image, resources.cluster.members)
    if request.mode == "infer" and asked != (1,):
        if request.gpus or request.workers:
            raise RequestError(f"MODE=infer measures one device, {asked[-1]} asked; ask for one")
        asked = (1,)
    every = tuple(sorted({1, *asked}))
    if request.concurrent:
        every = devices_of_cases(request.concurrent, asked)
    nodes = {scale: nodes_for(scale, resources.cluster.members, request=request, device=device) or 1 for scale in every}
    strategy = choose(request, image=resources.image, asked=asked, nodes=max(nodes.values()))
    cell = _Cell(
        request=request,
        resources=resources,
        program=program,
        model=model,
        image_size=workload.image_size(model, device=device, asked=request.image_size),
        strategy=strategy,
        total=_total_iterations(
            request, resources, (request.batch or defaults.batch) * workload.batches_an_iteration(model)
        ),
        scales=every,
        nodes=nodes,
        kinds=kinds(request, resources.cluster.members, device=device, ip_only=strategy.ip_only(device)),
    )
    ways = {scale: _ways(cell, scale) for scale in every}
    if request.compare and max(map(len, ways.values())) == 1:
        raise RequestError(
            f"nothing to compare: {'all of ' if len(asked) > 1 else ''}{','.join(map(str, asked))} devices fit on one node, where one wire "
            "is all there is; ask for more devices, or for NODES=2"
        )
    if resources.dataset and resources.dataset.images < cell.batch(every[-1]) * every[-1]:
        wanted = cell.batch(every[-1]) * every[-1]
        raise RequestError(
            f"DATA={resources.dataset.path} holds {resources.dataset.images} images, one step takes {wanted}; ask for a smaller BATCH"
        )
    if request.concurrent:
        return tuple(
            _trial(cell, devices, ways[devices][0], repeat).model_copy(update={"concurrent": concurrent})
            for repeat in range(1, request.repeat + 1)
            for devices, concurrent in cases(request.concurrent, asked[-1])
        )
    trials = tuple(
        _trial(cell, scale, way, repeat)
        for repeat in range(1, request.repeat + 1)
        for scale in every
        for way in ways[scale]
    )
    here = resources.cluster.way == "here"
    return trials + passes(
        request, trials, asked=asked, nsight=resources.nsight, engine=resources.engine.name, here=here
    )


def _refuse_data(request: Request, resources: Resources) -> None:
    """Refuse data that the mode can't use, or the lack of those that it can't do without."""
    if request.mode == "converge":
        if resources.dataset is None and resources.workload.validation_samples is None:
            raise RequestError(
                "MODE=converge validates on real data, and none are given; add DATA=DIR (`dlscale data sample DIR` writes some to try with)"
            )
        if resources.dataset and not resources.dataset.validation_images:
            raise RequestError(
                f"MODE=converge splits a folder of JPEGs, and DATA={resources.dataset.path} is packed or too small to split; give the folder"
            )
    if request.fit and resources.dataset is None:
        raise RequestError(
            "FIT trains before inference, and there is nothing to learn from; add DATA=DIR, or leave it out"
        )


def _epoch_samples(resources: Resources, mode: Mode) -> int:
    """Samples that one epoch trains on."""
    if resources.dataset is None:
        return resources.workload.training_samples
    kept = resources.dataset.validation_images if mode == "converge" else 0
    return resources.dataset.images - kept


def _total_iterations(request: Request, resources: Resources, batch: int) -> int | None:
    """Iterations that one device makes; EPOCHS are turned into them. None where they follow the rate of the warm-up."""
    if request.mode == "converge":
        return (request.epochs or EPOCHS) * (_epoch_samples(resources, "converge") // batch)
    if request.epochs:
        return math.ceil(request.epochs * _epoch_samples(resources, request.mode) / batch)
    return request.iterations


@dataclass(frozen=True)
class _Cell:
    """What all trials of a plan share.

    Attributes:
        total: iterations of one device; None where they follow the rate of the warm-up.
        scales: numbers of devices, ascending.
        nodes: number of nodes of each scale.
        kinds: wires to run over.
    """

    request: Request
    resources: Resources
    program: str
    model: Model
    image_size: int | None
    strategy: Chosen
    total: int | None
    scales: tuple[int, ...]
    nodes: Mapping[int, int]
    kinds: tuple[Interconnect, ...]

    def batch(self, scale: int) -> int:
        """Samples a device.

        Raises:
            RequestError: a global batch that the devices can't share equally.
        """
        batch = self.request.batch or self.resources.workload.defaults[self.resources.device].batch
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
        if self.resources.device == "gpu":
            return None
        return min(
            max(1, len(member.node.cores) * nodes // scale)
            for scale, nodes in self.nodes.items()
            for member in self.resources.cluster.members[:nodes]
        )


@dataclass(frozen=True)
class _Way:
    """How the devices of one trial are joined: one of the kinds and one of the links that were asked for."""

    interconnect: Interconnect
    placement: tuple[Placed, ...]
    link: Link | None


def _ways(cell: _Cell, scale: int) -> tuple[_Way, ...]:
    """Every way that was asked for at one scale: a network's kind means something between nodes, the others within one.

    Raises:
        RequestError: a node has not the wire that was asked for.
    """
    request, resources, nodes = cell.request, cell.resources, cell.nodes[scale]
    members = resources.cluster.members[:nodes]
    each = scale // nodes
    if nodes == 1:
        alone = (Placed(node=members[0].node.name, devices=each),)
        inner = [kind for kind in cell.kinds if kind not in KINDS] if scale > 1 else []
        return tuple(_Way(kind, alone, None) for kind in inner or ["auto"])
    found = []
    ip_only = cell.strategy.ip_only(resources.device)
    for kind in cell.kinds:
        wanted = Wanted(interconnect=kind, iface=request.iface, hca=request.hca, ip_only=ip_only)
        wires = choose_wires([(member.node, member.said) for member in members], wanted)
        placement = tuple(
            Placed(node=member.node.name, devices=each, wire=wire.model_copy(update={"hcas": ()}) if ip_only else wire)
            for member, wire in zip(members, wires, strict=True)
        )
        found += [_Way(kind, placement, link) for link in request.links or (resources.cluster.link,)]
    return tuple(found)


def _trial(cell: _Cell, scale: int, way: _Way, repeat: int) -> Trial:
    request, resources, workload = cell.request, cell.resources, cell.resources.workload
    batch = cell.batch(scale)
    chosen = Chosen("single") if scale == 1 else cell.strategy
    nodes = cell.nodes[scale]
    processes = chosen.processes(scale, nodes)
    measured = length(
        request,
        resources,
        total=cell.total,
        scale=scale,
        scales=cell.scales,
        agree=chosen.name != "kvstore" or processes == 1,
    )
    samples = _epoch_samples(resources, request.mode)
    epoch_iterations = None
    if request.mode == "converge":
        epoch_iterations = samples // (batch * scale)
        measured = Length((request.epochs or EPOCHS) * epoch_iterations, window(epoch_iterations))
    fewest = min(len(member.node.cores) for member in resources.cluster.members[:nodes])
    cores = cell.share or max(1, fewest * nodes // processes)
    warmup = request.warmup or workload.defaults[cell.resources.device].warmup
    num_classes = workload.num_classes
    if resources.dataset and num_classes is not None:
        num_classes = max(2, resources.dataset.classes)
    dialect = workload.dialects.get(resources.image.framework) if request.mode != "infer" else None
    return Trial(
        framework=resources.image.framework,
        version=resources.image.version,
        workload=workload.name,
        program=cell.program,
        dialect=dialect,
        model=cell.model.name,
        mode=request.mode,
        strategy=chosen.name,
        kvstore=chosen.kvstore,
        horovod=chosen.horovod,
        xla=request.xla,
        oversubscribed=cell.share is not None and cell.share * scale // nodes > len(resources.node.cores),
        precision=request.precision,
        device=cell.resources.device,
        world_size=scale,
        processes=processes,
        nodes=nodes,
        placement=way.placement,
        link=way.link,
        probe_bytes=_probe(chosen, resources.device) if dialect is None and request.mode != "infer" else (),
        batch_per_device=batch,
        global_batch=batch * scale,
        image_shape=(3, cell.image_size, cell.image_size) if cell.image_size else None,
        num_classes=num_classes,
        data=resources.dataset.path if resources.dataset else "synthetic",
        dataset=resources.dataset,
        iterations=measured.iterations,
        warmup=warmup,
        window=measured.window,
        measure_s=measured.measure_s,
        epochs=max(1, measured.iterations) * batch * scale * workload.batches_an_iteration(cell.model) / samples,
        learning_rate=cell.model.learning_rate,
        momentum=workload.momentum,
        weight_decay=workload.weight_decay,
        seed=request.seed,
        scaling=request.scaling,
        interconnect=way.interconnect,
        iface=request.iface if nodes > 1 else None,
        hca=request.hca if nodes > 1 else None,
        threads=_threads(request, cores),
        loader_workers=_loader_workers(request, cores) if resources.dataset else 0,
        cpus_per_worker=cell.share,
        repeat=repeat,
        key=_key(cell, num_classes),
        settings={**workload.settings, **cell.model.settings},
        epoch_iterations=epoch_iterations,
        fit=request.fit or 0,
        techniques=techniques.of_trial(request, strategy=chosen.name),
        decode=request.decode,
    )


def _threads(request: Request, cores: int) -> int:
    """Computing threads of a process, one for each of its cores at most.

    Raises:
        RequestError: more were asked for.
    """
    return cores if request.threads is None else _at_most(cores, "THREADS", request.threads)


def _loader_workers(request: Request, cores: int) -> int:
    """What prepares samples beside each GPU or CPU worker, one for each of its cores at most.

    Raises:
        RequestError: more were asked for.
    """
    if request.loader_workers is None:
        return min(MAX_LOADER_WORKERS, cores)
    return _at_most(cores, "LOADER_WORKERS", request.loader_workers)


def _at_most(cores: int, variable: str, asked: int) -> int:
    """What was asked for, if there is a core for each.

    Raises:
        RequestError: there is not.
    """
    if asked > cores:
        raise RequestError(
            f"{variable}={asked} asked, and {cores} cores are there for each rank; ask for {cores} or fewer"
        )
    return asked


def _probe(chosen: Chosen, device: Device) -> tuple[int, ...]:
    """Messages to time; a parameter server keeps each that it was ever sent, so that it gets no large ones."""
    return tuple(size for size in PROBE[device] if chosen.name != "kvstore" or size <= LARGEST_PUSH)


def _key(cell: _Cell, num_classes: int | None) -> str:
    """What a speedup's two runs must share: all but scale, strategy, interconnect and repeat."""
    request, resources = cell.request, cell.resources
    settings = {**resources.workload.settings, **cell.model.settings}
    accelerators = tuple(gpu.name for gpu in resources.node.gpus[:1]) if cell.resources.device == "gpu" else ()
    return comparison_key(
        {
            "machine": resources.cluster.machine,
            "device": cell.resources.device,
            "device_name": accelerators[0] if accelerators else resources.node.cpu_model,
            "cpus_per_worker": cell.share,
            "engine": resources.engine.name,
            "framework": resources.image.framework,
            "version": resources.image.version,
            "lock_sha256": resources.image.software,
            "workloads_sha256": resources.workloads_sha256,
            "workload": resources.workload.name,
            "model": cell.model.name,
            "mode": request.mode,
            "precision": request.precision,
            "image_size": cell.image_size,
            "num_classes": num_classes,
            "data": resources.dataset.digest if resources.dataset else "synthetic",
            "scaling": request.scaling,
            "batch": request.batch or resources.workload.defaults[cell.resources.device].batch,
            "iterations": cell.total if cell.total is not None else f"{MEASURE_S[resources.device]:g} s",
            "warmup": request.warmup,
            "xla": request.xla,
            "seed": request.seed,
            **({"settings": json.dumps(settings, sort_keys=True)} if settings else {}),
            **({"fit": request.fit} if request.fit else {}),
            **({"techniques": request.techniques} if request.techniques else {}),
            **({"decode": request.decode} if request.decode != "cpu" else {}),
            **({"loader_workers": request.loader_workers} if request.loader_workers else {}),
            **({"threads": request.threads} if request.threads else {}),
        }
    )
