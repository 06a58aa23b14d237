"""What the sampler of a node says of itself; its samples go into a table."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from runner.core.events.base import EventBase

PowerReading = Literal["instant", "usage"]


class MonitoredGpu(BaseModel):
    """A GPU that a node's sampler asks.

    Attributes:
        counters: where its pipes' utilisation comes from, None for nowhere.
        power_reading: by NVML_FI_DEV_POWER_INSTANT or by nvmlDeviceGetPowerUsage; None of samplers that knew the latter only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    uuid: str
    name: str
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    counters: Literal["gpm", "dcgm"] | None = None
    power_reading: PowerReading | None = None


class MonitorStart(EventBase):
    """A node's sampler begins; `sources` has, for each that it knows, None or why there is nothing of it."""

    event: Literal["monitor_start"]
    node: str
    hz: float
    gpus: tuple[MonitoredGpu, ...] = ()
    cores: int | None = None
    sources: dict[str, str | None] = Field(default_factory=dict)


class Trouble(EventBase):
    """Columns of one device of a node begin to be missing, and why."""

    event: Literal["trouble"]
    device: str
    fields: tuple[str, ...]
    reason: str


class MonitorStop(EventBase):
    """A node's sampler has ended; `cpu_s` is what it used itself."""

    event: Literal["monitor_stop"]
    samples: int
    seconds: float
    cpu_s: float
