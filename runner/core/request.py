"""`Request`: what the user asked for, before any default. Text from the command line is checked here and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

from runner.core.container_spec import Mount
from runner.core.errors import RequestError, nearest, shorten
from runner.core.events.profile import ProfileKind, Region
from runner.core.frozen import Frozen
from runner.core.limits import bounded
from runner.core.wire import Link, parse_delay, parse_rate

Precision = Literal["fp32", "tf32", "fp16", "bf16", "int8"]
Device = Literal["cpu", "gpu"]
Scaling = Literal["weak", "strong"]
Mode = Literal["train", "infer", "converge"]
EngineName = Literal["docker", "venv", "host"]
BARE_ENGINES: tuple[EngineName, ...] = ("venv", "host")
"""Those without containers, which so run on this machine alone."""
StrategyName = Literal["single", "ddp", "kvstore", "horovod", "mirrored", "multiworker", "caffe"]
KvStore = Literal["device", "nccl", "dist_sync", "dist_sync_device", "dist_async"]
Controller = Literal["gloo", "mpi"]
Operations = Literal["nccl", "gloo", "mpi"]
Compression = Literal["none", "fp16"]
Decode = Literal["cpu", "gpu"]
Preset = Literal["reference", "tuned"]
Technique = Literal[
    "channels-last",
    "fused-optimizer",
    "space-to-depth",
    "pooling-kernel",
    "compile",
    "kernel-search",
    "cuda-graphs",
    "local-statistics",
    "one-message",
    "bf16-gradients",
]
Interconnect = Literal["auto", "nvlink", "pcie", "shm", "loopback", "ethernet", "infiniband", "roce"]
DialectName = Literal["caffe", "mxnet", "tf_cnn_benchmarks", "horovod", "nccl-tests"]
AskedDialect = Literal[DialectName, "events", "auto"]

# Kinds of a profile that PROFILE_REGION narrows; the others tell of all regions anyway.
NARROWED: tuple[ProfileKind, ...] = ("kernels", "metrics")

_DURATION = re.compile(r"^(\d+)(s|m|h)?$", re.ASCII)
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}


class Request(Frozen):
    """A benchmark request. None means that the user left the choice to the suite.

    Attributes:
        gpus, workers: total numbers of devices to run on, one trial each (`GPUS=1,2,4` is a sweep).
        batch: samples per device (weak scaling) or in all (strong scaling).
        iterations: measured iterations on one device; weak scaling divides them by the number of devices.
        kvstore: MXNet's key-value store, with strategy `kvstore`.
        controller, operations, fusion_threshold_mib, cycle_time_ms, compression: Horovod's own, with strategy `horovod`.
        xla: compile the step with XLA (TensorFlow).
        oversubscribe: let CPU workers share cores.
        threads: of each process, instead of one for each of its cores.
        interconnect: what carries the gradients; several are a sweep, one trial each.
        iface, hca: network interface and RDMA adapter by name.
        hosts: file or list of the machines to run on.
        nodes: how many of them, each with as many devices; with `links` and without `hosts`, how many to emulate on this machine.
        links: what the links between emulated nodes are held to; None in it for links as they are. Several are a sweep.
        compare: run over every wire that there is.
        preset: `reference`, the plain program, or `tuned`, all that makes it faster here.
        techniques: ways to be faster than the plain program, by name.
        decode: what decodes the JPEGs of `data`.
        loader_workers: processes or threads that prepare samples, beside each GPU or CPU worker.
        fit: iterations of training before inference, so that its accuracy tells something.
        concurrent: so many trainings at once, against one after the other.
        repeat: process-level repeats of every trial.
        image: run in this image instead of the suite's own.
        mounts: what of this machine is shown in that image.
        command: run this command line in it instead of a training program of the suite.
        dialect: what the log of that command is read in; `events` when it writes the suite's own (`workloads/events.py`).
        timeout_s, inactivity_timeout_s: wall-clock limit of one run, and limit of its silence, in seconds; None for what the training
            may need (`runner/run/execute.py`).
        telemetry_hz: samples a second of what the devices and the host do; 0 for none.
        idle_s: seconds before each run in which power is measured that nothing uses, where power can be measured; None for what that
            takes beyond the time in which GPUs rest anyway.
        profile: what passes under a profiler look for; each is a run of its own after the measured ones.
        profile_after: iterations before the profiler; None for as many as it takes to be steady.
        profile_iterations: iterations under it; None for five, or one where every kernel is replayed.
        profile_region: the part of each step that it looks at; None for whole steps.
        profile_timeout_s: wall-clock limit of such a pass in seconds.
    """

    framework: str | None = None
    version: str | None = None
    model: str | None = None
    gpus: tuple[int, ...] | None = None
    nodes: int | None = None
    hosts: str | None = None
    workers: tuple[int, ...] | None = None
    device: Device | None = None
    batch: int | None = None
    image_size: int | None = None
    strategy: StrategyName | None = None
    kvstore: KvStore | None = None
    controller: Controller | None = None
    operations: Operations | None = None
    fusion_threshold_mib: int | None = None
    cycle_time_ms: int | None = None
    compression: Compression | None = None
    xla: bool = False
    preset: Preset = "reference"
    techniques: tuple[Technique, ...] = ()
    oversubscribe: bool = False
    threads: int | None = None
    interconnect: tuple[Interconnect, ...] = ("auto",)
    iface: str | None = None
    hca: str | None = None
    links: tuple[Link | None, ...] | None = None
    compare: bool = False
    precision: Precision = "fp32"
    mode: Mode = "train"
    data: Path | None = None
    decode: Decode = "cpu"
    loader_workers: int | None = None
    iterations: int | None = None
    epochs: int | None = None
    warmup: int | None = None
    fit: int | None = None
    concurrent: int | None = None
    repeat: int = 3
    scaling: Scaling = "weak"
    engine: EngineName | None = None
    seed: int = 1
    out: Path | None = None
    image: str | None = None
    mounts: tuple[Mount, ...] = ()
    dialect: AskedDialect | None = None
    command: tuple[str, ...] = ()
    timeout_s: int = 3600
    inactivity_timeout_s: int | None = None
    telemetry_hz: int = 10
    idle_s: int | None = None
    profile: tuple[ProfileKind, ...] = ()
    profile_after: int | None = None
    profile_iterations: int | None = None
    profile_region: Region | None = None
    profile_timeout_s: int = 900


def count(variable: str, text: str | None) -> int | None:
    """Parse a whole number of at least 1; None and the empty string mean "not given".

    Raises:
        RequestError: anything else, or more than can be taken (`runner/core/limits.py`); the sentence names the variable.
    """
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not text.strip("0"):
        raise RequestError(
            f"{variable}={shorten(text)} is not a whole number of at least 1; type for example {variable}=4"
        )
    return bounded(variable, text)


def counts(variable: str, text: str | None) -> tuple[int, ...] | None:
    """Parse a comma-separated sweep of whole numbers, e.g. `1,2,4`, into ascending, distinct numbers."""
    if not text:
        return None
    values = {count(variable, part.strip()) for part in text.split(",")}
    found = sorted(value for value in values if value is not None)
    if len(found) != len(values):
        raise RequestError(f"{variable}={text} has an empty place; type for example {variable}=1,2,4")
    return tuple(found)


def whole(variable: str, text: str | None) -> int | None:
    """Parse a whole number of at least 0; None and the empty string mean "not given"."""
    return 0 if text == "0" else count(variable, text)


def seconds(variable: str, text: str) -> int:
    """Parse a duration such as `90`, `90s`, `15m` or `2h` into seconds."""
    match = _DURATION.match(text)
    if not match or not match[1].strip("0"):
        raise RequestError(f"{variable}={shorten(text)} is not a duration; type for example {variable}=90s, 15m or 2h")
    return bounded(variable, str(bounded(variable, match[1]) * _SECONDS[match[2]]))


def choice(variable: str, text: str | None, allowed: object) -> str | None:
    """Check a word against the values of a Literal type.

    Raises:
        RequestError: not one of them; the sentence lists them, nearest first.
    """
    if not text:
        return None
    known = get_args(allowed)
    if text not in known:
        raise RequestError(f"unknown {variable} {text!r}; known: {nearest(text, known)}")
    return text


def choices(variable: str, text: str | None, allowed: object) -> tuple[str, ...] | None:
    """Check a comma-separated sweep of words against the values of a Literal type; each counts once, in the order given.

    Raises:
        RequestError: one of them is unknown, or a place is empty.
    """
    if not text:
        return None
    words = [choice(variable, part.strip(), allowed) for part in text.split(",")]
    found = tuple(dict.fromkeys(word for word in words if word))
    if not all(words):
        raise RequestError(
            f"{variable}={text} has an empty place; type for example {variable}={','.join(get_args(allowed)[:2])}"
        )
    return found


def links(rate: str | None, delay: str | None) -> tuple[Link | None, ...] | None:
    """Parse LINK_RATE, a comma-separated sweep of tc's rates in which `none` is a link as it is, and LINK_DELAY.

    Raises:
        RequestError: no rate or no delay.
    """
    if not rate and not delay:
        return None
    try:
        delay_ms = parse_delay(delay) if delay else 0.0
        words = [word.strip() for word in (rate or "none").split(",")]
        rates = [None if word == "none" else parse_rate(word) for word in words]
    except ValueError as error:
        raise RequestError(f"LINK_RATE={rate or ''} LINK_DELAY={delay or ''}: {error}") from error
    found = [
        None if rate_mbit is None and not delay_ms else Link(rate_mbit=rate_mbit, delay_ms=delay_ms, emulated=True)
        for rate_mbit in rates
    ]
    return tuple(dict.fromkeys(found))


def refuse_contradictions(request: Request) -> None:
    """Refuse words that exclude each other, before anything is looked at.

    Raises:
        RequestError: both kinds of device, nodes without machines to be them, a network on one host, or a profiler's settings without
            one.
    """
    _refuse_nodes(request)
    _refuse_profile(request)
    if request.gpus and (request.workers or request.device == "cpu"):
        other = "WORKERS" if request.workers else "DEVICE=cpu"
        raise RequestError(f"GPUS and {other} exclude each other; ask for GPUS=n, or for DEVICE=cpu WORKERS=n")
    if request.workers and request.device == "gpu":
        raise RequestError("WORKERS counts CPU workers and DEVICE=gpu asks for GPUs; ask for GPUS=n instead")
    _refuse_modes(request)
    _refuse_input(request)
    if request.techniques and request.preset == "tuned":
        raise RequestError("PRESET=tuned is all techniques that there are here, TECHNIQUES some; give one of them")
    if request.iterations and request.epochs:
        raise RequestError("ITERATIONS and EPOCHS say the same thing twice; give one of them")


def _refuse_modes(request: Request) -> None:
    """Refuse what a mode would ignore."""
    if request.mode == "infer":
        if request.techniques or request.preset == "tuned":
            variable = "TECHNIQUES" if request.techniques else "PRESET=tuned"
            raise RequestError(f"{variable} makes training faster, and MODE=infer does not train; leave it out")
        if request.profile:
            raise RequestError("PROFILE looks into training, and MODE=infer does not train; leave one of them out")
        if request.strategy not in (None, "single"):
            raise RequestError(f"STRATEGY={request.strategy} joins devices, and MODE=infer has one; leave it out")
    elif request.fit is not None:
        raise RequestError(
            f"FIT trains before inference, and MODE={request.mode} is none; add MODE=infer or leave it out"
        )
    if request.mode == "converge":
        for variable, given in (("ITERATIONS", request.iterations), ("PROFILE", request.profile)):
            if given:
                raise RequestError(f"{variable} does not go with MODE=converge, which trains by EPOCHS; leave it out")
    if request.concurrent:
        _refuse_concurrent(request)


def _refuse_input(request: Request) -> None:
    """Refuse ways to read data where there are none to read, or where they can't be gone."""
    for variable, given in (("DECODE=gpu", request.decode == "gpu"), ("LOADER_WORKERS", request.loader_workers)):
        if given and request.data is None:
            raise RequestError(f"{variable} is about real data, and none are given; add DATA=DIR, or leave it out")
    if request.decode == "gpu":
        if request.device == "cpu" or request.workers:
            raise RequestError(
                "DECODE=gpu decodes on the GPU that trains, and CPUs are asked for; ask for GPUS=n instead"
            )
        if request.mode == "infer":
            raise RequestError("DECODE=gpu feeds a training, and MODE=infer does not train; leave it out")


