"""How long a trial is measured: for so many iterations, or as many as take a time, in windows that are alike at every scale. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runner.core.request import Device, Request
from runner.plan.discovery import Resources

# Measured seconds of a process, unless ITERATIONS or EPOCHS say otherwise.
MEASURE_S: Final[Mapping[Device, float]] = {"cpu": 12.0, "gpu": 30.0}
# Window edges in a run of given length: enough for an interval, few enough not to be felt (an asynchronous engine such as MXNet's
# loses about 1 % of its rate on two cores when every iteration has an edge).
WINDOWS: Final = 10
# The longest stretch without an edge: a long run shows its rate and stays bounded in what a late fault can hide.
MAX_WINDOW: Final = 50


@dataclass(frozen=True)
class Length:
    """Measured iterations and those of a window, both 0 where the program finds them; and then for how many seconds."""

    iterations: int
    window: int
    measure_s: float | None = None


def length(
    request: Request, resources: Resources, *, total: int | None, scale: int, scales: Sequence[int], agree: bool
) -> Length:
    """How long one trial of a plan is measured.

    With strong scaling a step gets shorter the more devices share a batch: by so much longer one device is measured.

    Args:
        request: what was asked.
        resources: with the workload, whose number is taken by what needs one: a framework's own binary, and ranks that can't agree.
        total: iterations of one device; None where they follow the rate of the warm-up.
        scale: devices of the trial.
        scales: those of all trials of the plan.
        agree: whether its ranks can tell each other their rate.
    """
    workload, device = resources.workload, resources.device
    if total is None and request.mode != "infer" and resources.image.framework in workload.dialects:
        total = workload.defaults[device].iterations
    if total is None:
        measure_s = MEASURE_S[device] * (max(scales) if request.scaling == "strong" else 1)
        return Length(0, 0, measure_s) if agree else Length(workload.defaults[device].iterations, 1, measure_s)
    of_scale = {one: math.ceil(total / one) if request.scaling == "weak" else total for one in scales}
    return Length(of_scale[scale], window(min(of_scale.values())))


def window(iterations: int) -> int:
    """Iterations between two edges, of so many of a run or of an epoch."""
    return min(MAX_WINDOW, max(1, iterations // WINDOWS))


def counted(request: Request, resources: Resources) -> Request:
    """The same request with the workload's number of iterations where none is given: runs that do the same work one by one need it."""
    if request.iterations or request.epochs:
        return request
    return request.model_copy(update={"iterations": resources.workload.defaults[resources.device].iterations})
