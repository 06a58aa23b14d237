"""A pass under a profiler as tables, on a terminal and as Markdown, with its record's reservations. Which tables exist depends on the pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from runner.core.profile import GpuUse, NameShare, Profile
from runner.core.record import RunRecord
from runner.core.trial import Trial
from runner.core.units import ABSENT, figure
from runner.report.table import Columns, Entry, Table, fixed

MILLI, MICRO, MEGA, MIB = 1e3, 1e6, 1e6, 2**20
MOST_KERNELS: Final = 15  # names shown; the record has more, and the run's table all
MOST_CALLS: Final = 10
NAME_WIDTH: Final = 64  # characters of a kernel's name in a table
TEXT_COLUMNS: Final = (
    *("GPU", "category", "kernel", "operator", "direction", "function", "class"),
    *("region", "phase", "device", "after", "before"),
)
"""Columns of words; all others are figures."""
_CATEGORY_NAMES: Final = {
    "copy_htod": "copy HtoD",
    "copy_dtoh": "copy DtoH",
    "copy_dtod": "copy DtoD",
    "copy_ptop": "copy PtoP",
    "copy_htoh": "copy HtoH",
    "softmax_loss": "softmax and loss",
    "random": "dropout and random",
}


def profile_report(profile: Profile) -> RenderableType:
    """Lay a pass out for a terminal."""
    parts: list[RenderableType] = [Text(text) for text in summary(profile)]
    for one in sections(profile):
        parts += [Text(f"\n{one.title}", style="bold"), one.terminal()]
        if one.legend:
            parts.append(Text(one.legend, style="dim"))
    missing = unavailable(profile)
    return Group(*parts, *([Text()] if missing else []), *(Text(text, style="yellow") for text in missing))


def summary(profile: Profile) -> tuple[str, ...]:
    """What was profiled, the profiler's overhead, and the figures of all GPUs together, one line each."""
    what = f"the {profile.region} of each step" if profile.region else "whole steps"
    steady = "" if profile.steady else ", before the rate was steady"
    extent = f"{profile.iterations} iterations after {profile.after}{steady}, {what}"
    if profile.kind == "calls":
        extent = f"the whole process, its start-up and {profile.after + profile.iterations} iterations"
    found = [f"{profile.kind} by {profile.source}: {extent}"]
    if profile.steps:
        plain_s, overhead = profile.steps.plain_step_s, profile.steps.overhead_percent
        known = plain_s is not None and overhead is not None
        cost = f", {figure(_scaled(plain_s, MILLI))} ms without it: overhead {overhead:+.1f} %" if known else ""
        found.append(f"a step took {figure(MILLI * profile.steps.profiled_step_s)} ms under the profiler{cost}")
    if use := profile.gpu_total:
        elapsed = (
            "elapsed without the profiler's overhead"
            if use.elapsed_s < use.profiled_s
            else "elapsed under the profiler"
        )
        found.append(f"GPU compute utilisation {use.compute_percent:.1f} % (union of kernels ÷ {elapsed})")
    counters = profile.counters
    if counters and counters.fp32_percent is not None:
        found.append(
            f"FP32 utilisation {counters.fp32_percent:.1f} % weighted by kernel time, {fixed(counters.fp32_unweighted_percent)} % as the "
            f"unweighted mean over kernels; counters cover {counters.covered_percent:.0f} % of kernel time"
        )
    if counters and counters.flop_per_kernel is not None:
        found.append(
            f"{figure(counters.flop_per_kernel / MEGA)} million FP32 operations a kernel, the mean over kernels"
        )
    if counters and counters.tensor_percent is not None:
        found.append(f"tensor cores {counters.tensor_percent:.1f} % weighted by kernel time")
    if counters and counters.dram_bytes_per_step is not None:
        found.append(f"device memory {figure(counters.dram_bytes_per_step / MEGA)} MB a step")
    if profile.launches_per_step is not None:
        found.append(f"{figure(profile.launches_per_step)} launches a step")
    return tuple(found)


