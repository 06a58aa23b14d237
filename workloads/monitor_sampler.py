"""Devices that are read again and again, each in a thread of its own, so that one that fails or hangs takes nothing else along.

The beat is uneven: an even one of 0.1 s meets training steps of 50 ms at the same place each time, and the power of that place is not
the power of a step.

Standard library and syntax of Python 3.6 only.
"""

import math
import random
import threading
import time
from collections import deque

NAP_S = 0.25  # how long a sampler of a slow beat takes to notice its end
JITTER = (
    0.95  # share of a part's interval after which it is due again: wakers are late by a little, not always by the same
)
UNEVEN = (0.75, 1.25)  # least and most time between two beats, as a share of the mean


class Missing:
    """Stands for a value that can't be had, and says why."""

    def __init__(self, reason):
        self.reason = reason


class Lost(Exception):  # noqa: N818 - the device is, not the program
    """A device, or what one of its parts is read from, is gone for good; the message says why."""


class Part:
    """Columns that are read with one call.

    `read()` gives one value a column (None for nothing new, `Missing` for no value), or nothing at all when there is nothing new;
    `every_s` is the least time between two calls, 0 for every beat.
    """

    def __init__(self, columns, read, every_s=0.0):
        self.columns = columns
        self.read = read
        self.every_s = every_s
        self.due = 0.0


class Device:
    """Something with a name and parts; `asks` is who answers."""

    asks = "the kernel"

    def __init__(self, name, parts):
        self.name = name
        self.parts = parts

    @property
    def columns(self):
        return [column for part in self.parts for column in part.columns]

    def begin(self):
        """Get ready, in the thread that will read."""

    def end(self):
        """Give back what `begin` took."""

    def is_final(self, error):
        """Whether asking again can't help; raises `Lost` when the whole device is gone."""
        return isinstance(error, Lost)

    def ask_slow_ones(self):
        """See to it that the next reading is of all parts that are not read at every beat, and of no other; whether there are any.

        The last one of a short run: what a counter rose by is known from its readings before the run and after it.
        """
        for part in self.parts:
            part.due = 0.0 if part.every_s else math.inf
        return any(part.every_s for part in self.parts)

    def read(self, now):
        """Read what is due at monotonic time `now`: {column: value or `Missing`}."""
        values = {}
        for part in tuple(self.parts):
            if part.due > now:
                continue
            part.due = now + part.every_s * JITTER
            try:
                values.update(zip(part.columns, part.read()))  # noqa: B905 - there may be nothing new
            except Exception as error:  # noqa: BLE001 - what fails in one part, however it does, must not end the others
                if self.is_final(error):
                    self.parts.remove(part)
                values.update(dict.fromkeys(part.columns, Missing(str(error) or repr(error))))
        return values


class Sampler(threading.Thread):
    """Reads a device `hz` times a second in the mean until `ending` is set.

    What it finds waits in `rows` as (monotonic seconds, {column: value}) and in `troubles` as (columns, reason), for a thread that
    writes. `asked` is when the call began that has not returned, None between calls.
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
        """Sample until told to end, or until the device is lost."""
        try:
            self._each(self.device.begin)
            begun = False
            due = time.monotonic() + self.period  # the first row, too, is about a whole beat
            while not self.ending:
                left = due - time.monotonic()
                if left > 0:  # not an Event's wait: before Python 3.11 that goes by the wall clock, which may jump
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
        except Exception as error:  # noqa: BLE001 - it must be said
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
        """Note each column and reason once: a value that comes and goes ten times a second is one trouble."""
        reasons = {}
        for column, value in missing.items():
            if (column, value.reason) not in self._told:
                self._told.add((column, value.reason))
                reasons.setdefault(value.reason, []).append(column)
        for reason, columns in reasons.items():
            self.troubles.append((columns, reason))


def next_beat(due, interval, now):
    """Give the beat that comes `interval` after the one that was `due`; what was slept through (a stopped machine) is not made up for."""
    following = due + interval
    return following if following > now else now + interval
