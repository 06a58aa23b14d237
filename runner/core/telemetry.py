"""The figures of telemetry, as a record keeps them. Percent are 0..100; None is a figure that can't be had, and `missing` says why."""

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
"""Table `telemetry`, an array a column, rows in the order in which they came; a cell that is none is NaN or None."""


class Range(Frozen):
    """Smallest, time-weighted mean and largest value of a quantity, in its own unit."""

    min: float
    avg: float
    max: float


class Span(Frozen):
    """A stretch of time in seconds of one node's monotonic clock."""

    start: float
    end: float

    @model_validator(mode="after")
    def _goes_forward(self) -> Span:
        if self.end <= self.start:
            raise ValueError(f"a span from {self.start} to {self.end} holds no time")
        return self

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start


class NodeSpans(Frozen):
    """When a node's figures were measured (from the first counted window of its ranks to the end of the last), and when nothing ran on it.

    `gpus_idle`: when nothing had used its GPUs yet, where less than a second of `idle` came before the job. `pauses`: in `measured`, when no
    rank trained, such as a validation between two epochs: no figure is of them.
    """

    node: str
    measured: Span
    idle: Span | None
    gpus_idle: Span | None = None
    pauses: tuple[Span, ...] = ()


class ForeignProcess(Frozen):
    """A process that computed on a GPU of the job and was none of it."""

    pid: int
    memory_mib: float | None


class Missing(Frozen):
    """Figures of one device that can't be had, or only for part of the measured span; `fields` are columns of table `telemetry`.

    `device` is `gpu0`, ..., `host`, or `gpu` for all that the node might have.
    """

    node: str
    device: str
    fields: tuple[str, ...]
    reason: str


class GpuTelemetry(Frozen):
    """One GPU over the measured span.

    Power is `energy_j` ÷ `measured_s`, between the smallest and the largest sample, which may not enclose it: samples are, by
    `power_reading`, of the instant, or NVML's usage, a mean of the second before on Ampere and later (nvmlDeviceGetPowerUsage); None as of
    samplers that knew the latter only. Neither power nor energy is told of a span under 2 s.
    """

    node: str
    index: int
    uuid: str
    name: str
    measured_s: float
    power_limit_w: float | None
    default_power_limit_w: float | None
    counters: Literal["gpm", "dcgm"] | None  # whose are the figures of pipes, SMs and DRAM
    power_reading: PowerReading | None = None
    utilisation: Range | None  # NVML's: share of time in which any kernel ran
    fp32_utilisation: Range | None  # share of cycles in which the FP32 pipe was active
    power_w: Range | None
    temperature_c: Range | None
    memory_mib: Range | None
    memory_utilisation_percent: Range | None  # NVML's: share of time in which device memory was read or written
    sm_active_percent: Range | None
    sm_occupancy_percent: Range | None
    tensor_percent: Range | None
    fp16_percent: Range | None
    fp64_percent: Range | None
    dram_percent: Range | None
    sm_clock_mhz: Range | None
    memory_clock_mhz: Range | None
    temperature_rise_c: float | None  # mean of the last quarter of the span less that of the first
    energy_j: float | None
    energy_method: EnergyMethod | None
    integrated_power_j: float | None  # power over time, to hold against `energy_j`
    idle_power_w: float | None  # lowest mean over a second before the job
    pcie_rx_bytes: (
        int | None
    )  # this and the next three: by counters, or where there are none by the mean of GPM's rates
    pcie_tx_bytes: int | None
    nvlink_rx_bytes: int | None
    nvlink_tx_bytes: int | None
    slowdown_percent: (
        dict[str, float] | None
    )  # by reason, the share of the span in which the driver held the clocks down
    ecc_corrected: int | None  # errors from the last reading before the span to the first after it
    ecc_uncorrected: int | None
    foreign: tuple[ForeignProcess, ...] | None


class HostTelemetry(Frozen):
    """A node's processors, memory, disks and network (but the loopback) over the measured span: of the whole host, whoever used them.

    Power and energy are the processors' packages' by RAPL: power is energy ÷ time, between the smallest and the largest rise between two
    samples; idle is the lowest mean over a second before the job. `sampler_percent` is what the sampler itself used of all CPUs.
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
    """What all nodes of a run did while it was measured.

    Attributes:
        hz: samples a second that were asked for; None where no sampler spoke.
        device: what trained: GPUs, or workers on CPUs, whose figures are those of their hosts.
        spans: when, by node; empty where several runs were pooled.
        samples: what throughput counts (images, tokens, seconds of audio, ...) in the windows that it is over.
        seconds: of these windows; None in records that are older than it, until they are regraded.
        energy_j: of all devices that trained; None unless each is known, and of spans under 2 s.
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
        """Mean of a figure over the GPUs, by the seconds that each was measured; None unless each has it."""
        return _mean([figure(gpu) for gpu in self.gpus], [gpu.measured_s for gpu in self.gpus])

    @property
    def utilisation_percent(self) -> float | None:
        """Mean utilisation of the devices that trained: NVML's of GPUs, all CPUs' of hosts; None unless each is known."""
        if self.device == "gpu":
            return self.mean(lambda gpu: gpu.utilisation)
        return _mean([host.cpu_percent for host in self.hosts], [host.measured_s for host in self.hosts])

    @property
    def power_w(self) -> float | None:
        """Mean power of all devices that trained together: their energy ÷ time, so that throughput ÷ power is `samples_per_joule`."""
        return None if self.energy_j is None or self.seconds is None else self.energy_j / self.seconds

    def why_missing(self, node: str, device: str, field: str) -> str | None:
        """Why a device has no such figure; None where nobody said, or where it has one."""
        told = (
            entry.reason
            for entry in self.missing
            if entry.node == node
            and entry.device in {device, device.rstrip("0123456789")}
            and (field in entry.fields or not entry.fields)
        )
        return next(told, None)


def over_time(values: Sequence[float], seconds: Sequence[float]) -> float:
    """Mean weighted by the time that each value was measured over."""
    return math.fsum(value * weight for value, weight in zip(values, seconds, strict=True)) / math.fsum(seconds)


def _mean(ranges: Sequence[Range | None], seconds: Sequence[float]) -> float | None:
    known = [one.avg for one in ranges if one]
    return over_time(known, seconds) if known and len(known) == len(ranges) else None
