"""What the record of a pass under a profiler says beside its tables: reservations, who read the counters, what the sampler saw meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runner.core.trial import Trial

if TYPE_CHECKING:
    from runner.core.record import RunRecord


def reservations(record: RunRecord) -> tuple[str, ...]:
    """Every reason against its figures, and why its counters are not Nsight Compute's where it asked for counters."""
    return (*record.validity.reasons, *_counted_by(record))


def sampled(record: RunRecord) -> Iterator[str]:
    """What the sampler's counters say of each GPU: means over the time of the pass, as no kernel is seen by itself."""
    for gpu in record.telemetry.gpus if record.telemetry else ():
        pipes = {
            "FP32": gpu.fp32_utilisation,
            "tensor cores": gpu.tensor_percent,
            "FP16": gpu.fp16_percent,
            "FP64": gpu.fp64_percent,
            "DRAM": gpu.dram_percent,
            "SMs active": gpu.sm_active_percent,
            "occupancy": gpu.sm_occupancy_percent,
        }
        told = ", ".join(f"{name} {mean.avg:.1f} %" for name, mean in pipes.items() if mean)
        if told:
            yield f"{gpu.node}, GPU {gpu.index} ({gpu.counters}, mean over {gpu.measured_s:.1f} s): {told}"


def _counted_by(record: RunRecord) -> tuple[str, ...]:
    """Why the counters are not Nsight Compute's, in a pass that asked for counters."""
    profile = record.trial.profile if isinstance(record.trial, Trial) else None
    counting = profile.counting if profile else None
    if counting is None or counting.reason is None:
        return ()
    if counting.source == "none":
        return (f"hardware counters: {counting.reason}",)
    return (f"hardware counters are the sampler's, averages over time and not of each kernel: {counting.reason}",)
