"""Fills the tables that a query names, in memory, from records or from their index, then blocks all external access.

After that, SQL can read no file, write none, and fetch nothing. An index caches the rows of records between queries; a record is read again
if its file has changed. The index is one DuckDB file a place, in the user's cache, so that no other user's index is trusted and read-only
folders have one as well. It is never modified in place: a new one replaces it atomically, whatever other queries read or write.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

import duckdb

from runner.core.cache import cache_dir, suite_digest
from runner.core.errors import RequestError, one_line
from runner.core.events.parse import TableName
from runner.results import tables as raw
from runner.results.find import Run, one_per_run
from runner.results.published.model import Published
from runner.results.query import tables
from runner.results.query.tables import Table
from runner.results.store import RECORD, read_record

# SQL may only read; a pivot is several statements.
_READS: Final = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI}
_ZONE: Final = "WITH TIME ZONE"


class Database:
    """All tables, empty at first; `fill` them, then `ask`."""

    def __init__(self) -> None:
        # DuckDB would download the extensions that a query needs.
        self._connection = duckdb.connect(
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        )
        for table in tables.TABLES:
            create(self._connection, table)

    def fill(self, wanted: Iterable[Table], *, runs: Sequence[Run], published: Sequence[Published]) -> None:
        """Fill some tables.

        Raises:
            RequestError: a table of a run can't be read.
        """
        for table in wanted:
            if table is tables.PUBLISHED:
                insert(self._connection, table, tables.rows_of_published(published))
            elif table.rows:
                insert(self._connection, table, (row for run in runs for row in table.rows(*run)))
            elif table.raw:
                self._insert_files(table.raw, [(directory, record.run_id) for directory, record in runs])

    def fill_from_index(self, index: Path, wanted: Iterable[Table], *, runs: Sequence[tuple[Path, str]]) -> None:
        """Fill the tables of records from an index, and those of files from the run directories.

        Args:
            index: a DuckDB file whose tables have the same columns and `file`, the run directory.
            wanted: the tables to fill.
            runs: directory and id of each run that counts.

        Raises:
            RequestError: a table of a run can't be read.
            duckdb.Error: the index can't be read; nothing was filled.
        """
        directories = [str(directory) for directory, _ in runs]
        place = str(index).replace("'", "''")
        self._connection.execute(f"ATTACH '{place}' AS kept (READ_ONLY)")
        self._connection.execute("CREATE TEMP TABLE counts AS SELECT unnest(?::VARCHAR[]) AS file", [directories])
        self._connection.execute("BEGIN")
        try:
            for table in wanted:
                if table.raw:
                    self._insert_files(table.raw, runs)
                elif table is not tables.PUBLISHED:
                    self._connection.execute(
                        f'INSERT INTO "{table.name}" BY NAME '  # noqa: S608 - our own name
                        f'SELECT * EXCLUDE file FROM kept."{table.name}" SEMI JOIN counts USING (file) ORDER BY file'
                    )
            self._connection.execute("COMMIT")
        except duckdb.Error:
            self._connection.execute("ROLLBACK")
            raise
        finally:
            self._connection.execute("DROP TABLE counts")
            self._connection.execute("DETACH kept")

    def ask(self, sql: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Run a query; return the names of the columns, and the rows.

        Raises:
            RequestError: it is not SQL, names something that does not exist, or would do more than read.
        """
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

    def _insert_files(self, table: TableName, runs: Sequence[tuple[Path, str]]) -> None:
        """Insert each run's Parquet file of a table; columns that an older file lacks are null."""
        for directory, run_id in runs:
            path = directory / raw.parquet_file(table)
            if path.is_file():
                self._insert_file(table, path, run_id)

    def _insert_file(self, table: TableName, path: Path, run_id: str) -> None:
        try:
            self._connection.execute(
                f'INSERT INTO "{table}" BY NAME '  # noqa: S608 - our own name
                "SELECT ? AS run_id, * FROM read_parquet(?, hive_partitioning = false)",
                [run_id, _escaped(path)],
            )
        except duckdb.Error as error:
            step = "put the raw file back as the run left it, or name a folder without this run"
            raise RequestError(f"{path}: can't be read ({_sentence(error)}); {step}") from error


