"""`Request`: the user's options before any default. Its fields are the options of the command line and the variables of make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from runner.core.container_spec import Mount
from runner.core.events import ProfileKind, Region
from runner.core.frozen import Frozen
from runner.core.log_pattern import LogPattern
from runner.core.strategies import StrategyName as StrategyName  # noqa: PLC0414 - a type of this module's fields
from runner.core.wire import Link

Precision = Literal["fp32", "tf32", "fp16", "bf16", "int8", "fp8"]
Device = Literal["cpu", "gpu"]
Scaling = Literal["weak", "strong"]
Mode = Literal["train", "infer", "converge"]
EngineName = Literal["docker", "podman", "apptainer", "pyxis", "venv", "host"]
BARE_ENGINES: tuple[EngineName, ...] = ("venv", "host")
"""Engines without containers."""
CONFINED: tuple[EngineName, ...] = ("docker", "podman", "apptainer")
"""Engines that give a job a read-only root, only the capabilities that it needs, and no way to gain others."""
LOGIN_ENGINES: tuple[EngineName, ...] = ("apptainer", "podman", "venv")
"""Engines that run on other machines through a login, without a daemon there."""
SLURM: Final = "slurm"
"""The value of HOSTS or CLUSTER that selects Slurm."""
KvStore = Literal["device", "nccl", "dist_sync", "dist_sync_device", "dist_async"]
Controller = Literal["gloo", "mpi"]
Operations = Literal["nccl", "gloo", "mpi"]
Compression = Literal["none", "fp16"]
Decode = Literal["cpu", "gpu"]
GpuMemory = Literal["as-needed", "all"]
Preset = Literal["reference", "tuned"]
Technique = Literal[
    "channels-last",
    "fused-optimizer",
    "space-to-depth",
    "pooling-kernel",
    "cudnn-attention",
    "loss-kernel",
    "compile",
    "kernel-search",
    "cuda-graphs",
    "local-statistics",
    "one-message",
    "bf16-gradients",
    "folded-norm",
    "persistent-norm",
    "pooling-index",
    "xla",
    "step-loop",
    "amp",
    "aggregated-updates",
]
Interconnect = Literal["auto", "nvlink", "pcie", "shm", "loopback", "ethernet", "infiniband", "roce"]
DialectName = Literal["caffe", "mxnet", "tf_cnn_benchmarks", "horovod", "nccl-tests"]
RequestedDialect = Literal[DialectName, "events", "auto"]

_STRATEGIES: Final = " or ".join(", ".join(get_args(StrategyName)).rsplit(", ", 1))
# Kinds of profile that PROFILE_REGION narrows; the others always cover all regions.
NARROWED: tuple[ProfileKind, ...] = ("kernels", "metrics")

# Options that apply to a user's command alone, each with its verb for error sentences.
COMMAND_OPTIONS: Final[Mapping[str, str]] = {
    "dialect": "reads the log of",
    "pattern": "reads the log of",
    "name": "names",
    "env": "sets a variable of",
    "workdir": "says where to start",
    "baseline": "is the baseline of",
}


@dataclass(frozen=True)
class Option:
    """A field's command-line option; `help` states the default as well.

    Metavar TIME is parsed as a duration. Numbers are at least 1, or at least 0 if the metavar is `0..`.
    """

    help: str
    metavar: str = "TEXT"
    short: str | None = None


class Request(Frozen):
    """A benchmark request. None leaves the choice to the suite. Times are in seconds.

    Fields without an `Option` have their own parser (`runner/commands/options.py`).
    """

    framework: Annotated[
        str | None,
        Option("caffe, mxnet, pytorch or tensorflow (default: one that supports the other options, pytorch preferred)"),
    ] = None
    version: Annotated[str | None, Option("image version, or a prefix of it (default: the newest that fits)")] = None
    model: Annotated[str | None, Option("network, e.g. resnet50; `dlscale models` lists them")] = None
    gpus: Annotated[tuple[int, ...] | None, Option("total number of GPUs; 1,2,4 is a sweep", "N[,N]")] = None
    nodes: Annotated[
        int | None, Option("hosts to spread over; with --link-rate, nodes to emulate on this machine", "N")
    ] = None
    hosts: Annotated[
        str | None, Option("hosts.yaml, Open MPI hostfile, a:4,b:4, or slurm: the nodes of this job", "FILE|LIST", "-H")
    ] = None
    cluster: Annotated[Literal["slurm"] | None, Option("slurm: allocate NODES whole nodes and run there")] = None
    slurm_flags: Annotated[
        str | None, Option("additional flags for salloc and sbatch, e.g. '--partition=gpu --time=30'", "FLAGS")
    ] = None
    workers: Annotated[tuple[int, ...] | None, Option("total number of CPU workers; 1,2 is a sweep", "N[,N]")] = None
    device: Annotated[Device | None, Option("cpu or gpu (default: gpu if there is one)")] = None
    batch: Annotated[int | None, Option("samples a device (weak scaling) or in total (strong)", "N")] = None
    image_size: Annotated[int | None, Option("height and width of the input", "PIXELS")] = None
    strategy: Annotated[
        StrategyName | None,
        Option(f"{_STRATEGIES} (default: the framework's usual one)"),
    ] = None
    kvstore: Annotated[KvStore | None, Option("MXNet's: device, nccl, dist_sync, dist_sync_device or dist_async")] = (
        None
    )
    controller: Annotated[Controller | None, Option("Horovod's: gloo (default) or mpi")] = None
    operations: Annotated[Operations | None, Option("Horovod's: nccl, gloo or mpi")] = None
    fusion_threshold_mib: Annotated[int | None, Option("Horovod's, in MiB (default: Horovod's own)", "0..")] = None
    cycle_time_ms: Annotated[int | None, Option("Horovod's, in ms (default: Horovod's own)", "MS")] = None
    compression: Annotated[Compression | None, Option("Horovod's, of gradients: none (default) or fp16")] = None
    preset: Annotated[Preset, Option("reference (default): the plain program; tuned: with all techniques")] = (
        "reference"
    )
    techniques: Annotated[
        tuple[Technique, ...],
        Option("use only these techniques, e.g. channels-last,compile (an unknown one lists all)"),
    ] = ()
    xla: Annotated[bool, Option("compile the step with XLA (TensorFlow)")] = False
    gpu_memory: Annotated[
        GpuMemory, Option("GPU memory that TensorFlow allocates: as-needed (default), or all at the start")
    ] = "as-needed"
    oversubscribe: Annotated[bool, Option("allow more CPU workers than cores; degrades the record")] = False
    threads: Annotated[int | None, Option("compute threads of each process (default: one a core)", "N")] = None
    interconnect: Annotated[
        tuple[Interconnect, ...],
        Option("auto, nvlink, pcie, shm, loopback, ethernet, infiniband or roce; several are a sweep"),
    ] = ("auto",)
    iface: Annotated[str | None, Option("network interface between the nodes")] = None
    hca: Annotated[str | None, Option("RDMA adapter between the nodes, e.g. mlx5_0 or mlx5_0:1")] = None
    links: tuple[Link | None, ...] | None = None
    compare: Annotated[bool, Option("run over every available wire, or over emulated links, and compare")] = False
    precision: Annotated[
        Precision, Option("fp32 (default), tf32, fp16, bf16, fp8 (language models), or with MODE=infer int8")
    ] = "fp32"
    mode: Annotated[Mode, Option("train (default), infer, or converge: train by epochs with validation")] = "train"
    data: Annotated[
        Path | None,
        Option(
            "folder of class folders with JPEGs, or a .rec, .lmdb or .tfrecord made of one (default: synthetic)", "PATH"
        ),
    ] = None
    decode: Annotated[
        Decode, Option("device that decodes the JPEGs of --data: cpu (default), or gpu by DALI (PyTorch)")
    ] = "cpu"
    loader_workers: Annotated[
        int | None,
        Option("data loader workers for each GPU or CPU worker, with --data (default: one a core, at most 8)", "N"),
    ] = None
    iterations: Annotated[
        int | None, Option("measured iterations on one device; weak scaling divides them by the devices", "N")
    ] = None
    epochs: Annotated[int | None, Option("passes over the training samples instead of iterations", "N")] = None
    warmup: Annotated[int | None, Option("iterations before the measured ones", "N")] = None
    fit: Annotated[
        int | None, Option("with MODE=infer and DATA: iterations of training before it (default: 0)", "N")
    ] = None
    concurrent: Annotated[
        int | None, Option("number of concurrent trainings, compared with running them in sequence", "N")
    ] = None
    repeat: Annotated[int, Option("process-level repeats (default: 3)", "N")] = 3
    scaling: Annotated[Scaling, Option("weak (default) or strong")] = "weak"
    engine: Annotated[
        EngineName | None,
        Option(
            "docker, podman, apptainer, pyxis (on Slurm), venv, or host: the framework installed here (default: docker if it answers)"
        ),
    ] = None
    settings: Annotated[
        tuple[tuple[str, str], ...],
        Option("other settings of the model, e.g. sequence-length=2048 (an unknown one lists all)", "NAME=VALUE[,...]"),
    ] = ()
    resume: Annotated[bool, Option("reuse runs of the same trials on file instead of running them again")] = False
    seed: Annotated[int, Option("seed of weights and data (default: 1)", "0..")] = 1
    out: Annotated[Path | None, Option("directory for records (default: results/MACHINE)", "DIR")] = None
    timeout_s: Annotated[int, Option("wall-clock limit of one run (default: 1h)", "TIME")] = 3600
    inactivity_timeout_s: Annotated[
        int | None, Option("limit of time without output (default: 10m; 30m if kernels are searched)", "TIME")
    ] = None
    telemetry_hz: Annotated[
        int, Option("samples a second of utilisation, power, ... (default: 10; 0: none)", "0..")
    ] = 10
    idle_s: Annotated[
        int | None, Option("seconds before a run for measuring idle power (default: as needed)", "0..")
    ] = None
    profile: Annotated[
        tuple[ProfileKind, ...],
        Option("add profiling passes: kernels, metrics, memory, region or calls; separate several by commas"),
    ] = ()
    profile_after: Annotated[int | None, Option("iterations before the profiler (default: until steady)", "N")] = None
    profile_iterations: Annotated[int | None, Option("profiled iterations (default: 5; with ncu 1)", "N")] = None
    profile_region: Annotated[
        Region | None, Option("profile only forward, backward, optimizer, update (backward and optimizer) or input")
    ] = None
    profile_timeout_s: Annotated[int, Option("wall-clock limit of a profiling pass (default: 15m)", "TIME")] = 900
    image: Annotated[
        str | None, Option("run in this image: a command of yours, or with --framework the suite's program")
    ] = None
    mounts: tuple[Mount, ...] = ()
    name: Annotated[str | None, Option("name of a command of yours in tables and run ids")] = None
    env: tuple[tuple[str, str], ...] = ()
    workdir: Annotated[str | None, Option("working directory of a command of yours in its image", "PATH")] = None
    baseline: Annotated[Path | None, Option("one-device run that a command of yours is compared with", "DIR")] = None
    dialect: Annotated[
        RequestedDialect | None,
        Option(f"format of its log: {', '.join(get_args(DialectName))} or events (default: auto)"),
    ] = None
    pattern: Annotated[
        LogPattern | None,
        Option(r"how to read a log in no dialect, e.g. 'time (?P<ms>[\d.]+)ms'", "REGEX|FILE.yaml"),
    ] = None
    command: tuple[str, ...] = ()
