"""Collectives timed by the probes of runs: each operation by size, with the gradient exchange, over the repeats of a scale. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

from runner.analysis.summarize import Row
from runner.core.frozen import Frozen
from runner.core.measurement import Exchange


class TimedOperation(Frozen):
    """One operation of `size_bytes` among the devices of `row`: medians over its usable runs, rates in 1e9 bytes a second (`Exchange`)."""

    label: str  # the transport; empty if there is only one
    row: Row
    operation: str
    size_bytes: int
    seconds: float
    algbw_gb_s: float
    busbw_gb_s: float


def timed_operations(rows: Iterable[tuple[str, Row]]) -> tuple[TimedOperation, ...]:
    """List the operations of the labelled rows that recorded collectives, by row, operation and size."""
    return tuple(one for label, row in rows for one in _of_row(label, row))


def missing_operations(rows: Iterable[Row]) -> tuple[str, ...]:
    """Why operations were not timed, each reason once."""
    found = (record.measurement.no_collectives for row in rows for record in row.records)
    return tuple(dict.fromkeys(one for one in found if one))


def _of_row(label: str, row: Row) -> Iterator[TimedOperation]:
    repeats: dict[tuple[str, int], list[Exchange]] = {}
    for record in row.records:
        if record.measurement.collectives:
            for one in (*record.measurement.probe, *record.measurement.collectives):
                repeats.setdefault((one.operation, one.size_bytes), []).append(one)
    for (operation, size), same in repeats.items():
        yield TimedOperation(
            label=label,
            row=row,
            operation=operation,
            size_bytes=size,
            seconds=statistics.median(one.seconds for one in same),
            algbw_gb_s=statistics.median(one.algbw_gb_s for one in same),
            busbw_gb_s=statistics.median(one.busbw_gb_s for one in same),
        )