def unavailable(profile: Profile) -> tuple[str, ...]:
    """One sentence per reason, with the figures that are missing because of it."""
    reasons: dict[str, list[str]] = {}
    for one in profile.unavailable:
        reasons.setdefault(one.reason, []).append(one.figure)
    return tuple(f"{', '.join(figures)}: unavailable: {reason}" for reason, figures in reasons.items())


def sections(profile: Profile) -> tuple[Table, ...]:
    """The tables that have rows."""
    return tuple(table for table in _sections(profile) if table.rows)


def spelt(category: str) -> str:
    """A category in words."""
    return _CATEGORY_NAMES.get(category, category.replace("_", " "))


def work_name(profile: Profile) -> str:
    """What the shares of time are relative to."""
    return "kernels, copies and memsets" if profile.work == "kernels" else "operators"


def _sections(profile: Profile) -> Iterator[Table]:
    work = work_name(profile)
    piece = "kernel" if profile.work == "kernels" else "operator"
    counted: Columns[Any] = {"category": lambda one: spelt(one.category), "pieces": lambda one: f"{one.count:,}"}
    named: Columns[NameShare] = {**counted, **_MEAN}
    fp32: Columns[NameShare] = {"FP32 (%)": lambda one: fixed(one.fp32_percent)}
    yield _table(
        "What each GPU did",
        (*profile.gpus, *([profile.gpu_total] if profile.gpu_total and len(profile.gpus) > 1 else [])),
        _gpu_columns(profile.iterations),
        legend="own: without collectives; at once: kernels while any ran, a mean over time; parallel: part of that with two or more; "
        "times and kernels are those of a step",
    )
    yield _table(
        f"Time by category, of all {work}",
        profile.categories,
        {**counted, **_TIMED, **_SHARE},
        legend="pieces that ran at once count each"
        if profile.work == "kernels"
        else "an operator's time is what no operator within it took; operators that ran at once count each",
    )
    yield _table(
        f"Most time by {piece}",
        profile.kernels[:MOST_KERNELS],
        {piece: lambda one: _truncated(one.name), **named, **(fp32 if profile.counters else {})},
    )
    if profile.counters:
        yield _table(
            "Long kernels, low utilisation",
            profile.counters.low,
            {"kernel": lambda one: _truncated(one.name), **named, **fp32},
            legend="most time among those below the weighted mean of FP32 utilisation",
        )
    yield _table(
        "Copies",
        profile.copies,
        {
            "direction": lambda one: one.direction,
            "count": lambda one: f"{one.count:,}",
            **_TIMED,
            "bytes (MB)": lambda one: figure(_scaled(one.bytes, 1 / MEGA)),
            "GB/s": lambda one: figure(one.throughput_gb_s),
            "mean (MB)": lambda one: figure(_scaled(one.mean_bytes, 1 / MEGA)),
            "overlap (%)": lambda one: fixed(one.overlap_percent),
        },
        legend="overlap: part of the copying in which the same GPU ran a kernel",
    )
    yield _table("Calls of the CUDA API by class", profile.call_classes, {**_CALLS, **_TIMED, **_SHARE})
    yield _table("Most time by call", profile.calls[:MOST_CALLS], {"function": lambda one: one.name, **_CALLS, **_MEAN})
    yield _table(
        "Parts of a step",
        profile.regions,
        {
            "region": lambda one: one.name or "none of them",
            "step (ms)": lambda one: figure(_scaled(one.step_s, MILLI)),
            "work (ms)": lambda one: figure(_scaled(one.work_s, MILLI)),
            "pieces": lambda one: figure(one.pieces_per_step),
            **_SHARE,
        },
        legend=f"work: {work} that began in it; all but the share is of one step" if profile.work else "",
    )
    yield _table(
        "Memory by phase",
        profile.memory,
        {
            "phase": lambda one: one.phase,
            "device": lambda one: one.device,
            "rank": lambda one: str(one.rank),
            "allocated (MiB)": lambda one: figure(_scaled(one.allocated_bytes, 1 / MIB)),
            "reserved (MiB)": lambda one: figure(_scaled(one.reserved_bytes, 1 / MIB)),
            "peak (MiB)": lambda one: figure(_scaled(one.peak_bytes, 1 / MIB)),
        },
    )
    yield _table(
        "Longest gaps, in which a GPU ran nothing",
        profile.gaps,
        {
            "GPU": lambda one: one.device,
            "rank": lambda one: str(one.rank),
            "at (ms)": lambda one: figure(MILLI * one.start_s),
            "gap (ms)": lambda one: figure(MILLI * one.seconds),
            "after": lambda one: _truncated(one.after),
            "before": lambda one: _truncated(one.before),
        },
        legend="at: since the first piece of work of that GPU",
    )
    yield _table(
        "Floating-point operations as the framework counted them",
        profile.flop,
        {"phase": lambda one: one.phase, "GFLOP a unit": lambda one: figure(one.flop_per_sample / 1e9)},
        legend=f"unit: what throughput counts, such as an image or a token; by {profile.flop[0].source}"
        if profile.flop
        else "",
    )


