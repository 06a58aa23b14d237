"""The tables of nccl-tests (github.com/NVIDIA/nccl-tests, src/common.cu): all_reduce_perf and its siblings. Pure.

    #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
      1073741824     268435456     float     sum      -1   8139.9  131.91  230.84      0   8201.6  130.92  229.11      0
    # Out of bounds values : 0 OK

Each row becomes a `Bandwidth` event for each placement of the result, at most two; there are no windows, because nothing is trained. The figure
usually quoted is `bus_bandwidth`. Tables up to 2.11 have no root and, in place of the count of wrong elements, a column `error` with the
greatest relative difference; `-c 0` writes `N/A` there. Until 2019, and in the tests of NCCL 1, that column is `res`, times are in
milliseconds, and the header differs: `#      bytes             N    type      op     time  algbw  busbw      res`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import ClassVar, Final, Literal

from runner.core.events import Bandwidth, Event
from runner.core.events.parse import Line
from runner.core.request import DialectName
from runner.run.dialects.base import Facts, LogReader, finite

_HEADER: Final = re.compile(
    r"^#\s+(?:size\s+count|(?P<old>bytes\s+N))\s+type\b.*\balgbw\s+busbw\s+(?P<check>#wrong|error|res)\s+time\b"
)
_RESULT: Final = r"\s+(?P<time{0}>[\d.]+|N/A)\s+(?P<alg{0}>[\d.]+|N/A)\s+(?P<bus{0}>[\d.]+|N/A)\s+(?P<check{0}>\S+)"
_ROW: Final = re.compile(
    r"^\s*(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>[a-z]\w*)(?:\s+(?P<redop>[a-z]\w*))?(?:\s+(?P<root>-?\d+))?"
    + _RESULT.format(0)
    + _RESULT.format(1)
    + "$"
)
_BOUNDS: Final = re.compile(r"^# Out of bounds values : (?P<count>\d+) (?P<verdict>OK|FAILED)")
_DEVICE: Final = re.compile(r"^#\s+(?:Rank\s+(?P<rank>\d+)\s.*\bdevice\s|Device\s+(?P<device>\d+) ->)")


class NcclTestsReader(LogReader):
    """Reads the table of one benchmark."""

    name: ClassVar[DialectName] = "nccl-tests"
    unit: ClassVar[str] = "GB/s"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._counts_wrong: bool | None = None  # None until the table's header
        self._us_per_unit = 1  # microseconds in the table's unit of time
        self._ranks: set[int] = set()
        self._largest: tuple[int, float] = (0, 0.0)  # bytes, bus bandwidth out of place in GB/s

    def _read(self, line: Line, received: float) -> list[Event]:
        text = line.text
        if match := _HEADER.match(text):
            self._counts_wrong = match["check"] == "#wrong"
            self._us_per_unit = 1000 if match["old"] else 1
        elif match := _DEVICE.match(text):
            self._ranks.add(int(match["rank"] or match["device"]))
        elif match := _BOUNDS.match(text):
            if match["verdict"] == "FAILED":
                self.complain(
                    f"nccl-tests counted {match['count']} results out of bounds: data arrives damaged, so its bandwidth is "
                    "meaningless; check devices and links for errors with `nvidia-smi -q` and `dmesg`"
                )
        elif self._counts_wrong is not None and (match := _ROW.match(text)):
            return self._row(match, received)
        return []

    def _row(self, match: re.Match[str], received: float) -> list[Event]:
        self.found = True
        return [made for column in (0, 1) if (made := self._result(match, column, received))]

    def _result(self, match: re.Match[str], column: Literal[0, 1], received: float) -> Bandwidth | None:
        """Read one half of a row; None if the collective lacks that placement."""
        time, alg, bus = (finite(match[f"{name}{column}"]) for name in ("time", "alg", "bus"))
        if time is None or alg is None or bus is None:
            return None
        check = match[f"check{column}"]
        wrong = int(check) if self._counts_wrong and check.isdecimal() else None  # N/A or -1: not checked
        size = int(match["size"])
        if wrong:
            self.complain(
                f"nccl-tests found {wrong} wrong elements in a message of {size} bytes, so its bandwidth is meaningless; "
                "check devices and links for errors with `nvidia-smi -q` and `dmesg`"
            )
        if column == 0:
            self._largest = max(self._largest, (size, bus))
        return Bandwidth(
            event="bandwidth",
            size_bytes=size,
            elements=int(match["count"]),
            dtype=match["type"],
            operation=match["redop"],
            root=int(match["root"]) if match["root"] else None,
            placement="in-place" if column else "out-of-place",
            time_us=time * self._us_per_unit,
            algbw_gb_s=alg,
            busbw_gb_s=bus,
            wrong=wrong,
            rank=0,
            t=received,
            received=received,
            container=self.facts.container,
        )

    def _end(self, received: float) -> list[Event]:
        if self._ranks:
            self.check_devices(devices=len(self._ranks))
        if self._largest[1] == 0:
            self.complain(
                f"nccl-tests measured 0 GB/s for its largest message ({self._largest[0]} bytes); give it two devices or "
                "more, and messages of megabytes with -e"
            )
        return [self._track.stop(received)]


def bus_bandwidth(events: Sequence[Event]) -> float | None:
    """The usually quoted figure: bus bandwidth in GB/s of the largest out-of-place message; None without such an event, or if it is 0.

    If that message was measured more than once (other types, operations or roots, or a repeated table), this is all bytes ÷ all seconds:
    the harmonic mean of the rates, because their sizes are equal.
    """
    rows = [event for event in events if isinstance(event, Bandwidth) and event.placement == "out-of-place"]
    largest = max((row.size_bytes for row in rows), default=None)
    rates = [row.busbw_gb_s for row in rows if row.size_bytes == largest]
    if not rates or min(rates) <= 0:
        return None
    return len(rates) / math.fsum(1 / rate for rate in rates)
