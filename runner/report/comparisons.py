"""Comparisons across matrices, each kind declared once: columns, legend, lead and figures, for every form of output.

`runner/analysis/comparisons/` finds the runs and computes the figures; a `Report` is Markdown, CSV, PNG, a terminal's table and a block of
the page. Interconnects are in `transports.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal

from rich.console import Group
from rich.text import Text

from runner.analysis.comparisons.ablation import Ablation, Losses, ablations
from runner.analysis.comparisons.devices import Devices, OnGpu, Standing, Training
from runner.analysis.comparisons.grouping import Compared, Run, TrainingComparison
from runner.analysis.comparisons.settings import (
    INCOMPARABLE,
    CaseFigures,
    CrossCheck,
    InputReport,
    Source,
    cross_checks,
)
from runner.analysis.comparisons.settings import inputs as find_inputs
from runner.analysis.comparisons.settings import strategies as find_strategies
from runner.analysis.comparisons.sweeps import Network, Networks, Point, Sweep, sweeps
from runner.analysis.comparisons.sweeps import networks as find_networks
from runner.analysis.summarize import Row, Status, Summary
from runner.core.trial import Case
from runner.core.units import ABSENT, PLUS_MINUS, figure, half_width, percent
from runner.report import picture
from runner.report.matrix import PARTS, PARTS_LEGEND, UNEQUAL, efficiency, part, rate, runs, speedup, validity
from runner.report.page.figures import efficiency_by_network, throughput_by
from runner.report.page.model import Block, Figure, Series, anchor, error_bars, series_of
from runner.report.table import Columns, Table, csv_text, escaped, fields, fixed, section

Reports = dict[str, str | bytes | None]


@dataclass(frozen=True, kw_only=True)
class Report:
    """One report, ready for every form: Markdown, CSV, PNG, a terminal, a block of the page.

    Attributes:
        chapter: of the page, one of `collect.CHAPTERS`.
        lead: the result in one line.
        lines: what ran on what.
        measured: lines after these, formatted as Markdown, which only the Markdown report has.
        tables: a terminal shows only the first; Markdown prints their titles if `many`.
        pictures: functions that draw the PNGs next to the Markdown, by file name without `.png`.
    """

    chapter: str
    name: str
    title: str
    lead: str
    lines: tuple[str, ...]
    measured: tuple[str, ...] = ()
    tables: tuple[Table, ...]
    many: bool = False
    legends: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    csv: Sequence[Mapping[str, object]] = ()
    figures: tuple[Figure, ...] = ()
    pictures: Mapping[str, Callable[[], bytes | None]] = field(default_factory=dict)
    runs: tuple[str, ...] = ()

    def markdown(self) -> str:
        """A section; ends with a newline."""
        names = (f"**{escaped(table.title)}**" if self.many else "" for table in self.tables)
        tables = (part for both in zip(names, self.tables, strict=True) for part in both)
        return section(self.title, self.lines, *tables, "; ".join(self.legends), self.notes, measured=self.measured)

    def files(self, *, pictures: bool = True) -> Reports:
        """Every report by file name, with or without pictures."""
        return {
            f"{self.name}.md": self.markdown(),
            f"{self.name}.csv": csv_text(self.csv) if self.csv else None,
            **{f"{name}.png": draw() if pictures else None for name, draw in self.pictures.items()},
        }

    def terminal(self) -> Group:
        """The first table with its legend, for a terminal."""
        first, *others = self.lines
        return Group(
            Text(self.title, style="bold"),
            Text(first),
            *(Text(line, style="dim") for line in others),
            Text(),
            self.tables[0].terminal(),
            Text(),
            Text("; ".join(self.legends), style="dim"),
            *(Text(note, style="yellow") for note in self.notes),
        )

    def page_block(self) -> Block:
        """The block of the page, which shows the lead first."""
        return Block(
            anchor=anchor(self.name),
            title=self.title,
            lead=self.lead,
            lines=(*(line for line in self.lines if line != self.lead), *self.legends),
            figures=self.figures,
            tables=self.tables,
            notes=self.notes,
            runs=self.runs,
            stem=self.name,
        )


UNUSABLE: Final = "no usable run"


def compare_matrices(found: Sequence[Run]) -> Iterator[Report]:
    """Every comparison of runs in one folder, whatever their matrix; interconnects are in `transports.py`."""
    yield from map(networks, find_networks(found))
    yield from map(strategies, find_strategies(found))
    yield from map(sweep, sweeps(found))
    yield from map(inputs, find_inputs(found))
    yield from map(ablation, ablations(found))
    yield from map(engines, cross_checks(found))


def ablation(found: Ablation) -> Report:
    """A training with one more technique per row."""
    best = _best(found.rows)
    return _training_report(
        found,
        chapter="ablations",
        what="ablation",
        heading="Techniques",
        names={"line": _label},
        columns={
            "÷ first ±": _ratio,
            "÷ before ±": lambda line: figure(line.gain, half_width(line.gain_ci95)),
            "loss, RMS": lambda line: _loss(line.losses, "distance", "spread"),
            "loss, mean": lambda line: _loss(line.losses, "shift", "shift_spread"),
        },
        legend=(
            f"each line has all that the lines above it have; {PLUS_MINUS}; loss: how far its losses, means of 10 steps, are from the plain "
            "program's with the same seed, and how far two seeds of that program are from each other at most: root mean square of the "
            "differences, and their mean"
        ),
        lead=f"{_ratio(best)} × the first line with all above it to: {best.label}" if best else UNUSABLE,
        figures=throughput_by("technique", found),
    )


def engines(found: CrossCheck) -> Report:
    """A training in a container, and on the same software without one."""
    incomparable = INCOMPARABLE if any(row.differs for row in found.rows) else UNUSABLE
    return _training_report(
        found,
        chapter="engines",
        what="engines",
        heading="Engines",
        names={"engine": lambda one: one.engine, "ran from": lambda one: one.place},
        columns={
            f"÷ {found.bare} ±": lambda one: INCOMPARABLE if one.differs else _ratio(one),
            "differs in": lambda one: ", ".join(one.differs) or ABSENT,
            "first step (s)": lambda one: figure(one.first_step_s),
        },
        legend=(
            f"{PLUS_MINUS}; a ratio is of the same framework, CUDA, cuDNN, NCCL, Python, driver, machine and training programs, else there is "
            "none; first step: seconds from the start of the first container or process to the end of the first step, the median of the repeats"
        ),
        lead=_ratios(found.rows, found.bare) or incomparable,
        figures=throughput_by("engine", found),
        csv=[
            {
                "engine": one.engine,
                "ran_from": one.reference,
                **{name.lower().replace(" ", "_"): value for name, value in one.software},
                **fields(one.row, "throughput", "throughput_ci95", "unit"),
                f"ratio_to_{found.bare}": one.ratio,
                **fields(one, "ratio_ci95"),
                "differs_in": "; ".join(one.differs),
                "first_step_s": one.first_step_s,
                **fields(one.row, "repeats", "status"),
                "runs": " ".join(one.runs),
            }
            for one in found.rows
        ],
    )


def inputs(found: InputReport) -> Report:
    """A training on synthetic samples and on real ones."""
    best = _best(found.rows)

    def input_alone(rows: Sequence[Source]) -> tuple[Series, ...]:
        delivered = tuple(one.alone_per_s for one in rows)
        series = Series(name="input alone", kind="ideal", x=tuple(one.label for one in rows), y=delivered)
        return (series,) if any(value is not None for value in delivered) else ()

    return _training_report(
        found,
        chapter="inputs",
        what="input",
        heading="Input",
        names={"input": _label},
        columns={
            "÷ synthetic ±": _ratio,
            "input of a step (ms)": lambda one: part(one.row, "input_s"),
            f"input alone ({found.unit})": lambda one: figure(one.alone_per_s),
            "limit": lambda one: one.limit or ABSENT,
        },
        legend=(
            f"{PLUS_MINUS}; input of a step: what the loop waited for its batch and compute did not hide; input alone: what the input delivers "
            "after the training, with nobody training, the median of the repeats; limit: the input where steps wait for it, or where, alone, it "
            "delivers less than the training takes of synthetic samples"
        ),
        lead=f"{best.label}: {_ratio(best)} of synthetic images" if best else UNUSABLE,
        figures=throughput_by("input", found, ideal=input_alone),
    )


def strategies(found: TrainingComparison) -> Report:
    """A training on the same devices by several strategies."""
    return _training_report(
        found,
        chapter="strategies",
        what="strategies",
        heading="Strategies",
        names={"strategy": _label},
        columns={
            "÷ first ±": _ratio,
            "efficiency (%) ±": lambda way: efficiency(way.row),
            "step (ms)": lambda way: part(way.row, "step_s"),
            "exchange alone (ms)": lambda way: part(way.row, "exchange_alone_s"),
            "communication + update (ms)": lambda way: part(way.row, "communication_s"),
        },
        legend=(
            f"{PLUS_MINUS}; efficiency: against one device; step: wall time; exchange alone: all gradients, by the probe, nothing hidden; "
            "communication: the exchange that compute did not hide, and the update"
        ),
        lead=_ratios(found.rows, found.rows[0].label) or UNUSABLE,
        figures=throughput_by("strategy", found),
    )


def networks(found: Networks) -> Report:
    """Networks trained alike on one device and on more."""
    rows = [(network, row) for network in found.networks for row in network.rows]
    parts = {header: name for header, name in PARTS.items() if header != "input"}
    units = " / ".join(sorted({network.unit for network in found.networks}))
    columns: dict[str, Callable[[tuple[Network, Row]], str]] = {
        "network": lambda one: one[0].label,
        "batch": lambda one: f"{one[0].batch:,}",
        "devices": lambda one: one[1].devices,
        "runs": lambda one: runs(one[1]),
        f"{units} ±": lambda one: rate(one[1]),
        "speedup ±": lambda one: speedup(one[1]),
        "efficiency (%) ±": lambda one: efficiency(one[1]),
        **{header: lambda one, name=name: part(one[1], name) for header, name in parts.items()},  # type: ignore[misc]
        "power (W)": lambda one: figure(one[1].telemetry.power_w if one[1].telemetry else None),
        "samples/J": lambda one: figure(one[1].telemetry.samples_per_joule if one[1].telemetry else None),
        "validity": lambda one: validity(one[1]),
    }
    largest = [(one.label, one.rows[-1]) for one in found.networks if one.rows[-1].efficiency is not None]
    lead = "; ".join(f"{label}: {figure(percent(row.efficiency))} % on {row.devices}" for label, row in largest)
    drawn = efficiency_by_network(found)
    return Report(
        chapter="networks",
        name=found.name,
        title=f"{found.title}: scaling",
        lead=lead or "no usable run on several devices",
        lines=(*found.how, found.ran_on),
        tables=(Table.without_empty_columns(rows, columns, title="Networks"),),
        legends=(
            (
                f"batch: of one device, of all with strong scaling; {PLUS_MINUS}; speedup, efficiency: to one device; power: of all devices, energy ÷ "
                f"time; {PARTS_LEGEND}"
            ),
        ),
        notes=found.notes,
        csv=[
            {
                "network": network.label,
                "batch": network.batch,
                **fields(row, "scale", "device", "throughput", "throughput_ci95", "unit"),
                **fields(row, "speedup", "efficiency", "efficiency_ci95"),
                **fields(row.parts, *parts.values()),
                **fields(row, "repeats", "status"),
                "runs": " ".join(own),
            }
            for network in found.networks
            for row, own in zip(network.rows, network.runs, strict=True)
        ],
        figures=drawn,
        pictures={found.name: partial(picture.png, drawn[0], lines=(*found.how, found.ran_on))} if drawn else {},
        runs=tuple(run for network in found.networks for own in network.runs for run in own),
    )


UUID_CHARACTERS: Final = 12  # characters of a UUID that are printed


def devices(found: Devices) -> Report:
    """The same trainings on several GPUs of one kind, each alone."""

    def at(end: int, read: Callable[[OnGpu], str]) -> Callable[[Training], str]:
        return lambda row: read(row.gpus[end])

    def both(heading: str, read: Callable[[OnGpu], str]) -> dict[str, Callable[[Training], str]]:
        return {heading.format(word): at(end, read) for word, end in (("slowest", 0), ("fastest", -1))}

    trainings: dict[str, Callable[[Training], str]] = {
        "training": lambda row: row.label,
        "GPUs": lambda row: str(len(row.gpus)),
        "runs": lambda row: str(len(row.runs)),
        **both("{}'s runs", lambda gpu: str(len(gpu.runs))),
        **both(f"{{}} ({found.unit}) ±", lambda gpu: figure(gpu.rate, half_width(gpu.rate_ci95))),
        "÷ slowest": lambda row: figure(row.ratio),
        **both("{}'s clock (MHz)", lambda gpu: figure(gpu.clock_mhz)),
        "degraded": lambda row: str(row.degraded) if row.degraded else ABSENT,
    }
    gpus: dict[str, Callable[[Standing], str]] = {
        "GPU": lambda row: row.uuid[:UUID_CHARACTERS],
        "trainings": lambda row: str(row.trainings),
        "least": lambda row: f"{row.low:.3f}",
        "median": lambda row: f"{row.median:.3f}",
        "largest": lambda row: f"{row.high:.3f}",
    }
    return Report(
        chapter="devices",
        name=found.name,
        title=f"{found.title}: devices",
        lead=found.lead,
        lines=(found.lead, found.ran_on),
        tables=(
            Table.without_empty_columns(found.trainings, trainings, title="Trainings"),
            Table.without_empty_columns(found.standings, gpus, title="GPUs"),
        ),
        legends=(
            (
                f"a training: one version of the programs and of what they ran in; {PLUS_MINUS}; of one GPU it knows of that GPU only; ÷ slowest has "
                "none, as its GPUs were picked by their rates; clock: mean of the SMs'; degraded: on so many of the GPUs"
            ),
            "least, median, largest of a GPU: its rate ÷ the median of the GPUs that ran the same training, over the trainings that it ran",
        ),
        runs=tuple(run for training in found.trainings for run in training.runs),
    )


def concurrent(summary: Summary, cases: Sequence[CaseFigures], *, name: str) -> Report:
    """Several trainings at once, compared with one after the other; `summary` is of the training alone, `name` is the matrix's."""
    sequential = next((case for case in cases if case.case == "sequential" and case.median_s), None)

    def comparable(case: CaseFigures) -> bool:
        """Whether a training processed as much as each of the sequential ones; in older records, trainings ran for a set duration."""
        if sequential is None or not case.samples:
            return False
        share = (case.samples / case.trainings) / (sequential.samples / sequential.trainings)
        return 1 / UNEQUAL <= share <= UNEQUAL

    def ratio(case: CaseFigures) -> str:
        if not (sequential and sequential.median_s and case.median_s and comparable(case)):
            return ABSENT
        return f"{case.median_s / sequential.median_s:.3f}"

    def time(case: CaseFigures) -> str:
        if not case.median_s:
            return ABSENT
        spread = f" ({min(case.total_s):.4g}–{max(case.total_s):.4g})" if len(case.total_s) > 1 else ""
        return f"{case.median_s:.4g}{spread}"

    columns: dict[str, Callable[[CaseFigures], str]] = {
        "case": lambda one: _CASES[one.case] + (", all on the same devices" if one.shared else ""),
        "trainings": lambda one: str(one.trainings),
        "devices": lambda one: str(one.devices),
        "repeats": lambda one: f"{len(one.total_s):,}",
        "time (s)": time,
        "samples/s": lambda one: f"{one.samples / one.median_s:.4g}" if one.median_s else ABSENT,
        "ratio": ratio,
    }
    return Report(
        chapter="comparisons",
        name=f"{name}-concurrent",
        title=f"{summary.title}, {max(case.trainings for case in cases)} trainings",
        lead="",
        lines=(
            summary.setting,
            f"{summary.machine} · {summary.image_reference} · engine {summary.engine} · {summary.date}",
        ),
        tables=(Table.without_empty_columns(cases, columns, title="Trainings"),),
        legends=(
            (
                "devices: of each training; time: of all of them, measured windows alone, the median of the repeats and from the smallest to the "
                "largest; at once: from the first one's first window to the last one's end; ratio: to the time of one after the other"
            ),
        ),
        notes=(
            *(f"{_CASES[case.case]}: {reason}" for case in cases for reason in case.reasons),
            *(
                f"{_CASES[case.case]}: no ratio, as a training processed other numbers of samples than one after the other"
                for case in cases
                if sequential and case.median_s and not comparable(case)
            ),
        ),
        csv=[
            {
                **fields(case, "case", "trainings", "devices"),
                "shared": int(case.shared),
                "repeat": repeat,
                "total_s": seconds,
                "samples": case.samples,
            }
            for case in cases
            for repeat, seconds in enumerate(case.total_s, start=1)
        ],
    )


