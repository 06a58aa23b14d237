"""The report of one matrix: its tables, a short or complete version for a terminal, Markdown to paste, CSV to compute with.

A figure has no more digits than its interval supports; columns without a known value are left out. Figures in `COLUMNS` are computed from
the records of the row's usable runs (`Row.records`), or from the row's own fields.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from runner.analysis.summarize import DEGRADED_BASELINE, Answers, Row, Status, Summary
from runner.core import units
from runner.core.console import in_user_terms
from runner.core.measurement import FEWEST_RUNS, EpochFigures, GenerationFigures, Interval, Percentiles, StepParts
from runner.core.units import ABSENT, PLUS_MINUS, estimate, figure, half_width, milliseconds, percent
from runner.report import collectives, telemetry
from runner.report.table import Columns, Entry, Table, csv_text, escaped, fields, plain_table, section


@dataclass(frozen=True)
class Column:
    """A figure of a row: `header`, and `name` in the CSV, both with the unit; `of` returns None if a row has no such figure.

    A table has the column if `known` says so or, without `known`, if any row has the figure.
    """

    header: str
    name: str
    of: Callable[[Row], float | None]
    known: Callable[[Summary], bool] | None = None

    def shown(self, summary: Summary) -> bool:
        """Whether a table has the column."""
        if self.known:
            return self.known(summary)
        return any(self.of(row) is not None for row in summary.rows)


COLUMNS: Final[tuple[Column, ...]] = (
    Column("MFU (%)", "mfu_percent", lambda row: row.mfu_percent, known=lambda summary: summary.peak is not None),
)


LOPSIDED: Final = 1.5
"""Both ends of an interval are printed if one is more than this many times as far from the value as the other."""

_ROUNDING_ERROR: Final = 1e-9  # share of the value below which the width of an interval is rounding error


def with_interval(value: float | None, interval: Interval | None, *, scale: float = 1) -> str:
    """A figure and its interval, both multiplied by `scale`: `6,525 ± 12`, or `13 (6–306)` if it is lopsided."""
    if value is None or interval is None:
        return figure(None if value is None else scale * value)
    if not _lopsided(value, interval):
        return figure(scale * value, half_width(interval, scale=scale))
    interval = interval.scaled(scale)
    low, high = rounded(interval.low, interval), rounded(interval.high, interval)
    return f"{rounded(scale * value, interval)} ({low}–{high})"


def rounded(value: float | None, interval: Interval) -> str:
    """A value of a lopsided interval, with as many digits as the lower half supports."""
    reach = math.sqrt(max(interval.low, 0.0) * interval.high) - interval.low or interval.half_width
    decimals = min(3, max(0, -math.floor(math.log10(reach)))) if reach > 0 else 0
    return ABSENT if value is None else f"{value:,.{decimals}f}"


def _lopsided(value: float, interval: Interval) -> bool:
    below, above = sorted((value - interval.low, interval.high - value))
    return interval.half_width > _ROUNDING_ERROR * value and above > LOPSIDED * below


def interval_marks(summary: Summary) -> str:
    """How the short table writes its intervals: `±`, `(low–high)`, both or neither."""
    rates = [(row.throughput, row.throughput_ci95) for row in summary.rows]
    known = [_lopsided(value, ends) for value, ends in rates if value is not None and ends and ends.half_width]
    return " and ".join(mark for mark, on in (("±", not all(known)), ("(low–high)", any(known))) if on and known)


def screen(summary: Summary) -> Table:
    """The table that `bench` ends with."""
    return Table.from_entries(
        summary.rows,
        {
            "devices": lambda row: row.devices,
            summary.rate_unit: lambda row: with_interval(row.throughput, row.throughput_ci95),
            "training time (s)": lambda row: figure(row.training_time_s),
            "speedup": lambda row: with_interval(row.speedup, row.speedup_ci95),
            "efficiency (%)": lambda row: with_interval(row.efficiency, row.efficiency_ci95, scale=100),
            "runs": runs,
            "validity": lambda row: row.status,
        },
        title="Result",
    )


def scaling(summary: Summary) -> Table:
    """The scaling table; an unusable row shows no figure, and columns of `COLUMNS` are present if known."""
    return Table.from_entries(
        summary.rows,
        {
            "devices": lambda row: row.devices,
            "runs": runs,
            f"{summary.rate_unit} ±": rate,
            "training time (s)": lambda row: figure(row.training_time_s),
            "speedup ±": speedup,
            "efficiency (%) ±": efficiency,
            **{one.header: _column_text(one) for one in COLUMNS if one.shown(summary)},
            "validity": validity,
        },
        title="Scaling",
        words=("validity",),
    )


def _column_text(column: Column) -> Callable[[Row], str]:
    return lambda row: figure(column.of(row))


PARTS: Final = {
    "step (ms)": "step_s",
    "input": "input_s",
    "compute": "compute_s",
    "stragglers": "stragglers_s",
    "communication": "communication_s",
    "exchange alone": "exchange_alone_s",
}
"""Columns of the table of parts, all in milliseconds, and their fields of `StepParts`."""
PARTS_LEGEND = (
    "a step = input + compute + stragglers + communication; compute: on one device all but the input, on several a pass without any "
    "exchange, mean of the ranks; stragglers: what the slowest rank takes longer; communication: the exchange that compute did not hide, and "
    "the update; exchange alone: all gradients by the probe, no part of the sum"
)


def parts(summary: Summary) -> Table | None:
    """The parts of a step, one row per scale that has them; None if none does."""
    rows = [row for row in summary.rows if row.parts]
    cells: dict[str, Callable[[Row], str]] = {header: partial(part, name=name) for header, name in PARTS.items()}
    columns = {"devices": lambda row: row.devices, **cells}
    return Table.from_entries(rows, columns, title="Parts of a step", legend=PARTS_LEGEND) if rows else None


def part(row: Row, name: str) -> str:
    """A field of `StepParts` in milliseconds."""
    return figure(milliseconds(getattr(row.parts, name, None)))


def rate(row: Row) -> str:
    """Throughput ± half its interval."""
    return figure(row.throughput, half_width(row.throughput_ci95))


def speedup(row: Row) -> str:
    """Speedup ± half its interval."""
    return figure(row.speedup, half_width(row.speedup_ci95))


def efficiency(row: Row) -> str:
    """Efficiency in percent ± half its interval."""
    return figure(percent(row.efficiency), half_width(row.efficiency_ci95, scale=100))


def validity(row: Row) -> str:
    """The status, and whether the speedup is superlinear."""
    return row.status + (", superlinear" if row.superlinear else "")


def result_line(row: Row) -> str:
    """One scale in a line: throughput, devices, speedup, validity."""
    words = [f"{estimate(row.throughput, row.throughput_ci95, runs=row.repeats)} {row.unit} on {row.devices}"]
    if row.speedup is not None and row.scale > 1:
        words.append(f"speedup {speedup(row)}")
    return ", ".join([*words, row.status])


def runs(row: Row) -> str:
    """The number of runs of a row; absent if none may be used."""
    return f"{row.repeats:,}" if row.usable else ABSENT


def interval_legend(summary: Summary) -> str:
    """What `±` means, or why there is none."""
    if any(row.throughput_ci95 for row in summary.rows):
        return PLUS_MINUS
    return f"no ±: an interval is over runs, from {FEWEST_RUNS} on (REPEAT={FEWEST_RUNS})"


def peak_legend(summary: Summary) -> tuple[str, ...]:
    """What MFU is relative to; empty if no peak is known."""
    if summary.peak is None:
        return ()
    return (f"MFU = model FLOP/s ÷ dense peak, which is {summary.peak}",)


def notes(summary: Summary) -> tuple[str, ...]:
    """One sentence for each thing that the figures alone would hide."""
    found = []
    for row in summary.rows:
        if row.reasons:
            found.append(f"{row.devices} {row.verdict}")
        if row.superlinear:
            found.append(
                f"{row.devices} superlinear: more than {row.scale} times as fast as one device; look first for a baseline that "
                "was throttled or short of input, or a working set that fits a cache only when it is split"
            )
        if row.above_peak:
            found.append(
                f"{row.devices}: no MFU, as the model's FLOP/s are above the peak; look first for an algorithm with fewer multiplications "
                "than the definition (Winograd's), another precision than the one asked for, or cores that others used while the peak was measured"
            )
    return (*found, *summary.notes)


MOST_EPOCHS: Final = 12  # rows of a table of epochs; the CSV has all
_ANSWERS: Final = (
    "in flight: batches that were under way at once while throughput was measured; latency: of a batch that has the device to itself, from its "
    "samples in the host's memory to its predictions there, the median of the repeats"
)
_ON_DEVICE: Final = "; on device: the same from its samples in the device's memory until the device is done"
_ACCURACY: Final = (
    "; accuracy: of held-out images, beside that of the same network in fp32; same: predictions that are those of fp32"
)
_GENERATION: Final = (
    "each batch of prompts by itself: first token: from the prompts in the host's memory to the first token of each sequence; next token: from "
    "one token of each to the next; prefill and decode: tokens of prompts, and tokens after the first, ÷ their time, the median of the repeats"
)
_EPOCHS: Final = "after each epoch, on images that no epoch trains on: the median of the repeats; elapsed: seconds of training, without validation"


def modes(summary: Summary) -> tuple[Table, ...]:
    """The tables of inference, and of training to convergence."""
    found = []
    if answers := [(row.devices, row.answers) for row in summary.rows if row.answers]:
        placed = any(one.latency and one.latency.without_transfer for _, one in answers)
        labelled = any(one.accuracy for _, one in answers)
        legend = f"{_ANSWERS}{_ON_DEVICE * placed}{_ACCURACY * labelled}"
        found.append(Table.without_empty_columns(answers, _answer_columns(), legend=legend))
    if generated := [(row.devices, one) for row in summary.rows if row.answers for one in row.answers.generation]:
        found.append(Table.without_empty_columns(generated, _GENERATION_COLUMNS, legend=_GENERATION))
    if epochs := [(row.devices, one) for row in summary.rows for one in _evenly_spaced(row.epochs)]:
        found.append(Table.from_entries(epochs, _EPOCH_COLUMNS, legend=_EPOCHS))
    return tuple(found)


_PERCENTILES: Final = ("p50", "p90", "p99")


def _milliseconds(words: str, times: Callable[[Entry], Percentiles | None]) -> Columns[Entry]:
    """One column for each percentile of some times."""

    def cell(one: Entry, *, name: str) -> str:
        return figure(milliseconds(getattr(times(one), name, None)))

    return {f"{words} {name} (ms)": partial(cell, name=name) for name in _PERCENTILES}


def _seconds(field: str, times: Percentiles | None) -> dict[str, float | None]:
    """The same for a CSV, in seconds."""
    return {f"{field}_{name}_s": getattr(times, name, None) for name in _PERCENTILES}


def _answer_columns() -> Columns[tuple[str, Answers]]:

    def accuracy(one: tuple[str, Answers], *, name: str, form: str) -> str:
        known = one[1].accuracy
        return format(getattr(known, name), form) if known else ABSENT

    return {
        "devices": lambda one: one[0],
        "batch": lambda one: _batch(one[1]),
        "in flight": lambda one: str(one[1].in_flight),
        **_milliseconds("latency", lambda one: one[1].latency.with_transfer if one[1].latency else None),
        **_milliseconds("on device", lambda one: one[1].latency.without_transfer if one[1].latency else None),
        "accuracy (%)": partial(accuracy, name="percent", form=".1f"),
        "in fp32 (%)": partial(accuracy, name="reference_percent", form=".1f"),
        "difference (points)": partial(accuracy, name="difference", form="+.1f"),
        "same (%)": partial(accuracy, name="agree_percent", form=".1f"),
    }


_GENERATION_COLUMNS: Final[Columns[tuple[str, GenerationFigures]]] = {
    "devices": lambda one: one[0],
    "batch": lambda one: str(one[1].batch),
    "prompt": lambda one: str(one[1].prompt_tokens),
    "new": lambda one: str(one[1].new_tokens),
    **_milliseconds("first token", lambda one: one[1].first_token),
    **_milliseconds("next token", lambda one: one[1].step),
    "prefill (tokens/s)": lambda one: figure(one[1].prefill_tokens_per_s),
    "decode (tokens/s)": lambda one: figure(one[1].decode_tokens_per_s),
}
_EPOCH_COLUMNS: Final[Columns[tuple[str, EpochFigures]]] = {
    "devices": lambda one: one[0],
    "epoch": lambda one: str(one[1].epoch),
    "train loss": lambda one: figure(one[1].train_loss),
    "validation loss": lambda one: figure(one[1].val_loss),
    "accuracy (%)": lambda one: f"{one[1].accuracy_percent:.1f}",
    "elapsed (s)": lambda one: figure(one[1].elapsed_s),
}


def generation_csv(summary: Summary) -> str | None:
    """One line per batch of prompts, full precision, times in seconds; None if nothing was generated."""
    rows = [
        {
            "scale": row.scale,
            **fields(one, "batch", "prompt_tokens", "new_tokens"),
            **_seconds("first_token", one.first_token),
            **_seconds("step", one.step),
            **fields(one, "prefill_tokens_per_s", "decode_tokens_per_s"),
        }
        for row in summary.rows
        if row.answers
        for one in row.answers.generation
    ]
    return csv_text(rows) if rows else None


def epochs_csv(summary: Summary) -> str | None:
    """One line per epoch and scale, full precision, an empty field for a missing figure; None if no training ran to convergence."""
    names = (
        *("epoch", "iterations", "train_loss", "val_loss"),
        *("accuracy_percent", "validation_samples", "seconds", "elapsed_s"),
    )
    rows = [{"scale": row.scale, **fields(one, *names)} for row in summary.rows for one in row.epochs]
    return csv_text(rows) if rows else None


def _batch(answers: Answers) -> str:
    """The batch that ran and, if it differs, the one that was requested."""
    batch = answers.batch
    if batch is None:
        return ABSENT
    return str(batch.used) if batch.used == batch.asked else f"{batch.used} (of {batch.asked})"


def _evenly_spaced(epochs: Sequence[EpochFigures]) -> list[EpochFigures]:
    """All epochs, or as many as a table takes, evenly spaced, including the first and the last."""
    if len(epochs) <= MOST_EPOCHS:
        return list(epochs)
    last = len(epochs) - 1
    return [epochs[round(number * last / (MOST_EPOCHS - 1))] for number in range(MOST_EPOCHS)]


_STYLES: Final[dict[Status, str]] = {
    "valid": "green",
    "degraded": "yellow",
    "invalid": "bold red",
    "failed": "bold red",
}
NOISY_RATIO: Final = 2.0
"""An interval says nothing if its upper end is at least this many times its lower end: the rate may be half of what it seems."""
ENOUGH_RUNS: Final = 5
_DROPPED_FIRST: Final = "training time (s)"  # the column that a terminal drops if not all fit
# Fields of a row's telemetry that are columns of the CSV.
TELEMETRY_FIELDS: Final = ("utilisation_percent", "power_w", "energy_j", "samples_per_joule")


def print_short(console: Console, summary: Summary) -> None:
    """Print a matrix briefly: what ran where, the table, those of inference or convergence, and a verdict."""
    print_wrapped(console, summary.title, style="bold")
    for line in (summary.setting, summary.wires):
        print_wrapped(console, line)
    print_wrapped(console, summary.ran_on, style="dim")
    print_wrapped(console, summary.engine_reason, style="yellow")
    every = screen(summary)
    narrower = every.without(_DROPPED_FIRST)
    shown = every if _narrowest_width(every) <= console.width else narrower
    table = _table(shown, summary.rows, wrap=_narrowest_width(shown) > console.width)
    console.print(Padding(table, (1, 0)))
    for one in modes(summary):
        console.print(Padding(one.terminal(), (0, 0, 1, 0)))
    marks = interval_marks(summary)
    print_wrapped(console, f"{marks}: {units.INTERVAL}" if marks else None, style="dim")
    print_wrapped(console, in_user_terms(verdict(summary)), style="bold")


def print_wrapped(console: Console, text: str | None, *, style: str = "") -> None:
    """Print text wrapped between words, never within one; nothing for None."""
    if text:
        lines = textwrap.fill(text, console.width, break_long_words=False, break_on_hyphens=False)
        console.print(lines, style=style, markup=False, highlight=False, soft_wrap=True)


def verdict(summary: Summary) -> str:
    """The result of the largest usable scale in a sentence, with its reservations; or the largest scale too noisy to tell, and what to do."""
    usable = [row for row in summary.rows if row.usable and row.throughput is not None]
    lost = [f"{row.devices} {row.verdict}" for row in summary.rows if row not in usable]
    if not usable:
        return f"No figure: {'; '.join(lost).rstrip('.')}."
    for row in reversed(usable):
        ends = row.throughput_ci95
        if ends and ends.high >= NOISY_RATIO * ends.low:
            repeat = ENOUGH_RUNS if row.repeats < ENOUGH_RUNS else 2 * row.repeats
            return (
                f"Too noisy to tell: {rounded(row.throughput, ends)} {row.unit} on {row.devices}, "
                f"{rounded(ends.low, ends)} to {rounded(ends.high, ends)}; close other programs or --repeat={repeat}."
            )
    row = usable[-1]
    clauses = [_result(row)]
    if row.throughput_ci95 is None and row.repeats < FEWEST_RUNS:
        clauses.append(f"no interval from {units.counted(row.repeats)}, --repeat={FEWEST_RUNS} gives one")
    if row.status == "degraded":
        clauses.append(f"degraded: {_first_reason(row, usable)}")
    return f"{'; '.join((*clauses, *lost))}."


def _first_reason(row: Row, every: Sequence[Row]) -> str:
    """Why a row is degraded; if its baseline is to blame, the baseline's reason."""
    reason, base = row.reasons[0], every[0]
    return f"{base.devices}: {base.reasons[0]}" if reason == DEGRADED_BASELINE and base.reasons else reason


