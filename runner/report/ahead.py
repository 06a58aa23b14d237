"""What figures, tables and plots are made with, loaded while a job gets ready for a GPU, or leaves: a second that nobody then waits for."""

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
    """Import them in a thread of its own; whoever needs one meanwhile waits for it alone."""
    threading.Thread(target=_load, name="ahead", daemon=True).start()


def _load() -> None:
    for name in MODULES:
        importlib.import_module(name)
