"""Logs of programs that are not ours → the suite's own events. Pure.

A dialect is a module of its name here with a `LogReader`; `runner/core/request.py` lists the names. No line of one dialect may be read by
another, so that their order decides nothing.
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
"""What each log counts, in its own words."""


def auto(facts: Facts) -> AutoReader:
    """A reader that finds the dialect by itself while the log is written."""
    return AutoReader(facts, DIALECTS)
