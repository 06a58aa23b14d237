"""`EventBase`: what every event carries."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


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
