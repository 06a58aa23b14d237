"""A pass under a profiler as tables: on a terminal and as Markdown. Which tables there are depends on what the pass found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group
from rich.table import Table as TerminalTable
from rich.text import Text

from runner.core.units import ABSENT, figure
from runner.report.block import Block, escaped, listed
from runner.report.page.model import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from runner.core.profile import GpuUse, NameShare, Profile

MILLI, MICRO, MEGA, MIB = 1e3, 1e6, 1e6, 2**20
KERNELS: Final = 15
"""Names that are shown; the record has more, and the run's table all."""
CALLS: Final = 10
NAME: Final = 64
"""Characters of a kernel's name in a table."""
WORDS: Final = frozenset(
    {
        "GPU",
        "category",
        "kernel",
        "operator",
        "direction",
        "function",
        "class",
        "region",
        "phase",
        "device",
        "after",
        "before",
    }
)
"""Columns that hold words; all others hold figures."""
_SPELT: Final = {"copy_htod": "copy HtoD", "copy_dtoh": "copy DtoH", "copy_dtod": "copy DtoD", "copy_ptop": "copy PtoP"}
_SPELT_TOO: Final = {"copy_htoh": "copy HtoH", "softmax_loss": "softmax and loss", "random": "dropout and random"}


def profile_report(profile: Profile) -> RenderableType:
    """Lay a pass out for a terminal."""
    parts: list[RenderableType] = [Text(text) for text in summary(profile)]
    for section in sections(profile):
        table = TerminalTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
        for name in section.columns:
            words = name in WORDS
            # Figures are never broken; names give way where the terminal is narrow.
            table.add_column(name, justify="left" if words else "right", no_wrap=not words, overflow="fold")
        for row in section.rows:
            table.add_row(*(Text(cell) for cell in row))
        parts += [Text(f"\n{section.title}", style="bold"), table]
        if section.legend:
            parts.append(Text(section.legend, style="dim"))
    missing = unavailable(profile)
    return Group(*parts, *([Text()] if missing else []), *(Text(text, style="yellow") for text in missing))


def markdown(profile: Profile, *, title: str, ran_on: Sequence[str], notes: Sequence[str] = ()) -> str:
    """A section for people who paste; ends with a newline.

    Args:
        profile: what the pass found.
        title: what ran.
        ran_on: lines on how and on what it ran, below the title.
        notes: what else is to be said, below the tables.
    """
    lines = [f"### {escaped(title)}", "", *(f"{escaped(text)}  " for text in (*ran_on, *summary(profile)))]
    for section in sections(profile):
        table = Block(headers=section.columns, rows=section.rows, words=tuple(WORDS))
        lines += ["", f"**{escaped(section.title)}**", "", *table.markdown()]
        if section.legend:
            lines += ["", escaped(section.legend)]
    said = (*notes, *unavailable(profile))
    if said:
        lines += ["", *listed(said)]
    return "\n".join(lines) + "\n"


def summary(profile: Profile) -> tuple[str, ...]:
    """What was profiled, what the profiler cost, and the figures of all GPUs in a line each."""
    what = f"the {profile.region} of each step" if profile.region else "whole steps"
    steady = "" if profile.steady else ", before the rate was steady"
    found = [
        f"{profile.kind} by {profile.source}: {profile.iterations} iterations after {profile.after}{steady}, {what}"
    ]
    if profile.steps:
        cost = ""
        if profile.steps.plain_step_s is not None and profile.steps.overhead_percent is not None:
            cost = f", {figure(MILLI * profile.steps.plain_step_s)} ms without it: overhead {profile.steps.overhead_percent:+.1f} %"
        found.append(f"a step took {figure(MILLI * profile.steps.profiled_step_s)} ms under the profiler{cost}")
    if profile.gpu_total:
        use = profile.gpu_total
        found.append(
            f"GPU compute utilisation {use.compute_percent:.1f} % (union of kernels ÷ elapsed without the profiler's overhead)"
        )
    if profile.counters and profile.counters.fp32_percent is not None:
        counters = profile.counters
        found.append(
            f"FP32 utilisation {counters.fp32_percent:.1f} % weighted by kernel time, {_percent(counters.fp32_unweighted_percent)} % as the "
            f"unweighted mean over kernels; counters cover {counters.covered_percent:.0f} % of kernel time"
        )
    if profile.counters and profile.counters.tensor_percent is not None:
        found.append(f"tensor cores {profile.counters.tensor_percent:.1f} % weighted by kernel time")
    if profile.counters and profile.counters.dram_bytes_per_step is not None:
        found.append(f"device memory {figure(profile.counters.dram_bytes_per_step / MEGA)} MB a step")
    if profile.launches_per_step is not None:
        found.append(f"{figure(profile.launches_per_step)} launches a step")
    return tuple(found)


