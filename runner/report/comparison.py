"""What the comparison of transports is made from: one row a transport and scale, every figure with its unit and interval.

Nothing here is computed: `runner/across/transports.py` makes these values, other modules of this package lay them out.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from runner.grading.model import Interval
from runner.report.summary import Row

SAMPLED = "samples of PCIe"
"""What stands for a counter of what has none: shared memory, which GPUs reach over PCIe, and PCIe itself."""


class ComparedRow(BaseModel):
    """One transport at one scale, over all repeats.

    Attributes:
        transport: the one that was used, with what is not real about it; what was asked for where no run may be used.
        row: throughput, speedup and efficiency, as in the scaling table of this transport.
        nodes: how many its devices are on.
        ratio: throughput ÷ that of the first transport at this scale; None for the first.
        sent_bytes: what was sent in a step, headers included, mean over nodes and repeats: by a node, within one by a GPU over NVLink or
            PCIe, or by all ranks over the loopback.
        gradient_bytes: what each device hands over to be exchanged in a step.
        expected_bytes: what a node sends for them at the most, mean over nodes: by a ring over all ranks, or to parameter servers.
        least_bytes: what it sends at the least: by a tree between the nodes, where the algorithm may be one.
        probe_gb_s: bus bandwidth of the largest message of the probe, in 1e9 bytes a second, median of the repeats.
        probe_bytes: size of that message.
        counted_by: who counted that: `NVML`, `kernel`, or `SAMPLED`; None where the wire has no counter.
        asked_gbit: what each node's link is held to, in 1e9 bits a second; None for links as they are.
        reached_gbit: bits that were sent ÷ wall seconds of the measured windows, of all repeats, in 1e9 bits a second.
        not_the_limit: whether the rate that was asked for was not reached and a higher one gained nothing or, where there is none, the
            exchange by itself does not fill it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    transport: str
    row: Row
    nodes: int = 1
    ratio: float | None = None
    ratio_ci95: Interval | None = None
    sent_bytes: float | None = None
    gradient_bytes: int | None = None
    expected_bytes: float | None = None
    least_bytes: float | None = None
    probe_gb_s: float | None = None
    probe_bytes: int | None = None
    counted_by: str | None = None
    asked_gbit: float | None = None
    reached_gbit: float | None = None
    not_the_limit: bool = False

    @property
    def factor(self) -> float | None:
        """Bytes that were sent ÷ bytes of the gradients."""
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
        baseline: the same training on one device, which efficiency is against; None where none is on file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    setting: str
    ground: str
    unit: str
    first: str
    rows: tuple[ComparedRow, ...]
    baseline: Row | None = None
