"""The tables and CSV files of what is not plain training: inference, generation of text, and training to convergence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from runner.analysis.summarize import Answers, Row, Summary
from runner.core.measurement import EpochFigures, GenerationFigures, Percentiles
from runner.core.units import ABSENT, figure, milliseconds
from runner.report.table import Columns, Entry, Table, csv_text, fields

MOST_EPOCHS: Final = 12  # rows of a table of epochs; the CSV has all
_ANSWERS: Final = (
    "in flight: batches that were under way at once while throughput was measured; latency: of a batch that has the device to itself, from its "
    "samples in the host's memory to its predictions there, the median of the repeats; p90 and p99 of at least 10 and 100 timings a run"
)
_ON_DEVICE: Final = "; on device: the same from its samples in the device's memory until the device is done"
_ACCURACY: Final = (
    "; accuracy: of held-out images, beside that of the same network in fp32; same: predictions that are those of fp32"
)
_GENERATION: Final = (
    "each batch of prompts by itself: first token: from the prompts in the host's memory to the first token of each sequence; next token: from "
    "one token of each to the next; p90 and p99 of at least 10 and 100 timings a run; prefill and decode: tokens of prompts, and tokens after the "
    "first, ÷ their time, the median of the repeats"
)
_EPOCHS: Final = "after each epoch, on images that no epoch trains on: the median of the repeats; elapsed: seconds of training, without validation"


def tables(summary: Summary) -> tuple[Table, ...]:
    """The tables of inference, and of training to convergence."""
    found = []
    if answers := [(row.devices, row.answers) for row in summary.rows if row.answers]:
        placed = any(one.latency and one.latency.without_transfer for _, one in answers)
        labelled = any(one.accuracy for _, one in answers)
        legend = f"{_ANSWERS}{_ON_DEVICE * placed}{_ACCURACY * labelled}"
        found.append(Table.without_empty_columns(answers, _answer_columns(), title="Inference", legend=legend))
    if generated := [(row.devices, one) for row in summary.rows if row.answers for one in row.answers.generation]:
        found.append(
            Table.without_empty_columns(generated, _GENERATION_COLUMNS, title="Generation", legend=_GENERATION)
        )
    if epochs := [(row.devices, one) for row in summary.rows for one in _evenly_spaced(row.epochs)]:
        found.append(Table.from_entries(epochs, _EPOCH_COLUMNS, title="Validation by epoch", legend=_EPOCHS))
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


def inference_fields(row: Row) -> dict[str, float | None]:
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
