"""What counts against a run: each check with its sentence, and the resulting `Validity`. Pure.

The figures of an `invalid` run are wrong, those of a `degraded` one less reliable than they seem. A profiling pass is not judged on
throughput, scaling or wires: a profiler distorts all three.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Final

from runner.analysis.grading import metrics
from runner.analysis.interconnect import causes
from runner.core.container_spec import ContainerSpec
from runner.core.events import COLLECTIVES, Event, Memory, ProfileStart, ProfileStop, Regions
from runner.core.measurement import Measurement
from runner.core.record import Outcome, Validity
from runner.core.request import Precision
from runner.core.telemetry import GpuTelemetry, Telemetry
from runner.core.transport import Transport
from runner.core.trial import Trial
from runner.core.workload import SanityBand, Workload

if TYPE_CHECKING:
    import pandas as pd

# Ranks that train one model hold the same weights, up to summation order.
NORM_TOLERANCE: Final = 1e-5
# Their losses on one batch differ only by rounding in other summation orders: at most by this share of the largest.
LOSS_TOLERANCE: Final = {"fp32": 1e-3, "tf32": 1e-3, "fp16": 1e-2, "bf16": 1e-2, "fp8": 1e-2}
# Share of the largest score by which another summation order may change a score.
CACHE_TOLERANCE: Final = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 1e-1}
# Kinds of rows of a profiling pass that are work; the others show where in a step it belongs, or which call issued it.
WORK: Final = ("kernel", "copy", "set", "op")

# A smaller share is a single sample at an unlucky moment.
SLOWED_PERCENT: Final = 1.0
# The most that the sampler may use of all CPUs of a node.
SAMPLER_PERCENT: Final = 1.0
RISE_C: Final = 5.0
# In shorter spans, such as the default 30 s, every GPU that was idle before is still warming up.
RISE_SPAN_S: Final = 60.0
POWER_CAP: Final = "power cap"
# Share of the CPU time of a job's own cores. The kernel, the runner and the sampler took 2 % of it on behalf of a job that ran alone.
OTHERS_SHARE: Final = 0.1
# Half of the sample at each edge of the span may lie outside it: of this many samples, that is 5 %.
FEWEST_SAMPLES: Final = 20


def judge(
    trial: Trial, outcome: Outcome, measurement: Measurement, transport: Transport, workload: Workload
) -> Validity:
    """Apply every check to a run, except those of telemetry."""
    return _verdict(outcome.against or _faults(trial, measurement, transport, workload), _doubts(trial, measurement))


def judge_pass(trial: Trial, outcome: Outcome, events: Sequence[Event], kernels: pd.DataFrame | None) -> Validity:
    """Apply the checks of a profiling pass."""
    return _verdict(outcome.against or pass_faults(trial, events, kernels), pass_doubts(trial, events, kernels))


def degraded(validity: Validity, found: Sequence[str]) -> Validity:
    """Add doubts to a run's validity; an invalid run stays invalid."""
    if validity.status == "invalid" or not found:
        return validity
    return Validity(status="degraded", reasons=(*validity.reasons, *found))


def _verdict(against: Iterable[str], doubts: Iterable[str]) -> Validity:
    reasons = tuple(against)
    if reasons:
        return Validity(status="invalid", reasons=reasons)
    return degraded(Validity(status="valid", reasons=()), tuple(doubts))


def _faults(trial: Trial, measurement: Measurement, transport: Transport, workload: Workload) -> Iterator[str]:
    ranks = len(measurement.parameter_norms)
    if ranks != trial.processes:
        yield f"{ranks} of {trial.processes} ranks reported their end"
    expected = trial.iterations * trial.global_batch
    if measurement.samples != expected:
        yield f"{measurement.samples} samples counted, {trial.iterations} iterations of {trial.global_batch} make {expected}"
    yield from _diverged(trial, measurement)
    yield from _bad_quality(trial, measurement, workload)
    for exchange in (*measurement.probe, *measurement.collectives):
        if exchange.wrong:
            what = f"the {exchange.operation.replace('_', '-')}" if exchange.operation in COLLECTIVES else "an exchange"
            yield (
                f"{exchange.wrong} elements of {what} of {exchange.size_bytes} bytes came out wrong before the first step: the wires or "
                "the library that drives them lose data"
            )
    for name, count in measurement.effects.items():
        if not count:
            yield f"{name} had no effect: the program found nothing of it in its first step"
    if wrong := causes.mismatch(transport, trial):
        yield wrong


