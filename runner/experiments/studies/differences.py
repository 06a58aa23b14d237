"""How the run of a cell differs from its source's: declared by the study, changed by the plan, or found in its records. Pure.

Once there are records, framework, version, precision, device, libraries and wires are compared with the source by these only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Final

from runner.analysis.summarize import between
from runner.core.provenance import Provenance
from runner.core.record import RunRecord
from runner.core.request import Device
from runner.core.trial import ExternalTrial, Trial
from runner.core.units import counted
from runner.experiments.studies.model import Altered, CellRun
from runner.experiments.studies.study import NOT_STATED, Block, Difference, Study
from runner.results.published.model import Conditions, Identifier, Published

_LIBRARIES: Final[dict[str, Callable[[Provenance], str | None]]] = {
    "CUDA": lambda of: of.cuda,
    "cuDNN": lambda of: _cudnn_version(of.cudnn),
    "NCCL": lambda of: of.nccl,
    "NVIDIA driver": lambda of: of.driver,
    "Python": lambda of: of.python,
    "OS": lambda of: of.host.os,
    "Linux": lambda of: of.host.kernel,
}
"""Software that a source may list, by the name it has there."""
_RECORDED: Final = frozenset({"framework", "version", "precision", "gpu", "cpu", "network", *_LIBRARIES})
"""Fields that records contain."""


def merged(declared: Sequence[Difference], found: Iterable[Altered]) -> tuple[Altered, ...]:
    """Join declared and found differences; for a field in both, `published` is the declared one and `here` the found one."""
    own = {one.field: one.published for one in declared}
    known = {one.field: one for one in found}
    return (
        *(
            Altered(**one.model_dump(exclude={"models", "ran", "stands_in"}), declared=True)
            for one in declared
            if one.field not in known
        ),
        *(one.model_copy(update={"published": own.get(one.field, one.published)}) for one in known.values()),
    )


def from_records(run: CellRun, *, study: Study, published: Published) -> CellRun:
    """Complete a cell from its records: which of the source's GPUs it ran on, and every difference from the source's run."""
    cell, where, records = run.cell, run.cell.where, usable_records(run)
    block = study.block(cell.block)
    trial = next((record.trial for record in records if isinstance(record.trial, Trial)), None)
    of_run = {"ran": trial.model, "framework": trial.framework} if trial else {}
    own_program = any(isinstance(record.trial, ExternalTrial) for record in records)
    declared = () if own_program else study.declared(block, where.model, **of_run)
    found = [one for one in cell.altered if not one.declared]
    if records:
        names = {name for record in records for name in device_names(record)}
        if where.device != "cpu" and names:
            where = where.model_copy(update={"gpu": _source_gpu(records, names, study)})
        found = [one for one in found if one.field not in _RECORDED]
        found += _recorded(records, where, study=study, published=published)
    here = _settings(records, block)
    altered = (one.model_copy(update={"here": here.get(one.field, one.here)}) for one in merged(declared, found))
    update = {
        "where": where,
        "altered": tuple(one for one in altered if one.here != one.published),
        "whole_time": block.whole_time,
        "samples": block.samples,
    }
    return run.model_copy(update={"cell": cell.model_copy(update=update)})


def usable_records(run: CellRun) -> list[RunRecord]:
    """Return the records of usable runs, or of all if none is usable."""
    return [record for record in run.runs if record.validity.status != "invalid"] or list(run.runs)


def software(record: RunRecord) -> str:
    """Name the software by the framework's own version: `pytorch 2.11.0+cu130`."""
    return f"{_framework(record)} {_version(record)}"


def device_names(record: RunRecord) -> tuple[str, ...]:
    """Return the models of GPUs, or of CPUs, on all nodes of a run; none if the machine did not report them."""
    places = record.provenance.nodes or (record.provenance,)
    if record.trial.device == "gpu":
        return tuple(dict.fromkeys(gpu.name for place in places for gpu in place.gpus))
    return tuple(dict.fromkeys(model for place in places if (model := place.host.cpu_model)))


def hardware(
    published: Published, there: Conditions, *, gpu: Identifier | None, device: Device, name: str
) -> Iterator[Altered]:
    """Yield the difference of the device, if any: `gpu` is the source's id of the one here, None if the source has no such GPU, `name` the driver's.

    If the conditions `there`, of a figure or a cell, name no GPU, they apply to every GPU that the source tried.
    """
    has = published.hardware
    if there.device == "cpu":
        if not _same_cpu(has.cpu, name):
            yield Altered(field="cpu", published=has.cpu or NOT_STATED, here=name)
    elif device == "cpu" or gpu is None or there.gpu not in {None, gpu}:
        names = {one.id: one.model for one in has.gpus}
        tried = {one for block in published.runs for one in block.gpu} or {one.id for one in has.gpus[:1]}
        own = [there.gpu] if there.gpu else sorted(tried)
        yield Altered(field="gpu", published=" or ".join(names.get(one, one) for one in own) or NOT_STATED, here=name)


def _same_cpu(there: str | None, here: str) -> bool:
    """Whether this CPU's name contains all model numbers of the source's: 2690 and v4 of `Xeon E5-2690 v4`."""
    numbers = re.findall(r"\bv\d\b|\b\d{4,}\w*\b", there or "")
    return bool(numbers) and all(re.search(rf"\b{number}\b", here) for number in numbers)