_CASES: Final[Mapping[Case, str]] = {"one": "one alone", "sequential": "one after the other", "together": "at once"}


def _training_report(
    found: TrainingComparison,
    *,
    what: str,
    heading: str,
    names: Columns[Any],
    columns: Columns[Any],
    legend: str,
    **more: Any,
) -> Report:
    """The report of a training in several settings: columns `names` that identify a row, runs, rate, `columns` and validity; `more` are other fields."""
    every: Columns[Any] = {
        **names,
        "runs": lambda one: runs(one.row),
        f"{found.unit} ±": lambda one: rate(one.row),
        **columns,
        "validity": lambda one: one.row.status,
    }
    return Report(
        name=found.name,
        title=f"{found.title}: {what}",
        lines=(found.setting, found.ran_on),
        tables=(Table.without_empty_columns(found.rows, every, title=heading),),
        legends=(legend,),
        notes=found.notes,
        runs=tuple(dict.fromkeys(run for row in found.rows for run in row.runs)),
        **more,
    )


def _label(one: Compared) -> str:
    return one.label


def _ratio(one: Compared) -> str:
    return figure(one.ratio, half_width(one.ratio_ci95))


def _best(rows: Sequence[Compared]) -> Compared | None:
    return max((one for one in rows if one.ratio is not None), key=lambda one: one.ratio or 0.0, default=None)