def _diverged(trial: Trial, measurement: Measurement) -> Iterator[str]:
    """Yield if the weights are not finite, or why synchronous ranks do not hold one model: their gradients were not averaged."""
    norms = [norm for norm in measurement.parameter_norms.values() if norm is not None and math.isfinite(norm)]
    if len(norms) < len(measurement.parameter_norms) and trial.dialect is None:
        yield "the weights are not finite at the end"
        return
    if trial.kvstore == "dist_async":  # each worker ends with the weights that it last pulled; with `ps` all are equal
        return
    if norms and max(norms) - min(norms) > NORM_TOLERANCE * max(norms):
        yield f"the ranks hold different weights (norms {min(norms):.6g} to {max(norms):.6g}): gradients were not averaged"
        return
    for iteration, losses in _shared_losses(measurement).items():
        if max(losses) - min(losses) > LOSS_TOLERANCE[trial.precision] * max(map(abs, losses)):
            spread = f"{min(losses):.6g} to {max(losses):.6g}"
            yield f"after {iteration} iterations the devices' losses on one batch are {spread}: gradients were not averaged"
            return


def _shared_losses(measurement: Measurement) -> dict[int, list[float]]:
    """By iteration, the loss of every device of every rank on the shared batch."""
    found: dict[int, list[float]] = {}
    for evaluations in measurement.evaluations.values():
        for evaluation in evaluations:
            found.setdefault(evaluation.iteration, []).extend(loss for loss in evaluation.losses if loss is not None)
    return {iteration: losses for iteration, losses in found.items() if losses}


def _bad_quality(trial: Trial, measurement: Measurement, workload: Workload) -> Iterator[str]:
    """Yield what is wrong with the losses of a training and its requested epochs, or with the cached scores of inference."""
    if trial.mode == "infer":
        yield from cache_faults(measurement, trial.precision)
        return
    if trial.dialect:  # a log shows only some losses, and the sanity band needs all
        if not any(measurement.losses.values()):
            yield f"the {trial.dialect} log shows no loss"
        elif not finite_losses(measurement):
            yield "a loss in the log is not finite"
        return
    curves = list(measurement.losses.values())
    steps, expected = min(map(len, curves), default=0), trial.warmup + trial.iterations
    if steps < expected:
        yield f"losses of {steps} of {expected} iterations were reported"
    else:
        ranks = [[math.nan if loss is None else loss for loss in curve[:steps]] for curve in curves]
        mean = [fmean(losses) for losses in zip(*ranks, strict=True)]
        yield from check_losses(mean, data=trial.data, num_classes=trial.num_classes, band=workload.sanity)
    requested = trial.iterations // trial.epoch_iterations if trial.epoch_iterations else 0
    if requested and len(measurement.epochs) != requested:
        yield f"{len(measurement.epochs)} of {requested} epochs were validated"


def cache_faults(measurement: Measurement, precision: Precision) -> Iterator[str]:
    """Yield if cached keys and values change a language model's scores, or if none were compared: it may answer something else, as fast."""
    most = CACHE_TOLERANCE.get(precision, 0.0)
    differs = measurement.cache_difference
    if any(one.new_tokens for one in measurement.generation) and not (differs is not None and differs <= most):
        by = "by what is no number" if differs is None else f"by {differs:.2g} of the largest"
        yield f"scores made with kept keys and values differ {by} from those of the whole sequence, at most {most:g} in {precision}"


def check_losses(
    losses: Sequence[float], *, data: str, num_classes: int | None, band: SanityBand | None
) -> Iterator[str]:
    """Yield what is wrong with a loss curve, given the sanity band of its workload.

    A fast run whose model learns nothing does not measure training: labels never reach the device, gradients are dropped, a precision
    overflows. These checks catch such bugs; they do not judge accuracy. Losses are the mean cross-entropy of each iteration in nats,
    warm-up included; `data` is `synthetic`, or the images are real.
    """
    if not losses:
        yield "no loss was reported"
        return
    broken = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if broken is not None:
        yield f"the loss is not finite at iteration {broken}; a smaller learning rate may train"
    elif band is None or num_classes is None:
        return
    elif data == "synthetic":
        low, high = (factor * math.log(num_classes) for factor in band.synthetic.first_loss_factors)
        if not low <= losses[0] <= high:
            yield (
                f"the first loss is {losses[0]:.4g}, an untrained model of {num_classes} classes starts between {low:.4g} and {high:.4g}"
            )
    elif len(losses) >= band.real.minimum_iterations:
        compared = max(1, int(len(losses) * band.real.compared_share))
        first, last = fmean(losses[:compared]), fmean(losses[-compared:])
        if last >= first:
            yield (
                f"the loss does not go down: {first:.4g} over the first {compared} iterations, {last:.4g} over the last {compared}"
            )


