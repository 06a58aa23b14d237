"""`dlscale bench`: every flag of a benchmark, its words turned into a `Request`, and the flow called that serves it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from runner.commands.flags import Text, flag
from runner.core import custom_image
from runner.core import request as ask
from runner.core.events.profile import ProfileKind, Region


def bench(
    *,
    framework: Annotated[
        Text, flag("--framework", help="caffe, mxnet, pytorch or tensorflow (default: the smallest image)")
    ] = None,
    version: Annotated[Text, flag("--version", help="image version (default: the newest that fits)")] = None,
    model: Annotated[Text, flag("--model", help="network, e.g. resnet50")] = None,
    gpus: Annotated[Text, flag("--gpus", help="GPUs in all; 1,2,4 is a sweep", metavar="N[,N]")] = None,
    nodes: Annotated[
        Text,
        flag("--nodes", help="hosts to spread over; with --link-rate, nodes to emulate on this machine", metavar="N"),
    ] = None,
    hosts: Annotated[
        Text, flag("--hosts", "-H", help="hosts.yaml, Open MPI hostfile, or a:4,b:4", metavar="FILE|LIST")
    ] = None,
    workers: Annotated[Text, flag("--workers", help="CPU workers in all; 1,2 is a sweep", metavar="N[,N]")] = None,
    device: Annotated[Text, flag("--device", help="cpu or gpu (default: GPUs where there are some)")] = None,
    batch: Annotated[
        Text, flag("--batch", help="samples a device (weak scaling) or in all (strong)", metavar="N")
    ] = None,
    image_size: Annotated[Text, flag("--image-size", help="height and width of the input", metavar="PIXELS")] = None,
    strategy: Annotated[
        Text,
        flag(
            "--strategy",
            help="single, ddp, kvstore, horovod, mirrored, multiworker or caffe (default: what the framework's users expect)",
        ),
    ] = None,
    kvstore: Annotated[
        Text, flag("--kvstore", help="MXNet's: device, nccl, dist_sync, dist_sync_device or dist_async")
    ] = None,
    controller: Annotated[Text, flag("--controller", help="Horovod's: gloo (default) or mpi")] = None,
    operations: Annotated[Text, flag("--operations", help="Horovod's: nccl, gloo or mpi")] = None,
    fusion_threshold: Annotated[
        Text, flag("--fusion-threshold", help="Horovod's, in MiB (default: Horovod's own)", metavar="MIB")
    ] = None,
    cycle_time: Annotated[
        Text, flag("--cycle-time", help="Horovod's, in ms (default: Horovod's own)", metavar="MS")
    ] = None,
    compression: Annotated[Text, flag("--compression", help="Horovod's, of gradients: none (default) or fp16")] = None,
    preset: Annotated[
        Text, flag("--preset", help="reference (default), the plain program, or tuned, with all that makes it faster")
    ] = None,
    techniques: Annotated[
        Text,
        flag(
            "--techniques",
            help="make it faster by these alone, e.g. channels-last,compile (PyTorch; a wrong one lists them)",
        ),
    ] = None,
    xla: Annotated[bool, typer.Option("--xla", help="compile the step with XLA (TensorFlow)")] = False,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="let more CPU workers run than there are cores; degrades the record")
    ] = False,
    threads: Annotated[
        Text,
        flag("--threads", help="computing threads of each process (default: one for each of its cores)", metavar="N"),
    ] = None,
    interconnect: Annotated[
        Text,
        flag(
            "--interconnect",
            help="auto, nvlink, pcie, shm, loopback, ethernet, infiniband or roce; several are a sweep",
        ),
    ] = None,
    iface: Annotated[Text, flag("--iface", help="network interface between the nodes")] = None,
    hca: Annotated[Text, flag("--hca", help="RDMA adapter between the nodes, e.g. mlx5_0 or mlx5_0:1")] = None,
    link_rate: Annotated[
        Text,
        flag("--link-rate", help="hold what emulated nodes send to this, e.g. 1gbit; 100mbit,1gbit,none is a sweep"),
    ] = None,
    link_delay: Annotated[
        Text, flag("--link-delay", help="add this to every packet between emulated nodes, e.g. 0.2ms")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="run over every wire that there is, or over emulated links, and compare")
    ] = False,
    precision: Annotated[
        Text, flag("--precision", help="fp32 (default), tf32, fp16, bf16, or with MODE=infer int8")
    ] = None,
    mode: Annotated[
        Text, flag("--mode", help="train (default), infer, or converge: train by epochs with validation")
    ] = None,
    data: Annotated[
        Text,
        flag(
            "--data",
            help="folder of class folders with JPEGs, or a .rec, .lmdb or .tfrecord made of one (default: synthetic)",
            metavar="PATH",
        ),
    ] = None,
    decode: Annotated[
        Text, flag("--decode", help="what decodes the JPEGs of --data: cpu (default), or gpu by nvJPEG (PyTorch)")
    ] = None,
    loader_workers: Annotated[
        Text,
        flag(
            "--loader-workers",
            help="what prepares samples of --data beside each GPU or CPU worker (default: one a core, 8 at most)",
            metavar="N",
        ),
    ] = None,
    iterations: Annotated[Text, flag("--iterations", help="measured iterations on one device", metavar="N")] = None,
    epochs: Annotated[
        Text, flag("--epochs", help="passes over the training samples instead of iterations", metavar="N")
    ] = None,
    warmup: Annotated[Text, flag("--warmup", help="iterations before the measured ones", metavar="N")] = None,
    fit: Annotated[
        Text,
        flag("--fit", help="with MODE=infer and DATA: iterations of training before it (default: 0)", metavar="N"),
    ] = None,
    concurrent: Annotated[
        Text, flag("--concurrent", help="so many trainings at once, against one after the other", metavar="N")
    ] = None,
    repeat: Annotated[Text, flag("--repeat", help="process-level repeats (default: 3)", metavar="N")] = None,
    scaling: Annotated[Text, flag("--scaling", help="weak (default) or strong")] = None,
    engine: Annotated[
        Text,
        flag(
            "--engine",
            help="docker, venv, or host: the framework that is installed here (default: docker where it answers)",
        ),
    ] = None,
    seed: Annotated[Text, flag("--seed", help="seed of weights and data (default: 1)", metavar="N")] = None,
    out: Annotated[Text, flag("--out", help="where records go (default: results/MACHINE)", metavar="DIR")] = None,
    timeout: Annotated[str, flag("--timeout", help="wall-clock limit of one run (default: 1h)", metavar="TIME")] = "1h",
    inactivity_timeout: Annotated[
        Text,
        flag(
            "--inactivity-timeout",
            help="limit of a run's silence (default: 10m; 30m where kernels are searched)",
            metavar="TIME",
        ),
    ] = None,
    telemetry_hz: Annotated[
        Text,
        flag("--telemetry-hz", help="samples a second of utilisation, power, ... (default: 10; 0: none)", metavar="N"),
    ] = None,
    idle: Annotated[
        Text,
        flag(
            "--idle", help="seconds before a run in which idle power is measured (default: what it takes)", metavar="N"
        ),
    ] = None,
    profile: Annotated[
        Text,
        flag("--profile", help="add passes under a profiler: kernels, metrics, memory or region; several with commas"),
    ] = None,
    profile_after: Annotated[
        Text, flag("--profile-after", help="iterations before the profiler (default: until steady)", metavar="N")
    ] = None,
    profile_iterations: Annotated[
        Text, flag("--profile-iterations", help="iterations under the profiler (default: 5; under ncu 1)", metavar="N")
    ] = None,
    profile_region: Annotated[
        Text, flag("--profile-region", help="profile only forward, backward, optimizer or input")
    ] = None,
    profile_timeout: Annotated[
        Text, flag("--profile-timeout", help="wall-clock limit of such a pass (default: 15m)", metavar="TIME")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the exact command lines and start nothing")] = False,
    image: Annotated[
        Text,
        flag("--image", help="run in this image instead: a command of yours, or with --framework what the suite runs"),
    ] = None,
    mount: Annotated[
        list[str] | None,
        flag(
            "--mount",
            help="with --image: show a folder of this machine in it, read-only; several with commas or again",
            metavar="SRC[:DST]",
        ),
    ] = None,
    dialect: Annotated[
        Text,
        flag(
            "--dialect",
            help="what its log is read in: caffe, mxnet, tf_cnn_benchmarks, horovod, nccl-tests or events (default: auto)",
        ),
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(help="with --image: the command, after --", metavar="COMMAND")
    ] = None,
) -> None:
    """Train in a container, measure, and leave a record: in an image of the suite or in --image IMG; -- COMMAND ... there is a program of yours."""
    asked = {
        "framework": framework or None,
        "version": version or None,
        "model": model or None,
        "gpus": ask.counts("GPUS", gpus),
        "nodes": ask.count("NODES", nodes),
        "hosts": hosts or None,
        "workers": ask.counts("WORKERS", workers),
        "device": ask.choice("DEVICE", device, ask.Device),
        "batch": ask.count("BATCH", batch),
        "image_size": ask.count("IMAGE_SIZE", image_size),
        "strategy": ask.choice("STRATEGY", strategy, ask.StrategyName),
        "kvstore": ask.choice("KVSTORE", kvstore, ask.KvStore),
        "controller": ask.choice("CONTROLLER", controller, ask.Controller),
        "operations": ask.choice("OPERATIONS", operations, ask.Operations),
        "fusion_threshold_mib": ask.whole("FUSION_THRESHOLD", fusion_threshold),
        "cycle_time_ms": ask.count("CYCLE_TIME", cycle_time),
        "compression": ask.choice("COMPRESSION", compression, ask.Compression),
        "preset": ask.choice("PRESET", preset, ask.Preset),
        "techniques": ask.choices("TECHNIQUES", techniques, ask.Technique),
        "xla": xla or None,
        "oversubscribe": oversubscribe or None,
        "threads": ask.count("THREADS", threads),
        "interconnect": ask.choices("INTERCONNECT", interconnect, ask.Interconnect),
        "iface": iface or None,
        "hca": hca or None,
        "links": ask.links(link_rate, link_delay),
        "compare": compare or None,
        "precision": ask.choice("PRECISION", precision, ask.Precision),
        "mode": ask.choice("MODE", mode, ask.Mode),
        "data": Path(data) if data else None,
        "decode": ask.choice("DECODE", decode, ask.Decode),
        "loader_workers": ask.count("LOADER_WORKERS", loader_workers),
        "iterations": ask.count("ITERATIONS", iterations),
        "epochs": ask.count("EPOCHS", epochs),
        "warmup": ask.count("WARMUP", warmup),
        "fit": ask.count("FIT", fit),
        "concurrent": ask.count("CONCURRENT", concurrent),
        "repeat": ask.count("REPEAT", repeat),
        "scaling": ask.choice("SCALING", scaling, ask.Scaling),
        "engine": ask.choice("ENGINE", engine, ask.EngineName),
        "seed": ask.whole("SEED", seed),
        "out": Path(out) if out else None,
        "timeout_s": ask.seconds("TIMEOUT", timeout),
        "inactivity_timeout_s": ask.seconds("INACTIVITY_TIMEOUT", inactivity_timeout) if inactivity_timeout else None,
        "telemetry_hz": ask.whole("TELEMETRY_HZ", telemetry_hz),
        "idle_s": ask.whole("IDLE", idle),
        "profile": ask.choices("PROFILE", profile, ProfileKind),
        "profile_after": ask.count("PROFILE_AFTER", profile_after),
        "profile_iterations": ask.count("PROFILE_ITERATIONS", profile_iterations),
        "profile_region": ask.choice("PROFILE_REGION", profile_region, Region),
        "profile_timeout_s": ask.seconds("PROFILE_TIMEOUT", profile_timeout) if profile_timeout else None,
        "image": image or None,
        "mounts": custom_image.mounts(mount),
        "dialect": ask.choice("DIALECT", dialect, ask.AskedDialect),
        "command": tuple(command) if command else None,
    }
    request = custom_image.request_of(asked)
    from runner.run import bench as flow  # noqa: PLC0415 - commands load what they need

    raise typer.Exit(flow.dry_run(request) if dry_run else flow.bench(request, command=tuple(sys.argv)))
