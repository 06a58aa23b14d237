"""Everything on file → the page: its chapters in order, a block for each curve, comparison, pass and study, each figure under a name of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from runner.analysis.comparisons.transports import Curve
from runner.analysis.summarize import Summary
from runner.core.record import RunRecord
from runner.report import collectives, matrix, telemetry, transports
from runner.report.page import figures as drawn
from runner.report.page import overview, runs
from runner.report.page.figures import Watched
from runner.report.page.model import Block, Figure, Page, RunLine, Section, anchor, apart
from runner.report.page.overview import Shown, hardware, latest, one_scale
from runner.report.publish import Measured

CHAPTERS: Final = {
    "studies": (
        "Studies",
        "What a published source measured, run again here: its figures with the measured points beside them.",
        "dlscale reproduce STUDY",
    ),
    "comparisons": ("Interconnects", "The same training over several transports.", "dlscale bench --compare"),
    "networks": (
        "Networks",
        "Several networks, trained alike on one device and on more: how well each scales.",
        "dlscale bench --model MODEL, of two networks",
    ),
    "strategies": (
        "Strategies",
        "The same training on the same devices, its ranks together in one way and in another.",
        "dlscale bench --strategy STRATEGY, with two of them",
    ),
    "sweeps": (
        "Against the batch",
        "Runs and passes under a profiler that differ in batch and precision only.",
        "dlscale bench --batch BATCH, with two of them",
    ),
    "inputs": (
        "Input",
        "The same training on synthetic images and on real ones: what reading and decoding them costs.",
        "dlscale bench --data DIR",
    ),
    "ablations": ("Techniques", "The same training plainly, and with one technique more a line.", "dlscale ablate"),
    "devices": (
        "Devices",
        "The same training on one GPU and on others of its kind: what an interval over one GPU's runs can't tell.",
        "CUDA_VISIBLE_DEVICES=1 dlscale bench, after one on GPU 0",
    ),
    "engines": (
        "Container beside host",
        "The same training in a container and on the same software without one: what the container costs.",
        "dlscale bench --engine host, after one in a container",
    ),
    "overheads": (
        "What the suite costs",
        "The same training with samplers, without them and without the suite, in alternating rounds.",
        "dlscale overhead",
    ),
    "matrices": (
        "Scaling",
        "Runs that differ in the number of devices only: throughput, training time, speedup against the ideal.",
        "dlscale bench",
    ),
    "passes": (
        "Profiles",
        "Where the time went, by passes under a profiler; these have no throughput.",
        "dlscale bench --profile kernels",
    ),
}
"""By anchor, the title, what it is about, and what to run for it."""
_OF_FILES: Final = frozenset({"studies", "overheads"})
"""The chapters that are made from other files than records, and always whole."""


@dataclass
class Collected:
    """What a page is made from, as it is read: folder by folder, each then joined to the whole. Chapters without a block are left out."""

    records: list[tuple[str, RunRecord]] = field(default_factory=list)  # what is drawn, by links relative to the page
    others: list[tuple[datetime, RunLine]] = field(default_factory=list)  # what the table of all runs has besides
    measured: list[Shown] = field(default_factory=list)
    chapters: dict[str, list[Block]] = field(default_factory=lambda: {name: [] for name in CHAPTERS})
    reserve: str = ""  # what is to be said of chapters that do not have all

    def matrix(self, measured: Measured, *, name: str, watched: Mapping[str, Watched]) -> None:
        """Add the curves of a matrix, and their comparison; `watched` is what samplers saw, by the label of the curve, "" where there is one."""
        for curve, summary in measured.curves:
            stem = f"{name}-{curve.slug}" if measured.comparison else name
            block = _curve_block(curve, summary, name=stem, watched=watched.get(curve.label))
            records = tuple(record for _, record in curve.runs)
            self.add("matrices", block)
            self.measured.append(Shown(name=name, summary=summary, records=records, figures=block.figures))
        self.chapters["comparisons"] += compared_block(measured, name=name)

    def add(self, chapter: str, *blocks: Block) -> None:
        """Add blocks to a chapter, one of `CHAPTERS`."""
        self.chapters[chapter] += blocks

    def join(self, folder: Collected, *, files: Mapping[str, str]) -> None:
        """Add what a folder holds, collected from its run directories alone.

        `files` has the link to each report that lies beside them, by its name; a block has those that its stem begins, and where several do, the
        longest has it.
        """
        stems = {block.stem for blocks_ in folder.chapters.values() for block in blocks_} - {""}
        own: dict[str, list[str]] = {}
        for name, link in files.items():
            own.setdefault(_stem(name, stems), []).append(link)
        self.records += folder.records
        self.measured += folder.measured
        for name, found in folder.chapters.items():
            self.chapters[name] += [
                block.model_copy(update={"files": tuple(own.get(block.stem, ()))}) if block.stem else block
                for block in found
            ]

    def page(self, *, title: str, made: str) -> Page:
        """The page; newest runs first, as those are looked for."""
        drawn = [(record.provenance.recorded_at, runs.line(record, link=link)) for link, record in self.records]
        lines = tuple(line for _, line in sorted([*drawn, *self.others], key=lambda one: one[0], reverse=True))
        records = [record for _, record in self.records]
        records.sort(key=lambda record: record.provenance.recorded_at, reverse=True)
        first = latest(self.measured)
        here = first[0].hardware if first else None
        machines = {record.run_id: hardware(record) for record in records}

        def placed(block: Block) -> Block:
            elsewhere = bool(here and block.runs) and here not in {machines.get(run, here) for run in block.runs}
            return block.model_copy(update={"elsewhere": elsewhere})

        chapters = {name: list(map(placed, found)) for name, found in self.chapters.items()}
        return Page(
            title=title,
            made=made,
            counts=overview.counts(lines, studies=len(self.chapters["studies"])),
            latest=first[1] if first else None,
            overview=overview.overview(records, lines, here=here),
            sections=tuple(_sections(chapters, self.reserve)),
            missing=tuple((title, command) for name, (title, _, command) in CHAPTERS.items() if not chapters[name]),
            runs=lines,
        )


def _stem(name: str, stems: AbstractSet[str]) -> str:
    """The longest of the stems that a file's name begins with, up to an ending or a hyphen; "" for none."""
    ends = (at for at in range(len(name) - 1, 0, -1) if name[at] in "-.")
    return next((name[:at] for at in ends if name[:at] in stems), "")


