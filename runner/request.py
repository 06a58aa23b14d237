"""`Request`: what the user asked for, before any default. Text from the command line is checked here and nowhere else."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from runner.dialects.base import DialectName
from runner.errors import RequestError, nearest

Precision = Literal["fp32", "tf32", "fp16", "bf16"]
Device = Literal["cpu", "gpu"]
Scaling = Literal["weak", "strong"]
Mode = Literal["train"]
EngineName = Literal["docker", "venv"]
StrategyName = Literal["single", "ddp", "kvstore", "horovod", "mirrored", "multiworker", "caffe"]
KvStore = Literal["device", "nccl", "dist_sync", "dist_sync_device", "dist_async"]
Controller = Literal["gloo", "mpi"]
Operations = Literal["nccl", "gloo", "mpi"]
Compression = Literal["none", "fp16"]
Interconnect = Literal["auto", "nvlink", "pcie", "shm", "ethernet", "infiniband", "roce"]
AskedDialect = Literal[DialectName, "events", "auto"]

# What can be asked of a program that is not the suite's; all else describes the suite's own training programs.
FOREIGN = frozenset(
    {"image", "dialect", "command", "gpus", "workers", "device", "batch", "warmup", "repeat", "data", "engine", "out"}
    | {"timeout_s", "inactivity_timeout_s"}
)

_DURATION = re.compile(r"^(\d+)(s|m|h)?$")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}


class Request(BaseModel):
    """A benchmark request. None means that the user left the choice to the suite.

    Attributes:
        gpus, workers: total numbers of devices to run on, one trial each (`GPUS=1,2,4` is a sweep).
        batch: samples per device (weak scaling) or in all (strong scaling).
        iterations: measured iterations on one device; weak scaling divides them by the number of devices.
        kvstore: MXNet's key-value store, with strategy `kvstore`.
        controller, operations, fusion_threshold_mib, cycle_time_ms, compression: Horovod's own, with strategy `horovod`.
        xla: compile the step with XLA (TensorFlow).
        oversubscribe: let CPU workers share cores.
        repeat: process-level repeats of every trial.
        image, command: run this command line in this image instead of a training program of the suite.
        dialect: what the log of that command is read in; `events` when it writes the suite's own (`workloads/events.py`).
        timeout_s, inactivity_timeout_s: wall-clock limit of one run, and limit of its silence, in seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    framework: str | None = None
    version: str | None = None
    model: str | None = None
    gpus: tuple[int, ...] | None = None
    nodes: int = 1
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
    oversubscribe: bool = False
    interconnect: Interconnect = "auto"
    iface: str | None = None
    precision: Precision = "fp32"
    mode: Mode = "train"
    data: Path | None = None
    iterations: int | None = None
    epochs: int | None = None
    warmup: int | None = None
    repeat: int = 3
    scaling: Scaling = "weak"
    engine: EngineName | None = None
    seed: int = 1
    out: Path | None = None
    image: str | None = None
    dialect: AskedDialect | None = None
    command: tuple[str, ...] = ()
    timeout_s: int = 3600
    inactivity_timeout_s: int = 600


def count(variable: str, text: str | None) -> int | None:
    """Parse a whole number of at least 1; None and the empty string mean "not given".

    Raises:
        RequestError: anything else; the sentence names the variable.
    """
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise RequestError(f"{variable}={text} is not a whole number of at least 1; type for example {variable}=4")
    return int(text)


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
    if not match or int(match[1]) < 1:
        raise RequestError(f"{variable}={text} is not a duration; type for example {variable}=90s, 15m or 2h")
    return int(match[1]) * _SECONDS[match[2]]


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


def refuse_unbuilt(request: Request) -> None:
    """Refuse what this version of the suite can't do, before anything else is looked at.

    Raises:
        RequestError: several nodes, both kinds of device, or an interconnect that one host can't have.
    """
    if request.nodes > 1 or request.hosts:
        if request.framework == "caffe":
            raise RequestError(
                "FRAMEWORK=caffe on several nodes asked, but Caffe has no distributed training; ask for one node and GPUS=n, or for "
                "FRAMEWORK=mxnet, pytorch or tensorflow"
            )
        asked = f"HOSTS={request.hosts}" if request.hosts else f"NODES={request.nodes}"
        raise RequestError(
            f"{asked} asked, this version runs on one host; leave NODES and HOSTS out and scale with GPUS or WORKERS"
        )
    if request.gpus and (request.workers or request.device == "cpu"):
        other = "WORKERS" if request.workers else "DEVICE=cpu"
        raise RequestError(f"GPUS and {other} exclude each other; ask for GPUS=n, or for DEVICE=cpu WORKERS=n")
    if request.workers and request.device == "gpu":
        raise RequestError("WORKERS counts CPU workers and DEVICE=gpu asks for GPUs; ask for GPUS=n instead")
    if request.interconnect in ("ethernet", "infiniband", "roce") or request.iface:
        asked = f"IFACE={request.iface}" if request.iface else f"INTERCONNECT={request.interconnect}"
        raise RequestError(
            f"{asked} asked, but a job on one host crosses no network; ask for INTERCONNECT=auto, nvlink, pcie or shm"
        )
    if request.iterations and request.epochs:
        raise RequestError("ITERATIONS and EPOCHS say the same thing twice; give one of them")


def refuse_mixture(request: Request) -> None:
    """Refuse words that belong to the suite's own programs beside a command line that does not, and the other way round.

    Raises:
        RequestError: half of such a request, or a flag that would be ignored; the sentence names it.
    """
    if request.image is None:
        if request.command:
            raise RequestError(
                f"{shlex.join(request.command)!r} is a command without an image to run it in; "
                "type `dlscale bench --image IMG -- COMMAND ...`, or leave it out to train a model of the suite"
            )
        if request.dialect:
            raise RequestError("--dialect reads the log of a command of yours; give --image IMG and -- COMMAND ... too")
        return
    if not request.command:
        raise RequestError(
            f"--image {request.image} without a command; type `dlscale bench --image {request.image} -- COMMAND ...`"
        )
    misplaced = sorted(request.model_fields_set - FOREIGN)
    if misplaced:
        flags = " and ".join(
            "--" + name.removesuffix("_mib").removesuffix("_ms").replace("_", "-") for name in misplaced
        )
        verb = "describes" if len(misplaced) == 1 else "describe"
        raise RequestError(
            f"{flags} {verb} a training program of the suite, --image runs your own command; say it in that"
        )
    if request.engine == "venv":
        raise RequestError(f"ENGINE=venv asked, and --image {request.image} runs in a container; ask for ENGINE=docker")
    for variable, asked in (("GPUS", request.gpus), ("WORKERS", request.workers)):
        if asked and len(asked) > 1:
            raise RequestError(
                f"{variable}={','.join(map(str, asked))} is a sweep, and a command line is written for one number of devices; "
                f"give one number, for example {variable}={asked[-1]}"
            )
    if request.dialect == "mxnet" and request.batch is None:
        raise RequestError(
            "MXNet's log does not tell the batch size; give --batch N, the samples that a device takes at once"
        )
