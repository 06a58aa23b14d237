"""The figures of one cell's runs: rates, times, losses, accuracies, device telemetry, and profiling passes. Pure.

A GPU's figures are the driver's (`gpu_utilisation` is the share of time in which any kernel ran). CPUs that stand for GPUs have none of
them; they have the power of the processors' packages, if the machine reports it.

Seconds of profiled repeats are summed before they are divided. Shares of kernels are of all seconds of kernels, copies and memsets; shares
of calls are of all seconds of calls, those about launches without the suite's own wait for the device.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from runner.analysis.comparisons.settings import total_s
from runner.analysis.grading import metrics
from runner.analysis.grading.metrics import student_t
from runner.analysis.summarize import latency, usable_windows
from runner.core.measurement import Interval
from runner.core.profile import COLLECTIVES, Category, Profile
from runner.core.record import RunRecord
from runner.core.telemetry import GpuTelemetry, Range, Telemetry
from runner.core.trial import ExternalTrial, Trial
from runner.experiments.studies.cell_figures import CellFigures, Runs
from runner.experiments.studies.model import CellRun, Machine
from runner.experiments.studies.noise import Amount, mean_of

NO_GPU: Final = "no NVIDIA device"
MOST_APART: Final = 0.1
"""The largest part of the total time of trainings at once by which their starts may lie apart; findings have tolerances of 0.15 and 0.2."""
CONVERGED_WITHIN: Final = 1.0
"""Percentage points below a run's best accuracy at which it counts as converged. No source defines convergence; this threshold is ours."""


def measured(run: CellRun, *, machine: Machine, backward_separate: bool) -> CellFigures:
    """Return all figures of a cell's runs.

    `backward_separate`: other cells of the study profile the backward pass separately, and provide the figures of that pass.
    """
    cell = CellFigures(run, machine, backward_separate)
    if run.cell.case is not None:
        _total_time(cell)
        return cell
    if cell.measured:
        _throughput(cell)
        _times(cell)
        _quality(cell)
        _devices(cell)
    elif not cell.passes:
        cell.add_missing(cell.why_unusable(), "throughput", "training_time")
    _passes(cell)
    return cell


_IMAGES: Final = "images/s"
"""The unit of the sources' programs, which train on images although their logs say samples or examples."""


def _throughput(cell: CellFigures) -> None:
    """Add throughput over all repeats with its interval, and the iteration time that follows from it."""
    runs = cell.measured
    windows = usable_windows(runs)
    throughputs = [one.measurement.throughput for one in runs if one.measurement.throughput]
    if not windows or not throughputs:
        cell.add_missing("no run gave a rate", "throughput", "iteration_time")
        return
    unit = _IMAGES if isinstance(runs[0].trial, ExternalTrial) else throughputs[0].unit
    rate, ci95 = metrics.pooled_rate(windows), metrics.rate_interval(windows)
    freedom = len(windows) - 1 if ci95 else None
    cell.add("throughput", unit, Amount(rate, ci95, freedom), runs)
    trial = runs[0].trial
    if isinstance(trial, Trial):
        amount = _per_iteration(runs, trial)
        inverse = Interval(low=amount / ci95.high, high=amount / ci95.low) if ci95 and ci95.low > 0 else None
        cell.add("iteration_time", "s", Amount(amount / rate, inverse, freedom), runs)
        _over_time(cell, trial, unit)


def _per_iteration(runs: Runs, trial: Trial) -> float:
    """Return how much of the throughput's quantity one iteration processes: its samples, or their units."""
    return trial.global_batch * (_per_sample(runs) or 1.0)


def _per_sample(runs: Runs) -> float | None:
    """Return how much of the throughput's quantity a sample is: 1, or its units; None without windows."""
    windows = [window for one in runs for window in one.measurement.windows]
    return (
        math.fsum(window.amount for window in windows) / sum(window.samples for window in windows) if windows else None
    )


