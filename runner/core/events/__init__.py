"""Types of a run's events: the runner's side of the contract in `workloads/events.py`. `parse` reads them.

An event that is not listed here is a bug of the program that wrote it. Null means unknown.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field


class EventPart(BaseModel):
    """An event, or part of one."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EventBase(EventPart):
    """Fields of every event; `t` is the process's monotonic clock in seconds, `received` the runner's when it read the line."""

    rank: int
    t: float
    received: float
    container: str


class FlopPerSample(EventPart):
    """Floating-point operations of one sample: twice the multiply-adds of convolutions and dense layers."""

    forward: float
    backward: float


class RunStart(EventBase):
    """The program has set up its ranks and its model; `gradient_bytes` is what a device contributes to the exchange of one step.

    If windows have units, `flop_per_sample` is of one unit.
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
    """Software and devices as the program sees them; null if absent."""

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
    """A named phase of the program, and its duration."""

    event: Literal["phase"]
    name: str
    seconds: float


class CpuPeak(EventBase):
    """The fastest product of square matrices on this rank's cores, while all ranks compute; `library` names the library and data type."""

    event: Literal["peak"]
    precision: str
    cores: int
    flop_per_s: float
    library: str


class FirstStep(EventBase):
    """The first iteration's result is on the device."""

    event: Literal["first_step"]


class Compiled(EventBase):
    """Number of the network's graphs that were compiled now, and that were cached by an earlier run."""

    event: Literal["compiled"]
    fresh: int
    kept: int


class Techniques(EventBase):
    """Number of changes by each technique after the first step, e.g. operators of the graph; 0 for a technique without effect."""

    event: Literal["techniques"]
    effects: dict[str, int]


class Pace(EventBase):
    """Number of measured iterations, and of iterations a window, if the warm-up's rate determines the length of the run."""

    event: Literal["pace"]
    iterations: int
    window: int


class WarmupEnd(EventBase):
    """The measured iterations begin."""

    event: Literal["warmup_end"]
    iterations: int


PAUSE_S: Final = 1e-6
"""A longer gap between two windows is a pause; a shorter one is rounding, since each window starts at the end of the previous one."""


class Window(EventBase):
    """Consecutive measured iterations: this rank's samples and wall seconds, by the device's clock if it takes timestamps.

    It starts at the end of the previous window, except after a pause, such as validation between epochs. For `input_seconds` of it the loop
    waited for its next batch; None if the program can't tell. `units` is the amount that throughput counts, if not samples.
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
    """Some step times, in order, of this rank's next window, whose steps do not all fit on one line."""

    event: Literal["steps"]
    window: int
    seconds: tuple[float, ...]


class Loss(EventBase):
    """Losses of consecutive iterations, the first numbered `first_iteration`; null for a loss that is not finite."""

    event: Literal["loss"]
    first_iteration: int
    values: tuple[float | None, ...]


class Eval(EventBase):
    """Losses of this process's devices on a batch that all ranks share, after `iteration` iterations; null for a loss that is not finite."""

    event: Literal["eval"]
    iteration: int
    losses: tuple[float | None, ...]


class BatchUsed(EventBase):
    """The batch that inference ran with, and why it is not the requested one."""

    event: Literal["batch"]
    asked: int
    used: int
    reason: str | None = None


class Data(EventBase):
    """Number of images that the input pipeline decoded, and the names of those that it skipped."""

    event: Literal["data"]
    decoded: int | None = None
    skipped: tuple[str, ...] = ()


class InputAlone(EventBase):
    """Throughput of a rank's input pipeline while no rank trains."""

    event: Literal["input_alone"]
    batches: int
    samples: int
    seconds: float


class Usage(EventBase):
    """Resource use of a process's control group at the start or stop of the measured windows; null if it has no group of its own."""

    event: Literal["usage"]
    where: Literal["start", "stop"]
    cpu_s: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None


class RunStop(EventBase):
    """The rank has completed all iterations; `parameter_norm` is null if it is not finite, or if the weights can't be read.

    `devices` is the job's number of devices according to a log; None if a program of the suite wrote this event.
    """

    event: Literal["run_stop"]
    iterations: int
    samples: int
    parameter_norm: float | None = None
    state_bytes: int | None = None
    devices: int | None = None


class Validated(EventPart):
    """One rank's share of the validation samples: the sum of their losses, and the number classified correctly."""

    samples: int
    loss_sum: float | None
    correct: int


class Epoch(EventBase):
    """An epoch of a convergence training; `seconds` is training time without validation."""

    event: Literal["epoch"]
    epoch: int
    iterations: int
    seconds: float
    train_loss: float | None
    validation: Validated


class Accuracy(EventBase):
    """Correct predictions on labelled samples at a precision, and of the same network at `reference` precision.

    `agree` is the number of predictions that are equal in both, `fit_iterations` the training before inference.
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
    """Latencies in seconds of inference batches that had the device to themselves, one a repeat.

    `with_transfer`: from the samples in host memory to the predictions there. `without_transfer`: from the samples in device memory until
    the device was done; null if nothing is transferred, or if the program can't tell. `in_flight` is the number of batches in flight
    while throughput was measured.
    """

    event: Literal["latency"]
    in_flight: int
    batch: int
    with_transfer: tuple[float, ...]
    without_transfer: tuple[float, ...] | None


class Generation(EventBase):
    """A single batch of prompts: seconds from the prompts on the host to the first tokens on the device, and from token to token.

    `first_token_s` is null if `step_s` continues that of the previous event.
    """

    event: Literal["generation"]
    batch: int
    prompt_tokens: int
    new_tokens: int
    first_token_s: float | None
    step_s: tuple[float, ...]


class CacheCheck(EventBase):
    """Difference between scores computed with the key-value cache and those of the whole sequence, relative to the largest score."""

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
    """TCP connections of one process between two addresses; `port` is the remote end's, `connections` their number."""

    local: str
    remote: str
    port: int
    connections: int


