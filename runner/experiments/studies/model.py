"""What a study comes to: cells, what ran of them, and what that says of the source's figures and findings. Values only.

`study.py` has the shape of a study's file; `cells.py` makes its `Cell`s for a machine, `flow.py` runs them, and `judge` in
`reproduction.py` turns `CellRun`s into a `Reproduction`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal

from pydantic import field_validator

from runner.core.frozen import FileName, Frozen
from runner.core.measurement import Interval
from runner.core.record import RunRecord
from runner.core.request import Device, EngineName, Interconnect, Request
from runner.core.trial import AnyTrial, Case, ForeignTrial, Trial
from runner.core.wire import Link
from runner.experiments.studies.request import Scale
from runner.results.published.findings import Finding
from runner.results.published.model import Conditions, Identifier
from runner.results.published.units import Metric

State = Literal["training", "idle"]
Indicated = Literal["indicated", "not indicated"]
FigureVerdict = (
    Literal["reproduced", "differs", "not comparable", "not measured", "shape agrees", "shape differs"] | Indicated
)
FindingVerdict = Literal["holds", "does not hold", "not testable here"] | Indicated

INDICATED: Final[Mapping[FigureVerdict | FindingVerdict, Indicated]] = {
    "reproduced": "indicated",
    "shape agrees": "indicated",
    "holds": "indicated",
    "differs": "not indicated",
    "shape differs": "not indicated",
    "does not hold": "not indicated",
}
"""What verdicts become that rest on degraded runs, or on too few to tell how far to trust them."""


class Usable(Frozen):
    """An image that a study may take.

    Attributes:
        alone: whether it trains on one device only.
        one_node: whether it does not go beyond one node.
        misfit: why it can't run here, as half a sentence; None where it can.
    """

    framework: str
    version: str
    device: Device
    alone: bool = False
    one_node: bool = False
    misfit: str | None = None


class Machine(Frozen):
    """What a study is run on.

    Attributes:
        name: whose results these are.
        device: what stands for the source's GPUs.
        device_name: as the driver or the kernel calls it.
        devices: GPUs, or cores, of each node, in the order in which they are used; one node where there is one machine.
        cores: of the first node.
        gpu: the source's id of this GPU; None on CPUs, and where the source has none of them.
        may_emulate: whether nodes can be emulated on it.
        hosts: the list of several real machines.
        images: all of the suite's.
    """

    name: str
    device: Device
    device_name: str
    devices: tuple[int, ...]
    gpu: Identifier | None = None
    cores: int
    engine: EngineName
    may_emulate: bool
    hosts: str | None = None
    images: tuple[Usable, ...]

    @property
    def in_words(self) -> str:
        """Its devices, counted: `1 GPU`, `2 CPU cores`."""
        count = sum(self.devices)
        return f"{count} {'GPU' if self.device == 'gpu' else 'CPU core'}{'' if count == 1 else 's'}"


class Altered(Frozen):
    """How a cell differs from the source's: `field` is one of the source's terms, a flag of `bench`, or what the study calls it.

    Attributes:
        declared: whether the study says so, whatever it is run on; the rest follows from the plan, or from what the records say ran.
    """

    field: str
    published: str
    here: str
    declared: bool = False


class Pick(Frozen):
    """Which runs of a request are a cell's: those between hosts by the kind of wire, those of emulated nodes by their link.

    Attributes:
        measured: whether the runs without a profiler are, beside its passes.
    """

    devices: int
    nodes: int = 1
    link: Link | None = None
    interconnect: Interconnect = "auto"
    case: Case | None = None
    measured: bool = True

    def takes(self, trial: AnyTrial) -> bool:
        """Whether a run of the request is the cell's; of several trainings all of a case are, on however many devices each."""
        if isinstance(trial, ForeignTrial) or not (self.measured or trial.profile):
            return False
        if self.case is not None:
            return trial.concurrent is not None and trial.concurrent.case == self.case
        if (trial.world_size, trial.nodes) != (self.devices, self.nodes) or trial.concurrent is not None:
            return False
        if self.nodes == 1:
            return True
        if self.interconnect != "auto":
            return trial.interconnect == self.interconnect
        return trial.link == self.link

    def wants(self, trial: AnyTrial) -> bool:
        """Whether a run of the request is needed: the cell's own, and the baseline of a measured one on several devices."""
        baseline = self.measured and self.devices > 1 and self.case is None
        return self.takes(trial) or (baseline and is_baseline(trial))


def is_baseline(trial: AnyTrial) -> bool:
    """Whether it is a measured run on one device by itself."""
    alone = isinstance(trial, Trial) and trial.profile is None and trial.concurrent is None
    return alone and trial.world_size == 1


class Cell(Frozen):
    """One run of a source.

    Attributes:
        id: unique in its study.
        where: in the source's terms, as its figures have them; `gpu` alone is that of this machine, or None where the source has no
            such GPU. `gpus` are devices here, CPU workers where there is no GPU; 0 and device `cpu` where the source used none.
        case: what the source calls the way in which several trainings share the devices.
        request: what runs it here; cells of one curve share a request. None where this hardware can't.
        pick: which of that request's runs are its.
        why: the reason why this hardware can't, as half a sentence.
        altered: every difference to the source's run, as far as it is known before; the device itself is not among them then.
        extra: whether it stands beside the source's own, for a machine too small for those.
    """

    id: str
    block: Identifier
    where: Conditions
    case: str | None = None
    request: Request | None = None
    pick: Pick | None = None
    why: str | None = None
    altered: tuple[Altered, ...] = ()
    extra: bool = False


