"""Request × catalog × machine × data → `Trial`s. Pure: inspects, starts and writes nothing.

All defaults are applied here, every trial is complete, and an impossible request is refused in one sentence before anything starts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

from runner.core.dataset import PACKED
from runner.core.errors import RequestError
from runner.core.request import Device, Interconnect, Mode, Request
from runner.core.trial import Placed, Trial, comparison_key
from runner.core.units import counted
from runner.core.wire import Link
from runner.core.workload import PARTS_OF_BATCH, SEQUENCE, SHARED_BY, Model, Setting
from runner.plan import techniques
from runner.plan.discovery import Resources
from runner.plan.placement import KINDS, WireRequest, cases, choose_wires, kinds, nodes_for, scales
from runner.plan.profiling import OF_GPUS, passes
from runner.plan.strategy import Chosen, check_shares, choose

# Sizes in bytes of the messages that are timed on the job's own wires before its first step, from latency-bound to bandwidth-bound.
PROBE: Final[Mapping[Device, tuple[int, ...]]] = {"cpu": (2**16, 2**20, 2**22), "gpu": (2**16, 2**20, 2**24, 2**28)}
# The largest message to a parameter server, which keeps every message that it was ever sent.
LARGEST_PUSH: Final = 2**26
# Decoding processes or threads per GPU or CPU worker; more only move the bottleneck.
MAX_LOADER_WORKERS: Final = 8
# Epochs of a convergence run, unless EPOCHS is given.
EPOCHS: Final = 10
# Measured seconds of a process, unless ITERATIONS or EPOCHS is given.
MEASURE_S: Final[Mapping[Device, float]] = {"cpu": 12.0, "gpu": 30.0}
# Windows of a run of given length: enough for an interval, few enough to cost nothing (an asynchronous engine such as MXNet's
# loses about 1 % of its rate on two cores if every iteration is a window).
WINDOWS: Final = 10
# Iterations of the longest window, so that a long run keeps reporting its rate, and a late fault hides little of it.
MAX_WINDOW: Final = 50


def plan(request: Request, resources: Resources) -> tuple[Trial, ...]:
    """Plan every trial, with repeats interleaved so that a drift of the machine affects all scales equally.

    Every plan that scales includes a one-device baseline, even if not requested. Profiling passes come last, after all measured trials.
    Raises RequestError if these resources cannot meet the request.
    """
    _refuse_data(request, resources)
    device, members = resources.device, resources.cluster.members
    workload, framework = resources.workload, resources.image.framework
    program = workload.program(framework, request.mode, model=request.model)
    defaults = workload.defaults[device]
    model = workload.find_model(request.model or defaults.model, framework=framework)
    settings = workload.settings_of(model, request.settings, mode=request.mode)
    batches = workload.batches_an_iteration(settings)
    if resources.dataset and workload.data == "tokens":
        sequences = resources.dataset.images // int(settings[SEQUENCE])
        resources = replace(resources, dataset=resources.dataset.model_copy(update={"images": sequences}))
    total = _total_iterations(request, resources, (request.batch or defaults.batch) * batches)
    request = techniques.apply_defaults(request, resources)
    workload.check_precision(request.precision, framework=framework, device=device, mode=request.mode)
    workload.check_needs(settings, framework=framework, precision=request.precision)
    if request.decode == "gpu":
        workload.check_gpu_decode(framework=framework, device=device)
    workload.check_profiles(request.profile, region=request.profile_region, framework=framework)
    if device == "cpu" and (of_gpus := [kind for kind in request.profile if kind in OF_GPUS]):
        raise RequestError(f"PROFILE={','.join(of_gpus)} is of GPUs; ask for GPUS=n, or leave it out")
    requested = scales(request, resources.image, members)
    if request.mode == "infer" and requested != (1,):
        if request.gpus or request.workers:
            raise RequestError(f"MODE=infer measures one device, {requested[-1]} asked; ask for one")
        requested = (1,)
    concurrent = cases(request.concurrent, requested) if request.concurrent else ()
    all_scales = tuple(sorted({devices for devices, _ in concurrent} or {1, *requested}))
    nodes = {scale: nodes_for(scale, members, request=request, device=device) or 1 for scale in all_scales}
    strategy = choose(request, image=resources.image, workload=workload, scales=requested, nodes=max(nodes.values()))
    techniques.refuse_without_effect(request, strategy=strategy.name, most=requested[-1])
    for scale in (one for one in requested if one > 1):
        check_shares(strategy.name, model, int(settings.get(SHARED_BY, 1)), scale=scale, nodes=nodes[scale])
    ip_only = strategy.ip_only(device)
    matrix = _Matrix(
        request=request,
        resources=resources,
        program=program,
        model=model,
        image_size=workload.image_size(model, device=device, requested=request.image_size),
        strategy=strategy,
        settings=settings,
        batches=batches,
        total=total,
        scales=all_scales,
        nodes=nodes,
        ip_only=ip_only,
        kinds=kinds(request, members, device=device, ip_only=ip_only),
    )
    ways = {scale: _ways(matrix, scale) for scale in all_scales}
    if request.compare and max(map(len, ways.values())) == 1:
        raise RequestError(
            f"nothing to compare: {'all of ' if len(requested) > 1 else ''}{','.join(map(str, requested))} devices fit on one node, "
            "which has only one wire; ask for more devices, or for NODES=2"
        )
    samples = matrix.batch(all_scales[-1]) * all_scales[-1]
    if resources.dataset and resources.dataset.images < samples:
        raise RequestError(
            f"DATA={resources.dataset.path} holds {resources.dataset.images} images, one step takes {samples}; ask for a smaller BATCH"
        )
    repeats = range(1, request.repeat + 1)
    if concurrent:
        return tuple(
            _trial(matrix, devices, ways[devices][0], repeat).model_copy(update={"concurrent": one})
            for repeat in repeats
            for devices, one in concurrent
        )
    trials = tuple(
        _trial(matrix, scale, way, repeat) for repeat in repeats for scale in all_scales for way in ways[scale]
    )
    here = resources.cluster.kind == "here"
    return trials + passes(
        request, trials, scales=requested, nsight=resources.nsight, engine=resources.engine.name, here=here
    )


def with_iterations(request: Request, resources: Resources) -> Request:
    """Give a request without a length the workload's number of iterations, for separate runs that must do the same work."""
    if request.iterations or request.epochs:
        return request
    return request.model_copy(update={"iterations": resources.workload.defaults[resources.device].iterations})


