"""Exports the JSON Schema of a run record, the contract with whoever reads records by other means."""

from __future__ import annotations

from runner.errors import DlscaleError
from runner.provenance import SUITE_ROOT
from runner.results import record_schema

PATH = SUITE_ROOT / "results" / "schema" / "record.schema.json"


def export(*, check: bool) -> None:
    """Write the schema; with `check`, only hold the committed one against the code.

    Raises:
        DlscaleError: the committed schema differs.
    """
    current = record_schema()
    if check:
        if not PATH.exists() or PATH.read_text(encoding="utf-8") != current:
            raise DlscaleError(f"{PATH} differs from the code; run `dlscale schema` and commit it")
        return
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(current, encoding="utf-8")
