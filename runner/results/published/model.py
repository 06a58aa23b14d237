"""The shape of `results/published/<id>.yaml`: one source, what it ran on, what it printed, what it concluded.

Figures stand in tables whose rows share conditions; `Published.figures` has them one by one.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, field_validator

from runner.core.frozen import Frozen
from runner.results.published.findings import METRICS, Finding, Metric, Selector, Unit

Precision = Literal["fp32", "tf32", "fp16", "bf16", "int8", "fp8", "fp8-tensorwise", "amp", "mixed"]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=120)]
Check = Literal["ratio", "cut", "sum", "per device", "twice", "range", "batch", "finding"]
"""Rules that find contradictions: `ratio`, `cut`: a ratio, against the throughputs that it is of; `sum`: both passes, against each; `per
device`: a device, against all; `twice`: printed two times; `range`: a mean outside its extremes; `batch`: a global batch, against the
devices' own; `finding`: a stated ratio, against its figures."""
Kind = Literal["reported", "logged", "derived", "spec", "setting", "quoted"]


class Source(Frozen):
    """The document.

    Attributes:
        date: year, or year and month, as far as it is printed; None where it is not.
        kind: what sort of document, e.g. `repository README`.
        url, repository, path, commit, arxiv: where it can be read; none for a document that was handed around.
        read: `text` of the document, `logs` beside it, its `abstract` alone, or `uncertain`: the file says too little.
    """

    title: str
    authors: tuple[str, ...]
    supervisors: tuple[str, ...] = ()
    organisation: str | None = None
    date: str | None = None
    kind: str
    url: tuple[str, ...] = ()
    repository: str | None = None
    path: str | None = None
    commit: str | None = None
    arxiv: str | None = None
    read: Literal["text", "logs", "abstract", "uncertain"] = "text"

    @property
    def year(self) -> int | None:
        """The year of the document, the first one where it grew over several; None where it prints none."""
        return int(self.date[:4]) if self.date else None

    @field_validator("date")
    @classmethod
    def _begins_with_a_year(cls, date: str | None) -> str | None:
        if date is not None and not date[:4].isdigit():
            raise ValueError("a date begins with its year; write 2016-10 or 2016")
        return date


class Gpu(Frozen):
    """A kind of GPU that figures name by `id`; the source's own specification of it, where it prints one."""

    id: Identifier
    model: str
    architecture: str | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    cores: int | None = None
    tensor_cores: int | None = None
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_gb: float | None = None
    memory_type: str | None = None
    memory_bandwidth_gb_s: float | None = None
    cache: str | None = None
    fp64_tflops: float | None = None
    fp32_tflops: float | None = None
    tdp_w: float | None = None
    bus: str | None = None
    note: str | None = None


class System(Frozen):
    """A machine, or a set of them, that figures name by `id`; those of one `family` differ in the number of devices alone."""

    id: Identifier
    name: str | None = None
    family: str | None = None
    cpu: str | None = None
    software: str | None = None
    note: str | None = None


class Wire(Frozen):
    """A network or bus that figures name by `id`."""

    id: Identifier
    name: str
    gbit_s: float | None = None
    gbyte_s: float | None = None
    switch: str | None = None


class Hardware(Frozen):
    """What it ran on; `where` it is printed."""

    gpus: tuple[Gpu, ...] = ()
    systems: tuple[System, ...] = ()
    wires: tuple[Wire, ...] = ()
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpu: str | None = None
    memory: str | None = None
    disk: str | None = None
    note: str | None = None
    where: str | None = None


class Software(Frozen):
    """One piece of software; a version that the source leaves out is None."""

    name: str
    version: str | None = None


class Point(Frozen):
    """One run of a matrix whose settings change together."""

    gpus: int
    nodes: PositiveInt | None = None
    batch: PositiveInt
    iterations: PositiveInt | None = None


class Runs(Frozen):
    """One block of the run matrix: every combination of what it lists, or its `points`.

    Attributes:
        batches: as printed, where it is not said whether a device's or all devices' together.
        image_sizes: height and width in pixels.
        note: what the source leaves out, or says in words alone.
    """

    framework: str | None = None
    build: str | None = None
    version: str | None = None
    models: tuple[str, ...] = ()
    mode: str | None = None
    gpu: tuple[Identifier, ...] = ()
    device: str | None = None
    gpus: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    batches: tuple[PositiveInt, ...] = ()
    batches_per_gpu: tuple[PositiveInt, ...] = ()
    global_batches: tuple[PositiveInt, ...] = ()
    image_sizes: tuple[PositiveInt, ...] = ()
    precision: Precision | None = None
    data: str | None = None
    epochs: int | None = None
    iterations: int | None = None
    learning_rate: float | None = None
    points: tuple[Point, ...] = ()
    cases: tuple[str, ...] = ()
    note: str | None = None