def _over_time(cell: CellFigures, trial: Trial, unit: str) -> None:
    """Add rate and iteration time of each window, pooled over repeats; `iterations` counts those done by its end, warm-up included."""
    joined = [(one, metrics.global_windows(one.measurement.windows)) for one in cell.measured]
    known = [(one, windows) for one, windows in joined if windows is not None]
    runs = [one for one, _ in known]
    for index in range(min((len(windows.samples) for _, windows in known), default=0)):
        done = trial.warmup + min((index + 1) * trial.window, trial.iterations)
        length = min(trial.window, trial.iterations - index * trial.window)
        seconds = [float(windows.seconds[index]) for _, windows in known]
        samples = [float(windows.samples[index]) for _, windows in known]
        cell.add("throughput", unit, sum(samples) / sum(seconds), runs, iterations=done)
        cell.add("iteration_time", "s", fmean(seconds) / max(length, 1), runs, iterations=done)


def _times(cell: CellFigures) -> None:
    """Add training time, or for inference total time and time per batch; and the number of samples."""
    runs = cell.measured
    whole_program = cell.run.cell.whole_time
    times = (_program_s(one) if whole_program else one.measurement.training_time_s for one in runs)
    seconds = [one for one in times if one]
    is_inference = all(isinstance(one.trial, Trial) and one.trial.mode == "infer" for one in runs)
    metric = "inference_time" if is_inference else "training_time"
    counted = runs[0].measurement.samples
    samples = cell.run.cell.samples if is_inference and cell.run.cell.samples else counted
    if not seconds:
        cell.add_missing("no run measured its time", metric)
        return
    if whole_program and cell.shortened:
        cell.add_missing("start-up takes more of a run of fewer iterations than of the source's", metric)
    else:
        told = "as its log tells" if isinstance(runs[0].trial, ExternalTrial) else None
        method = "of the whole program, with start-up and input" if whole_program else told
        if samples != counted:
            seconds, method = [one * samples / counted for one in seconds], f"of {samples:,} samples, from {counted:,}"
        cell.add_mean(metric, "s", seconds, runs, method=method)
    cell.add("samples_per_run", "images", samples, runs)
    latencies = [known.with_transfer.p50 for one in runs if is_inference and (known := latency(one.measurement))]
    if latencies:
        cell.add_mean("time_per_batch", "s", latencies, runs, method="median latency")


_SUITE_PHASES: Final = ("create", "probe_", "input_alone", "latency")
"""Prefixes of phases that no source's program has: creation of the container, and the suite's own passes."""


def _program_s(one: RunRecord) -> float | None:
    """Return the seconds from start to end of a run's program, without the suite's own passes."""
    spent = one.outcome.phases_s
    if "total" not in spent:
        return None
    return spent["total"] - math.fsum(seconds for name, seconds in spent.items() if name.startswith(_SUITE_PHASES))


def _quality(cell: CellFigures) -> None:
    """Add accuracy of predictions, losses and accuracy after each epoch, and the epoch of convergence."""
    answered = [(one, figures) for one in cell.measured if (figures := one.measurement.accuracy)]
    if answered:
        share = _mean_accuracy([figures.percent for _, figures in answered], answered[0][1].samples)
        cell.add("accuracy", "%", share, [one for one, _ in answered])
    runs = [one for one in cell.measured if one.measurement.epochs]
    if not runs:
        return
    for points in zip(*(one.measurement.epochs for one in runs), strict=False):
        epoch = points[0].epoch
        share = _mean_accuracy([point.accuracy_percent for point in points], points[0].validation_samples)
        cell.add("accuracy", "%", share, runs, epoch=epoch)
        for metric in ("train_loss", "val_loss"):
            losses = [getattr(point, metric) for point in points]
            if None not in losses:
                cell.add_mean(metric, "nats", losses, runs, epoch=epoch)
    if cell.shortened:
        cell.add_missing("a run of fewer epochs than the source's may end before it converges", "epochs_to_converge")
        return
    curves = [[(point.epoch, point.accuracy_percent) for point in one.measurement.epochs] for one in runs]
    reached = [converged_at(curve) for curve in curves]
    if any(epoch == curve[-1][0] for epoch, curve in zip(reached, curves, strict=True)):
        cell.add_missing("the accuracy of a run still rose in its last epoch", "epochs_to_converge")
        return
    method = f"first epoch within {CONVERGED_WITHIN:g} percentage point of the run's best accuracy"
    cell.add_mean("epochs_to_converge", "epochs", [float(epoch) for epoch in reached], runs, method=method)


