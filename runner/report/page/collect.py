"""Everything on file → the page: its chapters in order, each figure under a name of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from runner.report.page import blocks, overview, runs
from runner.report.page.model import Block, Page, Section

if TYPE_CHECKING:
    from runner.core.record import RunRecord
    from runner.report.publish import Measured, Watched

CHAPTERS: Final = {
    "studies": (
        "Studies",
        "What a published source measured, run again here: its figures with the measured points beside them.",
    ),
    "comparisons": ("Interconnects", "The same training over several transports."),
    "networks": (
        "Networks",
        "Several networks, trained alike on one device and on more: how well each scales.",
    ),
    "strategies": (
        "Strategies",
        "The same training on the same devices, its ranks together in one way and in another.",
    ),
    "matrices": (
        "Scaling",
        "Runs that differ in the number of devices only: throughput, training time, speedup against the ideal.",
    ),
    "sweeps": ("Against the batch", "Runs and passes under a profiler that differ in batch and precision only."),
    "inputs": (
        "Input",
        "The same training on synthetic images and on real ones: what reading and decoding them costs.",
    ),
    "ablations": ("Techniques", "The same training plainly, and with one technique more a line."),
    "devices": (
        "Devices",
        "The same training on one GPU and on others of its kind: what an interval over one GPU's runs can't tell.",
    ),
    "engines": (
        "Container beside host",
        "The same training in a container and on the same software without one: what the container costs.",
    ),
    "overheads": (
        "What the suite costs",
        "The same training with samplers, without them and without the suite, in alternating rounds.",
    ),
    "passes": ("Profiles", "Where the time went, by passes under a profiler; these have no throughput."),
}
"""By anchor, the title and what it is about."""
_OF_MATRICES: Final = frozenset({"matrices", "comparisons", "passes"})
"""The chapters that grow with every run."""


@dataclass
class Collected:
    """What a page is made from, as it is read: folder by folder, each then joined to the whole. Chapters without a block are left out.

    Attributes:
        records: link of each run's directory, relative to the page, and its record.
        reserve: what is to be said of chapters that do not have all.
    """

    records: list[tuple[str, RunRecord]] = field(default_factory=list)
    chapters: dict[str, list[Block]] = field(default_factory=lambda: {name: [] for name in CHAPTERS})

    reserve: str = ""

    def matrix(self, measured: Measured, *, name: str, watched: Mapping[str, Watched]) -> None:
        """Add the curves of a matrix, and their comparison."""
        self.chapters["matrices"] += blocks.matrix(measured, name=name, watched=watched)
        self.chapters["comparisons"] += blocks.comparison(measured, name=name)

    def add(self, chapter: str, *blocks: Block) -> None:
        """Add blocks to a chapter, one of `CHAPTERS`."""
        self.chapters[chapter] += blocks

    def join(self, folder: Collected, *, files: Mapping[str, str]) -> None:
        """Add what a folder holds.

        Args:
            folder: collected from its run directories alone.
            files: link to each report that lies beside them, relative to the page, by its name; a block has those that its stem begins,
                and where several do, the longest has it.
        """
        stems = {block.stem for blocks_ in folder.chapters.values() for block in blocks_} - {""}
        own: dict[str, list[str]] = {}
        for name, link in files.items():
            own.setdefault(_stem(name, stems), []).append(link)
        self.records += folder.records
        for name, found in folder.chapters.items():
            self.chapters[name] += [
                block.model_copy(update={"files": tuple(own.get(block.stem, ()))}) if block.stem else block
                for block in found
            ]

    def page(self, *, title: str, made: str) -> Page:
        """The page; newest runs first, as those are looked for."""
        ordered = sorted(self.records, key=lambda one: one[1].provenance.recorded_at, reverse=True)
        records = [record for _, record in ordered]
        return Page(
            title=title,
            made=made,
            counts=overview.counts(records, studies=len(self.chapters["studies"])),
            overview=overview.overview(
                records, folders=[unquote(str(PurePosixPath(link).parent)) for link, _ in ordered]
            ),
            sections=tuple(_sections(self.chapters, self.reserve)),
            run_columns=runs.COLUMNS,
            filtered=runs.FILTERED,
            runs=tuple(runs.line(record, link=link) for link, record in ordered),
        )


def _stem(name: str, stems: AbstractSet[str]) -> str:
    """The longest of the stems that a file's name begins with, up to an ending or a hyphen; "" for none."""
    ends = (at for at in range(len(name) - 1, 0, -1) if name[at] in "-.")
    return next((name[:at] for at in ends if name[:at] in stems), "")


def _sections(chapters: Mapping[str, Sequence[Block]], reserve: str) -> Iterable[Section]:
    """The chapters that have blocks; anchors and figures that would share a name are numbered."""
    anchors: dict[str, int] = {}
    names: dict[str, int] = {}
    for name, (title, about) in CHAPTERS.items():
        found = tuple(_apart(block, anchors, names) for block in chapters[name])
        if found:
            said = f"{about} {reserve}" if reserve and name in _OF_MATRICES else about
            yield Section(anchor=name, title=title, about=said, blocks=found)


def _apart(block: Block, anchors: dict[str, int], names: dict[str, int]) -> Block:
    figures = tuple(figure.model_copy(update={"name": _numbered(figure.name, names)}) for figure in block.figures)
    return block.model_copy(update={"anchor": _numbered(block.anchor, anchors), "figures": figures})


def _numbered(name: str, known: dict[str, int]) -> str:
    known[name] = known.get(name, 0) + 1
    return name if known[name] == 1 else f"{name}-{known[name]}"
