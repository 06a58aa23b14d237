"""Types of a record's telemetry figures. Percentages are 0..100; None is an unavailable figure, and `missing` says why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import model_validator

from runner.core.events import PowerReading
from runner.core.frozen import Frozen

if TYPE_CHECKING:
    import numpy.typing as npt

EnergyMethod = Literal["energy counter", "integrated power"]
Samples: TypeAlias = "Mapping[str, npt.NDArray[Any]]"
"""Table `telemetry`: one array a column, rows in order of arrival; an empty cell is NaN or None."""


class Range(Frozen):
    """Smallest, time-weighted mean and largest value of a quantity, in its own unit."""

    min: float
    avg: float
    max: float


class Span(Frozen):
    """A time span in seconds of one node's monotonic clock."""

    start: float
    end: float

    @model_validator(mode="after")
    def _ends_after_start(self) -> Span:
        if self.end <= self.start:
            raise ValueError(f"a span from {self.start} to {self.end} holds no time")
        return self

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


class NodeSpans(Frozen):
    """A node's measured span (from the first counted window of its ranks to the end of the last), and its idle span before the job.

    `gpus_idle` replaces a missing `idle`, or one of less than 1 s: it lasts until a rank has imported its framework, before which the job uses no GPU.
    `pauses` are spans within `measured` in which no rank trained, such as validation between epochs; figures exclude them.
    """

    node: str
    measured: Span
    idle: Span | None
    gpus_idle: Span | None = None
    pauses: tuple[Span, ...] = ()


class ForeignProcess(Frozen):
    """A process outside the job that computed on one of the job's GPUs."""

    pid: int
    memory_mib: float | None


class Missing(Frozen):
    """Figures of one device that are unavailable for all or part of the measured span.

    `fields` are columns of table `telemetry`, all if empty; `device` is `gpu0`, ..., `host`, or `gpu` for all GPUs of the node.
    """

    node: str
    device: str
    fields: tuple[str, ...]
    reason: str


class GpuTelemetry(Frozen):
    """One GPU over the measured span.

    The mean of `power_w` is `energy_j` ÷ `measured_s`; its ends are the smallest and the largest sample, which may not enclose the mean.
    By `power_reading` each sample is of an instant, or NVML's usage (nvmlDeviceGetPowerUsage), which on Ampere (except GA100) and later is a mean
    over the last second; None from samplers that only had the usage. Spans under 2 s have neither power nor energy.
    """

    node: str
    index: int
    uuid: str
    name: str
    measured_s: float
    power_limit_w: float | None
    default_power_limit_w: float | None
    counters: Literal["gpm", "dcgm"] | None  # source of the figures of pipes, SMs and DRAM
    power_reading: PowerReading | None = None
    utilisation: Range | None  # NVML's: share of time during which any kernel ran
    fp32_utilisation: Range | None  # share of cycles during which the FP32 pipe was active
    power_w: Range | None
    temperature_c: Range | None
    memory_mib: Range | None
    memory_utilisation_percent: Range | None  # NVML's: share of time during which device memory was read or written
    sm_active_percent: Range | None
    sm_occupancy_percent: Range | None
    tensor_percent: Range | None
    fp16_percent: Range | None
    fp64_percent: Range | None
    dram_percent: Range | None
    sm_clock_mhz: Range | None
    memory_clock_mhz: Range | None
    temperature_rise_c: float | None  # mean of the span's last quarter minus mean of its first quarter
    energy_j: float | None
    energy_method: EnergyMethod | None
    integrated_power_j: float | None  # integral of the power samples, as a check of `energy_j`
    idle_power_w: float | None  # lowest mean over 1 s before the job
    pcie_rx_bytes: int | None  # this and the next three: from byte counters, else from the mean of sampled rates
    pcie_tx_bytes: int | None
    nvlink_rx_bytes: int | None
    nvlink_tx_bytes: int | None
    slowdown_percent: dict[str, float] | None  # by reason, the share of the span with clocks reduced by the driver
    ecc_corrected: int | None  # errors between the last reading before the span and the first after it
    ecc_uncorrected: int | None
    foreign: tuple[ForeignProcess, ...] | None


