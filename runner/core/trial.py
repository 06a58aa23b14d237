"""`Trial`: one cell of the matrix, fully decided; `ExternalTrial`: a run of a program that is not the suite's.

Trials that differ only in scale and repeat have the same `key`.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import textwrap
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from runner.core.events import ProfileKind, Region
from runner.core.frozen import Frozen
from runner.core.log_pattern import LogPattern
from runner.core.request import (
    Compression,
    Controller,
    Decode,
    Device,
    DialectName,
    GpuMemory,
    Interconnect,
    KvStore,
    Mode,
    Operations,
    Precision,
    RequestedDialect,
    Scaling,
    StrategyName,
    Technique,
)
from runner.core.strategies import STRATEGIES
from runner.core.wire import Link, Wire

# The longest command line in a title, in characters.
SHOWN: Final = 60

Case = Literal["one", "sequential", "together"]

# What a profiling pass of each kind shows.
PROFILE_NAMES: Final[Mapping[ProfileKind, str]] = {
    "kernels": "kernels",
    "metrics": "hardware counters",
    "memory": "memory",
    "region": "regions",
    "calls": "calls of the whole process",
}

# How a training ran relative to others, for titles.
CASE_NAMES: Final[Mapping[Case, str]] = {
    "one": "alone",
    "sequential": "{} of {} one after the other",
    "together": "{} of {} at once",
}


class Dataset(Frozen):
    """A folder of class folders with JPEGs, a packed form of one, a folder of utterances, or a file of tokens.

    Attributes:
        images, classes: their numbers; utterances and tokens count as images without a class.
        validation_images: images that a convergence training keeps for validation; 0 unless the data set is a folder of class folders.
        digest: SHA-256 that tells whether two runs read the same data: over the names and sizes of files, the index of a packed data set,
            or a sample of tokens.
    """

    path: str
    images: int
    classes: int
    digest: str
    validation_images: int = 0


class Horovod(Frozen):
    """Horovod's settings (its user guide: "Horovod with MPI", "Tensor Fusion").

    Attributes:
        controller: the library that coordinates the ranks.
        fusion_threshold_mib: size up to which gradients are fused into one message; None for Horovod's default.
        cycle_time_ms: time between two rounds of negotiation; None for Horovod's default.
    """

    controller: Controller
    operations: Operations
    fusion_threshold_mib: int | None
    cycle_time_ms: int | None
    compression: Compression


class Placed(Frozen):
    """A node of a job: the number of devices it contributes, and how other nodes reach it; no wire if it is the only node."""

    node: str
    devices: int
    wire: Wire | None = None


class Concurrent(Frozen):
    """A training that runs concurrently with others, or one that is compared with those: alone, or one after the other.

    Attributes:
        shared: whether concurrent trainings share all devices; otherwise each has its own.
    """

    trainings: int
    case: Case
    number: int
    shared: bool = False

    @property
    def label(self) -> str:
        """Case and number as a part of names: `one`, `sequential-1of2`, `together-2of2`."""
        return self.case if self.case == "one" else f"{self.case}-{self.number}of{self.trainings}"


Source = Literal["ncu", "sampler", "none"]


class Counting(Frozen):
    """What reads the counters: `program` is the path of `ncu`, `folder` the directory to mount for it, `reason` why it is not `ncu`."""

    source: Source
    program: str | None = None
    folder: str | None = None
    reason: str | None = None


class ProfilePass(Frozen):
    """A short run under a profiler, in addition to the measured runs.

    Attributes:
        kind: `kernels` traces kernels, `metrics` reads hardware counters, `memory` records allocations, `region` times the parts of a
            step, `calls` records calls of the CUDA API from the start of the process.
        after: iterations before the profiler starts; None for as many as it takes to be steady.
        region: the part of each step to profile; None for whole steps.
        counting: what reads the hardware counters, and why; only for kind `metrics`.
    """

    kind: ProfileKind
    after: int | None
    iterations: int
    region: Region | None
    counting: Counting | None = None

    @property
    def ncu(self) -> Counting | None:
        """`counting` if the program runs under Nsight Compute, otherwise None."""
        return self.counting if self.counting and self.counting.source == "ncu" else None


class Trial(Frozen):
    """One cell of the run matrix.

    Attributes:
        program: program to run, relative to `workloads/`.
        dialect: format of the log that the figures are read from; None if the program writes the suite's events.
        world_size: devices that train together.
        processes: number of ranks; fewer than devices if one process drives several.
        placement: the nodes in order, rank 0 on the first; empty in records older than this field, whose trials ran on one node.
        link: limits on the links between the nodes; None for unshaped links.
        probe_bytes: sizes of the messages that are timed on the job's own wires before its first step.
        iterations, warmup: measured iterations of this trial, and warm-up iterations. In a plan, 0 iterations means as many as take
            `measure_s`; the run's record has their number.
        window: iterations of a window.
        measure_s: target length of the measurement in seconds if the warm-up's rate sets `iterations`; None if they were given.
        image_shape: (channels, height, width); None if samples are not images.
        settings: model-specific and workload-specific settings, passed to the program as flags.
        epoch_iterations: iterations of one epoch in a convergence training.
        fit: iterations of training before inference.
        decode: device that decodes the JPEGs of `data`.
        gpu_memory: GPU memory that the framework allocates, if it can be configured.
        interconnect, iface, hca: requested kind of wire, interface and adapter; `placement` has the chosen ones.
        threads: intra-op threads of each process.
        oversubscribed: whether CPU workers share cores.
        cpus_per_worker: CPU cores reserved for each CPU worker, the "device" of a CPU run; None on GPUs.
        epochs: passes over the training samples that all measured iterations make.
        key: equal for trials that differ at most in scale, strategy, interconnect, repeat, profiling pass and concurrent trainings, which have
            one baseline; see `comparison_key`.
        profile: the profiling pass; None for a measured run.
    """

    framework: str
    version: str
    workload: str
    program: str
    dialect: DialectName | None = None
    model: str
    mode: Mode
    strategy: StrategyName
    kvstore: KvStore | None
    horovod: Horovod | None = None
    xla: bool = False
    oversubscribed: bool = False
    precision: Precision
    device: Device
    world_size: int
    processes: int
    nodes: int
    placement: tuple[Placed, ...] = ()
    link: Link | None = None
    probe_bytes: tuple[int, ...] = ()
    batch_per_device: int
    global_batch: int
    image_shape: tuple[int, int, int] | None
    num_classes: int | None
    data: str
    dataset: Dataset | None
    iterations: int
    warmup: int
    window: int
    epochs: float
    learning_rate: float
    momentum: float | None
    weight_decay: float | None
    seed: int
    scaling: Scaling
    interconnect: Interconnect
    iface: str | None = None
    hca: str | None = None
    threads: int
    loader_workers: int
    cpus_per_worker: int | None
    repeat: int
    key: str
    profile: ProfilePass | None = None
    settings: dict[str, int | float | str] = Field(default={})
    epoch_iterations: int | None = None
    fit: int = 0
    techniques: tuple[Technique, ...] = ()
    decode: Decode = "cpu"
    gpu_memory: GpuMemory = "as-needed"
    concurrent: Concurrent | None = None
    measure_s: float | None = None

    @property
    def measured(self) -> Trial:
        """The measured trial that a profiling pass belongs to; a measured trial itself."""
        return self.model_copy(update={"profile": None})

    @property
    def first_device(self) -> int:
        """Index of its first device on its node; 0 unless concurrent trainings have devices of their own."""
        if self.concurrent is None or self.concurrent.case != "together" or self.concurrent.shared:
            return 0
        return (self.concurrent.number - 1) * self.world_size

    @property
    def image_size(self) -> int | None:
        """Height and width of its images in pixels; None if samples are not images."""
        return self.image_shape[1] if self.image_shape else None

    @property
    def packed_at(self) -> int | None:
        """Height and width of its images if its program may read packed data; None if it reads the original files."""
        return self.image_size if self.mode == "train" else None

    @property
    def asynchronous(self) -> bool:
        """Whether ranks train asynchronously: each continues with the current weights, which others may have changed meanwhile."""
        return self.kvstore == "dist_async" or STRATEGIES[self.strategy].parameter_servers

    @property
    def way(self) -> str:
        """The strategy with its kvstore or Horovod backend: `kvstore dist_sync`, `horovod over gloo`."""
        if self.kvstore:
            return f"{self.strategy} {self.kvstore}"
        return f"{self.strategy} over {self.horovod.operations}" if self.horovod else self.strategy


class ExternalTrial(Frozen):
    """One run of a user's command: the request, and nothing that only the program knows.

    Attributes:
        command: the program and its arguments, placeholders replaced by the number of devices.
        workdir: working directory; None for the image's.
        dialect: format of its log; `auto` in a plan, and in the record of a log in no known dialect; `events` if it writes the suite's.
        batch_per_device: samples a device and step, from the user; None if the log states it.
        scaling: `strong` if the given batch is of all devices, so that each device has a share of it.
        warmup: iterations, from the program's first, that count in no figure; None for only its own warm-up.
        data: the host's folder that is mounted at `/dlscale/data`; None for none.
        cpus_per_worker: CPU cores of each CPU worker; None on GPUs.
        key: equal for runs of the same command in the same image that differ at most in scale, repeat, label and dialect.
    """

    image: str
    command: tuple[str, ...]
    label: str | None = None
    env: dict[str, str] = Field(default={})
    workdir: str | None = None
    dialect: RequestedDialect
    pattern: LogPattern | None = None
    device: Device
    world_size: int
    nodes: int = 1
    batch_per_device: int | None
    scaling: Scaling = "weak"
    warmup: int | None
    data: str | None
    cpus_per_worker: int | None
    repeat: int
    key: str

    # The suite can't profile it, it never shares its devices, and it reads its data unpacked.
    profile: ClassVar[None] = None
    concurrent: ClassVar[None] = None
    packed_at: ClassVar[None] = None

    @property
    def measured(self) -> ExternalTrial:
        """Itself: an external program has no profiling passes."""
        return self

    @property
    def name(self) -> str:
        """The user's name for it, or image and command in one short line."""
        return self.label or f"{self.image}: {textwrap.shorten(shlex.join(self.command), SHOWN, placeholder=' ...')}"