def _refuse_data(request: Request, resources: Resources) -> None:
    """Raise RequestError for data that the framework or mode cannot use, or if data that the mode needs are missing."""
    dataset, framework = resources.dataset, resources.image.framework
    packed = PACKED.get(PurePath(dataset.path).suffix) if dataset else None
    if dataset and packed and packed.framework != framework:
        raise RequestError(
            f"FRAMEWORK={framework} reads a folder of JPEGs, DATA={dataset.path} is {packed.label}; give the folder"
        )
    if request.mode == "converge":
        if dataset is None and resources.workload.validation_samples is None:
            raise RequestError(
                "MODE=converge validates on real data, and none are given; add DATA=DIR (`dlscale data sample DIR` writes some to try with)"
            )
        if dataset and not dataset.validation_images:
            raise RequestError(
                f"MODE=converge splits a folder of JPEGs, and DATA={dataset.path} is packed or too small to split; give the folder"
            )
    if request.fit and resources.workload.num_classes is None:
        raise RequestError(
            f"FIT needs a workload with an accuracy, and {resources.workload.name} has none; leave it out"
        )
    if request.fit and dataset is None:
        raise RequestError(
            "FIT trains before inference, but there are no data to train on; add DATA=DIR, or leave it out"
        )


def _epoch_samples(resources: Resources, mode: Mode) -> int:
    """Samples that one epoch trains on."""
    if resources.dataset is None:
        return resources.workload.training_samples
    kept = resources.dataset.validation_images if mode == "converge" else 0
    return resources.dataset.images - kept


