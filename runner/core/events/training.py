"""What a training program says of itself: its world, its steps, its losses, its input."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from runner.core.events.base import EventBase


class FlopPerSample(BaseModel):
    """Floating-point operations of one sample: twice the multiply-adds of convolutions and dense layers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    forward: float
    backward: float


class RunStart(EventBase):
    """The program knows its world and its model; `gradient_bytes` is what a device hands over to be exchanged in one step.

    `flop_per_sample` is of one unit of the throughput where windows carry units.
    """

    event: Literal["run_start"]
    world_size: int
    batch_per_device: int
    global_batch: int
    iterations: int
    warmup: int
    image_shape: tuple[int, ...] | None = None
    num_classes: int | None = None
    parameters: int
    seed: int
    gradient_bytes: int | None = None
    flop_per_sample: FlopPerSample | None = None


class Env(EventBase):
    """Software and devices as the program sees them; null where absent."""

    event: Literal["env"]
    python: str
    framework: str
    framework_version: str
    device: str
    device_names: tuple[str, ...] = ()
    threads: int | None = None
    cpus: tuple[int, ...] | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None


class Phase(EventBase):
    """A named part of the program's life and its seconds."""

    event: Literal["phase"]
    name: str
    seconds: float


class CpuPeak(EventBase):
    """The fastest product of two square matrices on the cores of this rank, all ranks at once; `library` is what computed it, and in what."""

    event: Literal["peak"]
    precision: str
    cores: int
    flop_per_s: float
    library: str


class FirstStep(EventBase):
    """The first iteration's result is on the device."""

    event: Literal["first_step"]


class Compiled(EventBase):
    """Graphs of the network that its compiler made anew, and those that an earlier run had left."""

    event: Literal["compiled"]
    fresh: int
    kept: int


class Pace(EventBase):
    """How many iterations will be measured, and how many a window has, where the length of a run follows the rate of its warm-up."""

    event: Literal["pace"]
    iterations: int
    window: int


class WarmupEnd(EventBase):
    """The measured iterations begin."""

    event: Literal["warmup_end"]
    iterations: int


PAUSE_S: Final = 1e-6
"""What lies between two windows by rounding alone is less: programs take the end of one for the start of the next."""


class Window(EventBase):
    """A stretch of measured iterations: this rank's own samples and wall seconds, by its device's clock where that notes its time.

    It starts where the one before ended, but after a pause, such as a validation between two epochs.

    `input_seconds` of them the loop waited for its next batch; None where the program can't tell. `units` is the amount of what
    throughput counts where that is not the sample, such as seconds of audio.
    """

    event: Literal["window"]
    index: int
    start: float
    iterations: int
    samples: int
    seconds: float
    step_seconds: tuple[float, ...] | None = None
    input_seconds: float | None = None
    units: float | None = None


class Steps(EventBase):
    """Seconds of some steps of the window of this rank that follows, in order: of a window with more than fit a line."""

    event: Literal["steps"]
    window: int
    seconds: tuple[float, ...]


class Loss(EventBase):
    """Losses of consecutive iterations, the first numbered `first_iteration`; null where a loss is not finite."""

    event: Literal["loss"]
    first_iteration: int
    values: tuple[float | None, ...]


class Eval(EventBase):
    """Losses of this process' devices on the batch that all ranks share, after `iteration` iterations; null where not finite."""

    event: Literal["eval"]
    iteration: int
    losses: tuple[float | None, ...]


class BatchUsed(EventBase):
    """The batch that inference really ran with, and why it is not the one that was asked for."""

    event: Literal["batch"]
    asked: int
    used: int
    reason: str | None = None


class Data(EventBase):
    """What the input pipeline read, and what it could not."""

    event: Literal["data"]
    decoded: int | None = None
    skipped: tuple[str, ...] = ()


class InputAlone(EventBase):
    """What the input pipeline of a rank delivered in some seconds in which nobody trained on it."""

    event: Literal["input_alone"]
    batches: int
    samples: int
    seconds: float


class Usage(EventBase):
    """What the control group of a process has used, at the start or the stop of the measured windows; null where it has none of its own."""

    event: Literal["usage"]
    where: Literal["start", "stop"]
    cpu_s: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None


class RunStop(EventBase):
    """The rank has done all its iterations; `parameter_norm` is null where it is not finite, or where nobody can read the weights."""

    event: Literal["run_stop"]
    iterations: int
    samples: int
    parameter_norm: float | None = None