def _source_gpu(records: Sequence[RunRecord], names: set[str], study: Study) -> Identifier | None:
    if any(record.trial.device == "cpu" for record in records):
        return None
    return next((gpu for gpu, known in study.same.gpus.items() if names <= set(known)), None)


def _settings(records: Sequence[RunRecord], block: Block) -> dict[str, str]:
    """Return the runs' settings by field, several values if the runs differ."""
    found: dict[str, dict[str, None]] = {}
    for trial in (record.trial for record in records if isinstance(record.trial, Trial)):
        size = {"device": trial.batch_per_device, "node": trial.global_batch // trial.nodes, "all": trial.global_batch}
        length = counted(trial.iterations, "iteration")
        if block.samples:
            length = counted(trial.iterations * trial.global_batch, "sample")
        elif epochs := trial.iterations // trial.epoch_iterations if trial.epoch_iterations else 0:
            length = counted(epochs, "epoch")
        settings = {
            "batch": f"{size[block.batch_of]:,}",
            "data": trial.image_size and _images(trial),
            "gpus": str(trial.world_size),
            "image_size": trial.image_size and str(trial.image_size),
            "iterations": length,
            "precision": trial.precision,
            "learning rate": trial.learning_rate and f"{trial.learning_rate:g}",
            "fit": trial.fit and str(trial.fit),
            "profile_after": trial.profile and trial.profile.after and f"{trial.profile.after:,}",
            "profile_iterations": trial.profile and str(trial.profile.iterations),
        }
        for field, value in settings.items():
            if value:
                found.setdefault(field, {})[value] = None
    return {field: " and ".join(values) for field, values in found.items()}


def _recorded(
    records: Sequence[RunRecord], where: Conditions, *, study: Study, published: Published
) -> Iterator[Altered]:
    """Yield the fields in which records and source disagree, with several values if the records differ."""
    stated = {one.name: one.version for one in published.software if one.version}
    precisions = [record.trial.precision for record in records if isinstance(record.trial, Trial)]
    of_suite = [
        record for record in records if isinstance(record.trial, Trial)
    ]  # another program's framework is unknown, only its image is
    compared: list[tuple[str, str | None, Sequence[str | None]]] = [
        ("framework", where.framework, [_framework(record) for record in of_suite]),
        ("version", where.version or NOT_STATED, [_version(record) for record in records]),
        ("precision", where.precision, precisions),
        *((name, stated.get(name), [of(record.provenance) for record in records]) for name, of in _LIBRARIES.items()),
    ]
    for field, there, values in compared:
        here = list(dict.fromkeys(value for value in values if value))
        if there and any(value.partition("+")[0] != there for value in here):
            yield Altered(field=field, published=there, here=" and ".join(here))
    name = " and ".join(dict.fromkeys(name for record in records for name in device_names(record)))
    if name:
        yield from hardware(published, where, gpu=where.gpu, device=records[0].trial.device, name=name)
    yield from _wires(records, where, study=study, published=published)


def _wires(records: Sequence[RunRecord], where: Conditions, *, study: Study, published: Published) -> Iterator[Altered]:
    """Yield a difference of the wire, if the source names a network and gradients had to cross it: between nodes, or on a bus between devices."""
    wire = next((wire for wire in published.hardware.wires if wire.id == where.network), None)
    across = [record for record in records if record.trial.world_size > 1]
    if wire is None or not across or (where.nodes == 1 and wire.gbyte_s is None):
        return
    meant = study.networks[wire.id].interconnect if wire.id in study.networks else "pcie"
    here = " and ".join(dict.fromkeys(between(record) for record in across))
    if any(record.transport.used != meant or record.transport.emulated for record in across):
        yield Altered(field="network", published=wire.name, here=here)
    elif wire.gbit_s and (most := max(map(_gbit_s, across))) > wire.gbit_s:
        yield Altered(
            field="network", published=f"{wire.name}, {wire.gbit_s:g} Gb/s", here=f"{here}, {most:.3g} Gb/s and more"
        )


def _gbit_s(record: RunRecord) -> float:
    """The highest average send rate of any node, in 1e9 bits a second: its wire is at least that fast."""
    step, sent = record.measurement.step_time_s, record.transport.sent_bytes_per_step.values()
    return 8e-9 * max(sent, default=0.0) / step.p50 if step and step.p50 else 0.0


def _images(trial: Trial) -> str:
    return f"images of {PurePath(trial.dataset.path).name}" if trial.dataset else "synthetic images"


def _framework(record: RunRecord) -> str:
    own = record.trial.framework if isinstance(record.trial, Trial) else record.trial.name
    return record.provenance.framework or own


def _version(record: RunRecord) -> str:
    """Return the version that the framework reported; if a run did not get that far, the requested one, or the image of another program."""
    requested = record.trial.version if isinstance(record.trial, Trial) else record.image.reference
    return record.provenance.framework_version or requested


def _cudnn_version(cudnn: str | None) -> str | None:
    """Decode a version number of cuDNN: 91900 is 9.19.0, 8902 is 8.9.2."""
    if cudnn is None or not cudnn.isdigit():
        return cudnn
    number = int(cudnn)
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1_000)  # noqa: PLR2004 - cuDNN 9 numbers differently
    return f"{major}.{rest // 100}.{rest % 100}"
