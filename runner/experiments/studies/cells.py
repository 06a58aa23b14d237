"""A study × a machine × a scale → its cells: what to ask of `bench` for each run of the source, or why this hardware can't. Pure.

On a machine without GPUs a source's n GPUs become n CPU workers, its nodes are emulated where there are no real ones, and its networks
become rates of their links. Each such difference is in `Cell.altered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from runner.core.request import Precision, Request
from runner.experiments.studies.block_context import Leaf, Setting
from runner.experiments.studies.differences import merged
from runner.experiments.studies.model import Altered, Cell, Machine
from runner.experiments.studies.options import Asked, ask, link
from runner.experiments.studies.request import Scale
from runner.experiments.studies.study import LENGTHS, NOT_STATED, ShortenedName, Study
from runner.results.published.model import Conditions, Published

Curve = tuple[str, Precision, int | None]


def cells(
    study: Study,
    *,
    source: Published,
    machine: Machine,
    scale: Scale,
    sample: Path,
    data: Path | None = None,
    stand_in: str | None = None,
) -> tuple[Cell, ...]:
    """Every run of the source, in the order of the study's file.

    Args:
        study: what to run.
        source: the published source, which says what its networks are.
        machine: what to run it on.
        scale: `small` shortens each block.
        sample: real images to take where a cell can't do without; they need not exist yet.
        data: real images for every cell that takes images.
        stand_in: a framework to take in place of the source's.
    """
    first = Setting(
        study=study,
        block=study.blocks[0],
        source=source,
        machine=machine,
        scale=scale,
        data=data,
        sample=sample,
        stand_in=stand_in,
    )
    return tuple(cell for block in study.blocks for cell in _of_block(replace(first, block=block)))


def requests(found: Sequence[Cell]) -> tuple[Request, ...]:
    """What there is to run, each once, in order."""
    return tuple(dict.fromkeys(cell.request for cell in found if cell.request))


def _of_block(setting: Setting) -> Iterator[Cell]:
    """A block's cells; scales beside the source's own only on a curve of which this machine can't run all."""
    whys = {leaf: setting.against(leaf) for leaf in setting.leaves()}
    curves: dict[Curve, list[Leaf]] = {}
    for leaf in whys:
        curves.setdefault((leaf.name, leaf.precision, leaf.printed if setting.block.batches else None), []).append(leaf)
    asked: dict[Leaf, Asked] = {}
    for curve in curves.values():
        lacking = any(whys[leaf] for leaf in curve if not leaf.extra)
        asked |= ask(setting, [leaf for leaf in curve if not whys[leaf] and (lacking or not leaf.extra)])
    for leaf, why in whys.items():
        request, pick = asked.get(leaf, (None, None))
        if request or not leaf.extra:
            yield Cell(
                id=_id(setting, leaf),
                block=setting.block.id,
                where=_where(setting, leaf),
                case=leaf.case,
                request=request,
                pick=pick,
                why=why,
                altered=merged(setting.study.declared(setting.block, leaf.name), _altered(setting, leaf)),
                extra=leaf.extra,
            )


def _id(setting: Setting, leaf: Leaf) -> str:
    """`mxnet.googlenet.8gpus.2nodes.ib`: what the block varies, in the source's terms."""
    block, point = setting.block, leaf.point
    words = [block.id, leaf.name] if len(block.models) > 1 else [block.id]
    words += [f"{point.gpus}gpus"] if block.device == "gpu" else ["cpu"]
    words += [f"{point.nodes}nodes"] if point.nodes > 1 else []
    words += [f"batch{leaf.printed}"] if len(block.batches) > 1 else []
    words += [leaf.precision] if len(block.precisions) > 1 else []
    words += [leaf.network] if leaf.network else []
    words += [block.cases[leaf.case]] if leaf.case else []
    return ".".join(words)


def _where(setting: Setting, leaf: Leaf) -> Conditions:
    """The source's terms; each source names a batch in its own way, and some a network where nothing crosses it."""
    block, point = setting.block, leaf.point
    on_gpus = block.device == "gpu"
    own = {
        "model": leaf.name,
        "gpu": setting.machine.gpu if setting.device == "gpu" else None,
        "device": None if on_gpus else "cpu",
        "gpus": point.gpus if on_gpus else 0,
        "nodes": point.nodes,
        block.batch_term: leaf.printed,
        "network": leaf.network,
        "precision": leaf.precision if len(block.precisions) > 1 else None,
    }
    return Conditions.model_validate({**block.where.stated, **{name: it for name, it in own.items() if it is not None}})


def _altered(setting: Setting, leaf: Leaf) -> Iterator[Altered]:
    """Every difference to what the source ran that the study does not declare, but for the device itself."""
    block, where, image = setting.block, setting.block.where, setting.image
    if where.framework and setting.framework != where.framework:
        yield Altered(field="framework", published=where.framework, here=setting.framework)
    if image and image.version != where.version:
        yield Altered(field="version", published=where.version or NOT_STATED, here=image.version)
    if leaf.model != block.models[leaf.name]:
        yield Altered(field="model", published=leaf.name, here=leaf.model)
    if leaf.batch != leaf.printed:
        yield Altered(field="batch", published=f"{leaf.printed:,}", here=f"{leaf.batch:,}")
    if where.data == "real" and block.image_size:
        here = f"images of {setting.images.name}" if setting.images else "synthetic images"
        yield Altered(field="data", published=where.dataset or "real images", here=here)
    if leaf.network and not setting.machine.hosts:
        wire = next(wire.name for wire in setting.source.hardware.wires if wire.id == leaf.network)
        held = link(setting, leaf.network)
        here = f"emulated nodes, {held.label.removeprefix('emulated ') if held else 'links as they are'}"
        yield Altered(field="network", published=wire, here=here)
    yield from _shorter(setting)


def _shorter(setting: Setting) -> Iterator[Altered]:
    """What a small scale makes less of; warm-up aside, of which no source speaks."""
    before, after = _length(setting.printed), _length(setting.shortened)
    if before != after:
        yield Altered(field="iterations", published=before, here=after)
    names: tuple[ShortenedName, ...] = ("image_size", "fit", "profile_after", "profile_iterations")
    for name in names:
        was, here = setting.printed(name), setting.shortened(name)
        if was != here:
            yield Altered(field=name, published=_said(was), here=_said(here))


def _length(of: Callable[[ShortenedName], int | None]) -> str:
    """`1 epoch`, `4,000 iterations`, `10,000 samples`."""
    for name in LENGTHS:
        if count := of(name):
            return f"{count:,} {name if count > 1 else name[:-1]}"
    return NOT_STATED


def _said(value: int | None) -> str:
    return NOT_STATED if value is None else f"{value:,}"