def converged_at(curve: Sequence[tuple[int, float]]) -> int:
    """Return the first epoch whose accuracy is within `CONVERGED_WITHIN` of the run's best; `curve` has pairs of epoch and accuracy in percent."""
    best = max(accuracy for _, accuracy in curve)
    return next(epoch for epoch, accuracy in curve if accuracy >= best - CONVERGED_WITHIN)


def _mean_accuracy(percents: Sequence[float], samples: int) -> Amount:
    """Average runs on equally many samples; the interval is the wider of the one over runs and the one of a proportion of samples.

    Runs of one seed may agree to the last digit, which gives no certainty about other images.
    """
    found = mean_of(percents)
    if found.ci95 is None or not samples:
        return found
    # Wilson's interval of a proportion (E. B. Wilson, JASA 22(158), 1927), in percent.
    z, share = student_t(math.inf), found.value / 100
    middle = (share + z**2 / (2 * samples)) / (1 + z**2 / samples)
    half = z / (1 + z**2 / samples) * math.sqrt(share * (1 - share) / samples + z**2 / (4 * samples**2))
    drawn = Interval(low=100 * (middle - half), high=100 * (middle + half))
    return Amount(found.value, drawn) if drawn.half_width > found.ci95.half_width else found


def _total_time(cell: CellFigures) -> None:
    """Add the total time of several trainings, by `settings.total_s`.

    Repeats are left out that lack a training, or whose trainings at once started so far apart that their time is mostly that of starting up.
    """
    if not cell.measured:
        cell.add_missing(cell.why_unusable(), "total_time")
        return
    repeats: dict[int, list[RunRecord]] = defaultdict(list)
    for one in cell.measured:
        repeats[one.trial.repeat].append(one)
    totals: list[float] = []
    runs: list[RunRecord] = []
    why = "not all of the trainings of this case can be used"
    for own in repeats.values():
        trial = own[0].trial
        concurrent = trial.concurrent if isinstance(trial, Trial) else None
        case = concurrent.case if concurrent else "one"
        if concurrent is None or case == "one" or len(own) >= concurrent.trainings:
            total, apart = total_s(own, case=case), _seconds_apart(own) if case == "together" else 0.0
            if apart > MOST_APART * total:
                why = (
                    f"trainings at once started {apart:.1f} s apart, which is more than a tenth of their {total:.1f} s"
                )
                continue
            totals.append(total)
            runs += own
    if totals:
        cell.add_mean("total_time", "s", totals, runs, repeats=len(totals))
    else:
        cell.add_missing(why, "total_time")


def _seconds_apart(trainings: Runs) -> float:
    """Return the seconds between the first and the last start of the measurement of trainings at once."""
    starts = [min(window.start for window in one.measurement.windows) for one in trainings]
    return max(starts) - min(starts)


_UTILISATION: Final = ("gpu_utilisation", "gpu_utilisation_min", "gpu_utilisation_avg", "gpu_utilisation_max")
_POWER: Final = ("power_min", "power_avg", "power_max")
_TEMPERATURE: Final = ("temperature_min", "temperature_avg", "temperature_max")
_NO_TELEMETRY: Final = "these runs were not watched (TELEMETRY_HZ=0)"


RunsWithTelemetry = Sequence[tuple[RunRecord, Telemetry]]


