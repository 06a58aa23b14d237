"""What makes two runs runs of one trial, what may still differ between them, and cells of runs that agree in both. Pure.

Regressions are sought between runs of one trial that differ in the rest. The runs of a cell are pooled, samples of all ÷ seconds of all:
the best of several is the luckiest, and does not predict the next.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runner.analysis.summarize import Row, between, device_name, machine, summarize, version_of
from runner.core.frozen import CachedByIdentity, Frozen
from runner.core.record import RunRecord
from runner.core.trial import ExternalTrial, Trial, devices_in_words
from runner.core.units import counted
from runner.core.workload import shown_settings

# Trial fields that may differ between runs of one trial: those under comparison, and those that should not affect a rate.
FREE: Final = (
    *("version", "dialect", "iterations", "warmup", "window", "learning_rate", "momentum", "weight_decay", "seed"),
    *("iface", "hca", "threads", "loader_workers", "cpus_per_worker", "measure_s"),
)
# Fields without information of their own: they number repeats, or follow from others.
_DERIVED: Final = frozenset(
    {"program", "processes", "placement", "probe_bytes", "dataset", "epochs", "scaling", "repeat", "key", "profile"}
)
# For an external command, the image is what is compared.
_FREE_IF_EXTERNAL: Final = frozenset({"image", "cpus_per_worker", "repeat", "key"})
_HASH: Final = 12
"""Digits of a hash that are shown."""

Identity = tuple[tuple[str, str], ...]
"""Facts of a trial, (name, value as JSON) in field order: equal for runs of one trial."""
_INTERNED: Final[dict[Identity, Identity]] = {}
"""Interned identities: thousands of runs share a few trials."""


class Difference(Frozen):
    """Something outside the trial that differs between A and B, with its values in each."""

    what: str
    a: tuple[str, ...]
    b: tuple[str, ...]


@CachedByIdentity
def identity(record: RunRecord) -> Identity:
    """Everything that two runs must share to be runs of one trial: what trained, how, on which devices and data, over which wires.

    A data set counts by content, not path; a device by name; inference also by batches in flight. Fields added to trials later count, too.
    """
    trial = record.trial
    free = frozenset(FREE) | _DERIVED if isinstance(trial, Trial) else _FREE_IF_EXTERNAL
    facts = {name: value for name, value in trial.model_dump(mode="json").items() if name not in free}
    if isinstance(trial, Trial) and trial.dataset is not None:
        facts["data"] = f"{trial.dataset.images} images, {trial.dataset.digest[:_HASH]}"
    if record.measurement.in_flight > 1:
        facts["batches in flight"] = record.measurement.in_flight
    facts["device_name"] = device_name(record)
    found = tuple((name, json.dumps(value, sort_keys=True)) for name, value in facts.items())
    return _INTERNED.setdefault(found, found)


def in_words(found: Identity, *, but: Collection[str] = ()) -> str:
    """Describe a trial in one line: the essentials first, then everything that is not a default.

    `but` names facts that the reader already knows; `device_name` covers the number of devices too.
    """
    facts = {name: json.loads(value) for name, value in found}
    nodes = f" on {facts['nodes']} nodes" if facts["nodes"] > 1 else ""
    count = facts["world_size"]
    if facts["device"] == "gpu":
        devices = f"{count} × {facts['device_name']}{nodes}"
    else:
        workers = devices_in_words("cpu", count, cores=facts.get("cpus_per_worker"))
        devices = f"{workers}{nodes} ({facts['device_name']})"
    batch = f"batch {facts['batch_per_device']} each" if facts["batch_per_device"] else None
    if "command" in facts:
        return ", ".join(part for part in (" ".join(facts["command"]), devices, batch) if part)
    horovod = facts["horovod"] and f"over {facts['horovod']['operations']}"
    way = " ".join(part for part in (facts["strategy"], facts["kvstore"], horovod) if part)
    shape = "×".join(map(str, facts["image_shape"][1:])) if facts["image_shape"] and "image_shape" not in but else None
    first = " ".join(facts[name] for name in ("framework", "model", "mode") if name not in but)
    known = (
        *(first, facts["precision"], None if "device_name" in but else devices),
        *(batch, shape, way if count > 1 else None),
    )
    return ", ".join(part for part in (*known, *_non_defaults(facts, but)) if part)


def _non_defaults(facts: Mapping[str, Any], but: Collection[str]) -> Iterator[str]:
    """Yield what differs from a trial's defaults and is not shown otherwise."""
    defaults = {name: field.default for name, field in Trial.model_fields.items() if not field.is_required()}
    defaults |= {"interconnect": "auto", "data": "synthetic", "kvstore": None, "horovod": None}
    for name, value in facts.items():
        if name in but:
            continue
        if name == "settings":
            settings = shown_settings(value, model=facts["model"], mode=facts["mode"])
            yield from (f"{flag} {chosen}" for flag, chosen in settings.items())
        elif name == "batches in flight":
            yield f"{value} {name}"
        elif name == "techniques":
            yield from ((f"with {', '.join(value)}",) if value else ())
        elif name in defaults and value != defaults[name] and name not in {"kvstore", "horovod"}:
            yield f"{name.replace('_', ' ')} {_text(value)}" if value is not True else name.replace("_", " ")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(one)}" for key, one in value.items() if one not in (None, False))
    return str(value)