def create(connection: duckdb.DuckDBPyConnection, table: Table, *, in_index: bool = False) -> None:
    """Create an empty table if it does not exist; in an index, with a column for the run directory of each row."""
    columns = ", ".join(f'"{name}" {kind}' for name, kind in _columns(table, in_index=in_index).items())
    connection.execute(f'CREATE TABLE IF NOT EXISTS "{table.name}" ({columns})')


def insert(
    connection: duckdb.DuckDBPyConnection, table: Table, rows: Iterable[Mapping[str, Any]], *, in_index: bool = False
) -> None:
    """Insert rows through a file of JSON lines; missing fields become null."""
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in _columns(table, in_index=in_index).items())
    with tempfile.NamedTemporaryFile("w", prefix="dlscale-rows-", suffix=".json", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)
        file.flush()
        connection.execute(
            f'INSERT INTO "{table.name}" BY NAME '  # noqa: S608 - our own names
            f"SELECT * FROM read_json(?, format = 'newline_delimited', columns = {{{columns}}})",
            [_escaped(Path(file.name))],
        )


def _columns(table: Table, *, in_index: bool) -> dict[str, str]:
    return {column.name: column.type for column in table.columns} | ({"file": "VARCHAR"} if in_index else {})


def _escaped(path: Path) -> str:
    """Escape a path so that DuckDB interprets no character as a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    """Append numbers to repeated column names, as DuckDB does in tables."""
    given: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(1))
        given.append(name if name not in given else next(one for one in numbered if one not in given))
    return tuple(given)


def _by_arrow(answer: duckdb.DuckDBPyRelation) -> list[tuple[Any, ...]]:
    """Fetch all rows through Arrow: for times with a zone, `fetchall` needs a library of zones, which Python itself has since 3.9."""
    return list(zip(*(column.to_pylist() for column in answer.to_arrow_table().columns), strict=True))


def _sentence(error: duckdb.Error) -> str:
    """Put DuckDB's message on one line, without the excerpt of the SQL."""
    return one_line(str(error).partition("\n\nLINE ")[0])


SETTLED_NS: Final = 2 * 10**9
"""A file changed more recently than this is read again next time: another change could leave the same timestamp."""
MAX_INDEXES: Final = 8
"""At most so many indexes are in the cache."""
RECORDS_AT_A_TIME: Final = 200
"""Records in memory at a time."""

Mark = tuple[int, ...]
"""Size, mtime and ctime in nanoseconds, and inode of a file; empty if it must be read again."""


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """The updated index of a place.

    Attributes:
        path: the DuckDB file; column `file` of its tables is the run directory.
        runs: directory and id of each run that counts.
        skipped: a sentence about each record that does not count.
    """

    path: Path
    runs: tuple[tuple[Path, str], ...]
    skipped: tuple[str, ...]


@contextmanager
def indexed(place: str, directories: Sequence[Path]) -> Iterator[Indexed]:
    """Update the index of a place; if the cache can't be written, the index is temporary and lasts for the block."""
    with tempfile.TemporaryDirectory(prefix="dlscale-index-") as scratch:
        try:
            folder = cache_dir() / "index"
            folder.mkdir(parents=True, exist_ok=True)
            Path(tempfile.mkstemp(dir=folder)[1]).unlink()
        except OSError:
            folder = Path(scratch)
        path = folder / f"{_digest(os.path.abspath(place), place)}.{_digest(suite_digest(), duckdb.__version__)}"  # noqa: PTH100 - not through links
        known = _known(path)
        marks = {directory: _mark(directory) for directory in directories}
        stale = [
            directory for directory, mark in marks.items() if not mark or known.get(directory, ("", ()))[1] != mark
        ]
        gone = [directory for directory, (_, mark) in known.items() if mark != marks.get(directory)]
        skipped: list[str] = []
        if stale or gone or not path.exists():
            path, skipped = _rebuilt(path, stale, marks, gone, scratch=Path(scratch))
            known = _known(path)
        with suppress(OSError):
            os.utime(path)
            _prune(folder)
        named = [(directory, known[directory][0]) for directory in directories if directory in known]
        kept, copies = one_per_run(named)
        runs = tuple((directory, name) for directory, name in named if directory in kept)
        yield Indexed(path=path, runs=runs, skipped=(*skipped, *copies))


