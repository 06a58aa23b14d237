"""What the runs of one cell show: rates, times, losses, accuracies, telemetry of devices, and passes under a profiler. Pure.

A GPU's figures are the driver's (`gpu_utilisation` is the share of time in which any kernel ran). Where CPUs stand for GPUs there are none:
what a CPU was busy for is another quantity. Power is that of the processors' packages there, if the machine reports it.

Seconds of profiled repeats are added up before they are divided. Shares of kernels are of all seconds of kernels, copies and memsets; shares
of calls are of all seconds of calls.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Final

from runner.analysis.comparisons.concurrency import total_s
from runner.analysis.grading import metrics
from runner.analysis.grading.metrics import student_t
from runner.analysis.summarize import latency, usable_windows
from runner.core.measurement import Interval
from runner.core.profile import COLLECTIVES, Category, Profile
from runner.core.record import RunRecord
from runner.core.telemetry import GpuTelemetry, Range, Telemetry
from runner.core.trial import Trial
from runner.experiments.studies.differences import device_names
from runner.experiments.studies.model import CellRun, Machine, Missing, Observation, Run
from runner.experiments.studies.noise import Amount, mean_of

NO_GPU = "no NVIDIA device"


def measured(run: CellRun, *, machine: Machine, backward_apart: bool) -> Gathered:
    """Everything that the runs of a cell give."""
    cell = Gathered(run=run, machine=machine, backward_apart=backward_apart)
    if run.cell.case is not None:
        if cell.measured:
            _total_time(cell)
        else:
            cell.lack(cell.why_none(), "total_time")
        return cell
    if cell.measured:
        _rates(cell)
        _times(cell)
        _quality(cell)
        _devices(cell)
    elif not cell.passes:
        cell.lack(cell.why_none(), "throughput", "training_time")
    _passes(cell)
    return cell


@dataclass
class Gathered:
    """What a cell gives, one quantity after the other.

    Attributes:
        run: the cell with its runs.
        backward_apart: whether other cells of the study look at the backward pass alone, and so tell what belongs to it.
        measured: runs without a profiler that may be used.
        passes: those under one.
    """

    run: CellRun
    machine: Machine
    backward_apart: bool = False
    observations: list[Observation] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def __post_init__(self) -> None:
        usable = [one for one in self.run.runs if one.record.validity.status != "invalid"]
        self.measured: tuple[Run, ...] = tuple(one for one in usable if not one.record.profiled)
        self.passes: tuple[Run, ...] = tuple(one for one in usable if one.record.profiled)

    @property
    def on_cpu(self) -> bool:
        """Whether the devices were CPUs, of the source's own or in place of its GPUs."""
        return self.run.cell.where.device == "cpu" or self.machine.device == "cpu"

    def why_none(self) -> str:
        """Why there is no usable measured run."""
        reasons = [reason for one in self.run.runs for reason in one.record.validity.reasons]
        return self.run.why or next(iter(reasons), None) or "no run of this cell can be used"

    def add(self, metric: str, unit: str, figure: Amount, runs: Sequence[Run], **more: object) -> None:
        """Keep a figure; `more` are further fields of the observation, and `gpu_index` of its conditions."""
        index = more.pop("gpu_index", None)
        where = self.run.cell.where if index is None else self.run.cell.where.model_copy(update={"gpu_index": index})
        record = runs[0].record
        self.observations.append(
            Observation.model_validate(
                {
                    "metric": metric,
                    "unit": unit,
                    "value": figure.value,
                    "ci95": figure.ci95,
                    "freedom": figure.freedom,
                    "where": where,
                    "case": self.run.cell.case,
                    "device": record.trial.device,
                    "device_name": _device_name(record, self.machine),
                    "repeats": len({one.record.trial.repeat for one in runs}),
                    "degraded": sum(one.record.validity.status != "valid" for one in runs),
                    "runs": tuple(one.record.run_id for one in runs),
                    "altered": tuple(one.field for one in self.run.cell.altered),
                    "extra": self.run.cell.extra,
                    **more,
                }
            )
        )

    def add_mean(self, metric: str, unit: str, values: Sequence[float], runs: Sequence[Run], **more: object) -> None:
        """Keep the mean of repeats of which each gives one number, with Student's interval."""
        self.add(metric, unit, mean_of(values), runs, **more)

    def lack(self, why: str, *metrics: str) -> None:
        """Keep why there are no such figures."""
        self.missing += [Missing(cell=self.run.cell.id, metric=metric, why=why) for metric in metrics]