def _devices(cell: CellFigures) -> None:
    """Add everything in the telemetry, over all repeats; for several GPUs, also per GPU."""
    watched = [(one, telemetry) for one in cell.measured if (telemetry := one.telemetry)]
    runs, telemetries = [one for one, _ in watched], [telemetry for _, telemetry in watched]
    if cell.on_cpu or not telemetries:
        cell.add_missing(NO_GPU if cell.on_cpu else _NO_TELEMETRY, *_UTILISATION, *_TEMPERATURE, "gpu_memory")
    else:
        _gpus(cell, watched)
    if not telemetries:
        cell.add_missing(_NO_TELEMETRY, *_POWER, "power_idle")
        return
    source = (
        "energy of the processors' packages (RAPL) ÷ time; extremes between samples"
        if telemetries[0].device == "cpu"
        else "energy ÷ time; extremes of samples, as the driver tells them"
    )
    spans = [[one.power_w for one in telemetry.trained] for telemetry in telemetries]
    if not _ranges(cell, "power", "W", spans, runs, method=source):
        cell.add_missing(_why_no_telemetry(telemetries, "power_w"), *_POWER)
    if idle := [value for telemetry in telemetries if (value := _idle(telemetry)) is not None]:
        cell.add_mean("power_idle", "W", idle, runs)
        cell.add_mean("power_avg", "W", idle, runs, state="idle")
    else:
        cell.add_missing(_why_no_telemetry(telemetries, "power_w"), "power_idle")


def _gpus(cell: CellFigures, watched: RunsWithTelemetry) -> None:
    runs, telemetries = [one for one, _ in watched], [telemetry for _, telemetry in watched]
    spans = [[gpu.utilisation for gpu in telemetry.gpus] for telemetry in telemetries]
    if _ranges(cell, "gpu_utilisation", "%", spans, runs):
        cell.add_mean("gpu_utilisation", "%", [fmean(one.avg for one in own if one) for own in spans], runs)
    else:
        cell.add_missing(_why_no_telemetry(telemetries, "utilisation"), *_UTILISATION)
    if not _ranges(
        cell, "temperature", "°C", [[gpu.temperature_c for gpu in telemetry.gpus] for telemetry in telemetries], runs
    ):
        cell.add_missing(_why_no_telemetry(telemetries, "temperature_c"), *_TEMPERATURE)
    peaks = [[gpu.memory_mib.max for gpu in telemetry.gpus if gpu.memory_mib] for telemetry in telemetries]
    if all(peaks):
        cell.add_mean("gpu_memory", "MiB", [max(own) for own in peaks], runs, method="largest of the devices")
        _per_gpu(cell, "gpu_memory", "MiB", watched, lambda gpu: getattr(gpu.memory_mib, "max", None))
    else:
        cell.add_missing(_why_no_telemetry(telemetries, "memory_mib"), "gpu_memory")
    for end in ("avg", "min", "max"):
        _per_gpu(cell, f"gpu_utilisation_{end}", "%", watched, lambda gpu, end=end: getattr(gpu.utilisation, end, None))  # type: ignore[misc]


def _ranges(
    cell: CellFigures,
    stem: str,
    unit: str,
    spans: Sequence[Sequence[Range | None]],
    runs: Runs,
    *,
    method: str | None = None,
) -> bool:
    """Add minimum, mean and maximum; of several devices, the mean of means and the extremes of all. Add nothing and return False if a device lacks them."""
    known = [[one for one in own if one] for own in spans]
    if not all(own and len(own) == len(every) for own, every in zip(known, spans, strict=True)):
        return False
    for name, values in (
        ("min", [min(one.min for one in own) for own in known]),
        ("avg", [fmean(one.avg for one in own) for own in known]),
        ("max", [max(one.max for one in own) for own in known]),
    ):
        cell.add_mean(f"{stem}_{name}", unit, values, runs, method=method)
    return True


def _per_gpu(
    cell: CellFigures,
    metric: str,
    unit: str,
    watched: RunsWithTelemetry,
    figure: Callable[[GpuTelemetry], float | None],
) -> None:
    """Add a figure per GPU, numbered from 1 in the order of nodes and devices, as `nvidia-smi` lists them; nothing for a single GPU."""
    gpus = list(zip(*(telemetry.gpus for _, telemetry in watched), strict=False))
    for number, repeats in enumerate(gpus if len(gpus) > 1 else (), start=1):
        values = [value for gpu in repeats if (value := figure(gpu)) is not None]
        if len(values) == len(repeats):
            cell.add_mean(metric, unit, values, [one for one, _ in watched], gpu_index=number)