def _total_iterations(request: Request, resources: Resources, batch: int) -> int | None:
    """Iterations of one device, also from EPOCHS; None if the program chooses them by the rate of the warm-up."""
    if request.mode == "converge":
        return (request.epochs or EPOCHS) * (_epoch_samples(resources, "converge") // batch)
    if request.epochs:
        return math.ceil(request.epochs * _epoch_samples(resources, request.mode) / batch)
    if request.concurrent:
        # In a set duration, each training would do as much as it can, and all cases would take as long.
        request = with_iterations(request, resources)
    return request.iterations


@dataclass(frozen=True)
class _Matrix:
    """Properties that all trials of a plan share."""

    request: Request
    resources: Resources
    program: str
    model: Model
    image_size: int | None
    settings: Mapping[str, Setting]
    batches: int  # that one iteration reads
    strategy: Chosen
    total: int | None  # iterations of one device; None if chosen by the rate of the warm-up
    scales: tuple[int, ...]  # numbers of devices, ascending
    nodes: Mapping[int, int]  # of each scale
    ip_only: bool  # the library that carries the gradients is limited to IP
    kinds: tuple[Interconnect, ...]  # wires to run over

    def batch(self, scale: int) -> int:
        """Samples a device. Raises RequestError if the devices cannot share the global batch equally."""
        batch = self.request.batch or self.resources.workload.defaults[self.resources.device].batch
        devices = scale if self.request.scaling == "strong" else 1
        parts = int(self.settings.get(PARTS_OF_BATCH, 1))
        if batch % devices:
            raise RequestError(
                f"BATCH={batch} is the total of all devices with SCALING=strong, and is not divisible by {scale}; ask for a multiple of it"
            )
        if batch // devices % parts:
            raise RequestError(
                f"{PARTS_OF_BATCH}={parts} does not divide a device's batch of {batch // devices}; ask for a divisor of it"
            )
        return batch // devices

    @property
    def cores_a_worker(self) -> int | None:
        """Cores of each CPU worker, the same at every scale, so that a worker is always the same device; None on GPUs."""
        if self.resources.device == "gpu":
            return None
        return min(
            max(1, len(member.node.cores) * nodes // scale)
            for scale, nodes in self.nodes.items()
            for member in self.resources.cluster.members[:nodes]
        )


@dataclass(frozen=True)
class _Way:
    """How the devices of one trial are connected: one requested interconnect, on a placement, with one requested link."""

    interconnect: Interconnect
    placement: tuple[Placed, ...]
    link: Link | None


def _ways(matrix: _Matrix, scale: int) -> tuple[_Way, ...]:
    """Every requested way at one scale: network kinds apply between nodes, the other kinds within one."""
    request, resources, nodes = matrix.request, matrix.resources, matrix.nodes[scale]
    members = resources.cluster.members[:nodes]
    each = scale // nodes
    if nodes == 1:
        alone = (Placed(node=members[0].node.name, devices=each),)
        inner = [kind for kind in matrix.kinds if kind not in KINDS] if scale > 1 else []
        return tuple(_Way(kind, alone, None) for kind in inner or ["auto"])
    found = []
    for kind in matrix.kinds:
        wanted = WireRequest(interconnect=kind, iface=request.iface, hca=request.hca, ip_only=matrix.ip_only)
        wires = choose_wires(members, wanted)
        placement = tuple(
            Placed(
                node=member.node.name,
                devices=each,
                wire=wire.model_copy(update={"hcas": ()}) if matrix.ip_only else wire,
            )
            for member, wire in zip(members, wires, strict=True)
        )
        found += [_Way(kind, placement, link) for link in request.links or (resources.cluster.link,)]
    return tuple(found)


def _length(matrix: _Matrix, scale: int, *, epoch_iterations: int | None, agree: bool) -> tuple[int, int, float | None]:
    """Iterations and window of one trial, the window equal at every scale; or 0 and 0, and the seconds to measure.

    With strong scaling, more devices make steps shorter, so the largest number of devices multiplies the measured seconds. A program that
    cannot choose its length (a framework's own binary, ranks that cannot `agree` on one) takes the workload's number of iterations.
    """
    request, resources, workload = matrix.request, matrix.resources, matrix.resources.workload
    if epoch_iterations is not None:
        return (request.epochs or EPOCHS) * epoch_iterations, _window(epoch_iterations), None
    default, total = workload.defaults[resources.device].iterations, matrix.total
    if total is None and request.mode != "infer" and resources.image.framework in workload.dialects:
        total = default
    strong = request.scaling == "strong"
    if total is None:
        measure_s = MEASURE_S[resources.device] * (max(matrix.scales) if strong else 1)
        return (0, 0, measure_s) if agree else (default, 1, measure_s)
    by_scale = {one: total if strong else math.ceil(total / one) for one in matrix.scales}
    return by_scale[scale], _window(min(by_scale.values())), None


def _window(iterations: int) -> int:
    """Iterations of a window, for a run or an epoch of `iterations`."""
    return min(MAX_WINDOW, max(1, iterations // WINDOWS))


def _trial(matrix: _Matrix, scale: int, way: _Way, repeat: int) -> Trial:
    request, resources, workload = matrix.request, matrix.resources, matrix.resources.workload
    device, dataset, share = resources.device, resources.dataset, matrix.cores_a_worker
    batch = matrix.batch(scale)
    chosen = Chosen("single") if scale == 1 else matrix.strategy
    nodes = matrix.nodes[scale]
    processes = chosen.processes(scale, nodes)
    samples = _epoch_samples(resources, request.mode)
    epoch_iterations = samples // (batch * scale) if request.mode == "converge" else None
    agree = chosen.kvstore is None or processes == 1
    iterations, window, measure_s = _length(matrix, scale, epoch_iterations=epoch_iterations, agree=agree)
    fewest = min(len(member.node.cores) for member in resources.cluster.members[:nodes])
    cores = share or max(1, fewest * nodes // processes)
    loader_workers = _within_cores(cores, "LOADER_WORKERS", request.loader_workers) or min(MAX_LOADER_WORKERS, cores)
    num_classes = workload.num_classes
    if dataset and num_classes is not None:
        num_classes = max(2, dataset.classes)
    dialect = workload.dialects.get(resources.image.framework) if request.mode != "infer" else None
    probed = dialect is None and request.mode != "infer"
    return Trial(
        framework=resources.image.framework,
        version=resources.image.version,
        workload=workload.name,
        program=matrix.program,
        dialect=dialect,
        model=matrix.model.name,
        mode=request.mode,
        strategy=chosen.name,
        kvstore=chosen.kvstore,
        horovod=chosen.horovod,
        xla=request.xla,
        oversubscribed=share is not None and share * scale // nodes > len(resources.node.cores),
        precision=request.precision,
        device=device,
        world_size=scale,
        processes=processes,
        nodes=nodes,
        placement=way.placement,
        link=way.link,
        probe_bytes=tuple(n for n in PROBE[device] if chosen.kvstore is None or n <= LARGEST_PUSH) if probed else (),
        batch_per_device=batch,
        global_batch=batch * scale,
        image_shape=(3, matrix.image_size, matrix.image_size) if matrix.image_size else None,
        num_classes=num_classes,
        data=dataset.path if dataset else "synthetic",
        dataset=dataset,
        iterations=iterations,
        warmup=request.warmup or workload.defaults[device].warmup,
        window=window,
        measure_s=measure_s,
        epochs=max(1, iterations) * batch * scale * matrix.batches / samples,
        learning_rate=matrix.model.learning_rate,
        momentum=workload.momentum,
        weight_decay=workload.weight_decay if matrix.model.weight_decay is None else matrix.model.weight_decay,
        seed=request.seed,
        scaling=request.scaling,
        interconnect=way.interconnect,
        iface=request.iface if nodes > 1 else None,
        hca=request.hca if nodes > 1 else None,
        threads=_within_cores(cores, "THREADS", request.threads) or cores,
        loader_workers=loader_workers if dataset else 0,
        cpus_per_worker=share,
        repeat=repeat,
        key=_key(matrix, num_classes),
        settings=dict(matrix.settings),
        epoch_iterations=epoch_iterations,
        fit=request.fit or 0,
        techniques=techniques.effective(request, strategy=chosen.name),
        decode=request.decode,
        gpu_memory=request.gpu_memory,
    )


def _within_cores(cores: int, variable: str, asked: int | None) -> int | None:
    """Return the requested number for each rank, or None. Raises RequestError if it exceeds the rank's cores."""
    if asked and asked > cores:
        raise RequestError(
            f"{variable}={asked} asked, but each rank has {counted(cores, 'core')}; ask for {cores} or fewer"
        )
    return asked


def _key(matrix: _Matrix, num_classes: int | None) -> str:
    """The key that both runs of a speedup must share: all but scale, strategy, interconnect and repeat."""
    request, resources = matrix.request, matrix.resources
    settings = dict(matrix.settings)
    gpus = resources.node.gpus if resources.device == "gpu" else ()
    # Included only if not the default, so that records that are older than these options stay valid baselines.
    non_defaults = {
        "settings": json.dumps(settings, sort_keys=True) if settings else None,
        "fit": request.fit,
        "techniques": request.techniques,
        "decode": request.decode if request.decode != "cpu" else None,
        "gpu_memory": request.gpu_memory if request.gpu_memory != "as-needed" else None,
        "loader_workers": request.loader_workers,
        "threads": request.threads,
    }
    return comparison_key(
        {
            "machine": resources.cluster.machine,
            "device": resources.device,
            "device_name": gpus[0].name if gpus else resources.node.cpu_model,
            "cpus_per_worker": matrix.cores_a_worker,
            "engine": resources.engine.name,
            "framework": resources.image.framework,
            "version": resources.image.version,
            "lock_sha256": resources.image.software,
            "workloads_sha256": resources.workloads_sha256,
            "workload": resources.workload.name,
            "model": matrix.model.name,
            "mode": request.mode,
            "precision": request.precision,
            "image_size": matrix.image_size,
            "num_classes": num_classes,
            "data": resources.dataset.digest if resources.dataset else "synthetic",
            "scaling": request.scaling,
            "batch": request.batch or resources.workload.defaults[resources.device].batch,
            "iterations": matrix.total if matrix.total is not None else f"{MEASURE_S[resources.device]:g} s",
            "warmup": request.warmup,
            "xla": request.xla,
            "seed": request.seed,
            **{name: value for name, value in non_defaults.items() if value},
        }
    )
