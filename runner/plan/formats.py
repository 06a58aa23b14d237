"""What a dry run prints instead of command lines: the same request in the words of a queue or a cluster, by the value of FORMAT. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from runner.core.request import Request
from runner.plan import slurm

Write = Callable[[Request, Sequence[str]], str]
"""A request and the words that were typed → a text."""
FORMATS: Final[Mapping[str, Write]] = {"sbatch": slurm.sbatch}
