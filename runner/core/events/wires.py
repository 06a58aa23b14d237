"""What a training program says of the wires: byte counters, peers, NCCL's log, and exchanges that were timed by themselves."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from runner.core.events.base import EventBase


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
    ports: dict[str, PortBytes] = Field(default_factory=dict)
    nvlink: dict[str, Bytes] = Field(default_factory=dict)
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