def _device_name(record: RunRecord, machine: Machine) -> str:
    """As the record has it; the machine's where that does not say."""
    own = machine.device_name if record.trial.device == machine.device else "unnamed processor"
    return " and ".join(device_names(record)) or own


CONVERGED_WITHIN = 1.0
"""Percentage points below a run's best accuracy at which it counts as converged. No source says what it takes; this is ours."""


def _rates(cell: Gathered) -> None:
    """Throughput over all repeats with its interval, and what follows from it: the time of an iteration."""
    runs = cell.measured
    windows = usable_windows([one.record for one in runs])
    told = [one.record.measurement.throughput for one in runs if one.record.measurement.throughput]
    if not windows or not told:
        cell.lack("no run gave a rate", "throughput", "iteration_time")
        return
    rate = metrics.pooled_rate(windows)
    ci95 = metrics.rate_interval(windows)
    freedom = len(windows) - 1 if ci95 else None
    cell.add("throughput", told[0].unit, Amount(rate, ci95, freedom), runs)
    trial = runs[0].record.trial
    if isinstance(trial, Trial):
        amount = _an_iteration(runs, trial)
        inverse = Interval(low=amount / ci95.high, high=amount / ci95.low) if ci95 and ci95.low > 0 else None
        cell.add("iteration_time", "s", Amount(amount / rate, inverse, freedom), runs)
    _over_time(cell)


def _an_iteration(runs: Sequence[Run], trial: Trial) -> float:
    """How much of what throughput counts one iteration has: its samples, or the units of them."""
    windows = [window for one in runs for window in one.record.measurement.windows]
    units = math.fsum(window.samples if window.units is None else window.units for window in windows)
    return trial.global_batch * units / sum(window.samples for window in windows)


def _over_time(cell: Gathered) -> None:
    """Rate and iteration time of each window, over the repeats that have it; `iterations` are those done at its end, warm-up included."""
    trial = cell.measured[0].record.trial
    unit = next(one.record.measurement.throughput.unit for one in cell.measured if one.record.measurement.throughput)
    if not isinstance(trial, Trial):
        return
    joined = [(one, metrics.global_windows(one.record.measurement.windows)) for one in cell.measured]
    known = [(one, windows) for one, windows in joined if windows is not None]
    count = min((len(windows.samples) for _, windows in known), default=0)
    runs = [one for one, _ in known]
    for index in range(count):
        done = trial.warmup + min((index + 1) * trial.window, trial.iterations)
        length = min(trial.window, trial.iterations - index * trial.window)
        seconds = [float(windows.seconds[index]) for _, windows in known]
        amounts = [float(windows.samples[index]) for _, windows in known]
        cell.add("throughput", unit, Amount(sum(amounts) / sum(seconds)), runs, iterations=done)
        cell.add("iteration_time", "s", Amount(fmean(seconds) / max(length, 1)), runs, iterations=done)


def _times(cell: Gathered) -> None:
    """Training time, or that of all of an inference and of its batches; and how many samples it was for."""
    runs = cell.measured
    seconds = [one.record.measurement.training_time_s for one in runs if one.record.measurement.training_time_s]
    infers = all(_mode(one.record) == "infer" for one in runs)
    whole = "inference_time" if infers else "training_time"
    if not seconds:
        cell.lack("no run measured its time", whole)
        return
    cell.add(whole, "s", mean_of(seconds), runs)
    cell.add("samples_per_run", "images", Amount(float(runs[0].record.measurement.samples)), runs)
    if infers:
        latencies = [known.with_transfer.p50 for one in runs if (known := latency(one.record.measurement))]
        if latencies:
            cell.add_mean("time_per_batch", "s", latencies, runs, method="median latency")


