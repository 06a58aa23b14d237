"""Makes ready what a plan needs before its first trial: the image or environment, and the data in the framework's own format."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from runner.cache import cache_dir
from runner.cluster import free_mib
from runner.dataset import PACKED
from runner.engines import docker
from runner.engines.base import Engine
from runner.engines.docker import DockerEngine
from runner.engines.environment import ensure_environment, environment_python
from runner.engines.venv import VenvEngine
from runner.errors import RequestError
from runner.ground import WORKLOADS, Ground
from runner.images.build import ensure
from runner.pack import PACKERS, pack, packed_path
from runner.report.progress import Progress
from runner.results import EngineDetails, ImageUsed
from runner.trial import Dataset


@dataclass(frozen=True)
class Prepared:
    """What every trial of a plan runs in.

    Attributes:
        data: what the program reads, None for synthetic data.
        seconds: how long it took to make all this ready.
    """

    engine: Engine
    engine_details: EngineDetails
    image_used: ImageUsed
    data: Path | None
    seconds: float


def prepare(ground: Ground, shown: Progress, *, image_size: int) -> Prepared:
    """Build or find the image, or the environment where there is no container engine, and pack the data if the framework wants that.

    Raises:
        RequestError: too little disk, or an image that can't be built here.
        RunFailedError: the data could not be packed.
    """
    started = time.monotonic()
    engine, image = _engine(ground, shown)
    data = Path(ground.dataset.path) if ground.dataset else None
    if ground.dataset and _needs_packing(ground):
        data = _pack(ground, ground.dataset, engine, image, shown, image_size=image_size)
    return _prepared(ground, engine, image, data, time.monotonic() - started)


def pack_data(ground: Ground, shown: Progress, *, image_size: int) -> Path:
    """Pack the data into the form that the framework reads, needed or not; returns where it is.

    Raises:
        RequestError: too little disk, or an image that can't be built here.
        RunFailedError: the data could not be packed.
    """
    if ground.dataset is None:
        raise RequestError("there is no data to pack; give a folder of class folders with JPEGs")
    engine, image = _engine(ground, shown)
    return _pack(ground, ground.dataset, engine, image, shown, image_size=image_size)


def _engine(ground: Ground, shown: Progress) -> tuple[Engine, ImageUsed]:
    return _docker(ground, shown) if ground.engine.name == "docker" else _venv(ground, shown)


def _pack(ground: Ground, data: Dataset, engine: Engine, image: ImageUsed, shown: Progress, *, image_size: int) -> Path:
    shown.stage(f"packing {data.images} images for {ground.image.framework}")
    return pack(
        data=data,
        framework=ground.image.framework,
        image_size=image_size,
        engine=engine,
        image=image.reference,
        cache=cache_dir(),
        cpus=ground.node.cores,
        say=shown.stage,
    )


def foresee(ground: Ground, *, image_size: int) -> Prepared:
    """What `prepare` will come to, without building, installing or packing anything; for a dry run."""
    engine: Engine
    if ground.engine.name == "docker":
        engine = DockerEngine(docker.connect(), WORKLOADS)
    else:
        engine = VenvEngine(
            environment_python(
                lock=ground.image.lock_path, requires_python=ground.image.requires_python, cache=cache_dir()
            ),
            WORKLOADS,
        )
    image = ImageUsed(reference=ground.image.reference, id=None, digest=None, lock_sha256=ground.image.lock_sha256)
    data = Path(ground.dataset.path) if ground.dataset else None
    if ground.dataset and _needs_packing(ground):
        data = packed_path(ground.dataset, cache_dir(), framework=ground.image.framework, image_size=image_size)
    return _prepared(ground, engine, image, data, 0.0)


def _prepared(ground: Ground, engine: Engine, image: ImageUsed, data: Path | None, seconds: float) -> Prepared:
    facts = engine.facts()
    details = EngineDetails(version=facts.version, reason=ground.engine.reason)
    return Prepared(engine=engine, engine_details=details, image_used=image, data=data, seconds=seconds)


def _docker(ground: Ground, shown: Progress) -> tuple[Engine, ImageUsed]:
    client = docker.connect()
    built = ensure(ground.image, client=client, cache=cache_dir(), report=shown.stage)
    image = ImageUsed(reference=built.reference, id=built.id, digest=built.digest, lock_sha256=built.lock_sha256)
    return DockerEngine(client, WORKLOADS), image


def _venv(ground: Ground, shown: Progress) -> tuple[Engine, ImageUsed]:
    image, cache = ground.image, cache_dir()
    shown.stage(f"no container: {image.name} runs in a virtual environment of the suite's own ({ground.engine.reason})")
    free = free_mib(cache)
    if (
        free < image.wheels_mib + image.size_mib
        and not environment_python(lock=image.lock_path, requires_python=image.requires_python, cache=cache).exists()
    ):
        raise RequestError(
            f"{cache} has {free} MiB free, {image.name} needs {image.wheels_mib + image.size_mib} MiB; free some or set DLSCALE_CACHE"
        )
    python = ensure_environment(
        lock=image.lock_path,
        requires_python=image.requires_python,
        cache=cache,
        report=shown.stage,
        extra_index=image.extra_index,
    )
    used = ImageUsed(
        reference=f"{image.name} (virtual environment)", id=None, digest=None, lock_sha256=image.lock_sha256
    )
    return VenvEngine(python, WORKLOADS), used


def _needs_packing(ground: Ground) -> bool:
    """Whether the data is a folder and the framework's own input pipeline reads none."""
    packer = PACKERS.get(ground.image.framework)
    return bool(ground.dataset and packer and packer.needed and Path(ground.dataset.path).suffix not in PACKED)
