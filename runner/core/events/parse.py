"""Raw lines of a run → typed events, and rows of the tables beside them. Pure.

An event or column that the contract (`workloads/events.py`) does not know is a bug of the program and is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from runner.core.events import Event
from runner.core.frozen import is_plain, known, load_fields, misfit

PREFIX = "::dlscale:: "
ROWS_PREFIX: Final = "::dlscale-rows:: "
# `mpirun --tag-output` writes `[job,rank]<stdout>:`, horovodrun `[rank]<stdout>:`, torchrun `[rank3]:` or `[default3]:`; the first
# two can put the date before it.
_TAG: Final = re.compile(
    r"^(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} ?)?"
    r"\[(?:(?:[^\]]*[,@])?(?P<rank>\d+)\]<std(?:out|err)>:|(?:rank|default)(?P<local>\d+)\]:)(?P<text>.*)$"
)


_EVENT: TypeAdapter[Event] = TypeAdapter(Event)

TableName = Literal["telemetry", "kernels"]
Kind = Literal["number", "whole", "text", "numbers", "processes"]

# `node`, `rank` and `category` are the runner's own; all else is what programs write.
COLUMNS: Final[Mapping[TableName, Mapping[str, Kind]]] = {
    "telemetry": {
        "node": "text",
        "rank": "whole",
        "t": "number",
        "device": "text",
        "memory_mib": "number",
        "energy_j": "number",
        # of a GPU
        "utilisation_percent": "number",
        "memory_utilisation_percent": "number",
        "power_w": "number",
        "temperature_c": "number",
        "sm_clock_mhz": "number",
        "memory_clock_mhz": "number",
        "slowdown_bits": "whole",
        "pcie_rx_bytes": "whole",
        "pcie_tx_bytes": "whole",
        "nvlink_rx_bytes": "whole",
        "nvlink_tx_bytes": "whole",
        "ecc_corrected": "whole",
        "ecc_uncorrected": "whole",
        "processes": "processes",
        # of its counters
        "sm_active_percent": "number",
        "sm_occupancy_percent": "number",
        "fp64_percent": "number",
        "fp32_percent": "number",
        "fp16_percent": "number",
        "tensor_percent": "number",
        "dram_percent": "number",
        "pcie_rx_rate": "number",
        "pcie_tx_rate": "number",
        "nvlink_rx_rate": "number",
        "nvlink_tx_rate": "number",
        # of a host
        "core_percent": "numbers",
        "disk_read_bytes": "whole",
        "disk_write_bytes": "whole",
        "net_rx_bytes": "whole",
        "net_tx_bytes": "whole",
        "clock_mhz": "number",
    },
    "kernels": {
        "node": "text",
        "rank": "whole",
        "kind": "text",
        "name": "text",
        "category": "text",
        "device": "whole",
        "stream": "whole",
        "thread": "whole",
        "start": "number",
        "duration": "number",
        "grid": "text",
        "block": "text",
        "bytes": "whole",
        "correlation": "whole",
        "op": "whole",
        "parent": "whole",
        "flop": "number",
        "fp32_percent": "number",
        "tensor_percent": "number",
        "dram_bytes": "number",
    },
}


class Rows(BaseModel):
    """Rows of a table of the run, many at once: lists of equal length by the name of their column. Rank is 0 for a node's sampler."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: TableName
    rank: int
    columns: dict[str, list[Any]]
    container: str

    @property
    def count(self) -> int:
        """How many rows they are."""
        return len(next(iter(self.columns.values()), []))

    @model_validator(mode="after")
    def _fit(self) -> Rows:
        if len({len(values) for values in self.columns.values()}) > 1:
            raise ValueError("its columns are not equally long")
        if unknown := self.columns.keys() - COLUMNS[self.table].keys():
            raise ValueError(f"table {self.table} has no column {', '.join(sorted(unknown))}")
        return self


class EventError(Exception):
    """A line that begins like an event but is none; the message says what is wrong with it."""


@dataclass(frozen=True)
class Line:
    """A line without the prefix of a launcher, and the rank that such a prefix names."""

    text: str
    rank: int | None

    @property
    def said(self) -> str:
        """The text without the space that may stand after a prefix."""
        return self.text if self.rank is None else self.text.removeprefix(" ")


def untag(text: str) -> Line:
    """Take a launcher's prefix off a line."""
    if match := _TAG.match(text):
        return Line(text=match["text"], rank=int(match["rank"] or match["local"]))
    return Line(text=text, rank=None)


def parse_line(text: str, *, received: float, container: str) -> Event | Rows | None:
    """Read one line of a program's standard output, marked with its rank or not; None when it is ordinary output.

    An EventError where the line has one of the prefixes and breaks the contract.
    """
    said = untag(text).said
    prefix = next((prefix for prefix in (PREFIX, ROWS_PREFIX) if said.startswith(prefix)), None)
    if prefix is None:
        return None
    try:
        fields = load_fields(said[len(prefix) :], of=known)
        if prefix == ROWS_PREFIX:
            return Rows.model_validate({**fields, "container": container})
        return _EVENT.validate_python({**fields, "received": received, "container": container})
    except ValidationError as error:
        raise EventError(f"{container} wrote an event that breaks the contract {misfit(error)}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise EventError(f"{container} wrote an event that is not a JSON object: {text[:200]!r}") from error


def parse_events(lines: Iterable[str]) -> tuple[Event, ...]:
    """Read the lines of an `events.jsonl` back."""
    return tuple(map(_event, filter(str.strip, lines)))


def _event(line: str) -> Event:
    return _EVENT.validate_json(line) if is_plain(line) else _EVENT.validate_python(load_fields(line))
