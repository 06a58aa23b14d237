"""`Trial`: one cell of the matrix, with nothing left to decide; `ExternalTrial`: a run of a program that is not the suite's.

`key`: what two trials share that differ in scale only.
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
    AskedDialect,
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
    Scaling,
    StrategyName,
    Technique,
)
from runner.core.wire import Link, Wire

# The longest command line in a title, in characters.
SHOWN: Final = 60

Case = Literal["one", "sequential", "together"]

# What each kind of a pass under a profiler shows.
SEEN: Final[Mapping[ProfileKind, str]] = {
    "kernels": "kernels",
    "metrics": "hardware counters",
    "memory": "memory",
    "region": "regions",
    "calls": "calls of the whole process",
}

# What a training has to do with others.
IN_WORDS: Final[Mapping[Case, str]] = {
    "one": "alone",
    "sequential": "{} of {} one after the other",
    "together": "{} of {} at once",
}


class Dataset(Frozen):
    """A folder of class folders with JPEGs, what was packed from one, or a folder of utterances.

    Attributes:
        images, classes: how many; utterances count as images without a class.
        validation_images: how many of them a training that is watched to converge keeps for validation; 0 of a packed one.
        digest: SHA-256 over the names and sizes of its files, so that two runs can tell whether they read the same.
    """

    path: str
    images: int
    classes: int
    digest: str
    validation_images: int = 0


class Horovod(Frozen):
    """How Horovod is run (its user guide: "Horovod with MPI", "Tensor Fusion").

    Attributes:
        controller: what the ranks agree through.
        fusion_threshold_mib: size up to which gradients are joined into one message; Horovod's default when None.
        cycle_time_ms: between two rounds of agreement; Horovod's default when None.
    """

    controller: Controller
    operations: Operations
    fusion_threshold_mib: int | None
    cycle_time_ms: int | None
    compression: Compression


class Placed(Frozen):
    """A node of a job: how many of its devices the job has, and how the other nodes reach it; no wire where it is the only one."""

    node: str
    devices: int
    wire: Wire | None = None


class Concurrent(Frozen):
    """A training beside others, or one of those that show what that is worth.

    Attributes:
        shared: whether those at once have all devices in common; else each has its own share of them.
    """

    trainings: int
    case: Case
    number: int
    shared: bool = False

    @property
    def label(self) -> str:
        """Case and number as part of a name: `one`, `sequential-1of2`, `together-2of2`."""
        return self.case if self.case == "one" else f"{self.case}-{self.number}of{self.trainings}"


Source = Literal["ncu", "sampler", "none"]


class Counting(Frozen):
    """Who reads the counters: `program` is the path of `ncu`, `folder` what a container has to be given for it, `reason` why it is not `ncu`."""

    source: Source
    program: str | None = None
    folder: str | None = None
    reason: str | None = None


class ProfilePass(Frozen):
    """A short run under a profiler, beside the measured ones.

    Attributes:
        kind: `kernels` traces what ran when, `metrics` reads hardware counters, `memory` what was allocated, `region` times parts of a
            step, `calls` records those of the CUDA API from the start of the process.
        after: iterations before it; None for as many as it takes to be steady.
        region: the part of each step that it looks at; None for whole steps.
        counting: who reads the hardware's counters, and why; with kind `metrics`.
    """

    kind: ProfileKind
    after: int | None
    iterations: int
    region: Region | None
    counting: Counting | None = None

    @property
    def ncu(self) -> Counting | None:
        """What is known of Nsight Compute where the program runs under it."""
        return self.counting if self.counting and self.counting.source == "ncu" else None


class Trial(Frozen):
    """One cell of the run matrix.

    Attributes:
        program: training program, relative to `workloads/`.
        dialect: what its figures are read in, where the program leaves them to the framework's own log.
        world_size: devices that train together.
        processes: ranks that drive them (fewer than devices where one process drives several).
        placement: the nodes in order, rank 0 on the first; empty in records older than this field, which ran on one.
        link: what the links between the nodes were slowed down to; None for links as they are.
        probe_bytes: sizes of the messages that are timed on the job's own wires before its first step.
        iterations, warmup: measured iterations of this trial, and those before them. 0 in a plan: as many as take `measure_s`, which the
            record of the run has.
        window: iterations between two window edges.
        measure_s: seconds that were to be measured, where iterations follow the rate of the warm-up; None where they were given.
        image_shape: (channels, height, width); None where samples are no images.
        settings: of the model and its workload alone, as flags of the program.
        epoch_iterations: of a training that is watched to converge, iterations of one epoch.
        fit: iterations of training before inference.
        decode: what decodes the JPEGs of `data`.
        gpu_memory: what the framework takes of a GPU's memory, where it can be told.
        interconnect, iface, hca: kind of wire, interface and adapter that were asked for; the chosen ones are in `placement`.
        threads: intra-op threads of each process.
        oversubscribed: whether CPU workers have to share cores.
        cpus_per_worker: CPU cores that one CPU worker, the "device" of a CPU run, has for itself; None on GPUs.
        epochs: passes over the training samples that all measured iterations make.
        key: equal for trials that differ in scale and repeat only; see `comparison_key`.
        profile: what a pass under a profiler looks for; None for a measured run.
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
        """The measured trial that a pass under a profiler looks into; a measured one itself."""
        return self.model_copy(update={"profile": None})

    @property
    def first_device(self) -> int:
        """Number of its first device on its node: trainings at once have each their own, unless they share all."""
        if self.concurrent is None or self.concurrent.case != "together" or self.concurrent.shared:
            return 0
        return (self.concurrent.number - 1) * self.world_size

    @property
    def image_size(self) -> int | None:
        """Height and width of its images in pixels; None where samples are no images."""
        return self.image_shape[1] if self.image_shape else None

    @property
    def packed_at(self) -> int | None:
        """Height and width of its images where its program may read packed data; None where it reads them as they are."""
        return self.image_size if self.mode == "train" else None

    @property
    def asynchronous(self) -> bool:
        """Whether a rank goes on with the weights that it finds, which others have changed meanwhile."""
        return self.kvstore == "dist_async" or self.strategy == "ps"

    @property
    def way(self) -> str:
        """How several devices train together, with what makes a difference: `kvstore dist_sync`, `horovod over gloo`."""
        if self.kvstore:
            return f"{self.strategy} {self.kvstore}"
        return f"{self.strategy} over {self.horovod.operations}" if self.horovod else self.strategy


