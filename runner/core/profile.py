"""Types of a `Profile`: the figures of one profiling pass, as a record keeps them.

Percentages are 0..100. An unavailable figure is None, and `unavailable` says why.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from runner.core.events import ProfileKind, Region, StepPart
from runner.core.frozen import Frozen

Collective = Literal[
    "broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter", "send_recv", "collective_other"
]
Copy = Literal["copy_htod", "copy_dtoh", "copy_dtod", "copy_ptop", "copy_htoh", "copy_other"]
Category = Literal[
    "convolution_winograd",
    "convolution_implicit_gemm",
    "convolution_implicit_precomp_gemm",
    "convolution_fft",
    "convolution_direct",
    "convolution_other",
    "gemm",
    "attention",
    "batch_norm_forward",
    "batch_norm_backward",
    "normalisation_other",
    "pooling_forward",
    "pooling_backward",
    "softmax_loss",
    "elementwise",
    "reduction",
    "optimizer",
    "random",
    "rnn",
    "ctc",
    "embedding",
    "layout",
    Collective,
    Copy,
    "memset",
    "input",
    "other",
]
"""Purpose of a piece of work; convolutions by algorithm, collectives and copies by kind."""

COLLECTIVES: Final[frozenset[Category]] = frozenset(get_args(Collective))

CallClass = Literal[
    "launch", "event", "memory_management", "copy", "synchronize", "stream", "module_load", "attributes", "other"
]
"""Purpose of a CUDA API call."""

Direction = Literal["HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "other"]
"""Source and target of a copy: host, device, or a peer device."""

Work = Literal["kernels", "operators"]


class Unavailable(Frozen):
    """An unavailable figure, and why."""

    figure: str
    reason: str


class Steps(Frozen):
    """Mean step time over all ranks, without and with the profiler; its overhead is negative if the steps before it were slower."""

    plain_step_s: float | None
    profiled_step_s: float
    overhead_percent: float | None


class Concurrency(Frozen):
    """Number of concurrent kernels while any ran: time-weighted mean and maximum, and the share of that time in which two or more ran."""

    mean: float
    most: int
    parallel_percent: float


class GpuUse(Frozen):
    """Use of one GPU, or of all GPUs together, in the profiled iterations.

    Attributes:
        device: `gpu0`, or `all`.
        rank: the rank that traced it; None for all.
        profiled_s: seconds of the profiled iterations, or of the profiled region in them, including the profiler's overhead.
        elapsed_s: `profiled_s` minus the profiler's overhead (profiled minus plain step time), or `profiled_s` if that would be less than `busy_s`.
        busy_s: union of the kernels' intervals.
        compute_percent: GPU compute utilisation, `busy_s` ÷ `elapsed_s`.
        own_compute_percent: the same without collectives, whose kernels may only be waiting for other ranks.
        concurrency: None if no kernel ran.
        kernels_per_step: kernels that ran, a step; a mean over GPUs for `all`.
    """

    device: str
    rank: int | None
    profiled_s: float
    elapsed_s: float
    busy_s: float
    compute_percent: float
    own_compute_percent: float
    concurrency: Concurrency | None
    kernels_per_step: float


class Gap(Frozen):
    """A time span in which a GPU ran no kernel, copy or memset; `start_s` counts from the GPU's first piece of work.

    `after` names the work that ends where the gap starts, `before` the work that starts where it ends; None at the edge of a region.
    """

    device: str
    rank: int
    start_s: float
    seconds: float
    after: str | None
    before: str | None


class Copies(Frozen):
    """Copies in one direction; bytes are None if the profiler reports no sizes, throughput is in 1e9 bytes a second of copying.

    `overlap_percent` is the share of their time in which the same GPU ran a kernel; None without start times.
    """

    direction: Direction
    count: int
    seconds: float
    bytes: int | None
    throughput_gb_s: float | None
    mean_bytes: float | None
    overlap_percent: float | None


class CategoryShare(Frozen):
    """Time of one category, and its share of the time of all kernels, copies and memsets (on a CPU, of all operators)."""

    category: Category
    count: int
    seconds: float
    share_percent: float


class NameShare(Frozen):
    """Time of all pieces of work of one name, with shares as in `CategoryShare`; `fp32_percent` is weighted by time, None without counters."""

    name: str
    category: Category
    count: int
    seconds: float
    mean_s: float
    share_percent: float
    fp32_percent: float | None = None


class CallShare(Frozen):
    """Time of all calls of one CUDA API function, and its share of the time of all calls."""

    name: str
    call_class: CallClass
    count: int
    seconds: float
    mean_s: float
    share_percent: float


class CallClassShare(Frozen):
    """Time of one class of CUDA API calls, and its share of the time of all calls."""

    call_class: CallClass
    count: int
    seconds: float
    share_percent: float


class RegionUse(Frozen):
    """One part of a step, or with `name` None work that began in no region; pieces are kernels or operators, `share_percent` is of all work.

    `step_s` is its mean duration a step; a pass of kind `region` synchronizes devices at its edges. `work_s` is the mean duration a step
    of the work that began in it: kernels by the time of their calls, operators by their own start.
    """

    name: StepPart | None
    step_s: float | None
    work_s: float | None
    pieces_per_step: float | None
    share_percent: float | None


class Counters(Frozen):
    """Hardware counters of kernels; the trial's `profile.counting` says what read them.

    Attributes:
        fp32_percent: FP32 utilisation, each kernel weighted by its time.
        fp32_unweighted_percent: mean over kernels regardless of their time, as in CERN's report.
        tensor_percent: utilisation of the tensor cores, weighted by time.
        flop_per_kernel: mean number of FP32 operations of the kernels with counters: an addition or a multiplication is one, a fused pair
            two, as in nvprof's flop_count_sp.
        dram_bytes_per_step: bytes that kernels moved to and from device memory.
        covered_percent: share of all kernels' time that is of kernels with FP32 counters.
        low: of the kernels below `fp32_percent`, those with the most time.
    """

    fp32_percent: float | None
    fp32_unweighted_percent: float | None
    tensor_percent: float | None
    dram_bytes_per_step: float | None
    covered_percent: float
    low: tuple[NameShare, ...]
    flop_per_kernel: float | None = None


class MemoryUse(Frozen):
    """Memory of one device of one rank after a phase, and its peak during the phase; None if the framework does not report it."""

    rank: int
    phase: str
    device: str
    allocated_bytes: int | None
    reserved_bytes: int | None
    peak_bytes: int | None


class FlopCounted(Frozen):
    """Floating-point operations of one unit of throughput (an image, a token), counted by the framework in this pass."""

    source: str
    phase: Literal["forward", "backward"]
    flop_per_sample: float
    operators: dict[str, float]


class Profile(Frozen):
    """One profiling pass.

    Attributes:
        source: the profiler, e.g. `torch.profiler`.
        after: iterations before the profiler started.
        iterations: profiled iterations of each rank.
        region: the profiled part of each step; None for whole steps.
        steady: whether the rate was steady when the profiler started.
        steps: None if a rank did not complete its pass.
        work: what shares of time refer to; None without rows.
        gpus, gpu_total: empty and None on a CPU.
        gaps: the longest gaps, longest first.
        kernels: kernels, copies and memsets with the most time; on a CPU, operators by their time without nested operators.
        calls: CUDA API functions, most time first.
        launches_per_step: calls that launch kernels, of one rank.
        unavailable: every missing figure, with the reason.
    """

    kind: ProfileKind
    source: str
    after: int
    iterations: int
    region: Region | None
    steady: bool
    steps: Steps | None
    work: Work | None
    gpus: tuple[GpuUse, ...]
    gpu_total: GpuUse | None
    gaps: tuple[Gap, ...]
    copies: tuple[Copies, ...]
    categories: tuple[CategoryShare, ...]
    kernels: tuple[NameShare, ...]
    calls: tuple[CallShare, ...]
    call_classes: tuple[CallClassShare, ...]
    launches_per_step: float | None
    regions: tuple[RegionUse, ...]
    counters: Counters | None
    memory: tuple[MemoryUse, ...]
    flop: tuple[FlopCounted, ...]
    unavailable: tuple[Unavailable, ...]
