"""Records of one matrix over several transports → a scaling curve each, and the `Comparison` of them. Pure.

Trials of one matrix that differ in interconnect or link are curves of their own; what ran on one device, or on one node where others
cross a wire, belongs to all of them.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner import metrics
from runner.report import figures
from runner.report.comparison import ComparedRow, Comparison
from runner.report.summary import Row
from runner.results import RunRecord
from runner.summarize import between, summarize, usable_windows
from runner.trial import Trial

Run = tuple[Path, RunRecord]


@dataclass(frozen=True)
class Curve:
    """The runs of one way to join the devices, with those that all ways share.

    Attributes:
        label: the transport that was used; what was asked for where no run of it may be used.
        own: run directories and records of this way alone.
    """

    label: str
    runs: tuple[Run, ...]
    own: tuple[Run, ...]

    @property
    def slug(self) -> str:
        """The label as part of a file's name: `ethernet-eth0-emulated-1gbit`."""
        return re.sub(r"[^a-z0-9.]+", "-", self.label.lower()).strip("-")


def curves(runs: Sequence[Run]) -> tuple[Curve, ...]:
    """Part the runs of a matrix by what was asked of the wires, in the order in which they ran; one curve where that is one thing."""
    asked: dict[tuple[str, str | None, str], list[Run]] = {}
    shared: list[Run] = []
    several_nodes = any(_nodes(record) > 1 for _, record in runs)
    for path, record in runs:
        trial = record.trial
        if not isinstance(trial, Trial) or trial.world_size == 1 or (several_nodes and _nodes(record) == 1):
            shared.append((path, record))
            continue
        link = trial.link.label if trial.link else ""
        asked.setdefault((trial.interconnect, trial.iface or trial.hca, link), []).append((path, record))
    if len(asked) < 2:  # noqa: PLR2004
        return (Curve(label="", runs=tuple(runs), own=()),)
    labels = [_label(own, interconnect, link) for (interconnect, _, link), own in asked.items()]
    return tuple(
        Curve(
            label=label if labels.count(label) == 1 else f"{label}, asked as {interconnect}",
            runs=tuple(run for run in runs if run in shared or run in own),
            own=tuple(own),
        )
        for label, ((interconnect, _, _), own) in zip(labels, asked.items(), strict=True)
    )


def compare(found: Sequence[Curve]) -> Comparison:
    """Set the curves of one matrix side by side.

    Args:
        found: at least two.
    """
    summaries = [summarize(curve.runs) for curve in found]
    rows = []
    for scale in sorted({record.trial.world_size for curve in found for _, record in curve.own}):
        base = _at(found[0], scale)
        for curve, summary in zip(found, summaries, strict=True):
            records = _at(curve, scale)
            rows += [
                _compared(curve.label, row, records, [] if curve is found[0] else base)
                for row in summary.rows
                if row.scale == scale and records
            ]
    return Comparison(
        title=summaries[0].title,
        setting=summaries[0].setting,
        ground=figures.ground(summaries[0]),
        unit=figures.units(summaries[0]),
        first=found[0].label,
        rows=tuple(rows),
    )


def _at(curve: Curve, scale: int) -> list[RunRecord]:
    """A curve's own records of one scale."""
    return [record for _, record in curve.own if record.trial.world_size == scale]


def _compared(label: str, row: Row, records: Sequence[RunRecord], base: Sequence[RunRecord]) -> ComparedRow:
    """One transport at one scale; ratios are to the pooled repeats of `base`, as speedups are."""
    usable = [record for record in records if record.validity.status != "invalid"]
    ours, theirs = usable_windows(records), usable_windows(base)
    sent = [statistics.fmean(sent.values()) for record in usable if (sent := record.transport.sent_bytes_per_step)]
    expected = [
        total / _nodes(record) for record in usable if (total := record.transport.expected_bytes_per_step) is not None
    ]
    largest = [record.measurement.probe[-1] for record in usable if record.measurement.probe]
    return ComparedRow(
        transport=label,
        row=row,
        ratio=metrics.pooled_rate(ours) / metrics.pooled_rate(theirs) if ours and theirs else None,
        ratio_ci95=metrics.ratio_interval(ours, theirs) if ours and theirs else None,
        sent_bytes=statistics.fmean(sent) if sent else None,
        gradient_bytes=next((record.transport.gradient_bytes for record in usable), None),
        expected_bytes=expected[0] if expected else None,
        probe_gb_s=statistics.median(one.busbw_gb_s for one in largest) if largest else None,
        probe_bytes=largest[0].size_bytes if largest else None,
    )


def _nodes(record: RunRecord) -> int:
    return max(1, len(record.trial.placement)) if isinstance(record.trial, Trial) else 1


def _label(own: Sequence[Run], interconnect: str, link: str) -> str:
    """What carried the gradients of the runs that may be used; where there is none, what was asked for."""
    used = dict.fromkeys(between(record) for _, record in own if record.validity.status != "invalid")
    return " or ".join(used) or ", ".join(word for word in (f"{interconnect} (asked)", link) if word)
