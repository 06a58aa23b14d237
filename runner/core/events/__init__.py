"""The events of a run, typed: the runner's side of the contract that `workloads/events.py` writes. `parse` reads them.

An event that is not here is a bug of the program that wrote it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from runner.core.events.base import EventBase
from runner.core.events.monitor import MonitoredGpu, MonitorStart, MonitorStop, PowerReading, Trouble
from runner.core.events.profile import (
    FlopCount,
    Memory,
    ProfileKind,
    ProfileStart,
    ProfileStop,
    Region,
    Regions,
    StepPart,
)
from runner.core.events.quality import Accuracy, Epoch, Latency, Validated
from runner.core.events.training import (
    PAUSE_S,
    BatchUsed,
    Compiled,
    CpuPeak,
    Data,
    Env,
    Eval,
    FirstStep,
    FlopPerSample,
    InputAlone,
    Loss,
    Pace,
    Phase,
    RunStart,
    RunStop,
    Steps,
    Usage,
    WarmupEnd,
    Window,
)
from runner.core.events.wires import Bandwidth, Bytes, Compute, Nccl, Net, Peer, PortBytes

__all__ = [
    "PAUSE_S",
    "Accuracy",
    "Bandwidth",
    "BatchUsed",
    "Bytes",
    "Compiled",
    "Compute",
    "CpuPeak",
    "Data",
    "Env",
    "Epoch",
    "Eval",
    "Event",
    "EventBase",
    "FirstStep",
    "FlopCount",
    "FlopPerSample",
    "InputAlone",
    "Latency",
    "Loss",
    "Memory",
    "MonitorStart",
    "MonitorStop",
    "MonitoredGpu",
    "Nccl",
    "Net",
    "Pace",
    "Peer",
    "Phase",
    "PortBytes",
    "PowerReading",
    "ProfileKind",
    "ProfileStart",
    "ProfileStop",
    "Region",
    "Regions",
    "RunStart",
    "RunStop",
    "StepPart",
    "Steps",
    "Trouble",
    "Usage",
    "Validated",
    "WarmupEnd",
    "Window",
]

Event = Annotated[
    RunStart
    | Env
    | Phase
    | CpuPeak
    | FirstStep
    | Compiled
    | Pace
    | WarmupEnd
    | Steps
    | Window
    | Loss
    | Eval
    | Epoch
    | Accuracy
    | Latency
    | BatchUsed
    | Data
    | InputAlone
    | Net
    | Usage
    | Nccl
    | Bandwidth
    | Compute
    | RunStop
    | ProfileStart
    | ProfileStop
    | Regions
    | Memory
    | FlopCount
    | MonitorStart
    | Trouble
    | MonitorStop,
    Field(discriminator="event"),
]
