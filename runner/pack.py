"""Packs a folder of JPEGs into MXNet's RecordIO, inside the image's own MXNet, and keeps the result by the data's digest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runner.engines.base import Engine
from runner.engines.user import IMAGE_USER
from runner.execute import run_tool
from runner.spec import LABEL_ROLE, LABEL_RUN, ContainerSpec, Mount
from runner.trial import Dataset

PROGRAM: Final = "imagenet_cnn/pack_recordio.py"
NAME: Final = "images.rec"


def packed_path(data: Dataset, cache: Path) -> Path:
    """Where the packed form of a data set is, or will be."""
    return cache / "recordio" / data.digest[:16] / NAME


def pack(
    *, data: Dataset, engine: Engine, image: str, cache: Path, cpus: tuple[int, ...], say: Callable[[str], None]
) -> Path:
    """Pack a folder once; a second call finds it packed.

    Args:
        data: the folder.
        engine: runs the packer.
        image: an MXNet image (or environment) of that engine.
        cache: where packed data sets are kept.
        cpus: cores that the packer may use.
        say: told of every line of progress.

    Raises:
        RunFailedError: the packer failed.
    """
    target = packed_path(data, cache)
    if target.exists():
        return target
    draft = target.parent.with_name(f"{target.parent.name}.{os.getpid()}.part")
    draft.mkdir(parents=True)
    try:
        if engine.user() == IMAGE_USER and os.getuid() == 0:
            os.chown(draft, *(int(part) for part in IMAGE_USER.split(":")))
        run_tool(engine, _spec(data, engine, image, draft, cpus), say)
        draft.replace(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _spec(data: Dataset, engine: Engine, image: str, out: Path, cpus: tuple[int, ...]) -> ContainerSpec:
    """The packer's container: the only one that may write anywhere, and only into the new directory."""
    site = engine.site(Path(data.path))
    mounts = (*engine.mounts(Path(data.path)), Mount(source=str(out), target=engine.place(out), read_only=False))
    run_id = f"pack-{data.digest[:8]}-{os.getpid()}"
    argv = (
        site.python,
        f"{site.workloads}/lease.py",
        site.python,
        f"{site.workloads}/{PROGRAM}",
        site.data or data.path,
        f"{engine.place(out)}/{NAME}",
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
