"""The tables of `dlscale query`: their columns, and their rows from records and published sources. Pure.

A column is a field of a record; its name is the field's dotted path with underscores, its meaning is from the docstring of its type.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo

from runner.core.events.parse import COLUMNS, Kind, TableName
from runner.core.measurement import EpochFigures, RawWindow
from runner.core.record import RunRecord
from runner.results.find import RESULTS
from runner.results.published.derive import scaled
from runner.results.published.model import Conditions, Published, Row

SqlType = Literal["VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP", "JSON", "VARCHAR[]", "BIGINT[]", "DOUBLE[]"]
_SCALARS: Final[Mapping[type, SqlType]] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    Decimal: "DOUBLE",
    str: "VARCHAR",
    datetime: "TIMESTAMP",
    AwareDatetime: "TIMESTAMP",
}
_LISTS: Final[Mapping[SqlType, SqlType]] = {"VARCHAR": "VARCHAR[]", "BIGINT": "BIGINT[]", "DOUBLE": "DOUBLE[]"}
_ENTRY: Final = re.compile(r"^    (\w+(?:, \w+)*): (.*)$")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        type: SQL type.
        path: keys of its value in the JSON of a row's model.
        meaning: from the docstring of its type; empty if the name says all.
    """

    name: str
    type: str
    path: tuple[str, ...] = ()
    meaning: str = ""

    def of(self, fields: Mapping[str, Any]) -> Any:
        """Return its value from the JSON of a row's model; None if that lacks the field."""
        found: Any = fields
        for key in self.path:
            found = found.get(key) if isinstance(found, dict) else None
        return found


def columns_of(
    model: type[BaseModel], *, prefix: tuple[str, ...] = (), without: frozenset[str] = frozenset()
) -> tuple[Column, ...]:
    """Return the columns of a model: one for each scalar or list of scalars, those of nested models in place, all else as JSON.

    Args:
        model: the type of a row.
        prefix: keys of the model itself.
        without: dotted paths of fields to leave out.
    """
    found: dict[str, Column] = {}
    described = meanings(model)
    for name, field in model.model_fields.items():
        path = (*prefix, field.alias or name)
        if ".".join(path) in without:
            continue
        for column in _columns(field, path, without):
            known = found.setdefault(column.name, column)
            meaning = described.get(name, "") if column.path == path else column.meaning
            found[column.name] = replace(known, meaning=known.meaning or meaning)
    return tuple(found.values())


def _columns(field: FieldInfo, path: tuple[str, ...], without: frozenset[str]) -> Iterator[Column]:
    kinds = _without_none(field.annotation)
    models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    if models and len(models) == len(kinds):
        for model in models:
            yield from columns_of(model, prefix=path, without=without)
    else:
        yield Column(name="_".join(path), type=_sql_type(kinds), path=path)


