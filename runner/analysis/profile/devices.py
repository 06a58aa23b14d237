"""What each GPU did during a pass: kernel time and concurrency, idle gaps, and copies with their overlap.

GPU compute utilisation = union of kernel intervals ÷ elapsed × 100. Elapsed excludes the profiler's overhead: it is the profiled seconds
less the steps' excess over the unprofiled steps right before them, of a region its share of that, but at least the union itself.

Interval arrays are one-dimensional and of equal length. They are never looped over in Python: half a million take well under a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from runner.analysis.profile import classify
from runner.analysis.profile.rows import of_kind, short
from runner.core.profile import COLLECTIVES, Concurrency, Copies, Gap, GpuUse

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Spans:
    """Sorted, disjoint intervals: the result of `union`."""

    start: Floats
    end: Floats

    @property
    def total(self) -> float:
        """Their total length."""
        return float((self.end - self.start).sum())


def union(start: Floats, end: Floats) -> Spans:
    """The time covered by at least one interval; touching intervals merge."""
    if not len(start):
        return Spans(start=start, end=end)
    order = np.argsort(start, kind="stable")
    begins = start[order]
    # The latest end so far: an interval nested in an earlier one must not shorten it.
    reached = np.maximum.accumulate(end[order])
    opens = np.concatenate(([True], begins[1:] > reached[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Spans(start=begins[opens], end=reached[closes])


def intersect(a: Spans, b: Spans) -> Spans:
    """The time covered by both."""
    # For each span of b, the range of spans of a that overlap it.
    low = np.searchsorted(a.end, b.start, side="right")
    high = np.searchsorted(a.start, b.end, side="left")
    counts = np.maximum(high - low, 0)
    of_b = np.repeat(np.arange(len(counts)), counts)
    of_a = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    return Spans(start=np.maximum(a.start[of_a], b.start[of_b]), end=np.minimum(a.end[of_a], b.end[of_b]))


def gaps_within(spans: Spans, within: Spans) -> Spans:
    """The time that `within` covers and `spans` does not."""
    outside = Spans(start=np.concatenate(([-np.inf], spans.end)), end=np.concatenate((spans.start, [np.inf])))
    return intersect(outside, within)


def concurrency(start: Floats, end: Floats, busy: Spans) -> Concurrency | None:
    """How many of the intervals, whose union is `busy`, run concurrently; None if all have zero length.

    An interval that ends as another begins does not overlap it.
    """
    lasting = end > start
    begins, ends = start[lasting], end[lasting]
    if not len(begins):
        return None
    times = np.concatenate((ends, begins))
    change = np.concatenate((np.full(len(ends), -1), np.ones(len(begins), dtype=np.int64)))
    order = np.argsort(times, kind="stable")  # ends sort before begins of the same time
    running = np.cumsum(change[order])
    lengths = np.diff(times[order])
    at_once = running[:-1]
    return Concurrency(
        mean=float((lengths * at_once).sum()) / float(lengths[at_once >= 1].sum()),
        most=int(running.max()),
        parallel_percent=percent(float(lengths[at_once > 1].sum()), busy.total),
    )


def percent(part: float, whole: float) -> float:
    """A share in percent, 0 if the whole is 0; capped at 100 against rounding."""
    return min(100.0, 100 * part / whole) if whole else 0.0


ALL: Final = "all"
LONGEST_GAPS: Final = 5
GIGA: Final = 1e9


@dataclass(frozen=True)
class Elapsed:
    """Seconds of one rank's profiled iterations, or of the profiled region within them.

    `excess_s` is the extra time of the steps under the profiler, of a region its share by time; None if unknown.
    """

    iterations: int
    profiled_s: float
    excess_s: float | None

    def without_profiler(self, busy_s: float) -> float:
        """Elapsed seconds without the profiler's overhead; with it if the device was busy for longer, since its kernels then were slowed, too."""
        without_s = self.profiled_s - max(self.excess_s or 0.0, 0.0)
        return without_s if without_s >= busy_s else max(self.profiled_s, busy_s)


def spans(rows: pd.DataFrame) -> Spans:
    """Union of the rows' intervals."""
    return union(rows["start"].to_numpy(), rows["end"].to_numpy())


def by_gpu(rows: pd.DataFrame) -> Iterator[tuple[int, int, pd.DataFrame]]:
    """Yield (rank, device, rows) for each GPU of each rank; only rows with a start time."""
    for (rank, device), mine in rows[rows["start"].notna()].groupby(["rank", "device"]):
        yield int(rank), int(device), mine


def uses(device_work: pd.DataFrame, elapsed: Mapping[int, Elapsed]) -> tuple[tuple[GpuUse, ...], GpuUse | None]:
    """What each GPU did, and all GPUs together; ranks without an elapsed time are left out."""
    found = []
    for rank, device, work in by_gpu(device_work):
        kernels = of_kind(work, "kernel")
        if rank in elapsed:
            found.append(_gpu_use(f"gpu{device}", rank, kernels, elapsed[rank]))
    if not found:
        return (), None
    return tuple(found), _total_use(found)


