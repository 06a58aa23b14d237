"""Prepares table `kernels` of a pass: drops rows without a duration, adds categories and regions.

Added columns:

    end        start + duration
    category   of kernels, copies, memsets and operators (`classify`)
    region     the region in which a piece of work was issued; None outside all. A kernel runs later than the thread that issued it, so its
               call (`correlation`) decides, else its operator (`op`), else its own start. An operator's region is that of its own start.
    own        seconds of an operator outside its child operators (`parent`): torch.profiler's self time. Counting leaves alone would miss
               work: a convolution that allocates its result has a child.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from runner.analysis.profile import classify

NUMBERS: Final = ("rank", "device", "start", "duration", "bytes", "correlation", "op", "parent")
COUNTERS: Final = ("fp32_percent", "tensor_percent", "dram_bytes", "flop")
COLUMNS: Final = ("kind", "name", *NUMBERS, *COUNTERS)
NAME: Final = 240
"""The most characters of a name that a record keeps; C++ templates reach thousands. The table keeps them whole."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a pass by kind; `dropped` counts those without a duration."""

    device_work: pd.DataFrame
    calls: pd.DataFrame
    operators: pd.DataFrame
    regions: pd.DataFrame
    dropped: int

    @property
    def kernels(self) -> pd.DataFrame:
        """Kernels only."""
        return of_kind(self.device_work, "kernel")


def short(name: str) -> str:
    """Shorten a name to what a record keeps."""
    return name if len(name) <= NAME else name[: NAME - 3] + "..."


def of_kind(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The rows of one kind."""
    found: pd.DataFrame = rows[rows["kind"] == kind]
    return found


def prepare(frame: pd.DataFrame | None) -> Rows:
    """Prepare a table; None counts as an empty one."""
    table = pd.DataFrame(columns=list(COLUMNS)) if frame is None else frame.reindex(columns=list(COLUMNS))
    numbers = {name: pd.to_numeric(table[name], errors="coerce").astype("float64") for name in (*NUMBERS, *COUNTERS)}
    table = table.assign(**numbers)
    table["rank"] = table["rank"].fillna(0).astype("int64")
    table["device"] = table["device"].fillna(-1).astype("int64")
    timed = table["duration"] >= 0
    dropped = int((~timed).sum())
    table = table[timed]
    table = table.assign(end=table["start"] + table["duration"])
    operators, regions, calls = (of_kind(table, kind) for kind in ("op", "region", "call"))
    work = table[table["kind"].isin(("kernel", "copy", "set"))]
    return Rows(
        device_work=work.assign(
            category=_categories(work), region=_regions(work, _issued_at(work, calls, operators), regions)
        ),
        calls=calls.assign(name=calls["name"].map({name: classify.function(name) for name in calls["name"].unique()})),
        operators=operators.assign(
            category=_categories(operators),
            region=_regions(operators, operators["start"], regions),
            own=_self_seconds(operators),
        ),
        regions=regions,
        dropped=dropped,
    )


def _categories(rows: pd.DataFrame) -> pd.Series[str]:
    """The category of each row; each name is matched once."""
    categories = [classify.category(kind, name) for kind, name in zip(rows["kind"], rows["name"], strict=True)]
    found: pd.Series[str] = pd.Series(categories, index=rows.index, dtype="object")
    return found


def _issued_at(work: pd.DataFrame, calls: pd.DataFrame, operators: pd.DataFrame) -> pd.Series[float]:
    """When each piece of device work was issued: the start of its call, else of its operator, else its own."""
    by_call, by_operator = _start_of(calls, "correlation", work), _start_of(operators, "op", work)
    issued_at: pd.Series[float] = by_call.fillna(by_operator).fillna(work["start"])
    return issued_at


def _start_of(issuers: pd.DataFrame, key: str, work: pd.DataFrame) -> pd.Series[float]:
    """For each row of `work`, the start of the earliest row of `issuers` with the same rank and key; NaN if there is none."""
    known = issuers[issuers[key].notna()].sort_values("start", kind="stable").drop_duplicates(["rank", key])
    starts = known.set_index(["rank", key])["start"].reindex(pd.MultiIndex.from_frame(work[["rank", key]]))
    found: pd.Series[float] = pd.Series(starts.to_numpy(dtype="float64"), index=work.index)
    return found


def _regions(rows: pd.DataFrame, issued_at: pd.Series[float], regions: pd.DataFrame) -> pd.Series[str]:
    """The region open on each row's rank at time `issued_at`; regions of one rank do not overlap."""
    found: pd.Series[str] = pd.Series(None, index=rows.index, dtype="object")
    for rank, spans in regions.groupby("rank"):
        ordered = spans.sort_values("start", kind="stable")
        mine = rows.index[rows["rank"] == rank]
        moments = issued_at.loc[mine].to_numpy()
        place = np.searchsorted(ordered["start"].to_numpy(), moments, side="right") - 1
        inside = (place >= 0) & (moments < ordered["end"].to_numpy()[np.maximum(place, 0)])
        found.loc[mine[inside]] = ordered["name"].to_numpy()[place[inside]]
    return found


def _self_seconds(operators: pd.DataFrame) -> pd.Series[float]:
    """Duration of each operator less that of its children; not below zero if children ran concurrently on other threads."""
    within = operators[operators["parent"].notna()].groupby(["rank", "parent"])["duration"].sum()
    children = within.reindex(pd.MultiIndex.from_frame(operators[["rank", "op"]])).fillna(0.0).to_numpy(dtype="float64")
    self_seconds: pd.Series[float] = (operators["duration"] - children).clip(lower=0.0)
    return self_seconds
