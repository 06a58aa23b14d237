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

MAX_NAP_S = 0.25  # longest sleep, so that a sampler with a long interval notices its end soon
DUE_SHARE = 0.95  # share of a part's interval after which it is due again: threads wake late, by varying amounts
INTERVAL_RANGE = (0.75, 1.25)  # shortest and longest interval between two samples, relative to the mean


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
    """A named set of parts; `answerer` names what answers its calls, `nap_s` is the longest time between two calls of `between`."""

    answerer = "the kernel"
    nap_s = MAX_NAP_S

    def __init__(self, name, parts):
        self.name = name
        self.parts = parts

    @property
    def columns(self):
        return [column for part in self.parts for column in part.columns]

    def begin(self):
        """Prepare, in the thread that will read."""

    def between(self):
        """Follow what can't wait for the next sample; must not fail."""

    def end(self):
        """Release what `begin` acquired."""

    def is_final(self, error):
        """Whether a retry is pointless; raises `Lost` if the whole device is gone."""
        return isinstance(error, Lost)

    def select_slow_parts(self):
        """Make the next reading cover exactly the parts that are not read at every sample; return whether there are any.

        For the last reading, which a short run needs: a counter's increase follows from its readings before and after the run.
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
            part.due = now + part.every_s * DUE_SHARE
            try:
                values.update(zip(part.columns, part.read()))  # noqa: B905 - the reading may be empty
            except Exception as error:  # noqa: BLE001 - no failure of one part may end the others
                if self.is_final(error):
                    self.parts.remove(part)
                values.update(dict.fromkeys(part.columns, Missing(str(error) or repr(error))))
        return values


class Sampler(threading.Thread):
    """Reads a device `hz` times a second on average until `stopping` is set.

    Queues its results for a writing thread: `rows` of (monotonic seconds, {column: value}), `troubles` of (columns, reason).
    `call_began` is the start time of the call in progress, None between calls.
    """

    def __init__(self, device, hz):
        super().__init__(name=device.name, daemon=True)
        self.device = device
        self.period = 1.0 / hz
        self.rows = deque()
        self.troubles = deque()
        self.call_began = None
        self.stopping = False
        self._reported = set()

    def run(self):
        """Sample until `stopping` is set or the device is lost."""
        try:
            self._time_call(self.device.begin)
            begun = False
            due = time.monotonic() + self.period  # the first row, too, covers about a whole period
            while not self.stopping:
                left = due - time.monotonic()
                if left > 0:  # not Event.wait: before Python 3.11 it follows the wall clock, which may jump
                    time.sleep(min(left, self.device.nap_s))
                    self._time_call(self.device.between)
                    continue
                self._time_call(self._sample)
                begun = True
                due = next_sample(due, self.period * random.uniform(*INTERVAL_RANGE), time.monotonic())
            if begun and self.device.select_slow_parts():
                self._time_call(self._sample)
            self.device.end()
        except Lost as error:
            self._report({column: Missing(str(error)) for column in self.device.columns})
        except Exception as error:  # noqa: BLE001 - any failure must be reported
            self._report({column: Missing(f"the sampler failed: {error!r}") for column in self.device.columns})
        self.call_began = None

    def _time_call(self, call):
        self.call_began = time.monotonic()
        call()
        self.call_began = None

    def _sample(self):
        now = self.call_began
        values = self.device.read(now)
        missing = {name: value for name, value in values.items() if isinstance(value, Missing)}
        if missing:
            self._report(missing)
            values = {name: value for name, value in values.items() if name not in missing}
        self.rows.append((now, values))

    def _report(self, missing):
        """Report each column and reason once: a value that flaps ten times a second is one trouble."""
        reasons = {}
        for column, value in missing.items():
            if (column, value.reason) not in self._reported:
                self._reported.add((column, value.reason))
                reasons.setdefault(value.reason, []).append(column)
        for reason, columns in reasons.items():
            self.troubles.append((columns, reason))


def next_sample(due, interval, now):
    """Return the sample time `interval` after `due`; samples missed during a suspension of the machine are not made up for."""
    following = due + interval
    return following if following > now else now + interval