class ExternalTrial(Frozen):
    """One run of a command line that is not the suite's: what was asked, and nothing that only the program knows.

    Attributes:
        command: the program and its arguments, with the number of devices in their place.
        workdir: where it starts; None for where the image says.
        dialect: what its log is read in; `auto` in a plan, and in the record of a log that is in none; `events` when it writes the
            suite's own.
        batch_per_device: samples that a device takes at once, as the user says; None where the log has to tell.
        scaling: `strong` where the batch that was told is of all devices, and a device's its share.
        warmup: iterations from the first that count in no figure; None for none beyond the program's own.
        data: the host's folder that it sees at `/dlscale/data`; None for none.
        cpus_per_worker: CPU cores that it was given for each CPU worker; None on GPUs.
        key: equal for runs of the same command in the same image that differ in scale and repeat only.
    """

    image: str
    command: tuple[str, ...]
    label: str | None = None
    env: dict[str, str] = Field(default={})
    workdir: str | None = None
    dialect: AskedDialect
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

    # No profiler of the suite's knows it, it never shares its devices, and it reads its data as they are.
    profile: ClassVar[None] = None
    concurrent: ClassVar[None] = None
    packed_at: ClassVar[None] = None

    @property
    def measured(self) -> ExternalTrial:
        """Itself: no run of it is a pass under a profiler."""
        return self

    @property
    def name(self) -> str:
        """What it is called, or image and command in one short line."""
        return self.label or f"{self.image}: {textwrap.shorten(shlex.join(self.command), SHOWN, placeholder=' ...')}"


AnyTrial = Trial | ExternalTrial


def devices_in_words(device: Device, count: int, *, cores: int | None) -> str:
    """A number of devices: `4 GPUs`; `2 workers × 1 core`, as a worker of two cores is another device. `cores` None: not known."""
    plural = "s" if count > 1 else ""
    if device == "gpu":
        return f"{count} GPU{plural}"
    return (
        f"{count} worker{plural} × {cores} core{'s' if cores > 1 else ''}" if cores else f"{count} CPU worker{plural}"
    )


def paced(trial: Trial, *, iterations: int, window: int) -> Trial:
    """A trial whose length followed its rate, with the length that it had; `epochs` of such a plan are those of one iteration."""
    each = trial.epochs / max(1, trial.iterations)
    return trial.model_copy(update={"iterations": iterations, "window": window, "epochs": each * iterations})


def comparison_key(facts: dict[str, str | int | float | tuple[int, ...] | tuple[str, ...] | None]) -> str:
    """Digest of everything that must be equal for a speedup to mean something (16 hexadecimal digits)."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def title(trial: AnyTrial) -> str:
    """A trial in one line: what, on how many of which devices, and over what where there are several nodes."""
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
        line += f", {IN_WORDS[trial.concurrent.case].format(trial.concurrent.number, trial.concurrent.trainings)}"
    return f"{line}, profile of {SEEN[trial.profile.kind]}" if trial.profile else line


def of_older(trial: Mapping[str, Any]) -> tuple[Technique, ...]:
    """What a trial used whose record is older than techniques: PyTorch's programs had two that nobody asked for."""
    if trial.get("framework") != "pytorch" or trial.get("mode") == "infer":
        return ()
    found: list[Technique] = []
    if trial.get("device") == "gpu" and trial.get("precision") != "fp32":
        found.append("channels-last")
    if trial.get("workload") != "wgan":  # which has another optimizer
        found.append("fused-optimizer")
    return tuple(found)
