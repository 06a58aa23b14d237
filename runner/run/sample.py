"""Makes a small real data set out of photographs that ship inside Python packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from runner.core.cache import cache_dir
from runner.core.errors import RunFailedError
from runner.core.provenance import SUITE_ROOT
from runner.engines.environment import ensure_environment
from runner.engines.process import CommandError, follow
from runner.plan.discovery import WORKLOADS

SAMPLE_LOCK: Final = SUITE_ROOT / "requirements-sample.lock"
SAMPLE_PYTHON: Final = ">=3.10"
# Pixels a side with which a network learns in a minute.
SMALL: Final = (96, 160)


def make_sample(
    directory: Path, *, images: int, seed: int, side: tuple[int, int] = SMALL, report: Callable[[str], None]
) -> None:
    """Write so many real JPEGs, squares of so many pixels a side, into a directory that does not exist yet, or is empty."""
    python = ensure_environment(lock=SAMPLE_LOCK, requires_python=SAMPLE_PYTHON, cache=cache_dir(), report=report)
    program = str(WORKLOADS / "imagenet_cnn" / "make_sample.py")
    words = (f"--images={images}", f"--seed={seed}", f"--side={side[0]}-{side[1]}")
    try:
        follow([str(python), program, str(directory.absolute()), *words], on_line=report)
    except CommandError as error:
        raise RunFailedError(f"no sample was made in {directory}: {error.last_line}") from error
