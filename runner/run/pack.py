"""Packs a folder of JPEGs into the form that a framework reads, with the image's own framework, and keeps it by the data's digest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.core.container_spec import LABEL_ROLE, LABEL_RUN, ContainerSpec, Mount
from runner.core.trial import Dataset
from runner.engines.base import Engine
from runner.engines.user import give
from runner.run.execute import run_tool


@dataclass(frozen=True)
class Packer:
    """A program that packs a folder.

    Attributes:
        program: relative to `workloads/`.
        suffix: of what it writes.
        sized: whether it writes all images in one size, so that each image size is packed anew.
        needed: whether the framework's program reads nothing but packed data.
    """

    program: str
    suffix: str
    sized: bool = False
    needed: bool = True


PACKERS: Final[Mapping[str, Packer]] = {
    "caffe": Packer("imagenet_cnn/pack_lmdb.py", ".lmdb", sized=True),
    "mxnet": Packer("imagenet_cnn/pack_recordio.py", ".rec"),
    "tensorflow": Packer("imagenet_cnn/pack_tfrecord.py", ".tfrecord", needed=False),
}


def packed_path(data: Dataset, cache: Path, *, framework: str, image_size: int) -> Path:
    """Where the packed form of a data set is, or will be."""
    packer = PACKERS[framework]
    size = f"-{image_size}" if packer.sized else ""
    return cache / "packed" / framework / f"{data.digest[:16]}{size}" / f"images{packer.suffix}"


def pack(
    *,
    data: Dataset,
    framework: str,
    image_size: int,
    engine: Engine,
    image: str,
    cache: Path,
    cpus: tuple[int, ...],
    say: Callable[[str], None],
) -> Path:
    """Pack a folder once; a second call finds it packed.

    Args:
        data: the folder.
        framework: who is to read it.
        image_size: height and width in pixels that it will be trained at.
        engine: runs the packer.
        image: an image (or environment) of that framework and engine.
        cache: where packed data sets are kept.
        cpus: cores that the packer may use.
        say: told of every line of progress.

    Raises:
        RunFailedError: the packer failed.
    """
    target = packed_path(data, cache, framework=framework, image_size=image_size)
    if target.exists():
        return target
    packer = PACKERS[framework]
    size = (f"--image-size={image_size}",) if packer.sized else ()
    draft = target.parent.with_name(f"{target.parent.name}.{os.getpid()}.part")
    draft.mkdir(parents=True)
    try:
        give(draft, engine.user())
        words = (packer.program, target.name, *size)
        run_tool(engine, _spec(data, engine, image, out=draft, cpus=cpus, words=words), say)
        draft.replace(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _spec(
    data: Dataset, engine: Engine, image: str, *, out: Path, cpus: tuple[int, ...], words: tuple[str, ...]
) -> ContainerSpec:
    """The packer's container: it may write into the new directory, and nowhere else."""
    program, name, *more = words
    site = engine.site(Path(data.path))
    mounts = (*engine.mounts(Path(data.path)), Mount(source=str(out), target=engine.place(out), read_only=False))
    run_id = f"pack-{data.digest[:8]}-{os.getpid()}"
    argv = (
        site.python,
        f"{site.workloads}/lease.py",
        site.python,
        f"{site.workloads}/{program}",
        site.data or data.path,
        f"{engine.place(out)}/{name}",
        *more,
    )
    return ContainerSpec(
        name=f"dlscale-{run_id}",
        node="here",
        role="tool",
        image=image,
        argv=argv,
        env={"HOME": "/tmp", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108 - the container's own
        mounts=mounts,
        cpus=cpus,
        user=engine.user(),
        labels={LABEL_RUN: run_id, LABEL_ROLE: "tool"},
    )