def _idle(telemetry: Telemetry) -> float | None:
    """Return the mean idle power per device; None unless it is known of each."""
    known = [one.idle_power_w for one in telemetry.trained if one.idle_power_w is not None]
    return fmean(known) if known and len(known) == len(telemetry.trained) else None


def _why_no_telemetry(telemetries: Sequence[Telemetry], field: str) -> str:
    for one in telemetries[0].trained:
        name = f"gpu{one.index}" if isinstance(one, GpuTelemetry) else "host"
        if reason := telemetries[0].why_missing(one.node, name, field):
            return reason
    return f"telemetry has no {field} of the devices"


_DEVICE_QUERY: Final = re.compile(r"^cu(da)?([GS]etDevice|DeviceGet|DeviceTotalMem|MemGetInfo|PointerGet)")
"""Calls that a source counts as memory-related in addition to allocation: device queries, and selecting a device."""
_KERNEL_METRICS: Final = (
    *("gpu_compute_utilisation", "kernel_concurrency", "concurrent_kernel_time", "nccl_broadcast_time_share"),
    *("winograd_time_share", "compute_time_share", "kernel_time_share"),
)
_CALL_METRICS: Final = {
    "cudaLaunchKernel_api_time_share": "LaunchKernel",
    "cudaEventDestroy_api_time_share": "EventDestroy",
}
"""Calls that a share is of, by a part of their names."""
_SUITES_WAIT: Final = "cudaDeviceSynchronize"
_MEMORY_CALL_METRIC: Final = "memory_api_time_shares"
_COPY_METRICS: Final = ("copy_size", "copy_throughput", "copy_overlap")
_NO_CALLS: Final = "no pass traced calls of the CUDA API"


def _passes(cell: CellFigures) -> None:
    """Add FP32 utilisation, which telemetry may provide too, and, if there are profiling passes, all other figures of these."""
    _fp32(cell)
    kernels = [one for one in cell.passes if one.profile and one.profile.kind == "kernels"]
    whole = [one for one in kernels if one.profile and one.profile.region is None]
    backward = [one for one in kernels if one.profile and one.profile.region in {"backward", "update"}]
    of_process = [one for one in cell.passes if one.profile and one.profile.kind == "calls"]
    if not any(one.profile for one in cell.passes):
        return
    if backward or not cell.backward_separate:
        _pooling(cell, backward or whole)
    if backward and not whole:
        _launches(cell, backward)
        return
    _flop(cell, whole)
    if cell.on_cpu:
        cell.add_missing(NO_GPU, *_KERNEL_METRICS, _MEMORY_CALL_METRIC, *_CALL_METRICS, *_COPY_METRICS)
        return
    _kernels(cell, whole)
    _memory_calls(cell, of_process or whole)
    _copies(cell, whole)
    if not cell.backward_separate:
        _launches(cell, whole)


def _profiles(runs: Runs) -> list[Profile]:
    return [one.profile for one in runs if one.profile]


def _scope(runs: Runs) -> str:
    region = _profiles(runs)[0].region
    if _profiles(runs)[0].kind == "calls":
        return "the whole process"
    return f"the {region} pass" if region else "whole steps"


def _work_units(runs: Runs) -> str:
    """Name the units of work in these passes: kernels, or operators on a CPU."""
    return _profiles(runs)[0].work or "kernels"


def _share_of_work(runs: Runs, fits: Callable[[Category], bool]) -> float:
    """Return the percentage of the seconds of all work that is in categories that fit."""
    entries = [entry for profile in _profiles(runs) for entry in profile.categories]
    whole = sum(entry.seconds for entry in entries)
    return 100 * sum(entry.seconds for entry in entries if fits(entry.category)) / whole if whole else 0.0


def _pooling(cell: CellFigures, runs: Runs) -> None:
    share = _share_of_work(runs, lambda category: category == "pooling_backward")
    if share > 0:
        method = f"{_work_units(runs)} of {_scope(runs)}"
        cell.add("maxpoolbackward_time_share", "%", share, runs, method=method)
    else:
        cell.add_missing("nothing in these passes is known as pooling's backward pass", "maxpoolbackward_time_share")


