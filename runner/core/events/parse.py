"""Parses the raw lines of a run into typed events and rows of tables. Pure.

An event or column that is not in the contract (`workloads/events.py`) is a bug of the program; the error names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from runner.core.events import Event
from runner.core.frozen import finite_or_none, first_error, is_plain, load_fields

PREFIX = "::dlscale:: "
ROWS_PREFIX: Final = "::dlscale-rows:: "
# `mpirun --tag-output` writes `[job,rank]<stdout>:`, horovodrun `[rank]<stdout>:`, torchrun `[rank3]:` or `[default3]:`; a date may
# precede the first two.
_TAG: Final = re.compile(
    r"^(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} ?)?"
    r"\[(?:(?:[^\]]*[,@])?(?P<rank>\d+)\]<std(?:out|err)>:|(?:rank|default)(?P<local>\d+)\]:)(?P<text>.*)$"
)


_EVENT: TypeAdapter[Event] = TypeAdapter(Event)

TableName = Literal["telemetry", "kernels"]
Kind = Literal["number", "whole", "text", "numbers", "processes"]


def _columns(*kinds: tuple[Kind, str]) -> Mapping[str, Kind]:
    """Map column names to kinds, in order; each argument is a kind and the names of its columns."""
    return {name: kind for kind, names in kinds for name in names.split()}


# The runner adds `node`, `rank` and `category`; programs write all other columns.
COLUMNS: Final[Mapping[TableName, Mapping[str, Kind]]] = {
    "telemetry": _columns(
        ("text", "node"),
        ("whole", "rank"),
        ("number", "t"),
        ("text", "device"),
        ("number", "memory_mib energy_j"),
        # of a GPU
        (
            "number",
            "utilisation_percent memory_utilisation_percent power_w temperature_c sm_clock_mhz memory_clock_mhz",
        ),
        (
            "whole",
            "slowdown_bits pcie_rx_bytes pcie_tx_bytes nvlink_rx_bytes nvlink_tx_bytes ecc_corrected ecc_uncorrected",
        ),
        ("processes", "processes"),
        # of its counters
        (
            "number",
            "sm_active_percent sm_occupancy_percent fp64_percent fp32_percent fp16_percent tensor_percent dram_percent",
        ),
        ("number", "pcie_rx_rate pcie_tx_rate nvlink_rx_rate nvlink_tx_rate"),
        # of a host
        ("numbers", "core_percent"),
        ("whole", "disk_read_bytes disk_write_bytes net_rx_bytes net_tx_bytes"),
        ("number", "clock_mhz"),
    ),
    "kernels": _columns(
        ("text", "node"),
        ("whole", "rank"),
        ("text", "kind name category"),
        ("whole", "device stream thread"),
        ("number", "start duration"),
        ("text", "grid block"),
        ("whole", "bytes correlation op parent"),
        ("number", "flop fp32_percent tensor_percent dram_bytes"),
    ),
}


class Rows(BaseModel):
    """Rows of one of the run's tables, as lists of equal length by column name. The rank of a node's sampler is 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: TableName
    rank: int
    columns: dict[str, list[Any]]
    container: str

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), []))

    @model_validator(mode="after")
    def _columns_fit(self) -> Rows:
        if len({len(values) for values in self.columns.values()}) > 1:
            raise ValueError("its columns differ in length")
        if unknown := self.columns.keys() - COLUMNS[self.table].keys():
            raise ValueError(f"table {self.table} has no column {', '.join(sorted(unknown))}")
        return self


class EventError(Exception):
    """A line has the prefix of an event but is not a valid one; the message says why."""


@dataclass(frozen=True)
class Line:
    """A line without its launcher's prefix, and the rank from that prefix."""

    text: str
    rank: int | None

    @property
    def message(self) -> str:
        """The text without the space that may follow a prefix."""
        return self.text if self.rank is None else self.text.removeprefix(" ")


def untag(text: str) -> Line:
    """Strip a launcher's prefix from a line."""
    if match := _TAG.match(text):
        return Line(text=match["text"], rank=int(match["rank"] or match["local"]))
    return Line(text=text, rank=None)


def parse_line(text: str, *, received: float, container: str) -> Event | Rows | None:
    """Parse one line of a program's standard output, with or without a launcher's prefix; None for ordinary output.

    Raises EventError if the line has one of the two event prefixes but breaks the contract.
    """
    said = untag(text).message
    prefix = next((prefix for prefix in (PREFIX, ROWS_PREFIX) if said.startswith(prefix)), None)
    if prefix is None:
        return None
    try:
        fields = load_fields(said[len(prefix) :], parse_float=finite_or_none)
        if prefix == ROWS_PREFIX:
            return Rows.model_validate({**fields, "container": container})
        return _EVENT.validate_python({**fields, "received": received, "container": container})
    except ValidationError as error:
        raise EventError(f"{container} wrote an event that breaks the contract {first_error(error)}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise EventError(f"{container} wrote an event that breaks the contract ({error}): {text[:200]!r}") from error


def parse_events(lines: Iterable[str]) -> tuple[Event, ...]:
    """Parse the lines of an `events.jsonl`."""
    return tuple(map(_event, filter(str.strip, lines)))


def _event(line: str) -> Event:
    return _EVENT.validate_json(line) if is_plain(line) else _EVENT.validate_python(load_fields(line))
