"""Engines `venv` and `host`: jobs as processes of this machine, in a locked environment of the suite or in the machine's own Python.

A job gets the same argv and lease, and its record the same labels, as in a container. It gets no isolation: it sees the host's files and
network, and the record says so.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Literal

from runner.engines.boxes import Bare
from runner.engines.command import CommandEngine
from runner.engines.ways import Here


class LocalEngine(CommandEngine):
    """Process trees of a Python that has the framework; `version` is that Python's, given if it may differ from the runner's."""

    def __init__(
        self,
        python: Path | None,
        workloads: Path,
        *,
        name: Literal["venv", "host"] = "venv",
        version: str | None = None,
    ) -> None:
        super().__init__(Here(), Bare(python, workloads, name), version=version or platform.python_version())