def _quality(cell: Gathered) -> None:
    """Accuracy of predictions; losses and accuracy after each epoch; and the epoch at which a training has converged."""
    answered = [(one, figures) for one in cell.measured if (figures := one.record.measurement.accuracy)]
    if answered:
        share = _share([figures.percent for _, figures in answered], answered[0][1].samples)
        cell.add("accuracy", "%", share, [one for one, _ in answered])
    curves = [(one, one.record.measurement.epochs) for one in cell.measured if one.record.measurement.epochs]
    if not curves:
        return
    runs = [one for one, _ in curves]
    for index in range(min(len(curve) for _, curve in curves)):
        points = [curve[index] for _, curve in curves]
        epoch = points[0].epoch
        share = _share([point.accuracy_percent for point in points], points[0].validation_samples)
        cell.add("accuracy", "%", share, runs, epoch=epoch)
        for metric, losses in (
            ("train_loss", [point.train_loss for point in points]),
            ("val_loss", [point.val_loss for point in points]),
        ):
            known = [loss for loss in losses if loss is not None]
            if len(known) == len(losses):
                cell.add_mean(metric, "nats", known, runs, epoch=epoch)
    converged = [float(converged_at([(point.epoch, point.accuracy_percent) for point in curve])) for _, curve in curves]
    method = f"first epoch within {CONVERGED_WITHIN:g} percentage point of the run's best accuracy"
    cell.add_mean("epochs_to_converge", "epochs", converged, runs, method=method)


def converged_at(curve: Sequence[tuple[int, float]]) -> int:
    """The first epoch whose accuracy is within `CONVERGED_WITHIN` of the best of the run; pairs of epoch and accuracy in percent."""
    best = max(accuracy for _, accuracy in curve)
    return next(epoch for epoch, accuracy in curve if accuracy >= best - CONVERGED_WITHIN)


def _share(percents: Sequence[float], samples: int) -> Amount:
    """The mean of runs, each of the same so many samples; its interval is the wider of that over runs and that of a share of samples.

    Runs of one seed may agree to the last digit, which is no certainty about other images; one run tells nothing of others.
    """
    found = mean_of(percents)
    if found.ci95 is None or not samples:
        return found
    # Wilson's interval of a share (E. B. Wilson, JASA 22(158), 1927), in percent.
    z, share = student_t(math.inf), found.value / 100
    middle = (share + z**2 / (2 * samples)) / (1 + z**2 / samples)
    half = z / (1 + z**2 / samples) * math.sqrt(share * (1 - share) / samples + z**2 / (4 * samples**2))
    drawn = Interval(low=100 * (middle - half), high=100 * (middle + half))
    return Amount(found.value, drawn) if drawn.half_width > found.ci95.half_width else found


def _total_time(cell: Gathered) -> None:
    """How long several trainings took in all, as `concurrency.total_s` has it."""
    repeats: dict[int, list[Run]] = defaultdict(list)
    for one in cell.measured:
        repeats[one.record.trial.repeat].append(one)
    totals: list[float] = []
    runs: list[Run] = []
    for own in repeats.values():
        trial = own[0].record.trial
        concurrent = trial.concurrent if isinstance(trial, Trial) else None
        expected = 1 if concurrent is None or concurrent.case == "one" else concurrent.trainings
        if len(own) < expected:
            continue
        case = concurrent.case if concurrent else "one"
        totals.append(total_s([one.record for one in own], case=case))
        runs += own
    if totals:
        cell.add_mean("total_time", "s", totals, runs, repeats=len(totals))
    else:
        cell.lack("not all of the trainings of this case can be used", "total_time")


def _mode(record: RunRecord) -> str:
    return record.trial.mode if isinstance(record.trial, Trial) else "train"


_UTILISATION: Final = ("gpu_utilisation", "gpu_utilisation_min", "gpu_utilisation_avg", "gpu_utilisation_max")
_UNWATCHED: Final = "these runs were not watched (TELEMETRY_HZ=0)"

Watched = Sequence[tuple[Run, Telemetry]]


def _devices(cell: Gathered) -> None:
    """Everything that telemetry has, over all repeats; of each GPU by itself where there are several."""
    watched = [(one, telemetry) for one in cell.measured if (telemetry := one.record.telemetry)]
    if cell.on_cpu:
        cell.lack(NO_GPU, *_UTILISATION, "gpu_memory")
    elif watched:
        _gpus(cell, watched)
    else:
        cell.lack(_UNWATCHED, *_UTILISATION, "gpu_memory")
    if not watched:
        cell.lack(_UNWATCHED, "power_min", "power_avg", "power_max", "power_idle")
        return
    on_cpu = watched[0][1].device == "cpu"
    method = (
        "energy of the processors' packages (RAPL) ÷ time; extremes between samples"
        if on_cpu
        else "energy ÷ time; extremes of samples, as the driver tells them"
    )
    spans = [[one.power_w for one in telemetry.trained] for _, telemetry in watched]
    if not _ranges(cell, "power", "W", spans, watched, method=method):
        cell.lack(_why(watched, "power_w"), "power_min", "power_avg", "power_max")
    idle = [value for _, telemetry in watched if (value := _idle(telemetry)) is not None]
    if idle:
        runs = [one for one, _ in watched]
        cell.add_mean("power_idle", "W", idle, runs)
        cell.add_mean("power_avg", "W", idle, runs, state="idle")
    else:
        cell.lack(_why(watched, "power_w"), "power_idle")


