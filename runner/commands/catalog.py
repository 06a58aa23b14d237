"""`dlscale list` and `dlscale models`: the possible values of FRAMEWORK, MODEL, STRATEGY and STUDY."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from runner.core import parsing
from runner.core.console import open_screen
from runner.core.provenance import SUITE_ROOT
from runner.core.strategies import STRATEGIES
from runner.core.workload import load_workloads
from runner.images.catalog import load_images
from runner.report.table import plain_table

Facts = dict[str, Any]
AS_JSON: Final = typer.Option("--json", help="print it as JSON")


def _frameworks() -> Iterator[Facts]:
    catalog = load_images(SUITE_ROOT)
    for name in catalog.frameworks:
        versions = {f"{kind}_versions": [one.version for one in catalog.of(name, kind)] for kind in ("cpu", "gpu")}
        yield {"framework": name, **versions}


def _models() -> Iterator[Facts]:
    for workload in load_workloads(SUITE_ROOT):
        for model in workload.models:
            yield {
                "model": model.name,
                "workload": workload.name,
                "pixels": model.image_size,
                "parameters": max(model.parameters.values()),
                "frameworks": model.frameworks,
            }


def _strategies() -> Iterator[Facts]:
    for name, strategy in STRATEGIES.items():
        yield {
            "strategy": name,
            "devices": strategy.devices,
            "several_nodes": "yes" if strategy.several_nodes else "no",
            "frameworks": strategy.frameworks,
        }


def _studies() -> Iterator[Facts]:
    from runner.experiments.studies.study import load_study, study_names

    for name in study_names():
        yield {"study": name, "title": load_study(name)[0].title}


_LISTS: Final[Mapping[str, Callable[[], Iterator[Facts]]]] = {
    "frameworks": _frameworks,
    "models": _models,
    "strategies": _strategies,
    "studies": _studies,
}

_SINGULAR: Final = {"framework": "frameworks", "model": "models", "strategy": "strategies", "study": "studies"}


def list_names(
    what: Annotated[
        str, typer.Argument(help="frameworks, models, strategies or studies", autocompletion=lambda: list(_LISTS))
    ],
    *,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """List the available frameworks with their versions, models, strategies, or studies."""
    print_facts(list(_LISTS[parsing.one_of("WHAT", what, _LISTS, aliases=_SINGULAR)]()), as_json=as_json)


def print_facts(facts: Sequence[Facts], *, as_json: bool) -> None:
    """Print at least one row of facts, all with the same keys, as a table or as JSON."""
    if as_json:
        sys.stdout.write(json.dumps(facts, indent=1) + "\n")
        return
    table = plain_table()
    for name in facts[0]:
        table.add_column(
            name.replace("_", " "), justify="right" if any(isinstance(one[name], int) for one in facts) else "left"
        )
    table.columns[0].no_wrap = True  # users retype names: the other columns wrap first
    for one in facts:
        table.add_row(*map(_cell, one.values()))
    open_screen().print(table)


def models(*, as_json: Annotated[bool, AS_JSON] = False) -> None:
    """List the models, with the frameworks that have each: short for `dlscale list models`."""
    list_names("models", as_json=as_json)


def _cell(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(value)
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
