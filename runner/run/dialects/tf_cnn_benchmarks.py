"""TensorFlow's tf_cnn_benchmarks (github.com/tensorflow/benchmarks, benchmark_cnn.py). Pure.

    Batch size:  128 global
                 64 per device
    Step	Img/sec	total_loss
    10	images/sec: 154.8 +/- 0.6 (jitter = 4.0)	8.397
    total images/sec: 308.27

A row's rate is the batch ÷ the mean of all step times since warm-up ended (`get_perf_timing`). So the time until step s is
s x batch ÷ rate, and a window's time is the difference of two of these. The batch is the process's own: one device's under Horovod, the
global batch if one session serves all workers. Rates have one decimal. Rows so close together that this rounding could change a window by
more than 5 % are merged into longer windows, and rows left over at the end are in no window. Under Horovod every rank writes rows; a step
lasts until its slowest rank is done.

`total images/sec` covers the whole loop and all workers. It is used, as the only window, if the rows cannot be: if all are too coarse, if
--display_perf_ewma makes them forget old steps, or if the loop took over 5 % longer than its steps (checkpoints, summaries).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

from runner.core.events import Event
from runner.core.events.parse import Line
from runner.core.request import DialectName
from runner.run.dialects.base import Facts, LogReader, finite

# Batches before step 1 without --num_warmup_batches.
WARMUP_BATCHES: Final = 10
ROUNDING: Final = 0.05
TOLERANCE: Final = 0.05

_GLOBAL: Final = re.compile(r"\bBatch size:\s+(?P<value>[\d.]+) global$")
_PER_DEVICE: Final = re.compile(r"(?:^|\s)(?P<value>[\d.]+) per device$")
_STEPS: Final = re.compile(r"\bNum batches:\s+(?P<value>\d+)$")
_SESSION: Final = re.compile(r"\bSingleSess:\s+(?P<value>True|False)$")
_DEVICES: Final = re.compile(r"\bDevices:\s+\[(?P<value>'.*')\]$")
_VARIABLES: Final = re.compile(r"\bVariables:\s+(?P<value>\w+)$")
_ASYNC: Final = re.compile(r"\bSync:\s+False$")
_WARM: Final = re.compile(r"\bDone warm up$")
_ROW: Final = re.compile(
    r"(?:^|\s)(?P<step>\d+)\s+images/sec: (?P<rate>[\d.]+) \+/- \S+ \(jitter = \S+\)(?:\s+(?P<loss>\S+))?"
)
_TOTAL: Final = re.compile(r"\btotal images/sec: (?P<rate>[\d.]+)$")


@dataclass(frozen=True)
class _Row:
    """The slowest process's mean `rate`, in samples/s, over all steps up to `step`."""

    step: int
    rate: float
    received: float


@dataclass(frozen=True)
class _StepEnd:
    """Seconds from the end of warm-up to the end of a step, and their error due to the rounded rate."""

    step: int
    seconds: float
    error_s: float
    received: float

    @classmethod
    def of(cls, row: _Row, own_batch: int) -> _StepEnd:
        """Derive the time of a row's step from its rate."""
        seconds = row.step * own_batch / row.rate
        return cls(row.step, seconds, seconds * ROUNDING / row.rate, row.received)


