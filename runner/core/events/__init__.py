"""The events of a run, typed: the runner's side of the contract that `workloads/events.py` writes. `parse` reads them.

An event that is not here is a bug of the program that wrote it. Null is what can't be told.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field


class EventPart(BaseModel):
    """An event, or part of one."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EventBase(EventPart):
    """What every event carries; `t` is the process's monotonic clock in seconds, `received` the runner's when the line was read."""

    rank: int
    t: float
    received: float
    container: str


class FlopPerSample(EventPart):
    """Floating-point operations of one sample: twice the multiply-adds of convolutions and dense layers."""

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


class Techniques(EventBase):
    """What each technique has changed once the first step is done, e.g. operators of the graph: 0 of one that has no effect."""

    event: Literal["techniques"]
    effects: dict[str, int]


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

    It starts where the one before ended, but after a pause, such as a validation between two epochs. `input_seconds` of them the loop waited
    for its next batch; None where the program can't tell. `units` is the amount of what throughput counts where that is not the sample.
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
    """The rank has done all its iterations; `parameter_norm` is null where it is not finite, or where nobody can read the weights.

    `devices` are those of the job that a log shows; None where a program of the suite's writes its own events.
    """

    event: Literal["run_stop"]
    iterations: int
    samples: int
    parameter_norm: float | None = None
    state_bytes: int | None = None
    devices: int | None = None


class Validated(EventPart):
    """One rank's share of the validation samples: the sum of their losses, and how many were classified right."""

    samples: int
    loss_sum: float | None
    correct: int


class Epoch(EventBase):
    """An epoch of a training that is watched to converge; `seconds` are those of its training, without validation."""

    event: Literal["epoch"]
    epoch: int
    iterations: int
    seconds: float
    train_loss: float | None
    validation: Validated


class Accuracy(EventBase):
    """What predictions at a precision came to on labelled samples, beside those of the same network in `reference` precision.

    `agree` is how many predictions are the same in both, `fit_iterations` how long the network was trained before.
    """

    event: Literal["accuracy"]
    precision: str
    samples: int
    correct: int
    reference: str
    reference_correct: int
    agree: int
    fit_iterations: int


class Latency(EventBase):
    """Seconds of batches of inference that had the device to themselves, each time that one was timed.

    With transfer: from the samples in the host's memory to the predictions there. Without: from the samples in the device's memory until
    the device was done; null where nothing is transferred, or the program can't tell. `in_flight` batches were under way at once while
    throughput was measured.
    """

    event: Literal["latency"]
    in_flight: int
    batch: int
    with_transfer: tuple[float, ...]
    without_transfer: tuple[float, ...] | None


class Generation(EventBase):
    """A batch of prompts that was answered by itself: from the prompts on the host to the first tokens on the device, and from token to token.

    `first_token_s` is null where `step_s` goes on from the event before.
    """

    event: Literal["generation"]
    batch: int
    prompt_tokens: int
    new_tokens: int
    first_token_s: float | None
    step_s: tuple[float, ...]


class CacheCheck(EventBase):
    """What scores made with kept keys and values differ by from those of the whole sequence at once, as a part of the largest."""

    event: Literal["cache"]
    difference: float | None


class Bytes(EventPart):
    """Byte counters of one network interface, or of all NVLinks of one GPU."""

    rx_bytes: int
    tx_bytes: int


class PortBytes(Bytes):
    """Byte counters of one port of an RDMA adapter; its link layer is `InfiniBand`, or `Ethernet` for RoCE."""

    link_layer: str


class Peer(EventPart):
    """TCP connections of one process between two addresses; `port` is the other end's, `connections` how many there are."""

    local: str
    remote: str
    port: int
    connections: int


class Net(EventBase):
    """Byte counters at the start or the stop of the measured windows, and at the stop the TCP connections of the process with other hosts.

    Counters are the host's: ranks with one `node` and `namespace` read the same interfaces, ranks with one `node` the same ports.
    `node` is None on the only host, `namespace` and `peers` from a program that does not tell. Ports are by `adapter:port`, NVLinks by
    the UUID of the GPU.
    """

    event: Literal["net"]
    where: Literal["start", "stop"]
    interfaces: dict[str, Bytes]
    node: str | None = None
    namespace: int | None = None
    ports: dict[str, PortBytes] = Field(default_factory=dict)
    nvlink: dict[str, Bytes] = Field(default_factory=dict)
    peers: tuple[Peer, ...] | None = None
    local_connections: int | None = None


class Nccl(EventBase):
    """The lines of NCCL's own log that tell the transports it chose."""

    event: Literal["nccl"]
    lines: tuple[str, ...]


