"""Prepares training data with programs of the suite: packs it for a framework, makes a small sample, or imports ImageNet at 32×32 pixels.

A folder of JPEGs is packed with the image's own framework and cached by its digest; the sample is made from photographs that ship with
Python packages.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runner.core.cache import cache_dir, file_lock
from runner.core.container_spec import HOME, LABEL_ROLE, LABEL_RUN, ContainerSpec, Mount
from runner.core.dataset import PACKED_FOR
from runner.core.errors import RequestError, RunFailedError
from runner.core.provenance import SUITE_ROOT
from runner.core.trial import Dataset
from runner.engines.base import Engine, grant_write
from runner.engines.environment import ensure_environment
from runner.engines.process import CommandError, follow
from runner.plan.discovery import WORKLOADS
from runner.run.execute import run_tool

SAMPLE_LOCK: Final = SUITE_ROOT / "requirements-sample.lock"
SAMPLE_PYTHON: Final = ">=3.10"
# Range of the sides in pixels at which a network learns within a minute.
SMALL: Final = (96, 160)


def _without_result(say: Callable[[str], None]) -> Callable[[str], None]:
    """Pass on a program's lines, but not its result: JSON with the name of every class, of which ImageNet has a thousand."""
    return lambda line: None if line.startswith("{") else say(line)


def make_sample(
    directory: Path,
    *,
    images: int,
    seed: int,
    side: tuple[int, int] = SMALL,
    scale_to: int | None = None,
    report: Callable[[str], None],
) -> None:
    """Write `images` real, square JPEGs into a new or empty directory.

    `side` is the range of their sides in pixels as they are cut out of photographs, `scale_to` the side that all are then scaled to.
    """
    python = ensure_environment(lock=SAMPLE_LOCK, requires_python=SAMPLE_PYTHON, cache=cache_dir(), report=report)
    program = str(WORKLOADS / "imagenet_cnn" / "make_sample.py")
    words = [f"--images={images}", f"--seed={seed}", f"--side={side[0]}-{side[1]}"]
    words += [f"--scale-to={scale_to}"] if scale_to else []
    try:
        follow([str(python), program, str(directory.absolute()), *words], on_line=_without_result(report))
    except CommandError as error:
        raise RunFailedError(f"no sample was made in {directory}: {error.last_line}") from error


def import_imagenet32(source: Path, directory: Path, *, report: Callable[[str], None]) -> None:
    """Write ImageNet's published 32×32 files as class folders. Raises RequestError if they are other files or the directory is in use."""
    python = ensure_environment(lock=SAMPLE_LOCK, requires_python=SAMPLE_PYTHON, cache=cache_dir(), report=report)
    program = str(WORKLOADS / "imagenet_cnn" / "import_imagenet32.py")
    try:
        follow(
            [str(python), program, str(source.absolute()), str(directory.absolute())], on_line=_without_result(report)
        )
    except CommandError as error:
        if error.code == RequestError.exit_code:
            raise RequestError(error.last_line) from error
        raise RunFailedError(f"nothing was written to {directory}: {error.last_line}") from error


def packed_path(data: Dataset, cache: Path, *, framework: str, image_size: int) -> Path:
    """The path of a data set's packed form, whether or not it exists yet."""
    form = PACKED_FOR[framework]
    size = f"-{image_size}" if form.sized else ""
    return cache / "packed" / framework / f"{data.digest[:16]}{size}" / f"images{form.suffix}"


def pack(
    data: Dataset,
    framework: str,
    engine: Engine,
    image: str,
    *,
    image_size: int,
    cpus: tuple[int, ...],
    say: Callable[[str], None],
) -> Path:
    """Pack a folder for a framework, in its image or environment, and return the path; a second call finds it packed.

    `image_size` is the height and width in pixels for training. Raises RunFailedError if the packer fails.
    """
    target = packed_path(data, cache_dir(), framework=framework, image_size=image_size)
    if target.exists():
        return target
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    lock = target.parent.with_name(f"{target.parent.name}.lock")
    with file_lock(lock, waiting=lambda: say("waiting for another run that packs the same data")):
        if target.exists():  # packed by another run meanwhile
            return target
        draft = target.parent.with_name(f"{target.parent.name}.{os.getpid()}.part")
        draft.mkdir(parents=True)
        out = engine.place(draft)
        site, form = engine.site(Path(data.path)), PACKED_FOR[framework]
        run_id = f"pack-{data.digest[:8]}-{os.getpid()}"
        spec = ContainerSpec(
            name=f"dlscale-{run_id}",
            node="here",
            role="tool",
            image=image,
            argv=(
                *(site.python, f"{site.workloads}/lease.py"),
                *(site.python, f"{site.workloads}/{form.program}", site.data or data.path, f"{out}/{target.name}"),
                *((f"--image-size={image_size}",) if form.sized else ()),
            ),
            env={"HOME": HOME, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            # The packer may write to the new directory only.
            mounts=(*engine.mounts(Path(data.path)), Mount(source=str(draft), target=out, read_only=False)),
            cpus=cpus,
            user=engine.user(),
            labels={LABEL_RUN: run_id, LABEL_ROLE: "tool"},
        )
        try:
            grant_write(draft, spec.user)
            run_tool(engine, spec, _without_result(say))
            draft.replace(target.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return target
