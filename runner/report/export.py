"""A summary for other programs and pages: Markdown for people who paste, CSV for people who compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from runner.core import units
from runner.core.measurement import StepParts
from runner.report import figures, modes, telemetry
from runner.report.block import csv_text, escaped, listed

if TYPE_CHECKING:
    from runner.analysis.summary import Row, Summary

# Of a row's telemetry, what stands in its line of the CSV.
WATCHED: Final = ("utilisation_percent", "power_w", "energy_j", "samples_per_joule")


def markdown(summary: Summary) -> str:
    """A section: what ran where, what `±` is, the table, and every reservation; ends with a newline."""
    notes = listed(figures.notes(summary))
    lines = [
        f"### {escaped(summary.title)}",
        "",
        f"{escaped(summary.setting)}  ",  # two spaces: a line break
        *([f"{escaped(summary.wires)}  "] if summary.wires else []),
        f"{escaped(summary.ran_on)}  ",
        *([f"{escaped(summary.engine_reason)}  "] if summary.engine_reason else []),
        "  \n".join((figures.interval_legend(summary), *map(escaped, figures.peak_legend(summary)))),
        "",
        *figures.scaling(summary).markdown(),
        *_modes(summary),
        *_parts(summary),
        *_watched(summary),
        *(["", *notes] if notes else []),
    ]
    return "\n".join(lines) + "\n"


def _modes(summary: Summary) -> list[str]:
    """What inference answered and how a training converged, a table each."""
    found: list[str] = []
    for block, legend in modes.blocks(summary):
        found += ["", *block.markdown(), "", legend]
    return found


def _parts(summary: Summary) -> list[str]:
    """Where the time of a step went, as a table of its own; nothing where no program told."""
    block = figures.parts(summary)
    return ["", *block.markdown(), "", figures.PARTS_LEGEND] if block else []


def _watched(summary: Summary) -> list[str]:
    """What devices and hosts did, a table each; nothing where nobody looked on."""
    found: list[str] = []
    for block in telemetry.blocks(summary):
        found += ["", *block.markdown()]
    said = listed(telemetry.notes(summary))
    return [*found, *(["", telemetry.LEGEND] if found else []), *(["", *said] if said else [])]


def to_csv(summary: Summary) -> str:
    """One line a row, full precision, an empty field where there is no figure.

    Columns: scale, device, throughput and its interval, unit, training_time_s, speedup, efficiency (a fraction) and their
    intervals, mfu_percent, repeats, of inference the batches in flight, latencies in seconds and accuracies in percent, the parts of a step in seconds (`runner/analysis/grading/attribution.py`), mean utilisation in percent and power in
    watts of all devices, their energy in joules and samples per joule over all repeats, status, reasons (joined by "; "), wires.
    """
    return csv_text(
        [
            {
                "scale": row.scale,
                "device": row.device,
                "throughput": row.throughput,
                **units.ends_by_column("throughput", row.throughput_ci95),
                "unit": row.unit,
                "training_time_s": row.training_time_s,
                "speedup": row.speedup,
                **units.ends_by_column("speedup", row.speedup_ci95),
                "efficiency": row.efficiency,
                **units.ends_by_column("efficiency", row.efficiency_ci95),
                "mfu_percent": row.mfu_percent,
                "repeats": row.repeats,
                **_answered(row),
                **{name: getattr(row.parts, name, None) for name in StepParts.model_fields},
                **{name: getattr(row.telemetry, name, None) for name in WATCHED},
                "status": row.status,
                "reasons": "; ".join(row.reasons),
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
    return {
        "in_flight": row.answers.in_flight,
        **{
            f"latency_{field}_{name}_s": getattr(getattr(latency, field, None), name, None)
            for field in ("with_transfer", "without_transfer")
            for name in ("p50", "p90", "p99")
        },
        "accuracy_percent": accuracy.percent if accuracy else None,
        "reference_accuracy_percent": accuracy.reference_percent if accuracy else None,
    }
