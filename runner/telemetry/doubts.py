"""What telemetry says against figures: sentences that make a record `degraded`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from runner.telemetry.model import GpuTelemetry, HostTelemetry, Telemetry

# A share below it is a single sample that came at a bad moment.
SLOWED_PERCENT: Final = 1.0
# Of all CPUs of a node: what the sampler may cost.
SAMPLER_PERCENT: Final = 1.0
RISE_C: Final = 5.0
# In shorter spans every GPU that was idle before still warms up.
RISE_SPAN_S: Final = 30.0
POWER_CAP: Final = "power cap"


def doubts(telemetry: Telemetry, *, shared: bool = False) -> tuple[str, ...]:
    """One sentence for each thing that disturbed the measured span; with `shared`, others on the devices did not."""
    several = len(telemetry.hosts) > 1
    found: list[str] = []
    for gpu in telemetry.gpus:
        found += _of_gpu(gpu, f"GPU {gpu.index}" + (f" of {gpu.node}" if several else ""), shared=shared)
    for host in telemetry.hosts:
        found += _of_host(host)
    return tuple(found)


def _of_gpu(gpu: GpuTelemetry, name: str, *, shared: bool) -> Iterator[str]:
    for reason, percent in (gpu.slowdown_percent or {}).items():
        # A GPU that runs at its default limit is as fast as its maker sells it, however often that limit binds.
        if percent > SLOWED_PERCENT and (reason != POWER_CAP or _limited(gpu)):
            limit = (
                f" ({gpu.power_limit_w:.0f} W instead of {gpu.default_power_limit_w:.0f} W)" if _limited(gpu) else ""
            )
            yield f"{name} was slowed down for {percent:.3g} % of the measured span: {reason}{limit * (reason == POWER_CAP)}"
    for process in () if shared else gpu.foreign or ():
        held = f", which held {process.memory_mib:,.0f} MiB" if process.memory_mib is not None else ""
        yield f"{name} was shared with process {process.pid}{held}: none of the job's own"
    rise = gpu.temperature_rise_c
    if rise is not None and rise > RISE_C and gpu.measured_s > RISE_SPAN_S:
        yield f"{name} was {rise:.1f} °C warmer in the last quarter of the measured span than in the first: not yet steady"
    if gpu.ecc_uncorrected:
        yield f"{name} had {gpu.ecc_uncorrected} memory errors that ECC could not correct"


def _limited(gpu: GpuTelemetry) -> bool:
    """Whether somebody set the power limit below the maker's; where that is not known, nobody is blamed."""
    return (
        gpu.power_limit_w is not None
        and gpu.default_power_limit_w is not None
        and gpu.power_limit_w < gpu.default_power_limit_w
    )


def _of_host(host: HostTelemetry) -> Iterator[str]:
    if host.sampler_percent is not None and host.sampler_percent > SAMPLER_PERCENT:
        yield f"the sampler used {host.sampler_percent:.2g} % of {host.node}'s CPUs; fewer samples (TELEMETRY_HZ=1) cost less"