class Conditions(Frozen):
    """Under what a figure was measured; what is None, the source does not say.

    Attributes:
        framework, build, version: e.g. `caffe` in NVIDIA's build `nv`, release `0.15.13`.
        model, variant: e.g. `resnet50` in its variant `v1.5`; the suite's own names where it has the network.
        gpu, system, network: ids under `hardware`.
        gpus: of all nodes together; 0 on a CPU.
        batch_per_gpu, global_batch, batch: samples of one device, of all, or one of the two, the source does not say which.
        run: tells repetitions under the same conditions apart.
        versus: what of these is different in the run that a ratio is against.
    """

    framework: str | None = None
    build: str | None = None
    version: str | None = None
    container: str | None = None
    strategy: str | None = None
    technique: str | None = None
    xla: bool | None = None
    model: str | None = None
    variant: str | None = None
    mode: str | None = None
    gpu: Identifier | None = None
    device: str | None = None
    gpu_index: int | None = None
    gpus: int | None = None
    nodes: PositiveInt | None = None
    system: Identifier | None = None
    submitter: str | None = None
    network: Identifier | None = None
    batch_per_gpu: PositiveInt | None = None
    global_batch: PositiveInt | None = None
    batch: PositiveInt | None = None
    image_size: PositiveInt | None = None
    sequence_length: PositiveInt | None = None
    precision: Precision | None = None
    optimizer: str | None = None
    learning_rate: float | None = None
    data: str | None = None
    dataset: str | None = None
    epochs: int | None = None
    memory: str | None = None
    theory_tflops: float | None = None
    run: str | None = None
    versus: Selector | None = None
    note: str | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """The conditions that the source gives, by name."""
        return {name: value for name in Conditions.model_fields if (value := getattr(self, name)) is not None}


class Row(Conditions):
    """One printed figure.

    Attributes:
        value: as printed; its last digit is what it is held to, so `"13.50"` with quotes where a zero ends it. A list has the
            values of single runs.
        approx: the source says so (`about`, `almost`, `up to`).
        bound: the source says `more than` (>) or `less than` (<) instead.
        where: where in the document, if not where the rest of the table is.
    """

    id: Identifier
    value: Decimal | tuple[Decimal, ...]
    approx: bool = False
    bound: Literal[">", "<"] | None = None
    where: str | None = None


class Table(Frozen):
    """Figures of one quantity in one unit, with the conditions that all of them share.

    Attributes:
        kind: `reported` as printed, `logged` (of logged values: the median, unless `where` says otherwise), `derived` by us from
            other figures of the source, `spec` of a device, `setting` of a run, or `quoted` from somebody else.
        unit_printed: false where the unit goes without saying in the source.
    """

    metric: Metric
    unit: Unit
    unit_printed: bool = True
    kind: Kind = "reported"
    where: str | None = None
    conditions: Conditions = Conditions()
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]

    @field_validator("unit")
    @classmethod
    def _fits(cls, unit: Unit, info: Any) -> Unit:
        metric = info.data.get("metric")
        if metric in METRICS and unit not in METRICS[metric]:
            raise ValueError(f"{metric} is given in {', '.join(METRICS[metric])}")
        return unit

    @field_validator("rows")
    @classmethod
    def _adds_to_its_table(cls, rows: tuple[Row, ...], info: Any) -> tuple[Row, ...]:
        shared = info.data.get("conditions", Conditions()).stated
        for row in rows:
            if twice := sorted(set(shared) & set(row.stated)):
                raise ValueError(f"{row.id} gives {', '.join(twice)} once more than its table; keep one of them")
            if row.where is None and info.data.get("where") is None:
                raise ValueError(f"{row.id} does not say where it is printed; add `where` to it or to its table")
        return rows


class Figure(Frozen):
    """A row of a table on its own, with all its conditions."""

    id: Identifier
    metric: str
    unit: Unit
    kind: Kind
    value: Decimal | tuple[Decimal, ...]
    approx: bool
    bound: Literal[">", "<"] | None
    where: str
    conditions: Conditions


class KnownContradiction(Frozen):
    """A contradiction in the source itself, not in its copy here: `derive.Contradiction` finds it again in each of its `figures`."""

    check: Check
    figures: Annotated[tuple[Identifier, ...], Field(min_length=1)]
    why: str | None = None


class Published(Frozen):
    """Everything of one source.

    Attributes:
        id: the file's name.
        method: how the source measured, by what it measured.
        contradictions: those of the source, which so are known not to be slips of the copy.
        notes: what a reader of the figures has to know; what the source leaves out.
    """

    id: Identifier
    source: Source
    hardware: Hardware = Hardware()
    software: tuple[Software, ...] = ()
    runs: tuple[Runs, ...] = ()
    method: dict[str, str] = Field(default_factory=dict)
    tables: tuple[Table, ...]
    findings: tuple[Finding, ...] = ()
    contradictions: tuple[KnownContradiction, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """All figures in the order of the file, each with all its conditions."""
        return tuple(
            Figure(
                id=row.id,
                metric=table.metric,
                unit=table.unit,
                kind=table.kind,
                value=row.value,
                approx=row.approx,
                bound=row.bound,
                where=row.where or table.where or "",
                conditions=Conditions.model_validate({**table.conditions.stated, **row.stated}),
            )
            for table in self.tables
            for row in table.rows
        )