class TfCnnBenchmarksReader(LogReader):
    """Reads the header, the rows and the total."""

    name: ClassVar[DialectName] = "tf_cnn_benchmarks"
    unit: ClassVar[str] = "images/s"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._warmup_steps = facts.option("--num_warmup_batches", WARMUP_BATCHES)
        self._averages_forget = any(word.lstrip("-").startswith("display_perf_ewma") for word in facts.words)
        self._rows: dict[int, _Row] = {}
        self._total: tuple[float, float] | None = None  # samples/s, time of receipt
        self._global: int | None = None
        self._per_device: int | None = None
        self._steps: int | None = None
        self._devices = 1
        self._one_session = False
        self._horovod = False
        self._warm = False

    def _read(self, line: Line, received: float) -> list[Event]:
        text = line.text
        if match := _ROW.search(text):
            return self._row(match, received)
        if match := _TOTAL.search(text):
            self.found = True
            self._total = (float(match["rate"]), received) if finite(match["rate"]) else None
        elif _WARM.search(text) and not self._warm:
            self._warm = True
            return [self._track.warmup_end(received, iterations=self._warmup_steps)]
        else:
            self._header(text)
        return []

    def _header(self, text: str) -> None:
        if match := _GLOBAL.search(text):
            self._global = round(finite(match["value"]) or 0) or None
        elif match := _PER_DEVICE.search(text):
            self._per_device = round(finite(match["value"]) or 0) or None
        elif match := _STEPS.search(text):
            self._steps = int(match["value"])
        elif match := _SESSION.search(text):
            self._one_session = match["value"] == "True"
        elif match := _DEVICES.search(text):
            self._devices = len(match["value"].split(","))
        elif match := _VARIABLES.search(text):
            self._horovod = match["value"] == "horovod"
        elif _ASYNC.search(text):
            self.complain(
                "the tf_cnn_benchmarks log is of asynchronous workers, none of which shows the job's steps; run it with "
                "--cross_replica_sync=True"
            )

    def _row(self, match: re.Match[str], received: float) -> list[Event]:
        self.found = True
        step, rate = int(match["step"]), finite(match["rate"])
        known = self._rows.get(step)
        if rate and (known is None or rate < known.rate):
            self._rows[step] = _Row(step=step, rate=rate, received=received)
        if known is not None or match["loss"] is None:
            return []
        value = finite(match["loss"])
        return [self._track.loss(received, iteration=self._warmup_steps + step - 1, value=value)]

    def _end(self, received: float) -> list[Event]:
        sizes = self._sizes()
        if sizes is None:
            return []
        global_batch, own_batch = sizes
        times = self._step_ends(own_batch)
        events: list[Event] = []
        if self._averages_forget or len(times) < 2 or self._loop_is_slower(times[-1], global_batch):  # noqa: PLR2004 - two ends
            events += self._whole_loop(global_batch)
        else:
            for begin, end in pairwise(times):
                steps = end.step - begin.step
                seconds = end.seconds - begin.seconds
                events.append(
                    self._track.window(end.received, iterations=steps, samples=steps * global_batch, seconds=seconds)
                )
        if self._track.windows == 0:
            self.complain(
                "the tf_cnn_benchmarks log has neither rows precise enough for their times nor a line `total images/sec`; "
                "run more steps with --num_batches"
            )
        return [*events, self._track.stop(received)]

    def _sizes(self) -> tuple[int, int] | None:
        """Samples of a step: of all devices, and of the devices that one row covers; complains if the log lacks them."""
        if self._global is None or self._per_device is None:
            if self.facts.batch_per_device is None or self.facts.devices > 1:
                self.complain("the tf_cnn_benchmarks log has no header with `Batch size:`; pass on its whole output")
                return None
            return self.facts.batch_per_device, self.facts.batch_per_device
        self.check_devices(devices=round(self._global / self._per_device))
        if self.facts.batch_per_device not in (None, self._per_device):
            self.complain(
                f"the tf_cnn_benchmarks log says {self._per_device} samples a device, the run was asked for "
                f"{self.facts.batch_per_device}; give the command's own --batch_size as BATCH"
            )
        if self._one_session:
            return self._global, self._global
        return self._global, self._per_device * (1 if self._horovod else self._devices)

    def _step_ends(self, own_batch: int) -> list[_StepEnd]:
        """Ends of steps that are far enough apart for their rates' precision; first comes the end of the warm-up, or the first row after a longer one."""
        times: list[_StepEnd] = []
        rows = sorted(self._rows.values(), key=lambda row: row.step)
        ends = [_StepEnd.of(row, own_batch) for row in rows]
        for time in [_StepEnd(step=0, seconds=0.0, error_s=0.0, received=0.0), *ends]:
            if self._warmup_steps + time.step < (self.facts.warmup or 0):
                continue
            if not times or times[-1].error_s + time.error_s <= TOLERANCE * (time.seconds - times[-1].seconds):
                times.append(time)
        return times

    def _loop_is_slower(self, last: _StepEnd, global_batch: int) -> bool:
        """Whether the whole loop took longer than its steps, beyond the tolerance."""
        if self._total is None:
            return False
        return self._total[0] < (1 - TOLERANCE) * last.step * global_batch / last.seconds

    def _whole_loop(self, global_batch: int) -> list[Event]:
        """One window from the line `total images/sec`."""
        steps = self._steps or max(self._rows, default=0)
        if self._total is None or not self._total[0] or not steps:
            return []
        rate, received = self._total
        samples = steps * global_batch
        return [self._track.window(received, iterations=steps, samples=samples, seconds=samples / rate)]