def _result(row: Row) -> str:
    rate = f"{with_interval(row.throughput, row.throughput_ci95)} {row.unit} on {row.devices}"
    if row.scale == 1:
        return rate
    if row.speedup is None:
        return f"{rate}; no speedup: {row.withheld or 'no usable run on one device'}"
    ends = row.speedup_ci95
    times = f"{row.devices} are {with_interval(row.speedup, ends)} times as fast as one"
    if ends and ends.low <= 1 <= ends.high:
        return f"No speedup shown: {times}"
    share = with_interval(row.efficiency, row.efficiency_ci95, scale=100)
    return f"{times}, efficiency {share} %{', superlinear' if row.superlinear else ''}"


def print_whole(console: Console, summary: Summary) -> None:
    """Print every table of a matrix with its legend, every reservation, and the path of each record."""
    console.print(Text(summary.title, style="bold"))
    for line, style in (
        (summary.setting, ""),
        (summary.wires, ""),
        (summary.ran_on, "dim"),
        (summary.engine_reason, "yellow"),
        *((legend, "dim") for legend in (interval_legend(summary), *peak_legend(summary))),
    ):
        if line:
            console.print(Text(line, style=style))
    console.print(Padding(_table(scaling(summary), summary.rows), (1, 0)))
    for one in _details(summary):
        console.print(Group(one.terminal(), Text(one.legend, style="dim"), *([Text()] if one.legend else [])))
    noted = telemetry.notes(summary)
    console.print(Group(*(Text(note, style="dim") for note in noted), *([Text()] if noted else [])), end="")
    for note in notes(summary):
        console.print(Text(note, style="yellow"))
    for directory in summary.record_dirs:
        # Not wrapped, whatever the width: a path broken in two cannot be copied.
        console.print(f"record: {directory}", style="dim", markup=False, highlight=False, soft_wrap=True)


