"""Reads `results/published/`, and refuses inconsistent files: ids must be unique and known, and contradictions declared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from runner.core import yamlfile
from runner.core.errors import RequestError
from runner.core.provenance import SUITE_ROOT
from runner.results.published.derive import contradictions
from runner.results.published.findings import Order, Selector
from runner.results.published.model import Conditions, Published

DIRECTORY: Final = SUITE_ROOT / "results" / "published"


def load_all() -> tuple[Published, ...]:
    """Load every source, by id. Raises RequestError with file and line if one can't be read, does not fit its model or is inconsistent."""
    return tuple(load(path) for path in sorted(DIRECTORY.glob("*.yaml")))


def load(path: Path) -> Published:
    """Load one source. Raises RequestError as `load_all` does."""
    published = yamlfile.load(path, Published)
    if published.id != path.stem:
        raise RequestError(f"{path}:1: id is {published.id!r}; name the file after it, or change it to the file's name")
    for error in (*_duplicate_ids(published), *_unknown_references(published), *_undeclared(published)):
        raise RequestError(f"{path}:{line_of(path, error[0])}: {error[1]}")
    return published


def published_schema() -> str:
    """Return the JSON Schema of a source's file, as committed under `results/schema/`."""
    return json.dumps(Published.model_json_schema(), indent=1, sort_keys=True) + "\n"


Error = tuple[str, str]
"""The id whose line has an error, and the sentence about it."""


def _duplicate_ids(published: Published) -> Iterator[Error]:
    hardware = published.hardware
    for what, ids in (
        ("figure", [figure.id for figure in published.figures]),
        ("finding", [finding.id for finding in published.findings]),
        ("GPU", [gpu.id for gpu in hardware.gpus]),
        ("system", [system.id for system in hardware.systems]),
        ("wire", [wire.id for wire in hardware.wires]),
    ):
        for name in sorted({name for name in ids if ids.count(name) > 1}):
            yield name, f"another {what} has the id {name!r} as well; rename one of them"


def _unknown_references(published: Published) -> Iterator[Error]:
    hardware, runs = published.hardware, published.runs
    models = {figure.conditions.model for figure in published.figures if figure.conditions.model}
    known = {
        "gpu": {gpu.id for gpu in hardware.gpus},
        "system": {system.id for system in hardware.systems},
        "network": {wire.id for wire in hardware.wires},
        "case": {case for block in runs for case in block.cases},
        "model": models.union(*(block.models for block in runs)),
    }
    for figure in published.figures:
        yield from _unknown(figure.id, [*_references(figure.conditions), *_references(figure.conditions.versus)], known)
    for name in (name for block in runs for name in block.gpu):
        yield from _unknown(name, [("gpu", (name,))], known)
    for finding in published.findings:
        for part in finding.parts:
            along = [(part.over, tuple(map(str, part.descending)))] if isinstance(part, Order) else []
            names = [pair for selector in part.selectors for pair in _references(selector)]
            yield from _unknown(finding.id, [*names, *along], known)
    ids = {figure.id for figure in published.figures} | {finding.id for finding in published.findings}
    for name in (name for declared in published.contradictions for name in declared.figures):
        if name not in ids:
            yield name, f"no figure has the id {name!r}; correct it, or remove it from `contradictions`"


def _unknown(id_: str, named: Iterable[tuple[str, tuple[str, ...]]], known: Mapping[str, set[str]]) -> Iterator[Error]:
    for field, name in ((field, name) for field, names in named for name in names):
        if field in known and name not in known[field]:
            where = {"case": "`cases` of a run", "model": "figures and runs"}.get(field, "`hardware`")
            have = ", ".join(sorted(known[field])) or "none"
            yield id_, f"{id_} names the {field} {name!r}, which is not in {where} of this file; known: {have}"


def _references(conditions: Conditions | Selector | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    for field in ("gpu", "system", "network", "case", "model"):
        value = getattr(conditions, field, None)
        if value is not None:
            yield field, value if isinstance(value, tuple) else (value,)


def _undeclared(published: Published) -> Iterator[Error]:
    """Contradictions that the file does not declare, and declared ones that do not exist."""
    found = {(each.check, each.figure): each for each in contradictions(published)}
    declared = {(each.check, figure) for each in published.contradictions for figure in each.figures}
    for check, figure in sorted(found.keys() - declared):
        each = found[check, figure]
        makes = f"{figure} is {each.printed:g} {each.unit}, but {' and '.join(each.against)} make it {each.recomputed:g} ({check})"
        yield figure, f"{makes}; correct the copy, or add it to `contradictions` if the source prints it so"
    for check, figure in sorted(declared - found.keys()):
        yield figure, f"{figure} contradicts nothing here ({check}); remove it from `contradictions`"


def line_of(path: Path, id_: str) -> int:
    """Return the line that assigns an id, else the first that mentions it; from 1."""
    lines = path.read_text(encoding="utf-8").splitlines()
    name = rf"{re.escape(id_)}(?![\w.-])"
    for pattern in (rf"\bid: {name}", rf"(?<![\w.-]){name}"):
        for number, line in enumerate(lines, start=1):
            if re.search(pattern, line):
                return number
    return 1
