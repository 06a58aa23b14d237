"""Types of a record's figures. Seconds are wall time; None is an unavailable figure."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, model_validator

from runner.core.frozen import Frozen

StepMethod = Literal["step", "window-mean", "latency"]

FEWEST_RUNS: Final = 3
"""The fewest runs that give an interval; figures of fewer runs show the number of runs instead."""


class Interval(Frozen):
    """A 95 % confidence interval over runs, each a newly started process, in the unit of its figure."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's width: the figure after `±`."""
        return (self.high - self.low) / 2

    def scaled(self, factor: float) -> Interval:
        """Return the interval of the figure times a positive factor."""
        return Interval(low=self.low * factor, high=self.high * factor)


class RawWindow(Frozen):
    """One window of one rank as the program reported it.

    `start` is in seconds of that rank's monotonic clock; `units` is the amount that throughput counts, if not samples. `first_step_s`, the time
    of the first of its `iterations`, shows the cost of closing a window; None if the program can't time steps. Older records have neither.
    """

    rank: int
    index: int
    start: float
    samples: int
    seconds: float
    units: float | None = None
    iterations: int | None = None
    first_step_s: float | None = None

    @property
    def amount(self) -> float:
        """What throughput counts: units, or else samples."""
        return self.samples if self.units is None else self.units


class Throughput(Frozen):
    """Global samples, or units, ÷ synchronized wall seconds of one run, in `unit` such as `images/s`.

    `ci95` is null: an interval is over runs, and a record is of one run. Older records have one over windows, which nothing reads.
    """

    value: float
    ci95: Interval | None
    unit: str


class StepTime(Frozen):
    """Percentiles of the step time in seconds, and how steps were timed.

    In inference, `latency` is the time from a single batch's input to its predictions on the host; with several batches in flight, `step` is
    the time between the answers to consecutive batches.
    """

    p50: float
    p90: float
    p99: float
    method: StepMethod


class Steadiness(Frozen):
    """The start of the steady state, and the amounts left out and kept; throughput × `kept_s` = `kept` always holds.

    Attributes:
        first_window: index of the first window that counts.
        steady: False if the rate never settled; all windows count then.
        drift: relative difference between the mean rates of the later and the earlier half of the windows that count.
        left_out_s: seconds of the windows before `first_window`: the transient.
        kept_s: seconds of the windows that count.
        kept: amount processed in them, in the unit of the throughput.
    """

    first_window: int
    steady: bool
    drift: float
    left_out_s: float = 0.0
    kept_s: float | None = None
    kept: float | None = None


class Evaluation(Frozen):
    """Losses of one process's devices on a batch that all ranks share, after `iteration` iterations; None for losses that are not finite."""

    iteration: int
    losses: tuple[float | None, ...]


class Used(Frozen):
    """Resources of one container: CPU seconds within the measured windows, memory in MiB at their end, and its lifetime peak.

    None if the kernel does not report them.
    """

    cpu_s: float | None
    memory_mib: float | None
    memory_peak_mib: float | None


class CompiledGraphs(Frozen):
    """Number of graphs that were compiled in this run, and that were cached by an earlier run."""

    fresh: int
    kept: int


class Exchange(Frozen):
    """One message size of the probe: a separate exchange of `size_bytes` among all devices of the job; rates in 1e9 bytes a second."""

    operation: str  # `all_reduce` or `push_pull` (`workloads/probe.py`); a collective's `all_gather`, ... (`workloads/collectives.py`)
    size_bytes: int
    seconds: float  # median of the timed exchanges, on rank 0
    algbw_gb_s: float  # bytes ÷ seconds
    busbw_gb_s: float  # bytes that have to leave each device ÷ seconds
    wrong: int | None  # wrong elements of the result; for a collective, on the worst rank


class Backward(Frozen):
    """One forward and backward pass on one device, in seconds: when an overlapping exchange can start.

    `gradients` are (bytes to exchange, seconds from the start of the backward pass until they are ready), in order.
    """

    forward_s: float
    backward_s: float
    gradients: tuple[tuple[int, float], ...]


