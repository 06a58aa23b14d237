"""Reads what a query needs into memory, and shuts everything else: then no SQL can read a file, write one, or fetch anything."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

import duckdb

from runner.core.errors import RequestError, one_line
from runner.results.find import each_once, read_each
from runner.results.published.model import Published
from runner.results.query import tables
from runner.results.query.tables import FIGURES, RECORDS, Table

# What SQL may do is read; a pivot is several statements.
_READS: Final = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI}
_ZONE: Final = "WITH TIME ZONE"
_AT_ONCE: Final = 200
"""Records that are in memory as text."""


class Database:
    """All tables, empty at first; `fill` them, then `ask`."""

    def __init__(self) -> None:
        # Extensions would be fetched from the network where a query needs one.
        self._connection = duckdb.connect(
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        )
        self._connection.execute(
            f"""CREATE SCHEMA read;
            CREATE TABLE {RECORDS} AS
                SELECT '' AS directory, '' AS machine, json_transform('{{}}', '{tables.OF_RECORDS}') AS record LIMIT 0;
            CREATE TABLE {FIGURES} AS SELECT json_transform('{{}}', '{tables.OF_FIGURES}') AS figure LIMIT 0"""
        )
        for table in tables.TABLES:
            columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
            made = f"VIEW {table.name} AS {table.query}" if table.query else f"TABLE {table.name} ({columns})"
            self._connection.execute(f"CREATE {made}")

    def fill(
        self, wanted: Collection[Table], *, directories: Iterable[Path], published: Sequence[Published]
    ) -> tuple[str, ...]:
        """Fill the tables that are wanted, with run directories and sources; returns a sentence about each record that does not count.

        A RequestError: a table of a run can't be read.
        """
        self._insert(FIGURES, f"json_transform(text, '{tables.OF_FIGURES}')", text=list(tables.figures(published)))
        passed_over: list[str] = []
        named: list[tuple[Path, str]] = []
        records = read_each(directories, passed_over)
        while some := list(islice(records, _AT_ONCE)):
            named += [(directory, record.run_id) for directory, record in some]
            self._insert(
                RECORDS,
                f"directory, machine, json_transform(text, '{tables.OF_RECORDS}')",
                directory=[str(directory) for directory, _ in some],
                machine=[directory.parent.name for directory, _ in some],
                text=[record.model_dump_json(by_alias=True) for _, record in some],
            )
        kept, copies = each_once(named)
        left_out = [str(directory) for directory, _ in named if directory not in kept]
        self._connection.execute(f"DELETE FROM {RECORDS} WHERE list_contains(?, directory)", [left_out])  # noqa: S608
        for table in wanted:
            if not table.query:
                self._insert_files(
                    table.name, [(directory, run_id) for directory, run_id in named if directory in kept]
                )
        return *passed_over, *copies

    def _insert(self, table: str, made: str, **columns: list[str]) -> None:
        """Add the rows that are `made` of columns of texts."""
        lists = ", ".join(f"unnest(${name}::VARCHAR[]) AS {name}" for name in columns)
        self._connection.execute(f"INSERT INTO {table} SELECT {made} FROM (SELECT {lists})", columns)  # noqa: S608

    def _insert_files(self, table: str, runs: Iterable[tuple[Path, str]]) -> None:
        """Add what each run left of a table as Parquet; a file that is older than a column has null there."""
        for directory, run_id in runs:
            path = directory / f"{table}.parquet"
            if not path.is_file():
                continue
            # Of a path, DuckDB takes no character for a pattern then.
            literal = re.sub(r"([*?\[])", r"[\1]", str(path))
            try:
                self._connection.execute(
                    f"INSERT INTO {table} BY NAME "  # noqa: S608 - our own name
                    "SELECT ? AS run_id, * FROM read_parquet(?, hive_partitioning = false)",
                    [run_id, literal],
                )
            except duckdb.Error as error:
                raise RequestError(f"{path}: can't be read ({_sentence(error)}); the raw file is damaged") from error

    def ask(self, sql: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Names of an answer's columns, and its rows; a RequestError where it is not SQL, asks for what is not there, or would do more than read."""
        for setting in (
            "python_enable_replacements = false",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._connection.execute(f"SET {setting}")
        try:
            statements = self._connection.extract_statements(sql)
            if len(statements) != 1:
                raise RequestError(f"SQL holds {len(statements)} statements; ask one at a time")
            if statements[0].type not in _READS:
                raise RequestError(
                    f"a query only reads, and this is {statements[0].type.name}; begin it with SELECT, FROM, WITH, DESCRIBE or SUMMARIZE"
                )
            answer = self._connection.sql(sql)
            zones = any(_ZONE in str(kind) for kind in answer.types)
            return _unique(answer.columns), _by_arrow(answer) if zones else answer.fetchall()
        except duckdb.Error as error:
            raise RequestError(
                f"SQL can't be answered: {_sentence(error)} (`dlscale query --tables` lists tables and columns)"
            ) from error


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    """Names of columns; one that came before has a number, as the database itself gives it in tables."""
    given: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(1))
        given.append(name if name not in given else next(one for one in numbered if one not in given))
    return tuple(given)


def _by_arrow(answer: duckdb.DuckDBPyRelation) -> list[tuple[Any, ...]]:
    """All rows; for times of a zone the database's own way takes a library of zones, which Python itself has since 3.9."""
    return list(zip(*(column.to_pylist() for column in answer.to_arrow_table().columns), strict=True))


def _sentence(error: duckdb.Error) -> str:
    """DuckDB's message in one line, without the line of SQL that it points at."""
    return one_line(str(error).partition("\n\nLINE ")[0])
