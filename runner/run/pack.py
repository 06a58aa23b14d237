"""Packs a folder of JPEGs into the form that a framework reads, with the image's own framework, and keeps it by the data's digest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.core.cache import cache_dir
from runner.core.container_spec import HOME, LABEL_ROLE, LABEL_RUN, ContainerSpec, Mount
from runner.core.trial import Dataset
from runner.engines.base import Engine, give
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
    data: Dataset,
    framework: str,
    engine: Engine,
    image: str,
    *,
    image_size: int,
    cpus: tuple[int, ...],
    say: Callable[[str], None],
) -> Path:
    """Pack a folder once; a second call finds it packed.

    Args:
        data: the folder.
        framework: who is to read it.
        engine: runs the packer.
        image: an image (or environment) of that framework and engine.
        image_size: height and width in pixels that it will be trained at.
        cpus: cores that the packer may use.
        say: told of every line of progress.

    Raises:
        RunFailedError: the packer failed.
    """
    target = packed_path(data, cache_dir(), framework=framework, image_size=image_size)
    if target.exists():
        return target
    draft = target.parent.with_name(f"{target.parent.name}.{os.getpid()}.part")
    draft.mkdir(parents=True)
    out = engine.place(draft)
    site, packer = engine.site(Path(data.path)), PACKERS[framework]
    run_id = f"pack-{data.digest[:8]}-{os.getpid()}"
    spec = ContainerSpec(
        name=f"dlscale-{run_id}",
        node="here",
        role="tool",
        image=image,
        argv=(
            *(site.python, f"{site.workloads}/lease.py"),
            *(site.python, f"{site.workloads}/{packer.program}", site.data or data.path, f"{out}/{target.name}"),
            *((f"--image-size={image_size}",) if packer.sized else ()),
        ),
        env={"HOME": HOME, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        # It may write into the new directory, and nowhere else.
        mounts=(*engine.mounts(Path(data.path)), Mount(source=str(draft), target=out, read_only=False)),
        cpus=cpus,
        user=engine.user(),
        labels={LABEL_RUN: run_id, LABEL_ROLE: "tool"},
    )
    try:
        give(draft, spec.user)
        run_tool(engine, spec, say)
        draft.replace(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target
