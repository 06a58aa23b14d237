"""The tables of a run: lines of JSON while it runs, Parquet after it, read as one array a column.

Files keep rows in order of arrival. The rows that a killed runner had received stay readable as lines.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from runner.analysis.profile.classify import category
from runner.core.events.parse import COLUMNS, Kind, Rows, TableName
from runner.core.frozen import load_fields
from runner.core.telemetry import Samples
from runner.results.disk import draft

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

# Fewest rows of a Parquet row group: only one group at a time is in memory while a long run's table is converted.
GROUP: Final = 10_000


def lines_file(table: TableName) -> str:
    """Return the name of the file that rows are appended to during a run."""
    return f"{table}.jsonl"


def parquet_file(table: TableName) -> str:
    """Return the name of the file in the directory of a completed run."""
    return f"{table}.parquet"


def write_parquet(directory: Path, *, nodes: Mapping[str, str]) -> None:
    """Convert the lines of every table in a run directory to Parquet, then remove them.

    `nodes` maps containers to nodes. Raises OSError if the file can't be written; the lines are kept then.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes 0.2 s to load, after the run
    import pyarrow.parquet as pq  # noqa: PLC0415

    # Arrow's own allocator holds 6 MiB more than it allocates.
    pa.set_memory_pool(pa.system_memory_pool())
    for table in COLUMNS:
        lines = directory / lines_file(table)
        if not lines.exists():
            continue
        # Pass open files, not paths: pyarrow parses a folder name such as `a:b` as a URI.
        with (
            draft(directory / parquet_file(table)) as path,
            path.open("wb") as sink,
            pq.ParquetWriter(sink, _schema(table), compression="zstd") as file,
        ):
            for group in _groups(lines):
                file.write_table(_arrow(table, group, nodes))
        lines.unlink()


def read(directory: Path, table: TableName, *, nodes: Mapping[str, str]) -> Samples | None:
    """Read a table as one array a column, NaN or None for missing values; returns None if the run has no such table.

    `nodes` is needed only if the runner was killed before it wrote Parquet.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes 0.2 s to load
    import pyarrow.parquet as pq  # noqa: PLC0415

    if (path := directory / parquet_file(table)).exists():
        with path.open("rb") as file:
            found = _with_all_columns(table, pq.ParquetFile(file).read())
    elif (path := directory / lines_file(table)).exists():
        found = pa.concat_tables([_schema(table).empty_table(), *(_arrow(table, g, nodes) for g in _groups(path))])
    else:
        return None
    return {name: _array(found[name].to_pylist(), kind) for name, kind in COLUMNS[table].items()}


def _groups(path: Path) -> Iterable[list[Rows]]:
    """Yield the lines of a file in groups of at least GROUP rows, the last may be smaller; a truncated last line is left out."""
    group: list[Rows] = []
    rows = 0
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                break
            group.append(Rows.model_validate(load_fields(line)))
            rows += group[-1].count
            if rows >= GROUP:
                yield group
                group, rows = [], 0
    if group:
        yield group


def _with_all_columns(table: TableName, found: pa.Table) -> pa.Table:
    """Add the columns that the file of an older version lacks, as nulls."""
    import pyarrow as pa  # noqa: PLC0415 - takes 0.2 s to load

    for field in _schema(table):
        if field.name not in found.column_names:
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    return found.select(list(COLUMNS[table]))


def _arrow(table: TableName, group: list[Rows], nodes: Mapping[str, str]) -> pa.Table:
    """Convert rows to Arrow through JSON: conversion from Python lists loads pandas, 40 MB that the runner of a job does not need."""
    from pyarrow import json as of_json  # noqa: PLC0415 - takes 0.2 s to load

    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS[table]}
    for rows in group:
        place: dict[str, Any] = {"node": nodes[rows.container], "rank": rows.rank}
        for name, values in columns.items():
            values.extend(rows.columns.get(name, [place.get(name)] * rows.count))
    if table == "kernels":
        columns["category"] = list(map(category, columns["kind"], columns["name"]))
    cells = (
        {name: cell for name, cell in zip(columns, row, strict=True) if cell is not None}
        for row in zip(*columns.values(), strict=True)
    )
    text = "\n".join(map(json.dumps, cells))
    return of_json.read_json(
        io.BytesIO(text.encode()),
        read_options=of_json.ReadOptions(block_size=len(text) + 1),
        parse_options=of_json.ParseOptions(explicit_schema=_schema(table), unexpected_field_behavior="error"),
    )


def _array(cells: list[Any], kind: Kind) -> npt.NDArray[np.float64] | npt.NDArray[np.object_]:
    """Convert a column to an array: of numbers with NaN for null, or of objects for texts and lists."""
    import numpy as np  # noqa: PLC0415 - reading records alone does not need it

    if kind in ("number", "whole"):
        return np.array(cells, dtype=np.float64)
    held = np.empty(len(cells), dtype=object)
    held[:] = cells
    return held


def _schema(table: TableName) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415 - takes 0.2 s to load

    process = [("pid", pa.int64()), ("memory_mib", pa.float64()), ("cgroup", pa.string()), ("session", pa.int64())]
    kinds: dict[Kind, pa.DataType] = {
        "number": pa.float64(),
        "whole": pa.int64(),
        "text": pa.string(),
        "numbers": pa.list_(pa.float32()),
        "processes": pa.list_(pa.struct(process)),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in COLUMNS[table].items()])
