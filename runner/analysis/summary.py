"""What a scaling report is made from: one frozen summary a matrix, one row a scale, every figure with its unit and interval."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from runner.core.frozen import Frozen
from runner.core.measurement import AccuracyFigures, BatchUsed, EpochFigures, Interval, LatencyFigures, StepParts
from runner.core.record import RunRecord
from runner.core.telemetry import Telemetry
from runner.core.trial import devices_in_words

Status = Literal["valid", "degraded", "invalid", "failed"]


class Answers(Frozen):
    """What inference on one device came to, the medians of the repeats, and what its answers are worth."""

    latency: LatencyFigures | None  # of a batch that has the device to itself
    in_flight: int  # batches that were under way at once while throughput was measured
    batch: BatchUsed | None  # the smallest of the repeats
    accuracy: AccuracyFigures | None  # None where the samples have no labels


class Row(Frozen):
    """One scale of a matrix, over all repeats of it, each a process started anew: what figures are pooled from and intervals are over."""

    scale: int
    device: str  # "gpu" or "cpu worker"
    cores: int | None = None  # that a CPU worker has
    throughput: float | None = None  # of all devices, in `unit`
    throughput_ci95: Interval | None = None
    unit: str = "images/s"
    training_time_s: float | None = (
        None  # from the first iteration's start to the last one's end, median of the repeats
    )
    speedup: float | None = None  # to one device
    speedup_ci95: Interval | None = None
    efficiency: float | None = None
    efficiency_ci95: Interval | None = None
    withheld: str | None = None  # why there is no speedup though there is a baseline
    repeats: int
    parts: StepParts | None = None  # mean of the repeats
    mfu_percent: float | None = (
        None  # model FLOP/s over the devices' dense peak; None where that is more than 100 (`above_peak`)
    )
    above_peak: bool = False
    telemetry: Telemetry | None = None
    answers: Answers | None = None
    epochs: tuple[EpochFigures, ...] = ()  # each the median of the repeats
    status: Status
    reasons: tuple[str, ...] = ()
    records: tuple[RunRecord, ...] = Field(default=(), repr=False)  # of the runs whose figures may be used

    @model_validator(mode="after")
    def _unusable_rows_carry_no_figures(self) -> Row:
        rates = (self.throughput, self.speedup, self.efficiency, self.mfu_percent)
        figures = (*rates, self.training_time_s, self.parts, self.telemetry, self.answers, self.epochs or None)
        if not self.usable and any(figure is not None for figure in figures):
            raise ValueError(f"a row that is {self.status} may carry no figures")
        return self

    @property
    def usable(self) -> bool:
        """Whether the figures may be shown: valid, or degraded and said to be."""
        return self.status in ("valid", "degraded")

    @property
    def superlinear(self) -> bool:
        """Whether n devices were more than n times as fast as one."""
        return self.speedup is not None and self.speedup > self.scale

    @property
    def devices(self) -> str:
        """The scale in words: "1 GPU", "2 workers × 1 core"."""
        return devices_in_words("gpu" if self.device == "gpu" else "cpu", self.scale, cores=self.cores)

    @property
    def device_name(self) -> str:
        """One device as text for people: "GPU", "CPU worker"."""
        return self.device.replace("gpu", "GPU").replace("cpu", "CPU")


class Summary(Frozen):
    """A matrix of runs that differ in scale only, and what they ran on."""

    title: str
    rows: tuple[Row, ...]
    image_reference: str  # the locked requirements where no container was used
    engine: str
    engine_reason: str | None  # why this engine was taken, when it is not the first choice
    machine: str
    setting: str
    wires: str | None = (
        None  # what was between the nodes, and whether it was a real wire; None where there was one node
    )
    peak: str | None = None  # what utilisation is held against, at the smallest scale that has one
    notes: tuple[str, ...] = ()
    date: str  # of the first run (UTC), ISO 8601
    record_dirs: tuple[Path, ...]

    @property
    def rate_unit(self) -> str:
        """The unit of throughput, "images/s"; a matrix has one."""
        return " / ".join(sorted({row.unit for row in self.rows}))

    @property
    def ran_on(self) -> str:
        """Machine, image, engine and day in one line."""
        return f"{self.machine} · {self.image_reference} · engine {self.engine} · {self.date}"
