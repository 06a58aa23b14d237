"""Runs that differ only in their wires → one row per transport and scale, each figure with its unit and interval. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, get_args

from runner.analysis.comparisons.grouping import (
    Names,
    Run,
    alike,
    of_batch,
    ratio,
    slug,
    threads,
    trial_of,
    usable,
    versions,
)
from runner.analysis.interconnect.evidence import least_factor
from runner.analysis.summarize import Row, between, summarize, version_of
from runner.core.frozen import Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.request import Interconnect
from runner.core.transport import CountedWire
from runner.core.trial import Trial

SAMPLED: Final = "samples of PCIe"
"""In place of a counter, for wires without one: shared memory, which GPUs reach over PCIe, and PCIe itself."""
COUNTERS: Final[Mapping[CountedWire, str]] = {
    "nvlink": "NVML",
    "pcie": SAMPLED,
    "loopback": "kernel",
    "sockets": "kernel",
    "rdma": "kernel",
}
_KINDS: Final[tuple[Interconnect, ...]] = get_args(Interconnect)
# The kernel counts headers, too, so a link that is busy for the whole step reaches nearly its rate (0.92 of 1 Gbit/s and 0.91 of 10 in
# 20261122T021304Z-bdf7 and 20261122T062504Z-bc42); below this share it is idle part of the time.
FILLED: Final = 0.9
# The link was the limit nevertheless if a faster one speeds up the training this much: computing and sending take turns.
FASTER: Final = 1.05


class ComparedRow(Frozen):
    """One transport at one scale over all repeats, labelled by the transport used, or by the one requested if no run is usable.

    `sent_bytes` is per step, headers included, averaged over nodes and repeats: of a node, within one node of a GPU over NVLink or PCIe, or
    of all ranks over the loopback. To exchange `gradient_bytes` per device, a node sends at most `expected_bytes`, by a ring over all ranks
    or to parameter servers, and at least `least_bytes`, by a tree between the nodes if the algorithm may be one. `reached_gbit` is over the
    wall time of the measured windows; rates are 1e9 bytes or bits a second.
    """

    transport: str
    row: Row
    nodes: int = 1
    ratio: float | None = None  # to the first transport at this scale
    ratio_ci95: Interval | None = None
    sent_bytes: float | None = None
    gradient_bytes: int | None = None
    expected_bytes: float | None = None
    least_bytes: float | None = None
    probe_gb_s: float | None = None  # bus bandwidth of the probe's largest message, median of the repeats
    probe_bytes: int | None = None
    counted_by: str | None = None
    asked_gbit: float | None = None  # None if no rate was set
    reached_gbit: float | None = None
    not_the_limit: bool = False

    @property
    def factor(self) -> float | None:
        """Bytes sent ÷ bytes of the gradients."""
        return self.sent_bytes / self.gradient_bytes if self.sent_bytes is not None and self.gradient_bytes else None

    @property
    def needed_bytes(self) -> tuple[float, ...]:
        """The least and the most that the algorithm may have a node send; one value if they are equal, empty if unknown."""
        return tuple(dict.fromkeys(one for one in (self.least_bytes, self.expected_bytes) if one is not None))

    @property
    def needed_factors(self) -> tuple[float, ...]:
        """`needed_bytes` ÷ bytes of the gradients."""
        return tuple(one / self.gradient_bytes for one in self.needed_bytes) if self.gradient_bytes else ()


class Comparison(Frozen):
    """The transports of one training that differ in nothing else: by scale, in run order.

    Ratios are to `first`; `baseline` is the same training on one device, the baseline of efficiency; None if none is on file.
    """

    title: str
    setting: str
    ran_on: str
    unit: str
    first: str
    rows: tuple[ComparedRow, ...]
    baseline: Row | None = None
    notes: tuple[str, ...] = ()  # what else differs between the runs


@dataclass(frozen=True)
class Curve:
    """The runs over one kind of connection (`own`), and `runs`, which adds those that all curves share.

    `label` is the transport used, or the one requested if no run is usable.
    """

    label: str
    runs: tuple[Run, ...]
    own: tuple[Run, ...]

    @property
    def slug(self) -> str:
        """The label as part of a file name: `ethernet-eth0-emulated-1gbit`."""
        return slug([self.label]).strip("-")


def across(runs: Sequence[Run]) -> dict[str, tuple[Run, ...]]:
    """Group runs of several matrices that differ only in their wires, by report name; the closest devices come first.

    The one-device baselines of efficiency follow the runs on several devices.
    """
    names = Names()
    by_id = {record.run_id: (path, record) for path, record in runs}
    found: dict[str, tuple[Run, ...]] = {}
    for own in alike(
        runs,
        but=("interconnect", "link", "nodes"),
        wanted=lambda trial: trial.world_size > 1,
        also=lambda record, trial: (version_of(record), record.engine, str(trial.cpus_per_worker), str(threads(trial))),
    ):
        ways = {(trial.nodes, trial.interconnect, trial.link) for trial in map(trial_of, own)}
        if len(ways) > 1 and len({record.matrix_id for _, record in own}) > 1:
            bases = dict.fromkeys(record.scaling.baseline_run_id for _, record in own)
            one = (by_id[base] for base in bases if base in by_id)
            found[names.take(of_batch("wires", own[0]))] = (*sorted(own, key=_distance), *one)
    return found


def _distance(run: Run) -> tuple[int, int, float]:
    """Sort key: fewer nodes first, then the order of `Interconnect`, then faster links first."""
    trial = trial_of(run)
    rate = trial.link.rate_mbit if trial.link else None
    return trial.nodes, _KINDS.index(trial.interconnect), -(math.inf if rate is None else rate)


def curves(runs: Sequence[Run], *, of_one_matrix: bool = True) -> tuple[Curve, ...]:
    """Split runs by the wires that they requested, in order of appearance; one curve if all requested the same.

    With `of_one_matrix`, one-node runs belong to every curve if others cross a wire.
    """
    several_nodes = of_one_matrix and any(_nodes(record) > 1 for _, record in runs)

    def wires(run: Run) -> tuple[str, str | None, str, int] | None:
        """The wires that a run requested; None if it crosses none."""
        trial = run[1].trial
        if not isinstance(trial, Trial) or trial.world_size == 1 or (several_nodes and _nodes(run[1]) == 1):
            return None
        link = trial.link.label if trial.link else ""
        return trial.interconnect, trial.iface or trial.hca, link, 1 if of_one_matrix else trial.nodes

    requested = [(wires(run), run) for run in runs]
    ways = {way: tuple(run for own, run in requested if own == way) for way, _ in requested if way}
    if len(ways) < 2:  # noqa: PLR2004
        return (Curve(label="", runs=tuple(runs), own=()),)
    labels = [_label(own, interconnect, link, nodes) for (interconnect, _, link, nodes), own in ways.items()]
    return tuple(
        Curve(
            label=label if labels.count(label) == 1 else f"{label}, asked as {way[0]}",
            runs=tuple(run for other, run in requested if other in (None, way)),
            own=own,
        )
        for label, (way, own) in zip(labels, ways.items(), strict=True)
    )


def compare(found: Sequence[Curve]) -> Comparison:
    """Compare curves side by side; requires at least two."""
    summaries = [summarize(curve.runs) for curve in found]
    rows = []
    for scale in sorted({record.trial.world_size for curve in found for _, record in curve.own}):
        base = _runs_at(found[0], scale)
        for curve, summary in zip(found, summaries, strict=True):
            if own := _runs_at(curve, scale):
                row = next(row for row in summary.rows if row.scale == scale)
                rows.append(_compared(curve.label, row, own, [] if curve is found[0] else base))
    return Comparison(
        title=summaries[0].title,
        setting=summaries[0].setting,
        ran_on=summaries[0].ran_on,
        unit=summaries[0].rate_unit,
        first=found[0].label,
        rows=tuple(row.model_copy(update={"not_the_limit": _not_the_limit(row, rows)}) for row in rows),
        baseline=next((row for summary in summaries for row in summary.rows if row.scale == 1), None),
        notes=tuple(versions([run for curve in found for run in curve.own], but="wire")),
    )


def _not_the_limit(row: ComparedRow, rows: Sequence[ComparedRow]) -> bool:
    """Whether a link was not full and a faster one is less than `FASTER` times as fast or, if none ran, even the exchange alone does not fill it.

    A link that idles during a step may still be the limit, since computing and sending take turns. The exchange alone sends at most at its
    bus bandwidth, as a ring does.
    """
    rate_gbit, rate = row.asked_gbit, row.row.throughput
    if rate_gbit is None or row.reached_gbit is None or rate is None or row.reached_gbit >= FILLED * rate_gbit:
        return False
    wider = [
        other.row.throughput
        for other in rows
        if (other.row.scale, other.nodes) == (row.row.scale, row.nodes)
        and (other.asked_gbit is None or other.asked_gbit > rate_gbit)
        and other.row.throughput is not None
    ]
    if wider:
        return max(wider) < FASTER * rate
    return row.probe_gb_s is not None and 8 * row.probe_gb_s < FILLED * rate_gbit


def _runs_at(curve: Curve, scale: int) -> list[Run]:
    return [run for run in curve.own if run[1].trial.world_size == scale]


def _compared(label: str, row: Row, runs: Sequence[Run], base: Sequence[Run]) -> ComparedRow:
    """One transport at one scale; ratios, like speedups, are to the pooled repeats of `base`."""
    records, trial = usable(runs), trial_of(runs[0])
    of_base, of_base_ci95 = ratio(runs, base)
    moved = list(filter(None, map(_moved, records)))
    exchanged = [record.transport.gradient_bytes or record.measurement.gradient_bytes for record in records]
    between_nodes = [
        one.expected_bytes_per_step for record in records if (one := record.transport).expected_bytes_per_step
    ]
    gradient_bytes = exchanged[0] if exchanged else None
    largest = [record.measurement.probe[-1] for record in records if record.measurement.probe]
    seconds = math.fsum(one.seconds for one in moved)
    return ComparedRow(
        transport=label,
        row=row,
        ratio=of_base,
        ratio_ci95=of_base_ci95,
        nodes=max(_nodes(record) for _, record in runs),
        sent_bytes=statistics.fmean(one.per_step for one in moved) if moved else None,
        counted_by=COUNTERS[moved[0].wire] if moved else None,
        gradient_bytes=gradient_bytes,
        expected_bytes=between_nodes[0] / trial.nodes if between_nodes else None,
        least_bytes=gradient_bytes * least_factor(trial) / trial.nodes if between_nodes and gradient_bytes else None,
        probe_gb_s=statistics.median(one.busbw_gb_s for one in largest) if largest else None,
        probe_bytes=largest[0].size_bytes if largest else None,
        asked_gbit=trial.link.rate_mbit / 1000 if trial.link and trial.link.rate_mbit is not None else None,
        reached_gbit=8e-9 * math.fsum(one.total for one in moved) / seconds if moved else None,
    )


class _Moved(NamedTuple):
    """Bytes that one run sent over the wire that it used, by that wire's counter: of a node or a GPU, averaged."""

    wire: CountedWire
    total: float
    per_step: float
    seconds: float


def _moved(record: RunRecord) -> _Moved | None:
    """What a run sent; None if its wire has no counter, or nothing was measured."""
    count, measured = record.transport.own_count, record.measurement
    if count is None or not count.share or not measured.training_time_s or not measured.iterations:
        return None
    total = count.sent / count.share
    return _Moved(count.wire, total, total / measured.iterations, measured.training_time_s)


def _nodes(record: RunRecord) -> int:
    return max(1, len(record.trial.placement)) if isinstance(record.trial, Trial) else 1


def _label(own: Sequence[Run], interconnect: str, link: str, nodes: int) -> str:
    """The transport of the usable runs, or the one requested if there are none; with the number of nodes if more than one."""
    used = dict.fromkeys(map(between, usable(own)))
    between_them = " or ".join(used) or ", ".join(word for word in (f"{interconnect} (asked)", link) if word)
    return f"{between_them}, {nodes} nodes" if nodes > 1 else between_them