class StepParts(Frozen):
    """Mean step of the windows that count, in seconds: `step_s` = input + compute + stragglers + communication, none of them negative.

    Attributes:
        step_s: wall time of a step.
        input_waited_s: time that the loop waited for its next batch, the longest of all ranks in each window; None if the program does not report it.
        input_s: the part of that wait that compute did not hide.
        compute_s: on one device everything except input; on several a forward and backward pass without exchange, mean over ranks.
        stragglers_s: extra time of the slowest rank, for which the others wait; None on one device.
        communication_s: exposed communication and the update of the weights; None on one device, whose update is compute.
        exchange_alone_s: the probe's estimate of exchanging all gradients in a single message; not part of the sum.
        inseparable: why input, compute, stragglers and communication are None; None if they could be separated.
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
    def _drop_old_parts(cls, fields: Any) -> Any:
        """Drop the parts of older records, which could be negative; `dlscale regrade` recomputes them from the raw files."""
        if not isinstance(fields, dict) or "rest_s" not in fields:
            return fields
        kept = {name: fields.get(name) for name in ("step_s", "input_waited_s", "exchange_alone_s")}
        return kept | {"inseparable": "an older version told them apart wrongly; `dlscale regrade` gives them anew"}


class EpochFigures(Frozen):
    """One epoch: losses in nats, accuracy on the validation samples, and training time.

    Attributes:
        train_loss: mean of the ranks' mean losses over the epoch; None if one is not finite.
        val_loss: mean loss of the validation samples; None if it is not finite.
        seconds: training time of the slowest rank; no time includes validation.
        elapsed_s: training time since the start of the first epoch.
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
    """Accuracy of predictions at a precision, and of the same network at `reference` precision on the same samples.

    Attributes:
        agree_percent: share of samples for which both predict the same class.
        fit_iterations: iterations of training before inference; with 0, accuracy is at chance level.
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
        """Change of accuracy from the reference, in percentage points; negative for a loss."""
        return self.percent - self.reference_percent


class BatchUsed(Frozen):
    """The batch of an inference run; `reason` says why it is not the requested one."""

    asked: int
    used: int
    reason: str | None


_FEWEST_OF_P90: Final = 10
_FEWEST_OF_P99: Final = 100


class Percentiles(Frozen):
    """Percentiles in seconds over `repeats` timings; None where these are too few."""

    p50: float
    p90: float | None
    p99: float | None
    repeats: int

    @classmethod
    def known(cls, p50: float, p90: float, p99: float, *, repeats: int) -> Percentiles:
        """Those that `repeats` timings can give: the p90 of fewer than 10 and the p99 of fewer than 100 would be the slowest."""
        return cls(
            p50=p50,
            p90=p90 if repeats >= _FEWEST_OF_P90 else None,
            p99=p99 if repeats >= _FEWEST_OF_P99 else None,
            repeats=repeats,
        )


class LatencyFigures(Frozen):
    """Latency of an inference batch that has the device to itself.

    Attributes:
        with_transfer: from its samples in host memory to its predictions there.
        without_transfer: from its samples in device memory until the device is done; None if nothing is transferred, as on CPUs, or if
            the program can't tell.
    """

    with_transfer: Percentiles
    without_transfer: Percentiles | None


class GenerationFigures(Frozen):
    """Generation speed of a language model for a batch of prompts that has the device to itself.

    Attributes:
        first_token: time to first token, from the prompts in host memory.
        step: decode latency, from one token of each prompt to the next; None if only one token was generated.
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
    """Total dense peak of a run's devices at its precision, in 1e12 FLOP/s, and of their memory in 1e9 bytes/s, if known."""

    tflops: float
    bandwidth_gb_s: float | None
    source: str


def utilisation_percent(achieved_tflops: float | None, peak_tflops: float | None) -> tuple[float | None, bool]:
    """Return achieved ÷ peak in percent, or None if unknown or above 100; and whether it is above 100."""
    if achieved_tflops is None or not peak_tflops:
        return None, False
    above = achieved_tflops > peak_tflops
    return None if above else 100 * achieved_tflops / peak_tflops, above


class FlopFigures(Frozen):
    """Model FLOP of one run, and its position under the roofline of its devices.

    The roofline: S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model for multicore
    architectures", CACM 52(4), 2009. Model FLOP utilisation: A. Chowdhery et al., "PaLM", https://arxiv.org/abs/2204.02311, appendix B.

    Attributes:
        forward_flop_per_sample, backward_flop_per_sample: counted by `method`.
        achieved_tflops: their sum × throughput, of all devices; None without a throughput.
        peak_tflops: dense peak of all devices at the run's precision; None if unknown.
        peak_source: origin of the peak, or `unavailable: <reason>`.
        mfu_percent: achieved ÷ peak; None if either is unknown, or if it would exceed 100.
        above_peak: whether it would exceed 100: the peak or the FLOP count is wrong for this run.
        bandwidth_gb_s: total peak bandwidth of the devices' memory, in 1e9 bytes a second.
        dram_bytes_per_sample: measured traffic between the devices and their memory.
        intensity_flop_per_byte: achieved FLOP ÷ that traffic.
        ridge_flop_per_byte: peak FLOP/s ÷ peak bandwidth: below it memory is the bound, above it arithmetic.
        roofline: which of the two is the bound.
        roofline_source: how the traffic was counted, or `unavailable: <reason>`.
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
    """All figures of one run, from its events; empty or None if the program does not report them.

    Attributes:
        state_bytes: bytes of weights and optimizer state that each rank held at the end; from programs whose ranks may hold parts.
        gradient_bytes: bytes that a device contributes to the exchange of one step.
        probe: exchanges timed before the first step, by the method that exchanges gradients.
        collectives: all-gather, reduce-scatter and all-to-all, timed likewise; `size_bytes` is the sum of all devices' shares.
        no_collectives: the collectives that the program can't time, and why; None if it times all, and on one device or without a probe.
        step_parts: attribution of the step time.
        backward: when the gradients of a step are ready on one device, if the program reports it.
        flop: model FLOP, MFU and roofline; also depends on the devices.
        epochs: figures of a convergence training.
        accuracy, batch, latency: results and batch of inference.
        generation: speed of a language model's generation, by batch.
        cache_difference: difference between scores with and without the key-value cache, relative to the largest score.
        in_flight: inference batches in flight while throughput was measured; with 1, each is answered before the next is submitted, so that
            a GPU's throughput includes the host's waits.
        input_alone_per_s: samples a second that the input pipelines of all ranks deliver while no rank trains.
        compiled: number of the network's graphs that were compiled, on all ranks.
        effects: changes by each technique, if the program reports them: operators that read channels-last or cast their operands, weights
            that are updated by larger calls. On the rank with the fewest; 0 for a technique without effect.
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
