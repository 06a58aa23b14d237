"""Records on file → the `Networks` among them: networks that were trained alike on one device and on more and more. Pure.

A network's runs may be of several matrices: those that share the key of their speedups (`Trial.key`) and their wires are one curve.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from runner.analysis.comparisons.grouping import Names, Run, ids, is_training, partition, slug, software, trial_of
from runner.analysis.summarize import between, device_name, model_in_words, summarize, version_of
from runner.analysis.summary import Row, Summary
from runner.core.frozen import Frozen
from runner.core.trial import Trial

SCALES: Final = 3
"""Numbers of devices that one of two networks has at the least: what two have in common is no curve."""
SEVERAL: Final = 3
"""Networks of which two numbers of devices are a comparison."""

_FACTS: Final = (
    *("framework", "device", "mode", "precision", "scaling", "way", "horovod", "xla", "techniques", "decode"),
    *("interconnect", "iface", "hca", "link"),
)
"""Of a trial, what the networks of a report have in common."""


class Network(Frozen):
    """One network on one device and on more: a row for each scale, and the ids of the runs behind each."""

    label: str
    batch: int  # of a device; of all with strong scaling
    unit: str
    rows: tuple[Row, ...]
    runs: tuple[tuple[str, ...], ...]


class Networks(Frozen):
    """Networks that were trained alike, by name; `ran_on` is of the largest scale, `techniques` are of those on several devices."""

    name: str
    title: str
    setting: str
    techniques: tuple[str, ...]
    ran_on: str
    networks: tuple[Network, ...]
    notes: tuple[str, ...]

    @property
    def how(self) -> tuple[str, ...]:
        """How they were trained, in a line or two."""
        return (self.setting, *((f"with {', '.join(self.techniques)}",) if self.techniques else ()))


def networks(runs: Sequence[Run]) -> tuple[Networks, ...]:
    """Find what several networks were trained on."""
    trainings = [run for run in runs if is_training(run[1]) and trial_of(run).mode == "train"]
    alone = partition([run for run in trainings if trial_of(run).world_size == 1], _key)
    names = Names()
    found = []
    for kind in partition([run for run in trainings if trial_of(run).world_size > 1], _kind).values():
        curves = [[*alone[key], *own] for key, own in partition(kind, _key).items() if key in alone]
        curved = any(len({trial_of(run).world_size for run in own}) >= SCALES for own in curves)
        models = {trial_of(own[0]).model for own in curves}
        if len(models) >= SEVERAL or (len(curves) > 1 and curved):
            found.append(_report(curves, name=names.take(_name(curves[0][-1]))))
    return tuple(found)


def _key(run: Run) -> tuple[str]:
    return (trial_of(run).key,)


def _kind(run: Run) -> tuple[object, ...]:
    """What the networks of a report have in common."""
    trial, record = trial_of(run), run[1]
    return (
        *(getattr(trial, name) for name in _FACTS),
        *(version_of(record), record.engine, device_name(record)),
        trial.dataset.digest if trial.dataset else None,
    )


def _name(run: Run) -> str:
    trial = trial_of(run)
    return slug(("networks", *software(run), trial.precision, trial.interconnect, trial.device))


def _report(curves: Sequence[Sequence[Run]], *, name: str) -> Networks:
    every = [run for own in curves for run in own]
    largest = max(every, key=lambda run: run[1].trial.world_size)
    summaries = [(runs, summarize(runs)) for runs in sorted(curves, key=lambda runs: model_in_words(trial_of(runs[0])))]
    over = " or ".join(dict.fromkeys(between(record) for _, record in every if record.trial.world_size > 1))
    trial = trial_of(largest)
    data = "images of a data set" if trial.dataset else "synthetic data"
    return Networks(
        name=name,
        title=f"{' '.join(software(largest))}: {len(summaries)} networks",
        setting=f"{trial.precision}, {trial.scaling} scaling, {trial.way} over {over}, {data}",
        techniques=trial.techniques,
        ran_on=summarize([largest]).ran_on,
        networks=tuple(_network(runs, summary) for runs, summary in summaries),
        notes=tuple(note for runs, summary in summaries for note in _notes(trial_of(runs[0]), summary)),
    )


def _network(runs: Sequence[Run], summary: Summary) -> Network:
    trial = trial_of(runs[0])
    return Network(
        label=model_in_words(trial),
        batch=trial.batch_per_device if trial.scaling == "weak" else trial.global_batch,
        unit=summary.rate_unit,
        rows=summary.rows,
        runs=tuple(ids([run for run in runs if run[1].trial.world_size == row.scale]) for row in summary.rows),
    )


def _notes(trial: Trial, summary: Summary) -> Iterator[str]:
    for row in summary.rows:
        if row.reasons:
            yield f"{model_in_words(trial)}, {row.devices} {row.status}: {'; '.join(row.reasons)}"
    yield from (f"{model_in_words(trial)}, {note}" for note in summary.notes)
