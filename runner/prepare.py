"""Makes ready what a plan needs before its first trial: the image or environment, and the data in the framework's own format."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from runner.cache import cache_dir
from runner.cluster import free_mib
from runner.engines import docker
from runner.engines.base import Engine
from runner.engines.docker import DockerEngine
from runner.engines.environment import ensure_environment, environment_python
from runner.engines.venv import VenvEngine
from runner.errors import RequestError
from runner.ground import WORKLOADS, Ground
from runner.images.build import ensure
from runner.pack import pack, packed_path
from runner.report.progress import Progress
from runner.results import EngineDetails, ImageUsed


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


def prepare(ground: Ground, shown: Progress) -> Prepared:
    """Build or find the image, or the environment where there is no container engine, and pack the data if MXNet reads it.

    Raises:
        RequestError: too little disk, or an image that can't be built here.
        RunFailedError: the data could not be packed.
    """
    started = time.monotonic()
    engine, image = _docker(ground, shown) if ground.engine.name == "docker" else _venv(ground, shown)
    data = Path(ground.dataset.path) if ground.dataset else None
    if data and ground.dataset and _needs_packing(ground):
        shown.stage(f"packing {ground.dataset.images} images into RecordIO")
        data = pack(
            data=ground.dataset,
            engine=engine,
            image=image.reference,
            cache=cache_dir(),
            cpus=ground.node.cores,
            say=shown.stage,
        )
    return _prepared(ground, engine, image, data, time.monotonic() - started)


def foresee(ground: Ground) -> Prepared:
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
        data = packed_path(ground.dataset, cache_dir())
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
    if image.library_path:
        raise RequestError(
            f"{image.name} finds its CUDA libraries only inside its image; start Docker and ask for ENGINE=docker"
        )
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
    """MXNet's own input pipeline reads RecordIO."""
    return bool(ground.dataset and ground.image.framework == "mxnet" and Path(ground.dataset.path).is_dir())
