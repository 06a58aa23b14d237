"""Exports JSON Schemas, the contracts with whoever reads or writes our files by other means: run records, published sources, overheads."""

from __future__ import annotations

from runner.core.errors import DlscaleError
from runner.core.provenance import SUITE_ROOT
from runner.experiments.overhead.raw import overhead_schema
from runner.results.published.load import published_schema
from runner.results.store import record_schema

DIRECTORY = SUITE_ROOT / "results" / "schema"


def export(*, check: bool) -> None:
    """Write the schemas; with `check`, only hold the committed ones against the code. DlscaleError: a committed schema differs."""
    schemas = (("record", record_schema()), ("published", published_schema()), ("overhead", overhead_schema()))
    for name, current in schemas:
        path = DIRECTORY / f"{name}.schema.json"
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(current, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != current:
            raise DlscaleError(f"{path} differs from the code; run `dlscale schema` and commit it")