def finite_losses(measurement: Measurement) -> bool:
    """Whether every reported loss is finite."""
    return all(loss is not None and math.isfinite(loss) for curve in measurement.losses.values() for loss in curve)


def _doubts(trial: Trial, measurement: Measurement) -> Iterator[str]:
    yield from _oversubscribed(trial)
    yield from unsettled(measurement)
    if measurement.batch and measurement.batch.used != measurement.batch.asked:
        yield f"batch {measurement.batch.used} instead of {measurement.batch.asked}: {measurement.batch.reason}"


def _oversubscribed(trial: Trial) -> Iterator[str]:
    if trial.oversubscribed:
        yield f"{trial.world_size} CPU workers shared cores (--oversubscribe)"


def unsettled(measurement: Measurement) -> list[str]:
    """Say that the rate drifted throughout, or that there are too few windows to tell."""
    steady = measurement.steady
    joined = metrics.global_windows(measurement.windows)
    if steady is None or joined is None or steady.steady:
        return []
    count = len(joined.samples)
    if count < metrics.MIN_STEADY_WINDOWS:
        timed = f"{count} window{' was' if count == 1 else 's were'} timed"
        return [f"{timed}; whether the rate settled takes {metrics.MIN_STEADY_WINDOWS}"]
    return [f"the rate never settled: the later half is {steady.drift:+.1%} off the earlier"]


def pass_faults(trial: Trial, events: Sequence[Event], kernels: pd.DataFrame | None) -> Iterator[str]:
    """Yield what is missing or wrong in a pass: unfinished ranks, and missing iterations, losses, or output of its kind.

    `kernels` is its table, if it has one.
    """
    assert trial.profile is not None  # noqa: S101 - the caller guarantees it
    stops = {event.rank: event for event in events if isinstance(event, ProfileStop)}
    if len(stops) != trial.processes:
        yield f"{len(stops)} of {trial.processes} ranks ended their pass under the profiler"
        return
    for rank, stop in sorted(stops.items()):
        if stop.iterations < trial.profile.iterations:
            yield f"rank {rank} made {stop.iterations} of {trial.profile.iterations} iterations under the profiler"
    curves = metrics.losses(events).values()
    broken = [curve.index(None) for curve in curves if None in curve]
    if not any(curves):
        yield "no loss was reported"
    elif broken:
        yield f"the loss is not finite at iteration {min(broken)}; a smaller learning rate may train"
    kind = trial.profile.kind
    if kind == "metrics" and not trial.profile.ncu:
        return  # the node's sampler has the counters, in another table
    what = {
        "kernels": "what ran",
        "metrics": "any kernel's counters; the end of the log says what kept ncu from reading them",
        "memory": "its memory",
        "region": "how long its regions took",
        "calls": "which calls it made",
    }[kind]
    if kind in ("kernels", "metrics", "calls"):
        kinds = ("call",) if kind == "calls" else WORK
        reported = set() if kernels is None else set(kernels.loc[kernels["kind"].isin(kinds), "rank"])
    else:
        reported = {event.rank for event in events if isinstance(event, Memory if kind == "memory" else Regions)}
    if unreported := [str(rank) for rank in range(trial.processes) if rank not in reported]:
        yield f"rank {' and '.join(unreported)} did not tell {what}"


def pass_doubts(trial: Trial, events: Sequence[Event], kernels: pd.DataFrame | None) -> Iterator[str]:
    """Yield what makes a pass less reliable than it seems, but not wrong."""
    assert trial.profile is not None  # noqa: S101 - the caller guarantees it
    yield from _oversubscribed(trial)
    if not all(event.steady for event in events if isinstance(event, ProfileStart)):
        yield "the rate had not settled when the profiler began"
    traced = trial.profile.kind == "kernels" and trial.device == "gpu"
    if traced and kernels is not None and not (kernels["kind"] == "kernel").any():
        yield "the profiler saw operators alone, and no kernel of a GPU"