def _kernels(cell: CellFigures, whole: Runs) -> None:
    uses = [(one, use) for one in whole if one.profile and (use := one.profile.gpu_total)]
    if not uses:
        cell.add_missing("no pass traced the kernels of whole steps", *_KERNEL_METRICS)
        return
    runs = [one for one, _ in uses]
    elapsed, profiled = sum(use.elapsed_s for _, use in uses), sum(use.profiled_s for _, use in uses)
    busy = sum(use.busy_s for _, use in uses)
    cell.add("gpu_compute_utilisation", "%", 100 * busy / elapsed, runs, method="union of kernels ÷ elapsed")
    parallel = sum(use.busy_s * (use.concurrency.parallel_percent if use.concurrency else 0.0) / 100 for _, use in uses)
    method = "time with two kernels or more ÷ profiled time"
    cell.add("kernel_concurrency", "%", 100 * parallel / profiled, runs, method=method)
    cell.add("concurrent_kernel_time", "us", parallel * 1e6, runs)
    cell.add("profiled_time", "s", profiled, runs)
    if whole[0].trial.world_size > 1:
        broadcast = _share_of_work(whole, lambda category: category == "broadcast")
        cell.add("nccl_broadcast_time_share", "%", broadcast, runs)
    else:
        cell.add_missing("one device broadcasts nothing", "nccl_broadcast_time_share")
    winograd = _share_of_work(whole, lambda category: category == "convolution_winograd")
    cell.add("winograd_time_share", "%", winograd, runs)
    computing = _share_of_work(whole, _is_compute)
    cell.add("compute_time_share", "%", computing, runs, method="all but copies, memsets and collectives")
    listed: dict[str, list[float]] = defaultdict(list)
    for kernel in (kernel for profile in _profiles(whole) for kernel in profile.kernels):
        listed[kernel.name].append(kernel.share_percent)
    for name, own in listed.items():
        cell.add("kernel_time_share", "%", sum(own) / len(whole), runs, name=name)


def _is_compute(category: Category) -> bool:
    return category not in COLLECTIVES and not category.startswith("copy_") and category != "memset"


def _launches(cell: CellFigures, passes: Runs) -> None:
    """Add the shares of kernel launches, and of event destructions, in the time of all calls but the suite's own.

    The suite waits for the device at the end of each profiled step or part of it, for longer the more work that has; a source's program does not.
    """
    runs = [one for one in passes if one.profile and one.profile.calls]
    if cell.on_cpu or not runs:
        cell.add_missing(NO_GPU if cell.on_cpu else _NO_CALLS, *_CALL_METRICS)
        return
    calls = [entry for profile in _profiles(runs) for entry in profile.calls]
    own = _call_seconds(runs) - sum(entry.seconds for entry in calls if entry.name == _SUITES_WAIT)
    if own <= 0:
        cell.add_missing(_NO_CALLS, *_CALL_METRICS)
        return
    for metric, named in _CALL_METRICS.items():
        seconds = sum(entry.seconds for entry in calls if named in entry.name)
        method = f"calls of {_scope(runs)}, without the wait for the device at its end"
        cell.add(metric, "%", 100 * seconds / own, runs, method=method)


def _memory_calls(cell: CellFigures, whole: Runs) -> None:
    runs = [one for one in whole if one.profile and one.profile.calls]
    calls = [entry for profile in _profiles(runs) for entry in profile.calls]
    if not any(entry.call_class == "memory_management" for entry in calls):
        why = "nothing was allocated in the profiled steps: frameworks keep memory, and ask for it before"
        cell.add_missing(why if runs else _NO_CALLS, _MEMORY_CALL_METRIC)
        return
    by_name: dict[str, float] = defaultdict(float)
    for entry in calls:
        if entry.call_class == "memory_management" or _DEVICE_QUERY.match(entry.name):
            by_name[entry.name] += entry.seconds
    for name, seconds in by_name.items():
        share, method = 100 * seconds / sum(by_name.values()), f"of calls about memory in {_scope(runs)}"
        cell.add(_MEMORY_CALL_METRIC, "%", share, runs, name=name, method=method)


def _call_seconds(runs: Runs) -> float:
    return sum(entry.seconds for profile in _profiles(runs) for entry in profile.call_classes)


