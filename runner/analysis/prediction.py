"""What a data-parallel training would reach on more devices, from its step on one device and timed exchanges. Pure.

A step on n devices is a step on one, plus the part of the exchange that ends after the backward pass, plus the cost of training alongside
an exchange: a share of the step (copies, bookkeeping) and a share of the exchange's seconds (cores and memory that it takes from the
backward pass). Both shares are fitted to measured points (`fit`); reported errors are at points whose network was left out of the fit
(`held_out`).

DistributedDataParallel exchanges gradients in buckets, one after the other, each once its last gradient is ready: 1 MiB first, then 25 MiB
(torch.nn.parallel.DistributedDataParallel, `bucket_cap_mb`). With one message the exchange begins when the backward pass has ended.

An exchange of b bytes that took t seconds among m devices is split into latency, the time of the smallest message, and transfer, the rest.
Among n devices, latency scales with the depth of a tree, log2 n / log2 m, and transfer with what each device of a ring sends, (n - 1)/n
over (m - 1)/m (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import numpy as np

from runner.analysis.grading.measure import exchange_seconds
from runner.analysis.grading.metrics import student_t
from runner.core.frozen import Frozen
from runner.core.measurement import Backward, Exchange, Interval

Overlap = Literal["buckets", "one message"]

_FIRST_BUCKET: Final = 2**20
_BUCKET: Final = 25 * 2**20
_SHARE_SD, _ERROR_SD = 0.1, 0.03
FEWEST_POINTS: Final = 3
"""With fewer measured points, both shares of `Cost` are 0 and the error of a prediction is unknown."""


class Wire(Frozen):
    """Exchanges timed among some devices over one wire."""

    label: str
    devices: int
    nodes: int
    probe: tuple[Exchange, ...]

    @property
    def kind(self) -> str:
        """The kind of wire: `nvlink`, `ethernet`."""
        return self.label.split()[0].rstrip(",")

    def seconds(self, size_bytes: int, devices: int) -> float:
        """Seconds of an all-reduce of `size_bytes` among `devices`, two or more."""
        alone = exchange_seconds(self.probe, size_bytes) or 0.0
        latency = min(alone, self.probe[0].seconds)
        depth = math.log2(devices) / math.log2(self.devices)
        sent = (1 - 1 / devices) / (1 - 1 / self.devices)
        return latency * depth + (alone - latency) * sent


class OneDevice(Frozen):
    """A training on one device: its step time, when its gradients are ready, and how they are exchanged.

    `wire_share` is the bytes exchanged per byte of gradient: 0.5 in half precision.
    """

    network: str
    step_s: float
    backward: Backward
    overlap: Overlap = "buckets"
    wire_share: float = 1.0

    def messages(self) -> list[tuple[int, float]]:
        """The messages of a step, in order: (bytes, seconds from the start of the backward pass until all of it is ready)."""
        gradients = self.backward.gradients
        if self.overlap == "one message":
            return [(sum(size for size, _ in gradients), self.backward.backward_s)]
        found: list[tuple[int, float]] = []
        size, limit = 0, _FIRST_BUCKET * self.wire_share
        for own, ready in gradients:
            size += own
            if size >= limit:
                found.append((size, ready))
                size, limit = 0, _BUCKET * self.wire_share
        return [*found, (size, gradients[-1][1])] if size else found

    def exchange(self, wire: Wire, devices: int) -> tuple[float, float]:
        """``(exposed, total)`` seconds of a step's exchange: the part that ends after the backward pass, and all of it."""
        ended = total = 0.0
        for size, ready in self.messages():
            seconds = wire.seconds(size, devices)
            ended = max(ended, ready) + seconds
            total += seconds
        return max(0.0, ended - self.backward.backward_s), total


class Point(Frozen):
    """A step measured on several devices, and the same training on one."""

    one: OneDevice
    wire: Wire
    devices: int
    step_s: float


class Cost(Frozen):
    """The cost of an exchange beyond its exposed part: shares of the one-device step and of the exchange's seconds."""

    of_step: float = 0.0
    of_exchange: float = 0.0

    def step_s(self, one: OneDevice, wire: Wire, devices: int) -> float:
        """Seconds of a step on `devices` devices."""
        if devices == 1:
            return one.step_s
        exposed, total = one.exchange(wire, devices)
        return one.step_s * (1 + self.of_step) + exposed + self.of_exchange * total

    def error(self, point: Point) -> float:
        """Logarithm of the predicted ÷ the measured step time."""
        return math.log(self.step_s(point.one, point.wire, point.devices) / point.step_s)


