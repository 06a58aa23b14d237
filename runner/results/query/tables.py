"""The tables that SQL can ask: their columns, and the SELECT that makes each of what was read, records and figures as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runner.core.events.parse import COLUMNS, Kind, TableName
from runner.core.measurement import EpochFigures, RawWindow
from runner.core.record import RunRecord
from runner.results.published.derive import scaled
from runner.results.published.model import Conditions, Published, Row
from runner.results.query.columns import Column, columns_of, meanings

# What has tables of its own, is a list for every iteration, or an interval, which takes several runs.
_LEFT_OUT: Final = frozenset(
    {"measurement.windows", "measurement.epochs", "measurement.losses", "measurement.evaluations"}
    | {"measurement.throughput.ci95", "scaling.speedup.ci95", "scaling.efficiency.ci95"}
)
_RUN_ID: Final = Column(name="run_id", type="VARCHAR", path=("run_id",), meaning="the run, as in table runs")
_RAW: Final[Mapping[Kind, str]] = {
    "number": "DOUBLE",
    "whole": "BIGINT",
    "text": "VARCHAR",
    "numbers": "FLOAT[]",
    "processes": "STRUCT(pid BIGINT, memory_mib DOUBLE, cgroup VARCHAR, session BIGINT)[]",
}
RECORDS: Final = "read.records"
"""Has the columns `directory`, `machine` and `record`."""
FIGURES: Final = "read.figures"
"""Has the column `figure`."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table; `row` says what a row of it is, `query` makes its columns from others in order; one without has Parquet files."""

    name: str
    row: str
    columns: tuple[Column, ...]
    query: str = ""


def _structure(columns: Iterable[Column]) -> dict[str, Any]:
    """What `json_transform` is to make of a JSON that holds the values of columns, each at its path."""
    found: dict[str, Any] = {}
    for column in columns:
        *above, last = column.path
        place = found
        for key in above:
            place = place.setdefault(key, {})
        # DuckDB casts texts to times, but reads none from JSON that has a zone.
        place[last] = "VARCHAR" if column.type == "TIMESTAMP" else column.type
    return found


def _picked(columns: Iterable[Column], of: str) -> str:
    """The columns of a SELECT, by their paths in a value `of`."""
    fields = (".".join((of, *(f'"{key}"' for key in column.path))) for column in columns)
    return ", ".join(
        f'{field}::{column.type} AS "{column.name}"' for field, column in zip(fields, columns, strict=True)
    )


def _raw(table: TableName) -> tuple[Column, ...]:
    """The columns of a table that runs leave beside their events."""
    return (_RUN_ID, *(Column(name=name, type=_RAW[kind]) for name, kind in COLUMNS[table].items()))


_OF_RECORD: Final = columns_of(RunRecord, without=_LEFT_OUT)
_OF_WINDOW: Final = columns_of(RawWindow)
_OF_EPOCH: Final = columns_of(EpochFigures)
_OF_FIGURE: Final = (
    Column(name="source", type="VARCHAR", path=("source",), meaning="the source's id"),
    Column(name="title", type="VARCHAR", path=("title",)),
    Column(name="year", type="BIGINT", path=("year",)),
    *(
        Column(name=name, type="VARCHAR", path=(name,), meaning=meanings(Row).get(name, ""))
        for name in ("id", "metric", "unit", "kind")
    ),
    Column(name="value", type="DOUBLE", path=("one",), meaning="as printed; null where there is a value for each run"),
    Column(
        name="run_values",
        type="DOUBLE[]",
        path=("several",),
        meaning="the values of single runs, where those are printed",
    ),
    Column(name="approx", type="BOOLEAN", path=("approx",), meaning=meanings(Row)["approx"]),
    Column(name="bound", type="VARCHAR", path=("bound",), meaning=meanings(Row)["bound"]),
    Column(name="place", type="VARCHAR", path=("where",), meaning="where in the document it is printed"),
    *columns_of(Conditions),
    Column(
        name="baseline",
        type="VARCHAR",
        path=("baseline",),
        meaning="id of the figure on the fewest devices, otherwise alike",
    ),
    Column(name="speedup", type="DOUBLE", path=("speedup",), meaning="the figure ÷ its baseline, computed again"),
    Column(name="efficiency_percent", type="DOUBLE", path=("efficiency_percent",), meaning="of the ideal speedup"),
)