def _refuse_concurrent(request: Request) -> None:
    """Refuse what has no meaning beside trainings at once on one machine."""
    if request.mode != "train":
        raise RequestError(f"CONCURRENT counts trainings, and MODE={request.mode} asked; leave one of them out")
    if request.concurrent == 1:
        raise RequestError("CONCURRENT=1 is one training beside none; ask for CONCURRENT=2 or more, or leave it out")
    for variable, given in (
        ("PROFILE", request.profile),
        ("HOSTS", request.hosts),
        ("NODES", request.nodes),
        ("COMPARE", request.compare),
    ):
        if given:
            raise RequestError(
                f"{variable} does not go with CONCURRENT, which runs trainings at once on one machine; leave one of them out"
            )


def _refuse_profile(request: Request) -> None:
    """Refuse settings of a pass under a profiler that nobody asked for, or that does not know them."""
    if not request.profile:
        given = sorted(name for name in request.model_fields_set if name.startswith("profile_"))
        if given:
            variables = " and ".join(name.removesuffix("_s").upper() for name in given)
            verb = "describes" if len(given) == 1 else "describe"
            raise RequestError(
                f"{variables} {verb} a pass under a profiler, and none is asked for; add PROFILE=kernels"
            )
        return
    if "metrics" in request.profile and not request.telemetry_hz:
        raise RequestError(
            "PROFILE=metrics has the counters read by the node's sampler where ncu can't, and TELEMETRY_HZ=0 asks for none; leave it out"
        )
    if request.profile_region and not set(request.profile) & set(NARROWED):
        raise RequestError(
            f"PROFILE_REGION={request.profile_region} narrows PROFILE={' and '.join(NARROWED)}, and PROFILE={','.join(request.profile)} tells of "
            "all regions; leave it out"
        )


