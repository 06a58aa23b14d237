"""Preloads the modules that figures, tables and plots need, while a job prepares its GPU or exits: this saves a second of waiting afterwards."""

from __future__ import annotations

import importlib
import threading
from typing import Final

MODULES: Final = (
    "pyarrow.parquet",
    "runner.analysis.grading.grade",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "matplotlib.ticker",
    "runner.report.publish",
)


def load() -> None:
    """Import them in a thread; code that needs one of them meanwhile waits for that one only."""
    threading.Thread(target=_load, name="ahead", daemon=True).start()


def _load() -> None:
    for name in MODULES:
        importlib.import_module(name)
