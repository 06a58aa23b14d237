"""The comparison of transports as a table: on a terminal, as Markdown, as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from runner.report.block import known, line
from runner.report.figures import PLUS_MINUS, ends_by_column, figure, half_width, runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from runner.report.comparison import ComparedRow, Comparison

MEGA = 1_000_000
# Headers leave 94 % of an Ethernet link to the exchange; far below that something else is full.
FILLED = 0.8
WORDS = ("transport", "devices", "validity")
# Of `headers`: what a terminal shows of each transport, and what went over the wires.
FIGURES, WIRES = (0, 2, 3, 4, 5, 9), (0, 6, 7, 8)


def headers(comparison: Comparison) -> tuple[str, ...]:
    """The columns' names, each with its unit."""
    return (
        "transport",
        "devices",
        "runs",
        f"{comparison.unit} ±",
        "speedup ±",
        "ratio ±",
        "sent (MB)",
        "× gradients",
        "probe (GB/s)",
        "validity",
    )


def cells(row: ComparedRow) -> tuple[str, ...]:
    """Lay out one row; an unusable one shows no figure."""
    factor = figure(row.factor)
    if row.factor is not None and row.needed_factors:
        factor = f"{row.factor:.3f} of {' to '.join(f'{one:.3f}' for one in row.needed_factors)}"
    return (
        row.transport,
        row.row.devices,
        runs(row.row),
        figure(row.row.throughput, half_width(row.row.throughput_ci95)),
        figure(row.row.speedup, half_width(row.row.speedup_ci95)),
        figure(row.ratio, half_width(row.ratio_ci95)),
        figure(None if row.sent_bytes is None else row.sent_bytes / MEGA),
        factor,
        figure(row.probe_gb_s),
        row.row.status,
    )


def legend(comparison: Comparison) -> str:
    """What the columns mean that no header has room for."""
    sizes = sorted({row.probe_bytes for row in comparison.rows if row.probe_bytes is not None})
    probe = f"; probe: bus bandwidth of {' and '.join(f'{size:,}' for size in sizes)} bytes by itself" if sizes else ""
    sent = (
        "; sent: what left a node in a step, headers included, and how many times the gradients that is, of what the algorithm needs"
        if any(row.sent_bytes is not None for row in comparison.rows)
        else ""
    )
    if sent and any(len(row.needed_factors) > 1 for row in comparison.rows):
        sent += ": a tree between nodes the least, a ring over all ranks the most"
    return f"{PLUS_MINUS}; ratio: to {comparison.first}{sent}{probe}"


def notes(comparison: Comparison) -> tuple[str, ...]:
    """Why a row is not valid, and which links are wider than what the machine can send."""
    return tuple(note for row in comparison.rows for note in _notes(row))


def _notes(row: ComparedRow) -> Iterator[str]:
    if row.row.reasons:
        yield f"{row.transport}, {row.row.devices} {row.row.status}: {'; '.join(row.row.reasons)}"
    if row.link_gbit and row.probe_gb_s is not None and 8 * row.probe_gb_s < FILLED * row.link_gbit:
        most = "at most " if len(row.needed_bytes) > 1 else ""  # a tree sends less than bus bandwidth counts
        yield (
            f"{row.transport}, {row.row.devices}: by itself, the exchange moves {most}{8 * row.probe_gb_s:.1f} of {row.link_gbit:g} Gbit/s; "
            "the limit is what sends, not the link"
        )


def transports_table(comparison: Comparison) -> RenderableType:
    """Lay the comparison out for a terminal: for each scale what came of each transport, and below it what went over the wires."""
    parts: list[RenderableType] = [
        Text(f"{comparison.title}: transports", style="bold"),
        Text(comparison.setting),
        Text(comparison.ground, style="dim"),
        Text(legend(comparison), style="dim"),
    ]
    for devices in dict.fromkeys(row.row.devices for row in comparison.rows):
        rows = [row for row in comparison.rows if row.row.devices == devices]
        parts += [Text(f"\n{devices}", style="bold"), _columns(comparison, rows, FIGURES)]
        if any(row.sent_bytes is not None or row.probe_gb_s is not None for row in rows):
            parts += [Text(), _columns(comparison, rows, WIRES)]
    return Group(*parts, Text(), *(Text(note, style="yellow") for note in notes(comparison)))


def _columns(comparison: Comparison, rows: Sequence[ComparedRow], chosen: Sequence[int]) -> Table:
    """Some of the columns as a table that fits 80 characters, as long names of transports wrap and figures never do."""
    names = headers(comparison)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for number in chosen:
        words = names[number] in WORDS
        table.add_column(names[number], justify="left" if words else "right", no_wrap=names[number] != "transport")
    for row in rows:
        laid = cells(row)
        table.add_row(*(laid[number] for number in chosen))
    return table


def markdown(comparison: Comparison) -> str:
    """A section with the table, without columns that hold nothing, and every reservation; ends with a newline."""
    told = known(dict(zip(headers(comparison), zip(*map(cells, comparison.rows), strict=True), strict=True)))
    align = tuple(":--" if name in WORDS else "--:" for name in told)
    said = [f"- {note}".replace("\n", " ") for note in notes(comparison)]
    lines = [
        f"### {comparison.title}: transports",
        "",
        f"{comparison.setting}  ",  # two spaces: a line break
        f"{comparison.ground}  ",
        legend(comparison),
        "",
        *map(line, (tuple(told), align, *zip(*told.values(), strict=True))),
        *(["", *said] if said else []),
    ]
    return "\n".join(lines) + "\n"


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
                "ratio": row.ratio,
                **ends_by_column("ratio", row.ratio_ci95),
                "sent_bytes_per_node_and_step": row.sent_bytes,
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
