"""The comparison of transports as a table: on a terminal, as Markdown, as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from rich.console import Group, RenderableType
from rich.text import Text

from runner.analysis.comparisons.transports import SAMPLED, ComparedRow, Comparison
from runner.core.units import ABSENT, PLUS_MINUS, figure, half_width
from runner.report import collectives, picture
from runner.report.comparisons import Report
from runner.report.matrix import efficiency, rate, result_line
from runner.report.matrix import runs as counted
from runner.report.page.figures import transports as draw
from runner.report.table import Table, fields

MEGA = 1_000_000
TEXT_COLUMNS = ("transport", "devices", "counted by", "validity")
# Columns of a second table on a terminal, below the results of each transport.
WIRE_COLUMNS = ("transport", "asked (Gbit/s)", "reached (Gbit/s)", "sent a step (MB)", "× gradients", "counted by")
NOT_THE_LIMIT = "not the limit"


def columns(comparison: Comparison) -> dict[str, Callable[[ComparedRow], str]]:
    """Every column by name with its unit; an unusable row shows no figure."""
    return {
        "transport": lambda one: one.transport,
        "devices": lambda one: one.row.devices,
        "runs": lambda one: counted(one.row),
        f"{comparison.unit} ±": lambda one: rate(one.row),
        "efficiency (%) ±": lambda one: efficiency(one.row),
        "ratio ±": lambda one: figure(one.ratio, half_width(one.ratio_ci95)),
        "asked (Gbit/s)": _link_rate,
        "reached (Gbit/s)": lambda one: figure(one.reached_gbit),
        "sent a step (MB)": lambda one: figure(None if one.sent_bytes is None else one.sent_bytes / MEGA),
        "× gradients": _factor,
        "counted by": lambda one: one.counted_by or ABSENT,
        "validity": lambda one: one.row.status,
    }


def _baseline(comparison: Comparison) -> tuple[ComparedRow, ...]:
    base = comparison.baseline
    return () if base is None else (ComparedRow(transport=f"one {base.device_name}", row=base),)


def _link_rate(one: ComparedRow) -> str:
    requested = ABSENT if one.asked_gbit is None else f"{one.asked_gbit:g}"
    return f"{requested}, {NOT_THE_LIMIT}" if one.not_the_limit else requested


def _factor(one: ComparedRow) -> str:
    if one.factor is None or not one.needed_factors:
        return figure(one.factor)
    return f"{one.factor:.3f} of {' to '.join(f'{needed:.3f}' for needed in one.needed_factors)}"


def legend(comparison: Comparison) -> str:
    """The meaning of columns that their headers have no room for."""
    clauses = [f"{PLUS_MINUS}; ratio: to {comparison.first}"]
    if comparison.baseline is not None:
        clauses.append(f"efficiency: {comparison.unit} ÷ those of one device ÷ devices")
    if any(row.not_the_limit for row in comparison.rows):
        clauses.append(
            f"{NOT_THE_LIMIT}: a higher rate gained less than 5 % or, where none ran, the exchange by itself does not reach it either"
        )
    if any(row.sent_bytes is not None for row in comparison.rows):
        clauses += _sent(comparison)
    return "; ".join(clauses)


def _sent(comparison: Comparison) -> Iterator[str]:
    yield "reached: bits that were sent ÷ wall seconds of the measured windows"
    gradients = {row.gradient_bytes for row in comparison.rows if row.gradient_bytes}
    of = f" ({gradients.pop() / MEGA:,.1f} MB a step)" if len(gradients) == 1 else ""
    needs = ", of what the algorithm needs" if any(row.needed_factors for row in comparison.rows) else ""
    if any(len(row.needed_factors) > 1 for row in comparison.rows):
        needs += ": a tree between nodes the least, a ring over all ranks the most"
    where = "by a node; within one by a GPU over NVLink or PCIe, or by all ranks over the loopback"
    yield f"sent: {where}; headers included; × gradients{of}{needs}"
    if any(row.counted_by == SAMPLED for row in comparison.rows):
        yield "shared memory has no counter: the library says so, all others were idle, and samples of PCIe show how much reached the GPUs' slots"


def notes(comparison: Comparison) -> tuple[str, ...]:
    """Why a row is not valid, and what else differs."""
    rows = (row for row in comparison.rows if row.row.reasons)
    return (*(f"{row.transport}, {row.row.devices} {row.row.verdict}" for row in rows), *comparison.notes)


def transports_table(comparison: Comparison) -> RenderableType:
    """Lay the comparison out for a terminal: for each scale the result of each transport, and below it the traffic on the wires."""
    parts: list[RenderableType] = [
        Text(f"{comparison.title}: transports", style="bold"),
        Text(comparison.setting),
        Text(comparison.ran_on, style="dim"),
        Text(legend(comparison), style="dim"),
    ]
    every = columns(comparison)
    results = [name for name in every if name == "transport" or name not in (*WIRE_COLUMNS, "devices")]
    for devices in dict.fromkeys(row.row.devices for row in comparison.rows):
        own = [row for row in comparison.rows if row.row.devices == devices]
        shown = Table.from_entries(
            (*_baseline(comparison), *own), {name: every[name] for name in results}, words=TEXT_COLUMNS
        )
        parts += [Text(f"\n{devices}", style="bold"), shown.terminal()]
        if any(row.sent_bytes is not None for row in own):
            wires = Table.from_entries(own, {name: every[name] for name in WIRE_COLUMNS}, words=TEXT_COLUMNS)
            parts += [Text(), wires.terminal()]
    return Group(*parts, Text(), *(Text(note, style="yellow") for note in notes(comparison)))


def report(
    comparison: Comparison, *, name: str, runs: Mapping[tuple[str, int], tuple[str, ...]] | None = None
) -> Report:
    """The reports of transports side by side: the table, and throughput and bytes per step on one sheet; `runs` has ids by transport and scale."""
    drawn = draw(comparison, name=name, runs=runs or {})
    fastest = max(
        (row for row in comparison.rows if row.row.usable and row.row.throughput is not None),
        key=lambda row: row.row.throughput or 0.0,
        default=None,
    )
    return Report(
        chapter="comparisons",
        name=name,
        title=f"{comparison.title}: transports",
        lead=f"fastest over {fastest.transport}: {result_line(fastest.row)}" if fastest else "no usable run",
        lines=(comparison.setting, comparison.ran_on, legend(comparison)),
        tables=(
            table(comparison),
            *filter(None, (collectives.table((one.transport, one.row) for one in comparison.rows),)),
        ),
        notes=(*notes(comparison), *collectives.notes(one.row for one in comparison.rows)),
        csv=[
            {
                "transport": row.transport,
                **fields(row.row, "scale", "device", "throughput", "unit", "speedup", "efficiency"),
                **fields(row, "ratio", "ratio_ci95", "asked_gbit", "reached_gbit", "not_the_limit"),
                "sent_bytes_per_step": row.sent_bytes,
                "counted_by": row.counted_by,
                "expected_bytes_per_node_and_step": row.expected_bytes,
                "gradient_bytes": _as_on_record(comparison, row.gradient_bytes, "gradient_bytes"),
                "probe_gb_s": row.probe_gb_s,
                "probe_bytes": _as_on_record(comparison, row.probe_bytes, "probe_bytes"),
                **fields(row.row, "repeats", "status", "reasons"),
            }
            for row in comparison.rows
        ],
        figures=drawn,
        pictures={
            name: partial(
                picture.png,
                *(one for one in drawn if not one.name.endswith("training-time")),
                lines=(comparison.ran_on, f"×: ratio to {comparison.first}; Gbit/s: what was reached"),
                title=f"{comparison.title}: transports",
                lead=(comparison.setting,),
                side_by_side=True,
            )
        },
        runs=tuple(dict.fromkeys(run for own in (runs or {}).values() for run in own)),
    )


def _as_on_record(comparison: Comparison, value: float | None, name: str) -> float | None:
    """Keep the format of files on record: a decimal point unless every row knows the value."""
    known = all(getattr(row, name) is not None for row in comparison.rows)
    return value if known or value is None else float(value)


def table(comparison: Comparison) -> Table:
    """The table without empty columns; the one-device baseline, if any, comes first."""
    rows = (*_baseline(comparison), *comparison.rows)
    return Table.without_empty_columns(rows, columns(comparison), title="Transports", words=TEXT_COLUMNS)