def _gpus(cell: Gathered, watched: Watched) -> None:
    runs = [one for one, _ in watched]
    spans = [[gpu.utilisation for gpu in telemetry.gpus] for _, telemetry in watched]
    if _ranges(cell, "gpu_utilisation", "%", spans, watched):
        means = [fmean(one.avg for one in own if one) for own in spans]
        cell.add_mean("gpu_utilisation", "%", means, runs)
    else:
        cell.lack(_why(watched, "utilisation"), *_UTILISATION)
    peaks = [[gpu.memory_mib.max for gpu in telemetry.gpus if gpu.memory_mib] for _, telemetry in watched]
    if all(peaks):
        cell.add_mean("gpu_memory", "MiB", [max(own) for own in peaks], runs, method="largest of the devices")
        _each(cell, watched, "gpu_memory", "MiB", lambda gpu: gpu.memory_mib.max if gpu.memory_mib else None)
    else:
        cell.lack(_why(watched, "memory_mib"), "gpu_memory")
    for name in ("avg", "min", "max"):
        _each(cell, watched, f"gpu_utilisation_{name}", "%", partial(_utilisation, name))


def _utilisation(name: str, gpu: GpuTelemetry) -> float | None:
    return getattr(gpu.utilisation, name, None)


def _ranges(
    cell: Gathered,
    stem: str,
    unit: str,
    spans: Sequence[Sequence[Range | None]],
    watched: Watched,
    *,
    method: str | None = None,
) -> bool:
    """Smallest, mean and largest of one device; over several the mean of means and the extremes of all. Whether every device has them."""
    known = [[one for one in own if one] for own in spans]
    if not all(own and len(own) == len(all_) for own, all_ in zip(known, spans, strict=True)):
        return False
    for name, values in (
        ("min", [min(one.min for one in own) for own in known]),
        ("avg", [fmean(one.avg for one in own) for own in known]),
        ("max", [max(one.max for one in own) for own in known]),
    ):
        cell.add_mean(f"{stem}_{name}", unit, values, [one for one, _ in watched], method=method)
    return True


def _each(
    cell: Gathered, watched: Watched, metric: str, unit: str, figure: Callable[[GpuTelemetry], float | None]
) -> None:
    """A figure of each GPU, numbered from 1 in the order of nodes and devices, as `nvidia-smi` lists them."""
    count = min(len(telemetry.gpus) for _, telemetry in watched)
    for place in range(count if count > 1 else 0):  # one GPU is all of them
        values = [figure(telemetry.gpus[place]) for _, telemetry in watched]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            cell.add_mean(metric, unit, known, [one for one, _ in watched], gpu_index=place + 1)


def _idle(telemetry: Telemetry) -> float | None:
    """Mean idle power of a device; None unless each is known."""
    known = [one.idle_power_w for one in telemetry.trained if one.idle_power_w is not None]
    return fmean(known) if known and len(known) == len(telemetry.trained) else None


def _why(watched: Watched, field: str) -> str:
    """Why the devices that trained have no such figure."""
    telemetry = watched[0][1]
    for one in telemetry.trained:
        name = f"gpu{one.index}" if isinstance(one, GpuTelemetry) else "host"
        if reason := telemetry.why_missing(one.node, name, field):
            return reason
    return f"telemetry has no {field} of the devices"


_ASKS_A_DEVICE: Final = re.compile(r"^cu(da)?(GetDevice|DeviceGet|DeviceTotalMem|MemGetInfo|PointerGet)")
"""Calls that a source counts as memory-related beside allocation: asking a device what it has."""

_OF_KERNELS: Final = (
    "gpu_compute_utilisation",
    "kernel_concurrency",
    "concurrent_kernel_time",
    "nccl_broadcast_time_share",
    "winograd_time_share",
    "compute_time_share",
    "kernel_time_share",
)
_OF_CALLS: Final = ("memory_api_time_shares", "cudaLaunchKernel_api_time_share")
_NO_CALLS: Final = "no pass traced calls of the CUDA API"
_OF_COPIES: Final = ("copy_size", "copy_throughput", "copy_overlap")

Pass = tuple[Run, Profile]


