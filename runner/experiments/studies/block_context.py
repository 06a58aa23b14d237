"""One block of a study on one machine at one scale: what it varies, the image that it runs in, and what this hardware can't. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from runner.core.request import Device, Precision
from runner.experiments.studies.model import Machine, Usable
from runner.experiments.studies.request import Scale
from runner.experiments.studies.study import LENGTHS, Block, Point, ShortenedName, Study
from runner.results.published.model import Published


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """One combination of what a block varies.

    Attributes:
        name: the network as the source calls it.
        model: MODEL that stands for it.
        printed, batch: the batch as printed, and what it is here; not yet a device's.
        each: the batch of a device; None where they can't share it equally.
        extra: whether it stands beside the source's own.
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
class Setting:
    """A block, and everything that decides what it becomes here.

    Attributes:
        data: real images that were given, for every block that takes images.
        sample: some that can be had, for blocks that can't do without.
        stand_in: a framework that is taken in place of the source's.
    """

    study: Study
    block: Block
    source: Published
    machine: Machine
    scale: Scale
    data: Path | None
    sample: Path
    stand_in: str | None = None

    @property
    def images(self) -> Path | None:
        """The real images that it reads; None for synthetic data, or where samples are no images."""
        if self.block.image_size is None:
            return None
        learns = self.block.mode == "converge" or self.block.fit is not None
        return self.data or (self.sample if learns else None)

    @property
    def small(self) -> bool:
        """Whether runs are shortened."""
        return self.scale == "small"

    @property
    def device(self) -> Device:
        """What the block runs on here."""
        return "cpu" if self.block.device == "cpu" else self.machine.device

    @property
    def framework(self) -> str:
        """The suite's name of it."""
        return self.stand_in or self.block.framework or self.block.where.framework or ""

    def printed(self, name: ShortenedName) -> int | None:
        """A number of the block."""
        number: int | None = getattr(self.block, name)
        return number

    def shortened(self, name: ShortenedName) -> int | None:
        """The same, or what stands for it at a small scale."""
        if not self.small:
            return self.printed(name)
        short = self.block.small
        number: int | None = getattr(short, name)
        if name in LENGTHS and any(getattr(short, other) for other in LENGTHS):
            return number
        return self.printed(name) if number is None else number

    def leaves(self) -> Iterator[Leaf]:
        """Every combination; at a small scale with those beside the source's own."""
        block = self.block
        also = tuple(point for point in block.small.also if point not in block.points) if self.small else ()
        for (name, model), precision, point in product(block.models.items(), block.precisions, (*block.points, *also)):
            batches = (point.batch,) if point.batch is not None else block.batches
            networks = block.networks if point.nodes > 1 else (None,)
            for printed, network, case in product(batches, networks, block.cases or (None,)):
                batch = max(1, printed // block.small.batch_divisor) if self.small else printed
                sharing = {"device": 1, "node": point.gpus // point.nodes, "all": point.gpus}[block.batch_of]
                yield Leaf(
                    name=name,
                    model=block.small.models.get(name, model) if self.small else model,
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
        """The first of the block's versions that runs here, one for several devices where the source had several; None if none does."""
        usable = [image for image in self._images() if image.misfit is None]
        several = self.block.device == "gpu" and max(point.gpus for point in self.block.points) > 1
        return next((image for image in usable if not (several and image.alone)), usable[0] if usable else None)

    def against(self, leaf: Leaf) -> str | None:
        """Why this machine can't run it, as half a sentence; None where it can."""
        if self.machine.device == "cpu" and self.block.gpu_only:
            return self.block.gpu_only
        if self.image is None:
            misfits = [image.misfit for image in self._images() if image.misfit]
            return misfits[0] if misfits else f"no image of this suite stands for it on a {self.device.upper()}"
        if leaf.each is None:
            return f"a batch of {leaf.batch} is not shared equally by {leaf.point.gpus} devices"
        return None if self.block.device == "cpu" else self._no_room(leaf.point, self.image)

    def _images(self) -> tuple[Usable, ...]:
        if self.stand_in:
            return tuple(
                image
                for image in reversed(self.machine.images)  # the newest is listed last
                if (image.framework, image.device) == (self.stand_in, self.device)
            )
        known = {(image.framework, image.version): image for image in self.machine.images}
        return tuple(known[self.framework, version] for version in self.block.versions.get(self.device, ()))

    def _no_room(self, point: Point, image: Usable) -> str | None:
        """Whether there are so many devices and nodes, and an image that knows them."""
        machine, each = self.machine, point.gpus // point.nodes
        asked = f"{point.gpus} GPUs" + (f" on {point.nodes} nodes" if point.nodes > 1 else "")
        if (point.gpus > 1 and image.alone) or (point.nodes > 1 and image.one_node):
            most = "trains on one device" if image.alone else "does not go beyond one node"
            return f"{asked}, and {image.framework} {image.version} {most}"
        emulated = point.nodes > 1 and machine.hosts is None
        if emulated:
            fits = machine.devices[0] >= point.gpus and machine.cores >= point.nodes
        else:
            fits = sum(count >= each for count in machine.devices) >= point.nodes
        if fits and emulated and not machine.may_emulate:
            return f"{asked}, and nodes are emulated in containers, for which no engine answers here"
        verb = "is" if sum(machine.devices) == 1 else "are"
        nodes = f" on {len(machine.devices)} nodes" if len(machine.devices) > 1 else ""
        return None if fits else f"{asked}, here {verb} {machine.in_words}{nodes}"
