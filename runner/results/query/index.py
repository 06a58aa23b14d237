"""The rows of records, kept between queries: a record is read again when its file is another one than the one that was read.

One file of DuckDB a place, in the user's cache, so that nobody else's is ever believed and a folder that is closed to writing has one.
It is never changed where it lies: a new one takes its place at once, whatever other queries read or write.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import duckdb

from runner.core.cache import cache_dir, suite_digest
from runner.core.errors import RequestError
from runner.results.find import each_once
from runner.results.query import tables
from runner.results.query.database import create, insert
from runner.results.store import RECORD, read_record

OF_RECORDS: Final = {
    tables.RUNS: tables.rows_of_runs,
    tables.WINDOWS: tables.rows_of_windows,
    tables.LOSSES: tables.rows_of_losses,
    tables.EPOCHS: tables.rows_of_epochs,
}
SETTLED_NS: Final = 2 * 10**9
"""A file that was changed less long ago could be changed again without another time of change: it is read again next time."""
MOST: Final = 8
"""Places of which one is kept."""
AT_ONCE: Final = 200
"""Records in memory."""

Mark = tuple[int, int, int, int]
"""Size of a file, times of its content and of its entry in nanoseconds, and inode."""


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """The index of a place, up to date.

    Attributes:
        path: the file; `file` in its tables is the number of a record.
        runs: of the runs that count, the number, the directory and the id.
        passed_over: a sentence about each record that does not.
    """

    path: Path
    runs: tuple[tuple[int, Path, str], ...]
    passed_over: tuple[str, ...]


@contextmanager
def indexed(place: str, directories: Sequence[Path]) -> Iterator[Indexed]:
    """Bring the index of a place up to date; where it can't be kept, it is there until the end."""
    with tempfile.TemporaryDirectory(prefix="dlscale-index-") as scratch:
        try:
            folder = cache_dir() / "index"
            folder.mkdir(parents=True, exist_ok=True)
            Path(tempfile.mkstemp(dir=folder)[1]).unlink()
        except OSError:
            folder = Path(scratch)
        path = folder / f"{_digest(os.path.abspath(place), place)}.{_digest(suite_digest(), duckdb.__version__)}"  # noqa: PTH100 - not through links
        known = _known(path)
        marks = {directory: mark for directory in directories if (mark := _mark(directory))}
        stale = [
            directory
            for directory in directories
            if directory not in marks or known.get(directory, (0, None, ""))[1] != marks[directory]
        ]
        gone = [number for directory, (number, mark, _) in known.items() if mark != marks.get(directory)]
        passed_over: list[str] = []
        if stale or gone or not path.exists():
            path, passed_over = _renewed(path, stale, marks, gone, scratch=Path(scratch))
            known = _known(path)
        with suppress(OSError):
            os.utime(path)
            _prune(folder)
        named = [(directory, known[directory][2]) for directory in directories if directory in known]
        kept, copies = each_once(named)
        runs = tuple((known[directory][0], directory, name) for directory, name in named if directory in kept)
        yield Indexed(path=path, runs=runs, passed_over=(*passed_over, *copies))


def _digest(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def _mark(directory: Path) -> Mark | None:
    """None of a file that is not there."""
    with suppress(OSError):
        about = (directory / RECORD).stat()
        return about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino
    return None


def _known(path: Path) -> dict[Path, tuple[int, Mark, str]]:
    """By directory, the number, the mark and the run of what an index holds; nothing where there is none, or it is damaged."""
    with suppress(duckdb.Error, OSError):
        if path.stat().st_size:
            with duckdb.connect(str(path), read_only=True) as connection:
                found = connection.execute("SELECT * FROM files").fetchall()
            return {Path(place): (number, tuple(mark), name) for number, place, name, *mark in found}
    return {}


def _renewed(
    path: Path, stale: Sequence[Path], marks: Mapping[Path, Mark], gone: Sequence[int], *, scratch: Path
) -> tuple[Path, list[str]]:
    """Write the index anew with what was read again and without what is gone; returns where it is, and what can't be read."""
    draft = (
        scratch / "draft"
    )  # nobody else sees it before it is whole, so that it needs no transaction, which memory would hold
    passed_over: list[str] = []
    with suppress(FileNotFoundError):
        shutil.copyfile(path, draft)
    try:
        connection = _opened(draft)
    except duckdb.Error:  # damaged
        draft.unlink()
        connection = _opened(draft)
    with connection:
        numbers = ", ".join(map(str, gone)) or "NULL"
        for name in ("files", *(table.name for table in OF_RECORDS)):
            connection.execute(f'DELETE FROM "{name}" WHERE file IN ({numbers})')  # noqa: S608 - our own names and numbers
        (first,) = connection.execute("SELECT coalesce(max(file), 0) + 1 FROM files").fetchone() or (1,)
        left = enumerate(stale, start=first)
        while some := list(islice(left, AT_ONCE)):
            passed_over += _read(connection, some, marks)
    with suppress(OSError):
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        shutil.move(draft, beside)
        return beside.replace(path), passed_over
    return draft, passed_over


def _opened(path: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(path))
    connection.execute(
        "CREATE TABLE IF NOT EXISTS files "
        "(file BIGINT, directory VARCHAR, run_id VARCHAR, size BIGINT, mtime_ns BIGINT, ctime_ns BIGINT, inode UBIGINT)"
    )
    for table in OF_RECORDS:
        create(connection, table, numbered=True)
    return connection


def _read(
    connection: duckdb.DuckDBPyConnection, numbered: Sequence[tuple[int, Path]], marks: Mapping[Path, Mark]
) -> list[str]:
    """Read records and add their rows; returns a sentence about each that can't be read."""
    rows: dict[str, list[dict[str, Any]]] = {table.name: [] for table in OF_RECORDS}
    files, passed_over = [], []
    now = time.time_ns()
    for number, directory in numbered:
        try:
            record = read_record(directory)
        except RequestError as error:
            passed_over.append(str(error))
            continue
        mark = marks.get(directory)
        settled = mark is not None and now - max(mark[1:3]) > SETTLED_NS
        files.append((number, str(directory), record.run_id, *(mark if mark and settled else (-1, 0, 0, 0))))
        for table, rows_of in OF_RECORDS.items():
            for row in rows_of([(directory, record)]):
                row["file"] = number
                rows[table.name].append(row)
    if files:
        connection.executemany("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", files)
    for table in OF_RECORDS:
        insert(connection, table, rows[table.name], numbered=True)
    return passed_over


def _prune(folder: Path) -> None:
    """Leave the indexes that were asked last."""
    for path in sorted(folder.iterdir(), key=lambda path: -path.stat().st_mtime_ns)[MOST:]:
        path.unlink()
