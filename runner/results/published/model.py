"""Types of `results/published/<id>.yaml`: one source, its hardware, its figures and its findings.

Figures are in tables whose rows share conditions; `Published.figures` has them one by one.
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
"""Checks that find contradictions: `ratio`, `cut`: a ratio differs from that of its throughputs (`cut`: it was truncated, not rounded);
`sum`: forward and backward do not add up; `per device`: a device's throughput is not its share; `twice`: two printed values differ;
`range`: a mean is outside its extremes; `batch`: a global batch is not the sum; `finding`: a stated ratio differs from its figures."""
Kind = Literal["reported", "logged", "derived", "spec", "setting", "quoted"]


class Source(Frozen):
    """The document.

    Attributes:
        date: year, or year and month, as printed; None if it is not printed.
        kind: kind of document, e.g. `repository README`.
        url, repository, path, commit, arxiv: where it is available; none for an unpublished document.
        read: what was read: its `text`, the `logs` published with it, only its `abstract`, or `uncertain` if the file says too little.
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
        """The year of the document, the first if it grew over several years; None if it prints none."""
        return int(self.date[:4]) if self.date else None

    @field_validator("date")
    @classmethod
    def _begins_with_a_year(cls, date: str | None) -> str | None:
        if date is not None and not date[:4].isdigit():
            raise ValueError("a date begins with its year; write 2016-10 or 2016")
        return date


class Gpu(Frozen):
    """A GPU model that figures name by `id`, with the source's own specification of it, if printed."""

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
    """A machine or cluster that figures name by `id`; systems of one `family` differ only in the number of devices."""

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
    """The source's hardware; `where` is the place where it is printed."""

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
    """One piece of software; `version` is None if the source omits it."""

    name: str
    version: str | None = None


class Point(Frozen):
    """One run of a matrix whose settings change together."""

    gpus: int
    nodes: PositiveInt | None = None
    batch: PositiveInt
    iterations: PositiveInt | None = None


class Runs(Frozen):
    """One block of the run matrix: every combination of its lists, or its `points`.

    Attributes:
        batches: as printed, if it is unclear whether they are of one device or of all.
        image_sizes: height and width in pixels.
        note: what the source omits, or states only in prose.
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
    """Conditions of a figure; None if the source does not state one.

    Attributes:
        framework, build, version: e.g. `caffe` in NVIDIA's build `nv`, release `0.15.13`.
        model, variant: e.g. `resnet50` in its variant `v1.5`; the suite's own name if it has the network.
        gpu, system, network: ids under `hardware`.
        gpus: total of all nodes; 0 on a CPU.
        batch_per_gpu, global_batch, batch: samples of one device, of all devices, or of either if the source does not say which.
        run: distinguishes repeats under the same conditions.
        versus: conditions that differ in the run that a ratio refers to.
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
        """The conditions that the source states, by name."""
        return {name: value for name in Conditions.model_fields if (value := getattr(self, name)) is not None}


class Row(Conditions):
    """One printed figure.

    Attributes:
        value: as printed; its last digit sets its precision, so a final zero needs quotes: `"13.50"`. A list has the values of single
            runs.
        approx: whether the source calls it approximate (`about`, `almost`, `up to`).
        bound: `>` if the source says `more than`, `<` if it says `less than`.
        where: place in the document, if it differs from the table's.
    """

    id: Identifier
    value: Decimal | tuple[Decimal, ...]
    approx: bool = False
    bound: Literal[">", "<"] | None = None
    where: str | None = None


class Table(Frozen):
    """Figures of one quantity in one unit, with the conditions that all of them share.

    Attributes:
        kind: `reported` as printed, `logged` (the median of logged values, unless `where` says otherwise), `derived` by us from other
            figures of the source, `spec` of a device, `setting` of a run, or `quoted` from another source.
        unit_printed: false if the source leaves the unit implicit.
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
                raise ValueError(f"{row.id} repeats {', '.join(twice)} of its table; keep one of them")
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
    """A contradiction in the source itself, not a copying error: `derive.contradictions` finds it in each of its `figures`."""

    check: Check
    figures: Annotated[tuple[Identifier, ...], Field(min_length=1)]
    why: str | None = None


class Published(Frozen):
    """Everything of one source.

    Attributes:
        id: the file's name.
        method: how the source measured, by quantity.
        contradictions: contradictions in the source itself, declared so that they are not taken for copying errors.
        notes: what a reader of the figures must know, and what the source omits.
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
