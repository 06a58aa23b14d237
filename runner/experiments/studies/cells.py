"""A study × a machine × a scale → its cells: the request of `bench` for each run of the source, or why this hardware can't run it. Pure.

Without GPUs, a source's n GPUs become n CPU workers; without several hosts, its nodes are emulated, and its networks become link rates.
Each such difference is in `Cell.altered`.

Cells of one curve share a request, so that a CPU worker has as many cores at every scale. Scales of several nodes have their own requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from runner.analysis.grading.metrics import MIN_STEADY_WINDOWS
from runner.core.request import Device, Precision, Request, Scaling
from runner.core.units import counted
from runner.core.wire import Link, parse_rate
from runner.engines.base import DATA
from runner.experiments.studies.differences import merged
from runner.experiments.studies.model import NOTHING, Altered, Cell, Machine, Pick, Scale, Usable
from runner.experiments.studies.sample import sample_for
from runner.experiments.studies.study import LENGTHS, NOT_STATED, Block, Point, ShortenedName, Study
from runner.images.catalog import release
from runner.plan.profiling import OF_GPUS
from runner.results.published.model import Conditions, Published

PASSES: Final[dict[Device, int]] = {"cpu": MIN_STEADY_WINDOWS, "gpu": 5 * MIN_STEADY_WINDOWS}
"""Batches that an inference has at least, though one may hold all samples: enough to tell whether the rate has settled, and on a GPU, whose
utilisation is read ten times a second, to last for more than a few readings."""
LONGEST_S: Final = 7 * 24 * 3600
"""Seconds that a source's own program may take; the suite can't shorten it."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One combination of a block's settings; `model` is the suite's network for the one that the source calls `name`.

    `printed` is the source's batch, `batch` the one used here (both counted as `batch_of` says), `each` a device's share of it (None if it can't be
    split equally). An `extra` setup is in addition to the source's own.
    """

    name: str
    model: str
    precision: Precision
    point: Point
    printed: int
    batch: int
    each: int | None
    network: str | None
    case: str | None
    extra: bool


@dataclass(frozen=True, kw_only=True)
class BlockContext:
    """A block, and everything that decides how it runs here; the fields are the arguments of `cells`."""

    study: Study
    block: Block
    source: Published
    machine: Machine
    scale: Scale
    user_request: Request = NOTHING

    @property
    def program(self) -> str | None:
        """The path of the source's own program in the requested image; None for the suite's program."""
        return next(iter(self.user_request.command), None)

    @property
    def images(self) -> Path | None:
        """The folder of real images that it reads; None for synthetic data, or if samples are not images."""
        image_size = self.shortened("image_size")
        if image_size is None:
            return None
        real = self.block.real or self.block.mode == "converge" or self.block.fit is not None
        return self.user_request.data or (sample_for(self.scale, image_size, self.device).path if real else None)

    @property
    def device(self) -> Device:
        """The device that the block runs on here."""
        return "cpu" if self.block.device == "cpu" else self.machine.device

    @property
    def framework(self) -> str:
        """The suite's name of the framework."""
        return self.user_request.framework or self.block.named_framework

    def shortened(self, name: ShortenedName) -> int | None:
        """Return a number of the block, or its replacement at this scale."""
        block, short = self.block, self.block.shorter(self.scale)
        number: int | None = getattr(short, name)
        if number is None and not (name in LENGTHS and any(getattr(short, other) for other in LENGTHS)):
            number = getattr(block, name)
        return number

    def setups(self) -> Iterator[Setup]:
        """Yield every combination, including the scales that are added to the source's."""
        block, short = self.block, self.block.shorter(self.scale)
        also = tuple(point for point in short.also if point not in block.points)
        for (name, model), precision, point in product(block.models.items(), block.precisions, (*block.points, *also)):
            batches = (point.batch,) if point.batch is not None else block.batches
            networks = block.networks if point.nodes > 1 else (None,)
            for printed, network, case in product(batches, networks, block.cases or (None,)):
                batch = max(1, printed // short.batch_divisor)
                sharing = {"device": 1, "node": point.gpus // point.nodes, "all": point.gpus}[block.batch_of]
                yield Setup(
                    name=name,
                    model=short.models.get(name, model),
                    precision=precision,
                    point=point,
                    printed=printed,
                    batch=batch,
                    each=None if batch % sharing else batch // sharing,
                    network=network,
                    case=case,
                    extra=point in also,
                )

    @property
    def image(self) -> Usable | None:
        """The image with the version nearest to the source's, else the newest; multi-device ones first if the source used several. None if none runs."""
        usable = [image for image in self._images() if image.misfit is None]
        several = self.block.device == "gpu" and max(point.gpus for point in self.block.points) > 1
        return next((image for image in usable if not (several and image.alone)), usable[0] if usable else None)

    def why_left_out(self, setup: Setup) -> str | None:
        """Say that this scale leaves out the batch of a setup; None if it does not."""
        kept = self.block.shorter(self.scale).batches
        left_out = kept and setup.printed not in kept
        return f"SCALE={self.scale} leaves out some batches, SCALE=full runs all" if left_out else None

    def why_impossible(self, setup: Setup) -> str | None:
        """Say why this machine can't run a setup, in half a sentence; None if it can."""
        if self.program is not None:
            return self._why_program_impossible(setup.point, self.program)
        if self.machine.device == "cpu" and self.block.gpu_only:
            return self.block.gpu_only
        if self.image is None:
            misfits = [image.misfit for image in self._images() if image.misfit]
            what = f"{self.framework} {self.user_request.version or ''}".strip()
            return misfits[0] if misfits else f"there is no image of {what} for a {self.device.upper()}"
        if self.machine.hosts and self.block.concurrent:
            return "trainings at once run on one machine, and HOSTS has others"
        if setup.each is None:
            return f"a batch of {setup.batch} is not shared equally by {setup.point.gpus} devices"
        return None if self.block.device == "cpu" else self._why_too_small(setup.point, self.image)

    def _why_program_impossible(self, point: Point, path: str) -> str | None:
        """Say why the source's own program, at this path in the user's image, can't run a point; None if it can."""
        program = self.block.program
        if program is None or not program.is_at(path):
            return f"the source ran another program than {path}"
        if self.block.device != "cpu" and point.nodes > 1:
            return "a program that is not the suite's runs on one node"
        if self.user_request.data is None and any("{data}" in word for word in program.arguments):
            return f"{program.file} reads its data from a folder; add DATA=DIR"
        offered = self.machine.devices[0]
        fits = self.block.device == "cpu" or offered >= point.gpus
        verb = "is" if offered == 1 else "are"
        return None if fits else f"{point.gpus} GPUs, here {verb} {self.machine.in_words}"

    def _images(self) -> tuple[Usable, ...]:
        of_framework = [
            one for one in self.machine.images if (one.framework, one.device) == (self.framework, self.device)
        ]
        if any(one.given for one in of_framework):
            return tuple(of_framework)
        own = [one for one in of_framework if one.version.startswith(self.user_request.version or "")]
        nearest = self.study.nearest.get(self.framework, ())
        newest = sorted(own, key=lambda one: release(one.version), reverse=True)
        return tuple(
            sorted(newest, key=lambda one: nearest.index(one.version) if one.version in nearest else len(nearest))
        )

    def _why_too_small(self, point: Point, image: Usable) -> str | None:
        """Say why devices or nodes are too few, or why the image can't use them; None if the point fits."""
        machine, each = self.machine, point.gpus // point.nodes
        wanted = f"{point.gpus} GPUs" + (f" on {point.nodes} nodes" if point.nodes > 1 else "")
        if (point.gpus > 1 and image.alone) or (point.nodes > 1 and image.one_node):
            most = "trains on one device" if image.alone else "does not go beyond one node"
            return f"{wanted}, and {image.framework} {image.version} {most}"
        emulated = point.nodes > 1 and machine.hosts is None
        if emulated:
            fits = machine.devices[0] >= point.gpus and machine.cores >= point.nodes
        else:
            fits = sum(count >= each for count in machine.devices) >= point.nodes
        if fits and emulated and not machine.may_emulate:
            return f"{wanted}, and nodes are emulated in containers, for which no engine answers here"
        verb = "is" if sum(machine.devices) == 1 else "are"
        nodes = f" on {len(machine.devices)} nodes" if len(machine.devices) > 1 else ""
        return None if fits else f"{wanted}, here {verb} {machine.in_words}{nodes}"


def cells(
    study: Study,
    *,
    source: Published,
    machine: Machine,
    scale: Scale,
    user_request: Request = NOTHING,
) -> tuple[Cell, ...]:
    """Plan every run of the source, in the order of the study's file; `user_request` applies to all.

    The sample of photographs that some cells read need not exist yet.
    """
    shared = partial(BlockContext, study=study, source=source, machine=machine, scale=scale, user_request=user_request)
    return tuple(cell for block in study.blocks for cell in _plan_block(shared(block=block)))


def requests(found: Sequence[Cell]) -> tuple[Request, ...]:
    """Return the distinct requests of cells, in order."""
    return tuple(dict.fromkeys(cell.request for cell in found if cell.request))


def _plan_block(context: BlockContext) -> Iterator[Cell]:
    """Plan a block's cells; scales in addition to the source's only on a curve that this machine can't run completely."""
    reasons = {setup: context.why_left_out(setup) or context.why_impossible(setup) for setup in context.setups()}
    curves: dict[tuple[str, Precision, int | None], list[Setup]] = {}
    for setup in reasons:
        batch = setup.printed if context.block.batches else None
        curves.setdefault((setup.name, setup.precision, batch), []).append(setup)
    planned: dict[Setup, Planned] = {}
    for curve in curves.values():
        incomplete = any(reasons[setup] for setup in curve if not setup.extra)
        runnable = [setup for setup in curve if not reasons[setup] and (incomplete or not setup.extra)]
        if context.program is not None:
            planned |= {setup: _plan_program(context, setup) for setup in runnable}
            continue
        planned |= _plan_one_node(context, [setup for setup in runnable if setup.point.nodes == 1])
        for point in dict.fromkeys(setup.point for setup in runnable if setup.point.nodes > 1):
            planned |= _plan_several_nodes(context, [setup for setup in runnable if setup.point == point])
    for setup, why in reasons.items():
        request, pick = planned.get(setup, (None, None))
        if request or not setup.extra:
            yield Cell(
                id=_id(context, setup),
                block=context.block.id,
                where=_conditions(context, setup),
                case=setup.case,
                request=request,
                pick=pick,
                why=why,
                altered=tuple(_program_differences(context))
                if context.program is not None
                else merged(
                    context.study.declared(context.block, setup.name, ran=setup.model, framework=context.framework),
                    _planned_differences(context, setup),
                ),
                extra=setup.extra,
            )


def _id(context: BlockContext, setup: Setup) -> str:
    """Name a cell by what the block varies, in the source's terms: `mxnet.googlenet.8gpus.2nodes.ib`."""
    block, point = context.block, setup.point
    words = [block.id, setup.name] if len(block.models) > 1 else [block.id]
    words += [f"{point.gpus}gpus"] if block.device == "gpu" else ["cpu"]
    words += [f"{point.nodes}nodes"] if point.nodes > 1 else []
    words += [f"batch{setup.printed}"] if len(block.batches) > 1 else []
    words += [setup.precision] if len(block.precisions) > 1 else []
    words += [setup.network] if setup.network else []
    words += [block.cases[setup.case]] if setup.case else []
    return ".".join(words)


def _conditions(context: BlockContext, setup: Setup) -> Conditions:
    """Return the conditions in the source's terms; sources name a batch in different ways, and some name a network that no traffic crosses."""
    block, point = context.block, setup.point
    on_gpus = block.device == "gpu"
    own = {
        "model": setup.name,
        "gpu": context.machine.gpu if context.device == "gpu" else None,
        "device": None if on_gpus else "cpu",
        "gpus": point.gpus if on_gpus else 0,
        "nodes": point.nodes,
        block.batch_term: setup.printed,
        "network": setup.network,
        "precision": setup.precision if len(block.precisions) > 1 else None,
    }
    return Conditions.model_validate({**block.where.stated, **{name: it for name, it in own.items() if it is not None}})


def _planned_differences(context: BlockContext, setup: Setup) -> Iterator[Altered]:
    """Yield every difference from the source's run that follows from the plan, except device and warm-up."""
    block, where, image = context.block, context.block.where, context.image
    wire = next((wire.name for wire in context.source.hardware.wires if wire.id == setup.network), None)
    emulated = link(context, setup.network)
    settings: tuple[ShortenedName, ...] = ("image_size", "fit", "profile_after", "profile_iterations")
    for field, published, here in (
        ("framework", where.framework, context.framework),
        ("version", where.version or NOT_STATED, image.version if image else None),
        ("model", setup.name if setup.model != block.models[setup.name] else None, setup.model),
        ("batch", f"{setup.printed:,}", f"{setup.batch:,}"),
        (
            "data",
            where.dataset or "real images" if where.data == "real" and block.image_size else None,
            f"images of {context.images.name}" if context.images else "synthetic images",
        ),
        (
            "network",
            wire if not context.machine.hosts else None,
            f"emulated nodes, {emulated.label.removeprefix('emulated ') if emulated else 'links as they are'}",
        ),
        ("iterations", _length(partial(getattr, block)), _length(context.shortened)),
        *((name, _count(getattr(block, name)), _count(context.shortened(name))) for name in settings),
    ):
        if published and here and published != here:
            yield Altered(field=field, published=published, here=here)


def _count(number: int | None) -> str:
    return NOT_STATED if number is None else f"{number:,}"


def _length(of: Callable[[ShortenedName], int | None]) -> str:
    """`1 epoch`, `4,000 iterations`, `10,000 samples`."""
    for name in LENGTHS:
        if count := of(name):
            return counted(count, name.removesuffix("s"))
    return NOT_STATED


Planned = tuple[Request, Pick]


def link(context: BlockContext, network: str | None) -> Link | None:
    """Return the emulated link that stands for a network between emulated nodes; None for links without a limit."""
    rate = context.study.networks[network].rate if network else None
    return Link(rate_mbit=parse_rate(rate), emulated=True) if rate else None


def _plan_one_node(context: BlockContext, setups: Sequence[Setup]) -> Iterator[tuple[Setup, Planned]]:
    """Plan one request for all scales if the batch per device, or the global batch, is the same at each; otherwise one per scale."""
    groups: list[tuple[Sequence[Setup], Scaling]] = [([setup], "weak") for setup in setups]
    if len({setup.each for setup in setups}) == 1:
        groups = [(setups, "weak")]
    elif len({_global_batch(setup) for setup in setups}) == 1:
        groups = [(setups, "strong")]
    more = {"nodes": 1} if context.machine.hosts else {}
    for group, scaling in groups:
        scales = tuple(sorted({setup.point.gpus for setup in group}))
        batch = group[0].each if scaling == "weak" else _global_batch(group[0])
        request = _request(context, group[0], scales=scales, batch=batch, scaling=scaling, **more)
        for setup in group:
            case = context.block.cases[setup.case] if setup.case else None
            yield setup, (request, _pick(context, setup, case=case))


def _plan_several_nodes(context: BlockContext, setups: Sequence[Setup]) -> Iterator[tuple[Setup, Planned]]:
    """Plan one request per scale, a sweep over links between emulated nodes; between real hosts one per wire, since they may lack some."""
    if context.machine.hosts:
        for setup in setups:
            wire = context.study.networks[setup.network].interconnect if setup.network else "auto"
            request = _nodes_request(context, setup, interconnect=(wire,))
            yield setup, (request, _pick(context, setup, interconnect=wire))
        return
    links = {setup: link(context, setup.network) for setup in setups}
    request = _nodes_request(context, setups[0], links=tuple(dict.fromkeys(links.values())))
    for setup, of in links.items():
        yield setup, (request, _pick(context, setup, link=of))


def _plan_program(context: BlockContext, setup: Setup) -> Planned:
    """Plan the source's own program for as long as the source ran it; at small scale it runs once."""
    block, program, device, devices = context.block, context.block.program, context.device, setup.point.gpus
    assert program is not None  # noqa: S101 - `why_impossible` refuses a block without one
    batch = setup.printed * (devices if block.batch_of == "device" else 1)
    placeholders = {
        "model": program.models[setup.name],
        "batch": batch,
        "gpus": devices,
        "indices": ",".join(map(str, range(devices))),
        "image_size": block.image_size,
        "iterations": -(-(block.iterations or 0) // devices),
        "data": DATA,
    }
    words = (*program.arguments, *(program.on_gpus if device == "gpu" else ()))
    user_request = context.user_request
    request = Request(
        image=user_request.image,
        mounts=user_request.mounts,
        engine=user_request.engine,
        data=user_request.data,
        device=device,
        gpus=(devices,) if device == "gpu" else None,
        workers=(devices,) if device == "cpu" else None,
        batch=-(-batch // devices),
        repeat=1 if context.scale == "small" else context.study.repeat,
        timeout_s=LONGEST_S,
        inactivity_timeout_s=LONGEST_S,
        name=f"{program.file} {setup.name}",
        dialect=program.dialect,
        pattern=program.pattern,
        command=("python", context.program or program.file, *(word.format(**placeholders) for word in words)),
    )
    return request, Pick(devices=devices, own_program=True)


def _program_differences(context: BlockContext) -> Iterator[Altered]:
    """Yield the only difference that the user's request can cause: the data."""
    where, data = context.block.where, context.user_request.data
    if where.data == "real" and data:
        yield Altered(field="data", published=where.dataset or "real images", here=f"those of {data.name}")


def _nodes_request(context: BlockContext, setup: Setup, **more: Any) -> Request:
    scales, nodes = (setup.point.gpus,), setup.point.nodes
    return _request(context, setup, scales=scales, batch=setup.each, scaling="weak", nodes=nodes, **more)


def _pick(context: BlockContext, setup: Setup, **more: Any) -> Pick:
    measured = not context.block.passes_only
    return Pick(devices=setup.point.gpus, nodes=setup.point.nodes, measured=measured, **more)


def _global_batch(setup: Setup) -> int | None:
    return setup.each * setup.point.gpus if setup.each is not None else None


def _request(
    context: BlockContext, setup: Setup, *, scales: tuple[int, ...], batch: int | None, scaling: Scaling, **more: Any
) -> Request:
    """Request what the study says; everything else stays at the suite's default."""
    block, image, device = context.block, context.image, context.device
    several_gpus = (
        scales[-1] > 1 and block.device == "gpu" and context.user_request.framework in (None, block.where.framework)
    )
    given = {name: getattr(context.user_request, name) for name in ("engine", "image", "mounts")}
    # Not every stand-in framework can record calls.
    left_out = OF_GPUS if device == "cpu" else {"calls"} if context.framework != block.named_framework else ()
    profile = tuple(kind for kind in block.profile if kind not in left_out)
    samples = context.shortened("samples")
    passes = -(-samples // setup.batch) if samples else None
    few = passes is not None and passes < PASSES[device]
    fields: dict[str, Any] = {
        "framework": context.framework,
        "version": image.version if image and not image.given else None,
        "hosts": context.machine.hosts,
        "model": setup.model,
        "device": device,
        "gpus": scales if device == "gpu" else None,
        "workers": (scales if block.device == "gpu" else (1,)) if device == "cpu" else None,
        # One core for each GPU, also for a single one.
        "threads": 1 if device == "cpu" and block.device == "gpu" else None,
        "batch": batch,
        "image_size": context.shortened("image_size"),
        "strategy": block.strategy if several_gpus else None,
        "kvstore": block.kvstore if several_gpus else None,
        "gpu_memory": block.gpu_memory if device == "gpu" and context.framework == "tensorflow" else None,
        "precision": setup.precision,
        "mode": block.mode,
        "iterations": PASSES[device] if few else passes or context.shortened("iterations"),
        "epochs": context.shortened("epochs"),
        "warmup": context.shortened("warmup") or (MIN_STEADY_WINDOWS if few else None),
        "fit": context.shortened("fit"),
        "concurrent": block.concurrent,
        "scaling": scaling,
        "repeat": 1 if context.scale == "small" else context.study.repeat,
        "data": context.images,
        **{name: value for name, value in given.items() if value},
        **more,
    }
    if profile:
        fields |= {
            "profile": profile,
            "profile_after": context.shortened("profile_after"),
            "profile_iterations": context.shortened("profile_iterations"),
            "profile_region": block.profile_region,
        }
    return Request.model_validate({name: value for name, value in fields.items() if value is not None})