def unavailable(profile: Profile) -> tuple[str, ...]:
    """One sentence for each reason, with the figures that are missing for it."""
    reasons: dict[str, list[str]] = {}
    for one in profile.unavailable:
        reasons.setdefault(one.reason, []).append(one.figure)
    return tuple(f"{', '.join(figures)}: unavailable: {reason}" for reason, figures in reasons.items())


def sections(profile: Profile) -> tuple[Table, ...]:
    """The tables that have rows."""
    return tuple(section for section in _sections(profile) if section.rows)


def spelt(category: str) -> str:
    """A category in words."""
    return _SPELT.get(category) or _SPELT_TOO.get(category) or category.replace("_", " ")


def worked(profile: Profile) -> str:
    """What shares of time are of."""
    return "kernels, copies and memsets" if profile.work == "kernels" else "operators"


def _sections(profile: Profile) -> Iterator[Table]:
    work = worked(profile)
    piece = "kernel" if profile.work == "kernels" else "operator"
    yield Table(
        title="What each GPU did",
        columns=(
            "GPU",
            "compute (%)",
            "own (%)",
            "step (ms)",
            "busy (ms)",
            "at once",
            "most",
            "parallel (%)",
            "kernels",
        ),
        rows=tuple(_gpu(use, profile.iterations) for use in _uses(profile)),
        legend="own: without collectives; at once: kernels while any ran, a mean over time; parallel: part of that with two or more; "
        "times and kernels are those of a step",
    )
    yield Table(
        title=f"Time by category, of all {work}",
        columns=("category", "pieces", "time (ms)", "share (%)"),
        rows=tuple(
            (spelt(one.category), f"{one.count:,}", figure(MILLI * one.seconds), _percent(one.share_percent))
            for one in profile.categories
        ),
        legend="pieces that ran at once count each"
        if profile.work == "kernels"
        else "an operator's time is what no operator within it took; operators that ran at once count each",
    )
    yield Table(
        title=f"Most time by {piece}",
        columns=(
            piece,
            "category",
            "pieces",
            "time (ms)",
            "mean (µs)",
            "share (%)",
            *(["FP32 (%)"] if profile.counters else []),
        ),
        rows=tuple(_named(one, counted=profile.counters is not None) for one in profile.kernels[:KERNELS]),
    )
    if profile.counters:
        yield Table(
            title="Long kernels, low utilisation",
            columns=("kernel", "category", "pieces", "time (ms)", "mean (µs)", "share (%)", "FP32 (%)"),
            rows=tuple(_named(one, counted=True) for one in profile.counters.low),
            legend="most time among those below the weighted mean of FP32 utilisation",
        )
    yield Table(
        title="Copies",
        columns=("direction", "count", "time (ms)", "bytes (MB)", "GB/s", "mean (MB)", "overlap (%)"),
        rows=tuple(
            (
                one.direction,
                f"{one.count:,}",
                figure(MILLI * one.seconds),
                figure(_scaled(one.bytes, 1 / MEGA)),
                figure(one.throughput_gb_s),
                figure(_scaled(one.mean_bytes, 1 / MEGA)),
                _percent(one.overlap_percent),
            )
            for one in profile.copies
        ),
        legend="overlap: part of the copying in which the same GPU ran a kernel",
    )
    yield Table(
        title="Calls of the CUDA API by class",
        columns=("class", "calls", "time (ms)", "share (%)"),
        rows=tuple(
            (
                one.call_class.replace("_", " "),
                f"{one.count:,}",
                figure(MILLI * one.seconds),
                _percent(one.share_percent),
            )
            for one in profile.call_classes
        ),
    )
    yield Table(
        title="Most time by call",
        columns=("function", "class", "calls", "time (ms)", "mean (µs)", "share (%)"),
        rows=tuple(
            (
                one.name,
                one.call_class.replace("_", " "),
                f"{one.count:,}",
                figure(MILLI * one.seconds),
                figure(MICRO * one.mean_s),
                _percent(one.share_percent),
            )
            for one in profile.calls[:CALLS]
        ),
    )
    yield Table(
        title="Parts of a step",
        columns=("region", "step (ms)", "work (ms)", "pieces", "share (%)"),
        rows=tuple(
            (
                one.name or "none of them",
                figure(_scaled(one.step_s, MILLI)),
                figure(_scaled(one.work_s, MILLI)),
                figure(one.pieces_per_step),
                _percent(one.share_percent),
            )
            for one in profile.regions
        ),
        legend=f"work: {work} that began in it; all but the share is of one step" if profile.work else "",
    )
    yield Table(
        title="Memory by phase",
        columns=("phase", "device", "rank", "allocated (MiB)", "reserved (MiB)", "peak (MiB)"),
        rows=tuple(
            (
                one.phase,
                one.device,
                str(one.rank),
                *(figure(_scaled(size, 1 / MIB)) for size in (one.allocated_bytes, one.reserved_bytes, one.peak_bytes)),
            )
            for one in profile.memory
        ),
    )
    yield Table(
        title="Longest gaps, in which a GPU ran nothing",
        columns=("GPU", "rank", "at (ms)", "gap (ms)", "after", "before"),
        rows=tuple(
            (
                one.device,
                str(one.rank),
                figure(MILLI * one.start_s),
                figure(MILLI * one.seconds),
                _short(one.after),
                _short(one.before),
            )
            for one in profile.gaps
        ),
        legend="at: since the first piece of work of that GPU",
    )
    yield Table(
        title="Floating-point operations as the framework counted them",
        columns=("phase", "GFLOP a sample"),
        rows=tuple((one.phase, figure(one.flop_per_sample / 1e9)) for one in profile.flop),
        legend=f"by {profile.flop[0].source}" if profile.flop else "",
    )


