"""What a run's programs and telemetry say → its `FlopFigures`. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from runner.analysis.flop.peak import gpu_peak, gpus_peak
from runner.core.events import Event
from runner.core.events.training import CpuPeak, Env, RunStart
from runner.core.measurement import FlopFigures, Peak, utilisation_percent
from runner.core.trial import Trial

if TYPE_CHECKING:
    from runner.core.telemetry import GpuTelemetry, Telemetry

METHOD: Final = "2 × multiply-adds of convolutions and dense layers of the network as built"


def flop_figures(
    *,
    trial: Trial,
    events: Sequence[Event],
    throughput: float | None,
    telemetry: Telemetry | None,
) -> FlopFigures | None:
    """Compute the figures of a run; None where its program did not count, as none did in older records.

    Args:
        trial: the cell of the matrix.
        events: of all ranks.
        throughput: samples a second of the whole job.
        telemetry: of its measured span; the traffic of GPUs' memory comes from there.
    """
    counts = [event.flop_per_sample for event in events if isinstance(event, RunStart) and event.flop_per_sample]
    if not counts:
        return None
    flop = counts[0].forward + counts[0].backward
    achieved = None if throughput is None else flop * throughput / 1e12
    peak = _peak(trial, events)
    known = peak if isinstance(peak, Peak) else None
    mfu, above = utilisation_percent(achieved, known.tflops if known else None)
    traffic = _dram_bytes_per_s(trial, telemetry)
    figures = FlopFigures(
        forward_flop_per_sample=counts[0].forward,
        backward_flop_per_sample=counts[0].backward,
        method=METHOD,
        achieved_tflops=achieved,
        peak_tflops=known.tflops if known else None,
        peak_source=peak.source if isinstance(peak, Peak) else f"unavailable: {peak}",
        mfu_percent=mfu,
        above_peak=above,
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


def _peak(trial: Trial, events: Sequence[Event]) -> Peak | str:
    """The peak of all devices of the job, or why there is none."""
    arithmetic = trial.precision
    if arithmetic == "int8":
        return "the peaks on file are of floating-point arithmetic"
    if trial.device == "gpu":
        names = [name for event in events if isinstance(event, Env) for name in event.device_names]
        if len(names) != trial.world_size:
            return f"the programs named {len(names)} of {trial.world_size} GPUs"
        return gpus_peak(names, arithmetic)
    return _cpus_peak(trial, events)


def _cpus_peak(trial: Trial, events: Sequence[Event]) -> Peak | str:
    """What the programs measured of the cores of all ranks together, or why that is nothing that a training could be held against."""
    told = [event for event in events if isinstance(event, CpuPeak)]
    if len(told) != trial.processes:
        return "no peak was measured on these cores"
    if trial.oversubscribed or (trial.concurrent and trial.concurrent.shared):
        return "what was measured on shared cores is of a part of them"
    tflops = math.fsum(event.flop_per_s for event in told) / 1e12
    ranks = f" in each of {len(told)} processes at once" if len(told) > 1 else ""
    names = ", ".join(dict.fromkeys(event.library for event in told))
    cores = f"{told[0].cores} core{'' if told[0].cores == 1 else 's'}"
    source = f"{tflops:.3g} TFLOP/s, measured before the first step: a product of matrices ({names}) on {cores}{ranks}"
    return Peak(tflops=tflops, bandwidth_gb_s=None, source=source)


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