def distance(a: Identity, b: Identity) -> tuple[str, ...]:
    """Names of the facts in which two trials differ."""
    other = dict(b)
    mine = dict(a)
    return tuple(name for name in dict.fromkeys((*mine, *other)) if mine.get(name) != other.get(name))


def differences(a: Sequence[RunRecord], b: Sequence[RunRecord], *, counting: bool = False) -> tuple[Difference, ...]:
    """What differs between the runs of two sides of one trial, most telling first; if `counting`, also the same values in other shares of the runs."""
    sides = [[_circumstances(record) for record in side] for side in (a, b)]
    found = []
    for what in sides[0][0]:
        first, second = (Counter(facts[what] for facts in side) for side in sides)
        if set(first) != set(second):
            found.append(Difference(what=what, a=tuple(first), b=tuple(second)))
        elif counting and any(first[value] * len(b) != second[value] * len(a) for value in first):
            found.append(Difference(what=what, a=_with_runs(first), b=_with_runs(second)))
    return tuple(found)


def _with_runs(values: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{value} ({counted(count)})" for value, count in values.items())


def _circumstances(record: RunRecord) -> dict[str, str]:
    """Everything outside the trial that could affect a run's rate: software first, then the machine, then settings."""
    provenance, trial, image = record.provenance, record.trial, record.image
    host = provenance.host
    commit = provenance.git.commit
    found: dict[str, object] = {
        "image": image.reference,
        "image id": _short(image.id),
        "lock": _short(image.lock_sha256),
        "framework version": provenance.framework_version,
        "python": provenance.python,
        "driver": provenance.driver,
        "cuda": provenance.cuda,
        "cudnn": provenance.cudnn,
        "nccl": provenance.nccl,
        "training programs": _short(provenance.workloads_sha256),
        "commit": f"{_short(commit)}{' with changes' if provenance.git.dirty else ''}" if commit else None,
        "engine": f"{record.engine} {record.engine_details.version or ''}".strip(),
        "wire used": record.transport.used,
        "host": host.hostname,
        "kernel": host.kernel,
        "validity": record.validity.status,
        "batch used": record.measurement.batch.used if record.measurement.batch else None,
    }
    if not isinstance(trial, ExternalTrial):
        by_rate = {"version", "iterations", "window"} if trial.measure_s else {"version"}
        found |= {name.replace("_", " "): getattr(trial, name) if name not in by_rate else None for name in FREE}
    return {what: "unknown" if value is None else str(value) for what, value in found.items()}


def _short(digest: str | None) -> str | None:
    return digest and digest.removeprefix("sha256:")[:_HASH]


_OF_WIRES: Final = ("interconnect", "link")
_SHOWN_ELSEWHERE: Final = ("framework", "model", "mode", "image_shape", "device_name", *_OF_WIRES)
"""Facts shown next to a setting; the requested wires are replaced by those used."""


@dataclass(frozen=True)
class Cell:
    """The pooled runs of one cell, with speedup and efficiency if one-device runs are on file; `record` is the first run's.

    `setting` distinguishes it, in words, from other cells of its network, framework and number of devices.
    """

    record: RunRecord
    setting: str
    row: Row
    runs: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Pooled throughput."""
        return self.row.throughput or 0.0


def cells(records: Iterable[RunRecord]) -> list[Cell]:
    """Group all usable runs with a rate into cells, without profiling passes and concurrent trainings."""
    found: dict[tuple[object, ...], list[RunRecord]] = {}
    alone: dict[str, list[RunRecord]] = {}
    for record in records:
        usable = record.validity.status != "invalid" and record.measurement.throughput
        if usable and not record.profiled and not record.concurrent:
            found.setdefault(_key(record), []).append(record)
            if record.trial.world_size == 1:
                alone.setdefault(record.trial.key, []).append(record)
    return [_cell(own, alone) for own in found.values()]


def _key(record: RunRecord) -> tuple[object, ...]:
    """What `identity` compares, the software and cores that it leaves free, and the wires used in place of those requested."""
    trial = record.trial
    software = trial.image if isinstance(trial, ExternalTrial) else version_of(record)
    cpu_threads = (trial.threads, trial.loader_workers) if isinstance(trial, Trial) and trial.device == "cpu" else ()
    facts = tuple((name, value) for name, value in identity(record) if name not in _OF_WIRES)
    return facts, software, record.engine, machine(record), trial.cpus_per_worker, cpu_threads, _wires(record)


def _wires(record: RunRecord) -> str:
    return between(record) if record.trial.world_size > 1 else ""


def gpus_of(record: RunRecord) -> tuple[str, ...]:
    """UUIDs of the GPUs that a run used, or of all that it saw if the record does not show which it used."""
    return tuple(gpu.uuid for gpu in (record.telemetry.gpus if record.telemetry else record.provenance.gpus))


def _cell(own: Sequence[RunRecord], alone: dict[str, list[RunRecord]]) -> Cell:
    """Pool runs; without an interval if they are of several GPUs, since it would take these for one and exclude some of their rates."""
    first = own[0]
    keys = dict.fromkeys(record.trial.key for record in own)
    base = [] if first.trial.world_size == 1 else [record for key in keys for record in alone.get(key, ())]
    row = summarize([(Path(record.run_id), record) for record in (*base, *own)]).rows[-1]
    if len({frozenset(gpus_of(record)) for record in own}) > 1:
        row = row.model_copy(update={"throughput_ci95": None})
    return Cell(
        record=first,
        setting=", ".join(_setting(first)),
        row=row,
        runs=tuple(record.run_id for record in own),
    )


def _setting(record: RunRecord) -> Iterator[str]:
    trial = record.trial
    if isinstance(trial, Trial):
        yield in_words(identity(record), but=_SHOWN_ELSEWHERE)
    elif trial.batch_per_device:
        yield f"batch {trial.batch_per_device} each"
    if wires := _wires(record):
        yield f"over {wires}"
    if trial.cpus_per_worker:
        yield f"{trial.cpus_per_worker} core{'' if trial.cpus_per_worker == 1 else 's'} each"
    if isinstance(trial, Trial) and trial.device == "cpu" and trial.threads != trial.cpus_per_worker:
        yield f"{trial.threads} threads"
    if isinstance(trial, Trial) and trial.dataset and trial.device == "cpu":
        yield f"{trial.loader_workers} loader workers"
    if record.engine != "docker":
        yield f"engine {record.engine}"
