"""The types of a `Profile`: what one pass under a profiler says, as a record keeps it.

Percentages are 0..100. A figure that could not be had is None, and `unavailable` says why.
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
"""What a piece of work is for; convolutions by algorithm, collectives and copies by kind."""

COLLECTIVES: Final[frozenset[Category]] = frozenset(get_args(Collective))

CallClass = Literal[
    "launch", "event", "memory_management", "copy", "synchronize", "stream", "module_load", "attributes", "other"
]
"""What a call of the CUDA API is for."""

Direction = Literal["HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "other"]
"""From where to where a copy went: host, device, or a peer device."""

Work = Literal["kernels", "operators"]


class Unavailable(Frozen):
    """A figure that could not be had, and why."""

    figure: str
    reason: str


class Steps(Frozen):
    """What the profiler cost: mean seconds of a step with and without it, over all ranks; in percent below 0 where those before were slower."""

    plain_step_s: float | None
    profiled_step_s: float
    overhead_percent: float | None


class Concurrency(Frozen):
    """How many kernels ran at once while any did: the mean weighted by time, and the share of that time in which two or more ran."""

    mean: float
    most: int
    parallel_percent: float


class GpuUse(Frozen):
    """What one GPU did in the profiled iterations, or all of them together.

    Attributes:
        device: `gpu0`, or `all`.
        rank: whose process traced it; None for all.
        profiled_s: seconds of the profiled iterations (of the region in them, if only one was looked at), profiler and all.
        elapsed_s: the same without what the profiler added: less what a step took longer than a plain one, and never less than
            `busy_s`.
        busy_s: union of the kernels' intervals.
        compute_percent: GPU compute utilisation, `busy_s` ÷ `elapsed_s`.
        own_compute_percent: the same without collectives, in which a kernel may only wait for other ranks.
        concurrency: None where no kernel ran.
        kernels_per_step: kernels that ran.
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
    """A stretch in which a GPU ran no kernel, copy or memset, from `start_s` after its first piece of work.

    `after` and `before` name what ended and what began it; None at the edge of a region.
    """

    device: str
    rank: int
    start_s: float
    seconds: float
    after: str | None
    before: str | None


class Copies(Frozen):
    """Copies in one direction; bytes are None where the profiler gives no sizes, throughput is in 1e9 bytes a second of copying.

    `overlap_percent` is the part of their time in which the same GPU ran a kernel; None without start times.
    """

    direction: Direction
    count: int
    seconds: float
    bytes: int | None
    throughput_gb_s: float | None
    mean_bytes: float | None
    overlap_percent: float | None


class CategoryShare(Frozen):
    """Time of one category: its share of all seconds of kernels, copies and memsets (of operators, on a CPU)."""

    category: Category
    count: int
    seconds: float
    share_percent: float


class NameShare(Frozen):
    """Time of all pieces of work of one name, shares as in `CategoryShare`; `fp32_percent` is weighted by time, None without counters."""

    name: str
    category: Category
    count: int
    seconds: float
    mean_s: float
    share_percent: float
    fp32_percent: float | None = None


class CallShare(Frozen):
    """Time of all calls of one function of the CUDA API, and its share of the seconds of all calls."""

    name: str
    call_class: CallClass
    count: int
    seconds: float
    mean_s: float
    share_percent: float


class CallClassShare(Frozen):
    """Time of one class of calls of the CUDA API, and its share of the seconds of all calls."""

    call_class: CallClass
    count: int
    seconds: float
    share_percent: float


class RegionUse(Frozen):
    """One part of a step (None: work that began in no region); pieces are kernels, or operators, `share_percent` is of all work.

    `step_s` is its mean in a step, devices synchronized at its edges where the pass was for regions; `work_s` that of the work that
    began in it (kernels by their calls, operators by their own start).
    """

    name: StepPart | None
    step_s: float | None
    work_s: float | None
    pieces_per_step: float | None
    share_percent: float | None


class Counters(Frozen):
    """What hardware counters of kernels say; the trial's `profile.counting` has who read them.

    Attributes:
        fp32_percent: FP32 utilisation, each kernel weighted by its time.
        fp32_unweighted_percent: the mean over kernels, each counted alike however short, as CERN's report took it.
        tensor_percent: utilisation of the tensor cores, weighted by time.
        flop_per_kernel: FP32 operations that a kernel executed, the mean over those with counters: an addition or a multiplication is one,
            a fused pair two, as nvprof's flop_count_sp has it.
        dram_bytes_per_step: bytes that kernels moved to and from device memory.
        covered_percent: of all kernels' time, the part whose kernels have FP32 counters.
        low: kernels that take long and use little: the most time among those below `fp32_percent`.
    """

    fp32_percent: float | None
    fp32_unweighted_percent: float | None
    tensor_percent: float | None
    dram_bytes_per_step: float | None
    covered_percent: float
    low: tuple[NameShare, ...]
    flop_per_kernel: float | None = None


class MemoryUse(Frozen):
    """Memory of one device of one rank after a phase, and its peak within it; None where the framework can't tell."""

    rank: int
    phase: str
    device: str
    allocated_bytes: int | None
    reserved_bytes: int | None
    peak_bytes: int | None


class FlopCounted(Frozen):
    """Floating-point operations of one sample as the framework counted them in this pass."""

    source: str
    phase: Literal["forward", "backward"]
    flop_per_sample: float
    operators: dict[str, float]


class Profile(Frozen):
    """One pass under a profiler.

    Attributes:
        source: what profiled, e.g. `torch.profiler`.
        after: iterations before it.
        iterations: iterations under it, of each rank.
        region: the part of each step that was looked at; None for whole steps.
        steady: whether the rate was when it began.
        steps: None where a rank did not end its pass.
        work: what the shares of time are of; None where there are no rows.
        gpus, gpu_total: empty and None on a CPU.
        gaps: the longest, longest first.
        kernels: those that take most time, copies and memsets among them; on a CPU operators, by the time that no operator within
            them took.
        calls: of the CUDA API, most time first.
        launches_per_step: calls that launch kernels, of one rank.
        unavailable: every figure above that is missing, with the reason.
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