def _ratios(rows: Sequence[Compared], base: str) -> str:
    return "; ".join(f"{one.label}: {_ratio(one)} of {base}" for one in rows if one.ratio is not None)


def _loss(found: Losses | None, own: Literal["distance", "shift"], most: Literal["spread", "shift_spread"]) -> str:
    if found is None:
        return ABSENT
    value, limit = getattr(found, own), getattr(found, most)
    return f"{figure(value)} of {figure(limit)}" + ("" if abs(value) <= limit else ", outside")


LEGEND_GPU = (
    f"batch: of one device; {PLUS_MINUS}; NVML: share of time "
    "in which any kernel ran; SM active, FP32, tensor: means over the measured windows by hardware counters of the sampler; compute: union "
    "of kernels ÷ elapsed without the profiler's overhead, of passes under a profiler; power: of all devices, energy ÷ time"
)
LEGEND_CPU = f"batch: of one device; {PLUS_MINUS}; CPUs: of the whole host, whoever used them; power: of its processors, energy ÷ time"


def sweep(found: Sweep) -> Report:
    """Runs and passes under a profiler that differ in batch and precision only."""
    drawn = sweep_figures(found)
    rates = [point for point in found.points if point.throughput is not None]
    best = max(rates, key=lambda point: point.throughput or 0.0, default=None)
    most = f"; most at batch {best.batch}, {best.precision}: {figure(best.throughput)} {found.unit}" if best else ""
    columns: dict[str, Callable[[Point], str]] = {
        "precision": lambda point: point.precision,
        "batch": lambda point: str(point.batch),
        "runs": lambda point: runs(point.row) if point.row else ABSENT,
        f"{found.unit} ±": lambda point: rate(point.row) if point.row else ABSENT,
        _utilisation(found): lambda point: fixed(point.utilisation_percent),
        "SM active (%)": lambda point: fixed(point.sm_active_percent),
        "FP32 (%)": lambda point: fixed(point.fp32_percent),
        "tensor (%)": lambda point: fixed(point.tensor_percent),
        "compute (%)": lambda point: fixed(point.compute_percent),
        "power (W)": lambda point: figure(point.power_w),
        f"{found.unit.removesuffix('/s')}/J": lambda point: figure(point.samples_per_joule),
        "MFU (%)": lambda point: figure(point.row.mfu_percent if point.row else None),
        "validity": lambda point: point.status or ABSENT,
    }
    return Report(
        chapter="sweeps",
        name=found.name,
        title=f"{found.title}: sweep over the batch",
        lead=f"{len(found.points)} points{most}",
        lines=(found.setting, found.ran_on),
        tables=(Table.without_empty_columns(found.points, columns, title="Sweep over the batch", words=("validity",)),),
        legends=(LEGEND_GPU if found.device == "gpu" else LEGEND_CPU,),
        notes=found.notes,
        figures=drawn,
        pictures={one.name: partial(picture.png, one, lines=(found.setting, found.ran_on)) for one in drawn},
        runs=tuple(dict.fromkeys(run for point in found.points for run in point.runs)),
    )