class HostTelemetry(Frozen):
    """A node's processors, memory, disks and network (without the loopback) over the measured span, including use by other processes.

    Power and energy are of the processor packages, by RAPL. The mean of `power_w` is energy ÷ time, its ends are the extremes between two
    samples; idle power is the lowest mean over 1 s before the job. `sampler_percent` is the sampler's own share of all CPUs.
    """

    node: str
    measured_s: float
    cores: int | None
    cpu_percent: Range | None
    core_percent: tuple[float, ...] | None
    memory_mib: Range | None
    disk_read_bytes: int | None
    disk_write_bytes: int | None
    net_rx_bytes: int | None
    net_tx_bytes: int | None
    clock_mhz: Range | None
    power_w: Range | None
    energy_j: float | None
    idle_power_w: float | None
    sampler_percent: float | None


class Telemetry(Frozen):
    """Telemetry of all nodes over the measured windows of a run.

    Attributes:
        hz: requested samples a second, the lowest of all nodes; None if no sampler reported.
        device: the devices that trained: GPUs, or CPU workers, whose figures are those of their hosts.
        spans: the measured span of each node; empty if several runs were pooled.
        samples: the amount that throughput counts (images, tokens, seconds of audio, ...) in the windows that count.
        seconds: length of these windows; None in older records that have not been regraded.
        energy_j: of all devices that trained; None unless it is known for each, and for spans under 2 s.
        samples_per_joule: `samples` ÷ `energy_j`.
    """

    hz: float | None
    device: Literal["cpu", "gpu"]
    spans: tuple[NodeSpans, ...]
    samples: float
    seconds: float | None = None
    gpus: tuple[GpuTelemetry, ...]
    hosts: tuple[HostTelemetry, ...]
    energy_j: float | None
    samples_per_joule: float | None
    missing: tuple[Missing, ...]

    @property
    def trained(self) -> tuple[GpuTelemetry | HostTelemetry, ...]:
        """The devices that trained."""
        return self.gpus if self.device == "gpu" else self.hosts

    def mean(self, figure: Callable[[GpuTelemetry], Range | None]) -> float | None:
        """Mean of a figure over the GPUs, weighted by their measured seconds; None unless each GPU has it."""
        return _mean([figure(gpu) for gpu in self.gpus], [gpu.measured_s for gpu in self.gpus])

    @property
    def utilisation_percent(self) -> float | None:
        """Mean utilisation of the devices that trained: NVML's for GPUs, that of all CPUs for hosts; None unless each is known."""
        if self.device == "gpu":
            return self.mean(lambda gpu: gpu.utilisation)
        return _mean([host.cpu_percent for host in self.hosts], [host.measured_s for host in self.hosts])

    @property
    def power_w(self) -> float | None:
        """Total mean power of the devices that trained: energy ÷ time, so that throughput ÷ power is `samples_per_joule`."""
        return None if self.energy_j is None or self.seconds is None else self.energy_j / self.seconds

    def why_missing(self, node: str, device: str, field: str) -> str | None:
        """Return why a device lacks a figure; None if it has the figure, or if no reason is known."""
        reasons = (
            entry.reason
            for entry in self.missing
            if entry.node == node
            and entry.device in {device, device.rstrip("0123456789")}
            and (field in entry.fields or not entry.fields)
        )
        return next(reasons, None)


def over_time(values: Sequence[float], seconds: Sequence[float]) -> float:
    """Mean of values, each weighted by the time over which it was measured."""
    return math.fsum(value * weight for value, weight in zip(values, seconds, strict=True)) / math.fsum(seconds)


def _mean(ranges: Sequence[Range | None], seconds: Sequence[float]) -> float | None:
    known = [one.avg for one in ranges if one]
    return over_time(known, seconds) if known and len(known) == len(ranges) else None