def _without_none(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself, without None."""
    one_of = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return tuple(kind for kind in one_of if kind is not type(None))


def _sql_type(kinds: tuple[Any, ...]) -> SqlType:
    """Return the SQL type for values of these types; JSON if there is none."""
    found = {_type_of_one(kind) for kind in kinds}
    if found == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return found.pop() if len(found) == 1 else "JSON"


def _type_of_one(kind: Any) -> SqlType:
    if get_origin(kind) is Literal:
        return _sql_type(tuple({type(value) for value in get_args(kind)}))
    if get_origin(kind) is tuple:
        return _LISTS.get(_sql_type(tuple({one for one in get_args(kind) if one is not Ellipsis})), "JSON")
    metadata = getattr(kind, "__metadata__", None)  # Annotated
    return _type_of_one(kind.__origin__) if metadata else _SCALARS.get(kind, "JSON")


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Extract the sentence about each field from the docstring of a model, by field name."""
    _, _, section = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    names: tuple[str, ...] = ()
    for line in section.splitlines():
        if entry := _ENTRY.match(line):
            names = tuple(entry[1].split(", "))
            found |= dict.fromkeys(names, entry[2])
        elif line.startswith("        "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = ()
    return found


Rows = Iterator[dict[str, Any]]

# Fields with tables of their own, long lists, and intervals, which need several runs.
_LEFT_OUT: Final = frozenset(
    {"measurement.windows", "measurement.epochs", "measurement.losses", "measurement.evaluations"}
    | {"measurement.throughput.ci95", "scaling.speedup.ci95", "scaling.efficiency.ci95"}
)
_RUN_ID: Final = Column(name="run_id", type="VARCHAR", path=("run_id",), meaning="the run, as in table runs")
_SQL_TYPES: Final[Mapping[Kind, str]] = {
    "number": "DOUBLE",
    "whole": "BIGINT",
    "text": "VARCHAR",
    "numbers": "FLOAT[]",
    "processes": "STRUCT(pid BIGINT, memory_mib DOUBLE, cgroup VARCHAR, session BIGINT)[]",
}
_COUNTED: Final = Column(
    name="counted", type="BOOLEAN", meaning="whether it is in the steady state, over which throughput is computed"
)
_OF_LOSSES: Final = (
    Column(name="rank", type="BIGINT"),
    Column(name="iteration", type="BIGINT", meaning="from 0"),
    Column(name="loss", type="DOUBLE", meaning="null if it was not finite"),
)
_OF_RUNS: Final = (
    Column(name="directory", type="VARCHAR", meaning="the run directory"),
    Column(name="machine", type="VARCHAR", meaning="its folder in `results/`, else its parent folder"),
)


_OF_PUBLISHED: Final = (
    Column(name="source", type="VARCHAR", meaning="the source's id"),
    Column(name="title", type="VARCHAR"),
    Column(name="year", type="BIGINT"),
    *(
        Column(name=name, type=kind, path=(name,), meaning=meanings(Row).get(name, ""))
        for name, kind in (("id", "VARCHAR"), ("metric", "VARCHAR"), ("unit", "VARCHAR"), ("kind", "VARCHAR"))
    ),
    Column(name="value", type="DOUBLE", meaning="as printed; null if there is a value for each run"),
    Column(name="run_values", type="DOUBLE[]", meaning="the values of single runs, if printed"),
    Column(name="approx", type="BOOLEAN", path=("approx",), meaning=meanings(Row)["approx"]),
    Column(name="bound", type="VARCHAR", path=("bound",), meaning=meanings(Row)["bound"]),
    Column(name="place", type="VARCHAR", path=("where",), meaning="place in the document"),
    *columns_of(Conditions),
    Column(name="baseline", type="VARCHAR", meaning="id of the figure on the fewest devices, all else equal"),
    Column(name="speedup", type="DOUBLE", meaning="the figure ÷ its baseline, recomputed"),
    Column(name="efficiency_percent", type="DOUBLE", meaning="of the ideal speedup"),
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table; `row` describes a row, `rows` yields those of a record, `raw` names the table file of a run that it is read from."""

    name: str
    row: str
    columns: tuple[Column, ...]
    rows: Callable[[Path, RunRecord], Rows] | None = None
    raw: TableName | None = None


def _of_run(directory: Path, record: RunRecord) -> Rows:
    fields = _picked(RUNS.columns, record.model_dump(mode="json", by_alias=True))
    yield {**fields, "directory": str(directory), "machine": _machine(directory)}


def _machine(directory: Path) -> str:
    """Return the machine's folder: `h200` for `results/h200/scaling/RUN`."""
    above = directory.absolute().parent.parts
    place = max((at for at, name in enumerate(above[:-1]) if name == RESULTS.name), default=len(above) - 2)
    return above[place + 1]


def _of_windows(_: Path, record: RunRecord) -> Rows:
    steady = record.measurement.steady
    for window in record.measurement.windows:
        counted = steady is not None and window.index >= steady.first_window
        yield {**_picked(WINDOWS.columns, window.model_dump()), "run_id": record.run_id, "counted": counted}


def _of_losses(_: Path, record: RunRecord) -> Rows:
    for rank, curve in record.measurement.losses.items():
        for iteration, loss in enumerate(curve):
            yield {"run_id": record.run_id, "rank": int(rank), "iteration": iteration, "loss": loss}


def _of_epochs(_: Path, record: RunRecord) -> Rows:
    for epoch in record.measurement.epochs:
        yield {**_picked(EPOCHS.columns, epoch.model_dump()), "run_id": record.run_id}


def _raw(table: TableName, row: str) -> Table:
    columns = (Column(name=name, type=_SQL_TYPES[kind]) for name, kind in COLUMNS[table].items())
    return Table(name=table, row=row, columns=(_RUN_ID, *columns), raw=table)


RUNS: Final = Table(
    name="runs",
    row="one run: its record, without the fields that have tables of their own",
    columns=(*_OF_RUNS, *columns_of(RunRecord, without=_LEFT_OUT)),
    rows=_of_run,
)
WINDOWS: Final = Table(
    name="windows",
    row="one window of one rank, between two points at which its devices were synchronized",
    columns=(_RUN_ID, *columns_of(RawWindow), _COUNTED),
    rows=_of_windows,
)
LOSSES: Final = Table(
    name="losses",
    row="one iteration of one rank, warm-up included",
    columns=(_RUN_ID, *_OF_LOSSES),
    rows=_of_losses,
)
EPOCHS: Final = Table(
    name="epochs",
    row="one epoch of a convergence training",
    columns=(_RUN_ID, *columns_of(EpochFigures)),
    rows=_of_epochs,
)
TELEMETRY: Final = _raw("telemetry", "one sample of one device")
KERNELS: Final = _raw("kernels", "one kernel, copy, call or operator of a profiling pass")
PUBLISHED: Final = Table(name="published", row="one published figure", columns=_OF_PUBLISHED)
TABLES: Final = (RUNS, WINDOWS, LOSSES, EPOCHS, TELEMETRY, KERNELS, PUBLISHED)
OF_RECORDS: Final = {table: table.rows for table in TABLES if table.rows}
"""The tables that are filled from records, with the functions that yield their rows."""


def rows_of_published(sources: Sequence[Published]) -> Rows:
    """Yield the rows of PUBLISHED."""
    for published in sources:
        speedups = {each.figure.id: each for each in scaled(published)}
        for figure in published.figures:
            several = isinstance(figure.value, tuple)
            speedup = speedups.get(figure.id)
            fields = figure.model_dump(mode="json")
            yield {
                **_picked(PUBLISHED.columns, {**fields, **fields["conditions"]}),
                "source": published.id,
                "title": published.source.title,
                "year": published.source.year,
                "value": None if several else float(fields["value"]),
                "run_values": [float(value) for value in fields["value"]] if several else None,
                "baseline": speedup.baseline.id if speedup else None,
                "speedup": speedup.speedup if speedup else None,
                "efficiency_percent": speedup.efficiency_percent if speedup else None,
            }


def _picked(columns: Sequence[Column], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Pick the values of columns from the JSON of a model."""
    return {column.name: column.of(fields) for column in columns if column.path}
