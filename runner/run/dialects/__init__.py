"""Logs of external programs → the suite's own events. Pure.

Each dialect is a module of that name with a `LogReader`; `runner/core/request.py` lists the names. No dialect may match a line of another, so
their order does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final, cast, get_args

from runner.core.request import DialectName
from runner.run.dialects.base import AutoReader, Facts, LogReader


def _reader(name: DialectName) -> type[LogReader]:
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    return next(cast("type[LogReader]", one) for one in vars(module).values() if getattr(one, "name", None) == name)


DIALECTS: Final[Mapping[DialectName, type[LogReader]]] = MappingProxyType(
    {name: _reader(name) for name in get_args(DialectName)}
)
UNITS: Final[Mapping[str, str]] = MappingProxyType({name: reader.unit for name, reader in DIALECTS.items()})
"""The unit of each dialect's rates."""


def auto(facts: Facts) -> AutoReader:
    """Make a reader that detects the dialect while the log is written."""
    return AutoReader(facts, DIALECTS)
