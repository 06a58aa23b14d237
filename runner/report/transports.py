"""The comparison of transports as a table: on a terminal, as Markdown, as CSV."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from runner.analysis.comparisons.transports import SAMPLED, ComparedRow
from runner.core.units import ABSENT, PLUS_MINUS, ends_by_column, figure, half_width, percent
from runner.report.block import Block, section
from runner.report.figures import runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from runner.analysis.comparisons.transports import Comparison

MEGA = 1_000_000
WORDS = ("transport", "devices", "counted by", "validity")
# Of `headers`: what a terminal shows of each transport, and what went over the wires.
FIGURES, WIRES = (0, 2, 3, 4, 5, 11), (0, 6, 7, 8, 9, 10)
LIMITLESS = "not the limit"


def headers(comparison: Comparison) -> tuple[str, ...]:
    """The columns' names, each with its unit."""
    return (
        "transport",
        "devices",
        "runs",
        f"{comparison.unit} ±",
        "efficiency (%) ±",
        "ratio ±",
        "asked (Gbit/s)",
        "reached (Gbit/s)",
        "sent a step (MB)",
        "× gradients",
        "counted by",
        "validity",
    )


def rows(comparison: Comparison) -> tuple[tuple[str, ...], ...]:
    """All lines of the table, that of one device first where there is one."""
    return tuple(cells(row) for row in (*_baseline(comparison), *comparison.rows))


def _baseline(comparison: Comparison) -> tuple[ComparedRow, ...]:
    base = comparison.baseline
    return () if base is None else (ComparedRow(transport=f"one {base.device_name}", row=base),)


def cells(row: ComparedRow) -> tuple[str, ...]:
    """Lay out one row; an unusable one shows no figure."""
    factor = figure(row.factor)
    if row.factor is not None and row.needed_factors:
        factor = f"{row.factor:.3f} of {' to '.join(f'{one:.3f}' for one in row.needed_factors)}"
    asked = ABSENT if row.asked_gbit is None else f"{row.asked_gbit:g}"
    return (
        row.transport,
        row.row.devices,
        runs(row.row),
        figure(row.row.throughput, half_width(row.row.throughput_ci95)),
        figure(percent(row.row.efficiency), half_width(row.row.efficiency_ci95, scale=100)),
        figure(row.ratio, half_width(row.ratio_ci95)),
        f"{asked}, {LIMITLESS}" if row.not_the_limit else asked,
        figure(row.reached_gbit),
        figure(None if row.sent_bytes is None else row.sent_bytes / MEGA),
        factor,
        row.counted_by or ABSENT,
        row.row.status,
    )


def legend(comparison: Comparison) -> str:
    """What the columns mean that no header has room for."""
    said = [f"{PLUS_MINUS}; ratio: to {comparison.first}"]
    if comparison.baseline is not None:
        said.append(f"efficiency: {comparison.unit} ÷ those of one device ÷ devices")
    if any(row.not_the_limit for row in comparison.rows):
        said.append(
            f"{LIMITLESS}: a higher rate gained nothing or, where none ran, the exchange by itself does not reach it either"
        )
    if any(row.sent_bytes is not None for row in comparison.rows):
        said += _sent(comparison)
    return "; ".join(said)


def _sent(comparison: Comparison) -> Iterator[str]:
    """What is counted, and by whom."""
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
    """Why a row is not valid."""
    return tuple(
        f"{row.transport}, {row.row.devices} {row.row.status}: {'; '.join(row.row.reasons)}"
        for row in comparison.rows
        if row.row.reasons
    )


def transports_table(comparison: Comparison) -> RenderableType:
    """Lay the comparison out for a terminal: for each scale what came of each transport, and below it what went over the wires."""
    parts: list[RenderableType] = [
        Text(f"{comparison.title}: transports", style="bold"),
        Text(comparison.setting),
        Text(comparison.ran_on, style="dim"),
        Text(legend(comparison), style="dim"),
    ]
    for devices in dict.fromkeys(row.row.devices for row in comparison.rows):
        own = [row for row in comparison.rows if row.row.devices == devices]
        parts += [Text(f"\n{devices}", style="bold"), _columns(comparison, (*_baseline(comparison), *own), FIGURES)]
        if any(row.sent_bytes is not None for row in own):
            parts += [Text(), _columns(comparison, own, WIRES)]
    return Group(*parts, Text(), *(Text(note, style="yellow") for note in notes(comparison)))


def _columns(comparison: Comparison, shown: Sequence[ComparedRow], chosen: Sequence[int]) -> Table:
    """Some of the columns as a table that fits 80 characters, as long names of transports wrap and figures never do."""
    names = headers(comparison)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for number in chosen:
        words = names[number] in WORDS
        header = names[number].replace(" ", "\n", 1)
        table.add_column(header, justify="left" if words else "right", no_wrap=names[number] != "transport")
    for row in shown:
        laid = cells(row)
        table.add_row(*(laid[number] for number in chosen))
    return table


def markdown(comparison: Comparison) -> str:
    """A section with the table and every reservation; ends with a newline."""
    return section(
        f"{comparison.title}: transports",
        (comparison.setting, comparison.ran_on, legend(comparison)),
        (table(comparison),),
        notes=notes(comparison),
    )


def table(comparison: Comparison) -> Block:
    """The table without columns that hold nothing."""
    columns = {name: itemgetter(number) for number, name in enumerate(headers(comparison))}
    return Block.of(rows(comparison), columns, words=WORDS)


def to_csv(comparison: Comparison) -> str:
    """One line a row, full precision, an empty field where there is no figure; bytes and 1e9 bytes a second."""
    import pandas as pd  # noqa: PLC0415  (half a second that no other command should wait for)

    frame = pd.DataFrame(
        [
            {
                "transport": row.transport,
                "scale": row.row.scale,
                "device": row.row.device,
                "throughput": row.row.throughput,
                "unit": row.row.unit,
                "speedup": row.row.speedup,
                "efficiency": row.row.efficiency,
                "ratio": row.ratio,
                **ends_by_column("ratio", row.ratio_ci95),
                "asked_gbit": row.asked_gbit,
                "reached_gbit": row.reached_gbit,
                "not_the_limit": row.not_the_limit,
                "sent_bytes_per_step": row.sent_bytes,
                "counted_by": row.counted_by,
                "expected_bytes_per_node_and_step": row.expected_bytes,
                "gradient_bytes": row.gradient_bytes,
                "probe_gb_s": row.probe_gb_s,
                "probe_bytes": row.probe_bytes,
                "repeats": row.row.repeats,
                "status": row.row.status,
                "reasons": "; ".join(row.row.reasons),
            }
            for row in comparison.rows
        ]
    )
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text
