"""What inference answered and how a training converged, as tables: the same cells on a terminal and in Markdown.

A matrix of ordinary trainings has neither. Columns of which nothing is known are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text

from runner.core.units import ABSENT, figure, milliseconds
from runner.report.block import Block, csv_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from runner.analysis.summary import Answers, Row, Summary
    from runner.core.measurement import EpochFigures

MOST_EPOCHS: Final = 12
"""Lines of a table of epochs; the CSV beside it has all."""
ANSWERS_LEGEND: Final = (
    "in flight: batches that were under way at once while throughput was measured; latency: of a batch that has the device to itself, from its "
    "samples in the host's memory to its predictions there, the median of the repeats"
)
ON_DEVICE_LEGEND: Final = "; on device: the same from its samples in the device's memory until the device is done"
ACCURACY_LEGEND: Final = (
    "; accuracy: of held-out images, beside that of the same network in fp32; same: predictions that are those of fp32"
)
EPOCHS_LEGEND: Final = "after each epoch, on images that no epoch trains on: the median of the repeats; elapsed: seconds of training, without validation"
EPOCHS: Final = ("devices", "epoch", "train loss", "validation loss", "accuracy (%)", "elapsed (s)")


def blocks(summary: Summary) -> tuple[tuple[Block, str], ...]:
    """Each table with what is said below it."""
    found = []
    if answers := [(row, row.answers) for row in summary.rows if row.answers]:
        placed = any(one.latency and one.latency.without_transfer for _, one in answers)
        labelled = any(one.accuracy for _, one in answers)
        legend = (ANSWERS_LEGEND, ON_DEVICE_LEGEND * placed, ACCURACY_LEGEND * labelled)
        found.append((_answers(answers), "".join(legend)))
    if epochs := [line for row in summary.rows for line in _epochs(row)]:
        found.append((Block(headers=EPOCHS, rows=tuple(epochs)), EPOCHS_LEGEND))
    return tuple(found)


def tables(summary: Summary) -> tuple[RenderableType, ...]:
    """The tables for a terminal."""
    found: list[RenderableType] = []
    for block, legend in blocks(summary):
        found += [block.table(), Text(legend, style="dim"), Text()]
    return tuple(found)


def epochs_csv(summary: Summary) -> str | None:
    """One line an epoch and scale, full precision, an empty field where there is no figure; None where nothing converged."""
    names = (
        "epoch",
        "iterations",
        "train_loss",
        "val_loss",
        "accuracy_percent",
        "validation_samples",
        "seconds",
        "elapsed_s",
    )
    rows = [
        {"scale": row.scale, **{name: getattr(one, name) for name in names}}
        for row in summary.rows
        for one in row.epochs
    ]
    return csv_text(rows) if rows else None


def _answers(rows: Sequence[tuple[Row, Answers]]) -> Block:
    columns: dict[str, list[str]] = {"devices": [row.devices for row, _ in rows]}
    told = [answers for _, answers in rows]
    columns["batch"] = [_batch(answers) for answers in told]
    columns["in flight"] = [str(answers.in_flight) for answers in told]
    for words, field in (("latency", "with_transfer"), ("on device", "without_transfer")):
        found = [getattr(answers.latency, field, None) for answers in told]
        for name in ("p50", "p90", "p99") if any(found) else ():
            columns[f"{words} {name} (ms)"] = [figure(milliseconds(getattr(one, name, None))) for one in found]
    if any(answers.accuracy for answers in told):
        accuracies = [answers.accuracy for answers in told]
        columns["accuracy (%)"] = [f"{one.percent:.1f}" if one else ABSENT for one in accuracies]
        columns["in fp32 (%)"] = [f"{one.reference_percent:.1f}" if one else ABSENT for one in accuracies]
        columns["difference (points)"] = [f"{one.difference:+.1f}" if one else ABSENT for one in accuracies]
        columns["same (%)"] = [f"{one.agree_percent:.1f}" if one else ABSENT for one in accuracies]
    return Block(headers=tuple(columns), rows=tuple(zip(*columns.values(), strict=True)))


def _batch(answers: Answers) -> str:
    """The batch that ran, and the one that was asked for where that is another."""
    batch = answers.batch
    if batch is None:
        return ABSENT
    return str(batch.used) if batch.used == batch.asked else f"{batch.used} (of {batch.asked})"


def _epochs(row: Row) -> list[tuple[str, ...]]:
    return [
        (
            row.devices,
            str(one.epoch),
            figure(one.train_loss),
            figure(one.val_loss),
            f"{one.accuracy_percent:.1f}",
            figure(one.elapsed_s),
        )
        for one in _few(row.epochs)
    ]


def _few(epochs: Sequence[EpochFigures]) -> list[EpochFigures]:
    """All of them, or as many as a table takes, evenly apart, the first and the last among them."""
    if len(epochs) <= MOST_EPOCHS:
        return list(epochs)
    last = len(epochs) - 1
    return [epochs[round(number * last / (MOST_EPOCHS - 1))] for number in range(MOST_EPOCHS)]
