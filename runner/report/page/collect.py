"""Build the page from everything on file: chapters in order, one block per curve, comparison, pass and study, and unique names of figures."""

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
from runner.report import collectives, matrix, modes, telemetry, transports
from runner.report.page import figures as drawn
from runner.report.page import overview, runs
from runner.report.page.figures import Watched
from runner.report.page.model import Block, Figure, Page, RunLine, Section, anchor, make_distinct
from runner.report.page.overview import Shown, hardware, latest, single_scale_hint
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
"""By anchor: the title, what the chapter shows, and the command that measures it."""
_COMPLETE_CHAPTERS: Final = frozenset({"studies", "overheads"})
"""Chapters made from other files than records; of each folder with a drawn run, they show all."""


@dataclass
class Collected:
    """The page's contents as they are read: one instance per folder, all joined into the page's. Chapters without a block are left out."""

    records: list[tuple[str, RunRecord]] = field(default_factory=list)  # drawn, by links relative to the page
    others: list[tuple[datetime, RunLine]] = field(default_factory=list)  # further rows of the table of all runs
    measured: list[Shown] = field(default_factory=list)
    chapters: dict[str, list[Block]] = field(default_factory=lambda: {name: [] for name in CHAPTERS})
    caveat: str = ""  # note about chapters that do not show all runs

    def matrix(self, measured: Measured, *, name: str, watched: Mapping[str, Watched]) -> None:
        """Add the curves of a matrix and their comparison; `watched` holds telemetry samples by label of the curve ("" if there is only one)."""
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
        """Add a folder, which was collected from its run directories alone.

        `files` maps the names of the reports next to them to links; each report goes to the block whose stem is the longest prefix of its
        name.
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
        """The page; newest runs first, because those are looked up most."""
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
            sections=tuple(_sections(chapters, self.caveat)),
            missing=tuple((title, command) for name, (title, _, command) in CHAPTERS.items() if not chapters[name]),
            runs=lines,
        )


def _stem(name: str, stems: AbstractSet[str]) -> str:
    """The longest stem that is a prefix of a file's name, followed by a dot or a hyphen; "" if none is."""
    ends = (at for at in range(len(name) - 1, 0, -1) if name[at] in "-.")
    return next((name[:at] for at in ends if name[:at] in stems), "")


def _sections(chapters: Mapping[str, Sequence[Block]], caveat: str) -> Iterable[Section]:
    """The chapters that have blocks; equal anchors and figure names are numbered, equal titles made distinct."""
    anchors: dict[str, int] = {}
    names: dict[str, int] = {}
    for name, (title, about, _) in CHAPTERS.items():
        found = tuple(_with_unique_ids(block, anchors, names) for block in with_distinct_titles(chapters[name]))
        if found:
            text = f"{about} {caveat}" if caveat and name not in _COMPLETE_CHAPTERS else about
            yield Section(anchor=name, title=title, about=text, blocks=found)


def with_distinct_titles(blocks: Sequence[Block]) -> list[Block]:
    """Make equal titles of blocks distinct by what differs: setting and machine, else image, engine, day, stem or first run; retitle their figures."""
    ran = [
        next((line for line in block.lines[1:] if " · " in line), "".join(block.lines[1:2])).split(" · ")
        for block in blocks
    ]
    titles = make_distinct(
        [block.title for block in blocks],
        [[*"".join(block.lines[:1]).split(", "), where] for block, (where, *_) in zip(blocks, ran, strict=True)],
        [[line for line in block.lines[1:2] if " · " not in line] for block in blocks],
        *([own[number : number + 1] for own in ran] for number in range(1, max(map(len, ran), default=0))),
        [[block.stem or block.anchor] for block in blocks],
        [block.runs[:1] for block in blocks],
    )
    return [
        block.model_copy(update={"title": title, "figures": tuple(_retitled(block.figures, block.title, title))})
        for block, title in zip(blocks, titles, strict=True)
    ]


def _retitled(figures: Sequence[Figure], title: str, new: str) -> Iterable[Figure]:
    """Retitle a block's figures: replace the block's old title, or the start of it that they contain, by the new one."""
    titles = []
    for figure in figures:
        what, _, old = figure.title.partition(", ")
        titles.append(f"{what}, {new}" if title.startswith(old) else figure.title)
    for figure, own in zip(figures, make_distinct(titles, [[f"by {figure.x}"] for figure in figures]), strict=True):
        yield figure.model_copy(update={"title": own})


def _with_unique_ids(block: Block, anchors: dict[str, int], names: dict[str, int]) -> Block:
    figures = tuple(figure.model_copy(update={"name": _unique(figure.name, names)}) for figure in block.figures)
    return block.model_copy(update={"anchor": _unique(block.anchor, anchors), "figures": figures})


def _unique(name: str, known: dict[str, int]) -> str:
    known[name] = known.get(name, 0) + 1
    return name if known[name] == 1 else f"{name}-{known[name]}"


def compared_block(measured: Measured, *, name: str) -> tuple[Block, ...]:
    """The block of a matrix over several transports; empty for a single transport."""
    if measured.comparison is None:
        return ()
    own = {(curve.label, scale): ids for curve, _ in measured.curves for scale, ids in _run_ids(curve.own).items()}
    block = transports.report(measured.comparison, name=f"{name}-transports", runs=own).page_block()
    return (block.model_copy(update={"stem": name}),)


def _run_ids(runs: Iterable[tuple[Path, RunRecord]]) -> dict[int, tuple[str, ...]]:
    """Run ids by scale."""
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
            *drawn.scaling(summary, name=name, runs=_run_ids(curve.runs)),
            *(drawn.over_time(watched, name=name, title=summary.title) if watched else ()),
            *drawn.over_epochs(records, name=name, title=summary.title),
        ),
        tables=(
            matrix.scaling(summary),
            *modes.tables(summary),
            *filter(None, (matrix.parts(summary), collectives.table(("", row) for row in summary.rows))),
            *telemetry.tables(summary),
        ),
        notes=(*matrix.notes(summary), *collectives.notes(summary.rows), *telemetry.notes(summary)),
        runs=tuple(record.run_id for record in records),
        stem=name,
        empty=single_scale_hint(summary),
    )


def _lead(summary: Summary) -> str:
    """The result of the largest usable scale."""
    usable = [row for row in summary.rows if row.usable and row.throughput is not None]
    if not usable:
        return f"no usable run: {', '.join(sorted({row.status for row in summary.rows}))}"
    return matrix.result_line(max(usable, key=lambda row: row.scale))
