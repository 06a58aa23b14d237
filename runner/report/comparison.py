"""What the comparison of transports is made from: one row a transport and scale, every figure with its unit and interval.

Nothing here is computed: `runner/across/transports.py` makes these values, other modules of this package lay them out.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from runner.grading.model import Interval
from runner.report.summary import Row


class ComparedRow(BaseModel):
    """One transport at one scale, over all repeats.

    Attributes:
        transport: the one that was used, with what is not real about it; what was asked for where no run may be used.
        row: throughput, speedup and efficiency, as in the scaling table of this transport.
        ratio: throughput ÷ that of the first transport at this scale; None for the first.
        sent_bytes: what left a node in a step, headers included: mean over nodes and repeats.
        gradient_bytes: what each device hands over to be exchanged in a step.
        expected_bytes: what a node sends for them at the most, mean over nodes: by a ring over all ranks, or to parameter servers.
        least_bytes: what it sends at the least: by a tree between the nodes, where the algorithm may be one.
        probe_gb_s: bus bandwidth of the largest message of the probe, in 1e9 bytes a second, median of the repeats.
        probe_bytes: size of that message.
        link_gbit: what each node's link is held to, where it is emulated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    transport: str
    row: Row
    ratio: float | None = None
    ratio_ci95: Interval | None = None
    sent_bytes: float | None = None
    gradient_bytes: int | None = None
    expected_bytes: float | None = None
    least_bytes: float | None = None
    probe_gb_s: float | None = None
    probe_bytes: int | None = None
    link_gbit: float | None = None

    @property
    def factor(self) -> float | None:
        """Bytes that left a node ÷ bytes of the gradients."""
        return self.sent_bytes / self.gradient_bytes if self.sent_bytes is not None and self.gradient_bytes else None

    @property
    def needed_bytes(self) -> tuple[float, ...]:
        """What the algorithm has a node send, the least and the most that it may be; once where that is the same, empty where it is not known."""
        return tuple(dict.fromkeys(one for one in (self.least_bytes, self.expected_bytes) if one is not None))

    @property
    def needed_factors(self) -> tuple[float, ...]:
        """The same ÷ bytes of the gradients."""
        return tuple(one / self.gradient_bytes for one in self.needed_bytes) if self.gradient_bytes else ()


class Comparison(BaseModel):
    """The transports of one matrix, which differ in nothing else.

    Attributes:
        rows: by scale, the transports in the order in which they ran.
        setting, ground: what was run, and on what, in one line each.
        first: the transport that the ratios are to.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    setting: str
    ground: str
    unit: str
    first: str
    rows: tuple[ComparedRow, ...]
