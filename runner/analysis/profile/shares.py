"""Where the time of a pass went: kernels by category and name, CUDA API calls, regions of a step; and hardware counters of kernels.

A share is of the seconds of all work: kernels, copies and memsets of the GPUs, or operators if there are none. Seconds of concurrent pieces
count for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from runner.analysis.profile import classify
from runner.analysis.profile.devices import percent
from runner.analysis.profile.rows import short
from runner.core.events import Regions, StepPart
from runner.core.profile import CallClassShare, CallShare, CategoryShare, Counters, NameShare, RegionUse

LISTED: Final = 30
"""The most kernel names, and the most calls, that a record keeps."""
LOW: Final = 10
ORDER: Final[tuple[StepPart, ...]] = ("input", "forward", "backward", "optimizer", "update", "step")


def categories(work: pd.DataFrame, seconds: pd.Series[float]) -> tuple[CategoryShare, ...]:
    """Time by category, most first; `seconds` holds the time of each row of `work`."""
    table = _summed(work, "category", seconds)
    return tuple(CategoryShare(category=row.Index, **_totals(row)) for row in table.itertuples())


def names(work: pd.DataFrame, seconds: pd.Series[float], *, most: int = LISTED) -> tuple[NameShare, ...]:
    """Time by name, most first; `fp32_percent` is weighted by time."""
    table = _summed(work, ["name", "category"], seconds)
    counted = work["fp32_percent"].notna()
    weighted = (work["fp32_percent"] * seconds)[counted].groupby([work["name"], work["category"]]).sum()
    weights = seconds[counted].groupby([work["name"], work["category"]]).sum()
    table["fp32"] = weighted / weights.where(weights > 0)
    return tuple(
        NameShare(
            name=short(row.Index[0]),
            category=row.Index[1],
            mean_s=row.seconds / row.count_,
            **_totals(row),
            fp32_percent=None if np.isnan(row.fp32) else row.fp32,
        )
        for row in table.head(most).itertuples()
    )


def calls(rows: pd.DataFrame) -> tuple[tuple[CallShare, ...], tuple[CallClassShare, ...]]:
    """Time of calls by function and by class, most first."""
    classes = {name: classify.category("call", name) for name in rows["name"].unique()}
    by_name = _summed(rows, "name", rows["duration"])
    by_class = _summed(rows.assign(call_class=rows["name"].map(classes)), "call_class", rows["duration"])
    functions = (
        CallShare(name=short(row.Index), call_class=classes[row.Index], mean_s=row.seconds / row.count_, **_totals(row))
        for row in by_name.head(LISTED).itertuples()
    )
    return tuple(functions), tuple(
        CallClassShare(call_class=row.Index, **_totals(row)) for row in by_class.itertuples()
    )


def regions(
    work: pd.DataFrame,
    seconds: pd.Series[float],
    passages: pd.DataFrame,
    timed: Sequence[Regions],
    *,
    iterations: Mapping[int, int],
) -> tuple[RegionUse, ...]:
    """Time by region of a step, in step order, then outside all; `seconds` are of `work`, `iterations` are the profiled ones by rank.

    Regions that programs `timed` with synchronized devices take precedence over the durations of the `passages`.
    """
    steps = sum(iterations.values())
    if not steps:
        return ()
    spent: dict[str, dict[int, float]] = {}  # seconds by region and rank
    for row in passages.groupby(["name", "rank"], as_index=False)["duration"].sum().itertuples():
        spent.setdefault(row.name, {})[row.rank] = row.duration
    for name in {event.name for event in timed}:
        spent[name] = {event.rank: math.fsum(event.seconds) for event in timed if event.name == name}
    if not spent:
        return ()
    table = _summed(work.fillna({"region": ""}), "region", seconds)
    order = [*(name for name in ORDER if name in spent), ""]
    has_work = len(work) > 0
    pieces, took, share = (
        table[column].reindex(order, fill_value=0).tolist() for column in ("count_", "seconds", "share")
    )
    return tuple(
        RegionUse(
            name=name or None,
            step_s=_each_step(spent[name], iterations) if name else None,
            work_s=took[place] / steps if has_work else None,
            pieces_per_step=pieces[place] / steps if has_work else None,
            share_percent=share[place] if has_work else None,
        )
        for place, name in enumerate(order)
        if name or pieces[place]
    )


def _each_step(seconds: Mapping[int, float], iterations: Mapping[int, int]) -> float | None:
    """Mean seconds per step over the ranks that reported this region."""
    steps = sum(iterations.get(rank, 0) for rank in seconds)
    return math.fsum(spent for rank, spent in seconds.items() if rank in iterations) / steps if steps else None


def counters(kernels: pd.DataFrame, *, iterations: int) -> Counters | None:
    """Hardware counters of the kernels; None if no row has any. `iterations` is the sum over ranks."""
    known = kernels[["fp32_percent", "tensor_percent", "dram_bytes"]].notna()
    if not known.to_numpy().any():
        return None
    seconds = kernels["duration"]
    fp32 = _weighted(kernels["fp32_percent"], seconds)
    moved = kernels["dram_bytes"].sum(min_count=1)
    listed = names(kernels, seconds, most=len(kernels))
    return Counters(
        fp32_percent=fp32,
        fp32_unweighted_percent=float(kernels["fp32_percent"].mean()) if known["fp32_percent"].any() else None,
        tensor_percent=_weighted(kernels["tensor_percent"], seconds),
        dram_bytes_per_step=float(moved) / iterations if iterations and not np.isnan(moved) else None,
        covered_percent=percent(float(seconds[known["fp32_percent"]].sum()), float(seconds.sum())),
        low=tuple(
            one for one in listed if fp32 is not None and one.fp32_percent is not None and one.fp32_percent < fp32
        )[:LOW],
        flop_per_kernel=float(kernels["flop"].mean()) if kernels["flop"].notna().any() else None,
    )


def _weighted(values: pd.Series[float], seconds: pd.Series[float]) -> float | None:
    """Time-weighted mean of the known values."""
    known = values.notna()
    weight = float(seconds[known].sum())
    return float((values * seconds)[known].sum()) / weight if weight else None


def _summed(rows: pd.DataFrame, by: str | list[str], seconds: pd.Series[float]) -> pd.DataFrame:
    """Pieces, seconds and share of each group, most seconds first, ties by name."""
    groups = rows.assign(seconds=seconds).groupby(by)["seconds"]
    table = pd.DataFrame({"count_": groups.size(), "seconds": groups.sum()})
    whole = float(table["seconds"].sum())
    table["share"] = 100 * table["seconds"] / whole if whole else 0.0
    ordered: pd.DataFrame = table.sort_index().sort_values("seconds", ascending=False, kind="stable")
    return ordered


def _totals(row: Any) -> dict[str, Any]:
    return {"count": row.count_, "seconds": row.seconds, "share_percent": row.share}