def _digest(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def _mark(directory: Path) -> Mark:
    """Return the mark of the record in a run directory."""
    with suppress(OSError):
        about = (directory / RECORD).stat()
        return about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino
    return ()


def _known(path: Path) -> dict[Path, tuple[str, Mark]]:
    """Return the run id and the mark of each directory in an index; empty if the index is missing or damaged."""
    with suppress(duckdb.Error, OSError):
        if path.stat().st_size:
            with duckdb.connect(str(path), read_only=True) as connection:
                found = connection.execute("SELECT * FROM files").fetchall()
            return {Path(place): (name, tuple(mark)) for place, name, mark in found}
    return {}


def _rebuilt(
    path: Path, stale: Sequence[Path], marks: Mapping[Path, Mark], gone: Sequence[Path], *, scratch: Path
) -> tuple[Path, list[str]]:
    """Write a new index with stale records read again and gone ones removed; return its path, and a sentence about each unreadable record."""
    # No other process sees it before it is complete, so it needs no transaction, which would use memory.
    draft = scratch / "draft"
    skipped: list[str] = []
    with suppress(FileNotFoundError):
        shutil.copyfile(path, draft)
    try:
        connection = _opened(draft)
    except duckdb.Error:  # damaged
        draft.unlink()
        connection = _opened(draft)
    with connection:
        for name in ("files", *(table.name for table in tables.OF_RECORDS)):
            delete = f'DELETE FROM "{name}" WHERE list_contains(?::VARCHAR[], file)'  # noqa: S608 - our own names
            connection.execute(delete, [list(map(str, gone))])
        remaining = iter(stale)
        while some := list(islice(remaining, RECORDS_AT_A_TIME)):
            skipped += _read(connection, some, marks)
    with suppress(OSError):
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        shutil.move(draft, temporary)
        return temporary.replace(path), skipped
    return draft, skipped


def _opened(path: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(path))
    connection.execute("CREATE TABLE IF NOT EXISTS files (file VARCHAR, run_id VARCHAR, mark UBIGINT[])")
    for table in tables.OF_RECORDS:
        create(connection, table, in_index=True)
    return connection


def _read(connection: duckdb.DuckDBPyConnection, directories: Sequence[Path], marks: Mapping[Path, Mark]) -> list[str]:
    """Read records and insert their rows; return a sentence about each that can't be read."""
    rows: dict[str, list[dict[str, Any]]] = {table.name: [] for table in tables.OF_RECORDS}
    files, skipped = [], []
    now = time.time_ns()
    for directory in directories:
        try:
            record = read_record(directory)
        except RequestError as error:
            skipped.append(str(error))
            continue
        mark, place = marks[directory], str(directory)
        settled = mark and now - max(mark[1:3]) > SETTLED_NS
        files.append((place, record.run_id, mark if settled else ()))
        for table, rows_of in tables.OF_RECORDS.items():
            rows[table.name] += ({**row, "file": place} for row in rows_of(directory, record))
    if files:
        connection.executemany("INSERT INTO files VALUES (?, ?, ?)", files)
    for table in tables.OF_RECORDS:
        insert(connection, table, rows[table.name], in_index=True)
    return skipped


def _prune(folder: Path) -> None:
    """Remove all but the most recently used indexes."""
    for path in sorted(folder.iterdir(), key=lambda path: -path.stat().st_mtime_ns)[MAX_INDEXES:]:
        path.unlink()