def _gpu_use(device: str, rank: int, kernels: pd.DataFrame, elapsed: Elapsed) -> GpuUse:
    busy = spans(kernels)
    own = spans(kernels[~kernels["category"].isin(COLLECTIVES)])
    elapsed_s = elapsed.without_profiler(busy.total)
    return GpuUse(
        device=device,
        rank=rank,
        profiled_s=elapsed.profiled_s,
        elapsed_s=elapsed_s,
        busy_s=busy.total,
        compute_percent=percent(busy.total, elapsed_s),
        own_compute_percent=percent(own.total, elapsed_s),
        concurrency=concurrency(kernels["start"].to_numpy(), kernels["end"].to_numpy(), busy),
        kernels_per_step=len(kernels) / elapsed.iterations,
    )


def _total_use(found: list[GpuUse]) -> GpuUse:
    """Combine all GPUs: seconds are summed, shares weighted by the seconds that they refer to, kernels per step averaged."""
    busy_s, elapsed_s = math.fsum(use.busy_s for use in found), math.fsum(use.elapsed_s for use in found)
    own = math.fsum(use.own_compute_percent * use.elapsed_s for use in found)
    joint = None
    if at_once := [(use.concurrency, use.busy_s) for use in found if use.concurrency]:
        parallel = math.fsum(one.parallel_percent * seconds for one, seconds in at_once)
        joint = Concurrency(
            mean=math.fsum(one.mean * seconds for one, seconds in at_once) / busy_s,
            most=max(one.most for one, _ in at_once),
            parallel_percent=min(100.0, parallel / busy_s),
        )
    return GpuUse(
        device=ALL,
        rank=None,
        profiled_s=math.fsum(use.profiled_s for use in found),
        elapsed_s=elapsed_s,
        busy_s=busy_s,
        compute_percent=percent(busy_s, elapsed_s),
        own_compute_percent=min(100.0, own / elapsed_s if elapsed_s else 0.0),
        concurrency=joint,
        kernels_per_step=math.fsum(use.kernels_per_step for use in found) / len(found),
    )


def gaps(device_work: pd.DataFrame, regions: pd.DataFrame, *, region: str | None) -> tuple[Gap, ...]:
    """The longest idle gaps of the GPUs, longest first.

    A gap lies between a GPU's first and last piece of work or, if only a region was profiled, within one pass through it.
    """
    found: list[Gap] = []
    for rank, device, work in by_gpu(device_work):
        ordered = work.sort_values("start", kind="stable")
        starts, ends = ordered["start"].to_numpy(), ordered["end"].to_numpy()
        if region is None:
            within = Spans(start=starts[:1], end=np.array([ends.max()]))
        else:
            within = spans(regions[(regions["rank"] == rank) & (regions["name"] == region)])
        idle = gaps_within(union(starts, ends), within)
        longest = np.argsort(idle.start - idle.end, kind="stable")[:LONGEST_GAPS]
        names, by_end = ordered["name"].to_numpy(), np.argsort(ends, kind="stable")
        for start, end in zip(idle.start[longest], idle.end[longest], strict=True):
            if end > start:
                before = np.searchsorted(starts, end)
                after = np.searchsorted(ends[by_end], start, side="right") - 1
                found.append(
                    Gap(
                        device=f"gpu{device}",
                        rank=rank,
                        start_s=float(start - starts[0]),
                        seconds=float(end - start),
                        after=short(names[by_end[after]]) if after >= 0 and ends[by_end[after]] == start else None,
                        before=short(names[before]) if before < len(starts) and starts[before] == end else None,
                    )
                )
    return tuple(sorted(found, key=lambda gap: -gap.seconds)[:LONGEST_GAPS])


def copies(device_work: pd.DataFrame) -> tuple[Copies, ...]:
    """Copies by direction, most time first."""
    kernels = of_kind(device_work, "kernel")
    found = []
    for category, rows in of_kind(device_work, "copy").groupby("category", sort=False):
        sized = rows[rows["bytes"].notna()]
        copied, copying = float(sized["bytes"].sum()), float(sized["duration"].sum())
        found.append(
            Copies(
                direction=classify.direction(category),
                count=len(rows),
                seconds=float(rows["duration"].sum()),
                bytes=int(copied) if len(sized) else None,
                throughput_gb_s=copied / copying / GIGA if copying else None,
                mean_bytes=copied / len(sized) if len(sized) else None,
                overlap_percent=_overlap_percent(rows, kernels),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.seconds))


def _overlap_percent(rows: pd.DataFrame, kernels: pd.DataFrame) -> float | None:
    """Percent of copy time during which a kernel ran on the same GPU; None if the copies took no time."""
    copying = both = 0.0
    for rank, device, mine in by_gpu(rows):
        here = kernels[(kernels["rank"] == rank) & (kernels["device"] == device) & kernels["start"].notna()]
        copied = spans(mine)
        copying += copied.total
        both += intersect(copied, spans(here)).total
    return percent(both, copying) if copying else None
