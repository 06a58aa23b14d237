"""Who published something, what it ran on and what was run: the part of `results/published/<id>.yaml` before its figures."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator

from runner.core.frozen import Frozen

Precision = Literal["fp32", "tf32", "fp16", "bf16", "int8", "fp8", "fp8-tensorwise", "amp", "mixed"]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=120)]


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