def _copies(cell: CellFigures, whole: Runs) -> None:
    copies = [one for profile in _profiles(whole) for one in profile.copies if one.direction == "HtoD"]
    if not copies:
        cell.add_missing("nothing was copied to a device in the profiled steps", *_COPY_METRICS)
        return
    if sized := [one for one in copies if one.bytes]:
        moved = sum(one.bytes or 0 for one in sized)
        size, rate = moved / sum(one.count for one in sized) / 1e6, moved / sum(one.seconds for one in sized) / 1e9
        cell.add("copy_size", "MB", size, whole, method="mean of copies to a device")
        cell.add("copy_throughput", "GB/s", rate, whole, method="while copying to a device")
    if overlaps := [one.overlap_percent for one in copies if one.overlap_percent is not None]:
        cell.add("copy_overlap", "%", fmean(overlaps), whole, method="of copying to a device, beside kernels")


def _fp32(cell: CellFigures) -> None:
    """Add FP32 utilisation by counters of kernels if a pass read them, otherwise by the driver's device-wide ones."""
    counted = [
        (one, percent)
        for one in cell.passes
        if one.profile and one.profile.counters and (percent := one.profile.counters.fp32_percent) is not None
    ]
    watched = [
        (one, fmean(known))
        for one in cell.measured
        if one.telemetry and (known := [gpu.fp32_utilisation.avg for gpu in one.telemetry.gpus if gpu.fp32_utilisation])
    ]
    if cell.on_cpu or not (counted or watched):
        cell.add_missing(NO_GPU if cell.on_cpu else "no counters of the FP32 pipe here", "fp32_utilisation")
        return
    method = "counters of kernels, weighted by time" if counted else "FP32 pipe active, by the driver's counters"
    runs, percents = zip(*(counted or watched), strict=True)
    cell.add_mean("fp32_utilisation", "%", percents, runs, method=method)
    plain = [one.profile.counters.fp32_unweighted_percent for one, _ in counted if one.profile and one.profile.counters]
    if known := [value for value in plain if value is not None]:
        cell.add_mean("fp32_utilisation_unweighted", "%", known, runs, method="each kernel counted alike")
    for one, _ in counted[:1]:
        for kernel in one.profile.counters.low if one.profile and one.profile.counters else ():
            method = "of the kernels that take long, below the weighted mean"
            cell.add("kernel_fp32_utilisation", "%", kernel.fp32_percent or 0.0, [one], name=kernel.name, method=method)


_FLOP: Final = "average_flop_count"


def _flop(cell: CellFigures, whole: Runs) -> None:
    """Add FLOP per kernel (on a CPU, per operator): by counters, as a source counts, and by the network's layers.

    Without counters, the second replaces the first.
    """
    counted = [
        (one, count)
        for one in cell.passes
        if one.profile and one.profile.counters and (count := one.profile.counters.flop_per_kernel) is not None
    ]
    if counted:
        runs, counts = zip(*counted, strict=True)
        method = "FP32 operations by counters, a fused pair as two; mean over kernels"
        cell.add_mean(_FLOP, "x", counts, runs, method=method)
    metric = "average_flop_count_of_model" if counted else _FLOP
    for one in whole:
        trial, flop, profile = one.trial, one.measurement.flop, _profiles([one])[0]
        units = (
            profile.gpu_total.kernels_per_step
            if profile.gpu_total
            else sum(region.pieces_per_step or 0.0 for region in profile.regions)
        )
        # A pass has no windows; a sample that is no image may have any number of units, such as tokens.
        amount = _per_sample(cell.measured) or (1.0 if isinstance(trial, Trial) and trial.image_shape else None)
        if isinstance(trial, Trial) and flop and units and amount:
            of_unit = flop.forward_flop_per_sample + flop.backward_flop_per_sample
            of_step = of_unit * amount * trial.batch_per_device
            method = f"FLOP of a step ÷ {_work_units([one])} in it"
            cell.add(metric, "x", of_step / units, [one], method=method)
            return
    cell.add_missing("no pass tells both FLOP and how many kernels a step has", metric)
