"""The wires of a job, as two pure functions: request → environment, and evidence → the transport really used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from runner.cluster import Gpu
from runner.parse import Event, Nccl, Net, RunStart
from runner.request import Interconnect
from runner.trial import Trial
from runner.wire import Wire

Used = Literal["none", "process", "loopback", "nvlink", "pcie", "shm", "ethernet", "infiniband", "unknown"]

# Bytes of a gradient on the wire at the least: fp16.
LEAST_GRADIENT_BYTES = 2

_NCCL_VIA = re.compile(r"\bvia (P2P|SHM|NET/IB|NET/Socket)")


class InterfaceTraffic(BaseModel):
    """Bytes that one rank saw cross a network interface in the measured windows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int
    interface: str
    rx_bytes: int
    tx_bytes: int


class Evidence(BaseModel):
    """What proves the transport: byte counters before and after, and NCCL's own lines."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    traffic: tuple[InterfaceTraffic, ...]
    nccl_lines: tuple[str, ...]


class Transport(BaseModel):
    """The transport that was asked for and the one that carried the gradients; `process` is the memory of a single process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requested: Interconnect
    used: Used
    evidence: Evidence


def environment(trial: Trial, wire: Wire | None) -> dict[str, str]:
    """Translate the request into the variables of the libraries that carry gradients; on one host there is no wire.

    NCCL's are documented in "Environment Variables" of its user guide; Gloo's by torch.distributed.
    """
    if trial.world_size == 1:
        return {}
    if trial.device == "cpu":
        return {"GLOO_SOCKET_IFNAME": wire.iface if wire else "lo"} if trial.strategy == "ddp" else {}
    # NCCL writes a log per process, which the program reports; standard output stays clean.
    chosen = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH",
        "NCCL_DEBUG_FILE": "/tmp/nccl.%h.%p.log",  # noqa: S108 - the one writable place of a read-only container
        "NCCL_SOCKET_IFNAME": f"={wire.iface}" if wire else "lo",
        "GLOO_SOCKET_IFNAME": wire.iface if wire else "lo",
    }
    match trial.interconnect:
        case "shm":
            chosen["NCCL_P2P_DISABLE"] = "1"
        case "nvlink":
            chosen["NCCL_P2P_LEVEL"] = "NVL"
        case _:
            pass
    return chosen


def _traffic(events: Sequence[Event]) -> tuple[InterfaceTraffic, ...]:
    """Difference of the byte counters between the start and the stop of the measured windows."""
    counters = {(event.rank, event.where): event.interfaces for event in events if isinstance(event, Net)}
    found = []
    for (rank, where), before in sorted(counters.items()):
        after = counters.get((rank, "stop"))
        if where == "start" and after:
            found += [
                InterfaceTraffic(
                    rank=rank,
                    interface=name,
                    rx_bytes=after[name].rx_bytes - start.rx_bytes,
                    tx_bytes=after[name].tx_bytes - start.tx_bytes,
                )
                for name, start in sorted(before.items())
                if name in after
            ]
    return tuple(found)


def _via(lines: Sequence[str], gpus: Sequence[Gpu]) -> Used:
    """Name the slowest kind of channel in NCCL's lines: the ring is as fast as that one."""
    kinds = {match[1] for line in lines if (match := _NCCL_VIA.search(line))}
    if "NET/Socket" in kinds:
        return "ethernet"
    if "NET/IB" in kinds:
        return "infiniband"
    if "SHM" in kinds:
        return "shm"
    if "P2P" in kinds:
        return "nvlink" if any(gpu.nvlinks for gpu in gpus) else "pcie"
    return "unknown"


def _carried(traffic: Sequence[InterfaceTraffic], interface: str) -> int:
    """Bytes that left through an interface; ranks that share it read the same counter."""
    return max((entry.tx_bytes for entry in traffic if entry.interface == interface), default=0)


def _gradient_bytes(trial: Trial, events: Sequence[Event]) -> int:
    """What the measured iterations have to move at the least: each rank sends each gradient once."""
    parameters = next((event.parameters for event in events if isinstance(event, RunStart)), 1)
    return trial.iterations * parameters * LEAST_GRADIENT_BYTES


def used(trial: Trial, gpus: Sequence[Gpu], events: Sequence[Event]) -> Transport:
    """Turn evidence into the transport that carried the gradients of a run."""
    lines = tuple(line for event in events if isinstance(event, Nccl) for line in event.lines)
    evidence = Evidence(traffic=_traffic(events), nccl_lines=lines)
    found: Used = "unknown"
    if trial.world_size == 1:
        found = "none"
    elif trial.device == "gpu":
        found = _via(lines, gpus)
    elif trial.processes == 1:
        found = "process"
    elif _carried(evidence.traffic, "lo") >= _gradient_bytes(trial, events):
        found = "loopback"
    elif trial.horovod and trial.horovod.operations == "mpi":
        found = "shm"  # the one other way that Open MPI was left, and the gradients were not on the loopback
    return Transport(requested=trial.interconnect, used=found, evidence=evidence)


def mismatch(transport: Transport, trial: Trial) -> str | None:
    """Say in one sentence that a run did not use what was asked for; None when it did or nothing was asked."""
    if transport.requested == "auto" or trial.world_size == 1 or transport.requested == transport.used:
        return None
    return f"INTERCONNECT={transport.requested} asked, {transport.used} used; the record's transport.evidence shows by what"
