"""Did the job train at all? Loss curves held against the band that a workload states. Pure.

A fast run whose model learns nothing measures something else than training: labels that never reach the device, gradients
that are dropped, a precision that overflows. These checks are for such mistakes; they do not judge accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from runner.core.workload import RealBand, SanityBand, SyntheticBand


def check_losses(losses: Sequence[float], *, data: str, num_classes: int, band: SanityBand) -> list[str]:
    """Say what is wrong with a loss curve.

    Args:
        losses: (iterations,) mean cross-entropy of each iteration in nats, warm-up included.
        data: `synthetic`, or anything else for real images.
        num_classes: classes that the model tells apart.
        band: what the workload asks for.

    Returns:
        One sentence a fault; empty when the curve is as a training job's should be.
    """
    if not losses:
        return ["no loss was reported"]
    broken = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if broken is not None:
        return [f"the loss is not finite at iteration {broken}; a smaller learning rate may train"]
    if data == "synthetic":
        return _check_first_loss(losses[0], num_classes=num_classes, band=band.synthetic)
    return _check_descent(losses, band=band.real)


def _check_first_loss(loss: float, *, num_classes: int, band: SyntheticBand) -> list[str]:
    low, high = (factor * math.log(num_classes) for factor in band.first_loss_factors)
    if low <= loss <= high:
        return []
    return [
        f"the first loss is {loss:.4g}, an untrained model of {num_classes} classes starts between {low:.4g} and {high:.4g}"
    ]


def _check_descent(losses: Sequence[float], *, band: RealBand) -> list[str]:
    if len(losses) < band.minimum_iterations:
        return []
    compared = max(1, int(len(losses) * band.compared_share))
    first, last = fmean(losses[:compared]), fmean(losses[-compared:])
    if last < first:
        return []
    return [
        f"the loss does not go down: {first:.4g} over the first {compared} iterations, {last:.4g} over the last {compared}"
    ]
