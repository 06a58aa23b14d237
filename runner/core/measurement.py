"""The figures of a run, as its record keeps them. Seconds are wall time; None is a figure that can't be had."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, model_validator

from runner.core.frozen import Frozen

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
    `iterations` and `first_step_s`, the time of the first of them, tell what closing a window costs; None where a program can't time a step.
    """

    rank: int
    index: int
    start: float
    samples: int
    seconds: float
    units: float | None = None
    iterations: int | None = None
    first_step_s: float | None = None


class Throughput(Frozen):
    """Global samples, or units, ÷ synchronized wall seconds of one run, in `unit` such as `images/s`.

    `ci95` is null, as an interval is over runs and a record is of one; older records hold one over windows, which nothing reads.
    """

    value: float
    ci95: Interval | None
    unit: str


class StepTime(Frozen):
    """Percentiles of the step time in seconds, and how steps were timed.

    With `latency` a step is a batch of inference by itself, from its input to its predictions on the host; where several are under way at
    once it is a `step`, from the answer to one to that to the next.
    """

    p50: float
    p90: float
    p99: float
    method: StepMethod


class Steadiness(Frozen):
    """Where the steady state begins, and what that leaves out: throughput × `kept_s` = `kept`, always.

    Attributes:
        first_window: index of the first window that counts.
        steady: False when the rate never settled; then all windows count.
        drift: relative difference between the mean rates of the later and the earlier half of the counted windows.
        left_out_s: seconds of the windows before it: a transient.
        kept_s: seconds of the windows that count.
        kept: what was processed in them, in the unit of the throughput.
    """

    first_window: int
    steady: bool
    drift: float
    left_out_s: float = 0.0
    kept_s: float | None = None
    kept: float | None = None


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
    """One size of the probe: an exchange of `size_bytes` among all devices of the job, by itself; rates in 1e9 bytes a second."""

    operation: str  # `all_reduce` or `push_pull` (`workloads/probe.py`); a collective's `all_gather`, ... (`workloads/collectives.py`)
    size_bytes: int
    seconds: float  # median of the timed exchanges, on rank 0
    algbw_gb_s: float  # bytes ÷ seconds
    busbw_gb_s: float  # what had to leave each device in that time
    wrong: int | None  # elements of the result that were not what they had to be; of a collective on the worst rank


class Backward(Frozen):
    """One forward and backward pass on one device, in seconds: what an exchange that overlaps with it has to wait for.

    `gradients` are (bytes to be exchanged, seconds since the backward pass began at which they are there), in their order.
    """

    forward_s: float
    backward_s: float
    gradients: tuple[tuple[int, float], ...]


class StepParts(Frozen):
    """A mean step of the windows that count, in seconds: `step_s` = input + compute + stragglers + communication, none of them negative.

    Attributes:
        step_s: wall time of a step.
        input_waited_s: how long the loop waited for its next batch, the longest of the ranks in each window; None where it does not tell.
        input_s: the part of it that compute did not hide.
        compute_s: on one device all but the input; on several a forward and backward pass without any exchange, mean over ranks.
        stragglers_s: what the slowest rank takes longer for that, and all others wait; None on one device.
        communication_s: the exchange that compute did not hide, and the update of the weights; None on one device, whose update is compute.
        exchange_alone_s: what the probe says of an exchange of all gradients by itself, in a single message; no part of the sum.
        inseparable: why input, compute, stragglers and communication are None; None where they can be told apart.
    """

    step_s: float
    input_waited_s: float | None = None
    input_s: float | None = None
    compute_s: float | None = None
    stragglers_s: float | None = None
    communication_s: float | None = None
    exchange_alone_s: float | None = None
    inseparable: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_older(cls, fields: Any) -> Any:
        """Records used to have parts that could be negative: what they were made of is in the raw files."""
        if not isinstance(fields, dict) or "rest_s" not in fields:
            return fields
        kept = {name: fields.get(name) for name in ("step_s", "input_waited_s", "exchange_alone_s")}
        return kept | {"inseparable": "an older version told them apart wrongly; `dlscale regrade` gives them anew"}


