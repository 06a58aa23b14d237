"""Real images for the cells that learn, where the user gave none: a sample of photographs, made once and kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runner.core.cache import alone, cache_dir
from runner.experiments.studies.request import Scale
from runner.run.sample import make_sample

IMAGES: Final[dict[Scale, int]] = {"full": 2000, "small": 88}
"""Enough for an accuracy; the small one has eight of each class, so that an epoch of ResNet-152 ends within seconds on two cores."""

SEED: Final = 1


def sample_path(scale: Scale) -> Path:
    """Where it is, or will be."""
    return cache_dir() / "samples" / f"photographs-{IMAGES[scale]}"


def ensure_sample(scale: Scale, *, report: Callable[[str], None]) -> Path:
    """Make it if it is not there; a half-made one never has its name.

    Raises:
        RequestError: what makes it can't be installed.
    """
    path = sample_path(scale)
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path.with_suffix(".lock"), waiting=lambda: report(f"waiting for another run to make {path}")):
        if not path.exists():
            draft = path.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            make_sample(draft, images=IMAGES[scale], seed=SEED, report=report)
            draft.rename(path)
    return path
