"""MXNet's Speedometer (`mxnet.callback`) of releases 0.7 to 1.9, and the same line of Gluon scripts. Pure.

    Epoch[0] Batch [40]     Speed: 1764.83 samples/sec    accuracy=0.400000      up to 1.4
    Epoch[0] Batch [20-40]  Speed: 1764.83 samples/sec    accuracy=0.400000      1.5 and newer
    Epoch[0] Batch [0-40]   Speed: 1764.83 samples/sec    accuracy=0.400000      1.5 and newer, auto_reset=False
    Epoch[0] Batch[40]      Speed: 1764.83 samples/sec                           Gluon, Horovod's mxnet_imagenet_resnet50.py

In all of them a line follows each multiple of `frequent` batches, and its speed covers the last `frequent` batches, even if the range begins
at 0: the clock restarts after each line and each epoch. So `frequent` is the greatest common divisor of all batch numbers, a window's
seconds are its samples ÷ speed, and the time between epochs is in no window.

Speedometer uses the batch of its own process. If several workers write to one log, their lines name them (`Node[1]`, `Rank[1]` or a
launcher's prefix); each is then a rank with its share of the devices. All events come at the end, once the number of workers is known.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar, Final

from runner.core.events import Event
from runner.core.events.parse import Line
from runner.core.request import DialectName
from runner.run.dialects.base import DialectError, Facts, LogReader, Track, finite

_SPEED: Final = re.compile(
    r"(?:\bNode\[(?P<node>\d+)\] +)?"
    r"(?:\b(?:Epoch|Iter)\[(?P<epoch>\d+)\] +)?(?:Rank\[(?P<rank>\d+)\] +)?"
    r"\bBatch ?\[(?:(?P<since>\d+)-)?(?P<batch>\d+)\]\s+Speed: (?P<speed>[\d.]+|inf) samples/sec(?P<metrics>.*)$"
)
_LOSS: Final = re.compile(r"(?:^|[\s-])(?:cross-entropy|loss)=(?P<value>\S+)")


@dataclass(frozen=True)
class _Row:
    """A line's figures for the last `frequent` batches: samples/s, and the mean loss if it has one."""

    place: tuple[str | None, int]  # epoch and batch
    speed: float | None
    loss: str | None
    received: float


class _Worker:
    """The lines of one worker so far."""

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self.frequent = 0

    def add(self, row: _Row, since: int) -> None:
        """Add a line. Before 1.0 there is one for each metric, all with the same speed: only the first counts."""
        if not self.rows or self.rows[-1].place != row.place:
            self.rows.append(row)
            self.frequent = math.gcd(self.frequent, row.place[1], since)


class MxnetReader(LogReader):
    """Reads Speedometer's lines."""

    name: ClassVar[DialectName] = "mxnet"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._workers: dict[int, _Worker] = {}

    def _read(self, line: Line, received: float) -> list[Event]:
        match = _SPEED.search(line.text)
        if match is None or int(match["batch"]) == 0:  # a loop that counts from 0 times its first batch separately
            return []
        self.found = True
        self._batch()
        loss = _LOSS.search(match["metrics"])
        row = _Row(
            place=(match["epoch"], int(match["batch"])),
            speed=finite(match["speed"]),
            loss=loss["value"] if loss else None,
            received=received,
        )
        rank = int(match["node"] or match["rank"] or line.rank or 0)
        self._workers.setdefault(rank, _Worker()).add(row, int(match["since"] or 0))
        return []

    def _batch(self) -> int:
        """Samples per device and step. Raises DialectError if unknown, already at the first line, so that the run ends early."""
        if self.facts.batch_per_device is None:
            raise DialectError(
                "Speedometer does not write its batch size; give BATCH, the samples a device takes at once"
            )
        return self.facts.batch_per_device

    def _end(self, received: float) -> list[Event]:
        if self.facts.devices % len(self._workers):
            self.complain(
                f"{len(self._workers)} workers write to the mxnet log, and cannot share {self.facts.devices} devices "
                "evenly; ask for as many devices as the command uses"
            )
            return []
        batch = self._batch() * self.facts.devices // len(self._workers)
        events: list[Event] = []
        for rank, worker in sorted(self._workers.items()):
            events += self._measured(Track(self.facts.container, rank=rank), worker, batch, received)
        return events

    def _measured(self, track: Track, worker: _Worker, batch: int, received: float) -> list[Event]:
        """The events of one worker, whose batch is `batch` samples."""
        events: list[Event] = []
        done = 0
        for row in worker.rows:
            begin, done = done, done + worker.frequent
            if row.loss is not None:
                events.append(track.loss(row.received, iteration=done - 1, value=finite(row.loss)))
            # A clock too coarse yields the speed `inf`, too few printed digits 0.00.
            if not row.speed or begin < (self.facts.warmup or 0):
                continue
            samples = worker.frequent * batch
            events += track.measured(
                row.received, begin=begin, iterations=worker.frequent, samples=samples, seconds=samples / row.speed
            )
        if track.windows == 0:
            self.complain(
                f"the mxnet log has no speed after iteration {self.facts.warmup or 0}; give Speedometer a smaller "
                "`frequent`, or train longer"
            )
        return [*events, track.stop(received)]
