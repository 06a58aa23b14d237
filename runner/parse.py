"""Raw lines of a run → typed events. Pure: what it reads is `events.jsonl`, what it returns is frozen.

An event that the contract (`workloads/events.py`) does not know is a bug of the program and is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

PREFIX = "::dlscale:: "
# `mpirun --tag-output` writes `[job,rank]<stdout>:`, horovodrun `[rank]<stdout>:`, torchrun `[rank3]:` or `[default3]:`; the first
# two can put the date before it.
_TAG: Final = re.compile(
    r"^(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} ?)?"
    r"\[(?:(?:[^\]]*[,@])?(?P<rank>\d+)\]<std(?:out|err)>:|(?:rank|default)(?P<local>\d+)\]:)(?P<text>.*)$"
)


class EventBase(BaseModel):
    """What every event carries.

    Attributes:
        rank: rank of the process that wrote it.
        t: the process's monotonic clock in seconds.
        received: the runner's monotonic clock in seconds when the line was read.
        container: name of the container it came from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int
    t: float
    received: float
    container: str


class RunStart(EventBase):
    """The program knows its world and its model; `gradient_bytes` is what a device hands over to be exchanged in one step."""

    event: Literal["run_start"]
    world_size: int
    batch_per_device: int
    global_batch: int
    iterations: int
    warmup: int
    image_shape: tuple[int, ...]
    num_classes: int
    parameters: int
    seed: int
    gradient_bytes: int | None = None


class Env(EventBase):
    """Software and devices as the program sees them; null where absent."""

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
    """A named part of the program's life and its seconds."""

    event: Literal["phase"]
    name: str
    seconds: float


class FirstStep(EventBase):
    """The first iteration's result is on the device."""

    event: Literal["first_step"]


class WarmupEnd(EventBase):
    """The measured iterations begin."""

    event: Literal["warmup_end"]
    iterations: int


class Window(EventBase):
    """A synchronized stretch of measured iterations: this rank's own samples and wall seconds.

    `input_seconds` of them the loop waited for its next batch; None where the program can't tell.
    """

    event: Literal["window"]
    index: int
    start: float
    iterations: int
    samples: int
    seconds: float
    step_seconds: tuple[float, ...] | None = None
    input_seconds: float | None = None


class Loss(EventBase):
    """Losses of consecutive iterations, the first numbered `first_iteration`; null where a loss is not finite."""

    event: Literal["loss"]
    first_iteration: int
    values: tuple[float | None, ...]


class Eval(EventBase):
    """Losses of this process' devices on the batch that all ranks share, after `iteration` iterations; null where not finite."""

    event: Literal["eval"]
    iteration: int
    losses: tuple[float | None, ...]


class Data(EventBase):
    """What the input pipeline read, and what it could not."""

    event: Literal["data"]
    decoded: int | None = None
    skipped: tuple[str, ...] = ()


class Bytes(BaseModel):
    """Byte counters of one network interface, or of all NVLinks of one GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rx_bytes: int
    tx_bytes: int


class PortBytes(Bytes):
    """Byte counters of one port of an RDMA adapter; its link layer is `InfiniBand`, or `Ethernet` for RoCE."""

    link_layer: str


class Peer(BaseModel):
    """TCP connections of one process between two addresses; `port` is the other end's, `connections` how many there are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    local: str
    remote: str
    port: int
    connections: int


class Net(EventBase):
    """Byte counters at the start or the stop of the measured windows, and at the stop the peers of the process.

    Counters are the host's: ranks with one `node` and `namespace` read the same interfaces, ranks with one `node` the same ports.

    Attributes:
        node: the runner's name of the host; None on the only one.
        namespace: number of the network namespace; None from a program that does not tell.
        ports: by `adapter:port`.
        nvlink: by UUID of the GPU.
        peers: of this process, other hosts only; None at the start, or where the program does not tell.
        local_connections: TCP connections that never leave the host.
    """

    event: Literal["net"]
    where: Literal["start", "stop"]
    interfaces: dict[str, Bytes]
    node: str | None = None
    namespace: int | None = None
    ports: dict[str, PortBytes] = {}
    nvlink: dict[str, Bytes] = {}
    peers: tuple[Peer, ...] | None = None
    local_connections: int | None = None


class Nccl(EventBase):
    """The lines of NCCL's own log that tell the transports it chose."""

    event: Literal["nccl"]
    lines: tuple[str, ...]


class Bandwidth(EventBase):
    """A collective operation, timed by itself: `elements` of `dtype` in a message of `size_bytes` among all devices.

    `algbw_gb_s` is the message ÷ time, `busbw_gb_s` what each link carried, in units of 1e9 bytes a second
    (nccl-tests, doc/PERFORMANCE.md); `wrong` elements of the result, None where nobody checked.

    `operation` is nccl-tests' reduction (`sum`) in its log, and `all_reduce` or `push_pull` of a training program's own probe
    (`workloads/probe.py`), which also tells the `seconds` of each of its exchanges; `time_us` is then their median.
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


class Compute(EventBase):
    """Seconds of forward and backward passes that exchanged nothing, on all ranks at once."""

    event: Literal["compute"]
    seconds: tuple[float, ...] = Field(min_length=1)


class RunStop(EventBase):
    """The rank has done all its iterations; `parameter_norm` is null where it is not finite, or where nobody can read the weights."""

    event: Literal["run_stop"]
    iterations: int
    samples: int
    parameter_norm: float | None = None


Event = Annotated[
    RunStart
    | Env
    | Phase
    | FirstStep
    | WarmupEnd
    | Window
    | Loss
    | Eval
    | Data
    | Net
    | Nccl
    | Bandwidth
    | Compute
    | RunStop,
    Field(discriminator="event"),
]
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


class EventError(Exception):
    """A line that begins like an event but is none; the message says what is wrong with it."""


@dataclass(frozen=True)
class Line:
    """A line without the prefix of a launcher, and the rank that such a prefix names."""

    text: str
    rank: int | None

    @property
    def said(self) -> str:
        """The text without the space that may stand after a prefix."""
        return self.text if self.rank is None else self.text.removeprefix(" ")


def untag(text: str) -> Line:
    """Take a launcher's prefix off a line."""
    if match := _TAG.match(text):
        return Line(text=match["text"], rank=int(match["rank"] or match["local"]))
    return Line(text=text, rank=None)


def parse_line(text: str, *, received: float, container: str) -> Event | None:
    """Read one line of a program's standard output, marked with its rank or not; None when it is ordinary output.

    Raises:
        EventError: the line has the prefix and breaks the contract.
    """
    said = untag(text).said
    if not said.startswith(PREFIX):
        return None
    try:
        fields = json.loads(said[len(PREFIX) :], parse_constant=lambda _: None)
        return _EVENT.validate_python({**fields, "received": received, "container": container})
    except (json.JSONDecodeError, TypeError) as error:
        raise EventError(f"{container} wrote an event that is not a JSON object: {text[:200]!r}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise EventError(f"{container} wrote an event that breaks the contract at {where}: {first['msg']}") from error


def parse_events(lines: Iterable[str]) -> tuple[Event, ...]:
    """Read the lines of an `events.jsonl` back."""
    return tuple(_EVENT.validate_json(line) for line in lines if line.strip())
