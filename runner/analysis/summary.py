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
    """What inference on one device came to: the time of a batch in seconds, the median of the repeats, and what its answers are worth.

    Attributes:
        latency: of a batch that has the device to itself; None where no repeat told.
        in_flight: batches that were under way at once while throughput was measured.
        batch: the one that ran; of repeats with several, the smallest.
        accuracy: None where the samples have no labels.
    """

    latency: LatencyFigures | None
    in_flight: int
    batch: BatchUsed | None
    accuracy: AccuracyFigures | None


class Row(Frozen):
    """One scale of a matrix, over all repeats of it.

    Attributes:
        device: what one of them is, "gpu" or "cpu worker".
        cores: that a CPU worker has; None of GPUs.
        throughput: global samples per second, in `unit`; None unless the row is usable.
        training_time_s: wall seconds from the first iteration's start to the last one's end, median of the repeats.
        speedup: throughput over that of one device; above `scale` it is shown, and flagged.
        withheld: why there is no speedup though there is a baseline; None where there is one.
        repeats: runs, each a process started anew, that the figures are pooled from and the intervals are over.
        parts: where the time of a step went, the mean of the repeats; None where no program told.
        mfu_percent: model FLOP/s at that throughput over the devices' dense peak; None where that is more than 100 (`above_peak`).
        telemetry: what devices and hosts did, all repeats together; None where nobody looked on.
        answers: of inference; None of a training.
        epochs: of a training that is watched to converge, each the median of the repeats.
        records: of the runs whose figures may be used.
    """

    scale: int
    device: str
    cores: int | None = None
    throughput: float | None = None
    throughput_ci95: Interval | None = None
    unit: str = "images/s"
    training_time_s: float | None = None
    speedup: float | None = None
    speedup_ci95: Interval | None = None
    efficiency: float | None = None
    efficiency_ci95: Interval | None = None
    withheld: str | None = None
    repeats: int
    parts: StepParts | None = None
    mfu_percent: float | None = None
    above_peak: bool = False
    telemetry: Telemetry | None = None
    answers: Answers | None = None
    epochs: tuple[EpochFigures, ...] = ()
    status: Status
    reasons: tuple[str, ...] = ()
    records: tuple[RunRecord, ...] = Field(default=(), repr=False)

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
    """A matrix of runs that differ in scale only, and what they ran on.

    Attributes:
        engine_reason: why this engine was taken, when it is not the first choice.
        machine: one line that names the processor or the GPUs.
        image_reference: the image, or the locked requirements where no container was used.
        wires: what was between the nodes, and whether it was a real wire; None where there was one node.
        peak: what utilisation is held against, in words, at the smallest scale that has one; None where none is known.
        date: day of the first run (UTC), ISO 8601.
    """

    title: str
    rows: tuple[Row, ...]
    image_reference: str
    engine: str
    engine_reason: str | None
    machine: str
    setting: str
    wires: str | None = None
    peak: str | None = None
    notes: tuple[str, ...] = ()
    date: str
    record_dirs: tuple[Path, ...]

    @property
    def rate_unit(self) -> str:
        """The unit of throughput, "images/s"; a matrix has one."""
        return " / ".join(sorted({row.unit for row in self.rows}))

    @property
    def ran_on(self) -> str:
        """Machine, image, engine and day in one line."""
        return f"{self.machine} · {self.image_reference} · engine {self.engine} · {self.date}"
