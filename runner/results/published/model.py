"""The shape of `results/published/<id>.yaml`: one source, what it ran on, what it printed, what it concluded.

Figures stand in tables, as they do in print: what all rows share is said once, and each row is one line. `Published.figures` has
them one by one, with all their conditions.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, field_validator

from runner.core.frozen import Frozen
from runner.results.published.findings import Finding
from runner.results.published.selector import Selector
from runner.results.published.source import Hardware, Identifier, Precision, Runs, Software, Source
from runner.results.published.units import METRICS, Unit

Kind = Literal["reported", "logged", "derived", "spec", "setting", "quoted"]


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

    metric: str
    unit: Unit
    unit_printed: bool = True
    kind: Kind = "reported"
    where: str | None = None
    conditions: Conditions = Conditions()
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]

    @field_validator("metric")
    @classmethod
    def _is_known(cls, metric: str) -> str:
        if metric not in METRICS:
            raise ValueError(f"no such metric; known: {', '.join(sorted(METRICS))}")
        return metric

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
    """One figure on its own, with all its conditions."""

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

    check: Literal["ratio", "cut", "sum", "per device", "twice", "range", "batch", "finding"]
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
