"""Model FLOP utilisation and roofline position: a run's arithmetic over its devices' peaks. Pure.

Dense peaks of GPUs come from `peaks.yaml`, by the driver's name; for an unknown device the record holds the reason.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from runner.core import yamlfile
from runner.core.events import CpuPeak, Env, Event, RunStart
from runner.core.frozen import Frozen
from runner.core.measurement import FlopFigures, Peak, utilisation_percent
from runner.core.telemetry import Telemetry
from runner.core.trial import Trial
from runner.core.workload import SEQUENCE

METHOD: Final = "2 × multiply-adds of convolutions and dense layers of the network as built"
OF_SEQUENCES: Final = f"{METHOD}, and of attention over whole sequences, as if nothing were masked"
PEAKS: Final = Path(__file__).with_name("peaks.yaml")
Arithmetic = Literal["fp64", "fp32", "tf32", "fp16", "bf16"]
Positive = Annotated[float, Field(gt=0)]

_MAKER: Final = re.compile(r"^(?:NVIDIA |Tesla |GeForce )+")


class GpuPeak(Frozen):
    """The peaks of one GPU model."""

    name: str  # regular expression over the driver's whole name, without leading "NVIDIA", "Tesla" and "GeForce"
    tflops: dict[Arithmetic, Positive]  # dense
    tensor: tuple[Arithmetic, ...] = ()  # precisions computed on the tensor cores
    bandwidth_gb_s: Positive  # memory bandwidth in 1e9 bytes a second
    cores: int | None = None  # fp32 units
    boost_mhz: int | None = None  # clock of the fp32 figure
    source: str  # datasheet or whitepaper


class Peaks(Frozen):
    """All known GPU models."""

    gpus: tuple[GpuPeak, ...]


@lru_cache(maxsize=1)
def known_gpus() -> tuple[GpuPeak, ...]:
    """Every entry of `peaks.yaml`."""
    return yamlfile.load(PEAKS, Peaks).gpus


def gpu_peak(name: str) -> GpuPeak | None:
    """The entry of the GPU that the driver or a framework calls `name`; None if unknown."""
    plain = _MAKER.sub("", name)
    return next((gpu for gpu in known_gpus() if re.fullmatch(gpu.name, plain, re.IGNORECASE)), None)


def gpus_peak(names: Sequence[str], precision: Arithmetic) -> Peak | str:
    """The combined peak of the GPUs of one training at a precision, or why there is none."""
    tflops = bandwidth = 0.0
    sources = []
    for name, count in sorted(Counter(names).items()):
        gpu = gpu_peak(name)
        if gpu is None:
            return f"no peak is known for {name}"
        if precision not in gpu.tflops:
            return f"{name} has no {precision} arithmetic of its own"
        tflops += count * gpu.tflops[precision]
        bandwidth += count * gpu.bandwidth_gb_s
        unit = "tensor cores" if precision in gpu.tensor else "CUDA cores"
        sources.append(f"{count} × {name}: {gpu.tflops[precision]:g} TFLOP/s in {precision} on {unit}; {gpu.source}")
    return Peak(tflops=tflops, bandwidth_gb_s=bandwidth, source=" + ".join(sources))


def flop_figures(
    *, trial: Trial, events: Sequence[Event], throughput: float | None, telemetry: Telemetry | None
) -> FlopFigures | None:
    """Compute a run's figures at a throughput in samples a second; None if the program counted no FLOP, as in older records.

    GPU memory traffic is that of the measured span, from `telemetry`.
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
    per_sample = None if isinstance(traffic, str) or not throughput else traffic / throughput
    intensity = None if per_sample is None else flop / per_sample
    ridge = known.tflops * 1e12 / (known.bandwidth_gb_s * 1e9) if known and known.bandwidth_gb_s is not None else None
    roofline: Literal["memory", "compute"] | None = None
    if intensity is not None and ridge is not None:
        roofline = "memory" if intensity < ridge else "compute"
    return FlopFigures(
        forward_flop_per_sample=counts[0].forward,
        backward_flop_per_sample=counts[0].backward,
        method=OF_SEQUENCES if SEQUENCE in trial.settings else METHOD,
        achieved_tflops=achieved,
        peak_tflops=known.tflops if known else None,
        peak_source=known.source if known else f"unavailable: {peak}",
        mfu_percent=mfu,
        above_peak=above,
        bandwidth_gb_s=known.bandwidth_gb_s if known else None,
        dram_bytes_per_sample=per_sample,
        intensity_flop_per_byte=intensity,
        ridge_flop_per_byte=ridge if roofline else None,
        roofline=roofline,
        roofline_source=f"unavailable: {traffic}" if isinstance(traffic, str) else "DRAM counters of the GPUs",
    )


def _peak(trial: Trial, events: Sequence[Event]) -> Peak | str:
    arithmetic = trial.precision
    if arithmetic == "int8":
        return "the peaks on file are of floating-point arithmetic"
    if arithmetic == "fp8":
        return "products of the blocks are in fp8 and all others in bf16, which have no peak in common"
    if trial.device == "gpu":
        names = [name for event in events if isinstance(event, Env) for name in event.device_names]
        if len(names) != trial.world_size:
            return f"the programs named {len(names)} of {trial.world_size} GPUs"
        return gpus_peak(names, arithmetic)
    return _cpus_peak(trial, events)


def _cpus_peak(trial: Trial, events: Sequence[Event]) -> Peak | str:
    """The measured peak of the cores of all ranks together, or why it does not apply to the training."""
    peaks = [event for event in events if isinstance(event, CpuPeak)]
    if len(peaks) != trial.processes:
        return "no peak was measured on these cores"
    if trial.oversubscribed or (trial.concurrent and trial.concurrent.shared):
        return "what was measured on shared cores is of a part of them"
    tflops = math.fsum(event.flop_per_s for event in peaks) / 1e12
    ranks = f" in each of {len(peaks)} processes at once" if len(peaks) > 1 else ""
    names = ", ".join(dict.fromkeys(event.library for event in peaks))
    cores = f"{peaks[0].cores} core{'' if peaks[0].cores == 1 else 's'}"
    source = f"{tflops:.3g} TFLOP/s, measured before the first step: a product of matrices ({names}) on {cores}{ranks}"
    return Peak(tflops=tflops, bandwidth_gb_s=None, source=source)


def _dram_bytes_per_s(trial: Trial, telemetry: Telemetry | None) -> float | str:
    """Bytes a second between all GPUs and their memory, or why they are unknown."""
    if trial.device != "gpu":
        return "nothing counts the memory traffic of CPUs"
    if telemetry is None:
        return "no telemetry"
    if len(telemetry.gpus) != trial.world_size:
        return f"telemetry has {len(telemetry.gpus)} GPUs, the job {trial.world_size}"
    rates = []
    for gpu in telemetry.gpus:
        peak = gpu_peak(gpu.name)
        if peak is None or gpu.dram_percent is None or gpu.dram_percent.avg <= 0:
            why = telemetry.why_missing(gpu.node, f"gpu{gpu.index}", "dram_percent")
            return why or f"no DRAM counters of {gpu.name}, or no peak of its memory is known"
        rates.append(gpu.dram_percent.avg / 100 * peak.bandwidth_gb_s * 1e9)
    return math.fsum(rates)