OF_FIGURES: Final = json.dumps(_structure(_OF_FIGURE))
"""The structure of `figure`."""
_LISTS: Final = {
    "windows": [_structure(_OF_WINDOW)],
    "epochs": [_structure(_OF_EPOCH)],
    "losses": "MAP(VARCHAR, DOUBLE[])",
}
_RECORD: Final = _structure(_OF_RECORD)
OF_RECORDS: Final = json.dumps(_RECORD | {"measurement": _RECORD["measurement"] | _LISTS})
"""The structure of `record`."""

RUNS: Final = Table(
    name="runs",
    row="one run: its record, without what has a table of its own",
    columns=(
        Column(name="directory", type="VARCHAR", meaning="the run directory"),
        Column(name="machine", type="VARCHAR", meaning="the folder that it is in"),
        *_OF_RECORD,
    ),
    query=f"SELECT directory, machine, {_picked(_OF_RECORD, 'record')} FROM {RECORDS}",  # noqa: S608 - our own names
)
WINDOWS: Final = Table(
    name="windows",
    row="one window of one rank, between two points at which its devices were synchronized",
    columns=(
        _RUN_ID,
        *_OF_WINDOW,
        Column(
            name="counted",
            type="BOOLEAN",
            meaning="whether it is of the steady state, which throughput is taken over",
        ),
    ),
    query=f"""SELECT record.run_id, {_picked(_OF_WINDOW, "one")},
        coalesce(one.index >= record.measurement.steady.first_window, false) AS counted
        FROM (SELECT record, unnest(record.measurement.windows) AS one FROM {RECORDS})""",  # noqa: S608
)
LOSSES: Final = Table(
    name="losses",
    row="one iteration of one rank, warm-up included",
    columns=(
        _RUN_ID,
        Column(name="rank", type="BIGINT"),
        Column(name="iteration", type="BIGINT", meaning="from 0"),
        Column(name="loss", type="DOUBLE", meaning="null where it was not finite"),
    ),
    query=f"""SELECT run_id, curve.key::BIGINT AS rank, unnest(range(len(curve.value))) AS iteration, unnest(curve.value) AS loss
        FROM (SELECT record.run_id, unnest(map_entries(record.measurement.losses)) AS curve FROM {RECORDS})""",  # noqa: S608
)
EPOCHS: Final = Table(
    name="epochs",
    row="one epoch of a training that is watched to converge",
    columns=(_RUN_ID, *_OF_EPOCH),
    query=f"""SELECT run_id, {_picked(_OF_EPOCH, "one")}
        FROM (SELECT record.run_id, unnest(record.measurement.epochs) AS one FROM {RECORDS})""",  # noqa: S608
)
TELEMETRY: Final = Table(name="telemetry", row="one sample of one device", columns=_raw("telemetry"))
KERNELS: Final = Table(
    name="kernels", row="one kernel, copy, call or operator of a pass under a profiler", columns=_raw("kernels")
)
PUBLISHED: Final = Table(
    name="published",
    row="one figure that somebody published",
    columns=_OF_FIGURE,
    query=f"SELECT {_picked(_OF_FIGURE, 'figure')} FROM {FIGURES}",  # noqa: S608
)
TABLES: Final = (RUNS, WINDOWS, LOSSES, EPOCHS, TELEMETRY, KERNELS, PUBLISHED)


def figures(sources: Sequence[Published]) -> Iterator[str]:
    """Every figure of sources as JSON, with its speedup where it has one."""
    for published in sources:
        speedups = {each.figure.id: each for each in scaled(published)}
        for figure in published.figures:
            fields = figure.model_dump(mode="json")
            speedup = speedups.get(figure.id)
            yield json.dumps(
                {
                    **fields,
                    **fields["conditions"],
                    "source": published.id,
                    "title": published.source.title,
                    "year": published.source.year,
                    "several" if isinstance(figure.value, tuple) else "one": fields["value"],
                    "baseline": speedup and speedup.baseline.id,
                    "speedup": speedup and speedup.speedup,
                    "efficiency_percent": speedup and speedup.efficiency_percent,
                }
            )
