"""Photographs that stand for ImageNet in a study, if the user has no DATA: made once for a scale and an image size, and cached."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.core.cache import cache_dir, file_lock
from runner.core.request import Device
from runner.experiments.studies.model import Scale
from runner.run.data import SMALL, make_sample

_FOR_ACCURACY: Final = 2000
_FOR_EPOCHS: Final = 20_000
_FOR_A_LOOK: Final = 88


def small_images(scale: Scale, device: Device) -> int:
    """Return how many images of 32×32 pixels a sample has.

    On a CPU enough for an accuracy. On a GPU more, so that power and utilisation are those of training rather than of the pauses between
    epochs. At small scale eight per class, so that an epoch of ResNet-152 takes only seconds on two cores.
    """
    if scale == "small":
        return _FOR_A_LOOK
    return _FOR_EPOCHS if device == "gpu" else _FOR_ACCURACY


LARGE_IMAGES: Final = 500
"""How many images as large as ImageNet's, which are profiled for a few steps and not learned from."""

LARGE: Final = (350, 500)
"""Range of the sides in pixels at which they have about as many pixels as ImageNet's."""

_DOWNSAMPLED: Final = 64
"""Up to this size in pixels, networks are trained on a downsampled ImageNet; files of other sizes would take longer to decode than the source's."""

_SEED: Final = 1


@dataclass(frozen=True)
class Sample:
    """A sample of `images` crops: `side` is the range of their sides in pixels, `scale_to` the side that all are then scaled to, if any."""

    images: int
    side: tuple[int, int]
    scale_to: int | None = None

    @property
    def path(self) -> Path:
        """Its folder, whether or not it exists."""
        scaled = f"-{self.scale_to}px" if self.scale_to else ""
        return cache_dir() / "samples" / f"photographs-{self.images}{scaled}"

    def ensure(self, *, report: Callable[[str], None]) -> None:
        """Make it unless it exists; the folder gets its name only when it is complete."""
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(path.with_suffix(".lock"), waiting=lambda: report(f"waiting for another run to make {path}")):
            if not path.exists():
                draft = path.with_suffix(".draft")
                shutil.rmtree(draft, ignore_errors=True)
                make_sample(
                    draft, images=self.images, seed=_SEED, side=self.side, scale_to=self.scale_to, report=report
                )
                draft.rename(path)


def sample_for(scale: Scale, image_size: int, device: Device) -> Sample:
    """Return the sample for a training at `image_size` (height and width in pixels)."""
    if image_size > _DOWNSAMPLED:
        return Sample(LARGE_IMAGES, LARGE)
    return Sample(small_images(scale, device), SMALL, scale_to=image_size)
