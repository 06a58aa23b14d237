"""`dlscale query`: loads the tables that a query names and prints the answer."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Final, Literal

import duckdb

from runner.core.console import notify, open_console, open_screen
from runner.core.errors import RequestError
from runner.core.provenance import SUITE_ROOT
from runner.report import query as show
from runner.results.find import directories_at, read_runs
from runner.results.published.load import load_all
from runner.results.query.database import Database, indexed
from runner.results.query.tables import PUBLISHED, TABLES, Table

Form = Literal["table", "csv", "json"]
DEFAULT: Final = SUITE_ROOT / "results"
MANY: Final = 200  # records from which on their rows are cached between queries


def query(sql: str, *, place: str | None, form: Form) -> None:
    """Print the answer to one read-only statement of DuckDB's dialect, over the records at a place (see `runs_at`) or in `results/`.

    Raises RequestError if the place holds no run, or if the query can't be answered.
    """
    if place is not None and not place.strip():
        raise RequestError(
            "IN is empty; name a place, for example IN=results/MACHINE, or leave it out for all of results"
        )
    if not sql.strip():
        raise RequestError("SQL is empty; type for example SQL='SELECT run_id, measurement_throughput_value FROM runs'")
    wanted = tables_in(sql)
    database = Database()
    skipped = _fill(database, wanted, place)
    names, rows = database.ask(sql)
    notify(skipped)
    if form == "table":
        show.print_answer(open_console(), names, rows)
    else:
        _write(names, rows, form=form)


def _write(names: Sequence[str], rows: Sequence[show.Row], *, form: Form) -> None:
    """Write rows as CSV or JSON."""
    sys.stdout.write(show.to_csv(names, rows) if form == "csv" else show.to_json(names, rows))


def tables_in(sql: str) -> tuple[Table, ...]:
    """The tables whose names occur anywhere in a query, so that only those are read."""
    return tuple(table for table in TABLES if re.search(rf"\b{table.name}\b", sql, re.IGNORECASE))


def list_tables(*, form: Form) -> None:
    """Print every table with its columns; as CSV or JSON, a row per column."""
    if form == "table":
        show.print_tables(open_screen(), TABLES)
        return
    rows = [(table.name, column.name, column.type, column.meaning) for table in TABLES for column in table.columns]
    _write(("table", "column", "type", "meaning"), rows, form=form)


def _fill(database: Database, wanted: tuple[Table, ...], place: str | None) -> tuple[str, ...]:
    """Fill the tables that a query names; `published` alone, without a place, reads no records. Returns a sentence about each record skipped."""
    published = load_all() if PUBLISHED in wanted else ()
    directories = [] if set(wanted) <= {PUBLISHED} and place is None else directories_at(place or str(DEFAULT))
    if len(directories) >= MANY:
        with indexed(place or str(DEFAULT), directories) as index:
            try:
                database.fill_from_index(index.path, wanted, runs=index.runs)
            except duckdb.Error:  # the cache is damaged: delete it, and read the records this time
                index.path.unlink(missing_ok=True)
            else:
                database.fill(set(wanted) & {PUBLISHED}, runs=(), published=published)
                return index.skipped
    found = read_runs(directories)
    database.fill(wanted, runs=found.runs, published=published)
    return found.skipped