def sweep_figures(found: Sweep) -> tuple[Figure, ...]:
    """Quantities known for at least two batches at one precision: throughput, utilisation, and those of hardware counters and profilers."""
    on_gpus = found.device == "gpu"
    coarse = "NVML: share of the measured time in which any kernel ran" if on_gpus else "of the whole host"
    active = "mean over the measured windows, by hardware counters of the sampler"
    union = "union of kernels ÷ elapsed without the profiler's overhead, of passes under a profiler"
    every = (
        _batch_figure(found, "throughput", found.unit, "throughput"),
        _batch_figure(found, "utilisation", _utilisation(found), "utilisation_percent", coarse),
        _batch_figure(found, "sm-active", "SM active (%)", "sm_active_percent", active),
        _batch_figure(found, "compute", "GPU compute utilisation (%)", "compute_percent", union),
    )
    return tuple(one for one in every if max((len(series.x) for series in one.series), default=0) > 1)


def _batch_figure(found: Sweep, name: str, axis: str, field: str, *notes: str) -> Figure:
    """A field of the points, one curve per precision; `axis` names it with its unit."""
    precisions = list(dict.fromkeys(point.precision for point in found.points))
    value: Callable[[Point], float | None] = attrgetter(field)
    status: Callable[[Point], Status | None] = attrgetter("compute_status" if name == "compute" else "status")
    measures_rate = name == "throughput"
    curves = (
        [point for point in found.points if point.precision == precision and value(point) is not None]
        for precision in precisions
    )
    series = tuple(
        series_of(
            own,
            x=lambda point: float(point.batch),
            y=value,
            interval=lambda point: point.row.throughput_ci95 if point.row and measures_rate else None,
            degraded=lambda point: status(point) == "degraded",
            runs=lambda point: point.runs,
            # With several curves the labels would overlap.
            label=None if len(precisions) > 1 else lambda point: figure(value(point)),
            name=own[0].precision,
        )
        for own in curves
        if own
    )
    return Figure(
        name=f"{found.name}-{name}",
        title=f"{axis} against the batch, {found.title}",
        x="batch of a device",
        y=axis,
        log=True,
        percent=axis.endswith("(%)"),
        series=series,
        interval=error_bars(*series) if measures_rate else "",
        notes=notes,
    )


def _utilisation(found: Sweep) -> str:
    return "NVML utilisation (%)" if found.device == "gpu" else "CPUs (%)"