class Bandwidth(EventBase):
    """A collective operation, timed by itself: `elements` of `dtype` in a message of `size_bytes` among all devices.

    `algbw_gb_s` is the message ÷ time, `busbw_gb_s` what each link carried, in units of 1e9 bytes a second (nccl-tests,
    doc/PERFORMANCE.md); `wrong` elements of the result, None where nobody checked. `operation` is nccl-tests' reduction (`sum`) in its log,
    and of a training program's own probe `all_reduce`, `push_pull` or one of `COLLECTIVES`, with the `seconds` of each; `time_us` is their
    median.
    """

    event: Literal["bandwidth"]
    size_bytes: int
    elements: int
    dtype: str
    operation: str | None
    root: int | None = None
    placement: Literal["out-of-place", "in-place"] | None = None
    seconds: tuple[float, ...] | None = None
    time_us: float
    algbw_gb_s: float
    busbw_gb_s: float
    wrong: int | None


COLLECTIVES: Final = ("all_gather", "reduce_scatter", "all_to_all")
"""What a probe times beside the exchange of gradients; the message is all that a device sends or, of an all-gather, gets."""


class NoCollectives(EventBase):
    """Those of `COLLECTIVES` that the probe can't time, and why, in words that go on after their names."""

    event: Literal["no_collectives"]
    operations: tuple[str, ...]
    reason: str


class Compute(EventBase):
    """Seconds of forward and backward passes that exchanged nothing, on all ranks at once."""

    event: Literal["compute"]
    seconds: tuple[float, ...] = Field(min_length=1)


class Backward(EventBase):
    """One pass on one device; `gradients` are (bytes, seconds since the backward pass began) in their order."""

    event: Literal["backward"]
    forward_s: float
    backward_s: float
    gradients: tuple[tuple[int, float], ...]


ProfileKind = Literal["kernels", "metrics", "memory", "region", "calls"]
Region = Literal["forward", "backward", "optimizer", "update", "input"]
"""A part of a step that a profiler can be asked to look at; `update` is backward and optimizer as one."""

StepPart = Literal[Region, "step"]
"""A part of a step that is timed; `step` is all but the input, where a framework runs it as one."""


class ProfileStart(EventBase):
    """A profiler (`source`, e.g. `torch.profiler`) begins after so many iterations; `plain_step_seconds` are of the last steps without it."""

    event: Literal["profile_start"]
    kind: ProfileKind
    source: str
    iteration: int
    region: Region | None
    steady: bool
    plain_step_seconds: tuple[float, ...]


class ProfileStop(EventBase):
    """A profiler has ended; seconds of each step under it."""

    event: Literal["profile_stop"]
    iterations: int
    step_seconds: tuple[float, ...]


class Regions(EventBase):
    """Seconds of one region in each profiled step."""

    event: Literal["regions"]
    name: StepPart
    seconds: tuple[float, ...]


class Memory(EventBase):
    """Memory of one device after a phase, and its peak within it; null where the framework can't tell."""

    event: Literal["memory"]
    phase: str
    device: str
    allocated_bytes: int | None
    reserved_bytes: int | None
    peak_bytes: int | None


class FlopCount(EventBase):
    """Floating-point operations of one sample as a framework counted them while it ran, in all and by operator."""

    event: Literal["flop_count"]
    source: str
    phase: Literal["forward", "backward"]
    flop_per_sample: float
    operators: dict[str, float] = Field(default_factory=dict)


PowerReading = Literal["instant", "usage"]


class MonitoredGpu(EventPart):
    """A GPU that a node's sampler asks; `counters` is where its pipes' utilisation comes from.

    Power is read by NVML_FI_DEV_POWER_INSTANT (`instant`) or nvmlDeviceGetPowerUsage; None of samplers that knew the latter only.
    """

    index: int
    uuid: str
    name: str
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    counters: Literal["gpm", "dcgm"] | None = None
    power_reading: PowerReading | None = None


class MonitorStart(EventBase):
    """A node's sampler begins; `sources` has, for each that it knows, None or why there is nothing of it."""

    event: Literal["monitor_start"]
    node: str
    hz: float
    gpus: tuple[MonitoredGpu, ...] = ()
    cores: int | None = None
    sources: dict[str, str | None] = Field(default_factory=dict)


class Trouble(EventBase):
    """Columns of one device of a node begin to be missing, and why."""

    event: Literal["trouble"]
    device: str
    fields: tuple[str, ...]
    reason: str


class MonitorStop(EventBase):
    """A node's sampler has ended; `cpu_s` is what it used itself."""

    event: Literal["monitor_stop"]
    samples: int
    seconds: float
    cpu_s: float


Event = Annotated[
    RunStart
    | Env
    | Phase
    | CpuPeak
    | FirstStep
    | Compiled
    | Techniques
    | Pace
    | WarmupEnd
    | Steps
    | Window
    | Loss
    | Eval
    | Epoch
    | Accuracy
    | Latency
    | Generation
    | CacheCheck
    | BatchUsed
    | Data
    | InputAlone
    | Net
    | Usage
    | Nccl
    | Bandwidth
    | NoCollectives
    | Compute
    | Backward
    | RunStop
    | ProfileStart
    | ProfileStop
    | Regions
    | Memory
    | FlopCount
    | MonitorStart
    | Trouble
    | MonitorStop,
    Field(discriminator="event"),
]