# Columns shared by several tables.
_TIMED: Final[Columns[Any]] = {"time (ms)": lambda one: figure(MILLI * one.seconds)}
_SHARE: Final[Columns[Any]] = {"share (%)": lambda one: fixed(one.share_percent)}
_MEAN: Final[Columns[Any]] = {**_TIMED, "mean (µs)": lambda one: figure(MICRO * one.mean_s), **_SHARE}
_CALLS: Final[Columns[Any]] = {
    "class": lambda one: one.call_class.replace("_", " "),
    "calls": lambda one: f"{one.count:,}",
}


def _table(title: str, rows: Sequence[Entry], columns: Columns[Entry], *, legend: str = "") -> Table:
    return Table.from_entries(rows, columns, title=title, legend=legend, words=TEXT_COLUMNS)


def _gpu_columns(iterations: int) -> Columns[GpuUse]:
    """Columns of a GPU; the row of all GPUs together has no times."""

    def each(seconds: float, use: GpuUse) -> str:
        return ABSENT if use.rank is None else figure(MILLI * seconds / iterations)

    return {
        "GPU": lambda use: use.device if use.rank is None else f"{use.device}, rank {use.rank}",
        "compute (%)": lambda use: fixed(use.compute_percent),
        "own (%)": lambda use: fixed(use.own_compute_percent),
        "step (ms)": lambda use: each(use.elapsed_s, use),
        "busy (ms)": lambda use: each(use.busy_s, use),
        "at once": lambda use: figure(use.concurrency.mean if use.concurrency else None),
        "most": lambda use: str(use.concurrency.most) if use.concurrency else ABSENT,
        "parallel (%)": lambda use: fixed(use.concurrency.parallel_percent if use.concurrency else None),
        "kernels": lambda use: figure(use.kernels_per_step),
    }


def _truncated(name: str | None) -> str:
    """A name without the words that every C++ kernel begins with, truncated to fit a table."""
    if name is None:
        return ABSENT
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 3] + "..."


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def reservations(record: RunRecord) -> tuple[str, ...]:
    """Every reservation about its figures and, if it requested counters, why these are not Nsight Compute's."""
    profile = record.trial.profile if isinstance(record.trial, Trial) else None
    counting = profile.counting if profile else None
    if counting is None or counting.reason is None:
        return record.validity.reasons
    if counting.source == "none":
        return (*record.validity.reasons, f"hardware counters: {counting.reason}")
    means = "hardware counters are the sampler's, averages over time and not of each kernel"
    return (*record.validity.reasons, f"{means}: {counting.reason}")


def sampled_counters(record: RunRecord) -> Iterator[str]:
    """Each GPU's hardware counters as sampled: means over the time of the pass, because samplers do not resolve kernels."""
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
        means = ", ".join(f"{name} {mean.avg:.1f} %" for name, mean in pipes.items() if mean)
        if means:
            yield f"{gpu.node}, GPU {gpu.index} ({gpu.counters}, mean over {gpu.measured_s:.1f} s): {means}"