class PredictedRow(Frozen):
    """One scale: throughput in the run's unit, its 95 % interval, efficiency, and the exposed communication of a step in seconds."""

    devices: int
    throughput: float
    ci95: Interval | None
    efficiency: float
    exposed_s: float
    measured: float | None = None


def fit(points: Sequence[Point]) -> Cost:
    """Fit both shares, at least 0, by least squares of the relative errors of step times.

    Ridge regression: a share that the points barely determine stays near 0. `_SHARE_SD` is its prior deviation, `_ERROR_SD` the errors'.
    """
    if len(points) < FEWEST_POINTS:
        return Cost()
    exchanges = [point.one.exchange(point.wire, point.devices) for point in points]
    measured = np.array([point.step_s for point in points])
    steps = np.array([point.one.step_s for point in points])
    terms = np.stack([steps, np.array([total for _, total in exchanges])], axis=1) / measured[:, None]
    residuals = 1 - (steps + np.array([exposed for exposed, _ in exchanges])) / measured
    terms, residuals = np.vstack([terms, np.eye(2) * _ERROR_SD / _SHARE_SD]), np.append(residuals, [0.0, 0.0])
    best, least = Cost(), float(residuals @ residuals)
    for chosen in ([0, 1], [0], [1]):
        shares = np.zeros(2)
        shares[chosen] = np.linalg.lstsq(terms[:, chosen], residuals, rcond=None)[0]
        remaining = residuals - terms @ shares
        if shares.min() >= 0 and float(remaining @ remaining) < least:
            best, least = Cost(of_step=float(shares[0]), of_exchange=float(shares[1])), float(remaining @ remaining)
    return best


def held_out(points: Sequence[Point]) -> tuple[tuple[Point, float], ...]:
    """Each point with the error of a fit to the points `alike` of all other networks: predicted ÷ measured throughput, less 1."""
    return tuple(
        (point, point.step_s / cost.step_s(point.one, point.wire, point.devices) - 1)
        for network in dict.fromkeys(point.one.network for point in points)
        for point in points
        if point.one.network == network
        for cost in [fit(others(points, point.one))]
    )


def others(points: Sequence[Point], one: OneDevice) -> list[Point]:
    """The points `alike` of all other networks."""
    return [other for other in alike(points, one) if other.one.network != one.network]


def alike(points: Iterable[Point], one: OneDevice) -> list[Point]:
    """The points whose gradients are exchanged as in this training, on which the cost depends."""
    return [point for point in points if point.one.overlap == one.overlap]


def predict(
    one: OneDevice,
    wire: Wire,
    points: Sequence[Point],
    *,
    devices: Iterable[int],
    throughput: float,
    ci95: Interval | None,
    measured: Sequence[tuple[int, float]] = (),
) -> tuple[PredictedRow, ...]:
    """Predict the throughput of a training at some scales, from `throughput` and its interval on one device.

    Beyond one device, the interval combines `ci95` with the held-out errors, as independent: those on wires of this kind, or all if these
    are fewer than `FEWEST_POINTS`; it is None if all are fewer. `measured` holds (devices, throughput) pairs to show alongside.
    """
    cost, measured_at = fit(alike(points, one)), dict(measured)
    held = held_out(points)
    own = [(point, error) for point, error in held if point.wire.kind == wire.kind]
    errors = [math.log1p(error) for _, error in (own if len(own) >= FEWEST_POINTS else held)]
    return tuple(
        PredictedRow(
            devices=scale,
            throughput=rate,
            ci95=_around(rate, errors, _half_width(throughput, ci95)) if scale > 1 else ci95,
            efficiency=one.step_s / step_s,
            exposed_s=one.exchange(wire, scale)[0] if scale > 1 else 0.0,
            measured=measured_at.get(scale),
        )
        for scale in devices
        for step_s in [cost.step_s(one, wire, scale)]
        for rate in [throughput * scale * one.step_s / step_s]
    )


def _half_width(value: float, interval: Interval | None) -> float:
    """Half-width of an interval around a rate, in logarithms; 0 without an interval."""
    return max(math.log(interval.high / value), math.log(value / interval.low)) if interval else 0.0


def _around(rate: float, errors: Sequence[float], half_width: float) -> Interval | None:
    """A 95 % interval that takes errors as draws around 0: their root mean square has as many degrees of freedom as there are errors."""
    if len(errors) < FEWEST_POINTS:
        return None
    spread = student_t(len(errors)) * math.sqrt(statistics.fmean(error * error for error in errors))
    factor = math.exp(math.hypot(spread, half_width))
    return Interval(low=rate / factor, high=rate * factor)