def _passes(cell: Gathered) -> None:
    """All that the cell's passes tell; nothing where none was asked for."""
    told = [(one, profile) for one in cell.passes if (profile := one.record.profile)]
    whole = [(one, profile) for one, profile in told if profile.kind == "kernels" and profile.region is None]
    backward = [(one, profile) for one, profile in told if profile.kind == "kernels" and profile.region == "backward"]
    _fp32(cell, told)
    if not told:
        return
    if backward or not cell.backward_apart:
        _pooling(cell, backward or whole)
    if backward and not whole:
        _launches(cell, backward)
        return
    _flop(cell, whole)
    if cell.on_cpu:
        cell.lack(NO_GPU, *_OF_KERNELS, *_OF_CALLS, *_OF_COPIES)
        return
    _kernels(cell, whole)
    _memory_calls(cell, whole)
    _copies(cell, whole)
    if not cell.backward_apart:
        _launches(cell, whole)


def _pooling(cell: Gathered, own: Sequence[Pass]) -> None:
    share = _seconds(own, lambda category: category == "pooling_backward")
    if share.value > 0:
        method = f"{_unit(own)} of {_extent(own)}"
        cell.add("maxpoolbackward_time_share", "%", share, _runs(own), method=method)
    else:
        cell.lack("nothing in these passes is known as pooling's backward pass", "maxpoolbackward_time_share")


def _extent(own: Sequence[Pass]) -> str:
    region = own[0][1].region
    return f"the {region} pass" if region else "whole steps"


def _kernels(cell: Gathered, whole: Sequence[Pass]) -> None:
    uses = [(one, use) for one, profile in whole if (use := profile.gpu_total)]
    if not uses:
        cell.lack("no pass traced the kernels of whole steps", *_OF_KERNELS)
        return
    runs = [one for one, _ in uses]
    elapsed = sum(use.elapsed_s for _, use in uses)
    profiled = sum(use.profiled_s for _, use in uses)
    busy = 100 * sum(use.busy_s for _, use in uses) / elapsed
    cell.add("gpu_compute_utilisation", "%", Amount(busy), runs, method="union of kernels ÷ elapsed")
    parallel = sum(use.busy_s * (use.concurrency.parallel_percent if use.concurrency else 0.0) / 100 for _, use in uses)
    method = "time with two kernels or more ÷ profiled time"
    cell.add("kernel_concurrency", "%", Amount(100 * parallel / profiled), runs, method=method)
    cell.add("concurrent_kernel_time", "us", Amount(parallel * 1e6), runs)
    cell.add("profiled_time", "s", Amount(profiled), runs)
    trial = whole[0][0].record.trial
    if trial.world_size > 1:
        cell.add("nccl_broadcast_time_share", "%", _seconds(whole, lambda category: category == "broadcast"), runs)
    else:
        cell.lack("one device broadcasts nothing", "nccl_broadcast_time_share")
    cell.add("winograd_time_share", "%", _seconds(whole, lambda category: category == "convolution_winograd"), runs)
    cell.add(
        "compute_time_share", "%", _seconds(whole, _computes), runs, method="all but copies, memsets and collectives"
    )
    listed: dict[str, list[float]] = defaultdict(list)
    for _, profile in whole:
        for kernel in profile.kernels:
            listed[kernel.name].append(kernel.share_percent)
    for name, own in listed.items():
        cell.add("kernel_time_share", "%", Amount(sum(own) / len(whole)), runs, name=name)


def _computes(category: Category) -> bool:
    return category not in COLLECTIVES and not category.startswith("copy_") and category != "memset"


def _seconds(own: Sequence[Pass], fits: Callable[[Category], bool]) -> Amount:
    """Share in percent of the seconds of all work whose category fits."""
    entries = [entry for _, profile in own for entry in profile.categories]
    whole = sum(entry.seconds for entry in entries)
    return Amount(100 * sum(entry.seconds for entry in entries if fits(entry.category)) / whole if whole else 0.0)


def _launches(cell: Gathered, own: Sequence[Pass]) -> None:
    """What launching kernels took of the time of all calls."""
    told = [(one, profile) for one, profile in own if profile.calls]
    if cell.on_cpu or not told:
        cell.lack(NO_GPU if cell.on_cpu else _NO_CALLS, "cudaLaunchKernel_api_time_share")
        return
    launch = sum(entry.seconds for _, profile in told for entry in profile.calls if "LaunchKernel" in entry.name)
    share = Amount(100 * launch / _of_calls(told))
    cell.add("cudaLaunchKernel_api_time_share", "%", share, _runs(told), method=f"calls of {_extent(told)}")


