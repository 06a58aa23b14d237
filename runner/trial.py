"""`Trial`: one cell of the matrix, with nothing left to decide; `key`: what two trials share that differ in scale only."""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel, ConfigDict

from runner.request import (
    Compression,
    Controller,
    Device,
    Interconnect,
    KvStore,
    Mode,
    Operations,
    Precision,
    Scaling,
    StrategyName,
)


class Dataset(BaseModel):
    """A folder of class folders with JPEGs, or a RecordIO file packed from one.

    Attributes:
        path: where it is on the host.
        images, classes: how many.
        digest: SHA-256 over the names and sizes of its files, so that two runs can tell whether they read the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    images: int
    classes: int
    digest: str


class Horovod(BaseModel):
    """How Horovod is run (its user guide: "Horovod with MPI", "Tensor Fusion").

    Attributes:
        controller: what the ranks agree through.
        operations: what carries the gradients.
        fusion_threshold_mib: size in MiB up to which gradients are joined into one message; Horovod's default when None.
        cycle_time_ms: milliseconds between two rounds of agreement; Horovod's default when None.
        compression: of the gradients on the wire.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    controller: Controller
    operations: Operations
    fusion_threshold_mib: int | None
    cycle_time_ms: int | None
    compression: Compression


class Trial(BaseModel):
    """One cell of the run matrix.

    Attributes:
        program: training program, relative to `workloads/`.
        world_size: devices that train together.
        processes: ranks that drive them (fewer than devices where one process drives several).
        iterations, warmup: measured iterations of this trial, and those before them.
        window: iterations between two synchronized window edges.
        data: `synthetic`, or the data set's path.
        image_shape: (channels, height, width).
        threads: intra-op threads of each process.
        kvstore: MXNet's store, with strategy `kvstore`.
        horovod: with strategy `horovod`.
        xla: whether the step is compiled with XLA.
        oversubscribed: whether CPU workers have to share cores.
        cpus_per_worker: CPU cores that one CPU worker, the "device" of a CPU run, has for itself; None on GPUs.
        epochs: passes over the training samples that all measured iterations make.
        repeat: number of this process-level repeat, from 1.
        key: equal for trials that differ in scale and repeat only; see `comparison_key`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    framework: str
    version: str
    workload: str
    program: str
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
    batch_per_device: int
    global_batch: int
    image_shape: tuple[int, int, int]
    num_classes: int
    data: str
    dataset: Dataset | None
    iterations: int
    warmup: int
    window: int
    epochs: float
    learning_rate: float
    momentum: float
    weight_decay: float
    seed: int
    scaling: Scaling
    interconnect: Interconnect
    threads: int
    loader_workers: int
    cpus_per_worker: int | None
    repeat: int
    key: str


def comparison_key(facts: dict[str, str | int | float | tuple[int, ...] | None]) -> str:
    """Digest of everything that must be equal for a speedup to mean something (16 hexadecimal digits)."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