def _refuse_nodes(request: Request) -> None:
    """Refuse several nodes where there is one machine, or a program that knows one; and a network where there is one node."""
    several = request.hosts is not None or (request.nodes or 1) > 1
    if several and request.framework == "caffe":
        raise RequestError(
            "FRAMEWORK=caffe on several nodes asked, but Caffe has no distributed training; ask for one node and GPUS=n, or for "
            "FRAMEWORK=mxnet, pytorch or tensorflow"
        )
    if several and request.engine in BARE_ENGINES:
        raise RequestError(
            f"ENGINE={request.engine} runs on this machine alone; leave it out: several nodes run in containers"
        )
    if several and request.command:
        raise RequestError(
            "--image runs a command of yours on one host; leave HOSTS and NODES out, or train a model of the suite on several"
        )
    if request.links and request.hosts:
        raise RequestError(
            f"LINK_RATE and LINK_DELAY slow the links of nodes that are emulated on this machine, and HOSTS={request.hosts} names real "
            "ones, whose links are never touched; leave one of them out"
        )
    if request.links and not several:
        raise RequestError(
            "LINK_RATE and LINK_DELAY slow the links between nodes, and there is one node; add NODES=2 to emulate two on this machine"
        )
    if several and not request.hosts and not request.links:
        raise RequestError(
            f"NODES={request.nodes} asked, but no machines for them; add HOSTS=hosts.yaml (or HOSTS=a:4,b:4), or LINK_RATE=1gbit to emulate "
            "them on this machine"
        )
    network = [kind for kind in request.interconnect if kind in ("ethernet", "infiniband", "roce")]
    if not several and (network or request.iface or request.hca):
        asked = network[0] if network else None
        word = f"INTERCONNECT={asked}" if asked else f"IFACE={request.iface}" if request.iface else f"HCA={request.hca}"
        raise RequestError(
            f"{word} asked, but a job on one host crosses no network; ask for INTERCONNECT=auto, nvlink, pcie, shm or loopback, or add HOSTS"
        )
