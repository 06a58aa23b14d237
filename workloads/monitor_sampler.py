"""Devices that are sampled repeatedly, each in its own thread, so that one that fails or hangs does not affect the others.

Sampling is jittered: at an even 0.1 s, training steps of 50 ms would always be sampled at the same phase, whose power is not the mean
power of a step.

Standard library and syntax of Python 3.6 only.
"""

import math
import random
import threading
import time
from collections import deque

NAP_S = 0.25  # longest sleep, so that a sampler with a long interval notices its end soon
JITTER = 0.95  # share of a part's interval after which it is due again: threads wake late, by varying amounts
UNEVEN = (0.75, 1.25)  # shortest and longest interval between two samples, relative to the mean


class Missing:
    """A value that is not available; `reason` says why."""

    def __init__(self, reason):
        self.reason = reason


class Lost(Exception):  # noqa: N818 - the device is, not the program
    """A device, or the source of one of its parts, is gone for good; the message says why."""


class Part:
    """Columns that one call reads.

    `read()` returns one value per column (None if it has no new value, `Missing` if none is available), or an empty list if nothing is
    new; `every_s` is the least time between two calls, 0 for every sample.
    """

    def __init__(self, columns, read, every_s=0.0):
        self.columns = columns
        self.read = read
        self.every_s = every_s
        self.due = 0.0


class Device:
    """A named set of parts; `asks` names what answers its calls."""

    asks = "the kernel"

    def __init__(self, name, parts):
        self.name = name
        self.parts = parts

    @property
    def columns(self):
        return [column for part in self.parts for column in part.columns]

    def begin(self):
        """Prepare, in the thread that will read."""

    def end(self):
        """Release what `begin` acquired."""

    def is_final(self, error):
        """Whether a retry is pointless; raises `Lost` if the whole device is gone."""
        return isinstance(error, Lost)

    def ask_slow_ones(self):
        """Make the next reading cover exactly the parts that are not read at every sample; return whether there are any.

        For the last reading of a short run: the increase of a counter follows from its readings before and after the run.
        """
        for part in self.parts:
            part.due = 0.0 if part.every_s else math.inf
        return any(part.every_s for part in self.parts)

    def read(self, now):
        """Read the parts due at monotonic time `now`: {column: value or `Missing`}."""
        values = {}
        for part in tuple(self.parts):
            if part.due > now:
                continue
            part.due = now + part.every_s * JITTER
            try:
                values.update(zip(part.columns, part.read()))  # noqa: B905 - the reading may be empty
            except Exception as error:  # noqa: BLE001 - no failure of one part may end the others
                if self.is_final(error):
                    self.parts.remove(part)
                values.update(dict.fromkeys(part.columns, Missing(str(error) or repr(error))))
        return values


class Sampler(threading.Thread):
    """Reads a device `hz` times a second on average until `ending` is set.

    Queues its results for a writing thread: `rows` of (monotonic seconds, {column: value}), `troubles` of (columns, reason).
    `asked` is the start time of the call in progress, None between calls.
    """

    def __init__(self, device, hz):
        super().__init__(name=device.name, daemon=True)
        self.device = device
        self.period = 1.0 / hz
        self.rows = deque()
        self.troubles = deque()
        self.asked = None
        self.ending = False
        self._told = set()

    def run(self):
        """Sample until `ending` is set or the device is lost."""
        try:
            self._each(self.device.begin)
            begun = False
            due = time.monotonic() + self.period  # the first row, too, covers about a whole period
            while not self.ending:
                left = due - time.monotonic()
                if left > 0:  # not Event.wait: before Python 3.11 it follows the wall clock, which may jump
                    time.sleep(min(left, NAP_S))
                    continue
                self._each(self._sample)
                begun = True
                due = next_beat(due, self.period * random.uniform(*UNEVEN), time.monotonic())
            if begun and self.device.ask_slow_ones():
                self._each(self._sample)
            self.device.end()
        except Lost as error:
            self._tell({column: Missing(str(error)) for column in self.device.columns})
        except Exception as error:  # noqa: BLE001 - any failure must be reported
            self._tell({column: Missing(f"the sampler failed: {error!r}") for column in self.device.columns})
        self.asked = None

    def _each(self, call):
        self.asked = time.monotonic()
        call()
        self.asked = None

    def _sample(self):
        now = self.asked
        values = self.device.read(now)
        missing = {name: value for name, value in values.items() if isinstance(value, Missing)}
        if missing:
            self._tell(missing)
            values = {name: value for name, value in values.items() if name not in missing}
        self.rows.append((now, values))

    def _tell(self, missing):
        """Report each column and reason once: a value that flaps ten times a second is one trouble."""
        reasons = {}
        for column, value in missing.items():
            if (column, value.reason) not in self._told:
                self._told.add((column, value.reason))
                reasons.setdefault(value.reason, []).append(column)
        for reason, columns in reasons.items():
            self.troubles.append((columns, reason))


def next_beat(due, interval, now):
    """Return the sample time `interval` after `due`; samples missed during a suspension of the machine are not made up for."""
    following = due + interval
    return following if following > now else now + interval
