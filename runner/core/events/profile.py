"""What a pass under a profiler says; what it traces goes into a table."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from runner.core.events.base import EventBase

ProfileKind = Literal["kernels", "metrics", "memory", "region"]
Region = Literal["forward", "backward", "optimizer", "input"]
"""A part of a step that a profiler can be asked to look at."""

StepPart = Literal[Region, "step"]
"""A part of a step that is timed; `step` is all but the input, where a framework runs it as one."""


class ProfileStart(EventBase):
    """A profiler begins.

    Attributes:
        source: what profiles, e.g. `torch.profiler`.
        iteration: how many went before.
        region: the part of each step that it looks at; None for whole steps.
        steady: whether the rate was steady before.
        plain_step_seconds: the last steps without it.
    """

    event: Literal["profile_start"]
    kind: ProfileKind
    source: str
    iteration: int
    region: Region | None
    steady: bool
    plain_step_seconds: tuple[float, ...]


class ProfileStop(EventBase):
    """A profiler has ended; seconds of each step under it."""

    event: Literal["profile_stop"]
    iterations: int
    step_seconds: tuple[float, ...]


class Regions(EventBase):
    """Seconds of one region in each profiled step."""

    event: Literal["regions"]
    name: StepPart
    seconds: tuple[float, ...]


class Memory(EventBase):
    """Memory of one device after a phase, and its peak within it; null where the framework can't tell."""

    event: Literal["memory"]
    phase: str
    device: str
    allocated_bytes: int | None
    reserved_bytes: int | None
    peak_bytes: int | None


class FlopCount(EventBase):
    """Floating-point operations of one sample as a framework counted them while it ran, in all and by operator."""

    event: Literal["flop_count"]
    source: str
    phase: Literal["forward", "backward"]
    flop_per_sample: float
    operators: dict[str, float] = Field(default_factory=dict)
