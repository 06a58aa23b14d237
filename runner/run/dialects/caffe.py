"""Caffe's solver log, of BVLC Caffe 1.0 and of NVIDIA's fork 0.15 to 0.17. Pure.

By the paper's definition, images/s = batch x iterations / seconds, where seconds is Caffe's own `y s/m iters`
(`Solver::Step` in src/caffe/solver.cpp). Not visible in the lines, but in the source:

- On a CPU, Caffe truncates its seconds to whole milliseconds, which makes every rate too high (`CPUTimer` in src/caffe/util/benchmark.cpp).
  The lines' timestamps have microseconds: if they show up to 2 ms more (1 ms is for writing the line), the timestamps are used.
- Iterations are counted from the previous line, because BVLC's `m` is always the solver's `display`, however many were done since then.
- The first line of a run ends no window: BVLC's counter is not yet set (rates such as -112.7 iter/s), and NVIDIA's prints
  `Iteration 0 (3.9 s)` without a rate.
- The last line, `Iteration 100, loss = ...`, is a forward pass after training and has no time.
- The seconds include any test phase between two lines. That is not training, so such a window is left out.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from runner.core.events import Event
from runner.core.events.parse import Line
from runner.core.request import DialectName
from runner.run.dialects.base import Facts, LogReader, finite

_GLOG: Final = re.compile(
    r"^[IWEF]\d{4,8} (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d\.\d+) +\d+ (?P<file>[\w.]+):\d+\] (?P<message>.*)$"
)
_STEP: Final = re.compile(
    r"^(?:\[\S+\] )?Iteration (?P<iteration>\d+)"
    r"(?: \((?:\S+ iter/s, (?P<seconds>[\d.e+-]+)s/\d+ iters?|\S+ s)\))?"
    r"(?:, [\d.]+/[\d.]+ep)?, loss = (?P<loss>\S+)$"
)
_TESTING: Final = re.compile(r"^Iteration \d+, Testing net")
_GPUS: Final = re.compile(r"^Using GPUs (?P<gpus>\d+(?:, \d+)*)$")
_DAY_S: Final = 86_400
# Most that the clock of Caffe's CPU mode truncates, and time allowed for writing a line.
_TRUNCATED_S: Final = 0.001
_WRITING_S: Final = 0.001
_BATCH_SIZE: Final = re.compile(r"^ +batch_size: (?P<value>\d+)$")
_ITER_SIZE: Final = re.compile(r"^iter_size: (?P<value>\d+)$")


class CaffeReader(LogReader):
    """Reads the log of `caffe train`.

    The batch comes from the facts. If they lack it, it is read from the train net in the log, but only for one device (in some versions
    `batch_size` is per device, in others it is the total) and only if the net has a single size.
    """

    name: ClassVar[DialectName] = "caffe"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._last: int | None = None
        self._stamp_s = 0.0
        self._on_cpu = False
        self._tested = False
        self._has_times = False
        # The text of the solver and of the first net follows a line of glog, and has no prefix of its own.
        self._block = ""
        self._nets = 0
        self._batch_sizes: set[int] = set()
        self._iter_size = 1

    def _read(self, line: Line, received: float) -> list[Event]:
        match = _GLOG.match(line.text)
        if match is None:
            self._read_sizes(line.text)
            return []
        self._block = ""
        message = match["message"].strip()
        if message == "Initializing solver from parameters:":
            self._block = "solver"
        elif message == "Initializing net from parameters:":
            self._nets += 1
            self._block = "net" if self._nets == 1 else ""  # the train net comes first, test nets follow
        elif message == "Use CPU.":
            self._on_cpu = True
        elif gpus := _GPUS.match(message):
            self.check_devices(devices=len(gpus["gpus"].split(",")))
        elif match["file"] == "solver.cpp" and _TESTING.match(message):
            self._tested = True
        elif match["file"] == "solver.cpp" and (step := _STEP.match(message)):
            hours, minutes, seconds = (float(match[part]) for part in "hms")
            return self._step(step, received, stamp_s=3600 * hours + 60 * minutes + seconds)
        return []

    def _read_sizes(self, text: str) -> None:
        """Read sizes from the text of the solver and the train net."""
        if self._block == "solver" and (match := _ITER_SIZE.match(text)):
            self._iter_size = int(match["value"])
        elif self._block == "net" and (match := _BATCH_SIZE.match(text)):
            self._batch_sizes.add(int(match["value"]))

    def _step(self, step: re.Match[str], received: float, *, stamp_s: float) -> list[Event]:
        """Read a display line: its loss, and the window since the previous line."""
        self.found = True
        iteration = int(step["iteration"])
        events: list[Event] = []
        if self._last is None and iteration == 0:
            events.append(self._track.first_step(received))
        if self._last is None or iteration != self._last:
            events.append(self._track.loss(received, iteration=iteration, value=finite(step["loss"])))
        seconds = finite(step["seconds"] or "")
        since = self._last
        if seconds is not None:
            self._has_times = True
        if since is not None and iteration > since and seconds is not None:
            stamped = (stamp_s - self._stamp_s) % _DAY_S
            if self._on_cpu and stamped and 0 <= stamped - seconds < _TRUNCATED_S + _WRITING_S:
                seconds = stamped
            if seconds <= 0:  # below the resolution of Caffe's clock: the next window covers both
                return events
            if since >= (self.facts.warmup or 0) and not self._tested:
                events += self._window(since, iteration, seconds, received)
        self._last, self._stamp_s = iteration, stamp_s
        self._tested = False
        return events

    def _window(self, since: int, iteration: int, seconds: float, received: float) -> list[Event]:
        samples = self._samples_per_iteration()
        if samples is None:
            return []
        count = iteration - since
        return self._track.measured(received, begin=since, iterations=count, samples=count * samples, seconds=seconds)

    def _samples_per_iteration(self) -> int | None:
        """Samples of all devices in one iteration; complains if unknown."""
        if self.facts.batch_per_device is not None:
            return self.facts.batch_per_device * self.facts.devices
        if self.facts.devices == 1 and len(self._batch_sizes) == 1:
            return next(iter(self._batch_sizes)) * self._iter_size
        self.complain(
            "the caffe log does not say how many samples an iteration takes; give BATCH, the samples a device"
        )
        return None

    def _end(self, received: float) -> list[Event]:
        if not self._has_times:
            self.complain(
                "the caffe log has no line with `s/N iters`: Caffe before 1.0 does not log its times; use a newer one"
            )
        elif self._track.windows == 0:
            self.complain(
                f"the caffe log has no two lines with `iter/s` after iteration {self.facts.warmup or 0} without a test "
                "phase between them; give the solver a smaller `display` or a larger `max_iter`, or no `test_interval`"
            )
        return [self._track.stop(received)]