AnyTrial = Trial | ExternalTrial


def devices_in_words(device: Device, count: int, *, cores: int | None) -> str:
    """Describe a number of devices: `4 GPUs`, or `2 workers × 1 core`, since workers of one and two cores differ. `cores` None: unknown."""
    plural = "s" if count > 1 else ""
    if device == "gpu":
        return f"{count} GPU{plural}"
    return (
        f"{count} worker{plural} × {cores} core{'s' if cores > 1 else ''}" if cores else f"{count} CPU worker{plural}"
    )


def with_actual_length(trial: Trial, *, iterations: int, window: int) -> Trial:
    """Return a trial that was planned by `measure_s` with its actual length; the plan's `epochs` are those of one iteration."""
    each = trial.epochs / max(1, trial.iterations)
    return trial.model_copy(update={"iterations": iterations, "window": window, "epochs": each * iterations})


def comparison_key(facts: dict[str, str | int | float | tuple[int, ...] | tuple[str, ...] | None]) -> str:
    """Hash everything that must be equal for a speedup to be meaningful (16 hexadecimal digits)."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def title(trial: AnyTrial) -> str:
    """Describe a trial in one line: model, number and kind of devices, and the wire between nodes."""
    what = f"{trial.framework} {trial.version} {trial.model}" if isinstance(trial, Trial) else trial.name
    line = f"{what} on {devices_in_words(trial.device, trial.world_size, cores=trial.cpus_per_worker)}"
    if isinstance(trial, ExternalTrial):
        return line
    if trial.techniques:
        line += f" with {', '.join(trial.techniques)}"
    if trial.nodes > 1:
        wire = trial.placement[0].wire
        over = [*([wire.kind] if wire else []), *([trial.link.label] if trial.link else [])]
        line += f" of {trial.nodes} nodes over {', '.join(over)}"
    if trial.concurrent:
        line += f", {CASE_NAMES[trial.concurrent.case].format(trial.concurrent.number, trial.concurrent.trainings)}"
    return f"{line}, profile of {PROFILE_NAMES[trial.profile.kind]}" if trial.profile else line


def techniques_of_older_record(trial: Mapping[str, Any]) -> tuple[Technique, ...]:
    """Return the techniques of a trial whose record lacks that field: PyTorch's trainings used these two by default then."""
    if trial.get("framework") != "pytorch" or trial.get("mode") == "infer":
        return ()
    found: list[Technique] = []
    if trial.get("device") == "gpu" and trial.get("precision") != "fp32":
        found.append("channels-last")
    if trial.get("workload") != "wgan":  # which has another optimizer
        found.append("fused-optimizer")
    return tuple(found)
