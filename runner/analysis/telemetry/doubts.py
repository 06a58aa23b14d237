"""What telemetry says against figures: sentences that make a record `degraded`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Final

from runner.core.telemetry import GpuTelemetry, HostTelemetry, Telemetry

# A share below it is a single sample that came at a bad moment.
SLOWED_PERCENT: Final = 1.0
# Of all CPUs of a node: what the sampler may cost.
SAMPLER_PERCENT: Final = 1.0
RISE_C: Final = 5.0
# In shorter spans every GPU that was idle before still warms up.
RISE_SPAN_S: Final = 30.0
POWER_CAP: Final = "power cap"
# Of the time of a job's own cores. What the kernel, the runner and the sampler take of it for the job's sake was 2 % where it was alone.
OTHERS_SHARE: Final = 0.1
# A sample at either edge of the span may be half outside of it: of so many, that is 5 %.
FEWEST_SAMPLES: Final = 20


def doubts(telemetry: Telemetry, *, shared: bool = False) -> tuple[str, ...]:
    """One sentence for each thing that disturbed the measured span; with `shared`, others on the devices did not."""
    several = len(telemetry.hosts) > 1
    found: list[str] = []
    for gpu in telemetry.gpus:
        found += _of_gpu(gpu, f"GPU {gpu.index}" + (f" of {gpu.node}" if several else ""), shared=shared)
    for host in telemetry.hosts:
        found += _of_host(host)
    return tuple(found)


def taken_cores(telemetry: Telemetry, *, cores: Collection[int], used_s: float) -> tuple[str, ...]:
    """What others took of the cores of a job on one machine: for how long those were busy, less what the job itself used.

    A span that has too few samples to tell is a doubt of its own: others may have had all of it.

    Args:
        telemetry: of the job's machine.
        cores: the job's own, by the kernel's numbers.
        used_s: CPU seconds of the whole job in all measured windows, those that do not count included: others are blamed for too little
            rather than for too much.
    """
    (host,) = telemetry.hosts or (None,)
    if host is None or host.core_percent is None or not cores or max(cores) >= len(host.core_percent):
        return ()
    whole_s = host.measured_s * len(cores)
    others_s = host.measured_s * math.fsum(host.core_percent[core] for core in cores) / 100 - used_s
    samples = host.measured_s * (telemetry.hz or 0)
    if samples < FEWEST_SAMPLES:
        return (
            f"{host.measured_s:.1f} s with {int(samples)} samples are too short to tell whether others used the job's cores; measure longer",
        )
    if others_s <= OTHERS_SHARE * whole_s:
        return ()
    which = f"core {min(cores)}" if len(cores) == 1 else f"{len(cores)} cores"
    return (f"others used the job's {which} for {others_s:.1f} of the {whole_s:.1f} CPU seconds that were measured",)


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
