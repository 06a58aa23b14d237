"""`dlscale query`: SQL in, an answer out."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.core.errors import RequestError


def query(
    sql: Annotated[str, typer.Argument(help="one statement that reads, in DuckDB's SQL", metavar="SQL")] = "",
    *,
    place: Annotated[
        str | None,
        typer.Option(
            "--in",
            help="run directory, folder of them, or glob (default: all in results/)",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="list all tables, their columns and what those mean")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print the answer as CSV")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the answer as JSON")] = False,
) -> None:
    """Ask everything on file by SQL: runs, windows, losses, epochs, telemetry, kernels, and what others published."""
    from runner.commands import query_flow  # noqa: PLC0415 - commands load what they need

    if as_csv and as_json:
        raise RequestError("--csv and --json exclude each other; leave one of them out")
    if tables:
        query_flow.list_tables()
    else:
        query_flow.query(sql, place=place, form="csv" if as_csv else "json" if as_json else "table")