class Run(Frozen):
    """A run on file: its directory's name, and its record."""

    directory: str
    record: RunRecord


class CellRun(Frozen):
    """A cell with all its runs: repeats, passes under a profiler (`record.profiled`), the trainings of a case; none where none ran.

    Attributes:
        baseline: runs on one device that differ in scale only (their trials have the same key); the source's own one-device run is
            another cell, at another batch perhaps.
        why: of a cell that did not run or failed, the reason.
    """

    cell: Cell
    runs: tuple[Run, ...] = ()
    baseline: tuple[Run, ...] = ()
    why: str | None = None


class Observation(Frozen):
    """One measured quantity, in the terms of a published one.

    Attributes:
        metric: one of `published.units.METRICS`.
        where, case: the cell's; with `gpu_index` where it is of one device.
        state: whether the devices trained or idled.
        epoch: after so many.
        name: of a kernel or a call, where the metric has one value for each.
        iterations: after so many of them, for quantities over time.
        device, device_name: what it ran on; a figure of a CPU worker is none of a GPU.
        method: how it was had, where there are several ways.
        ci95: over `repeats`; None where these are too few.
        freedom: degrees of freedom of the interval.
        repeats: processes started anew that are behind it; 0 of what a source prints.
        degraded: how many of the runs behind it are.
        runs: ids of those runs.
        altered: the fields in which the cell differs from the source's.
    """

    metric: Metric
    unit: str
    value: float
    ci95: Interval | None = None
    freedom: float | None = None
    where: Conditions
    case: str | None = None
    state: State | None = None
    epoch: int | None = None
    name: str | None = None
    iterations: int | None = None
    device: Device
    device_name: str
    method: str | None = None
    repeats: int = 1
    degraded: int = 0
    runs: tuple[str, ...]
    altered: tuple[str, ...] = ()
    extra: bool = False

    @field_validator("altered", mode="before")
    @classmethod
    def _by_their_fields(cls, altered: Iterable[object]) -> tuple[object, ...]:
        """Files of before have each difference whole."""
        return tuple(one["field"] if isinstance(one, Mapping) else one for one in altered)


class Missing(Frozen):
    """A quantity that a cell was to give and did not, and why."""

    cell: str
    metric: str
    why: str


class Comparison(Frozen):
    """One published figure beside what was measured in its place.

    Attributes:
        figure: id of the published figure.
        where: where it is printed.
        published: as printed; None for a figure with several values.
        measured: None where nothing was.
        ratio, ratio_ci95: measured ÷ published.
        fields: everything in which the two runs differ, the device in words, the rest by the name under which the cell has it.
        doubts: why the measured figure settles nothing.
        why: of a verdict that needs one.
    """

    figure: Identifier
    metric: Metric
    unit: str
    where: str
    conditions: Conditions
    published: Decimal | None
    bound: Literal[">", "<"] | None = None
    approx: bool = False
    measured: Observation | None = None
    ratio: float | None = None
    ratio_ci95: Interval | None = None
    tolerance: float | None = None
    verdict: FigureVerdict
    fields: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    why: str | None = None


class Judgement(Frozen):
    """What became of one finding.

    Attributes:
        why: the figures behind the verdict, or what is missing.
        runs: ids of the runs that it stands on.
        doubts: why these settle nothing.
    """

    finding: Finding
    verdict: FindingVerdict
    why: str
    runs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


class CellOutcome(Frozen):
    """What became of a cell, without its records.

    Attributes:
        status: `ran`; `failed`; `skipped` where this hardware can't; `open` where it was not come to.
        altered: every difference to the source's run, by what ran where it ran.
        runs: directories of its runs, beside the reproduction's file.
        measured, passes: how many of them may be used, without a profiler and under one.
        degraded: of those, how many are.
        doubts: why, each reason once.
        software, images, devices: what these ran in and on, as their records have it; several where they differ.
    """

    id: str
    block: Identifier
    where: Conditions
    case: str | None = None
    status: Literal["ran", "failed", "skipped", "open"]
    why: str | None = None
    altered: tuple[Altered, ...] = ()
    extra: bool = False
    runs: tuple[FileName, ...] = ()
    measured: int = 0
    passes: int = 0
    degraded: int = 0
    doubts: tuple[str, ...] = ()
    software: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


class Reproduction(Frozen):
    """A study as it came out here; written as `<stamp>-<study>.reproduction.json` beside its run directories."""

    study: Identifier
    source: Identifier
    title: str
    scale: Scale
    machine: Machine
    made_at: datetime
    git: str | None = None
    cells: tuple[CellOutcome, ...]
    observations: tuple[Observation, ...]
    missing: tuple[Missing, ...] = ()
    comparisons: tuple[Comparison, ...]
    judgements: tuple[Judgement, ...]
    notes: tuple[str, ...] = ()