def _table(shown: Table, rows: Sequence[Row], *, wrap: bool = False) -> RichTable:
    """Lay out one line per scale, with its status alone for its validity, since the notes say the rest.

    Headers and devices wrap so that 80 columns are enough, and with `wrap` intervals do as well.
    """
    table = plain_table()
    for name in shown.columns:
        header = name.replace(" ", "\n", 1) if "(" in name else name
        table.add_column(
            header, justify="left" if name in ("devices", "validity") else "right", no_wrap=name != "devices"
        )
    for row, (*plain, _) in zip(rows, shown.rows, strict=True):
        cells = [cell.replace(" (", "\n(") if wrap else cell for cell in plain]
        table.add_row(*cells, Text(row.status, style=_STYLES[row.status]))
    return table


def _narrowest_width(shown: Table) -> int:
    """The number of terminal columns that hold the table without breaking a figure; a row's devices may wrap at each word."""
    widths = []
    for name, *cells in zip(shown.columns, *shown.rows, strict=True):
        texts = [word for cell in cells for word in cell.split()] if name == "devices" else cells
        widths.append(max(map(len, (*name.split(" ", 1), *texts))))
    return sum(widths) + 2 * (len(widths) - 1)


def _details(summary: Summary) -> Iterator[Table]:
    """The tables below the scaling table: inference or convergence, parts of a step, collectives, telemetry."""
    yield from modes(summary)
    if table := parts(summary):
        yield table
    if timed := collectives.table(("", row) for row in summary.rows):
        yield timed
    watched = telemetry.tables(summary)
    yield from (one.model_copy(update={"legend": ""}) for one in watched[:-1])
    yield from watched[-1:]


