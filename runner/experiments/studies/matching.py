"""Which observations a selector means, which two of them may be held against each other, and which make one curve. Pure.

Two observations are comparable if they agree in every condition that both state, but for those that a predicate names and those that change
with these (`FREES`): with another number of GPUs there is another global batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from runner.experiments.studies.model import Cell, Observation
from runner.results.published.findings import Axis, Selector
from runner.results.published.model import Conditions

Value = str | int | float | bool | None

_SIZES: Final = frozenset({"batch", "batch_per_gpu", "global_batch"})
_OF_MODEL: Final = _SIZES | {"model", "variant", "image_size", "learning_rate", "epochs", "sequence_length"}

FREES: Final[Mapping[str, frozenset[str]]] = {
    "gpus": _SIZES | {"nodes", "system", "network", "strategy"},
    "nodes": _SIZES | {"gpus", "system", "network", "strategy"},
    "model": _OF_MODEL,
    "model_size": _OF_MODEL,
    "framework": _OF_MODEL | {"build", "version", "container", "strategy", "dataset", "network"},
    "build": frozenset({"version", "container", "strategy"}),
    "device": _SIZES | {"gpu", "gpus", "nodes", "system", "build", "version", "container", "strategy", "network"},
    "gpu": frozenset({"device", "system", "memory"}),
    "batch": _SIZES | {"learning_rate"},
    "batch_per_gpu": _SIZES,
    "precision": _SIZES,
    "mode": _SIZES | {"epochs", "data", "dataset"},
    "case": _SIZES | {"gpus"},
    "network": frozenset({"system", "strategy"}),
}
"""By what changes, all else that changes with it."""

_NO_CONDITION: Final = frozenset({"versus", "note", "run", "container", "memory", "theory_tflops"})
TERMS: Final = (
    *(name for name in Conditions.model_fields if name not in _NO_CONDITION),
    *("case", "state", "epoch", "name"),
)
"""Everything in which two observations can agree."""

_TELLING: Final = ("framework", "model", "gpu", "device", "gpus", "nodes", "network", "batch", "case", "precision")
"""What a reader tells runs apart by, the first first."""

_TOLD_BY_OTHERS: Final = frozenset({"batch_per_gpu", "global_batch", "dataset"})

_BARE: Final = frozenset(
    {"framework", "build", "model", "gpu", "device", "case", "mode", "precision", "network", "technique", "state"}
)
"""Conditions whose value says all."""

_MODES: Final = {"train": "training", "converge": "training", "infer": "inference"}


Stated = Observation | Cell
"""What has conditions: a cell states none of those that only its observations have, such as an epoch."""


def term(one: Stated, name: str) -> Value:
    """A condition of an observation, or of a cell; None where it states none.

    A mode is `training` or `inference`, whatever more the source says of it. A batch is the one that is stated, of whomever it is.
    """
    if name == "model_size":
        return one.where.model
    if name == "mode":
        return mode(one.where.mode)
    if name == "batch":
        sizes = (one.where.batch, one.where.global_batch, one.where.batch_per_gpu)
        return next((size for size in sizes if size is not None), None)
    if name in {"case", "state", "epoch", "name", "iterations"}:
        return cast("Value", getattr(one, name, None))
    return cast("Value", getattr(one.where, name, None))


def mode(text: str | None) -> str | None:
    """`training` or `inference`, where a text begins with either: ``mode("training, partial epoch")`` is ``"training"``."""
    if text is None:
        return None
    first = text.partition(",")[0].strip()
    return _MODES.get(first, first)


def selects(selector: Selector, one: Stated) -> bool:
    """Whether an observation, or a cell, fits every condition of a selector; a build is only asked of those that have one."""
    if (selector.state == "idle") != (term(one, "state") == "idle") or selector.epoch not in {None, term(one, "epoch")}:
        return False
    for field, count in (("gpus", selector.gpus_above), ("nodes", selector.nodes_above)):
        value = term(one, field)
        if count is not None and not (isinstance(value, int) and value > count):
            return False
    return all(_fits(one, name, allowed) for name, allowed in selector.stated.items())


def _fits(one: Stated, name: str, allowed: tuple[Value, ...]) -> bool:
    value = term(one, name)
    if name == "build" and value is None:
        return True
    if name == "mode":
        return value in {mode(str(text)) for text in allowed}
    return value in allowed


def expand(selector: Selector) -> tuple[Selector, ...]:
    """A selector for each combination of allowed values."""
    stated = selector.stated
    single = [[(name, (value,)) for value in values] for name, values in stated.items()]
    return tuple(selector.model_copy(update=dict(combination)) for combination in itertools.product(*single))


def differing(lhs: Selector, rhs: Selector) -> frozenset[str]:
    """The conditions that two selectors name differently, and all that changes with them."""
    left, right = _named(lhs), _named(rhs)
    named = {name for name in left.keys() | right.keys() if left.get(name) != right.get(name)}
    return freed(named)


def freed(named: Iterable[str]) -> frozenset[str]:
    """These, and all that changes with them."""
    names = set(named)
    return frozenset(names.union(*(FREES.get(name, frozenset()) for name in names)))


def _named(selector: Selector) -> dict[str, object]:
    found: dict[str, object] = dict(selector.stated)
    for field, name in (("gpus_above", "gpus"), ("nodes_above", "nodes"), ("state", "state"), ("epoch", "epoch")):
        if (value := getattr(selector, field)) is not None:
            found[name] = value
    return found


def agreement(one: Observation, other: Stated, *, free: frozenset[str], same: Sequence[str] = ()) -> int | None:
    """In how many conditions two observations agree; None if they may not be held against each other.

    Those in `free` may differ; those in `same` both have to state alike, or not at all.
    """
    if any(term(one, name) != term(other, name) for name in same):
        return None
    alike = 0
    for name in TERMS:
        value, its = term(one, name), term(other, name)
        if value is None or its is None:
            continue
        if value == its:
            alike += 1
        elif name not in free:
            return None
    return alike


def partners(
    one: Observation, among: Iterable[Observation], *, free: frozenset[str], same: Sequence[str] = ()
) -> tuple[Observation, ...]:
    """Of the observations that may be held against one, those that agree with it in most conditions; several where these are as many."""
    near = [(alike, other) for other in among if (alike := agreement(one, other, free=free, same=same)) is not None]
    most = max((alike for alike, _ in near), default=0)
    return tuple(other for alike, other in near if alike == most)


def curves(observations: Sequence[Observation], axis: Axis) -> tuple[tuple[Observation, ...], ...]:
    """Observations that differ along an axis, and in what changes with it, each curve in the order in which its levels are measured.

    Runs over several networks share the points of their curves that use none. A level has one point: the source's own scale goes before
    an extra one, fewer nodes before more.
    """
    free = freed({axis})
    groups: dict[tuple[Value, ...], list[Observation]] = {}
    for one in observations:
        if term(one, axis) is not None:
            groups.setdefault(tuple(term(one, name) for name in TERMS if name not in free), []).append(one)
    return tuple(
        _one_each(curve, axis)
        for group in groups.values()
        for curve in (_over_networks(group) if axis in {"gpus", "nodes"} else [group])
    )


def _over_networks(group: Sequence[Observation]) -> list[list[Observation]]:
    networks = {one.where.network for one in group if (one.where.nodes or 1) > 1}
    if len(networks) <= 1:
        return [list(group)]
    shared = [one for one in group if (one.where.nodes or 1) == 1]
    return [
        [*shared, *(one for one in group if one not in shared and one.where.network == name)]
        for name in sorted(networks, key=str)
    ]


def _one_each(curve: Sequence[Observation], axis: Axis) -> tuple[Observation, ...]:
    best: dict[Value, Observation] = {}
    for one in sorted(curve, key=lambda one: (one.extra, one.where.nodes or 1)):
        best.setdefault(term(one, axis), one)
    return tuple(best.values())


def described(selector: Selector) -> str:
    """A selector in a few words: `vgg16, gpus 4`."""
    words = []
    for name, value in _named(selector).items():
        text = " or ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        above = getattr(selector, f"{name}_above", None) is not None
        words.append(text if name in _BARE else f"{name} above {text}" if above else f"{name} {text}")
    return ", ".join(words)


def told_apart(observations: Sequence[Observation], one: Observation, *, but: Iterable[str] = ()) -> str:
    """What sets an observation apart from the others, in as few words as tell them all apart."""
    left_out = set(but)
    kept: list[str] = []
    distinct = 1
    for name in (*_TELLING, *(name for name in TERMS if name not in _TELLING and name not in _TOLD_BY_OTHERS)):
        parts = len({tuple(term(other, each) for each in (*kept, name)) for other in observations})
        if name not in left_out and parts > distinct:
            kept.append(name)
            distinct = parts
    values = {name: term(one, name) for name in kept}
    return ", ".join(
        str(value) if isinstance(value, str) else f"{name} {value}"
        for name, value in values.items()
        if value is not None
    )
