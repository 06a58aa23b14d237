"""The types of a study: `cells.py` plans its `Cell`s for a machine, `flow.py` runs them, `reproduction.py` judges the `CellRun`s."""

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
from runner.core.trial import AnyTrial, Case, ExternalTrial, Trial
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
"""What verdicts become that rest on degraded or on too few runs."""


class Usable(Frozen):
    """An image of the suite: whether it trains on one device or one node only, and why it can't run here (None where it can)."""

    framework: str
    version: str
    device: Device
    alone: bool = False
    one_node: bool = False
    misfit: str | None = None


class Machine(Frozen):
    """What a study is run on.

    Attributes:
        name: of the folder of its results.
        device: what stands for the source's GPUs.
        device_name: as the driver or the kernel calls it.
        devices: GPUs, or cores, of each node.
        cores: of the first node.
        gpu: the source's id of this GPU; None on CPUs, and where the source has none of them.
        may_emulate: whether nodes can be emulated on it.
        hosts: HOSTS, of several real machines.
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
    """A difference to the source's run: `declared` by the study, or found in the plan or the records."""

    field: str
    published: str
    here: str
    declared: bool = False


class Pick(Frozen):
    """Which runs of a request are a cell's: by `interconnect` between hosts, by `link` between emulated nodes; `measured` ones or passes alone."""

    devices: int
    nodes: int = 1
    link: Link | None = None
    interconnect: Interconnect = "auto"
    case: Case | None = None
    measured: bool = True

    def takes(self, trial: AnyTrial) -> bool:
        """Whether a run of the request is the cell's; all trainings of a case are, on however many devices each."""
        if isinstance(trial, ExternalTrial) or not (self.measured or trial.profile):
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
        """Whether a run of the request is needed: the cell's own, and the one-device baseline of a measured one on several devices."""
        if self.takes(trial):
            return True
        scales = self.measured and self.devices > 1 and self.case is None
        alone = isinstance(trial, Trial) and trial.profile is None and trial.concurrent is None
        return scales and alone and trial.world_size == 1


class Cell(Frozen):
    """One run of a source.

    Attributes:
        where: conditions in the source's terms; only `gpu` is that of this machine, None where the source has no such GPU. `gpus` are
            devices here, CPU workers where there is no GPU; 0 and device `cpu` where the source used none.
        case: what the source calls the way in which several trainings share the devices.
        request: of `bench`, shared by the cells of a curve; None where this hardware can't run it, for the reason `why`.
        pick: which of that request's runs are its.
        altered: differences to the source's run that are known before it, other than the device.
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


class CellRun(Frozen):
    """A cell with the records of all its runs (repeats, passes under a profiler, the trainings of a case), or `why` it has none or failed."""

    cell: Cell
    runs: tuple[RunRecord, ...] = ()
    why: str | None = None


class Observation(Frozen):
    """One measured quantity, in the terms of a published one.

    Attributes:
        metric: one of `published.units.METRICS`.
        where, case: the cell's; with `gpu_index` where it is of one device.
        name: of a kernel or a call, where the metric has one value for each.
        epoch, iterations: after so many, for quantities over time.
        method: how it was measured, where there are several ways.
        ci95: over `repeats`; None where these are too few. Its degrees of freedom are `freedom`.
        repeats: processes started anew that are behind it; 0 of what a source prints.
        degraded: how many of the runs behind it are.
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
        """Earlier versions wrote each difference whole."""
        return tuple(one["field"] if isinstance(one, Mapping) else one for one in altered)


class Missing(Frozen):
    """A quantity that a cell does not give, and why."""

    cell: str
    metric: str
    why: str


class Comparison(Frozen):
    """One published figure beside what was measured in its place.

    Attributes:
        figure: id of the published figure, printed in `where`.
        published: as printed; None for a figure with several values.
        ratio, ratio_ci95: measured ÷ published.
        fields: everything in which the two runs differ, the device in words, the rest by the cell's name of it.
        doubts: why the measured figure is inconclusive.
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
    """The verdict on a finding, with the figures behind it or what is missing (`why`), the ids of its runs, and why these are inconclusive."""

    finding: Finding
    verdict: FindingVerdict
    why: str
    runs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


class CellOutcome(Frozen):
    """A cell without its records.

    Attributes:
        status: `skipped` where this hardware can't run it, `open` where the study was stopped before.
        altered: every difference to the source's run.
        runs: directories of its runs, beside the reproduction's file.
        measured, passes, degraded: how many of the usable ones have no profiler, have one, and are degraded; `doubts` are their reasons.
        software, images, devices: by the records; several where these differ.
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
    """The results of a study on one machine, written as `<stamp>-<study>.reproduction.json` beside its run directories."""

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