class Net(EventBase):
    """Byte counters at the start or stop of the measured windows, and at the stop the process's TCP connections with other hosts.

    Counters are the host's: ranks of the same `node` and `namespace` read the same interfaces, ranks of the same `node` the same ports.
    `node` is None if there is only one host, `namespace` and `peers` if the program does not report them. Ports are keyed by
    `adapter:port`, NVLinks by the GPU's UUID.
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
    """The lines of NCCL's log that name its transports."""

    event: Literal["nccl"]
    lines: tuple[str, ...]


class Bandwidth(EventBase):
    """A collective operation, timed separately: `elements` of `dtype` in a message of `size_bytes` among all devices.

    `algbw_gb_s` is the message ÷ time, `busbw_gb_s` the load of each link, in 1e9 bytes a second (nccl-tests, doc/PERFORMANCE.md); `wrong`
    is the number of wrong elements in the result, None if unchecked. `operation` is the reduction (`sum`) in the log of nccl-tests; in a
    training program's probe it is `all_reduce`, `push_pull` or one of `COLLECTIVES`, `seconds` are the timed exchanges and `time_us` is
    their median.
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
"""Operations that a probe times in addition to the exchange of gradients; the message is all that a device sends, or receives in an all-gather."""


class NoCollectives(EventBase):
    """The `COLLECTIVES` that the probe can't time, and the reason, a phrase that follows their names in a sentence."""

    event: Literal["no_collectives"]
    operations: tuple[str, ...]
    reason: str


class Compute(EventBase):
    """Seconds of forward and backward passes without exchange, run on all ranks concurrently."""

    event: Literal["compute"]
    seconds: tuple[float, ...] = Field(min_length=1)


class Backward(EventBase):
    """One pass on one device; `gradients` are (bytes, seconds since the backward pass began), in order."""

    event: Literal["backward"]
    forward_s: float
    backward_s: float
    gradients: tuple[tuple[int, float], ...]


ProfileKind = Literal["kernels", "metrics", "memory", "region", "calls"]
Region = Literal["forward", "backward", "optimizer", "update", "input"]
"""A part of a step that can be profiled separately; `update` is backward and optimizer together."""

StepPart = Literal[Region, "step"]
"""A part of a step that is timed; `step` is all but the input, if a framework runs that as one."""


class ProfileStart(EventBase):
    """A profiler (`source`, e.g. `torch.profiler`) starts after `iteration` iterations; `plain_step_seconds` are of the last steps before."""

    event: Literal["profile_start"]
    kind: ProfileKind
    source: str
    iteration: int
    region: Region | None
    steady: bool
    plain_step_seconds: tuple[float, ...]


class ProfileStop(EventBase):
    """A profiler has stopped; `step_seconds` are of the profiled steps."""

    event: Literal["profile_stop"]
    iterations: int
    step_seconds: tuple[float, ...]


class Regions(EventBase):
    """Seconds of one region in each profiled step."""

    event: Literal["regions"]
    name: StepPart
    seconds: tuple[float, ...]


class Memory(EventBase):
    """Memory of one device after a phase, and its peak during the phase; null if the framework does not report it."""

    event: Literal["memory"]
    phase: str
    device: str
    allocated_bytes: int | None
    reserved_bytes: int | None
    peak_bytes: int | None


class FlopCount(EventBase):
    """Floating-point operations of one sample, counted by a framework at run time, in total and by operator."""

    event: Literal["flop_count"]
    source: str
    phase: Literal["forward", "backward"]
    flop_per_sample: float
    operators: dict[str, float] = Field(default_factory=dict)


PowerReading = Literal["instant", "usage"]


class MonitoredGpu(EventPart):
    """A GPU that a node's sampler reads; `counters` is the source of its pipes' utilisation.

    Power is read by NVML_FI_DEV_POWER_INSTANT (`instant`) or nvmlDeviceGetPowerUsage (`usage`); None from samplers that only had the latter.
    """

    index: int
    uuid: str
    name: str
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    counters: Literal["gpm", "dcgm"] | None = None
    power_reading: PowerReading | None = None


class MonitorStart(EventBase):
    """A node's sampler starts; `sources` maps each source to None, or to why it is unavailable."""

    event: Literal["monitor_start"]
    node: str
    hz: float
    gpus: tuple[MonitoredGpu, ...] = ()
    cores: int | None = None
    sources: dict[str, str | None] = Field(default_factory=dict)


class Trouble(EventBase):
    """Columns of one device, or all of them if `fields` is empty, are missing from now on, and why."""

    event: Literal["trouble"]
    device: str
    fields: tuple[str, ...]
    reason: str


class MonitorStop(EventBase):
    """A node's sampler has stopped; `cpu_s` is its own CPU time."""

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