def _uses(profile: Profile) -> Sequence[GpuUse]:
    """Each GPU, and below several of them all."""
    return (*profile.gpus, *([profile.gpu_total] if profile.gpu_total and len(profile.gpus) > 1 else []))


def _gpu(use: GpuUse, iterations: int) -> tuple[str, ...]:
    at_once = use.concurrency
    return (
        use.device if use.rank is None else f"{use.device}, rank {use.rank}",
        _percent(use.compute_percent),
        _percent(use.own_compute_percent),
        *(
            (figure(MILLI * seconds / iterations) for seconds in (use.elapsed_s, use.busy_s))
            if use.rank is not None
            else (ABSENT,) * 2
        ),
        figure(at_once.mean if at_once else None),
        str(at_once.most) if at_once else ABSENT,
        _percent(at_once.parallel_percent if at_once else None),
        figure(use.kernels_per_step),
    )


def _named(one: NameShare, *, counted: bool) -> tuple[str, ...]:
    return (
        _short(one.name),
        spelt(one.category),
        f"{one.count:,}",
        figure(MILLI * one.seconds),
        figure(MICRO * one.mean_s),
        _percent(one.share_percent),
        *([_percent(one.fp32_percent)] if counted else []),
    )


def _short(name: str | None) -> str:
    """As much of a name as a table has room for, without the words that every C++ kernel begins with."""
    if name is None:
        return ABSENT
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return name if len(name) <= NAME else name[: NAME - 3] + "..."


def _percent(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1f}"


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