def _sections(chapters: Mapping[str, Sequence[Block]], reserve: str) -> Iterable[Section]:
    """The chapters that have blocks; anchors and figures that would share a name are numbered, titles told apart."""
    anchors: dict[str, int] = {}
    names: dict[str, int] = {}
    for name, (title, about, _) in CHAPTERS.items():
        found = tuple(_apart(block, anchors, names) for block in told_apart(chapters[name]))
        if found:
            said = f"{about} {reserve}" if reserve and name not in _OF_FILES else about
            yield Section(anchor=name, title=title, about=said, blocks=found)


def told_apart(blocks: Sequence[Block]) -> list[Block]:
    """Blocks of one title each with what of its setting and machine differs, else image, engine, day, stem or first run; figures by their block's title."""
    ran = [
        next((line for line in block.lines[1:] if " · " in line), "".join(block.lines[1:2])).split(" · ")
        for block in blocks
    ]
    titles = apart(
        [block.title for block in blocks],
        [[*"".join(block.lines[:1]).split(", "), where] for block, (where, *_) in zip(blocks, ran, strict=True)],
        [[line for line in block.lines[1:2] if " · " not in line] for block in blocks],
        *([own[number : number + 1] for own in ran] for number in range(1, max(map(len, ran), default=0))),
        [[block.stem or block.anchor] for block in blocks],
        [block.runs[:1] for block in blocks],
    )
    return [
        block.model_copy(update={"title": title, "figures": tuple(_of_block(block.figures, block.title, title))})
        for block, title in zip(blocks, titles, strict=True)
    ]


def _of_block(figures: Sequence[Figure], title: str, new: str) -> Iterable[Figure]:
    """The figures of a block, titled by its new title in place of the old one or of the beginning that they have of it."""
    told = []
    for figure in figures:
        what, _, old = figure.title.partition(", ")
        told.append(f"{what}, {new}" if title.startswith(old) else figure.title)
    for figure, own in zip(figures, apart(told, [[f"by {figure.x}"] for figure in figures]), strict=True):
        yield figure.model_copy(update={"title": own})


def _apart(block: Block, anchors: dict[str, int], names: dict[str, int]) -> Block:
    figures = tuple(figure.model_copy(update={"name": _numbered(figure.name, names)}) for figure in block.figures)
    return block.model_copy(update={"anchor": _numbered(block.anchor, anchors), "figures": figures})


def _numbered(name: str, known: dict[str, int]) -> str:
    known[name] = known.get(name, 0) + 1
    return name if known[name] == 1 else f"{name}-{known[name]}"


def compared_block(measured: Measured, *, name: str) -> tuple[Block, ...]:
    """The block of a matrix over several transports; none of one over a single one."""
    if measured.comparison is None:
        return ()
    own = {(curve.label, scale): ids for curve, _ in measured.curves for scale, ids in _ids(curve.own).items()}
    block = transports.report(measured.comparison, name=f"{name}-transports", runs=own).page_block()
    return (block.model_copy(update={"stem": name}),)


def _ids(runs: Iterable[tuple[Path, RunRecord]]) -> dict[int, tuple[str, ...]]:
    """By scale, the ids of its runs."""
    found: dict[int, tuple[str, ...]] = {}
    for _, record in runs:
        scale = record.trial.world_size
        found[scale] = (*found.get(scale, ()), record.run_id)
    return found


def _curve_block(curve: Curve, summary: Summary, *, name: str, watched: Watched | None) -> Block:
    records = [record for _, record in curve.runs]
    label = f": {curve.label}" if curve.label else ""
    return Block(
        anchor=anchor("matrix", name),
        title=f"{summary.title}{label}",
        lead=_lead(summary),
        lines=(
            summary.setting,
            *filter(None, (summary.wires, summary.engine_reason)),
            summary.ran_on,
            matrix.interval_legend(summary),
            *matrix.peak_legend(summary),
        ),
        figures=(
            *drawn.scaling(summary, name=name, runs=_ids(curve.runs)),
            *(drawn.over_time(watched, name=name, title=summary.title) if watched else ()),
            *drawn.over_epochs(records, name=name, title=summary.title),
        ),
        tables=(
            matrix.scaling(summary),
            *filter(None, (matrix.parts(summary), collectives.table(("", row) for row in summary.rows))),
            *telemetry.tables(summary),
        ),
        notes=(*matrix.notes(summary), *collectives.notes(summary.rows), *telemetry.notes(summary)),
        runs=tuple(record.run_id for record in records),
        stem=name,
        empty=one_scale(summary),
    )


def _lead(summary: Summary) -> str:
    """What came of the largest scale that may be used."""
    usable = [row for row in summary.rows if row.usable and row.throughput is not None]
    if not usable:
        return f"no usable run: {', '.join(sorted({row.status for row in summary.rows}))}"
    return matrix.told(max(usable, key=lambda row: row.scale))