def markdown(summary: Summary) -> str:
    """A section: what ran where, what `±` means, the tables, and every reservation; ends with a newline."""
    lead = (summary.setting, summary.wires, summary.ran_on, summary.engine_reason)
    return section(
        summary.title,
        tuple(line for line in lead if line),
        scaling(summary),
        *_details(summary),
        collectives.notes(summary.rows),
        telemetry.notes(summary),
        notes(summary),
        measured=(interval_legend(summary), *map(escaped, peak_legend(summary))),
    )


def to_csv(summary: Summary) -> str:
    """One line per row, full precision, an empty field for a missing figure.

    Times are in seconds; power in watts and energy in joules are of all devices; efficiency is a fraction. Inference adds latencies and
    accuracies.
    """
    return csv_text(
        [
            {
                **fields(row, "scale", "device", "throughput", "throughput_ci95", "unit", "training_time_s"),
                **fields(row, "speedup", "speedup_ci95", "efficiency", "efficiency_ci95"),
                **{column.name: column.of(row) for column in COLUMNS},
                "repeats": row.repeats,
                **_inference_fields(row),
                **fields(row.parts, *StepParts.model_fields),
                **fields(row.telemetry, *TELEMETRY_FIELDS),
                **fields(row, "status", "reasons"),
                "wires": summary.wires,
            }
            for row in summary.rows
        ]
    )


def _inference_fields(row: Row) -> dict[str, float | None]:
    """Latencies in seconds and accuracies in percent of inference; empty for a training, whose files lack these columns."""
    if row.answers is None:
        return {}
    latency, accuracy = row.answers.latency, row.answers.accuracy
    return {
        "in_flight": row.answers.in_flight,
        **_seconds("latency_with_transfer", latency.with_transfer if latency else None),
        **_seconds("latency_without_transfer", latency.without_transfer if latency else None),
        "accuracy_percent": accuracy.percent if accuracy else None,
        "reference_accuracy_percent": accuracy.reference_percent if accuracy else None,
    }
