"""The report of one matrix: what a terminal shows, in short or in whole; Markdown for people who paste, CSV for people who compute."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from runner.core import units
from runner.core.measurement import FEWEST_RUNS, StepParts
from runner.report import columns, figures, telemetry
from runner.report.table import Table, csv_text, escaped, fields, plain_table, section

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from runner.analysis.summarize import Row, Status, Summary

_STYLES: Final[dict[Status, str]] = {
    "valid": "green",
    "degraded": "yellow",
    "invalid": "bold red",
    "failed": "bold red",
}
NOISY: Final = 2.0
"""Upper end of an interval ÷ its lower one from which on it tells nothing: the rate may be half of what it may be."""
ENOUGH_RUNS: Final = 5
_OPTIONAL: Final = "training time (s)"
"""The column that a terminal goes without where all do not fit."""
# Of a row's telemetry, what stands in its line of the CSV.
WATCHED: Final = ("utilisation_percent", "power_w", "energy_j", "samples_per_joule")


def print_short(console: Console, summary: Summary) -> None:
    """Print what came of a matrix on one screen: what ran where, the table, and a verdict."""
    say(console, summary.title, style="bold")
    for line in (summary.setting, summary.wires):
        say(console, line)
    say(console, summary.ran_on, style="dim")
    say(console, summary.engine_reason, style="yellow")
    every = figures.screen(summary)
    few = every.without(_OPTIONAL)
    shown = every if _narrowest(every) <= console.width else few
    table = _table(shown, summary.rows, wrap=_narrowest(shown) > console.width)
    console.print(Padding(table, (1, 0)))
    for one in figures.modes(summary):
        console.print(Padding(one.terminal(), (0, 0, 1, 0)))
    said = figures.interval_marks(summary)
    say(console, f"{said}: {units.INTERVAL}" if said else None, style="dim")
    say(console, verdict(summary), style="bold")


def say(console: Console, text: str | None, *, style: str = "") -> None:
    """Print a line wrapped between words, however long one is; nothing of None."""
    if text:
        lines = textwrap.fill(text, console.width, break_long_words=False, break_on_hyphens=False)
        console.print(lines, style=style, markup=False, highlight=False, soft_wrap=True)


def verdict(summary: Summary) -> str:
    """What came of the largest scale, in a sentence: how far to trust it, and what to do where that is little."""
    usable = [row for row in summary.rows if row.usable and row.throughput is not None]
    lost = [
        f"{row.devices} {row.status}{': ' if row.reasons else ''}{'; '.join(row.reasons)}"
        for row in summary.rows
        if row not in usable
    ]
    if not usable:
        return f"No figure: {'; '.join(lost)}."
    for row in reversed(usable):
        ends = row.throughput_ci95
        if ends and ends.high >= NOISY * ends.low:
            repeat = ENOUGH_RUNS if row.repeats < ENOUGH_RUNS else 2 * row.repeats
            return (
                f"Too noisy to tell: {figures.rounded(row.throughput, ends)} {row.unit} on {row.devices}, "
                f"{figures.rounded(ends.low, ends)} to {figures.rounded(ends.high, ends)}; close other programs or REPEAT={repeat}."
            )
    row = usable[-1]
    said = [_told(row)]
    if row.throughput_ci95 is None and row.repeats < FEWEST_RUNS:
        said.append(f"no interval from {units.counted(row.repeats)}, REPEAT={FEWEST_RUNS} gives one")
    said += [f"degraded: {reason}" for reason in row.reasons[:1] if row.status == "degraded"]
    return f"{'; '.join((*said, *lost))}."


def _told(row: Row) -> str:
    rate = f"{figures.with_interval(row.throughput, row.throughput_ci95)} {row.unit} on {row.devices}"
    if row.scale == 1:
        return rate
    if row.speedup is None:
        return f"{rate}; no speedup: {row.withheld or 'no usable run on one device'}"
    ends = row.speedup_ci95
    times = f"{row.devices} are {figures.with_interval(row.speedup, ends)} times as fast as one"
    if ends and ends.low <= 1 <= ends.high:
        return f"No speedup shown: {times}"
    share = figures.with_interval(row.efficiency, row.efficiency_ci95, scale=100)
    return f"{times}, efficiency {share} %{', superlinear' if row.superlinear else ''}"


def print_whole(console: Console, summary: Summary) -> None:
    """Print every table of a matrix, what they mean, every reservation, and where each record is."""
    console.print(Text(summary.title, style="bold"))
    for line, style in (
        (summary.setting, ""),
        (summary.wires, ""),
        (summary.ran_on, "dim"),
        (summary.engine_reason, "yellow"),
        *((legend, "dim") for legend in (figures.interval_legend(summary), *figures.peak_legend(summary))),
    ):
        if line:
            console.print(Text(line, style=style))
    console.print(Padding(_table(figures.scaling(summary), summary.rows), (1, 0)))
    for one in _details(summary):
        console.print(Group(one.terminal(), Text(one.legend, style="dim"), *([Text()] if one.legend else [])))
    noted = telemetry.notes(summary)
    console.print(Group(*(Text(note, style="dim") for note in noted), *([Text()] if noted else [])), end="")
    for note in figures.notes(summary):
        console.print(Text(note, style="yellow"))
    for directory in summary.record_dirs:
        # Unwrapped whatever the width: a path broken in two cannot be copied.
        console.print(f"record: {directory}", style="dim", markup=False, highlight=False, soft_wrap=True)


def _table(shown: Table, rows: Sequence[Row], *, wrap: bool = False) -> RichTable:
    """Lay out a line a scale; headers and words wrap so that 80 columns hold it, and where they have to, intervals."""
    table = plain_table()
    for name in shown.columns:
        text = name == "devices" or (name == "validity" and not wrap)
        header = name.replace(" ", "\n", 1) if "(" in name else name
        table.add_column(header, justify="left" if name in ("devices", "validity") else "right", no_wrap=not text)
    for row, (*plain, validity) in zip(rows, shown.rows, strict=True):
        cells = [cell.replace(" (", "\n(") if wrap else cell for cell in plain]
        table.add_row(*cells, Text(validity, style=_STYLES[row.status]))
    return table


def _narrowest(shown: Table) -> int:
    """Columns of a terminal that hold the table without breaking a figure; devices may take a line a word."""
    widths = []
    for name, *cells in zip(shown.columns, *shown.rows, strict=True):
        texts = [word for cell in cells for word in cell.split()] if name == "devices" else cells
        widths.append(max(map(len, (*name.split(" ", 1), *texts))))
    return sum(widths) + 2 * (len(widths) - 1)


def _details(summary: Summary) -> Iterator[Table]:
    """The tables below that of the scales: of inference or convergence, the parts of a step, telemetry."""
    yield from figures.modes(summary)
    if parts := figures.parts(summary):
        yield parts
    watched = telemetry.tables(summary)
    yield from (one.model_copy(update={"legend": ""}) for one in watched[:-1])
    yield from watched[-1:]


def markdown(summary: Summary) -> str:
    """A section: what ran where, what `±` is, the tables, and every reservation; ends with a newline."""
    lead = (summary.setting, summary.wires, summary.ran_on, summary.engine_reason)
    return section(
        summary.title,
        tuple(line for line in lead if line),
        figures.scaling(summary),
        *_details(summary),
        telemetry.notes(summary),
        figures.notes(summary),
        measured=(figures.interval_legend(summary), *map(escaped, figures.peak_legend(summary))),
    )


def to_csv(summary: Summary) -> str:
    """One line a row, full precision, an empty field where there is no figure.

    Times are in seconds, power in watts and energy in joules of all devices, efficiency a fraction; of inference there are latencies and
    accuracies too.
    """
    return csv_text(
        [
            {
                **fields(row, "scale", "device", "throughput", "throughput_ci95", "unit", "training_time_s"),
                **fields(row, "speedup", "speedup_ci95", "efficiency", "efficiency_ci95"),
                **{column.name: column.of(row) for column in columns.COLUMNS},
                "repeats": row.repeats,
                **_answered(row),
                **fields(row.parts, *StepParts.model_fields),
                **fields(row.telemetry, *WATCHED),
                **fields(row, "status", "reasons"),
                "wires": summary.wires,
            }
            for row in summary.rows
        ]
    )


def _answered(row: Row) -> dict[str, float | None]:
    """Latencies in seconds and accuracies in percent of inference; nothing of a training, whose files have no such columns."""
    if row.answers is None:
        return {}
    latency, accuracy = row.answers.latency, row.answers.accuracy
    times = {
        f"latency_{field}_{name}_s": getattr(getattr(latency, field, None), name, None)
        for field in ("with_transfer", "without_transfer")
        for name in ("p50", "p90", "p99")
    }
    shares = {"accuracy_percent": "percent", "reference_accuracy_percent": "reference_percent"}
    own = {name: getattr(accuracy, field, None) for name, field in shares.items()}
    return {"in_flight": row.answers.in_flight, **times, **own}
