"""What a run's programs, provenance and telemetry say → its `FlopFigures`. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from runner.events import Env, Event, Net, RunStart
from runner.flop.cpu import CpuShare, cpus_peak
from runner.flop.model import FlopFigures, Peak
from runner.flop.peak import gpu_peak, gpus_peak
from runner.machine.provenance import Host, Provenance
from runner.trial import Trial

if TYPE_CHECKING:
    from runner.telemetry.model import GpuTelemetry, Telemetry

METHOD: Final = "2 × multiply-adds of convolutions and dense layers of the network as built"


def flop_figures(
    *,
    trial: Trial,
    events: Sequence[Event],
    provenance: Provenance,
    throughput: float | None,
    telemetry: Telemetry | None,
) -> FlopFigures | None:
    """Compute the figures of a run; None where its program did not count, as none did in older records.

    Args:
        trial: the cell of the matrix.
        events: of all ranks.
        provenance: what its hosts are.
        throughput: samples a second of the whole job.
        telemetry: of its measured span; the clock of CPUs and the traffic of GPUs' memory come from there.
    """
    counts = [event.flop_per_sample for event in events if isinstance(event, RunStart) and event.flop_per_sample]
    if not counts:
        return None
    flop = counts[0].forward + counts[0].backward
    achieved = None if throughput is None else flop * throughput / 1e12
    peak = _peak(trial, events, provenance, telemetry)
    known = peak if isinstance(peak, Peak) else None
    mfu = 100 * achieved / known.tflops if known and achieved is not None else None
    traffic = _dram_bytes_per_s(trial, telemetry)
    figures = FlopFigures(
        forward_flop_per_sample=counts[0].forward,
        backward_flop_per_sample=counts[0].backward,
        method=METHOD,
        achieved_tflops=achieved,
        peak_tflops=known.tflops if known else None,
        peak_source=peak.source if isinstance(peak, Peak) else f"unavailable: {peak}",
        mfu_percent=mfu,
        above_peak=mfu is not None and mfu > 100,  # noqa: PLR2004 - per cent
        bandwidth_gb_s=known.bandwidth_gb_s if known else None,
        roofline_source=f"unavailable: {traffic}" if isinstance(traffic, str) else "DRAM counters of the GPUs",
    )
    if isinstance(traffic, str) or not throughput:
        return figures
    return _under_the_roofline(figures, bytes_per_sample=traffic / throughput)


def _under_the_roofline(figures: FlopFigures, *, bytes_per_sample: float) -> FlopFigures:
    """Place a run by the FLOP that it makes of each byte."""
    flop = figures.forward_flop_per_sample + figures.backward_flop_per_sample
    intensity = flop / bytes_per_sample
    found = figures.model_copy(update={"dram_bytes_per_sample": bytes_per_sample, "intensity_flop_per_byte": intensity})
    if figures.peak_tflops is None or figures.bandwidth_gb_s is None:
        return found
    ridge = figures.peak_tflops * 1e12 / (figures.bandwidth_gb_s * 1e9)
    bound = "memory" if intensity < ridge else "compute"
    return found.model_copy(update={"ridge_flop_per_byte": ridge, "roofline": bound})


def _peak(trial: Trial, events: Sequence[Event], provenance: Provenance, telemetry: Telemetry | None) -> Peak | str:
    """The peak of all devices of the job, or why there is none."""
    envs = [event for event in events if isinstance(event, Env)]
    arithmetic = trial.precision
    if arithmetic == "int8":
        return "the peaks on file are of floating-point arithmetic"
    if trial.device == "gpu":
        names = [name for env in envs for name in env.device_names]
        if len(names) != trial.world_size:
            return f"the programs named {len(names)} of {trial.world_size} GPUs"
        return gpus_peak(names, arithmetic)
    if len(envs) != trial.processes or any(env.cpus is None for env in envs):
        return "not every rank told its CPUs"
    return cpus_peak(_shares(envs, events, provenance, telemetry), arithmetic)


def _shares(
    envs: Sequence[Env], events: Sequence[Event], provenance: Provenance, telemetry: Telemetry | None
) -> tuple[CpuShare, ...]:
    """What the job has of each host: the cores that its ranks may run on, as many as they have threads for."""
    node_of = {event.rank: event.node for event in events if isinstance(event, Net)}
    hosts = {used.name: used.host for used in provenance.nodes}
    by_node: dict[str | None, list[Env]] = {}
    for env in envs:
        by_node.setdefault(node_of.get(env.rank), []).append(env)
    found = []
    for node, own in by_node.items():
        host = hosts.get(node, provenance.host) if node is not None else provenance.host
        clock_mhz, clock_source = _clock(node, host, telemetry)
        found.append(
            CpuShare(
                processor=host.processor,
                cpu_model=host.cpu_model,
                cores=_busy_cores(own, host),
                clock_mhz=clock_mhz,
                clock_source=clock_source,
            )
        )
    return tuple(found)


def _busy_cores(envs: Sequence[Env], host: Host) -> int:
    """Physical cores of one host that the ranks' threads can keep busy; a core that ranks share counts once."""

    def physical(cpus: frozenset[int]) -> int:
        return host.processor.physical_cores(cpus) if host.processor else len(cpus)

    each = [frozenset(env.cpus or ()) for env in envs]
    wanted = sum(min(physical(cpus), env.threads or len(cpus)) for env, cpus in zip(envs, each, strict=True))
    return min(wanted, physical(frozenset().union(*each)))


def _clock(node: str | None, host: Host, telemetry: Telemetry | None) -> tuple[float | None, str]:
    """The clock of a host in MHz and where it is from: measured while it was measured, else what the kernel said before the run."""
    told = [one for one in telemetry.hosts if one.clock_mhz is not None] if telemetry else []
    own = told if len(told) == 1 and node is None else [one for one in told if one.node == node]
    if own and own[0].clock_mhz:
        return own[0].clock_mhz.avg, "mean clock while it was measured"
    return host.cpu_current_mhz, "clock that the kernel told before the run"


def _dram_bytes_per_s(trial: Trial, telemetry: Telemetry | None) -> float | str:
    """Bytes a second between all GPUs and their memory, or why nobody knows."""
    if trial.device != "gpu":
        return "nothing counts the memory traffic of CPUs"
    if telemetry is None:
        return "no telemetry"
    if len(telemetry.gpus) != trial.world_size:
        return f"telemetry has {len(telemetry.gpus)} GPUs, the job {trial.world_size}"
    rates = [_gpu_bytes_per_s(gpu) for gpu in telemetry.gpus]
    known = [rate for rate in rates if rate is not None]
    if len(known) < len(rates):
        gpu = telemetry.gpus[rates.index(None)]
        why = telemetry.why_missing(gpu.node, f"gpu{gpu.index}", "dram_percent")
        return why or f"no DRAM counters of {gpu.name}, or no peak of its memory is known"
    return math.fsum(known)


def _gpu_bytes_per_s(gpu: GpuTelemetry) -> float | None:
    """Of one GPU; its counter is in per cent of the peak bandwidth."""
    peak = gpu_peak(gpu.name)
    if peak is None or gpu.dram_percent is None or gpu.dram_percent.avg <= 0:
        return None
    return gpu.dram_percent.avg / 100 * peak.bandwidth_gb_s * 1e9