def telemetry_doubts(telemetry: Telemetry | None, *, shared: bool = False) -> tuple[str, ...]:
    """One sentence per disturbance of the measured span, if it was sampled; with `shared`, other processes on a GPU are expected."""
    if telemetry is None:
        return ()
    several = len(telemetry.hosts) > 1
    found: list[str] = []
    for gpu in telemetry.gpus:
        found += _gpu_doubts(gpu, f"GPU {gpu.index}" + (f" of {gpu.node}" if several else ""), shared=shared)
    for host in telemetry.hosts:
        if host.sampler_percent is not None and host.sampler_percent > SAMPLER_PERCENT:
            found.append(
                f"the sampler used {host.sampler_percent:.2g} % of {host.node}'s CPUs; fewer samples (TELEMETRY_HZ=1) cost less"
            )
    return tuple(found)


def _gpu_doubts(gpu: GpuTelemetry, name: str, *, shared: bool) -> Iterator[str]:
    limit, default = gpu.power_limit_w, gpu.default_power_limit_w
    # Whether the power limit was set below the default; an unknown default counts as no.
    limited = limit is not None and default is not None and limit < default
    for reason, percent in (gpu.slowdown_percent or {}).items():
        # Running at the default power cap does not degrade a run, however often the cap binds.
        if percent > SLOWED_PERCENT and (reason != POWER_CAP or limited):
            watts = f" ({limit:.0f} W instead of {default:.0f} W)" if reason == POWER_CAP else ""
            yield f"{name} was slowed down for {percent:.3g} % of the measured span: {reason}{watts}"
    for process in () if shared else gpu.foreign or ():
        held = f", which held {process.memory_mib:,.0f} MiB" if process.memory_mib is not None else ""
        yield f"{name} was shared with process {process.pid}{held}: none of the job's own"
    rise = gpu.temperature_rise_c
    if rise is not None and rise > RISE_C and gpu.measured_s > RISE_SPAN_S:
        yield f"{name} was {rise:.1f} °C warmer in the last quarter of the measured span than in the first: not yet steady"
    if gpu.ecc_uncorrected:
        yield f"{name} had {gpu.ecc_uncorrected} memory errors that ECC could not correct"


def unsampled_pods(containers: Sequence[ContainerSpec]) -> tuple[str, ...]:
    """Say that no sampler watched the machines of pods, which are shared unless they were reserved."""
    if any(spec.network == "pod" for spec in containers):
        return ("no sampler looked at the pods' machines: whether others used their cores or GPUs is not known",)
    return ()


def cpu_time_taken_from_job(
    trial: Trial, measurement: Measurement, watched: Telemetry | None, containers: Sequence[ContainerSpec]
) -> tuple[str, ...]:
    """Say what others took of the cores reserved by a CPU job on one machine (`cpu_time_taken`), if all its containers reported theirs.

    Between nodes, even emulated ones, the kernel processes packets on any core: that is the job's time, but in no container's figure.
    """
    if watched is None or trial.device != "cpu" or trial.nodes > 1 or (trial.concurrent and trial.concurrent.shared):
        return ()
    own = [spec for spec in containers if spec.role != "monitor"]
    used = [measurement.used[spec.name].cpu_s for spec in own if spec.name in measurement.used]
    known = [seconds for seconds in used if seconds is not None]
    if len(known) < len(own):
        return ()
    return cpu_time_taken(watched, cores={core for spec in own for core in spec.cpus}, used_s=math.fsum(known))


def cpu_time_taken(telemetry: Telemetry, *, cores: Collection[int], used_s: float) -> tuple[str, ...]:
    """Say if others used more than `OTHERS_SHARE` of a job's cores: their busy time less its own (`used_s`); or if the span is too short.

    `used_s` covers all measured windows, including uncounted ones: this errs towards blaming others too little.
    """
    (host,) = telemetry.hosts or (None,)
    if host is None or not cores:
        return ()
    samples = host.measured_s * (telemetry.hz or 0)
    if samples < FEWEST_SAMPLES:
        return (
            f"{host.measured_s:.1f} s with {int(samples)} samples are too short to tell whether others used the job's cores; measure longer",
        )
    if host.core_percent is None or max(cores) >= len(host.core_percent):
        return ()
    whole_s = host.measured_s * len(cores)
    others_s = host.measured_s * math.fsum(host.core_percent[core] for core in cores) / 100 - used_s
    if others_s <= OTHERS_SHARE * whole_s:
        return ()
    which = f"core {min(cores)}" if len(cores) == 1 else f"{len(cores)} cores"
    return (f"others used the job's {which} for {others_s:.1f} of the {whole_s:.1f} CPU seconds that were measured",)