def _memory_calls(cell: Gathered, whole: Sequence[Pass]) -> None:
    told = [(one, profile) for one, profile in whole if profile.calls]
    if not any(entry.call_class == "memory_management" for _, profile in told for entry in profile.calls):
        why = "nothing was allocated in the profiled steps: frameworks keep memory, and ask for it before"
        cell.lack(why if told else _NO_CALLS, "memory_api_time_shares")
        return
    by_name: dict[str, float] = defaultdict(float)
    for _, profile in told:
        for entry in profile.calls:
            if entry.call_class == "memory_management" or _ASKS_A_DEVICE.match(entry.name):
                by_name[entry.name] += entry.seconds
    for name, seconds in by_name.items():
        share, method = Amount(100 * seconds / _of_calls(told)), f"calls of {_extent(told)}"
        cell.add("memory_api_time_shares", "%", share, _runs(told), name=name, method=method)


def _of_calls(told: Sequence[Pass]) -> float:
    return sum(entry.seconds for _, profile in told for entry in profile.call_classes)


def _copies(cell: Gathered, whole: Sequence[Pass]) -> None:
    to_device = [copies for _, profile in whole for copies in profile.copies if copies.direction == "HtoD"]
    sized = [copies for copies in to_device if copies.bytes]
    if not to_device:
        cell.lack("nothing was copied to a device in the profiled steps", *_OF_COPIES)
        return
    runs = _runs(whole)
    if sized:
        moved, count = sum(copies.bytes or 0 for copies in sized), sum(copies.count for copies in sized)
        cell.add("copy_size", "MB", Amount(moved / count / 1e6), runs, method="mean of copies to a device")
        rate = moved / sum(copies.seconds for copies in sized) / 1e9
        cell.add("copy_throughput", "GB/s", Amount(rate), runs, method="while copying to a device")
    overlaps = [copies.overlap_percent for copies in to_device if copies.overlap_percent is not None]
    if overlaps:
        cell.add("copy_overlap", "%", Amount(fmean(overlaps)), runs, method="of copying to a device, beside kernels")


def _fp32(cell: Gathered, told: Sequence[Pass]) -> None:
    """By counters of kernels where a pass read them, else by the driver's own of the whole device."""
    if cell.on_cpu:
        cell.lack(NO_GPU, "fp32_utilisation")
        return
    counted = [(one, profile.counters.fp32_percent) for one, profile in told if profile.counters]
    kernels = [(one, percent) for one, percent in counted if percent is not None]
    if kernels:
        runs, values = [one for one, _ in kernels], [percent for _, percent in kernels]
        cell.add_mean("fp32_utilisation", "%", values, runs, method="counters of kernels, weighted by time")
        return
    watched = [
        (one, fmean(known))
        for one in cell.measured
        if one.record.telemetry
        and (known := [gpu.fp32_utilisation.avg for gpu in one.record.telemetry.gpus if gpu.fp32_utilisation])
    ]
    if watched:
        runs, values = [one for one, _ in watched], [percent for _, percent in watched]
        cell.add_mean("fp32_utilisation", "%", values, runs, method="FP32 pipe active, by the driver's counters")
    else:
        cell.lack("no counters of the FP32 pipe here", "fp32_utilisation")


def _flop(cell: Gathered, whole: Sequence[Pass]) -> None:
    """FLOP of one kernel on average (operators on a CPU): what the profiler of a source averages its counter over."""
    for one, profile in whole:
        trial = one.record.trial
        flop = one.record.measurement.flop
        pieces = (
            profile.gpu_total.kernels_per_step
            if profile.gpu_total
            else sum(region.pieces_per_step or 0.0 for region in profile.regions)
        )
        if isinstance(trial, Trial) and flop and pieces:
            of_step = (flop.forward_flop_per_sample + flop.backward_flop_per_sample) * trial.batch_per_device
            method = f"FLOP of a step ÷ {_unit([(one, profile)])} in it"
            cell.add("average_flop_count", "x", Amount(of_step / pieces), [one], method=method)
            return
    cell.lack("no pass tells both FLOP and how many kernels a step has", "average_flop_count")


def _unit(own: Sequence[Pass]) -> str:
    return own[0][1].work or "kernels"


def _runs(own: Sequence[Pass]) -> list[Run]:
    return [one for one, _ in own]
