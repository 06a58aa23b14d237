"""The figures of a run, as its record keeps them. Seconds are wall time; None is a figure that can't be had."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from runner.flop.model import FlopFigures
from runner.frozen import Frozen

StepMethod = Literal["step", "window-mean", "latency"]
FEWEST_RUNS: Final = 3
"""Runs from which an interval is taken; what rests on fewer shows their number instead."""


class Interval(Frozen):
    """A 95 % confidence interval over runs, each a process started anew, in the unit of the figure that it belongs to."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance between the ends: the figure after `±`."""
        return (self.high - self.low) / 2

    def scaled(self, factor: float) -> Interval:
        """The interval of the figure times a positive factor."""
        return Interval(low=self.low * factor, high=self.high * factor)


class RawWindow(Frozen):
    """One window of one rank as the program wrote it.

    `start` is in seconds of that rank's monotonic clock; `units` is the amount of what throughput counts where that is not the sample.
    """

    rank: int
    index: int
    start: float
    samples: int
    seconds: float
    units: float | None = None


class Throughput(Frozen):
    """Global samples, or units, ÷ synchronized wall seconds of one run.

    Attributes:
        ci95: null, as an interval is over runs and a record is of one; older records hold one over windows, which nothing reads.
        unit: what is counted a second, e.g. `images/s`.
    """

    value: float
    ci95: Interval | None
    unit: str


class StepTime(Frozen):
    """Percentiles of the step time in seconds, and how steps were timed.

    With `latency` a step is a batch of inference, from its input to its predictions on the host.
    """

    p50: float
    p90: float
    p99: float
    method: StepMethod


class Steadiness(Frozen):
    """Where the steady state begins.

    Attributes:
        first_window: index of the first window that counts.
        steady: False when the rate never settled; then all windows count.
        drift: relative difference between the mean rates of the later and the earlier half of the counted windows.
    """

    first_window: int
    steady: bool
    drift: float


class Evaluation(Frozen):
    """Losses of one process' devices on the batch that all ranks share, after `iteration` iterations; None where not finite."""

    iteration: int
    losses: tuple[float | None, ...]


class Used(Frozen):
    """What one container used: CPU seconds within the measured windows, and memory in MiB at their end and at most in its life.

    None where the kernel does not tell.
    """

    cpu_s: float | None
    memory_mib: float | None
    memory_peak_mib: float | None


class CompiledGraphs(Frozen):
    """Graphs that compilers made anew, and those that an earlier run had left."""

    fresh: int
    kept: int


class Exchange(Frozen):
    """One size of the probe: an exchange of `size_bytes` among all devices of the job, by itself.

    Attributes:
        operation: `all_reduce` or `push_pull` (`workloads/probe.py`).
        seconds: median of the timed exchanges, on rank 0.
        algbw_gb_s: bytes ÷ seconds, in 1e9 bytes a second.
        busbw_gb_s: what had to leave each device in that time.
        wrong: elements of the result that were not the sum.
    """

    operation: str
    size_bytes: int
    seconds: float
    algbw_gb_s: float
    busbw_gb_s: float
    wrong: int | None


class StepParts(Frozen):
    """A mean step of the steady windows, in seconds; None where a program did not tell. `step` = input + compute_slowest + rest.

    Attributes:
        step_s: wall time of a step.
        input_waited_s: how long the loop waited for its next batch, the longest of the ranks in each window.
        input_s: the part of it that compute did not hide: where devices work on while the loop waits, waiting costs nothing.
        compute_s: a forward and backward pass without any exchange, mean over ranks.
        compute_slowest_s: the same of the slowest rank, for which all others wait.
        stragglers_s: slowest − mean; None with one rank.
        rest_s: what is left: the exchange that compute did not hide, and the update of the weights. On one device it is the update
            alone, so that the difference to that run is the exchange. Negative where the passes took longer than those of the job.
        exchange_alone_s: what the probe says of an exchange of all gradients that nothing hides, in a single message.
    """

    step_s: float
    input_waited_s: float | None
    input_s: float | None
    compute_s: float | None
    compute_slowest_s: float | None
    stragglers_s: float | None
    rest_s: float | None
    exchange_alone_s: float | None


class EpochFigures(Frozen):
    """One epoch: losses in nats, the share of validation samples that were classified right, and the time of its training.

    Attributes:
        train_loss: mean of the ranks' mean losses over the epoch; None where one is not finite.
        val_loss: mean loss of a validation sample; None where it is not finite.
        seconds: of training, of the slowest rank; validation is in no figure of time.
        elapsed_s: of training, from the first epoch on.
    """

    epoch: int
    iterations: int
    train_loss: float | None
    val_loss: float | None
    accuracy_percent: float
    validation_samples: int
    seconds: float
    elapsed_s: float


class AccuracyFigures(Frozen):
    """Accuracy of predictions at a precision, and of the same network in `reference` precision on the same samples.

    Attributes:
        agree_percent: share of samples for which both predict the same class.
        fit_iterations: for how many iterations the network was trained before; without any, accuracy is chance.
    """

    precision: str
    samples: int
    percent: float
    reference: str
    reference_percent: float
    agree_percent: float
    fit_iterations: int

    @property
    def difference(self) -> float:
        """What the precision costs, in percentage points; negative where it loses."""
        return self.percent - self.reference_percent


class BatchUsed(Frozen):
    """The batch that inference ran with; `reason` says why it is not the one asked for."""

    asked: int
    used: int
    reason: str | None


class Measurement(Frozen):
    """All figures of one run, from its events; empty or None where the program tells nothing of them.

    Attributes:
        gradient_bytes: what a device hands over to be exchanged in one step.
        probe: exchanges that were timed before the first step.
        step_parts: where the time of a step went.
        flop: what the arithmetic of the model came to, also from what its devices are.
        epochs: how a training that is watched converged.
        accuracy, batch: what inference came to, and ran with.
        input_alone_per_s: samples a second that the input pipelines of all ranks deliver while nobody trains.
        compiled: how many graphs of the network compilers made, on all ranks.
    """

    throughput: Throughput | None
    training_time_s: float | None
    first_step_s: float | None
    step_time_s: StepTime | None
    samples: int
    iterations: int
    steady: Steadiness | None
    windows: tuple[RawWindow, ...]
    losses: dict[str, tuple[float | None, ...]]
    evaluations: dict[str, tuple[Evaluation, ...]] = Field(default={})
    parameter_norms: dict[str, float | None]
    parameters: int | None
    images_decoded: int | None
    images_skipped: tuple[str, ...]
    gradient_bytes: int | None = None
    probe: tuple[Exchange, ...] = ()
    step_parts: StepParts | None = None
    used: dict[str, Used] = Field(default={})
    flop: FlopFigures | None = None
    epochs: tuple[EpochFigures, ...] = ()
    accuracy: AccuracyFigures | None = None
    batch: BatchUsed | None = None
    input_alone_per_s: float | None = None
    compiled: CompiledGraphs | None = None
