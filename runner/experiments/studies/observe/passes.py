"""Passes under a profiler → what kernels, copies and calls of the CUDA API came to. Pure.

Seconds of repeats are added up before they are divided. Shares of kernels are of all seconds of kernels, copies and memsets; shares of
calls are of all seconds of calls.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from runner.core.profile import COLLECTIVES, Category, Profile
from runner.core.trial import Trial
from runner.experiments.studies.model import Run
from runner.experiments.studies.noise import Amount
from runner.experiments.studies.observe.gather import NO_GPU, Gathered

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


def passes(cell: Gathered) -> None:
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