class EpochFigures(Frozen):
    """One epoch: losses in nats, the share of validation samples that were classified right, and the time of its training.

    Attributes:
        train_loss: mean of the ranks' mean losses over the epoch; None where one is not finite.
        val_loss: mean loss of a validation sample; None where it is not finite.
        seconds: of training, of the slowest rank; validation is in no figure of time.
        elapsed_s: the same, from the first epoch on.
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


class Percentiles(Frozen):
    """Percentiles in seconds over `repeats`."""

    p50: float
    p90: float
    p99: float
    repeats: int


class LatencyFigures(Frozen):
    """How long a batch of inference takes that has the device to itself.

    Attributes:
        with_transfer: from its samples in the host's memory to its predictions there.
        without_transfer: from its samples in the device's memory until the device is done; None where nothing is transferred, as on CPUs,
            and where the program can't tell.
    """

    with_transfer: Percentiles
    without_transfer: Percentiles | None


class GenerationFigures(Frozen):
    """How fast a language model answers a batch of prompts that has the device to itself.

    Attributes:
        first_token: from the prompts in the host's memory to the first token of each (time to first token).
        step: from one token of each to the next (decode latency); None where one token was generated.
        prefill_tokens_per_s: tokens of the prompts ÷ time to first token.
        decode_tokens_per_s: tokens after the first ÷ their time.
    """

    batch: int
    prompt_tokens: int
    new_tokens: int
    first_token: Percentiles
    step: Percentiles | None
    prefill_tokens_per_s: float
    decode_tokens_per_s: float | None


class Peak(Frozen):
    """What all devices of a run could do together at its precision: dense, in 1e12 FLOP/s, and 1e9 bytes/s of memory where that is known."""

    tflops: float
    bandwidth_gb_s: float | None
    source: str


def utilisation_percent(achieved_tflops: float | None, peak_tflops: float | None) -> tuple[float | None, bool]:
    """Achieved ÷ peak in percent, and whether it was more than 100 and is None for that."""
    if achieved_tflops is None or not peak_tflops:
        return None, False
    above = achieved_tflops > peak_tflops
    return None if above else 100 * achieved_tflops / peak_tflops, above


class FlopFigures(Frozen):
    """Model FLOP of one run, and where it stands under the roofline of its devices.

    The roofline: S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model for multicore
    architectures", CACM 52(4), 2009. Model FLOP utilisation: A. Chowdhery et al., "PaLM", https://arxiv.org/abs/2204.02311, appendix B.

    Attributes:
        forward_flop_per_sample, backward_flop_per_sample: by `method`.
        achieved_tflops: both times the throughput, of all devices; None without a throughput.
        peak_tflops: dense, of all devices at the precision of the run; None where it is not known.
        peak_source: what the peak is made from, or `unavailable: <reason>`.
        mfu_percent: achieved ÷ peak; None without both, and where it would be more than 100.
        above_peak: whether it would be: the peak or the count is wrong for this run, and says nothing of it.
        bandwidth_gb_s: peak of the devices' memory, of all of them, in 1e9 bytes a second.
        dram_bytes_per_sample: what really went between the devices and their memory.
        intensity_flop_per_byte: achieved FLOP for each of those bytes.
        ridge_flop_per_byte: peak FLOP/s ÷ peak bandwidth: below it memory bounds what can be achieved, above it arithmetic.
        roofline: which of the two.
        roofline_source: where the bytes were counted, or `unavailable: <reason>`.
    """

    forward_flop_per_sample: float
    backward_flop_per_sample: float
    method: str
    achieved_tflops: float | None
    peak_tflops: float | None
    peak_source: str
    mfu_percent: float | None
    above_peak: bool = False
    bandwidth_gb_s: float | None = None
    dram_bytes_per_sample: float | None = None
    intensity_flop_per_byte: float | None = None
    ridge_flop_per_byte: float | None = None
    roofline: Literal["memory", "compute"] | None = None
    roofline_source: str


class Measurement(Frozen):
    """All figures of one run, from its events; empty or None where the program tells nothing of them.

    Attributes:
        state_bytes: what each rank held at the end of the weights and of what their updates keep; of programs whose ranks may hold parts.
        gradient_bytes: what a device hands over to be exchanged in one step.
        probe: exchanges that were timed before the first step, as gradients are exchanged.
        collectives: all-gather, reduce-scatter and all-to-all, timed likewise; `size_bytes` are the shares of all devices together.
        no_collectives: which of them the program can't time, and why; None where it times all, or there is one device or no probe.
        step_parts: where the time of a step went.
        backward: when the gradients of a step on one device are there, where the program tells.
        flop: what the arithmetic of the model came to, also from what its devices are.
        epochs: how a training that is watched converged.
        accuracy, batch, latency: what inference came to, and ran with.
        generation: what a language model answers with, by batch.
        cache_difference: how much a score made with kept keys and values differs from that of the whole sequence, as a part of the largest.
        in_flight: batches of inference that were under way at once while throughput was measured; with 1 each was answered before the next
            was handed over, so that the throughput of a GPU is that of a host that waits.
        input_alone_per_s: samples a second that the input pipelines of all ranks deliver while nobody trains.
        compiled: how many graphs of the network compilers made, on all ranks.
        effects: what each technique changed, where the program tells: operators that read channels-last or cast what they multiply, weights
            that were updated by larger calls. On the rank where that was least; 0 of a technique without effect.
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
    state_bytes: dict[str, int] = Field(default={})
    parameters: int | None
    images_decoded: int | None
    images_skipped: tuple[str, ...]
    gradient_bytes: int | None = None
    probe: tuple[Exchange, ...] = ()
    collectives: tuple[Exchange, ...] = ()
    no_collectives: str | None = None
    step_parts: StepParts | None = None
    backward: Backward | None = None
    used: dict[str, Used] = Field(default={})
    flop: FlopFigures | None = None
    epochs: tuple[EpochFigures, ...] = ()
    accuracy: AccuracyFigures | None = None
    batch: BatchUsed | None = None
    latency: LatencyFigures | None = None
    generation: tuple[GenerationFigures, ...] = ()
    cache_difference: float | None = None
    in_flight: int = 1
    input_alone_per_s: float | None = None
    compiled: CompiledGraphs | None = None
    effects: dict[str, int] = Field(default={})
