"""The tables of a run: lines of rows while it goes on, Parquet once it has ended, an array of every column to who reads it.

Each file keeps to the order in which rows came. What a killed runner had heard stays readable as lines.
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

# Rows of one group of a Parquet file: what is in memory at once while a long run's table is written.
GROUP: Final = 10_000


def lines_file(table: TableName) -> str:
    """Name of the file that rows are appended to while a run goes on."""
    return f"{table}.jsonl"


def parquet_file(table: TableName) -> str:
    """Name of the file in a run directory that has ended."""
    return f"{table}.parquet"


def write_parquet(directory: Path, *, nodes: Mapping[str, str]) -> None:
    """Turn the lines of every table in a run directory into Parquet; the lines go once all of them are in it.

    `nodes` has by container the node that it ran on. An OSError: it could not be written; the lines are still there.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes 0.2 s to load, after the run
    import pyarrow.parquet as pq  # noqa: PLC0415

    # Arrow's own allocator keeps 6 MiB more than it hands out.
    pa.set_memory_pool(pa.system_memory_pool())
    for table in COLUMNS:
        lines = directory / lines_file(table)
        if not lines.exists():
            continue
        # Open files throughout: pyarrow takes the name of a folder like `a:b` for a URI.
        with (
            draft(directory / parquet_file(table)) as path,
            path.open("wb") as sink,
            pq.ParquetWriter(sink, _schema(table), compression="zstd") as file,
        ):
            for group in _groups(lines):
                file.write_table(_arrow(table, group, nodes))
        lines.unlink()


def read(directory: Path, table: TableName, *, nodes: Mapping[str, str]) -> Samples | None:
    """Read a table with every column that it can have, null where a program had nothing for it; None when the run has no such table.

    `nodes` is asked where the runner was killed before it wrote Parquet.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes 0.2 s to load
    import pyarrow.parquet as pq  # noqa: PLC0415

    if (path := directory / parquet_file(table)).exists():
        with path.open("rb") as file:
            found = _whole(table, pq.ParquetFile(file).read())
    elif (path := directory / lines_file(table)).exists():
        found = pa.concat_tables([_schema(table).empty_table(), *(_arrow(table, g, nodes) for g in _groups(path))])
    else:
        return None
    return {name: _array(found[name].to_pylist(), kind) for name, kind in COLUMNS[table].items()}


def _groups(path: Path) -> Iterable[list[Rows]]:
    """The lines of a file in groups of at least GROUP rows but for the last; a last line that was cut off is left out."""
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


def _whole(table: TableName, found: pa.Table) -> pa.Table:
    """A table with the columns that its file is older than, null throughout."""
    import pyarrow as pa  # noqa: PLC0415 - takes 0.2 s to load

    for field in _schema(table):
        if field.name not in found.column_names:
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    return found.select(list(COLUMNS[table]))


def _arrow(table: TableName, group: list[Rows], nodes: Mapping[str, str]) -> pa.Table:
    """Rows as Arrow, by way of JSON: what makes Arrow of Python's lists loads pandas, 40 MB that no run under way needs."""
    from pyarrow import json as of_json  # noqa: PLC0415 - takes 0.2 s to load

    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS[table]}
    for rows in group:
        place: dict[str, Any] = {"node": nodes[rows.container], "rank": rows.rank}
        for name, values in columns.items():
            values.extend(rows.columns.get(name, [place.get(name)] * rows.count))
    if table == "kernels":
        columns["category"] = list(map(category, columns["kind"], columns["name"]))
    told = (
        {name: cell for name, cell in zip(columns, row, strict=True) if cell is not None}
        for row in zip(*columns.values(), strict=True)
    )
    text = "\n".join(map(json.dumps, told))
    return of_json.read_json(
        io.BytesIO(text.encode()),
        read_options=of_json.ReadOptions(block_size=len(text) + 1),
        parse_options=of_json.ParseOptions(explicit_schema=_schema(table), unexpected_field_behavior="error"),
    )


def _array(cells: list[Any], kind: Kind) -> npt.NDArray[np.float64] | npt.NDArray[np.object_]:
    """A column as numbers, NaN for none; as objects where it holds texts or lists."""
    import numpy as np  # noqa: PLC0415 - who only reads records needs none

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
