"""Horovod's synthetic benchmarks for PyTorch, TensorFlow and Keras (examples/*/*_synthetic_benchmark*.py). Pure.

Rank 0 writes `Iter #3: 108.7 img/sec per GPU`: batch x batches per iter ÷ seconds, of one device. All devices run the same number of batches
in lockstep, so a window holds that many batches of every device. No line has the batches per iter: they are the command's
`--num-batches-per-iter`, or the benchmark's default. The rate does not depend on them, but a window's length does.

The Keras benchmark has no warm-up before `Iter #0`. That line counts as the warm-up, and the benchmark's own mean omits it too. The lines
`Img/sec per GPU` and `Total img/sec` are means of rates and are not used.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from runner.core.events import Event
from runner.core.events.parse import Line
from runner.core.request import DialectName
from runner.run.dialects.base import Facts, LogReader, finite

# Defaults of --num-batches-per-iter and --num-warmup-batches in all of Horovod's synthetic benchmarks.
BATCHES_PER_ITER: Final = 10
WARMUP_BATCHES: Final = 10

_BATCH: Final = re.compile(r"^Batch size: (?P<value>\d+)$")
_DEVICES: Final = re.compile(r"^Number of [A-Z]+s: (?P<value>\d+)$")
_WARM: Final = re.compile(r"^Running benchmark\.\.\.$")
_ITER: Final = re.compile(r"^Iter #(?P<iter>\d+): (?P<rate>[\d.]+) img/sec per [A-Z]+$")


class HorovodReader(LogReader):
    """Reads the log of rank 0 of a synthetic benchmark."""

    name: ClassVar[DialectName] = "horovod"
    unit: ClassVar[str] = "images/s"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._batches = facts.option("--num-batches-per-iter", BATCHES_PER_ITER)
        self._batch = facts.batch_per_device
        self._done: int | None = None  # iterations of the job so far; None during its warm-up

    def _read(self, line: Line, received: float) -> list[Event]:
        text = line.text
        if match := _BATCH.match(text):
            self._check_batch(int(match["value"]))
        elif match := _DEVICES.match(text):
            self.check_devices(devices=int(match["value"]))
        elif _WARM.match(text):
            self._done = self.facts.option("--num-warmup-batches", WARMUP_BATCHES)
            return [self._track.warmup_end(received, iterations=self._done)]
        elif match := _ITER.match(text):
            self.found = True
            return self._iter(finite(match["rate"]), received)
        return []

    def _check_batch(self, batch: int) -> None:
        if self._batch not in (None, batch):
            self.complain(
                f"the horovod log says {batch} samples a device, the run was asked for {self._batch}; give the command's "
                "own batch size as BATCH"
            )
        self._batch = batch

    def _iter(self, rate: float | None, received: float) -> list[Event]:
        """Read the rate of one device; the first rate counts as the warm-up if none was logged before."""
        if self._done is None:
            self._done = self._batches
            return [self._track.warmup_end(received, iterations=self._done)]
        begin = self._done
        self._done += self._batches
        if not rate or begin < (self.facts.warmup or 0):
            return []
        if self._batch is None:
            self.complain("the horovod log has no line `Batch size: N`; give BATCH, the samples a device takes at once")
            return []
        own = self._batches * self._batch
        samples = own * self.facts.devices
        return [self._track.window(received, iterations=self._batches, samples=samples, seconds=own / rate)]

    def _end(self, received: float) -> list[Event]:
        if self._track.windows == 0:
            self.complain(
                f"the horovod log has no `Iter #` after iteration {self.facts.warmup or 0}; give the benchmark more "
                "with --num-iters"
            )
        return [self._track.stop(received)]
