"""What every report on one training in several settings has: its head, its notes, and a section of Markdown around its table."""

from __future__ import annotations

from runner.frozen import Frozen
from runner.report.block import Block, section


class TrainingReport(Frozen):
    """One training in several settings.

    Attributes:
        name: of its reports.
        title: framework, version, model.
        setting: what all of it shares, in one line.
        ground: what it ran on, in one line.
        unit: of the throughput.
        notes: what the figures alone would hide.
    """

    name: str
    title: str
    setting: str
    ground: str
    unit: str
    notes: tuple[str, ...]


def training_section(found: TrainingReport, what: str, block: Block, *, legend: str) -> str:
    """It in Markdown, with the word for what is told apart in the title."""
    return section(f"{found.title}: {what}", (found.setting, found.ground), (block,), legend=legend, notes=found.notes)
