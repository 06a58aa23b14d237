"""The report of one matrix: its tables, a verdict in one sentence, Markdown to paste, CSV to compute with.

A figure has no more digits than its interval supports; columns without a known value are left out. Figures in `OPTIONAL_COLUMNS` are
computed from the records of the row's usable runs (`Row.records`), or from the row's own fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from runner.analysis.summarize import DEGRADED_BASELINE, Row, Summary
from runner.core import units
from runner.core.measurement import FEWEST_RUNS, Interval, StepParts
from runner.core.units import ABSENT, PLUS_MINUS, estimate, figure, half_width, milliseconds, percent
from runner.report import collectives, modes, telemetry
from runner.report.table import Table, csv_text, escaped, fields, section


@dataclass(frozen=True)
class Column:
    """A figure of a row: `header`, and `name` in the CSV, both with the unit; `of` returns None if a row has no such figure.

    The scaling table has the column if `known` says so or, without `known`, if any row has the figure; the CSV always has it.
    """

    header: str
    name: str
    of: Callable[[Row], float | None]
    known: Callable[[Summary], bool] | None = None

    def shown(self, summary: Summary) -> bool:
        """Whether the scaling table has the column."""
        if self.known:
            return self.known(summary)
        return any(self.of(row) is not None for row in summary.rows)


OPTIONAL_COLUMNS: Final[tuple[Column, ...]] = (
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
    columns = {
        "devices": lambda row: row.devices,
        summary.rate_unit: lambda row: with_interval(row.throughput, row.throughput_ci95),
        _time(summary): lambda row: figure(row.training_time_s),
        "speedup": lambda row: with_interval(row.speedup, row.speedup_ci95),
        "efficiency (%)": lambda row: with_interval(row.efficiency, row.efficiency_ci95, scale=100),
        "runs": runs,
        "validity": lambda row: row.status,
    }
    return _without_ratios_of_one(summary, Table.from_entries(summary.rows, columns, title="Result"))


def scaling(summary: Summary) -> Table:
    """The scaling table; an unusable row shows no figure, and `OPTIONAL_COLUMNS` are present if known."""
    columns = {
        "devices": lambda row: row.devices,
        "runs": runs,
        f"{summary.rate_unit} ±": rate,
        _time(summary): lambda row: figure(row.training_time_s),
        "speedup ±": speedup,
        "efficiency (%) ±": efficiency,
        **{one.header: _column_text(one) for one in OPTIONAL_COLUMNS if one.shown(summary)},
        "validity": validity,
    }
    return _without_ratios_of_one(
        summary, Table.from_entries(summary.rows, columns, title="Scaling", words=("validity",))
    )


TIMES: Final = ("training time (s)", "measured time (s)")
"""Headers of the time of all iterations: of training, and of inference."""


def _time(summary: Summary) -> str:
    training, inference = TIMES
    return training if summary.trains else inference


def _without_ratios_of_one(summary: Summary, table: Table) -> Table:
    ratios = [name for name in table.columns if name.startswith(("speedup", "efficiency"))]
    return table if summary.trains else table.without(*ratios)


def _column_text(column: Column) -> Callable[[Row], str]:
    return lambda row: figure(column.of(row))


PARTS: Final = {
    "step (ms)": "step_s",
    "input": "input_s",
    "compute": "compute_s",
    "stragglers": "stragglers_s",
    "communication + update": "communication_s",
    "exchange alone": "exchange_alone_s",
}
"""Columns of the table of parts, all in milliseconds, and their fields of `StepParts`."""
PARTS_LEGEND = (
    "a step = input + compute + stragglers + communication + update; compute: on one device all but the input, on several a pass without any "
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
    return (*found, *unequal_work((row.devices, row) for row in summary.rows), *summary.notes)


UNEQUAL: Final = 1.05
"""Training times are of equal work unless one row processed this many times as much as another: iterations are whole."""


def unequal_work(rows: Iterable[tuple[str, Row]]) -> Iterator[str]:
    """Say what training times are of if the labelled rows processed different amounts, as runs of a set duration do."""
    timed = (
        (label, [one.measurement for one in row.records if one.measurement.training_time_s]) for label, row in rows
    )
    done = {label: sorted({one.samples for one in own}) for label, own in timed if own}
    if len(done) > 1 and max(map(max, done.values())) > UNEQUAL * min(map(min, done.values())):
        spans = {name: dict.fromkeys((own[0], own[-1])) for name, own in done.items()}
        amounts = (f"{name} {' to '.join(f'{one:,}' for one in span)}" for name, span in spans.items())
        yield f"training times are of different numbers of samples: {', '.join(amounts)}"


NOISY_RATIO: Final = 2.0
"""An interval says nothing if its upper end is at least this many times its lower end: the rate may be half of what it seems."""
ENOUGH_RUNS: Final = 5


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
    if row.lost:
        of = units.counted(row.repeats + len(row.lost))
        clauses.append(f"{len(row.lost)} of {of} can't be used: {row.lost[0]}")
    elif row.throughput_ci95 is None and row.repeats < FEWEST_RUNS:
        clauses.append(f"no interval from {units.counted(row.repeats)}, --repeat={FEWEST_RUNS} gives one")
    if row.status == "degraded" and (reason := _first_reason(row, usable)) not in row.lost:
        clauses.append(f"degraded: {reason}")
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


def details(summary: Summary) -> Iterator[Table]:
    """The tables below the scaling table: inference or convergence, parts of a step, collectives, telemetry."""
    yield from modes.tables(summary)
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
        *details(summary),
        collectives.notes(summary.rows),
        telemetry.notes(summary),
        notes(summary),
        measured=(interval_legend(summary), *map(escaped, peak_legend(summary))),
    )


# Fields of a row's telemetry that are columns of the CSV.
TELEMETRY_FIELDS: Final = ("utilisation_percent", "power_w", "energy_j", "samples_per_joule")


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
                **{column.name: column.of(row) for column in OPTIONAL_COLUMNS},
                "repeats": row.repeats,
                **modes.inference_fields(row),
                **fields(row.parts, *StepParts.model_fields),
                **fields(row.telemetry, *TELEMETRY_FIELDS),
                **fields(row, "status", "reasons"),
                "wires": summary.wires,
            }
            for row in summary.rows
        ]
    )
