"""The table of collectives timed by the probes, per operation and size: in the reports of a matrix and of transports, and as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from runner.analysis.comparisons.collectives import TimedOperation, missing_operations, timed_operations
from runner.analysis.summarize import Row
from runner.core.units import ABSENT, figure, milliseconds
from runner.report.table import Table, csv_text, fields

LEGEND: Final = (
    "by themselves, before the first step, medians; size: shares of all devices together; bus: what has to leave each device, by the "
    "convention of nccl-tests"
)
COLUMNS: Final[dict[str, Callable[[TimedOperation], str]]] = {
    "operation": lambda one: one.operation.replace("_", "-"),
    "transport": lambda one: one.label or ABSENT,
    "devices": lambda one: one.row.devices,
    "size (bytes)": lambda one: f"{one.size_bytes:,}",
    "time (ms)": lambda one: figure(milliseconds(one.seconds)),
    "algorithm (GB/s)": lambda one: figure(one.algbw_gb_s),
    "bus (GB/s)": lambda one: figure(one.busbw_gb_s),
}


def table(rows: Iterable[tuple[str, Row]]) -> Table | None:
    """One row per transport, scale, operation and size, of labelled rows; None if no run recorded collectives."""
    found = timed_operations(rows)
    if not found:
        return None
    words = ("operation", "transport", "devices")
    return Table.without_empty_columns(found, COLUMNS, title="Collectives", words=words, legend=LEGEND, folded=True)


def notes(rows: Iterable[Row]) -> tuple[str, ...]:
    """Which operations were not timed, and why."""
    return tuple(f"not timed: {one}" for one in missing_operations(rows))


def to_csv(rows: Iterable[tuple[str, Row]]) -> str | None:
    """The same as CSV, in full precision, seconds and 1e9 bytes per second; None if no run recorded collectives."""
    figures = ("operation", "size_bytes", "seconds", "algbw_gb_s", "busbw_gb_s")
    found = [
        {"transport": one.label, "scale": one.row.scale, **fields(one, *figures)} for one in timed_operations(rows)
    ]
    return csv_text(found) if found else None
